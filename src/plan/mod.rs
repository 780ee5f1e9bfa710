//! The plan of a run: named steps and their order, as data. Engines only translate it.
//!
//! A plan is built once, when a run starts, and kept in `UpgradeJob.status.plan`.

pub mod build;

use serde::{Deserialize, Serialize};

use crate::api::upgrade_job_hook::HookEvent;

/// Version of the stored form. An operator reads plans one release old.
pub const VERSION: u32 = 1;

/// The steps of one run and their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Version of this form, [`VERSION`].
    pub version: u32,
    /// What the run is for.
    pub run: RunKind,
    /// The steps; each comes after the ones it names in `after`.
    pub steps: Vec<PlanStep>,
}

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum RunKind {
    /// Create hooks, between pin and start; `number` counts from 1.
    Create {
        /// Counts from 1.
        number: u32,
    },
    /// The upgrade itself; `attempt` counts from 1.
    Main {
        /// Counts from 1.
        attempt: u32,
    },
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanStep {
    /// Name, unique in the plan: `[a-z][a-z0-9-]*`, at most 63 characters.
    pub name: String,
    /// Short text for people.
    pub title: String,
    /// What it does.
    pub action: StepAction,
    /// Names of the steps of the same part that must have ended well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Main part or exit part.
    pub part: Part,
}

/// Part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// Decides the outcome.
    Main,
    /// Runs after the main part, whatever its outcome.
    Exit,
}

/// Condition under which an exit step is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Always.
    Always,
    /// The main part succeeded.
    Succeeded,
    /// The main part failed.
    Failed,
}

/// What a step does. Every one is executed by the operator; `Hook` of a native template is a pod of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum StepAction {
    /// Health before anything is touched.
    PreHealthCheck,
    /// Pauses the held pools.
    PausePools,
    /// Sets `spec.desiredUpdate`.
    SetDesiredUpdate,
    /// Waits for the cluster-version operator.
    AwaitControlPlane,
    /// Waits for the pools that are not held.
    AwaitPools,
    /// Health after the upgrade.
    PostHealthCheck,
    /// Health after the last held pool.
    FinalHealthCheck,
    /// Holds a group of pools until its time.
    Hold {
        /// Index in `config.machineConfigPools`.
        group: usize,
    },
    /// Unpauses a group of pools.
    Unpause {
        /// Index in `config.machineConfigPools`.
        group: usize,
    },
    /// Waits for a group of pools.
    AwaitGroup {
        /// Index in `config.machineConfigPools`.
        group: usize,
    },
    /// One hook at one event; for MachineConfigPoolUnpause once per pool of the group.
    Hook {
        /// The event.
        event: HookEvent,
        /// Name of the UpgradeJobHook.
        hook: String,
        /// Group of pools, for MachineConfigPoolUnpause.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<usize>,
    },
    /// Runs the hooks of an event that were added since the plan was built, and waits for all.
    HooksJoin {
        /// The event.
        event: HookEvent,
        /// Group of pools, for MachineConfigPoolUnpause.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<usize>,
    },
    /// Shows that intent, pauses and lock are taken back.
    Release,
}

impl StepAction {
    /// The name of the kind, as in `status.steps[].kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::PreHealthCheck => "PreHealthCheck",
            Self::PausePools => "PausePools",
            Self::SetDesiredUpdate => "SetDesiredUpdate",
            Self::AwaitControlPlane => "AwaitControlPlane",
            Self::AwaitPools => "AwaitPools",
            Self::PostHealthCheck => "PostHealthCheck",
            Self::FinalHealthCheck => "FinalHealthCheck",
            Self::Hold { .. } => "Hold",
            Self::Unpause { .. } => "Unpause",
            Self::AwaitGroup { .. } => "AwaitGroup",
            Self::Hook { .. } => "Hook",
            Self::HooksJoin { .. } => "HooksJoin",
            Self::Release => "Release",
        }
    }

    /// When an exit step is reached; main steps are always.
    pub fn when(&self) -> When {
        match self {
            Self::Hook { event, .. } | Self::HooksJoin { event, .. } => match event {
                HookEvent::Success => When::Succeeded,
                HookEvent::Failure => When::Failed,
                HookEvent::Create
                | HookEvent::Start
                | HookEvent::UpgradeComplete
                | HookEvent::MachineConfigPoolUnpause
                | HookEvent::Finish => When::Always,
            },
            Self::PreHealthCheck
            | Self::PausePools
            | Self::SetDesiredUpdate
            | Self::AwaitControlPlane
            | Self::AwaitPools
            | Self::PostHealthCheck
            | Self::FinalHealthCheck
            | Self::Hold { .. }
            | Self::Unpause { .. }
            | Self::AwaitGroup { .. }
            | Self::Release => When::Always,
        }
    }
}

impl StepAction {
    /// The group of pools whose unpausing waits for this step, or is this step.
    pub fn holds_back(&self) -> Option<usize> {
        match self {
            Self::Hold { group } | Self::Unpause { group } => Some(*group),
            Self::Hook { group, .. } | Self::HooksJoin { group, .. } => *group,
            Self::PreHealthCheck
            | Self::PausePools
            | Self::SetDesiredUpdate
            | Self::AwaitControlPlane
            | Self::AwaitPools
            | Self::PostHealthCheck
            | Self::FinalHealthCheck
            | Self::AwaitGroup { .. }
            | Self::Release => None,
        }
    }

    /// The group of pools that this step unpauses.
    pub fn unpauses(&self) -> Option<usize> {
        if let Self::Unpause { group } = self {
            Some(*group)
        } else {
            None
        }
    }
}

impl Plan {
    /// The step of this name.
    pub fn step(&self, name: &str) -> Option<&PlanStep> {
        self.steps.iter().find(|s| s.name == name)
    }

    /// The steps of one part, in order.
    pub fn part(&self, part: Part) -> impl Iterator<Item = &PlanStep> {
        self.steps.iter().filter(move |s| s.part == part)
    }

    /// Gives the steps of a later run of Create hooks names of their own, so that all runs fit into `status.steps`.
    pub fn rename_for_run(&mut self, number: u32) {
        let rename = |name: &str| crate::api::names::fit(&format!("{name}-{number}"), crate::api::names::MAX);
        for step in &mut self.steps {
            step.name = rename(&step.name);
            step.after = step.after.iter().map(|n| rename(n)).collect();
        }
    }

    /// The plan as stored in `status.plan`.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::to_value(self)
    }

    /// Reads a stored plan.
    pub fn from_value(value: &serde_json::Value) -> Result<Self, BadPlan> {
        let plan = Self::deserialize(value)?;
        if plan.version != VERSION {
            return Err(BadPlan::Version(plan.version));
        }
        Ok(plan)
    }
}

/// A stored plan that this operator cannot read.
#[derive(Debug, thiserror::Error)]
pub enum BadPlan {
    /// It does not parse.
    #[error("cannot read status.plan of the upgrade job: {0}; was it edited by hand?")]
    Parse(#[from] serde_json::Error),
    /// It is of another version.
    #[error(
        "status.plan has version {0}, this operator reads version {VERSION}: run the operator version that started the job"
    )]
    Version(u32),
}
