//! What a Workflow shows.

use std::collections::BTreeMap;

use kube::{ResourceExt, api::DynamicObject};
use serde::Deserialize;
use serde_json::Value;

use super::{repeat, runs};
use crate::{
    api::annotations,
    engine::{
        Node, NodePhase, Run, StopRequest,
        object::{Parts, time},
    },
    plan::{Part, Plan, PlanStep},
};

/// Who stopped a workflow, in the order of how well a person knows the name. Set by Argo's server.
const ACTOR_LABELS: [&str; 3] = [
    "workflows.argoproj.io/actor-preferred-username",
    "workflows.argoproj.io/actor-email",
    "workflows.argoproj.io/actor",
];
/// What they did last.
const ACTION_LABEL: &str = "workflows.argoproj.io/action";
/// What Argo's server writes into the message of a node that somebody resumed: a Go map.
const RESUMED_BY: &str = "Resumed by: map[";
/// Argo's error under `workflowRestrictions.templateReferencing`.
const REFERENCE_MODE: &str = "workflows must use workflowTemplateRef";

/// Messages of suspend nodes that Argo fails by itself.
const OWN_ENDINGS: [&str; 4] = [
    "Step exceeded its deadline",
    "Deadline exceeded",
    "timeout",
    "Max duration limit exceeded",
];

/// `status` of a Workflow.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    phase: Option<String>,
    message: Option<String>,
    nodes: Option<BTreeMap<String, NodeStatus>>,
    compressed_nodes: Option<String>,
    offload_node_status_version: Option<String>,
}

/// One entry of `status.nodes`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Its name: the workflow's, and the way to it.
    pub name: String,
    /// Its last part.
    pub display_name: String,
    /// What it is of: Pod, Retry, Steps, DAG, Suspend …
    #[serde(rename = "type")]
    pub type_: String,
    /// The template that it is of.
    pub template_name: Option<String>,
    phase: Option<String>,
    /// The message as it is.
    pub message: Option<String>,
    /// When it began.
    pub started_at: Option<String>,
    /// When it ended.
    pub finished_at: Option<String>,
    /// `outputs`, as it is.
    pub outputs: Option<Value>,
    task_result_synced: Option<bool>,
}

/// `spec` of a Workflow, as far as people change it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    shutdown: Option<String>,
    suspend: Option<bool>,
}

/// A Workflow, read.
pub struct View {
    /// Its name.
    pub name: String,
    status: Status,
    spec: Spec,
    unreadable: Option<String>,
}

impl View {
    /// Reads a Workflow; what cannot be read is [`View::unsupported`].
    pub fn of(object: &DynamicObject) -> Self {
        let Parts {
            status,
            spec,
            unreadable,
        } = Parts::of(object);
        Self {
            name: object.name_any(),
            status,
            spec,
            unreadable,
        }
    }

    /// Phase of the workflow; empty before Argo has picked it up.
    fn phase(&self) -> &str {
        self.status.phase.as_deref().unwrap_or_default()
    }

    /// Whether the workflow has ended.
    pub fn finished(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed" | "Error")
    }

    /// Why the operator cannot lead this workflow.
    pub fn unsupported(&self) -> Option<String> {
        let set = |field: &Option<String>| field.as_ref().is_some_and(|f| !f.is_empty());
        let name = &self.name;
        if let Some(problem) = &self.unreadable {
            return Some(format!("cannot read workflow {name}: {problem}"));
        }
        if set(&self.status.offload_node_status_version) {
            return Some(format!(
                "Argo keeps the steps of workflow {name} in its database: unset persistence.nodeStatusOffLoad and \
                 ALWAYS_OFFLOAD_NODE_STATUS of the workflow controller, or use another engine"
            ));
        }
        if set(&self.status.compressed_nodes) {
            return Some(format!(
                "Argo has compressed the steps of workflow {name}, because it is too large: shorten the plan (fewer hooks \
                 or pools) or use another engine"
            ));
        }
        if self
            .status
            .message
            .as_ref()
            .is_some_and(|m| m.contains(REFERENCE_MODE))
        {
            return Some(format!(
                "Argo refuses workflow {name}, because workflowRestrictions.templateReferencing of the workflow \
                 controller allows references to WorkflowTemplates only: lift that, or use another engine"
            ));
        }
        None
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeStatus> {
        self.status.nodes.iter().flatten().map(|(_, node)| node)
    }

    /// The node of a step and its ID.
    ///
    /// Looked up by name, not by the computed ID: names whose hashes collide get another one. A `retryStrategy` that the
    /// controller's workflowDefaults put on every template makes one node per attempt, `name(0)`, `name(1)`: the newest
    /// counts.
    pub fn node(&self, step: &PlanStep) -> Option<(&str, &NodeStatus)> {
        let name = node_name(&self.name, step);
        let nodes = self.status.nodes.iter().flatten();
        nodes
            .filter_map(|(id, node)| {
                let (plain, attempts) = without_attempts(&node.name);
                (plain == name).then_some((attempts, id, node))
            })
            .max_by(|a, b| a.0.cmp(&b.0))
            .map(|(_, id, node)| (id.as_str(), node))
    }
}

/// Name of a step's node.
pub fn node_name(workflow: &str, step: &PlanStep) -> String {
    task_node_name(workflow, step.part, &step.name)
}

/// Name of a task's node: of the DAG at the root, or of the one at the root of the exit handler.
pub fn task_node_name(workflow: &str, part: Part, task: &str) -> String {
    match part {
        Part::Main => format!("{workflow}.{task}"),
        Part::Exit => format!("{workflow}.onExit.{task}"),
    }
}

/// The name without attempts such as `(0)`, and those attempts in order.
fn without_attempts(name: &str) -> (String, Vec<u32>) {
    let mut pieces = name.split('(');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    let mut attempts = Vec::new();
    for piece in pieces {
        match piece.split_once(')').map(|(number, rest)| (number.parse(), rest)) {
            Some((Ok(number), rest)) => {
                attempts.push(number);
                plain.push_str(rest);
            }
            Some((Err(_), _)) | None => {
                plain.push('(');
                plain.push_str(piece);
            }
        }
    }
    (plain, attempts)
}

impl NodeStatus {
    /// Whether the node waits for the operator.
    pub fn waits(&self) -> bool {
        self.type_ == "Suspend" && self.phase.as_deref() == Some("Running")
    }

    /// Whether it is a pod that was made, or is to be, and that Argo has not seen at work.
    pub fn is_pending(&self) -> bool {
        self.phase.as_deref() == Some("Pending")
    }

    /// Whether it is a pod that has ended, and whose result has not arrived.
    pub fn awaits_result(&self) -> bool {
        let has_ended = matches!(self.phase.as_deref(), Some("Succeeded" | "Failed" | "Error"));
        has_ended && self.node_phase() == NodePhase::Running
    }

    /// Where it is.
    pub fn node_phase(&self) -> NodePhase {
        // The result of a pod may arrive after its phase.
        let synced = self.task_result_synced.unwrap_or(true);
        match self.phase.as_deref() {
            Some("Succeeded") if synced => NodePhase::Succeeded,
            Some("Failed" | "Error") if synced => NodePhase::Failed,
            Some("Skipped") => NodePhase::Skipped,
            Some("Omitted") => NodePhase::LeftOut,
            _ => NodePhase::Running,
        }
    }

    /// Why Argo itself ended a step of ours. `Error` is Argo's own word: for what it cannot execute. `Failed` is what people
    /// and operators write, too, and Argo's only with one of its own texts: the deadline of the workflow or of a template
    /// that it puts on what waits (`failNodesWithoutCreatedPodsAfterDeadlineOrShutdown`, `executeTemplate`). A person's
    /// `argo stop --node-field-selector` keeps our text or brings one of its own. `Stopped with strategy` is the answer to
    /// somebody's `shutdown`.
    fn broken(&self) -> Option<String> {
        let text = self.message.as_deref().unwrap_or_default();
        let why = || {
            let text = if text.is_empty() { "no message" } else { text };
            Some(format!("{} ({text})", self.phase.as_deref().unwrap_or_default()))
        };
        match self.phase.as_deref() {
            Some("Error") => why(),
            Some("Failed") if OWN_ENDINGS.iter().any(|own| text.eq_ignore_ascii_case(own)) => why(),
            Some(_) | None => None,
        }
    }

    fn ended_by(&self) -> Option<String> {
        let (_, map) = self.message.as_deref()?.rsplit_once(RESUMED_BY)?;
        Some(person(map.strip_suffix(']').unwrap_or(map)))
    }
}

/// The person in a Go map such as `Email:a@b.c PreferredUsername:anna User:1234-5678`: the most readable of its entries.
fn person(map: &str) -> String {
    let keys = ["Email:", "PreferredUsername:", "User:"];
    let entry = |key: &str| {
        let (_, value) = map.split_once(key)?;
        let end = keys
            .iter()
            .filter_map(|k| value.find(&format!(" {k}")))
            .min()
            .unwrap_or(value.len());
        value.get(..end).filter(|v| !v.is_empty())
    };
    entry("PreferredUsername:")
        .or_else(|| entry("Email:"))
        .or_else(|| entry("User:"))
        .unwrap_or(map)
        .to_owned()
}

/// What a Workflow shows.
pub fn observe(object: &DynamicObject, plan: &Plan) -> Run {
    let view = View::of(object);
    let stop = match view.spec.shutdown.as_deref() {
        Some("Stop") => Some(StopRequest::Stop),
        Some("Terminate") => Some(StopRequest::Terminate),
        // Argo knows no other; whatever it is, somebody wants no more.
        Some(other) if !other.is_empty() => Some(StopRequest::Stop),
        Some(_) | None => None,
    };
    let nodes = plan
        .steps
        .iter()
        .filter_map(|step| Some(node(step, view.node(step)?.1)))
        .collect();
    Run {
        phase: view.phase().to_owned(),
        picked_up: !view.phase().is_empty(),
        finished: view.finished(),
        message: view.status.message.clone().filter(|m| !m.is_empty()),
        stopped_by: stop.and_then(|_| stopped_by(object)),
        stop,
        woken_at: time(object.annotations().get(annotations::WOKEN_AT)),
        suspended: !view.finished() && view.spec.suspend.unwrap_or(false),
        repeat: repeat::repeat(object, view.finished()),
        sealed_at: repeat::sealed_at(object).cloned(),
        unsupported: view.unsupported(),
        nodes,
        native: runs::natives(object, &view, plan),
    }
}

fn node(step: &PlanStep, node: &NodeStatus) -> Node {
    Node {
        step: step.name.clone(),
        phase: node.node_phase(),
        message: node.message.clone().filter(|m| !m.is_empty()),
        started_at: time(node.started_at.as_ref()),
        finished_at: time(node.finished_at.as_ref()),
        ended_by: node.ended_by(),
        broken: node.broken(),
    }
}

fn stopped_by(object: &DynamicObject) -> Option<String> {
    let labels = object.labels();
    let action = labels.get(ACTION_LABEL)?;
    if action != "Stop" && action != "Terminate" {
        return None;
    }
    ACTOR_LABELS.iter().find_map(|label| labels.get(*label)).cloned()
}
