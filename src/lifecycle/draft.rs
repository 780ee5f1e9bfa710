//! A decision in the making: the status as it is becoming, and what shall be done.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Decision, EngineState, Input, Notice, advice, mirror, release};
use crate::{
    api::{
        conditions::{self, reasons, types},
        upgrade_job::{DesiredVersion, EngineChoice, JobPhase, StepPhase, StepStatus, UpgradeJobStatus},
    },
    drain::{self, Finding},
    engine::{Report, native::TemplateKey},
    hooks::{pods::PodOwner, tracker},
    plan::{BadPlan, Plan, PlanStep},
    steps::{Action, Scene, Tick, Verdict},
};

/// A decision in the making.
pub(super) struct Draft<'a> {
    pub input: Input<'a>,
    pub status: UpgradeJobStatus,
    pub actions: Vec<Action>,
    pub reports: Vec<(String, Report)>,
    notices: Vec<Notice>,
    asks: BTreeSet<String>,
    looks: BTreeSet<String>,
    hook_pods: BTreeSet<PodOwner>,
    findings: Vec<Finding>,
    blocked: Vec<Finding>,
    lacks: BTreeSet<TemplateKey>,
    wakes: Vec<Timestamp>,
    /// All else is done, but pools that someone else paused are behind: what the job waits for.
    pub foreign_pause: Option<String>,
    /// What matters more than the messages of the running steps.
    headline: Option<String>,
}

impl<'a> Draft<'a> {
    pub fn new(input: Input<'a>) -> Self {
        let mut status = input.job.status.clone().unwrap_or_default();
        status.observed_generation = input.job.metadata.generation;
        Self {
            input,
            status,
            actions: Vec::new(),
            reports: Vec::new(),
            notices: Vec::new(),
            asks: BTreeSet::new(),
            looks: BTreeSet::new(),
            hook_pods: BTreeSet::new(),
            findings: Vec::new(),
            blocked: Vec::new(),
            lacks: BTreeSet::new(),
            wakes: Vec::new(),
            foreign_pause: None,
            headline: None,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.input.now
    }

    /// Now, as it goes into a status.
    pub fn time(&self) -> Time {
        Time(conditions::whole_seconds(self.input.now))
    }

    pub fn scene(&self, began: Timestamp) -> Scene<'_> {
        Scene {
            world: self.input.world,
            answers: self.input.answers,
            drains: self.input.drains,
            job: self.input.job,
            status: &self.status,
            settings: self.input.settings,
            engine: self.engine(),
            now: self.input.now,
            began,
        }
    }

    /// The workflow engine that runs the job, or would.
    fn engine(&self) -> Option<EngineChoice> {
        let begun = self.status.workflow.as_ref().map(|w| w.engine);
        let found = match self.input.engine {
            EngineState::Ready(engine) => Some(*engine),
            EngineState::Missing(_) => None,
        };
        begun.or(found)
    }

    pub fn wake_at(&mut self, t: Timestamp) {
        if t > self.input.now {
            self.wakes.push(t);
        }
    }

    /// Asks for the pods of what runs a hook.
    pub fn look_at_pods(&mut self, owner: PodOwner) {
        self.hook_pods.insert(owner);
    }

    /// Asks for a reusable template.
    pub fn lack(&mut self, template: TemplateKey) {
        self.lacks.insert(template);
    }

    pub fn notice(&mut self, warning: bool, reason: &str, note: impl Into<String>) {
        self.notices.push(Notice {
            warning,
            reason: reason.to_owned(),
            note: note.into(),
        });
    }

    pub fn condition(&mut self, type_: &str, value: bool, reason: &str, message: impl Into<String>) -> bool {
        let generation = self.input.job.metadata.generation;
        conditions::set(
            &mut self.status.conditions,
            type_,
            value,
            reason,
            message,
            generation,
            self.input.now,
        )
    }

    /// Says whether the job can be acted upon; returns what is wrong.
    pub fn judge(&mut self, problems: &[String]) -> Option<String> {
        if problems.is_empty() {
            self.condition(types::VALID, true, reasons::VALID, "the job is valid");
            return None;
        }
        let message = problems.join("; ");
        if self.condition(types::VALID, false, reasons::INVALID, message.clone()) {
            self.notice(true, reasons::INVALID, message.clone());
        }
        Some(message)
    }

    /// Sets the job's message, whatever its steps say.
    pub fn say(&mut self, message: impl Into<String>) {
        let message = message.into();
        self.status.message = Some(message.clone());
        self.headline = Some(message);
    }

    pub fn has_said(&self) -> bool {
        self.headline.is_some()
    }

    pub fn has(&self, type_: &str) -> bool {
        conditions::is_true(&self.status.conditions, type_)
    }

    /// The stored plan; `None` if there is none yet.
    pub fn plan(&self) -> Result<Option<Plan>, BadPlan> {
        self.status.plan.as_ref().map(Plan::from_value).transpose()
    }

    /// Records a plan; `false`, and said, if it cannot be written.
    pub fn store_plan(&mut self, plan: &Plan) -> bool {
        match plan.to_value() {
            Ok(value) => {
                self.status.plan = Some(value);
                true
            }
            Err(error) => {
                self.say(format!("cannot write status.plan: {error}"));
                false
            }
        }
    }

    /// Brings the tracker up to date with what runs for hooks, tries again what was killed, and lets go of what has its end in
    /// the tracker already.
    pub fn track_hooks(&mut self) {
        let runs = self.input.world.hook_runs(self.input.now);
        let tracked = tracker::track(self.input.job, &self.status.hook_tracker, &runs);
        // The finalizer goes only once the tracker that is stored has the result: this decision's is not stored yet.
        let stored = self
            .input
            .job
            .status
            .as_ref()
            .map_or(&[][..], |s| s.hook_tracker.as_slice());
        if self.input.job.metadata.deletion_timestamp.is_none() {
            let next = tracker::next_tries(self.input.job, stored, &runs);
            self.actions
                .extend(next.into_iter().map(Action::RepeatHookTaskRun));
        }
        for run in tracker::releasable(self.input.job, stored, &runs) {
            self.actions.push(Action::ReleaseHookRun(run));
        }
        let given_up = tracker::given_up(self.input.job, stored, &runs);
        self.actions
            .extend(given_up.into_iter().map(Action::CancelHookTaskRun));
        self.status.hook_tracker = tracked;
    }

    /// The recorded state of a step, made if it is new.
    pub fn step_mut(&mut self, step: &PlanStep) -> &mut StepStatus {
        let found = self.status.steps.iter().position(|s| s.name == step.name);
        let index = found.unwrap_or_else(|| {
            self.status.steps.push(StepStatus {
                name: step.name.clone(),
                kind: step.action.kind().to_owned(),
                phase: StepPhase::Pending,
                message: None,
                started_at: None,
                finished_at: None,
            });
            self.status.steps.len() - 1
        });
        // The index was found or just made.
        #[allow(clippy::indexing_slicing)]
        &mut self.status.steps[index]
    }

    pub fn step_phase(&self, name: &str) -> Option<StepPhase> {
        self.status.steps.iter().find(|s| s.name == name).map(|s| s.phase)
    }

    /// Marks a step as begun and returns since when.
    pub fn begin(&mut self, step: &PlanStep, at: Option<Timestamp>) -> Timestamp {
        let began = Time(conditions::whole_seconds(at.unwrap_or(self.input.now)));
        let status = self.step_mut(step);
        if status.phase == StepPhase::Pending {
            status.phase = StepPhase::Running;
        }
        status.started_at.get_or_insert(began).0
    }

    pub fn end_step(&mut self, step: &PlanStep, phase: StepPhase, message: impl Into<String>) {
        let now = self.time();
        let status = self.step_mut(step);
        status.phase = phase;
        status.message = Some(message.into());
        status.finished_at.get_or_insert(now);
    }

    /// Takes over what a tick has to say about drains, which holds whoever suspends the workflow.
    pub fn take_drains(&mut self, tick: &mut Tick) {
        self.looks.append(&mut tick.looks);
        self.findings.append(&mut tick.blocked);
    }

    /// Takes over what a tick asks for and returns its verdict.
    pub fn take(&mut self, tick: Tick) -> Verdict {
        let Tick {
            actions,
            tracked,
            warnings,
            asks,
            looks,
            blocked,
            verdict,
        } = tick;
        self.asks.extend(asks);
        self.looks.extend(looks);
        self.findings.extend(blocked);
        for action in &actions {
            self.record_intent(action);
        }
        self.actions.extend(actions);
        self.status.hook_tracker.extend(tracked);
        for (reason, warning) in warnings {
            self.notice(true, reason, warning);
        }
        verdict
    }

    /// Records what all steps together found in the way of drains. What is on record was told of before.
    pub fn record_blockers(&mut self) {
        let found = drain::merged(std::mem::take(&mut self.findings));
        let before = &self.status.blockers;
        let is_new = |f: &&Finding| {
            let (a, found) = (&f.blocker, before.iter());
            !found
                .clone()
                .any(|b| (&a.node, &a.namespace, &a.pod, a.cause) == (&b.node, &b.namespace, &b.pod, b.cause))
        };
        self.blocked = found.iter().filter(is_new).cloned().collect();
        self.status.blockers = found.into_iter().map(|f| f.blocker).collect();
    }

    /// What is about to be written to the ClusterVersion is on record before: an ending can then take it back.
    fn record_intent(&mut self, action: &Action) {
        let Action::SetDesiredUpdate(target) = action else {
            return;
        };
        if self.status.desired_update.is_some() {
            return;
        }
        let before = self
            .input
            .world
            .cluster_version
            .as_ref()
            .and_then(|c| c.spec.desired_update.as_ref());
        let filled = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
        self.status.previous_desired_update = before.map(|u| DesiredVersion {
            version: filled(&u.version),
            image: filled(&u.image),
            ..DesiredVersion::default()
        });
        self.status.desired_update = Some(DesiredVersion {
            version: filled(&target.version),
            image: filled(&target.image),
            ..DesiredVersion::default()
        });
    }

    /// The job has failed.
    pub fn fail(&mut self, reason: &str, message: impl Into<String>) {
        let advice = advice::after_failure(self.input.job, reason, release::is_under_way(self));
        let message = format!("{}. {advice}", message.into());
        self.condition(types::FAILED, true, reason, message.clone());
        self.outcome(JobPhase::Failed, &message);
        self.notice(true, reason, message);
    }

    /// The job has succeeded, or was skipped.
    pub fn succeed(&mut self, phase: JobPhase, reason: &str, message: impl Into<String>) {
        let mut message = message.into();
        if phase == JobPhase::Skipped {
            let expired = conditions::get(&self.status.conditions, types::EXPIRED).map(|c| c.reason.as_str());
            message = format!("{message}. {}", advice::after_skip(self.input.job, expired));
        }
        self.condition(types::SUCCEEDED, true, reason, message.clone());
        self.outcome(phase, &message);
        self.notice(phase == JobPhase::Skipped, reason, message);
    }

    /// A job that has ended acts no more: what its steps asked for in the same pass must not happen after the ending.
    fn drop_actions(&mut self) {
        let asked = self
            .actions
            .iter()
            .any(|a| matches!(a, Action::SetDesiredUpdate(_)));
        let before = self
            .input
            .job
            .status
            .as_ref()
            .and_then(|s| s.desired_update.as_ref());
        if asked && before.is_none() {
            self.status.desired_update = None;
            self.status.previous_desired_update = None;
        }
        self.actions.retain(|a| {
            matches!(
                a,
                Action::ReleaseHookRun(_)
                    | Action::CancelHookTaskRun(_)
                    | Action::RepeatHookTaskRun(_)
                    | Action::ClaimHook { .. }
            )
        });
    }

    fn outcome(&mut self, phase: JobPhase, message: &str) {
        self.drop_actions();
        let now = self.time();
        self.status.phase = Some(phase);
        self.status.message = Some(message.to_owned());
        self.status.finished_at = Some(now);
        for step in &mut self.status.steps {
            if step.phase == StepPhase::Running {
                step.phase = StepPhase::Skipped;
                step.finished_at.clone_from(&self.status.finished_at);
                let was = step.message.take().unwrap_or_default();
                step.message = Some(format!("not finished when the job ended: {was}"));
            }
        }
    }

    /// The decision, with the peer's conditions made from the steps.
    pub fn finish(mut self) -> Decision {
        mirror::conditions(&mut self);
        self.untouched()
    }

    /// The decision as it stands.
    pub fn untouched(mut self) -> Decision {
        self.wakes.sort_unstable();
        let Self {
            input: _,
            status,
            actions,
            reports,
            notices,
            asks,
            looks,
            hook_pods,
            findings: _,
            blocked,
            lacks,
            wakes,
            foreign_pause: _,
            headline: _,
        } = self;
        Decision {
            status,
            actions,
            reports,
            notices,
            asks,
            looks,
            hook_pods,
            blocked,
            lacks,
            wake_at: wakes.first().copied(),
        }
    }
}
