//! The built-in steps, one file each: pure functions of the world and the time.
//!
//! A step has no memory: it is ticked again and again and says each time what there is to do and where it stands. What it
//! asks for is idempotent. It is done only when the cluster shows it, never because it asked.

mod await_control_plane;
mod await_pools;
mod drains;
mod health_check;
mod hold;
mod hooks;
mod pause_pools;
pub mod progress;
mod set_desired_update;
mod unpause;

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{ResourceExt, api::DynamicObject};

use crate::{
    api::{
        UpgradeJob,
        health_check::HealthChecks,
        upgrade_job::{EngineChoice, HookTracker, PauseReason, StepStatus, UpgradeJobStatus},
    },
    drain::{Drains, Explained, Finding},
    health::{self, Findings, Look, Moment, answers::Answers},
    hooks::{hook_run::RunName, tracker::NextTry},
    plan::{PlanStep, StepAction},
    settings::Settings,
    target::Target,
    world::World,
};

pub use hooks::{exit_event, hook_keys, hook_of, hooks_of, keys_of, start};

/// Everything a step may look at.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The snapshot of the cluster.
    pub world: &'a World,
    /// What Prometheus said.
    pub answers: &'a Answers,
    /// What was seen of drains.
    pub drains: &'a Drains,
    /// The job as stored.
    pub job: &'a UpgradeJob,
    /// Its status as it is becoming in this decision.
    pub status: &'a UpgradeJobStatus,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// The workflow engine that runs the job, or would; `None` where that is not known.
    pub engine: Option<EngineChoice>,
    /// Now.
    pub now: Timestamp,
    /// When the step began.
    pub began: Timestamp,
}

/// What a tick asks for, and where the step stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// Hooks that cannot be run at all, for `status.hookTracker`.
    pub tracked: Vec<HookTracker>,
    /// What people should know besides: the reason of the Event, and its text.
    pub warnings: Vec<(&'static str, String)>,
    /// Queries whose answers it lacks: ask Prometheus, and tick again.
    pub asks: BTreeSet<String>,
    /// Nodes whose pods it wants to know: read them, and tick again.
    pub looks: BTreeSet<String>,
    /// Pods that keep nodes from being drained.
    pub blocked: Vec<Finding>,
    /// Where the step stands.
    pub verdict: Verdict,
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not done.
    Running {
        /// What it waits for.
        message: String,
        /// When time alone may change the answer.
        wake_at: Option<Timestamp>,
    },
    /// Done: the cluster shows it.
    Done {
        /// What was reached.
        message: String,
    },
    /// It cannot be done; the job fails.
    Failed {
        /// Reason of the condition `Failed`.
        reason: &'static str,
        /// Why.
        message: String,
    },
}

/// Something to do on the cluster. Each is one guarded write, and doing it twice is harmless.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sets `spec.desiredUpdate`.
    SetDesiredUpdate(Target),
    /// Takes `spec.desiredUpdate` back: removes it, or puts back what was there.
    WithdrawDesiredUpdate {
        /// What is ours.
        ours: Target,
        /// What to put back.
        restore: Option<Target>,
    },
    /// Pauses a pool and writes its owner, in one patch. Takes over a pause of another job.
    PausePool {
        /// Name of the pool.
        pool: String,
        /// Why.
        reason: PauseReason,
    },
    /// Unpauses a pool and removes its owner, in one patch.
    UnpausePool {
        /// Name of the pool.
        pool: String,
    },
    /// Creates the Job of a hook.
    CreateHookJob(Box<Job>),
    /// Creates the TaskRun of a hook.
    CreateHookTaskRun(Box<DynamicObject>),
    /// Creates a further TaskRun of a hook whose pod was killed.
    RepeatHookTaskRun(NextTry),
    /// Removes our finalizer from what ran a hook: its end is tracked.
    ReleaseHookRun(RunName),
    /// Cancels the TaskRun of this name, whose hook was given up, and removes our finalizer from it, in one patch.
    CancelHookTaskRun(String),
    /// Claims a hook with `run: Next`.
    ClaimHook {
        /// Name of the hook.
        hook: String,
    },
    /// Adds our finalizer to the UpgradeJob, and drops the owner reference to its config.
    Protect,
    /// Removes our finalizer from the UpgradeJob.
    Unprotect,
    /// Takes the lock on the ClusterVersion.
    TakeLock,
    /// Releases the lock on the ClusterVersion.
    ReleaseLock,
    /// Creates the workflow that `status.workflow` names, out of `status.plan`.
    CreateWorkflow,
    /// Stops the workflow without its exit part.
    StopWorkflow,
    /// Stops a workflow of the job that it does not follow.
    StopOtherWorkflow {
        /// Name of the workflow.
        name: String,
    },
    /// Makes the engine look at the workflow again.
    WakeWorkflow,
    /// Sees to it that the engine runs nothing of the workflow, which has ended, if somebody retries it.
    SealWorkflow,
    /// The same for a workflow of the job that it does not follow.
    SealOtherWorkflow {
        /// Name of the workflow.
        name: String,
    },
    /// Takes back a person's pause of the workflow.
    ResumeWorkflow,
    /// Ends what the workflow still runs of its main part, so that its exit part begins.
    EndMainPart,
    /// Deletes the workflow, which has ended.
    DeleteWorkflow,
    /// Deletes a workflow of the job that it does not follow, and that has ended.
    DeleteOtherWorkflow {
        /// Name of the workflow.
        name: String,
    },
}

/// For the log: what and on which object. A hook's Job has the whole UpgradeJob in its environment, and whatever its
/// author put there: neither belongs into a log.
impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SetDesiredUpdate(to) => write!(f, "set desiredUpdate to {}", to.version),
            Self::WithdrawDesiredUpdate { ours, restore: None } => {
                write!(f, "remove desiredUpdate {}", ours.version)
            }
            Self::WithdrawDesiredUpdate {
                ours,
                restore: Some(before),
            } => {
                write!(
                    f,
                    "put desiredUpdate back from {} to {}",
                    ours.version, before.version
                )
            }
            Self::PausePool {
                pool,
                reason: PauseReason::Delay,
            } => write!(f, "pause pool {pool}"),
            Self::PausePool {
                pool,
                reason: PauseReason::Failure,
            } => {
                write!(f, "pause pool {pool} after a failure")
            }
            Self::UnpausePool { pool } => write!(f, "unpause pool {pool}"),
            Self::CreateHookJob(job) => write!(f, "create Job {}", job.name_any()),
            Self::CreateHookTaskRun(run) => write!(f, "create TaskRun {}", run.name_any()),
            Self::RepeatHookTaskRun(next) => write!(f, "create TaskRun {} after {}", next.name, next.after),
            Self::ReleaseHookRun(run) => write!(f, "remove the finalizer of {run}"),
            Self::CancelHookTaskRun(name) => write!(f, "cancel TaskRun {name}, which was given up"),
            Self::ClaimHook { hook } => write!(f, "claim hook {hook}"),
            Self::Protect => f.write_str("add the finalizer"),
            Self::Unprotect => f.write_str("remove the finalizer"),
            Self::TakeLock => f.write_str("take the lock"),
            Self::ReleaseLock => f.write_str("release the lock"),
            Self::CreateWorkflow => f.write_str("create the workflow"),
            Self::StopWorkflow => f.write_str("stop the workflow"),
            Self::StopOtherWorkflow { name } => write!(f, "stop workflow {name}"),
            Self::WakeWorkflow => f.write_str("make the engine look at the workflow"),
            Self::SealWorkflow => f.write_str("seal the workflow, which has ended"),
            Self::SealOtherWorkflow { name } => write!(f, "seal workflow {name}, which has ended"),
            Self::ResumeWorkflow => f.write_str("resume the workflow"),
            Self::EndMainPart => f.write_str("end the main part of the workflow"),
            Self::DeleteWorkflow => f.write_str("delete the workflow, which has ended"),
            Self::DeleteOtherWorkflow { name } => write!(f, "delete workflow {name}, which has ended"),
        }
    }
}

impl Tick {
    /// Nothing to do but wait.
    pub fn wait(message: impl Into<String>) -> Self {
        Self::act(Vec::new(), message)
    }

    /// Wait, and look again at this instant.
    pub fn wait_until(message: impl Into<String>, wake_at: Timestamp) -> Self {
        Self::of(
            Vec::new(),
            Verdict::Running {
                message: message.into(),
                wake_at: Some(wake_at),
            },
        )
    }

    /// Wait for a healthy cluster until `deadline`, and ask what the check still lacks.
    fn wait_for_health(message: String, deadline: Option<Timestamp>, findings: Findings) -> Self {
        let wake_at = findings.look_again.into_iter().chain(deadline).min();
        let verdict = Verdict::Running { message, wake_at };
        Self {
            asks: findings.asks,
            ..Self::of(Vec::new(), verdict)
        }
    }

    /// Wait for nodes to be updated, and say why those that drain take so long.
    fn wait_for_nodes(message: String, drains: Explained) -> Self {
        let Explained {
            text: _,
            findings,
            looks,
            wake_at,
        } = drains;
        Self {
            looks,
            blocked: findings,
            ..Self::of(Vec::new(), Verdict::Running { message, wake_at })
        }
    }

    /// Something to do; the next tick sees what came of it.
    pub fn act(actions: Vec<Action>, message: impl Into<String>) -> Self {
        Self::of(
            actions,
            Verdict::Running {
                message: message.into(),
                wake_at: None,
            },
        )
    }

    /// Done.
    pub fn done(message: impl Into<String>) -> Self {
        Self::of(
            Vec::new(),
            Verdict::Done {
                message: message.into(),
            },
        )
    }

    /// Failed.
    pub fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self::of(
            Vec::new(),
            Verdict::Failed {
                reason,
                message: message.into(),
            },
        )
    }

    fn of(actions: Vec<Action>, verdict: Verdict) -> Self {
        Self {
            actions,
            tracked: Vec::new(),
            warnings: Vec::new(),
            asks: BTreeSet::new(),
            looks: BTreeSet::new(),
            blocked: Vec::new(),
            verdict,
        }
    }
}

impl Scene<'_> {
    /// The release that the job upgrades to: what we set, or what the job and the cluster say.
    pub fn target(&self) -> Option<Target> {
        if let Some(set) = &self.status.desired_update {
            return Some(Target {
                version: set.version.clone().unwrap_or_default(),
                image: set.image.clone().unwrap_or_default(),
            });
        }
        self.world
            .cluster_version
            .as_ref()
            .and_then(|c| Target::of(self.job, c))
    }

    /// The cluster's health at this moment.
    fn health(&self, checks: &HealthChecks, moment: Moment) -> Findings {
        let target = self.target();
        let look = Look {
            world: self.world,
            answers: self.answers,
            target: target.as_ref(),
            moment,
            now: self.now,
        };
        health::check(checks, &look)
    }

    /// The recorded state of a step.
    pub fn step(&self, name: &str) -> Option<&StepStatus> {
        self.status.steps.iter().find(|s| s.name == name)
    }

    /// Whether the control plane has nothing to do for this job: it has no target, or the target is reached.
    pub fn control_plane_done(&self) -> bool {
        if self.job.spec.desired_version.is_none() {
            return true;
        }
        let (Some(cluster), Some(target)) = (&self.world.cluster_version, self.target()) else {
            return false;
        };
        await_control_plane::is_done(cluster, &target)
    }
}

/// Ticks a built-in step.
pub fn tick(step: &PlanStep, scene: &Scene<'_>) -> Tick {
    match &step.action {
        StepAction::PreHealthCheck => health_check::before(scene),
        StepAction::PostHealthCheck | StepAction::FinalHealthCheck => health_check::after(scene),
        StepAction::PausePools => pause_pools::tick(scene),
        StepAction::SetDesiredUpdate => set_desired_update::tick(scene),
        StepAction::AwaitControlPlane => await_control_plane::tick(scene),
        StepAction::AwaitPools => await_pools::not_held(scene),
        StepAction::AwaitGroup { group } => await_pools::group(scene, *group),
        StepAction::Hold { group } => hold::tick(scene, *group),
        StepAction::Unpause { group } => unpause::tick(scene, *group),
        StepAction::Hook { event, hook, group } => hooks::one(scene, *event, hook, *group),
        StepAction::HooksJoin { event, group } => hooks::join(scene, *event, *group),
        // Executed by the life cycle whether or not an engine is there; the node only shows it.
        StepAction::Release => Tick::wait("waiting for the job to end"),
    }
}

/// Pools that must be paused now because their group is held, and are not: also pools that appeared since.
pub fn pauses_due(scene: &Scene<'_>, is_released: impl Fn(usize) -> bool) -> Vec<Action> {
    pause_pools::missing(scene, is_released)
        .into_iter()
        .map(|pool| Action::PausePool {
            pool: pool.name_any(),
            reason: PauseReason::Delay,
        })
        .collect()
}
