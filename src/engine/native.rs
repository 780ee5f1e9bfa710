//! Hooks that an engine runs itself, out of its reusable templates.
//!
//! The step of such a hook is ended by the operator at the event's moment, and what the engine then runs gets the event
//! with it. What the containers see as environment is too large for a workflow, and the names of its variables are not
//! known when the workflow is rendered: it is put into an object of its own, which the containers refer to by name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::NodePhase;
use crate::{
    api::{
        names,
        upgrade_job_hook::{TaskRef, TemplateRef},
    },
    hooks::pods::PodWait,
};

/// Longest name of an object.
const MAX_NAME: usize = 253;

/// What the engine runs, or cannot run, for a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Native {
    /// Why it cannot.
    pub problem: Option<String>,
    /// Whether all of it has ended, or none of it will run.
    pub finished: bool,
    /// What runs or ran.
    pub runs: Vec<NativeRun>,
}

/// One run of a hook in an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeRun {
    /// What tells several runs of one event apart: the pool, else empty.
    pub key: String,
    /// Where it is.
    pub phase: NodePhase,
    /// What runs, waits or failed; may be empty.
    pub message: String,
    /// The pod that it waits for, while it waits for one.
    pub wait: Option<PodWait>,
}

impl Native {
    /// The run of this key.
    pub fn run(&self, key: &str) -> Option<&NativeRun> {
        self.runs.iter().find(|r| r.key == key)
    }

    /// Whether something of it is under way.
    pub fn is_running(&self) -> bool {
        self.runs.iter().any(|r| r.phase == NodePhase::Running)
    }
}

/// What the engine needs to run a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// What happened, for the step.
    pub message: String,
    /// The event, a JSON object without `pool`.
    pub event: String,
    /// The UpgradeJob, a JSON object.
    pub job: String,
    /// What is to run: once per tracking key.
    pub runs: Vec<StartedRun>,
}

/// One run of a hook that is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedRun {
    /// What tells several runs of one event apart: the pool, else empty.
    pub key: String,
    /// The environment of its containers.
    pub variables: BTreeMap<String, String>,
}

/// Name of the ConfigMap with the environment of one run of a hook. A name of a workflow is never used again, so neither is
/// this one; steps have no dots in their names.
pub fn environment_name(workflow: &str, step: &str, key: &str) -> String {
    if key.is_empty() {
        format!("{workflow}.{step}")
    } else {
        names::fit(&format!("{workflow}.{step}.{key}"), MAX_NAME)
    }
}

/// Which reusable template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplateKey {
    /// Of which kind, and where.
    pub kind: TemplateKind,
    /// Its name.
    pub name: String,
}

/// The kinds of reusable templates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateKind {
    /// Argo's WorkflowTemplate, in the namespace of the job.
    WorkflowTemplate,
    /// Argo's ClusterWorkflowTemplate.
    ClusterWorkflowTemplate,
    /// The ConfigMap with a workflow template of the user's own: of that its `data` counts.
    ConfigMap,
    /// Tekton's Task.
    Task {
        /// Its namespace; `None`: that of the job.
        namespace: Option<String>,
    },
}

impl TemplateKind {
    /// The kind of Argo's templates that has this scope.
    pub fn of_argo(is_of_cluster: bool) -> Self {
        if is_of_cluster {
            Self::ClusterWorkflowTemplate
        } else {
            Self::WorkflowTemplate
        }
    }

    /// As the API spells it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::WorkflowTemplate => "WorkflowTemplate",
            Self::ClusterWorkflowTemplate => "ClusterWorkflowTemplate",
            Self::ConfigMap => "ConfigMap",
            Self::Task { .. } => "Task",
        }
    }
}

impl TemplateKey {
    /// The one that a hook refers to.
    pub fn of(reference: &TemplateRef) -> Self {
        Self {
            kind: TemplateKind::of_argo(reference.cluster_scope),
            name: reference.name.clone(),
        }
    }

    /// The ConfigMap with a workflow template of the user's own.
    pub fn of_own(name: &str) -> Self {
        Self {
            kind: TemplateKind::ConfigMap,
            name: name.to_owned(),
        }
    }

    /// The Task that a hook refers to.
    pub fn of_task(reference: &TaskRef) -> Self {
        let namespace = reference.namespace.clone();
        Self {
            kind: TemplateKind::Task { namespace },
            name: reference.name.clone(),
        }
    }
}

/// As messages name it.
impl std::fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// What was found of a reusable template.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// Its `spec`, of a ConfigMap its `data`.
    Found(Value),
    /// There is none of that name.
    Absent,
    /// The API server has no such kind.
    KindAbsent,
    /// The operator may not read it; what the API server said.
    Forbidden(String),
    /// A workflow with a copy of it was refused; what the API server said.
    Refused(String),
}

impl Lookup {
    /// The user's own workflow template: the text of this `entry` of the ConfigMap `key`, or why there is none.
    pub fn own_template(&self, key: &TemplateKey, entry: &str) -> Result<String, String> {
        let template = match self {
            Self::Found(data) => data.get(entry).and_then(Value::as_str),
            Self::Absent => return Err(format!("there is no {key}, which config.workflow.template names")),
            Self::KindAbsent => return Err(format!("{key} cannot be read")),
            Self::Forbidden(why) | Self::Refused(why) => return Err(format!("{key} cannot be read: {why}")),
        };
        let missing = || format!("{key} has no key {entry} with the workflow template");
        template.map(str::to_owned).ok_or_else(missing)
    }
}

/// Reusable templates, as just read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Templates(pub BTreeMap<TemplateKey, Lookup>);

/// For workflows whose hooks are all Jobs.
pub static NO_TEMPLATES: Templates = Templates(BTreeMap::new());

impl Templates {
    /// The same where a workflow with copies of them was refused: none of them can be used.
    #[must_use]
    pub fn refused(&self, why: &str) -> Self {
        let refused = |key: &TemplateKey| (key.clone(), Lookup::Refused(why.to_owned()));
        Self(self.0.keys().map(refused).collect())
    }

    /// What was found of this one; `None` if it was not looked for.
    pub fn get(&self, key: &TemplateKey) -> Option<&Lookup> {
        self.0.get(key)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("job-run-1", "hook-start-a", "", "job-run-1.hook-start-a")]
    #[case(
        "job-run-1",
        "hook-unpause-g-a",
        "worker",
        "job-run-1.hook-unpause-g-a.worker"
    )]
    fn the_environment_of_a_run_has_a_name_of_its_own(
        #[case] workflow: &str,
        #[case] step: &str,
        #[case] key: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(environment_name(workflow, step, key), expected);
    }

    #[test]
    fn a_name_is_never_too_long_for_an_object() {
        let long = |n| "x".repeat(n);
        assert_eq!(environment_name(&long(63), &long(63), "").len(), 127);
        assert_eq!(environment_name(&long(63), &long(63), &long(253)).len(), 253);
    }
}
