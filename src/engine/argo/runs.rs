//! What a Workflow shows of the hooks that Argo runs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;

use super::{
    native::task_name,
    object::{NodeStatus, View, task_node_name},
};
use crate::{
    api::annotations,
    engine::{
        NodePhase,
        native::{Native, NativeRun},
        object::time,
    },
    hooks::pods::{Awaited, PodOwner, PodWait, WithoutPod},
    plan::{Plan, PlanStep, StepAction},
};

/// Types of nodes that do something; the others only hold nodes together.
const LEAVES: [&str; 5] = ["Pod", "Suspend", "HTTP", "Plugin", "Container"];

/// Fields of templates that run as a pod.
const PODS: [&str; 4] = ["container", "script", "containerSet", "resource"];
/// Fields of a step that make several of it, or something else besides.
const MANY: [&str; 5] = ["withItems", "withParam", "withSequence", "hooks", "onExit"];
/// How long Argo itself waits for the result of a pod that has ended: `TASK_RESULT_TIMEOUT_DURATION` of its controller, by default.
const RESULT_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);
/// How many templates one behind the other are looked at: they may call themselves.
const MAX_DEPTH: usize = 8;

/// By step: the hooks that the Workflow runs, and those that it should and cannot.
pub fn natives(object: &DynamicObject, view: &View, plan: &Plan) -> BTreeMap<String, Native> {
    let problems: BTreeMap<String, String> = object
        .annotations()
        .get(annotations::HOOKS_NOT_RUN)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let tasks = tasks(object);
    let mut all = BTreeMap::new();
    for step in &plan.steps {
        let StepAction::Hook { group, .. } = &step.action else {
            continue;
        };
        let native = if let Some(problem) = problems.get(&step.name) {
            Native {
                problem: Some(problem.clone()),
                finished: true,
                runs: Vec::new(),
            }
        } else if tasks.contains(&task_name(&step.name).as_str()) {
            of_step(object, view, step, group.is_some())
        } else {
            continue;
        };
        all.insert(step.name.clone(), native);
    }
    all
}

/// Names of all tasks of all DAGs.
fn tasks(object: &DynamicObject) -> Vec<&str> {
    let templates = object.data.pointer("/spec/templates").and_then(Value::as_array);
    templates
        .into_iter()
        .flatten()
        .filter_map(|t| t.pointer("/dag/tasks")?.as_array())
        .flatten()
        .filter_map(|t| t.get("name")?.as_str())
        .collect()
}

fn of_step(object: &DynamicObject, view: &View, step: &PlanStep, per_pool: bool) -> Native {
    let name = task_node_name(&view.name, step.part, &task_name(&step.name));
    let Some(task) = view.nodes().find(|n| n.name == name) else {
        return Native::default();
    };
    let finished = task.node_phase() != NodePhase::Running;
    let runs = if per_pool {
        let items = view.nodes().filter_map(|n| Some((pool(&n.name, &name)?, n)));
        items.map(|(pool, node)| run(object, view, pool, node)).collect()
    } else {
        vec![run(object, view, "", task)]
    };
    Native {
        problem: None,
        finished,
        runs,
    }
}

/// The pool of an item's node, `<task>(<index>:<pool>)`.
fn pool<'a>(node: &'a str, task: &str) -> Option<&'a str> {
    let item = node.strip_prefix(task)?.strip_prefix('(')?.strip_suffix(')')?;
    let (index, pool) = item.split_once(':')?;
    (index.parse::<u32>().is_ok() && !pool.contains(['(', ')'])).then_some(pool)
}

fn run(object: &DynamicObject, view: &View, key: &str, root: &NodeStatus) -> NativeRun {
    let phase = root.node_phase();
    let below = Below::of(view, root);
    NativeRun {
        key: key.to_owned(),
        phase,
        message: below.message(phase),
        wait: (phase == NodePhase::Running)
            .then(|| below.wait(object))
            .flatten(),
    }
}

/// A node and all that was made for it.
struct Below<'a> {
    root: &'a NodeStatus,
    leaves: Vec<&'a NodeStatus>,
}

impl<'a> Below<'a> {
    fn of(view: &'a View, root: &'a NodeStatus) -> Self {
        let is_below = |node: &&NodeStatus| {
            node.name
                .strip_prefix(&root.name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '(']))
        };
        let is_leaf = |node: &&NodeStatus| LEAVES.contains(&node.type_.as_str());
        Self {
            root,
            leaves: view.nodes().filter(is_below).filter(is_leaf).collect(),
        }
    }

    /// The pods that it waits for. One that Argo has yet to see at work says why: there may be none because Argo itself waits.
    fn wait(&self, object: &DynamicObject) -> Option<PodWait> {
        let is_awaited = |n: &&&NodeStatus| n.type_ == "Pod" && n.node_phase() == NodePhase::Running;
        let pods: Vec<&NodeStatus> = self.leaves.iter().filter(is_awaited).copied().collect();
        let since = pods.iter().filter_map(|n| waits_since(n)).max()?;
        let engine_waits = |n: &&NodeStatus| n.is_pending() && text(n).is_some();
        Some(PodWait {
            owner: PodOwner::Workflow(object.name_any()),
            pods: Awaited::Node(self.root.name.clone()),
            since,
            without: if pods.iter().all(engine_waits) {
                WithoutPod::EngineWaits
            } else {
                WithoutPod::Gone
            },
            is_all: self
                .root
                .template_name
                .as_ref()
                .is_some_and(|t| is_one_pod(object, t, MAX_DEPTH)),
        })
    }

    fn message(&self, phase: NodePhase) -> String {
        match phase {
            NodePhase::Succeeded => String::new(),
            NodePhase::Skipped | NodePhase::LeftOut => text(self.root).unwrap_or("it was skipped").to_owned(),
            NodePhase::Failed => self.failure(),
            NodePhase::Running => self.progress(),
        }
    }

    /// The last failure says it: what holds it together only says that something below failed.
    fn failure(&self) -> String {
        let Some(leaf) = self.last(NodePhase::Failed) else {
            return text(self.root).unwrap_or("no message").to_owned();
        };
        let mut message = format!("{}{}", self.named(leaf), text(leaf).unwrap_or("no message"));
        let attempts = attempts(leaf);
        if attempts > 1 {
            message = format!("{message} (attempt {attempts})");
        }
        // Stopped, out of time: said where nothing below says it.
        match text(self.root) {
            Some(why) if text(leaf).is_none() => format!("{message}: {why}"),
            Some(_) | None => message,
        }
    }

    fn progress(&self) -> String {
        let running = self.leaves.iter().find(|n| n.node_phase() == NodePhase::Running);
        let Some(leaf) = running else {
            return match self.last(NodePhase::Failed) {
                Some(failed) => format!("is tried again, after: {}", text(failed).unwrap_or("no message")),
                None => String::new(),
            };
        };
        if leaf.type_ == "Suspend" {
            return format!(
                "waits for an approval: {} is suspended until someone resumes it in the workflow",
                leaf.display_name
            );
        }
        let attempts = attempts(leaf);
        let again = (attempts > 1).then(|| {
            let before = self
                .last(NodePhase::Failed)
                .and_then(text)
                .unwrap_or("no message");
            format!("attempt {attempts} after: {before}")
        });
        let said: Vec<&str> = text(leaf).into_iter().chain(again.as_deref()).collect();
        if said.is_empty() {
            return self.named(leaf).trim_end_matches(": ").to_owned();
        }
        format!("{}{}", self.named(leaf), said.join(", "))
    }

    fn last(&self, phase: NodePhase) -> Option<&'a NodeStatus> {
        let ended = self.leaves.iter().filter(|n| n.node_phase() == phase);
        ended
            .max_by(|a, b| {
                let key = |n: &NodeStatus| (n.finished_at.clone(), attempt(&n.name));
                key(a).cmp(&key(b))
            })
            .copied()
    }

    /// Which step of the template, if there are several.
    fn named(&self, leaf: &NodeStatus) -> String {
        let (plain, _) = split_attempt(&leaf.name);
        if plain == self.root.name {
            return String::new();
        }
        let (name, _) = split_attempt(&leaf.display_name);
        format!("{name}: ")
    }
}

/// Whether all that a template does is to run one pod, by itself or by the only step that it has.
fn is_one_pod(object: &DynamicObject, template: &str, depth: usize) -> bool {
    let templates = object.data.pointer("/spec/templates").and_then(Value::as_array);
    let mut all = templates.into_iter().flatten();
    let Some(found) = all.find(|t| t.get("name").and_then(Value::as_str) == Some(template)) else {
        return false;
    };
    let called: Vec<&Value> = match (found.get("steps"), found.pointer("/dag/tasks")) {
        (Some(groups), _) => {
            let groups = groups.as_array().into_iter().flatten();
            groups.flat_map(|g| g.as_array().into_iter().flatten()).collect()
        }
        (None, Some(tasks)) => tasks.as_array().into_iter().flatten().collect(),
        (None, None) => return PODS.iter().any(|field| found.get(field).is_some()),
    };
    let [only] = called.as_slice() else { return false };
    let is_plain = !MANY.iter().any(|field| only.get(field).is_some());
    let next = only.get("template").and_then(Value::as_str);
    is_plain && depth > 0 && next.is_some_and(|t| is_one_pod(object, t, depth.saturating_sub(1)))
}

/// How often it was begun.
fn attempts(leaf: &NodeStatus) -> u32 {
    attempt(&leaf.name).map_or(1, |n| n.saturating_add(1))
}

/// Since when it is Argo's turn, once the pod has ended.
fn waits_since(pod: &NodeStatus) -> Option<Timestamp> {
    if pod.awaits_result() {
        let ended = time(pod.finished_at.as_ref())?;
        return ended.saturating_add(RESULT_TIMEOUT).ok();
    }
    time(pod.started_at.as_ref())
}

fn text(node: &NodeStatus) -> Option<&str> {
    node.message.as_deref().filter(|m| !m.is_empty())
}

/// The number of an attempt, which Argo adds to the name: `name(0)`.
fn attempt(name: &str) -> Option<u32> {
    split_attempt(name).1
}

fn split_attempt(name: &str) -> (&str, Option<u32>) {
    let parts = name.strip_suffix(')').and_then(|n| n.rsplit_once('('));
    match parts.and_then(|(plain, number)| Some((plain, number.parse().ok()?))) {
        Some((plain, number)) => (plain, Some(number)),
        None => (name, None),
    }
}

#[cfg(test)]
mod tests;
