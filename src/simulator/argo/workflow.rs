//! What the workflow controller makes of a Workflow: pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::condition::{self, Unknown};
use crate::api::conditions::whole_seconds;

/// Where a node is, as Argo spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Waits, or has nodes that wait.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly, or stopped.
    Failed,
    /// Its `when` was false.
    Skipped,
    /// Its `depends` was not met.
    Omitted,
}

impl Phase {
    fn is_over(self) -> bool {
        match self {
            Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Skipped | Self::Omitted => true,
        }
    }
}

/// `spec`, as far as our workflows use it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    entrypoint: String,
    on_exit: Option<String>,
    templates: Vec<Template>,
    shutdown: Option<Shutdown>,
    suspend: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Shutdown {
    /// The exit part still runs.
    Stop,
    Terminate,
}

#[derive(Deserialize)]
struct Template {
    name: String,
    dag: Option<Dag>,
    inputs: Option<Value>,
    outputs: Option<Value>,
}

#[derive(Deserialize)]
struct Dag {
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct Task {
    name: String,
    template: String,
    depends: Option<String>,
    when: Option<String>,
}

/// `status`; what is not here stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    nodes: BTreeMap<String, Node>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: String,
    name: String,
    display_name: String,
    #[serde(rename = "type")]
    type_: String,
    template_name: String,
    phase: Phase,
    #[serde(rename = "boundaryID", skip_serializing_if = "Option::is_none")]
    boundary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    started_at: String,
    finished_at: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    children: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outbound_nodes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inputs: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<Value>,
}

/// A Workflow that the stand-in cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Unsupported {
    /// It uses more than our templates do.
    #[error("the stand-in of Argo cannot read workflow {name}: {source}")]
    Fields {
        /// Name of the workflow.
        name: String,
        /// What it does not know.
        source: serde_json::Error,
    },
    /// It refers to a template that it does not have, or to one that is no DAG where one is needed.
    #[error("workflow {name} has no fitting template {template}")]
    Template {
        /// Name of the workflow.
        name: String,
        /// Name of the template.
        template: String,
    },
    /// A condition of another kind.
    #[error(transparent)]
    Condition(#[from] Unknown),
}

/// The Workflow as the controller would leave it; `None` if it would leave it as it is.
pub fn next(object: &DynamicObject, now: Timestamp) -> Result<Option<DynamicObject>, Unsupported> {
    let name = object.name_any();
    let unreadable = |source| Unsupported::Fields {
        name: object.name_any(),
        source,
    };
    let part = |field: &str| object.data.get(field).cloned();
    let spec = part("spec").unwrap_or_default();
    let spec: Spec = serde_json::from_value(spec).map_err(unreadable)?;
    let before: Status = match part("status") {
        Some(status) => serde_json::from_value(status).map_err(unreadable)?,
        None => Status::default(),
    };
    if before.phase.is_some_and(Phase::is_over) {
        return Ok(None);
    }
    let mut run = Run {
        name,
        spec: &spec,
        status: before.clone(),
        now: whole_seconds(now).to_string(),
    };
    if spec.suspend == Some(true) {
        run.stop_while_paused();
    } else {
        run.advance()?;
    }
    if run.status == before {
        return Ok(None);
    }
    let mut object = object.clone();
    let phase = run.status.phase.unwrap_or(Phase::Running);
    object.labels_mut().extend([
        ("workflows.argoproj.io/phase".to_owned(), format!("{phase:?}")),
        (
            "workflows.argoproj.io/completed".to_owned(),
            phase.is_over().to_string(),
        ),
    ]);
    let status = serde_json::to_value(&run.status).map_err(unreadable)?;
    if let Some(data) = object.data.as_object_mut() {
        data.insert("status".to_owned(), status);
    }
    Ok(Some(object))
}

/// ID of a node: Argo's, the FNV-1a hash of its name.
pub fn node_id(workflow: &str, node: &str) -> String {
    if workflow == node {
        return workflow.to_owned();
    }
    let hash = node.bytes().fold(2_166_136_261_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    format!("{workflow}-{hash}")
}

/// One look of the controller at one Workflow.
struct Run<'a> {
    name: String,
    spec: &'a Spec,
    status: Status,
    now: String,
}

/// A part of the workflow: the DAG of the entrypoint, or that of the exit handler.
struct Part<'a> {
    /// Name of its node.
    node: String,
    template: &'a str,
    /// Whether it is being stopped.
    stops: bool,
    /// What `{{workflow.status}}` is in it.
    outcome: Phase,
}

impl<'a> Run<'a> {
    fn advance(&mut self) -> Result<(), Unsupported> {
        let spec = self.spec;
        self.status.phase.get_or_insert(Phase::Running);
        self.status.started_at.get_or_insert_with(|| self.now.clone());
        let main = self.part(&Part {
            node: self.name.clone(),
            template: &spec.entrypoint,
            stops: spec.shutdown.is_some(),
            outcome: Phase::Running,
        })?;
        if !main.is_over() {
            return Ok(());
        }
        let exit = format!("{}.onExit", self.name);
        let terminated = spec.shutdown == Some(Shutdown::Terminate);
        let mut phase = main;
        let has_begun = self.node(&exit).is_some();
        if let Some(template) = spec.on_exit.as_deref().filter(|_| has_begun || !terminated) {
            let exit = self.part(&Part {
                node: exit,
                template,
                stops: terminated,
                outcome: main,
            })?;
            match exit {
                Phase::Running => return Ok(()),
                // An exit part that fails makes a failure of a success.
                Phase::Failed => phase = Phase::Failed,
                Phase::Succeeded | Phase::Skipped | Phase::Omitted => {}
            }
        }
        self.status.phase = Some(phase);
        self.status.message = spec.shutdown.map(stopped);
        self.status.finished_at = Some(self.now.clone());
        Ok(())
    }

    /// What waits fails at once, but nobody looks at what follows from that.
    fn stop_while_paused(&mut self) {
        let (main, exit) = (self.name.clone(), format!("{}.onExit", self.name));
        if self.spec.shutdown.is_some() {
            self.stop(&main);
        }
        if self.spec.shutdown == Some(Shutdown::Terminate) {
            self.stop(&node_id(&main, &exit));
        }
    }

    /// Brings a part as far as it gets by itself, and says where it is.
    fn part(&mut self, part: &Part<'_>) -> Result<Phase, Unsupported> {
        let dag = self.template(part.template)?.dag.as_ref();
        let dag = dag.ok_or_else(|| self.no_template(part.template))?;
        let id = node_id(&self.name, &part.node);
        if !self.status.nodes.contains_key(&id) {
            let display = part.node.clone();
            self.add(&part.node, display, "DAG", part.template, Phase::Running, None);
        }
        if let Some(over) = self
            .status
            .nodes
            .get(&id)
            .map(|n| n.phase)
            .filter(|p| p.is_over())
        {
            return Ok(over);
        }
        if part.stops {
            self.stop(&id);
        }
        while self.reach(part, dag, &id)? {}
        let phase = self.assess(part, dag, &id);
        if let Some(node) = self.status.nodes.get_mut(&id).filter(|_| phase.is_over()) {
            let last = leaves(dag).into_iter();
            let last = last.map(|task| node_id(&self.name, &format!("{}.{task}", part.node)));
            node.outbound_nodes = last.collect();
            node.phase = phase;
            node.finished_at = Some(self.now.clone());
        }
        Ok(phase)
    }

    /// Makes the nodes of tasks that are reached now; whether there was one.
    fn reach(&mut self, part: &Part<'_>, dag: &Dag, boundary: &str) -> Result<bool, Unsupported> {
        let mut is_new = false;
        for task in &dag.tasks {
            let name = format!("{}.{}", part.node, task.name);
            if self.node(&name).is_some() {
                continue;
            }
            let depends = task.depends.as_deref().unwrap_or_default();
            let before = condition::tasks(depends);
            let phase_of = |task: &&str| Some(self.node(&format!("{}.{task}", part.node))?.phase);
            let ended = before
                .iter()
                .map(|task| Some((*task, phase_of(task).filter(|p| p.is_over())?)));
            let Some(ended) = ended.collect::<Option<BTreeMap<_, _>>>() else {
                continue;
            };
            let is_met = before.is_empty() || condition::is_met(depends, &ended)?;
            self.begin(part, task, boundary, is_met)?;
            let id = node_id(&self.name, &name);
            let parents: Vec<String> = if before.is_empty() {
                vec![boundary.to_owned()]
            } else {
                let of = |task: &&str| node_id(&self.name, &format!("{}.{task}", part.node));
                before.iter().map(of).collect()
            };
            for parent in parents {
                if let Some(node) = self.status.nodes.get_mut(&parent) {
                    node.children.push(id.clone());
                }
            }
            is_new = true;
        }
        Ok(is_new)
    }

    /// Makes the node of a task whose turn it is.
    fn begin(
        &mut self,
        part: &Part<'_>,
        task: &Task,
        boundary: &str,
        is_met: bool,
    ) -> Result<(), Unsupported> {
        let name = format!("{}.{}", part.node, task.name);
        let add = |run: &mut Self, type_, phase, message| {
            run.add(&name, task.name.clone(), type_, &task.template, phase, message);
        };
        let when = match &task.when {
            Some(text) => Some(condition::when(text, &format!("{:?}", part.outcome))?),
            None => None,
        };
        match when {
            _ if !is_met => {
                let message = "omitted: depends condition not met".to_owned();
                add(self, "Skipped", Phase::Omitted, Some(message));
            }
            Some((text, false)) => {
                let message = format!("when '{text}' evaluated false");
                add(self, "Skipped", Phase::Skipped, Some(message));
            }
            Some((_, true)) | None => {
                let template = self.template(&task.template)?;
                let (inputs, outputs) = (template.inputs.clone(), template.outputs.clone());
                add(self, "Suspend", Phase::Running, None);
                if let Some(node) = self.status.nodes.get_mut(&node_id(&self.name, &name)) {
                    (node.inputs, node.outputs) = (inputs, outputs);
                }
            }
        }
        if let Some(node) = self.status.nodes.get_mut(&node_id(&self.name, &name)) {
            node.boundary = Some(boundary.to_owned());
        }
        if part.stops {
            self.stop(boundary);
        }
        Ok(())
    }

    /// Fails what waits.
    fn stop(&mut self, boundary: &str) {
        let message = self.spec.shutdown.map(stopped);
        let all = self.status.nodes.values_mut();
        for node in all.filter(|n| n.phase == Phase::Running && n.boundary.as_deref() == Some(boundary)) {
            node.phase = Phase::Failed;
            node.message.clone_from(&message);
            node.finished_at = Some(self.now.clone());
        }
    }

    /// A DAG fails if one of its last tasks did, or was not run because of a failure before it.
    fn assess(&self, part: &Part<'_>, dag: &Dag, id: &str) -> Phase {
        let node_of = |task: &Task| self.node(&format!("{}.{}", part.node, task.name));
        if !dag
            .tasks
            .iter()
            .all(|task| node_of(task).is_some_and(|n| n.phase.is_over()))
        {
            return Phase::Running;
        }
        let last: BTreeSet<String> = leaves(dag)
            .iter()
            .map(|task| node_id(&self.name, &format!("{}.{task}", part.node)))
            .collect();
        let children = |id: &str| {
            self.status
                .nodes
                .get(id)
                .map(|n| n.children.clone())
                .unwrap_or_default()
        };
        let mut queue: VecDeque<(String, Phase)> =
            children(id).into_iter().map(|c| (c, Phase::Succeeded)).collect();
        let mut seen = BTreeSet::new();
        while let Some((id, before)) = queue.pop_front() {
            if !seen.insert((id.clone(), before)) {
                continue;
            }
            let phase = match self.status.nodes.get(&id).map(|n| n.phase) {
                Some(own @ (Phase::Succeeded | Phase::Failed)) => own,
                Some(Phase::Skipped | Phase::Omitted | Phase::Running) | None => before,
            };
            if phase == Phase::Failed && last.contains(&id) {
                return Phase::Failed;
            }
            queue.extend(children(&id).into_iter().map(|child| (child, phase)));
        }
        Phase::Succeeded
    }

    fn node(&self, name: &str) -> Option<&Node> {
        self.status.nodes.get(&node_id(&self.name, name))
    }

    fn template(&self, name: &str) -> Result<&'a Template, Unsupported> {
        let spec: &'a Spec = self.spec;
        let mut all = spec.templates.iter();
        all.find(|t| t.name == name).ok_or_else(|| self.no_template(name))
    }

    fn no_template(&self, template: &str) -> Unsupported {
        Unsupported::Template {
            name: self.name.clone(),
            template: template.to_owned(),
        }
    }

    fn add(
        &mut self,
        name: &str,
        display_name: String,
        type_: &str,
        template: &str,
        phase: Phase,
        message: Option<String>,
    ) {
        let id = node_id(&self.name, name);
        let node = Node {
            id: id.clone(),
            name: name.to_owned(),
            display_name,
            type_: type_.to_owned(),
            template_name: template.to_owned(),
            phase,
            boundary: None,
            message,
            started_at: self.now.clone(),
            finished_at: phase.is_over().then(|| self.now.clone()),
            children: Vec::new(),
            outbound_nodes: Vec::new(),
            inputs: None,
            outputs: None,
        };
        self.status.nodes.insert(id, node);
    }
}

fn stopped(shutdown: Shutdown) -> String {
    format!("Stopped with strategy '{shutdown:?}'")
}

/// The tasks that no other one waits for.
fn leaves(dag: &Dag) -> Vec<&str> {
    let before: BTreeSet<&str> = dag
        .tasks
        .iter()
        .filter_map(|t| t.depends.as_deref())
        .flat_map(condition::tasks)
        .collect();
    dag.tasks
        .iter()
        .map(|t| t.name.as_str())
        .filter(|name| !before.contains(name))
        .collect()
}
