//! What a PipelineRun and its CustomRuns show.

use std::collections::BTreeMap;

use kube::{ResourceExt, api::DynamicObject};
use serde::Deserialize;

use super::{STEP_API_VERSION, STEP_KIND, TASK_LABEL};
use crate::{
    engine::{
        Node, NodePhase, Repeat, Run, StopRequest, Workflow,
        object::{Parts, time},
    },
    plan::{Part, Plan, PlanStep},
};

/// `spec.status` of a PipelineRun that shall not begin yet.
const PENDING: &str = "PipelineRunPending";
/// `spec.status` of a CustomRun that shall end.
const CANCELLED: &str = "RunCancelled";

/// Why Tekton skips a task whose `when` is false; its other reasons are failures and stops of what comes before.
const CONDITION_FALSE: &str = "When Expressions evaluated to false";
/// What Tekton writes into `spec.statusMessage` of the CustomRuns that it cancels by itself, after a timeout
/// (`pkg/reconciler/pipelinerun/timeout.go`).
const TIMED_OUT: &str = "has timed out";

/// A condition, as far as it matters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When `status` changed.
    pub last_transition_time: Option<String>,
}

/// `status` of a PipelineRun or of a CustomRun.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    start_time: Option<String>,
    completion_time: Option<String>,
    skipped_tasks: Vec<SkippedTask>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SkippedTask {
    name: String,
    reason: String,
}

/// `spec` of a PipelineRun or of a CustomRun, as far as people change it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    status: String,
    status_message: String,
    custom_ref: CustomRef,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CustomRef {
    api_version: String,
    kind: String,
}

/// A PipelineRun or a CustomRun, read.
pub struct View {
    status: Status,
    spec: Spec,
    unreadable: Option<String>,
}

impl View {
    /// Reads it; what cannot be read counts as empty, and is said by [`observe`].
    pub fn of(object: &DynamicObject) -> Self {
        let Parts {
            status,
            spec,
            unreadable,
        } = Parts::of(object);
        Self {
            status,
            spec,
            unreadable,
        }
    }

    /// The one condition that Tekton goes by.
    pub fn succeeded(&self) -> Option<&Condition> {
        self.status.conditions.iter().find(|c| c.type_ == "Succeeded")
    }

    /// Whether it has ended.
    pub fn finished(&self) -> bool {
        matches!(self.phase(), NodePhase::Succeeded | NodePhase::Failed)
    }

    /// When it began to be looked after.
    pub fn started_at(&self) -> Option<&String> {
        self.status.start_time.as_ref()
    }

    /// Whether it is asked to end, by a person or because its PipelineRun ends.
    pub fn is_cancelled(&self) -> bool {
        self.spec.status == CANCELLED
    }

    /// Tekton itself ends it.
    fn is_timed_out(&self) -> bool {
        self.is_cancelled() && self.spec.status_message.contains(TIMED_OUT)
    }

    fn phase(&self) -> NodePhase {
        match self.succeeded().map(|c| c.status.as_str()) {
            Some("True") => NodePhase::Succeeded,
            Some("False") => NodePhase::Failed,
            Some(_) | None => NodePhase::Running,
        }
    }

    fn message(&self) -> Option<String> {
        self.succeeded()
            .map(|c| c.message.clone())
            .filter(|m| !m.is_empty())
    }

    /// Whether it is a custom task of ours.
    fn is_step(&self) -> bool {
        let CustomRef { api_version, kind } = &self.spec.custom_ref;
        (api_version.as_str(), kind.as_str()) == (STEP_API_VERSION, STEP_KIND)
    }
}

/// The CustomRuns of our steps that Tekton made for this PipelineRun.
pub fn custom_runs(workflow: &Workflow) -> impl Iterator<Item = (&DynamicObject, View)> {
    let uid = workflow.object.metadata.uid.as_ref();
    let of_run = move |o: &&DynamicObject| o.owner_references().iter().any(|owner| Some(&owner.uid) == uid);
    let of_ours = |object| {
        let view = View::of(object);
        (view.unreadable.is_some() || view.is_step()).then_some((object, view))
    };
    workflow.steps.iter().filter(of_run).filter_map(of_ours)
}

/// The same of a plan's steps, by name of the step.
pub fn steps<'a>(workflow: &'a Workflow, plan: &Plan) -> BTreeMap<String, (&'a DynamicObject, View)> {
    custom_runs(workflow)
        .filter_map(|(object, view)| {
            let step = plan.step(object.labels().get(TASK_LABEL)?)?;
            Some((step.name.clone(), (object, view)))
        })
        .collect()
}

/// What a PipelineRun shows.
pub fn observe(workflow: &Workflow, plan: &Plan) -> Run {
    let view = View::of(&workflow.object);
    let steps = steps(workflow, plan);
    let nodes = plan
        .steps
        .iter()
        .filter_map(|step| node(step, steps.get(&step.name)).or_else(|| skipped(step, &view)))
        .collect();
    let reason = view.succeeded().map(|c| c.reason.clone());
    let unreadable = std::iter::once(&view)
        .chain(steps.values().map(|(_, view)| view))
        .find_map(|v| v.unreadable.clone());
    Run {
        phase: reason.unwrap_or_default(),
        picked_up: view.succeeded().is_some(),
        finished: view.finished(),
        message: view.message(),
        stop: stop(&view, plan, &steps),
        stopped_by: None,
        woken_at: None,
        suspended: view.spec.status == PENDING && !view.finished(),
        // A *Rerun* is a copy.
        repeat: Repeat::Harmless,
        sealed_at: None,
        unsupported: unreadable.map(|problem| format!("cannot read {problem}")),
        nodes,
        native: BTreeMap::new(),
    }
}

/// Who cancels a single step wants the run to end: Tekton has no other way to say so in its UI. Once the run has ended,
/// Tekton itself cancels what is left.
fn stop(view: &View, plan: &Plan, steps: &BTreeMap<String, (&DynamicObject, View)>) -> Option<StopRequest> {
    let is_cancelled = |step: &PlanStep| {
        steps
            .get(&step.name)
            .is_some_and(|(_, v)| v.is_cancelled() && !v.is_timed_out() && !v.finished())
    };
    match view.spec.status.as_str() {
        "Cancelled" => Some(StopRequest::Terminate),
        "" if view.finished() => None,
        "" => plan
            .part(Part::Main)
            .any(is_cancelled)
            .then_some(StopRequest::Stop),
        PENDING => None,
        // CancelledRunFinally, StoppedRunFinally; whatever else it is, somebody wants no more.
        _ => Some(StopRequest::Stop),
    }
}

fn node(step: &PlanStep, found: Option<&(&DynamicObject, View)>) -> Option<Node> {
    let (object, view) = found?;
    let created = object.creation_timestamp().map(|t| t.0);
    Some(Node {
        step: step.name.clone(),
        phase: view.phase(),
        message: view
            .message()
            .or_else(|| Some(view.spec.status_message.clone()).filter(|m| !m.is_empty())),
        started_at: time(view.started_at()).or(created),
        finished_at: time(view.status.completion_time.as_ref()),
        ended_by: None,
        broken: view.is_timed_out().then(|| view.spec.status_message.clone()),
    })
}

fn skipped(step: &PlanStep, view: &View) -> Option<Node> {
    let task = view.status.skipped_tasks.iter().find(|t| t.name == step.name)?;
    Some(Node {
        step: step.name.clone(),
        phase: if task.reason == CONDITION_FALSE {
            NodePhase::Skipped
        } else {
            NodePhase::LeftOut
        },
        message: Some(task.reason.clone()).filter(|m| !m.is_empty()),
        started_at: None,
        finished_at: None,
        ended_by: None,
        broken: None,
    })
}
