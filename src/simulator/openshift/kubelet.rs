//! The kubelets of the fake nodes, and a scheduler for the workload on them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStatus, Node, Pod, PodCondition,
};
use kube::ResourceExt;

use super::{
    Cluster, Context, SIMULATED, Step, conditions,
    node_update::{is_available, is_ready},
    write::{PodRef, Write},
};

/// `spec.schedulerName` of the pods that are bound to fake nodes: no real scheduler touches them.
pub const SCHEDULER: &str = "simulated-scheduler";

/// Annotation of pods whose containers do not obey: they run until their grace period is over.
pub const IGNORES_SIGTERM: &str = "simulated.openshift.io/ignores-sigterm";

/// Runs, ends and binds pods.
pub(super) fn sync(context: Context<'_>, step: &mut Step) {
    let ready = context.cluster.nodes.iter().filter(|n| is_ready(n));
    let ready: BTreeSet<&str> = ready.filter_map(|n| n.metadata.name.as_deref()).collect();
    let mut load = Load::of(context.cluster);
    for pod in &context.cluster.pods {
        match node_name(pod) {
            None => bind(context, pod, &mut load, step),
            Some(name) if ready.contains(name) => run(context, pod, step),
            Some(_) => {}
        }
    }
}

/// How many pods are on each node, with those that are bound in this step.
struct Load<'a>(BTreeMap<&'a str, usize>);

impl<'a> Load<'a> {
    fn of(cluster: &'a Cluster) -> Self {
        let mut load = Self(BTreeMap::new());
        cluster
            .pods
            .iter()
            .filter_map(node_name)
            .for_each(|n| load.add(n));
        load
    }

    fn add(&mut self, node: &'a str) {
        *self.0.entry(node).or_default() += 1;
    }

    fn on(&self, node: &Node) -> usize {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.0.get(name).copied().unwrap_or(0)
    }
}

fn node_name(pod: &Pod) -> Option<&str> {
    let name = pod.spec.as_ref()?.node_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

fn run(context: Context<'_>, pod: &Pod, step: &mut Step) {
    if let Some(end) = &pod.metadata.deletion_timestamp {
        // The API server wrote "when the grace period ends"; a container that obeys ends sooner.
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
        let asked = end.0.checked_sub(grace).unwrap_or(end.0);
        let patience = if pod.annotations().contains_key(IGNORES_SIGTERM) {
            grace
        } else {
            grace.min(context.settings.pod_stop)
        };
        if step.has_passed(asked, patience, context.now) {
            step.writes.extend(PodRef::of(pod).map(Write::FinishDeletion));
        }
        return;
    }
    let phase = pod
        .status
        .as_ref()
        .and_then(|s| s.phase.as_deref())
        .unwrap_or("Pending");
    if phase == "Pending" {
        let new = running(context, pod);
        step.update(pod, &new);
    }
}

fn running(context: Context<'_>, pod: &Pod) -> Pod {
    let mut new = pod.clone();
    let now = conditions::time(context.now);
    let condition = |type_: &str| PodCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(now.clone()),
        ..PodCondition::default()
    };
    let containers = pod
        .spec
        .as_ref()
        .map(|s| s.containers.as_slice())
        .unwrap_or_default();
    let statuses = containers.iter().map(|c| ContainerStatus {
        name: c.name.clone(),
        image: c.image.clone().unwrap_or_default(),
        ready: true,
        started: Some(true),
        state: Some(ContainerState {
            running: Some(ContainerStateRunning {
                started_at: Some(now.clone()),
            }),
            ..ContainerState::default()
        }),
        ..ContainerStatus::default()
    });
    let statuses = statuses.collect();
    let status = new.status.get_or_insert_default();
    status.phase = Some("Running".to_owned());
    status.start_time = Some(now.clone());
    status.container_statuses = Some(statuses);
    let types = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    status.conditions = Some(types.map(condition).into());
    new
}

/// Binds a pod of the simulated scheduler to the emptiest fake node that it selects.
fn bind<'a>(context: Context<'a>, pod: &Pod, load: &mut Load<'a>, step: &mut Step) {
    let Some(spec) = &pod.spec else { return };
    if spec.scheduler_name.as_deref() != Some(SCHEDULER) || pod.metadata.deletion_timestamp.is_some() {
        return;
    }
    let selector = spec.node_selector.iter().flatten();
    let selected: Vec<_> = selector.collect();
    let fits = |n: &&Node| {
        n.labels().contains_key(SIMULATED)
            && is_available(n)
            && selected.iter().all(|(k, v)| n.labels().get(*k) == Some(v))
    };
    let node = context
        .cluster
        .nodes
        .iter()
        .filter(fits)
        .min_by_key(|n| load.on(n));
    if let (Some(node), Some(pod)) = (node, PodRef::of(pod)) {
        load.add(node.metadata.name.as_deref().unwrap_or_default());
        step.writes.push(Write::Bind(pod, node.name_any()));
    }
}
