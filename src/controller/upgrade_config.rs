//! UpgradeConfig: snapshot → decision → fresh snapshot → decision → job, status, deletes, Events.

use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PostParams, Preconditions},
};
use serde_json::json;

use super::{
    Context,
    calls::{CallError, call, found},
    effects::{self, MANAGER},
    events,
};
use crate::{
    api::{UpgradeConfig, UpgradeJob, upgrade_config::UpgradeConfigStatus},
    pinning::{ConfigDecision, ConfigSettings, decide, refused},
    world::World,
};

/// One pass over one config; returns when to look again.
pub async fn reconcile(
    ctx: &Context,
    world: &World,
    config: &UpgradeConfig,
) -> Result<Option<Timestamp>, CallError> {
    let settings = ConfigSettings {
        zones: ctx.settings.zones.clone(),
    };
    let decision = decide(config, world, ctx.now(), &settings);
    if !is_change(config, &decision) {
        return Ok(decision.wake_at);
    }
    // The copies may be minutes old: whether a run has its job already is asked of the API server.
    let mut fresh = Box::pin(ctx.fresh(world)).await?;
    let name = config.name_any();
    let Some(config) = fresh.configs.iter().find(|c| c.name_any() == name).cloned() else {
        return Ok(None);
    };
    let pass = Pass {
        client: &ctx.client,
        namespace: &ctx.settings.namespace,
        config: &config,
    };
    let mut decision = decide(&config, &fresh, ctx.now(), &settings);
    if let Some(job) = &decision.create {
        let created = pass.create(job).await;
        if let Err(error) = &created
            && error.is_invalid()
        {
            let refused = refused(&config, ctx.now(), &error.to_string());
            pass.write_status(&refused.status).await?;
            pass.tell(&refused, ctx.now()).await;
        }
        fresh.jobs.push(created?);
        // With the job in sight the run is recorded. A crash before this line leaves a job that is found again.
        let after = decide(&config, &fresh, ctx.now(), &settings);
        if after.create.is_some() {
            return Err(CallError::Own {
                attempt: format!("create UpgradeJob {}", job.name_any()),
                problem: "an UpgradeJob of this name is there and is not of this run; delete or rename it"
                    .to_owned(),
            });
        }
        pass.tell(&decision, ctx.now()).await;
        decision = after;
    }
    pass.write_status(&decision.status).await?;
    pass.tell(&decision, ctx.now()).await;
    for (job, uid) in &decision.delete_jobs {
        pass.delete(job, uid).await?;
    }
    Ok(decision.wake_at)
}

fn is_change(config: &UpgradeConfig, decision: &ConfigDecision) -> bool {
    let ConfigDecision {
        create,
        delete_jobs,
        status,
        notices,
        wake_at: _,
    } = decision;
    let old = config.status.clone().unwrap_or_default();
    create.is_some() || !delete_jobs.is_empty() || !notices.is_empty() || old != *status
}

struct Pass<'a> {
    client: &'a Client,
    namespace: &'a str,
    /// As read a moment ago; its resourceVersion guards the status.
    config: &'a UpgradeConfig,
}

impl Pass<'_> {
    fn jobs(&self) -> Api<UpgradeJob> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Creates the job of a run. One that is there already is what we wanted, or is told apart by the next decision.
    async fn create(&self, job: &UpgradeJob) -> Result<UpgradeJob, CallError> {
        let name = job.name_any();
        tracing::info!(config = self.config.name_any(), job = name, "creating UpgradeJob");
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        match call(
            format!("create UpgradeJob {name}"),
            self.jobs().create(&params, job),
        )
        .await
        {
            Err(error) if error.is_already_exists() => {
                call(format!("read UpgradeJob {name}"), self.jobs().get(&name)).await
            }
            result => result,
        }
    }

    async fn write_status(&self, status: &UpgradeConfigStatus) -> Result<(), CallError> {
        if self.config.status.as_ref() == Some(status) {
            return Ok(());
        }
        let name = self.config.name_any();
        let patch = json!({
            "metadata": {"resourceVersion": self.config.resource_version()},
            "status": status,
        });
        let api: Api<UpgradeConfig> = Api::namespaced(self.client.clone(), self.namespace);
        let patch = Patch::Merge(&patch);
        let params = effects::params();
        let write = api.patch_status(&name, &params, &patch);
        call(format!("write the status of UpgradeConfig {name}"), write)
            .await
            .map(drop)
    }

    async fn delete(&self, name: &str, uid: &str) -> Result<(), CallError> {
        tracing::info!(
            config = self.config.name_any(),
            job = name,
            "deleting UpgradeJob beyond the history limit"
        );
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        found(
            format!("delete UpgradeJob {name}"),
            self.jobs().delete(name, &params),
        )
        .await
        .map(drop)
    }

    async fn tell(&self, decision: &ConfigDecision, now: Timestamp) {
        events::publish(self.client, self.config, &decision.notices, now).await;
        for notice in &decision.notices {
            tracing::info!(
                config = self.config.name_any(),
                verdict = notice.reason,
                "{}",
                notice.note
            );
        }
    }
}
