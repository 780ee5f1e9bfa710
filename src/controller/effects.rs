//! Carries out actions: each one guarded write. A lost race is an error that leads to a new decision, never an overwrite.

use std::fmt::Debug;

use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::calls::{CallError, call, found};
use crate::{
    api::{
        UpgradeJob, UpgradeJobHook, annotations, finalizers,
        upgrade_job::{HookTracker, PauseReason},
    },
    engine::{Place, Write},
    hooks::{
        hook_run::{RunKind, RunName},
        select,
        task_run::{self, TaskRun},
        tracker::{self, NextTry},
    },
    openshift::{
        cluster_version::{self, ClusterVersion},
        machine_config_pool::MachineConfigPool,
    },
    pools,
    steps::Action,
    target::Target,
    world::World,
};

/// Field manager of all our writes.
pub const MANAGER: &str = "upgrade-operator";

/// What actions are carried out on: the fresh world they were decided on.
pub struct Effects<'a> {
    /// The client.
    pub client: &'a Client,
    /// The fresh world; its resourceVersions guard the writes.
    pub world: &'a World,
    /// The job, as last written.
    pub job: UpgradeJob,
}

/// Parameters of all our patches.
pub fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

impl Effects<'_> {
    fn namespace(&self) -> String {
        self.job.namespace().unwrap_or_default()
    }

    /// Carries out one action; workflows are made by the caller, who knows the engine.
    pub async fn carry_out(&mut self, action: &Action) -> Result<(), CallError> {
        tracing::info!(job = self.job.name_any(), %action, "acting");
        match action {
            Action::SetDesiredUpdate(target) => self.set_desired_update(target).await,
            Action::WithdrawDesiredUpdate { ours, restore } => self.withdraw(ours, restore.as_ref()).await,
            Action::PausePool { pool, reason } => self.pause(pool, *reason).await,
            Action::UnpausePool { pool } => self.unpause(pool).await,
            Action::CreateHookJob(job) => {
                let api = Api::namespaced(self.client.clone(), &self.namespace());
                self.create_hook_run(&api, job.as_ref(), RunKind::Job).await
            }
            Action::CreateHookTaskRun(run) => {
                self.create_hook_run(&self.task_runs(), run.as_ref(), RunKind::TaskRun)
                    .await
            }
            Action::RepeatHookTaskRun(next) => self.repeat_hook_task_run(next).await,
            Action::ReleaseHookRun(run) => {
                release_hook_run(self.client, &self.namespace(), self.world, run).await
            }
            Action::CancelHookTaskRun(name) => {
                cancel_hook_task_run(self.client, &self.namespace(), self.world, name).await
            }
            Action::ClaimHook { hook } => self.claim_hook(hook).await,
            Action::Protect => self.protect(true).await,
            Action::Unprotect => self.protect(false).await,
            Action::TakeLock => self.lock(true).await,
            Action::ReleaseLock => self.lock(false).await,
            // Carried out where the engine is known.
            Action::CreateWorkflow
            | Action::StopWorkflow
            | Action::StopOtherWorkflow { .. }
            | Action::WakeWorkflow
            | Action::SealWorkflow
            | Action::SealOtherWorkflow { .. }
            | Action::ResumeWorkflow
            | Action::EndMainPart
            | Action::DeleteWorkflow
            | Action::DeleteOtherWorkflow { .. } => Ok(()),
        }
    }

    fn cluster_version(&self, attempt: &str) -> Result<&ClusterVersion, CallError> {
        self.world.cluster_version.as_ref().ok_or_else(|| CallError::Own {
            attempt: attempt.to_owned(),
            problem: "the ClusterVersion is gone".to_owned(),
        })
    }

    /// Replaces the whole `desiredUpdate`: a merge would keep somebody's old `force: true` or `architecture`.
    async fn set_desired_update(&self, target: &Target) -> Result<(), CallError> {
        let attempt = format!(
            "set spec.desiredUpdate of the ClusterVersion to {}",
            target.version
        );
        let cluster = self.cluster_version(&attempt)?;
        let value = json!({"version": target.version, "image": target.image});
        let patch = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": cluster.resource_version()},
            {"op": "add", "path": "/spec/desiredUpdate", "value": value},
        ]);
        let patch = json_patch(patch, "set spec.desiredUpdate")?;
        patch_cluster_version(self.client, attempt, patch).await
    }

    async fn withdraw(&self, ours: &Target, restore: Option<&Target>) -> Result<(), CallError> {
        let attempt = format!(
            "take spec.desiredUpdate {} back from the ClusterVersion",
            ours.version
        );
        let cluster = self.cluster_version(&attempt)?;
        let change = match restore {
            Some(before) => json!({
                "op": "replace", "path": "/spec/desiredUpdate",
                "value": {"version": before.version, "image": before.image},
            }),
            None => json!({"op": "remove", "path": "/spec/desiredUpdate"}),
        };
        let patch = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": cluster.resource_version()},
            {"op": "test", "path": "/spec/desiredUpdate/version", "value": ours.version},
            change,
        ]);
        let patch = json_patch(patch, "take spec.desiredUpdate back")?;
        patch_cluster_version(self.client, attempt, patch).await
    }

    async fn lock(&self, take: bool) -> Result<(), CallError> {
        let attempt = if take {
            "take the lock on the ClusterVersion"
        } else {
            "release the lock on the ClusterVersion"
        };
        let cluster = self.cluster_version(attempt)?;
        let holder = take.then_some(&self.job);
        write_lock(self.client, cluster, attempt, holder).await
    }

    async fn pause(&self, pool: &str, reason: PauseReason) -> Result<(), CallError> {
        let reason = match reason {
            PauseReason::Delay => "delay",
            PauseReason::Failure => "failure",
        };
        let owner = json!({
            annotations::UPGRADE_JOB: pools::key(&self.job),
            annotations::UPGRADE_JOB_UID: self.job.metadata.uid,
            annotations::PAUSE_REASON: reason,
        });
        self.patch_pool(pool, true, &owner).await
    }

    async fn unpause(&self, pool: &str) -> Result<(), CallError> {
        let nobody = json!({
            annotations::UPGRADE_JOB: null,
            annotations::UPGRADE_JOB_UID: null,
            annotations::PAUSE_REASON: null,
        });
        self.patch_pool(pool, false, &nobody).await
    }

    /// Pause and owner are one write: a crash cannot leave a pause that nobody owns.
    async fn patch_pool(&self, name: &str, paused: bool, owner: &Value) -> Result<(), CallError> {
        let attempt = format!(
            "{} MachineConfigPool {name}",
            if paused { "pause" } else { "unpause" }
        );
        let Some(pool) = self.world.pool(name) else {
            return Err(CallError::Own {
                attempt,
                problem: "the pool is gone".to_owned(),
            });
        };
        let patch = json!({
            "metadata": {"resourceVersion": pool.resource_version(), "annotations": owner},
            "spec": {"paused": paused},
        });
        let api: Api<MachineConfigPool> = Api::all(self.client.clone());
        call(attempt, api.patch(name, &params(), &Patch::Merge(patch)))
            .await
            .map(drop)
    }

    fn task_runs(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace(), &task_run::resource())
    }

    /// A Job or TaskRun that the API server refuses will never run: its hook has failed.
    async fn create_hook_run<K>(&mut self, api: &Api<K>, run: &K, kind: RunKind) -> Result<(), CallError>
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    {
        match self.create_once(api, run, kind).await {
            Err(error) if error.is_invalid() || error.is_denied() => self.refused(run.meta(), &error).await,
            result => result,
        }
    }

    /// The name is deterministic, so one that exists already is the one that we created before.
    async fn create_once<K>(&self, api: &Api<K>, run: &K, kind: RunKind) -> Result<(), CallError>
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    {
        let (kind, name) = (kind.as_str(), run.name_any());
        let attempt = format!("create {kind} {name} of a hook");
        match call(attempt.clone(), api.create(&PostParams::default(), run)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_already_exists() => {
                let existing = call(format!("read {kind} {name} of a hook"), api.get(&name)).await?;
                let ours = existing
                    .owner_references()
                    .iter()
                    .any(|o| Some(&o.uid) == self.job.metadata.uid.as_ref());
                if ours {
                    return Ok(());
                }
                let problem =
                    format!("a {kind} of that name exists and belongs to something else; delete it");
                Err(CallError::Own { attempt, problem })
            }
            Err(error) => Err(error),
        }
    }

    /// What the killed one was told is read from it: the copies do not keep it. Gone, it is a result that is lost, which the
    /// next look tells.
    async fn repeat_hook_task_run(&mut self, next: &NextTry) -> Result<(), CallError> {
        let api = self.task_runs();
        let Some(killed) = found(format!("read {}", next.after), api.get(&next.after.name)).await? else {
            return Ok(());
        };
        let run = task_run::next(&killed, next);
        self.create_hook_run(&api, &run, RunKind::TaskRun).await
    }

    async fn refused(&mut self, run: &ObjectMeta, error: &CallError) -> Result<(), CallError> {
        let mut status = self.job.status.clone().unwrap_or_default();
        let Some(entry) = tracker::refused(run, &error.to_string()) else {
            return Ok(());
        };
        let same = |t: &HookTracker| {
            (&t.upgrade_job_hook, t.hook_event, &t.tracking_key)
                == (&entry.upgrade_job_hook, entry.hook_event, &entry.tracking_key)
        };
        status.hook_tracker.retain(|t| !same(t));
        status.hook_tracker.push(entry);
        self.write_status(&status).await
    }

    async fn claim_hook(&self, name: &str) -> Result<(), CallError> {
        let attempt = format!("claim UpgradeJobHook {name}");
        let Some(hook) = self.world.hooks.iter().find(|h| h.name_any() == name) else {
            return Ok(());
        };
        let patch = json!({
            "metadata": {"resourceVersion": hook.resource_version()},
            "status": {"claimedBy": select::claim_by(&self.job)},
        });
        let api: Api<UpgradeJobHook> = Api::namespaced(self.client.clone(), &self.namespace());
        call(attempt, api.patch_status(name, &params(), &Patch::Merge(patch)))
            .await
            .map(drop)
    }

    /// Adds or removes our finalizer. The owner reference to the config is dropped with it: re-creating the config in Git
    /// must not let the garbage collector kill a running upgrade (a label still names it).
    async fn protect(&mut self, protect: bool) -> Result<(), CallError> {
        let name = self.job.name_any();
        let attempt = format!(
            "{} the finalizer of UpgradeJob {name}",
            if protect { "set" } else { "remove" }
        );
        let mut all: Vec<String> = self.job.finalizers().to_vec();
        all.retain(|f| f != finalizers::UPGRADE_JOB);
        let mut owners = self.job.owner_references().to_vec();
        if protect {
            all.push(finalizers::UPGRADE_JOB.to_owned());
            owners.retain(|o| o.kind != crate::api::UpgradeConfig::kind(&()));
        }
        let metadata = json!({
            "resourceVersion": self.job.resource_version(),
            "finalizers": all,
            "ownerReferences": owners,
        });
        let api: Api<UpgradeJob> = Api::namespaced(self.client.clone(), &self.namespace());
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.job = call(attempt, api.patch(&name, &params(), &patch)).await?;
        Ok(())
    }

    /// Replaces the whole status, guarded by the job's resourceVersion.
    pub async fn write_status(
        &mut self,
        status: &crate::api::upgrade_job::UpgradeJobStatus,
    ) -> Result<(), CallError> {
        let api: Api<UpgradeJob> = Api::namespaced(self.client.clone(), &self.namespace());
        self.job = replace_status(&api, &self.job, status).await?;
        Ok(())
    }

    /// Writes to an object of the job's workflow.
    pub async fn write_workflow(&self, write: &Write) -> Result<(), CallError> {
        let Write {
            resource,
            name,
            place,
            patch,
        } = write;
        let namespace = self.job.namespace().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, resource);
        let attempt = format!("write to {} {name}", resource.kind);
        let (params, patch) = (params(), Patch::Merge(patch));
        match place {
            Place::Object => call(attempt, api.patch(name, &params, &patch)).await,
            Place::Status => call(attempt, api.patch_status(name, &params, &patch)).await,
        }
        .map(drop)
    }
}

async fn patch_cluster_version(
    client: &Client,
    attempt: String,
    patch: Patch<Value>,
) -> Result<(), CallError> {
    let api: Api<ClusterVersion> = Api::all(client.clone());
    call(attempt, api.patch(cluster_version::NAME, &params(), &patch))
        .await
        .map(drop)
}

/// Removes the lock, whoever has it.
pub async fn unlock(client: &Client, cluster: &ClusterVersion) -> Result<(), CallError> {
    write_lock(client, cluster, "remove the lock from the ClusterVersion", None).await
}

async fn write_lock(
    client: &Client,
    cluster: &ClusterVersion,
    attempt: &str,
    holder: Option<&UpgradeJob>,
) -> Result<(), CallError> {
    let uid = holder.and_then(|job| job.metadata.uid.clone());
    let patch = json!({"metadata": {
        "resourceVersion": cluster.resource_version(),
        "annotations": {annotations::UPGRADE_JOB: holder.map(pools::key), annotations::UPGRADE_JOB_UID: uid},
    }});
    patch_cluster_version(client, attempt.to_owned(), Patch::Merge(patch)).await
}

/// Replaces the whole status of one of our objects, guarded by its resourceVersion.
pub async fn replace_status<K>(api: &Api<K>, object: &K, status: &impl Serialize) -> Result<K, CallError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let name = object.name_any();
    let attempt = format!("write the status of {} {name}", K::kind(&()));
    let patch = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": object.resource_version()},
        {"op": "add", "path": "/status", "value": status},
    ]);
    let patch = json_patch(patch, &attempt)?;
    call(attempt, api.patch_status(&name, &params(), &patch)).await
}

/// Removes our finalizer from what ran a hook. A TaskRun at work goes on; one that Tekton has not begun is cancelled, since the
/// hook's moment may be over when it would.
pub async fn release_hook_run(
    client: &Client,
    namespace: &str,
    world: &World,
    run: &RunName,
) -> Result<(), CallError> {
    match run.kind {
        RunKind::Job => {
            let mut all = world.hook_jobs.iter();
            let job = all.find(|j| j.metadata.name.as_ref() == Some(&run.name));
            let api: Api<Job> = Api::namespaced(client.clone(), namespace);
            release(&api, job.map(|j| &j.metadata), run, &json!({})).await
        }
        RunKind::TaskRun => {
            release_task_run(client, namespace, world, run, |task_run| !task_run.is_begun()).await
        }
    }
}

/// The same for one that counts as failed although Tekton says nothing of its end: it must not run when Tekton is back.
async fn cancel_hook_task_run(
    client: &Client,
    namespace: &str,
    world: &World,
    name: &str,
) -> Result<(), CallError> {
    let run = RunName {
        kind: RunKind::TaskRun,
        name: name.to_owned(),
    };
    release_task_run(client, namespace, world, &run, |task_run| !task_run.has_ended()).await
}

async fn release_task_run(
    client: &Client,
    namespace: &str,
    world: &World,
    run: &RunName,
    is_cancelled: impl Fn(&TaskRun) -> bool,
) -> Result<(), CallError> {
    let mut all = world.hook_task_runs.iter();
    let task_run = all.find(|r| r.metadata.name.as_ref() == Some(&run.name));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &task_run::resource());
    let change = if task_run.is_some_and(is_cancelled) {
        json!({"spec": {"status": "TaskRunCancelled"}})
    } else {
        json!({})
    };
    release(&api, task_run.map(|r| &r.metadata), run, &change).await
}

/// Lets it go, and changes it besides. What is gone needs neither.
async fn release<K>(
    api: &Api<K>,
    known: Option<&ObjectMeta>,
    run: &RunName,
    change: &Value,
) -> Result<(), CallError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let Some(known) = known else { return Ok(()) };
    let mut all = known.finalizers.clone().unwrap_or_default();
    all.retain(|f| f != finalizers::HOOK_JOB);
    let mut patch = json!({"metadata": {"resourceVersion": known.resource_version, "finalizers": all}});
    json_patch::merge(&mut patch, change);
    let patch = Patch::Merge(patch);
    let attempt = format!("remove the finalizer of {run}");
    let released = call(attempt, api.patch(&run.name, &params(), &patch)).await;
    match released {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A JSON patch. Its resourceVersion is replaced, not tested: a lost race is then a conflict (409), while a failed test is
/// the same answer (422) as a patch that can never work.
pub fn json_patch(value: Value, attempt: &str) -> Result<Patch<Value>, CallError> {
    serde_json::from_value(value)
        .map(Patch::Json)
        .map_err(|e| CallError::Own {
            attempt: attempt.to_owned(),
            problem: e.to_string(),
        })
}

#[cfg(test)]
mod tests;
