//! Workflow engines: they order and show the steps; the operator executes them.
//!
//! An engine is three pure functions. Reading and writing the objects is shared, in `controller/`.

pub mod argo;
mod choice;
mod describe;
pub mod embedded;
#[cfg(test)]
mod fixtures;
mod identity;
mod metrics;
pub mod native;
mod object;
pub mod tekton;
pub mod template;
mod text;
mod values;
mod workflow;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject},
};

use crate::{
    api::{
        UpgradeJob, UpgradeJobHook,
        job_config::{EngineChoice, WorkflowConfig},
        names,
    },
    plan::{Plan, RunKind},
};

pub use choice::{Installed, choose, in_doubt};
pub use metrics::metrics;
pub use native::{Native, Start, Templates};
pub use workflow::{Place, Workflow, Write};

/// How long after `upgradeTimeout` an engine may end a workflow by itself. A long time: the deadline is for the case that
/// the operator is gone for good, the timeout may be raised in mid-run, and a run may end later than its job.
const DEADLINE_MARGIN: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Name of the workflow of a run, at most 63 characters (Argo's limit): `<job>-run-<n>` or `<job>-create-<n>`.
pub fn run_name(job: &UpgradeJob, run: RunKind) -> String {
    let tail = match run {
        RunKind::Main { attempt } => format!("-run-{attempt}"),
        RunKind::Create { number } => format!("-create-{number}"),
    };
    let head = names::fit(&job.name_any(), names::MAX.saturating_sub(tail.len()));
    format!("{head}{tail}")
}

/// `active_deadline_seconds` of a job's workflows, in seconds from their start.
pub fn active_deadline_seconds(job: &UpgradeJob) -> i64 {
    job.spec
        .config
        .upgrade_timeout()
        .saturating_add(DEADLINE_MARGIN)
        .as_secs()
}

/// What a workflow is rendered from, besides the plan.
#[derive(Clone, Debug)]
pub struct RunContext<'a> {
    /// The job; name, namespace and UID are those of the real object.
    pub job: &'a UpgradeJob,
    /// Name of the workflow, never used before: `<job>-run-<n>` or `<job>-create-<n>`.
    pub name: String,
    /// `config.workflow` of the job.
    pub config: WorkflowConfig,
    /// The user's own template instead of the built-in one.
    pub template: Option<String>,
    /// ServiceAccount for the workflow's pods, unless `config` names one.
    pub default_service_account: Option<String>,
    /// Seconds after which the engine may end the workflow by itself: beyond all deadlines of the operator.
    pub active_deadline_seconds: i64,
    /// The hooks that the plan names; one that is missing here is run by the operator, if it still exists then.
    pub hooks: &'a [UpgradeJobHook],
    /// The reusable templates that those hooks refer to, as just read.
    pub templates: &'a Templates,
}

/// What an engine shows of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Phase as the engine calls it; empty before it picked the workflow up.
    pub phase: String,
    /// Whether the engine has picked the workflow up.
    pub picked_up: bool,
    /// Whether it has ended.
    pub finished: bool,
    /// The engine's message for the whole workflow.
    pub message: Option<String>,
    /// A person asked to stop it.
    pub stop: Option<StopRequest>,
    /// Who asked, if the engine says so.
    pub stopped_by: Option<String>,
    /// When [`Engine::wake`] was last used.
    pub woken_at: Option<Timestamp>,
    /// A person paused it: no new writes of ours. Not of one that has ended.
    pub suspended: bool,
    /// What comes of it if somebody lets the engine run it again.
    pub repeat: Repeat,
    /// When the operator sealed it ([`Engine::seal`]), as it is written there: it has had its end before.
    pub sealed_at: Option<String>,
    /// Steps that were reached, by name of the plan's step.
    pub nodes: Vec<Node>,
    /// Hooks that the engine itself runs, by name of the plan's step, reached or not.
    pub native: BTreeMap<String, Native>,
    /// Something that this operator cannot handle, such as a compressed node status.
    pub unsupported: Option<String>,
}

impl Run {
    /// How a person stopped it in its course. One that has had its end before was run again, and is stopped by the operator.
    pub fn stopped_in_its_course(&self) -> Option<StopRequest> {
        self.stop.filter(|_| self.sealed_at.is_none())
    }
}

/// How a person asked a workflow to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// The exit part still runs.
    Stop,
    /// Nothing runs any more.
    Terminate,
}

/// What comes of it if somebody lets an engine run an ended workflow again, in place (Argo's *Retry*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The engine does nothing by itself: it cannot, it would only wait for the operator, or the workflow is sealed
    /// ([`Engine::seal`]).
    Harmless,
    /// The workflow has ended, and the engine would run things of its own again, hooks among them.
    Possible,
    /// It was sealed, and is run again.
    Begun,
}

/// A step that the engine has reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name of the plan's step.
    pub step: String,
    /// Where it is.
    pub phase: NodePhase,
    /// Its message.
    pub message: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Who ended it, if somebody else did and the engine says so.
    pub ended_by: Option<String>,
    /// Why the engine itself ended it badly: neither the operator nor a person wanted that.
    pub broken: Option<String>,
}

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePhase {
    /// Waits for us (built-in step), or runs (pod).
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Not run: its condition was false.
    Skipped,
    /// Not run: something before it failed, or the workflow was stopped.
    LeftOut,
}

/// What to tell the engine of a built-in step that waits for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Live text.
    Message(String),
    /// End it well.
    Succeeded(String),
    /// End it badly.
    Failed(String),
    /// End it well, and let the engine run what the step stands for.
    Start(Box<Start>),
}

/// A workflow engine: pure functions on its objects.
pub trait Engine: Send + Sync {
    /// Which engine this is; never `Auto`.
    fn kind(&self) -> EngineChoice;

    /// The engine's own name, for people.
    fn title(&self) -> &'static str;

    /// Key of a user's own template in the ConfigMap that `config.workflow.template` names.
    fn template_key(&self) -> &'static str;

    /// The kind of its workflow objects.
    fn resource(&self) -> ApiResource;

    /// The kind of the objects that it makes of the steps, if it makes such; see [`Workflow::steps`].
    fn step_resource(&self) -> Option<ApiResource>;

    /// The label by which the objects of the steps name their workflow.
    fn step_label(&self) -> Option<&'static str>;

    /// Whether it deletes a finished workflow itself, after `config.workflow.ttl`.
    fn removes_finished(&self) -> bool;

    /// The workflow object of a plan. It contains every step of the plan, is owned by the job, and carries the labels
    /// [`crate::api::labels::UPGRADE_JOB`] and [`crate::api::labels::UPGRADE_JOB_UID`].
    fn render(&self, plan: &Plan, context: &RunContext<'_>) -> Result<DynamicObject, RenderError>;

    /// What the workflow shows.
    fn observe(&self, workflow: &Workflow, plan: &Plan) -> Run;

    /// The writes for all reports, each guarded by the resourceVersion of its object; none if there is nothing to say (the
    /// node has ended, or the text is already there).
    fn report(
        &self,
        workflow: &Workflow,
        plan: &Plan,
        reports: &[(String, Report)],
        now: Timestamp,
    ) -> Vec<Write>;

    /// Ends the objects of steps that wait for the operator in a workflow that nobody leads any more; none with engines that
    /// keep the steps in the workflow.
    fn end_steps(&self, workflow: &Workflow, now: Timestamp) -> Vec<Write>;

    /// Stops the workflow without running its exit part.
    fn stop(&self, workflow: &Workflow) -> Option<Write>;

    /// Makes the engine look at the workflow, if it is one that forgets to: by a write that changes nothing else.
    fn wake(&self, workflow: &Workflow, now: Timestamp) -> Option<Write>;

    /// Sees to it that the engine runs nothing of an ended workflow if somebody retries it; none with engines that have no such.
    fn seal(&self, workflow: &Workflow, now: Timestamp) -> Option<Write>;

    /// Takes a person's pause back.
    fn resume(&self, workflow: &Workflow) -> Option<Write>;

    /// The command by which a person takes a pause back.
    fn resume_command(&self, namespace: &str, name: &str) -> String;

    /// Ends what still runs of the main part, so that the exit part begins.
    fn end_main_part(&self, workflow: &Workflow) -> Option<Write>;

    /// Why this engine cannot run a hook that is made of a reusable template; `None` if it can.
    fn problem_of(&self, hook: &UpgradeJobHook, templates: &Templates) -> Option<String>;
}

/// The engine of this choice; `None` for those that have no objects of their own.
pub fn of(choice: EngineChoice) -> Option<&'static dyn Engine> {
    match choice {
        EngineChoice::Argo => Some(&argo::Argo),
        EngineChoice::Tekton => Some(&tekton::Tekton),
        EngineChoice::Embedded | EngineChoice::Auto => None,
    }
}

/// A workflow that cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The template is wrong.
    #[error("cannot render the workflow template: {0}")]
    Template(String),
    /// What came out is not a workflow.
    #[error("the rendered workflow template is not a valid workflow: {0}")]
    Output(String),
    /// A step of the plan is missing in what came out.
    #[error("the workflow template leaves out step {step}: every step of the plan must be in it")]
    StepMissing {
        /// Name of the step.
        step: String,
    },
    /// The engine has no way to run this hook.
    #[error("hook {hook} cannot run on {engine}: {problem}")]
    HookNotRunnable {
        /// Name of the hook.
        hook: String,
        /// Name of the engine.
        engine: &'static str,
        /// What is missing.
        problem: String,
    },
}
