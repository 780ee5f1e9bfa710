//! The workflow of a job: made, written to, deleted.

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions},
};

use super::{
    super::{calls::call, effects::Effects, live_texts::LiveTexts, workflows},
    Error, Pass,
};
use crate::{
    api::UpgradeJob,
    engine::{self, Engine, Report, RunContext, Write, active_deadline_seconds, native::TemplateKey},
    plan::Plan,
};

impl Pass<'_> {
    pub(super) async fn create_workflow(&self, job: &UpgradeJob) -> Result<(), Error> {
        let status = job.status.clone().unwrap_or_default();
        let (Some(plan), Some(workflow)) = (&status.plan, &status.workflow) else {
            return Ok(());
        };
        let Some(engine) = engine::of(workflow.engine) else {
            return Ok(());
        };
        let plan = Plan::from_value(plan)?;
        let config = job.spec.config.workflow.clone().unwrap_or_default();
        let template = match &config.template {
            Some(reference) => Some(self.own_template(&reference.name, engine).await?),
            None => None,
        };
        let templates = workflows::templates_of(
            &self.ctx.client,
            &self.ctx.settings.namespace,
            &plan,
            &self.world.hooks,
        )
        .await?;
        let context = RunContext {
            job,
            name: workflow.name.clone(),
            config,
            template,
            default_service_account: self.ctx.settings.workflow_service_account.clone(),
            active_deadline_seconds: active_deadline_seconds(job),
            hooks: &self.world.hooks,
            templates: &templates,
        };
        match self.create(engine, &plan, &context).await {
            Err(Error::Call(error)) if error.is_invalid() && !templates.0.is_empty() => {
                // What hooks brought along must not keep the upgrade: it goes without, and each hook says why.
                let context = RunContext {
                    templates: &templates.refused(&error.refusal().unwrap_or_default()),
                    ..context
                };
                self.create(engine, &plan, &context).await
            }
            result => result,
        }
    }

    async fn create(&self, engine: &dyn Engine, plan: &Plan, context: &RunContext<'_>) -> Result<(), Error> {
        let object = engine.render(plan, context)?;
        let namespace = &self.ctx.settings.namespace;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.ctx.client.clone(), namespace, &engine.resource());
        let attempt = format!("create workflow {}", context.name);
        match call(attempt, api.create(&PostParams::default(), &object)).await {
            // Ours from before a crash, or a stranger's: the next look tells.
            Err(error) if error.is_already_exists() => Ok(()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The user's own template for the engine.
    async fn own_template(&self, name: &str, engine: &dyn Engine) -> Result<String, Error> {
        let key = TemplateKey::of_own(name);
        let (client, namespace) = (&self.ctx.client, &self.ctx.settings.namespace);
        let found = workflows::template(client, namespace, &key).await?;
        found
            .own_template(&key, engine.template_key())
            .map_err(Error::OwnTemplate)
    }

    /// Deletes a workflow as it was read; one that is gone by now is well.
    pub(super) async fn delete(&self, resource: &ApiResource, object: &DynamicObject) -> Result<(), Error> {
        let metadata = &object.metadata;
        let name = object.name_any();
        let only_this = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: metadata.resource_version.clone(),
                uid: metadata.uid.clone(),
            }),
            ..DeleteParams::background()
        };
        let (client, namespace) = (self.ctx.client.clone(), &self.ctx.settings.namespace);
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, resource);
        match call(format!("delete workflow {name}"), api.delete(&name, &only_this)).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) async fn report(
        &self,
        effects: &mut Effects<'_>,
        reports: &[(String, Report)],
        texts: &mut LiveTexts,
    ) -> Result<(), Error> {
        let plan = effects
            .job
            .status
            .as_ref()
            .and_then(|s| s.plan.as_ref())
            .map(Plan::from_value)
            .transpose()?;
        let (Some((engine, workflow)), Some(plan)) = (self.workflow(), plan) else {
            return Ok(());
        };
        // What a pod refers to is there before the pod is.
        let (reports, mut failed) = workflows::create_environments(effects, &workflow.object, reports).await;
        let now = self.ctx.now();
        for write in engine.report(workflow, &plan, &reports, now) {
            // Each stands for itself: a step that somebody else wrote to must not keep the others waiting.
            match effects.write_workflow(&write).await {
                Ok(()) => texts.reported(self.job, now),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Writes to a workflow, if there is something to write.
pub(super) async fn write(
    effects: &Effects<'_>,
    writes: impl IntoIterator<Item = Write>,
) -> Result<(), Error> {
    for write in writes {
        effects.write_workflow(&write).await?;
    }
    Ok(())
}
