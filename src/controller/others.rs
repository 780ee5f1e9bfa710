//! The workflows of a job that it does not follow.

use jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject},
};

use super::{Context, calls::CallError, live, stores::Stores};
use crate::{
    api::{
        UpgradeJob, labels,
        upgrade_job::{EngineChoice, FormerWorkflow},
    },
    engine::{self, Engine, Repeat, StopRequest, Workflow, Write},
    lifecycle::{OtherState, OtherWorkflow},
    plan::{self, Plan, RunKind},
};

/// One of them.
#[derive(Clone)]
pub struct Other {
    engine: &'static dyn Engine,
    workflow: Workflow,
}

impl Other {
    /// Its name.
    pub fn name(&self) -> String {
        self.workflow.object.name_any()
    }

    /// What is to be known of it.
    pub fn view(&self) -> OtherWorkflow {
        let nothing = Plan {
            version: plan::VERSION,
            run: RunKind::Main { attempt: 1 },
            steps: Vec::new(),
        };
        let run = self.engine.observe(&self.workflow, &nothing);
        let steps_wait = !self
            .engine
            .end_steps(&self.workflow, Timestamp::UNIX_EPOCH)
            .is_empty();
        let is_asked = run.finished || run.stop == Some(StopRequest::Terminate);
        let state = if run.repeat == Repeat::Begun && !is_asked {
            OtherState::Repeated
        } else if steps_wait || !is_asked {
            OtherState::GoesOn
        } else if run.repeat == Repeat::Possible {
            OtherState::EndedUnsealed
        } else if run.finished {
            OtherState::Ended
        } else {
            OtherState::Ending
        };
        OtherWorkflow {
            name: self.name(),
            engine: self.engine.kind(),
            state,
        }
    }

    /// The object as it was read.
    pub fn object(&self) -> &DynamicObject {
        &self.workflow.object
    }

    /// Its kind.
    pub fn resource(&self) -> ApiResource {
        self.engine.resource()
    }

    /// What keeps its engine from running anything of it if somebody retries it.
    pub fn seal(&self, now: Timestamp) -> Option<Write> {
        self.engine.seal(&self.workflow, now)
    }

    /// What stops it, and ends what then waits for us: in this order, or its exit part would begin.
    pub fn stop(&self, now: Timestamp) -> Vec<Write> {
        let stop = self.engine.stop(&self.workflow);
        let steps = self.engine.end_steps(&self.workflow, now);
        stop.into_iter().chain(steps).collect()
    }
}

/// As the copies have them: those that carry the job's UID.
pub fn seen(stores: &Stores, job: &UpgradeJob) -> Vec<Other> {
    let of_engine = |choice: EngineChoice| {
        let found = stores.matching_workflows(choice, |w| {
            is_of(w, job) && !is_followed(choice, &w.name_any(), job)
        });
        found
            .into_iter()
            .map(|(engine, workflow)| Other { engine, workflow })
    };
    let engines = [EngineChoice::Argo, EngineChoice::Tekton];
    engines.into_iter().flat_map(of_engine).collect()
}

/// The same, and those on record as earlier ones, as they are now.
pub async fn now(ctx: &Context, job: &UpgradeJob, seen: &[Other]) -> Result<Vec<Other>, CallError> {
    let former = job
        .status
        .as_ref()
        .map_or(&[][..], |s| s.former_workflows.as_slice());
    let mut names: Vec<(EngineChoice, String)> = seen.iter().map(|o| (o.engine.kind(), o.name())).collect();
    names.extend(former.iter().map(|f| (f.engine, f.name.clone())));
    names.sort_unstable_by(|a, b| a.1.cmp(&b.1));
    names.dedup();
    let mut all = Vec::new();
    for (choice, name) in names
        .into_iter()
        .filter(|(choice, name)| !is_followed(*choice, name, job))
    {
        let Some(engine) = engine::of(choice) else {
            continue;
        };
        let found = live::workflow(&ctx.client, &ctx.settings.namespace, engine, &name).await;
        let workflow = match found {
            Ok(Some(workflow)) => workflow,
            Ok(None) => continue,
            // With its kind, or the right to it, it went itself.
            Err(error) if error.is_out_of_reach() => continue,
            Err(error) => return Err(error),
        };
        // Whoever took the name of one that is gone is nobody to be stopped.
        let uid = workflow.object.metadata.uid.as_ref();
        let is_former = |f: &FormerWorkflow| f.name == name && f.uid.is_some() && f.uid.as_ref() == uid;
        if is_of(&workflow.object, job) || former.iter().any(is_former) {
            all.push(Other { engine, workflow });
        }
    }
    Ok(all)
}

fn is_followed(engine: EngineChoice, name: &str, job: &UpgradeJob) -> bool {
    job.workflow()
        .is_some_and(|w| w.engine == engine && w.name == name)
}

fn is_of(workflow: &DynamicObject, job: &UpgradeJob) -> bool {
    let of = workflow.labels().get(labels::UPGRADE_JOB_UID);
    of.is_some() && of == job.metadata.uid.as_ref()
}
