//! NodeForceDrain: notes drains, and deletes the pods that are due, each by its UID and resourceVersion.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, Node, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};

use super::{
    Context,
    calls::{CallError, call, found},
    effects, events,
};
use crate::{
    api::{NodeForceDrain, label_selector::label_selector_matches},
    force_drain::{Deletion, DueNode, Stage, choose, jq::Question, survey},
    lifecycle::Notice,
    metrics::{Family, Series, Type},
    openshift::node::NodeView,
};

/// Most pods of a node that are read.
const MAX_PODS: u32 = 500;
/// Most pods that are deleted from a node at a time; the others follow at the next look.
const MAX_DELETIONS: usize = 50;

/// What was done since the process started: NodeForceDrain, node and namespace → how often.
#[derive(Clone, Default)]
pub struct Counts(Arc<Mutex<Totals>>);

type Totals = BTreeMap<(Stage, [String; 3]), f64>;

/// What is remembered from pass to pass.
#[derive(Default)]
pub struct Memory {
    /// By UID of the NodeForceDrain: the expression that was tried, and why it is none.
    programs: BTreeMap<String, (String, Option<String>)>,
    /// Texts that were told, by UID, so that they are told once.
    told: BTreeMap<String, BTreeSet<String>>,
}

impl Counts {
    /// One more.
    pub(super) fn add(&self, stage: Stage, labels: [String; 3]) {
        *self.lock().entry((stage, labels)).or_default() += 1.0;
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As metrics: the peer's names and labels, but for those of single pods, of which there is no end.
    pub fn metrics(&self) -> Vec<Family> {
        let counts = self.lock();
        let of = |wanted: Stage| -> Vec<Series> {
            let mine = counts.iter().filter(|((stage, _), _)| *stage == wanted);
            mine.map(|((_, [force_drain, node, namespace]), count)| {
                let labels = vec![
                    ("node_force_drain", force_drain.clone()),
                    ("node", node.clone()),
                    ("namespace", namespace.clone()),
                ];
                Series::new(labels, *count)
            })
            .collect()
        };
        vec![
            Family {
                name: "openshift_upgrade_controller_node_force_drain_pod_deletions",
                help: "Pods that were deleted from nodes that drain for too long; none in a dry run.",
                type_: Type::Counter,
                series: of(Stage::Delete),
            },
            Family {
                name: "openshift_upgrade_controller_node_force_drain_pod_terminations",
                help: "Pods that were deleted again with a grace of 1 second; none in a dry run.",
                type_: Type::Counter,
                series: of(Stage::Terminate),
            },
        ]
    }
}

/// One pass over one NodeForceDrain; returns when to look again.
pub async fn reconcile(
    ctx: &Context,
    memory: &mut Memory,
    nodes: &[NodeView],
    fd: &NodeForceDrain,
) -> Result<Option<Timestamp>, CallError> {
    let bad_jq = memory.bad_program(ctx, fd).await;
    let survey = survey(fd, nodes, bad_jq.as_deref(), ctx.now());
    if fd.status.as_ref() != Some(&survey.status) {
        // The record first: it says since when the node drains. Its watch brings us back.
        let api: Api<NodeForceDrain> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
        effects::replace_status(&api, fd, &survey.status).await?;
        if let Some(problem) = bad_jq.or_else(|| invalid(&survey.status.conditions)) {
            memory.tell(ctx, fd, "Invalid", problem).await;
        }
        return Ok(survey.wake_at);
    }
    let mut wake = survey.wake_at;
    for node in &survey.due {
        let next = drain(ctx, memory, fd, node).await?;
        wake = wake.into_iter().chain(next).min();
    }
    if nodes.iter().all(|n| n.drain.is_none()) {
        memory.told.remove(&uid(fd));
    }
    Ok(wake)
}

fn uid(fd: &NodeForceDrain) -> String {
    fd.uid().unwrap_or_default()
}

fn invalid(all: &[Condition]) -> Option<String> {
    let invalid = all.iter().find(|c| c.type_ == "Valid" && c.status == "False");
    invalid.map(|c| c.message.clone())
}

impl Memory {
    /// Why the jq expression is none; tried once.
    async fn bad_program(&mut self, ctx: &Context, fd: &NodeForceDrain) -> Option<String> {
        let program = &fd.spec.pod_jq_selector;
        if program.is_empty() {
            return None;
        }
        if let Some((known, problem)) = self.programs.get(&uid(fd))
            && known == program
        {
            return problem.clone();
        }
        let question = Question {
            program: program.clone(),
            pods: Vec::new(),
        };
        let problem = ctx.settings.pod_selector.ask(&question).await.err();
        self.programs.insert(uid(fd), (program.clone(), problem.clone()));
        problem
    }

    fn is_new(&mut self, fd: &NodeForceDrain, text: &str) -> bool {
        self.told.entry(uid(fd)).or_default().insert(text.to_owned())
    }

    /// Says something about the NodeForceDrain itself, once.
    async fn tell(&mut self, ctx: &Context, fd: &NodeForceDrain, reason: &str, note: String) {
        if self.is_new(fd, &note) {
            tracing::warn!(node_force_drain = fd.name_any(), reason, "{note}");
            let notice = [notice(reason, note)];
            events::publish(&ctx.client, fd, &notice, ctx.now()).await;
        }
    }
}

fn notice(reason: &str, note: String) -> Notice {
    Notice {
        warning: true,
        reason: reason.to_owned(),
        note,
    }
}

/// Deletes what is due on a node, if the node and the NodeForceDrain are still as they were decided on.
async fn drain(
    ctx: &Context,
    memory: &mut Memory,
    fd: &NodeForceDrain,
    due: &DueNode,
) -> Result<Option<Timestamp>, CallError> {
    let node = &due.name;
    let of_node = ListParams::default()
        .limit(MAX_PODS)
        .fields(&format!("spec.nodeName={node}"));
    let api: Api<Pod> = Api::all(ctx.client.clone());
    let pods = call(format!("list the pods of node {node}"), api.list(&of_node)).await?;
    let pods: Vec<&Pod> = pods.items.iter().collect();
    let (deletions, wake) = choose(fd, &pods, ctx.now());
    // Whether they are meant costs more: it is asked only about those.
    let is_due = |p: &&&Pod| deletions.iter().any(|d| p.metadata.uid.as_ref() == Some(&d.uid));
    let candidates: Vec<&Pod> = pods.iter().filter(is_due).copied().collect();
    let meant = meant(ctx, memory, fd, node, candidates).await?;
    let mut deletions: Vec<Deletion> = deletions.into_iter().filter(|d| meant.contains(&d.uid)).collect();
    deletions.truncate(MAX_DELETIONS);
    if deletions.is_empty() || !is_still_due(ctx, fd, due).await? {
        return Ok(wake);
    }
    let mut failed = None;
    for deletion in &deletions {
        // One pod that cannot be deleted keeps no other.
        if let Err(error) = delete(ctx, memory, fd, node, deletion).await {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(wake), Err)
}

/// Read live: copies may be minutes old, and pods are not deleted because of an old copy.
async fn is_still_due(ctx: &Context, fd: &NodeForceDrain, due: &DueNode) -> Result<bool, CallError> {
    let nodes: Api<Node> = Api::all(ctx.client.clone());
    let node = found(format!("read node {}", due.name), nodes.get(&due.name)).await?;
    let is_drained = node.is_some_and(|node| {
        NodeView::from(&node)
            .drain
            .is_some_and(|drain| drain.wanted == due.wanted)
    });
    if !is_drained {
        return Ok(false);
    }
    let all: Api<NodeForceDrain> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    let name = fd.name_any();
    let stored = found(format!("read NodeForceDrain {name}"), all.get(&name)).await?;
    Ok(stored
        .is_some_and(|s| s.metadata.deletion_timestamp.is_none() && s.spec == fd.spec && s.uid() == fd.uid()))
}

/// Those in namespaces that are meant.
async fn in_namespaces<'a>(
    ctx: &Context,
    fd: &NodeForceDrain,
    mut pods: Vec<&'a Pod>,
) -> Result<Vec<&'a Pod>, CallError> {
    let selector = &fd.spec.namespace_selector;
    if *selector == LabelSelector::default() {
        return Ok(pods);
    }
    let names: BTreeSet<String> = pods.iter().filter_map(|p| p.namespace()).collect();
    let mut meant = BTreeSet::new();
    let api: Api<Namespace> = Api::all(ctx.client.clone());
    for name in names {
        let namespace = found(format!("read namespace {name}"), api.get(&name)).await?;
        if namespace.is_some_and(|n| label_selector_matches(selector, n.labels())) {
            meant.insert(name);
        }
    }
    pods.retain(|p| p.namespace().is_some_and(|n| meant.contains(&n)));
    Ok(pods)
}

/// UIDs of the pods that the selectors mean.
async fn meant(
    ctx: &Context,
    memory: &mut Memory,
    fd: &NodeForceDrain,
    node: &str,
    pods: Vec<&Pod>,
) -> Result<BTreeSet<String>, CallError> {
    let pods = in_namespaces(ctx, fd, pods).await?;
    let program = &fd.spec.pod_jq_selector;
    let uids = |pods: &[&Pod]| pods.iter().filter_map(|p| p.uid()).collect();
    if program.is_empty() || pods.is_empty() {
        return Ok(uids(&pods));
    }
    let question = Question {
        program: program.clone(),
        pods: pods.iter().filter_map(|p| serde_json::to_value(p).ok()).collect(),
    };
    let answers = match ctx.settings.pod_selector.ask(&question).await {
        Ok(answers) => answers,
        Err(problem) => {
            let text = format!("no pod of node {node} is deleted: {problem}");
            memory.tell(ctx, fd, "SelectorFailed", text).await;
            return Ok(BTreeSet::new());
        }
    };
    let mut selected = Vec::new();
    for (pod, answer) in pods.into_iter().zip(answers) {
        match answer {
            Ok(true) => selected.push(pod),
            Ok(false) => {}
            Err(problem) => {
                let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
                let text =
                    format!("pod {namespace}/{name} is not deleted: podJQSelector fails for it: {problem}");
                memory.tell(ctx, fd, "SelectorFailed", text).await;
            }
        }
    }
    Ok(uids(&selected))
}

async fn delete(
    ctx: &Context,
    memory: &mut Memory,
    fd: &NodeForceDrain,
    node: &str,
    deletion: &Deletion,
) -> Result<(), CallError> {
    let Deletion {
        namespace,
        name,
        uid,
        revision,
        stage,
    } = deletion;
    let (reason, what, grace) = match stage {
        Stage::Delete => ("NodeDrainDeletePod", "deleted past its budgets", None),
        Stage::Terminate => (
            "NodeDrainForcingPodTermination",
            "deleted again with a grace of 1 s",
            Some(1),
        ),
    };
    let by = fd.name_any();
    if fd.spec.dry_run {
        let text = format!(
            "node {node} drains for too long: pod {namespace}/{name} would be {what} (NodeForceDrain {by}, dryRun)"
        );
        if memory.is_new(fd, &format!("{text} {uid}")) {
            tell_node(ctx, node, &notice(&format!("{reason}DryRun"), text)).await;
        }
        return Ok(());
    }
    let params = DeleteParams {
        grace_period_seconds: grace,
        preconditions: Some(Preconditions {
            uid: Some(uid.clone()),
            resource_version: Some(revision.clone()),
        }),
        ..DeleteParams::default()
    };
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), namespace);
    match call(
        format!("delete pod {namespace}/{name}"),
        api.delete(name, &params),
    )
    .await
    {
        Ok(_) => {}
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error),
    }
    ctx.stores
        .forced
        .add(*stage, [by.clone(), node.to_owned(), namespace.clone()]);
    let text =
        format!("node {node} drains for too long: pod {namespace}/{name} is {what} (NodeForceDrain {by})");
    tell_node(ctx, node, &notice(reason, text)).await;
    Ok(())
}

/// On the node, as by the peer.
async fn tell_node(ctx: &Context, node: &str, notice: &Notice) {
    tracing::warn!(node, verdict = notice.reason, "{}", notice.note);
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        ..ObjectReference::default()
    };
    events::publish_on(&ctx.client, &about, std::slice::from_ref(notice), ctx.now()).await;
}
