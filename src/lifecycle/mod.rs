//! The life of an UpgradeJob, design 5: pure. One decision at a time: the world and the time in; the status, actions and
//! reports to the engine out, carried out in that order (intent, cluster, engine), so that a restart at any line converges.

mod advice;
mod attempt;
mod create_hooks;
mod deletion;
mod draft;
mod drive;
mod exit;
mod held;
mod hook_pods;
mod judged_engine;
mod left_paused;
mod lock;
mod metrics;
mod mirror;
mod native;
mod others;
mod own_template;
pub mod owner;
mod passed_over;
mod pending;
mod release;
mod removal;
mod runnable;
mod running;
mod seal;
mod stall;
mod takeover;
#[cfg(test)]
mod tests;
mod ttl;
mod wake;

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    api::{
        UpgradeJob, finalizers,
        upgrade_job::{EngineChoice, UpgradeJobStatus},
    },
    drain::{Drains, Finding},
    engine::{Report, Run, Templates, native::TemplateKey},
    health::answers::Answers,
    hooks::pods::{HookPods, PodOwner},
    settings::Settings,
    steps::Action,
    world::World,
};

pub use lock::{Lock, holder_of};
pub use metrics::metrics;
pub use others::{OtherState, OtherWorkflow};
pub use removal::{Task, left_paused, removal};

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The snapshot of the cluster.
    pub world: &'a World,
    /// What Prometheus said.
    pub answers: &'a Answers,
    /// What was seen of drains.
    pub drains: &'a Drains,
    /// What was seen of the pods of hooks that an engine runs.
    pub hook_pods: &'a HookPods,
    /// Reusable templates of the engine, as far as a decision asked for them.
    pub templates: &'a Templates,
    /// The job; the same as in `world.jobs`.
    pub job: &'a UpgradeJob,
    /// The workflow of the job.
    pub run: &'a RunState,
    /// Other workflows of the job.
    pub others: &'a [OtherWorkflow],
    /// The engine that this job uses, or would use.
    pub engine: &'a EngineState,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// Now.
    pub now: Timestamp,
}

/// What is known of the job's workflow.
#[derive(Clone, Debug, PartialEq)]
pub enum RunState {
    /// There is no workflow of that name, and nothing is known of one.
    Absent,
    /// It was there, and was deleted.
    Gone {
        /// What it showed last.
        run: Box<Run>,
    },
    /// There is one, but it is not of this job.
    Foreign,
    /// It is there.
    Present {
        /// UID of the object.
        uid: String,
        /// What it shows.
        run: Box<Run>,
    },
}

/// Whether the engine of a job can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// It is installed; never `Auto`.
    Ready(EngineChoice),
    /// It is not, and why.
    Missing(String),
}

/// What to do, in this order: status, actions, reports; notices at any time.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The status as it shall be.
    pub status: UpgradeJobStatus,
    /// What to do on the cluster.
    pub actions: Vec<Action>,
    /// What to tell the engine, by step.
    pub reports: Vec<(String, Report)>,
    /// What to tell people.
    pub notices: Vec<Notice>,
    /// Queries whose answers it lacks: ask Prometheus, and decide again before anything is carried out.
    pub asks: BTreeSet<String>,
    /// Nodes whose pods it wants to know: read them, and decide again before anything is carried out.
    pub looks: BTreeSet<String>,
    /// What runs hooks whose pods it wants to know: read them, and decide again before anything is carried out.
    pub hook_pods: BTreeSet<PodOwner>,
    /// Pods that were found to keep a node from being drained, and are not on record yet.
    pub blocked: Vec<Finding>,
    /// Reusable templates that it lacks: read them, and decide again before anything is carried out.
    pub lacks: BTreeSet<TemplateKey>,
    /// When time alone may change the decision.
    pub wake_at: Option<Timestamp>,
}

/// A Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is a warning.
    pub warning: bool,
    /// One word.
    pub reason: String,
    /// For people.
    pub note: String,
}

impl Notice {
    /// Reason of the one that tells that a step ended well.
    pub const STEP_DONE: &'static str = "StepDone";
}

/// Decides what to do for a job now.
///
/// While the peer is at work nothing is done but to say so. Clocks that disagree keep a job from starting; one that has started
/// goes on by the earlier of both, so that nothing of it happens too soon.
pub fn decide(input: &Input<'_>) -> Decision {
    let outside = &input.world.outside;
    let mut draft = draft::Draft::new(Input {
        now: outside.careful(input.now),
        ..*input
    });
    if let Some(peer) = outside.peer_at_work() {
        held::by_peer(&mut draft, &peer);
        return draft.untouched();
    }
    held::say(&mut draft);
    draft.track_hooks();
    native::track(&mut draft);
    hook_pods::settle(&mut draft);
    others::stop(&mut draft);
    match Stage::of(input.job) {
        Stage::Deleting => deletion::decide(&mut draft),
        Stage::Finished => {
            exit::decide(&mut draft);
            ttl::decide(&mut draft);
        }
        Stage::Started => running::decide(&mut draft),
        Stage::Pending => pending::decide(&mut draft),
    }
    seal::decide(&mut draft);
    let decision = draft.finish();
    Decision {
        wake_at: decision.wake_at.map(|t| outside.by_our_clock(t)),
        ..decision
    }
}

/// Where a job is, by what it has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Pinned, not started.
    Pending,
    /// Started, no outcome yet.
    Started,
    /// It has an outcome.
    Finished,
    /// Deleted, and something is to be given back first.
    Deleting,
}

impl Stage {
    /// The stage of a job.
    pub fn of(job: &UpgradeJob) -> Self {
        if job.metadata.deletion_timestamp.is_some() {
            Self::Deleting
        } else if job.is_finished() {
            Self::Finished
        } else if job.is_started() {
            Self::Started
        } else {
            Self::Pending
        }
    }
}

/// Whether our finalizer is on the job.
pub fn is_protected(job: &UpgradeJob) -> bool {
    job.finalizers().iter().any(|f| f == finalizers::UPGRADE_JOB)
}
