//! An API of a few lines, and a clock that jumps from one wake-up to the next.

use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::super::{
    initial::{self, Initial},
    *,
};
use crate::{
    openshift::cluster_version::Update,
    simulator::scenario::{Scenario, Timeline},
};

/// A cluster, its clock, and the writes that were made.
pub(super) struct Fake {
    pub(super) cluster: Cluster,
    pub(super) settings: Settings,
    pub(super) now: Timestamp,
    revision: u64,
    pub(super) evictions: Vec<String>,
    /// Most nodes of a pool that were away at a time: pool → count.
    pub(super) away: std::collections::BTreeMap<String, usize>,
}

impl Fake {
    /// A ready cluster with pods on two nodes.
    pub(super) fn ready() -> Self {
        let settings = Settings {
            heartbeat: None,
            ..Settings::default()
        };
        let initial = Initial {
            from_version: "4.18.3".to_owned(),
            channel: None,
            controls: [("offers".to_owned(), "4.18.4,4.18.5".to_owned())].into(),
            pools: [("master", 3), ("worker", 3), ("x-app-night", 2)]
                .map(|(pool, n)| initial::Pool::of(pool, n))
                .into(),
            operators: initial::operators(),
            topology: Some("HighlyAvailable".to_owned()),
        };
        Self::of(&initial, settings)
    }

    /// The cluster of a scenario, which begins at 21:00, with its durations.
    pub(super) fn of_scenario(scenario: &str, seed: u64) -> Self {
        let scenario = Scenario::parse(std::path::Path::new("s.yaml"), scenario).unwrap();
        let start = Timestamp::from_str("2026-11-24T21:00:00Z").unwrap();
        let timeline = Timeline::new(
            scenario,
            start,
            later(start, SignedDuration::from_hours(24)),
            seed,
        )
        .unwrap();
        Self::of(&timeline.initial(true), timeline.settings())
    }

    /// A ready cluster.
    fn of(initial: &Initial, settings: Settings) -> Self {
        let mut fake = Self {
            cluster: Cluster::default(),
            settings,
            now: Timestamp::from_str("2026-11-24T21:00:00.25Z").unwrap(),
            revision: 0,
            evictions: Vec::new(),
            away: std::collections::BTreeMap::new(),
        };
        for _ in 0..20 {
            let missing = initial::ensure(&fake.cluster, initial, fake.now);
            for write in missing {
                fake.apply(write);
            }
            fake.settle();
        }
        assert!(initial::is_ready(&fake.cluster, initial, fake.now));
        fake
    }

    /// Applies writes until there are none left at this instant; returns when to go on.
    pub(super) fn settle(&mut self) -> Option<Timestamp> {
        for _ in 0..50 {
            let step = next(&self.cluster, self.now, &self.settings);
            assert_eq!(step.problems, Vec::<String>::new());
            if step.writes.is_empty() {
                return step.wake_at;
            }
            for write in step.writes {
                self.apply(write);
            }
            self.count_away();
        }
        panic!("the simulator writes for ever at one instant");
    }

    /// Lets time pass from wake-up to wake-up until `done`, at most for `limit`.
    pub(super) fn until(&mut self, limit: &str, done: impl Fn(&Cluster) -> bool) {
        let limit: SignedDuration = limit.parse().unwrap();
        let end = later(self.now, limit);
        loop {
            let wake = self.settle();
            if done(&self.cluster) {
                return;
            }
            let wake = wake.unwrap_or_else(|| panic!("nothing more happens: {}", self.progressing()));
            assert!(wake > self.now, "woken for something that is due already");
            assert!(wake <= end, "not done within {limit:?}: {}", self.progressing());
            self.now = wake;
        }
    }

    /// Lets time pass, whatever happens.
    pub(super) fn pass(&mut self, duration: &str) {
        let end = later(self.now, duration.parse().unwrap());
        while let Some(wake) = self.settle().filter(|w| *w <= end) {
            self.now = wake;
        }
        self.now = end;
        self.settle();
    }

    pub(super) fn apply(&mut self, write: Write) {
        self.revision += 1;
        match write {
            Write::Create(_, object) => {
                let mut value = serde_json::to_value(*object).unwrap();
                value["metadata"]["generation"] = json!(1);
                value["metadata"]["resourceVersion"] = json!(self.revision.to_string());
                self.insert(value);
            }
            Write::Patch {
                target,
                status,
                patch,
            } => {
                let (c, name, revision) = (&mut self.cluster, target.name.as_str(), self.revision);
                let p = |all: &mut Vec<_>| patch_one(all, name, status, &patch, revision);
                match target.resource.kind.as_str() {
                    "ClusterVersion" => patch_option(&mut c.cluster_version, status, &patch, revision),
                    "Infrastructure" => patch_option(&mut c.infrastructure, status, &patch, revision),
                    "ClusterOperator" => p(&mut c.operators),
                    "MachineConfigPool" => patch_one(&mut c.pools, name, status, &patch, revision),
                    "Node" => patch_one(&mut c.nodes, name, status, &patch, revision),
                    "Pod" => patch_one(&mut c.pods, name, status, &patch, revision),
                    other => panic!("unexpected patch of {other}"),
                }
            }
            Write::Evict(pod) => {
                let (now, grace) = (self.now, 30);
                let found = self
                    .cluster
                    .pods
                    .iter_mut()
                    .find(|p| p.name_any() == pod.name)
                    .unwrap();
                let end = later(now, SignedDuration::from_secs(grace));
                found.metadata.deletion_timestamp = Some(conditions::time(end));
                found.metadata.deletion_grace_period_seconds = Some(grace);
                self.evictions.push(pod.name);
            }
            Write::FinishDeletion(pod) => self.cluster.pods.retain(|p| p.name_any() != pod.name),
            Write::Bind(pod, node) => {
                let found = self
                    .cluster
                    .pods
                    .iter_mut()
                    .find(|p| p.name_any() == pod.name)
                    .unwrap();
                found.spec.get_or_insert_default().node_name = Some(node);
            }
        }
    }

    fn insert(&mut self, value: Value) {
        fn add<K: DeserializeOwned + ResourceExt>(all: &mut Vec<K>, value: Value) {
            let object: K = serde_json::from_value(value).unwrap();
            assert!(
                all.iter().all(|o| o.name_any() != object.name_any()),
                "created twice"
            );
            all.push(object);
            all.sort_by_key(ResourceExt::name_any);
        }
        let c = &mut self.cluster;
        match value["kind"].as_str().unwrap() {
            "ClusterVersion" => c.cluster_version = serde_json::from_value(value).unwrap(),
            "Infrastructure" => c.infrastructure = serde_json::from_value(value).unwrap(),
            "ConfigMap" => c.controls = serde_json::from_value(value).unwrap(),
            "ClusterOperator" => add(&mut c.operators, value),
            "MachineConfigPool" => add(&mut c.pools, value),
            "MachineConfig" => add(&mut c.machine_configs, value),
            "Node" => add(&mut c.nodes, value),
            "Namespace" => {}
            other => panic!("unexpected creation of {other}"),
        }
    }

    fn count_away(&mut self) {
        for pool in &self.cluster.pools {
            let of_pool = |n: &&Node| {
                machine_config_operator::pool_of(&self.cluster.pools, n).map(ResourceExt::name_any)
                    == Some(pool.name_any())
            };
            let nodes = self.cluster.nodes.iter().filter(of_pool);
            let away = nodes.filter(|n| !node_update::is_available(n)).count();
            // While the cluster is being made, no node is there yet.
            if !pool.conditions().is_empty()
                && self.version().is_some_and(|v| v.metadata.generation > Some(1))
            {
                let most = self.away.entry(pool.name_any()).or_default();
                *most = away.max(*most);
            }
        }
    }

    pub(super) fn version(&self) -> Option<&ClusterVersion> {
        self.cluster.cluster_version.as_ref()
    }

    pub(super) fn progressing(&self) -> String {
        self.version().unwrap().message_of("Progressing").to_owned()
    }

    pub(super) fn want(&mut self, update: Option<Update>) {
        let version = self.cluster.cluster_version.as_mut().unwrap();
        version.spec.desired_update = update;
        version.metadata.generation = version.metadata.generation.map(|g| g + 1);
        touch(version, &mut self.revision);
    }

    pub(super) fn want_version(&mut self, version: &str) {
        self.want(Some(Update {
            version: version.to_owned(),
            image: releases::image(version),
            ..Update::default()
        }));
    }

    pub(super) fn set_upstream(&mut self, url: &str) {
        let version = self.cluster.cluster_version.as_mut().unwrap();
        version.spec.other.insert("upstream".to_owned(), url.into());
        version.metadata.generation = version.metadata.generation.map(|g| g + 1);
        touch(version, &mut self.revision);
    }

    pub(super) fn control(&mut self, key: &str, value: &str) {
        let controls = self.cluster.controls.as_mut().unwrap();
        let data = controls.data.get_or_insert_default();
        data.insert(key.to_owned(), value.to_owned());
    }

    pub(super) fn pause(&mut self, pool: &str, paused: bool) {
        let pool = self
            .cluster
            .pools
            .iter_mut()
            .find(|p| p.name_any() == pool)
            .unwrap();
        pool.spec.paused = paused;
        pool.metadata.generation = pool.metadata.generation.map(|g| g + 1);
        touch(pool, &mut self.revision);
    }

    pub(super) fn pool(&self, name: &str) -> &MachineConfigPool {
        self.cluster.pools.iter().find(|p| p.name_any() == name).unwrap()
    }

    pub(super) fn add_pod(&mut self, name: &str, node: &str, owner: &str) {
        let pod = json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o"}]},
            "spec": {"nodeName": node, "containers": [{"name": "c"}]},
            "status": {"phase": "Pending"},
        });
        self.cluster
            .pods
            .push(serde_json::from_value::<Pod>(pod).unwrap());
    }
}

fn touch<K: Resource>(object: &mut K, revision: &mut u64) {
    *revision += 1;
    object.meta_mut().resource_version = Some(revision.to_string());
}

/// Applies a patch as an API server does: only what the endpoint is for changes, and an old revision is a conflict.
fn patched<K: Serialize + DeserializeOwned + ResourceExt>(
    old: &K,
    status: bool,
    patch: &Patch,
    revision: u64,
) -> K {
    let before = serde_json::to_value(old).unwrap();
    let mut after = before.clone();
    json_patch::patch(&mut after, patch).unwrap();
    assert_eq!(
        after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"],
        "a write from a stale view"
    );
    let touches_status = |op: &PatchOperation| op.path().as_str().starts_with("/status");
    let of_endpoint = |op: &&PatchOperation| {
        op.path().as_str() == "/metadata/resourceVersion" || touches_status(op) == status
    };
    assert!(patch.0.iter().all(|op| of_endpoint(&op)), "{patch:?}");
    if after["spec"] != before["spec"] {
        after["metadata"]["generation"] = json!(before["metadata"]["generation"].as_i64().unwrap_or(1) + 1);
    }
    after["metadata"]["resourceVersion"] = json!(revision.to_string());
    serde_json::from_value(after).unwrap()
}

fn patch_one<K: Serialize + DeserializeOwned + ResourceExt>(
    all: &mut [K],
    name: &str,
    status: bool,
    patch: &Patch,
    revision: u64,
) {
    let object = all.iter_mut().find(|o| o.name_any() == name).unwrap();
    *object = patched(object, status, patch, revision);
}

fn patch_option<K: Serialize + DeserializeOwned + ResourceExt>(
    object: &mut Option<K>,
    status: bool,
    patch: &Patch,
    revision: u64,
) {
    let old = object.as_ref().unwrap();
    *object = Some(patched(old, status, patch, revision));
}
