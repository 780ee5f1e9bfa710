//! The cluster as it is before anybody upgrades it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace, Node, NodeSpec, Taint},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    CONFIG_NAMESPACE, Cluster, FAKE_TAINT, MACHINE_CONFIG, SIMULATED,
    cluster_operators::ORDER,
    conditions, faults, kubelet, machine_config_operator, releases,
    write::{self, Write},
};
use crate::{
    api::names,
    openshift::{
        cluster_operator::{ClusterOperator, ClusterOperatorSpec, ClusterOperatorStatus, OperandVersion},
        cluster_version::{self, ClusterVersion, ClusterVersionSpec, ClusterVersionStatus, History},
        infrastructure::{self, Infrastructure, InfrastructureSpec, InfrastructureStatus},
        machine_config_pool::{MachineConfigPool, MachineConfigPoolSpec, REQUIRED_FOR_UPGRADE},
    },
};

/// Namespace of the workload that is drained.
pub const WORKLOAD: &str = "simulated-workload";

/// What the initial cluster consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct Initial {
    /// The installed release.
    pub from_version: String,
    /// The update channel; default: the stable one of the release's minor.
    pub channel: Option<String>,
    /// The data of the ConfigMap that switches faults and offers, see [`faults`].
    pub controls: BTreeMap<String, String>,
    /// The pools.
    pub pools: Vec<Pool>,
    /// The ClusterOperators.
    pub operators: Vec<String>,
    /// `controlPlaneTopology` of the Infrastructure; `None` = its kind is not served.
    pub topology: Option<String>,
}

/// A pool and its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// How many nodes.
    pub machines: u32,
    /// How many of them may be away.
    pub max_unavailable: Option<IntOrString>,
    /// Labels of the pool, besides the usual ones.
    pub labels: BTreeMap<String, String>,
    /// Labels of its nodes, besides the usual ones.
    pub node_labels: BTreeMap<String, String>,
    /// Whether somebody has paused it.
    pub paused: bool,
}

impl Pool {
    /// A pool with this many nodes.
    pub fn of(name: &str, machines: u32) -> Self {
        Self {
            name: name.to_owned(),
            machines,
            ..Self::default()
        }
    }
}

/// The usual ClusterOperators.
pub fn operators() -> Vec<String> {
    let names = ORDER.iter().chain([&MACHINE_CONFIG]);
    names.map(|name| (*name).to_owned()).collect()
}

/// What is missing of the initial cluster. Nothing that exists is changed, but for a status that is not there yet.
pub fn ensure(cluster: &Cluster, initial: &Initial, now: Timestamp) -> Vec<Write> {
    let mut writes = Vec::new();
    if cluster.controls.is_none() {
        writes.extend(write::create(&namespace(faults::NAMESPACE)));
        writes.extend(write::create(&controls(&initial.controls)));
        if initial.controls.contains_key("admin-gates") {
            writes.extend(write::create(&namespace(CONFIG_NAMESPACE)));
        }
    }
    match &cluster.cluster_version {
        None => writes.extend(write::create(&cluster_version(initial))),
        Some(old) if old.status.is_none() => {
            let status = Some(cluster_version_status(initial, now));
            writes.extend(write::update(
                old,
                &ClusterVersion {
                    status,
                    ..old.clone()
                },
            ));
        }
        Some(_) => {}
    }
    for name in &initial.operators {
        writes.extend(operator(cluster, initial, name));
    }
    let existing = cluster.nodes.iter().filter_map(|n| n.metadata.name.as_deref());
    let existing: BTreeSet<&str> = existing.collect();
    for pool in &initial.pools {
        if !cluster.pools.iter().any(|p| p.name_any() == pool.name) {
            writes.extend(write::create(&machine_config_pool(pool)));
        }
        for number in 0..pool.machines {
            let name = format!("{}-{number}", pool.name);
            if !existing.contains(name.as_str()) {
                writes.extend(write::create(&node(pool, &name)));
            }
        }
    }
    if let Some(topology) = &initial.topology {
        writes.extend(infrastructure(cluster, topology));
    }
    writes
}

/// Whether the initial cluster is there, with every status written.
pub fn is_ready(cluster: &Cluster, initial: &Initial, now: Timestamp) -> bool {
    ensure(cluster, initial, now).is_empty() && machine_config_operator::is_settled(cluster)
}

fn namespace(name: &str) -> Namespace {
    Namespace {
        metadata: meta(name),
        ..Namespace::default()
    }
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(BTreeMap::from([(SIMULATED.to_owned(), "true".to_owned())])),
        ..ObjectMeta::default()
    }
}

fn controls(data: &BTreeMap<String, String>) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some(faults::NAMESPACE.to_owned()),
            ..meta(faults::NAME)
        },
        data: Some(data.clone()),
        ..ConfigMap::default()
    }
}

fn cluster_version(initial: &Initial) -> ClusterVersion {
    let usual = releases::release(&initial.from_version).channels;
    let stable = usual.and_then(|all| all.into_iter().find(|c| c.starts_with("stable-")));
    let channel = initial.channel.clone().or(stable);
    let spec = ClusterVersionSpec {
        cluster_id: "5f0c5a6e-5e1d-4c0e-9a51-51a7ed0c1057".to_owned(),
        channel,
        ..ClusterVersionSpec::default()
    };
    ClusterVersion {
        metadata: meta(cluster_version::NAME),
        spec,
        status: None,
    }
}

fn cluster_version_status(initial: &Initial, now: Timestamp) -> ClusterVersionStatus {
    let desired = releases::release(&initial.from_version);
    // The rest, conditions and updates, is what the cluster-version operator makes of it.
    ClusterVersionStatus {
        version_hash: names::hash(&initial.from_version, 10),
        history: vec![History {
            state: "Completed".to_owned(),
            started_time: conditions::time(now),
            completion_time: Some(conditions::time(now)),
            version: desired.version.clone(),
            image: desired.image.clone(),
            verified: false,
        }],
        desired,
        ..ClusterVersionStatus::default()
    }
}

fn operator(cluster: &Cluster, initial: &Initial, name: &str) -> Option<Write> {
    let Some(old) = cluster.operators.iter().find(|o| o.name_any() == name) else {
        return write::create(&ClusterOperator {
            metadata: meta(name),
            spec: ClusterOperatorSpec {},
            status: None,
        });
    };
    let mut new = old.clone();
    let status: &mut ClusterOperatorStatus = new.status.get_or_insert_default();
    if status.versions.is_empty() {
        status.versions.push(OperandVersion {
            name: "operator".to_owned(),
            version: initial.from_version.clone(),
        });
    }
    write::update(old, &new)
}

fn machine_config_pool(pool: &Pool) -> MachineConfigPool {
    let name = pool.name.as_str();
    let mut metadata = meta(name);
    let labels = metadata.labels.get_or_insert_default();
    let is_built_in = matches!(name, "master" | "worker");
    let own_label = format!("pools.operator.machineconfiguration.openshift.io/{name}");
    labels.insert(own_label, String::new());
    if is_built_in {
        labels.insert(
            "machineconfiguration.openshift.io/mco-built-in".to_owned(),
            String::new(),
        );
    } else {
        labels.insert("name".to_owned(), format!("{name}-maintenance"));
    }
    if name == "master" {
        labels.insert(REQUIRED_FOR_UPGRADE.to_owned(), String::new());
    }
    labels.extend(pool.labels.clone());
    let roles = if is_built_in {
        json!({"matchLabels": {"machineconfiguration.openshift.io/role": name}})
    } else {
        json!({"matchExpressions": [{
            "key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", name],
        }]})
    };
    let spec = MachineConfigPoolSpec {
        node_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(role(name), String::new())])),
            match_expressions: None,
        }),
        paused: pool.paused,
        max_unavailable: pool.max_unavailable.clone(),
        other: [("machineConfigSelector".to_owned(), roles)]
            .into_iter()
            .collect(),
        ..MachineConfigPoolSpec::default()
    };
    MachineConfigPool {
        metadata,
        spec,
        status: None,
    }
}

fn role(name: &str) -> String {
    format!("node-role.kubernetes.io/{name}")
}

fn node(pool: &Pool, name: &str) -> Node {
    let mut metadata = meta(name);
    let labels = metadata.labels.get_or_insert_default();
    labels.extend(pool.node_labels.clone());
    let pool = pool.name.as_str();
    labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    labels.insert(role(pool), String::new());
    if pool != "master" {
        // Nodes of a custom pool are workers too.
        labels.insert(role("worker"), String::new());
    }
    let taint = Taint {
        key: FAKE_TAINT.to_owned(),
        value: Some("true".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    Node {
        metadata,
        spec: Some(NodeSpec {
            taints: Some(vec![taint]),
            ..NodeSpec::default()
        }),
        status: None,
    }
}

fn infrastructure(cluster: &Cluster, topology: &str) -> Option<Write> {
    let Some(old) = &cluster.infrastructure else {
        return write::create(&Infrastructure {
            metadata: meta(infrastructure::NAME),
            spec: InfrastructureSpec {},
            status: None,
        });
    };
    if old.status.is_some() {
        return None;
    }
    let status = InfrastructureStatus {
        control_plane_topology: topology.to_owned(),
    };
    write::update(
        old,
        &Infrastructure {
            status: Some(status),
            ..old.clone()
        },
    )
}

/// A workload on the fake nodes of every pool but master: two pods a pool, one of which may be away.
///
/// A Deployment, so that a real controller-manager replaces what is evicted; [`kubelet`] binds and runs the pods.
pub fn workload(initial: &Initial) -> Vec<Write> {
    let pools = initial.pools.iter().map(|pool| pool.name.as_str());
    let objects = pools.filter(|pool| *pool != "master").flat_map(|pool| {
        let name = format!("web-{pool}");
        let deployment: Option<Deployment> = serde_json::from_value(deployment(&name, pool)).ok();
        let budget = json!({
            "metadata": {"name": name, "namespace": WORKLOAD},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}},
        });
        let budget: Option<PodDisruptionBudget> = serde_json::from_value(budget).ok();
        let deployment = deployment.as_ref().and_then(write::create);
        [deployment, budget.as_ref().and_then(write::create)]
    });
    let namespace = write::create(&namespace(WORKLOAD));
    std::iter::once(namespace).chain(objects).flatten().collect()
}

fn deployment(name: &str, pool: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": WORKLOAD},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "schedulerName": kubelet::SCHEDULER,
                    "automountServiceAccountToken": false,
                    "nodeSelector": {role(pool): ""},
                    "tolerations": [{"key": FAKE_TAINT, "operator": "Exists"}],
                    "containers": [{"name": "web", "image": "localhost/simulated:1"}],
                },
            },
        },
    })
}
