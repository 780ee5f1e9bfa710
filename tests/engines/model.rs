//! What has to happen, as the embedded engine says.

use std::collections::BTreeMap;

use openshift_upgrade_operator::{
    api::upgrade_job::{StepPhase, StepStatus, UpgradeJobStatus},
    engine::{NodePhase, embedded},
    plan::{Part, Plan, When},
};

use crate::{plays::Play, rng::Rng};

/// What a step that did not come to its own end is ended with.
pub const NOT_FINISHED: &str = "not finished: another step has failed";

/// A run, step by step.
pub struct Model<'a> {
    plan: &'a Plan,
    status: UpgradeJobStatus,
}

impl<'a> Model<'a> {
    /// Nothing has happened.
    pub fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            status: UpgradeJobStatus::default(),
        }
    }

    fn phase(&self, step: &str) -> Option<StepPhase> {
        self.status.steps.iter().find(|s| s.name == step).map(|s| s.phase)
    }

    /// Whether a step of the main part has failed.
    pub fn has_failed(&self) -> bool {
        let failed = |name: &str| self.phase(name) == Some(StepPhase::Failed);
        self.plan.part(Part::Main).any(|s| failed(&s.name))
    }

    /// Steps of the main part that wait for the operator.
    pub fn waiting(&self) -> Vec<String> {
        let run = embedded::observe(self.plan, &self.status);
        let waiting = run.nodes.into_iter().filter(|n| n.phase == NodePhase::Running);
        let waiting: Vec<String> = waiting.map(|n| n.step).collect();
        // After a failure nothing new begins: only what has begun is still to be ended.
        if self.has_failed() {
            let begun = |name: &String| self.phase(name) == Some(StepPhase::Running);
            waiting.into_iter().filter(begun).collect()
        } else {
            waiting
        }
    }

    /// What waits has begun.
    pub fn begin(&mut self) {
        for name in self.waiting() {
            if self.phase(&name).is_none() {
                self.record(&name, StepPhase::Running, None);
            }
        }
    }

    /// The step to be ended next; `None` once the main part is over.
    pub fn next(&mut self, play: &Play) -> Option<String> {
        self.begin();
        let waiting = self.waiting();
        let place = Rng::of(play.seed + self.status.steps.len() as u64, "next").below(waiting.len() as u64);
        waiting.get(usize::try_from(place).unwrap()).cloned()
    }

    /// A step has ended, after a failure whatever its own verdict.
    pub fn end(&mut self, step: &str, verdict: Result<String, String>) {
        let verdict = if self.has_failed() {
            Err(NOT_FINISHED.to_owned())
        } else {
            verdict
        };
        let (phase, message) = match verdict {
            Ok(message) => (StepPhase::Succeeded, message),
            Err(message) => (StepPhase::Failed, message),
        };
        self.record(step, phase, Some(message));
    }

    fn record(&mut self, name: &str, phase: StepPhase, message: Option<String>) {
        let found = self.status.steps.iter_mut().find(|s| s.name == name);
        if let Some(step) = found {
            (step.phase, step.message) = (phase, message);
            return;
        }
        self.status.steps.push(StepStatus {
            name: name.to_owned(),
            kind: "k".to_owned(),
            phase,
            message,
            started_at: None,
            finished_at: None,
        });
    }

    /// The steps of the exit part that are reached, in order.
    pub fn exit(&self, failed: bool) -> Vec<String> {
        let is_reached = |when: When| match when {
            When::Always => true,
            When::Succeeded => !failed,
            When::Failed => failed,
        };
        let steps = self.plan.part(Part::Exit);
        let reached = steps.filter(|s| is_reached(s.action.when()));
        reached.map(|s| s.name.clone()).collect()
    }

    /// How the steps of the main part that were reached have ended, and what they say.
    pub fn ends(&self) -> BTreeMap<String, (NodePhase, String)> {
        let run = embedded::observe(self.plan, &self.status);
        let ends = run.nodes.into_iter().filter(|n| n.phase != NodePhase::Running);
        ends.map(|n| (n.step, (n.phase, n.message.unwrap_or_default())))
            .collect()
    }
}
