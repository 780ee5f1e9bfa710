//! Leads a job through a play with its workflow on a real engine, as the operator would, and compares what the job tells with
//! what it has to tell.

use std::time::Duration;

use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::{
    api::{
        job_config::WorkflowConfig,
        labels,
        upgrade_job::{JobPhase, StepPhase, StepStatus},
    },
    engine::{
        Engine, Node, NodePhase, Place, Run, RunContext, StopRequest, Workflow, Write, native::NO_TEMPLATES,
    },
    lifecycle::RunState,
    plan::{Part, Plan},
    steps::Action,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    life::{Life, difference, story},
    plays::{Next, Play},
};

const NAMESPACE: &str = "default";
/// So long an engine may take to get from one point to the next. It takes a second or two; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(300);
/// So long a run that was stopped may take to end by itself.
const FORGOTTEN: Duration = Duration::from_secs(20);
/// So often it is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// A client of the cluster that the environment names.
pub async fn client() -> Client {
    // An error says that another test has installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::try_default().await.expect("a cluster")
}

/// A job whose workflow is on the cluster.
struct Live<'a> {
    client: &'a Client,
    engine: &'static dyn Engine,
    life: Life,
}

/// What was read of the workflow that the job follows.
struct Seen {
    state: RunState,
    workflow: Option<Workflow>,
}

impl Seen {
    fn run(&self) -> Option<&Run> {
        match &self.state {
            RunState::Present { run, .. } => Some(run),
            RunState::Absent | RunState::Gone { .. } | RunState::Foreign => None,
        }
    }
}

/// Plays it; an error says what went otherwise.
pub async fn play(client: &Client, engine: &'static dyn Engine, play: &Play) -> Result<(), String> {
    let name = format!("{}-{}", play.name, Timestamp::now().as_millisecond());
    let mut live = Live {
        client,
        engine,
        life: play.begin(&name, engine.kind()),
    };
    let mut last = Value::Null;
    let mut stop = None;
    for expected in story(play, &name) {
        live.reach(&expected).await?;
        match play.next(&mut live.life) {
            Next::Moved | Next::Nothing => {}
            Next::Stop(request) => {
                live.stop(request).await?;
                stop = Some(request);
            }
        }
        last = expected;
    }
    let run = live.end(&last).await?;
    live.shows_the_end(&run, stop)?;
    live.has_no_other_that_goes_on().await
}

impl Live<'_> {
    fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, kind)
    }

    /// The workflow that the job follows, as the operator reads it.
    async fn look(&self) -> Result<Seen, String> {
        let nothing = Seen {
            state: RunState::Absent,
            workflow: None,
        };
        let (Some(followed), Some(plan)) = (self.life.status().workflow, self.life.plan()) else {
            return Ok(nothing);
        };
        let workflows = self.api(&self.engine.resource());
        let Some(object) = workflows
            .get_opt(&followed.name)
            .await
            .map_err(|e| e.to_string())?
        else {
            return Ok(nothing);
        };
        let steps = match (self.engine.step_resource(), self.engine.step_label()) {
            (Some(kind), Some(label)) => {
                let of_run = ListParams::default().labels(&format!("{label}={}", followed.name));
                let found = self.api(&kind).list(&of_run).await;
                found.map_err(|e| e.to_string())?.items
            }
            _ => Vec::new(),
        };
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let workflow = Workflow { object, steps };
        let run = Box::new(without_times(self.engine.observe(&workflow, &plan)));
        Ok(Seen {
            state: RunState::Present { uid, run },
            workflow: Some(workflow),
        })
    }

    /// One look, one decision, and what comes of it; and whether there was nothing to do.
    async fn pass(&mut self) -> Result<(Seen, bool), String> {
        let seen = self.look().await?;
        let asked = self.life.pass(&seen.state);
        let mut writes = Vec::new();
        if let (Some(workflow), Some(plan)) = (&seen.workflow, self.life.plan()) {
            writes = self
                .engine
                .report(workflow, &plan, &asked.reports, Timestamp::now());
        }
        let is_quiet = !asked.has_changed && writes.is_empty();
        for write in writes {
            // One that somebody else was quicker than is decided anew.
            self.write(&write).await?;
        }
        for action in &asked.actions {
            self.act(action, &seen).await?;
        }
        Ok((seen, is_quiet))
    }

    async fn act(&self, action: &Action, seen: &Seen) -> Result<(), String> {
        let workflow = seen.workflow.as_ref();
        let write = match action {
            Action::CreateWorkflow => return self.create().await,
            Action::StopWorkflow => workflow.and_then(|w| self.engine.stop(w)),
            Action::EndMainPart => workflow.and_then(|w| self.engine.end_main_part(w)),
            Action::WakeWorkflow => workflow.and_then(|w| self.engine.wake(w, Timestamp::now())),
            other => return Err(format!("no play asks its engine for this: {other}")),
        };
        if let Some(write) = write {
            self.write(&write).await?;
        }
        Ok(())
    }

    async fn create(&self) -> Result<(), String> {
        let (status, plan) = (self.life.status(), self.life.plan().expect("a plan"));
        // Without UID, so that the garbage collector does not miss the owner.
        let mut job = self.life.job().clone();
        job.metadata.uid = None;
        let context = RunContext {
            job: &job,
            name: status.workflow.expect("a name").name,
            config: WorkflowConfig::default(),
            template: None,
            default_service_account: None,
            active_deadline_seconds: 3_600,
            hooks: &self.life.world.hooks,
            templates: &NO_TEMPLATES,
        };
        let object = self.engine.render(&plan, &context).map_err(|e| e.to_string())?;
        let workflows = self.api(&self.engine.resource());
        let created = workflows.create(&PostParams::default(), &object).await;
        created.map(drop).map_err(|e| e.to_string())
    }

    /// Whether it went through; false is a conflict.
    async fn write(&self, write: &Write) -> Result<bool, String> {
        let api = self.api(&write.resource);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&write.patch));
        let result = match write.place {
            Place::Object => api.patch(&write.name, &params, &patch).await,
            Place::Status => api.patch_status(&write.name, &params, &patch).await,
        };
        match result {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(e)) if e.code == 409 => Ok(false),
            Err(other) => Err(other.to_string()),
        }
    }

    /// A person stops the workflow.
    async fn stop(&self, request: StopRequest) -> Result<(), String> {
        for _ in 0..50 {
            let workflow = self.look().await?.workflow.expect("a workflow that runs");
            let write = match request {
                StopRequest::Stop => self.engine.end_main_part(&workflow),
                StopRequest::Terminate => self.engine.stop(&workflow),
            };
            if self.write(&write.expect("a workflow that runs")).await? {
                return Ok(());
            }
        }
        Err("50 conflicts in a row".to_owned())
    }

    /// The job tells what it has to tell, and the engine shows what runs.
    async fn reach(&mut self, expected: &Value) -> Result<(), String> {
        self.until(expected, |_| true).await.map(drop)
    }

    /// The same once the workflow has ended.
    async fn end(&mut self, expected: &Value) -> Result<Run, String> {
        let run = self
            .until(expected, |run| run.is_some_and(|r| r.finished))
            .await?;
        run.ok_or_else(|| "there is no workflow".to_owned())
    }

    async fn until(
        &mut self,
        expected: &Value,
        is_wanted: impl Fn(Option<&Run>) -> bool,
    ) -> Result<Option<Run>, String> {
        let begun = Instant::now();
        let mut is_woken = false;
        loop {
            let (seen, is_quiet) = self.pass().await?;
            let run = seen.run();
            // Tekton makes a step before it says that it has begun: a play must not move its time in between.
            let is_picked_up = run.is_none_or(|r| r.picked_up);
            let is_there =
                is_picked_up && self.life.told() == *expected && self.shows_what_runs(run) && is_wanted(run);
            if is_quiet && is_there {
                return Ok(run.cloned());
            }
            if begun.elapsed() > PATIENCE {
                let otherwise = difference(&self.life.told(), expected);
                return Err(format!(
                    "after {PATIENCE:?} it tells\n{otherwise}and shows {run:#?}"
                ));
            }
            // As the operator does with a run that was stopped and does not end.
            let is_stopped = run.is_some_and(|r| r.stop.is_some() && !r.finished);
            if is_stopped && !is_woken && begun.elapsed() > FORGOTTEN {
                is_woken = self.wake(&seen).await?;
            }
            if is_quiet {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Makes the engine look at the workflow; whether that is done, or needless.
    async fn wake(&self, seen: &Seen) -> Result<bool, String> {
        let workflow = seen.workflow.as_ref();
        match workflow.and_then(|w| self.engine.wake(w, Timestamp::now())) {
            Some(write) => self.write(&write).await,
            None => Ok(true),
        }
    }

    /// The run of the hooks of Create ends, too.
    async fn has_no_other_that_goes_on(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let going = self.others_that_go_on().await?;
            if going.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("workflows have not ended: {going:?}"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn others_that_go_on(&self) -> Result<Vec<String>, String> {
        let plan = self.life.plan().expect("a plan");
        let of_job = format!("{}={}", labels::UPGRADE_JOB, self.life.job().name_any());
        let workflows = self.api(&self.engine.resource());
        let all = workflows.list(&ListParams::default().labels(&of_job)).await;
        let mut going = Vec::new();
        for object in all.map_err(|e| e.to_string())? {
            let name = object.name_any();
            if !self.engine.observe(&object.into(), &plan).finished {
                going.push(name);
            }
        }
        Ok(going)
    }

    /// What the job says that runs waits in the engine with the same text, and nothing else does.
    fn shows_what_runs(&self, run: Option<&Run>) -> bool {
        let status = self.life.status();
        let Some(plan) = self.life.plan() else { return true };
        let runs = |step: &StepStatus| step.phase == StepPhase::Running;
        plan.part(Part::Main).all(|step| {
            let recorded = status.steps.iter().find(|s| s.name == step.name);
            let node = run.and_then(|run| node_of(run, &step.name));
            let node = node.filter(|n| n.phase == NodePhase::Running);
            match (recorded.filter(|s| runs(s)), node) {
                (Some(recorded), Some(node)) => text_of(node) == recorded.message,
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            }
        })
    }

    /// The workflow has ended as its job, and its nodes as the job's steps.
    fn shows_the_end(&self, run: &Run, stop: Option<StopRequest>) -> Result<(), String> {
        let status = self.life.status();
        let succeeded = ["Succeeded", "Completed"].contains(&run.phase.as_str());
        let wanted = status.phase != Some(JobPhase::Failed);
        let plan: Plan = self.life.plan().expect("a plan");
        if succeeded != wanted || run.stop != stop || run.unsupported.is_some() {
            return Err(format!(
                "the job is {:?}, and the workflow {run:#?}",
                status.phase
            ));
        }
        let mut wrong = Vec::new();
        for step in &plan.steps {
            let recorded = status.steps.iter().find(|s| s.name == step.name);
            let node = node_of(run, &step.name);
            let is_right = match step.part {
                Part::Main => is_main_end(recorded, node, wanted),
                Part::Exit => stop == Some(StopRequest::Terminate) || is_exit_end(recorded, node),
            };
            if !is_right {
                wrong.push(format!("{recorded:?}\n  is shown as {node:?}"));
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n"))
        }
    }
}

/// How a step of the main part is shown in the end.
fn is_main_end(step: Option<&StepStatus>, node: Option<&Node>, is_well: bool) -> bool {
    let (shown, text) = (node.map(|n| n.phase), node.and_then(text_of));
    let Some(step) = step else { return node.is_none() };
    match step.phase {
        StepPhase::Succeeded => (shown, text) == (Some(NodePhase::Succeeded), step.message.clone()),
        StepPhase::Failed => (shown, text) == (Some(NodePhase::Failed), step.message.clone()),
        // It was under way when the job ended. An engine that was stopped has a text of its own for that.
        StepPhase::Skipped if is_well => shown == Some(NodePhase::Succeeded),
        StepPhase::Skipped => shown == Some(NodePhase::Failed),
        // The engine may have come to it when the job had ended.
        StepPhase::Pending => match shown {
            None | Some(NodePhase::LeftOut) => !is_well,
            Some(NodePhase::Succeeded) => is_well && text.is_some_and(|t| t.starts_with("not needed: ")),
            Some(NodePhase::Failed) => !is_well && text.is_some_and(|t| t.starts_with("not finished: ")),
            Some(NodePhase::Running | NodePhase::Skipped) => false,
        },
        StepPhase::Running | StepPhase::Overridden => false,
    }
}

/// How a step of the exit part is shown in the end: never as a failure.
fn is_exit_end(step: Option<&StepStatus>, node: Option<&Node>) -> bool {
    let (Some(step), Some(node)) = (step, node) else {
        return false;
    };
    match step.phase {
        StepPhase::Succeeded | StepPhase::Failed => {
            (node.phase, text_of(node)) == (NodePhase::Succeeded, step.message.clone())
        }
        StepPhase::Skipped => node.phase == NodePhase::Skipped,
        StepPhase::Pending | StepPhase::Running | StepPhase::Overridden => false,
    }
}

fn node_of<'a>(run: &'a Run, step: &str) -> Option<&'a Node> {
    run.nodes.iter().find(|n| n.step == step)
}

/// The text as it was written: on its way the engine's variables are taken apart.
fn text_of(node: &Node) -> Option<String> {
    let text = node.message.as_ref()?;
    Some(text.replace("{ {", "{{").replace("$ (", "$("))
}

/// The time of a play stands still; that of an engine does not.
fn without_times(mut run: Run) -> Run {
    for node in &mut run.nodes {
        (node.started_at, node.finished_at) = (None, None);
    }
    run
}
