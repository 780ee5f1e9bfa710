//! The whole simulator against an API of a few lines, in virtual time.

use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::util::intstr::IntOrString};
use kube::{Resource, ResourceExt};
use rstest::rstest;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    initial::{self, Initial},
    *,
};
use crate::openshift::{cluster_version::Update, condition, is_true, node::CURRENT_CONFIG};

/// A cluster, its clock, and the writes that were made.
struct Fake {
    cluster: Cluster,
    settings: Settings,
    now: Timestamp,
    revision: u64,
    evictions: Vec<String>,
    /// Most nodes of a pool that were away at a time: pool → count.
    away: std::collections::BTreeMap<String, usize>,
}

impl Fake {
    /// A ready cluster with pods on two nodes.
    fn ready() -> Self {
        let mut fake = Self {
            cluster: Cluster::default(),
            settings: Settings {
                heartbeat: None,
                ..Settings::default()
            },
            now: Timestamp::from_str("2026-11-24T21:00:00.25Z").unwrap(),
            revision: 0,
            evictions: Vec::new(),
            away: std::collections::BTreeMap::new(),
        };
        let initial = Initial {
            from_version: "4.18.3".to_owned(),
            offers: vec!["4.18.4".to_owned(), "4.18.5".to_owned()],
            nodes: [("master", 3), ("worker", 3), ("x-app-night", 2)]
                .map(|(pool, n)| (pool.to_owned(), n))
                .into(),
            with_infrastructure: true,
        };
        for _ in 0..20 {
            let missing = initial::ensure(&fake.cluster, &initial, fake.now);
            for write in missing {
                fake.apply(write);
            }
            fake.settle();
        }
        assert!(initial::is_ready(&fake.cluster, &initial, fake.now));
        fake
    }

    /// Applies writes until there are none left at this instant; returns when to go on.
    fn settle(&mut self) -> Option<Timestamp> {
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
    fn until(&mut self, limit: &str, done: impl Fn(&Cluster) -> bool) {
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
    fn pass(&mut self, duration: &str) {
        let end = later(self.now, duration.parse().unwrap());
        while let Some(wake) = self.settle().filter(|w| *w <= end) {
            self.now = wake;
        }
        self.now = end;
        self.settle();
    }

    fn apply(&mut self, write: Write) {
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

    fn version(&self) -> Option<&ClusterVersion> {
        self.cluster.cluster_version.as_ref()
    }

    fn progressing(&self) -> String {
        self.version().unwrap().message_of("Progressing").to_owned()
    }

    fn want(&mut self, update: Option<Update>) {
        let version = self.cluster.cluster_version.as_mut().unwrap();
        version.spec.desired_update = update;
        version.metadata.generation = version.metadata.generation.map(|g| g + 1);
        touch(version, &mut self.revision);
    }

    fn want_version(&mut self, version: &str) {
        self.want(Some(Update {
            version: version.to_owned(),
            image: releases::image(version),
            ..Update::default()
        }));
    }

    fn control(&mut self, key: &str, value: &str) {
        let controls = self.cluster.controls.as_mut().unwrap();
        let data = controls.data.get_or_insert_default();
        data.insert(key.to_owned(), value.to_owned());
    }

    fn pause(&mut self, pool: &str, paused: bool) {
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

    fn pool(&self, name: &str) -> &MachineConfigPool {
        self.cluster.pools.iter().find(|p| p.name_any() == name).unwrap()
    }

    fn add_pod(&mut self, name: &str, node: &str, owner: &str) {
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

fn is_completed(cluster: &Cluster, version: &str) -> bool {
    let newest = cluster.cluster_version.as_ref().and_then(ClusterVersion::newest);
    newest.is_some_and(|h| h.version == version && h.is_completed())
}

fn is_updated(cluster: &Cluster, pool: &str) -> bool {
    let pool = cluster.pools.iter().find(|p| p.name_any() == pool).unwrap();
    is_true(pool.conditions(), "Updated") && pool.state().configuration.name == pool.spec.configuration.name
}

#[test]
fn a_whole_upgrade_takes_the_control_plane_and_every_node_to_the_new_release() {
    let mut fake = Fake::ready();
    fake.add_pod("web", "worker-1", "ReplicaSet");
    fake.add_pod("agent", "worker-1", "DaemonSet");
    fake.want_version("4.18.5");
    fake.until("10s", |c| {
        !c.cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .unwrap()
            .is_completed()
    });
    assert_eq!(fake.progressing(), "Working towards 4.18.5");
    let started = fake.now;
    fake.until("10s", |c| {
        let progressing = c.cluster_version.as_ref().unwrap().message_of("Progressing");
        progressing == "Working towards 4.18.5: 392 of 901 done (43% complete), waiting on authentication"
    });
    fake.until("60s", |c| is_completed(c, "4.18.5"));
    let version = fake.version().unwrap();
    let status = version.status.as_ref().unwrap();
    assert!(version.is_observed());
    assert_eq!(fake.progressing(), "Cluster version is 4.18.5");
    assert_eq!(version.message_of("Available"), "Done applying 4.18.5");
    assert_eq!(status.desired.version, "4.18.5");
    assert_eq!(status.available_updates, Some(Vec::new()));
    assert_eq!(status.history.len(), 2);
    assert!(status.history.iter().all(|h| h.completion_time.is_some()));
    assert!(
        fake.cluster
            .operators
            .iter()
            .all(|o| o.operator_version() == Some("4.18.5"))
    );
    // The control plane waits for the masters, not for the workers.
    assert!(is_updated(&fake.cluster, "master"));
    fake.until("60s", |c| is_updated(c, "worker") && is_updated(c, "x-app-night"));
    let took = fake.now.duration_since(started);
    assert!(
        (SignedDuration::from_secs(25)..SignedDuration::from_secs(45)).contains(&took),
        "{took:?}"
    );
    for node in &fake.cluster.nodes {
        let config = annotation(node, CURRENT_CONFIG);
        let rendered = fake
            .cluster
            .machine_configs
            .iter()
            .find(|c| c.name_any() == config)
            .unwrap();
        let release = &rendered.annotations()[crate::openshift::machine_config::RELEASE_VERSION];
        assert_eq!(release, "4.18.5", "{}", node.name_any());
        assert!(node_update::is_available(node), "{}", node.name_any());
    }
    assert_eq!(fake.evictions, ["web"]);
    assert_eq!(fake.settle(), None, "something goes on after the end");
}

#[test]
fn a_paused_pool_is_left_alone_and_rolls_as_soon_as_it_is_unpaused() {
    let mut fake = Fake::ready();
    let before = fake.pool("x-app-night").state().configuration.name;
    fake.pause("x-app-night", true);
    fake.want_version("4.18.5");
    fake.until("60s", |c| is_completed(c, "4.18.5") && is_updated(c, "worker"));
    fake.pass("1h");
    let pool = fake.pool("x-app-night");
    let wanted = pool.spec.configuration.name.clone();
    assert_ne!(wanted, before);
    assert_eq!(pool.state().configuration.name, before);
    assert_eq!(pool.state().updated_machine_count, 0);
    assert!(!is_true(pool.conditions(), "Updated") && !is_true(pool.conditions(), "Updating"));
    let updating = condition(pool.conditions(), "Updating").unwrap().message.clone();
    let text = format!("Pool is paused; will not update to MachineConfig {wanted}");
    assert_eq!(updating, Some(text));
    fake.pause("x-app-night", false);
    fake.settle();
    assert!(is_true(fake.pool("x-app-night").conditions(), "Updating"));
    fake.until("20s", |c| is_updated(c, "x-app-night"));
}

#[test]
fn pools_say_updated_until_the_new_configuration_is_rendered() {
    let mut fake = Fake::ready();
    fake.want_version("4.18.5");
    fake.until("20s", |c| {
        c.operators
            .iter()
            .filter(|o| o.operator_version() == Some("4.18.5"))
            .count()
            == 5
    });
    assert!(
        ["master", "worker", "x-app-night"]
            .iter()
            .all(|p| is_updated(&fake.cluster, p))
    );
}

#[rstest]
#[case("RetrievePayload", "Retrieving payload failed version=\"4.18.5\"")]
#[case("VerifyPayloadVersion", "Verifying payload failed version=\"4.18.5\"")]
#[case(
    "PreconditionChecks",
    "Preconditions failed for payload loaded version=\"4.18.5\""
)]
fn a_refused_release_starts_by_itself_when_the_cause_is_gone_unless_it_was_withdrawn(
    #[case] reason: &str,
    #[case] text: &str,
) {
    for withdrawn in [false, true] {
        let mut fake = Fake::ready();
        fake.control("reject", &format!("4.18.5 {reason} not today"));
        fake.want_version("4.18.5");
        fake.pass("1h");
        let version = fake.version().unwrap();
        let accepted = condition(version.conditions(), "ReleaseAccepted").unwrap();
        assert_eq!(
            (accepted.status.as_str(), accepted.reason.as_deref()),
            ("False", Some(reason))
        );
        assert!(
            version.message_of("ReleaseAccepted").starts_with(text),
            "{accepted:?}"
        );
        assert!(version.message_of("ReleaseAccepted").ends_with("not today"));
        assert!(version.is_observed() && !is_true(version.conditions(), "Progressing"));
        assert_eq!(version.newest().unwrap().version, "4.18.3");
        if withdrawn {
            fake.want(None);
            fake.settle();
        }
        fake.control("reject", "");
        fake.pass("2m");
        let started = is_completed(&fake.cluster, "4.18.5");
        assert_eq!(started, !withdrawn);
        assert!(is_true(fake.version().unwrap().conditions(), "ReleaseAccepted"));
    }
}

#[rstest]
#[case::not_offered(
    "4.18.9",
    "",
    Some("when image is empty the update must be an available update")
)]
#[case::not_a_version("next", "", Some("if set must be a valid semantic version"))]
#[case::offered("4.18.4", "", None)]
fn a_version_without_image_must_be_offered(
    #[case] version: &str,
    #[case] image: &str,
    #[case] problem: Option<&str>,
) {
    let mut fake = Fake::ready();
    fake.want(Some(Update {
        version: version.to_owned(),
        image: image.to_owned(),
        ..Update::default()
    }));
    fake.pass("2m");
    let cv = fake.version().unwrap();
    assert_eq!(is_true(cv.conditions(), "Invalid"), problem.is_some());
    assert!(cv.message_of("Invalid").ends_with(problem.unwrap_or_default()));
    assert_eq!(is_completed(&fake.cluster, version), problem.is_none());
    if problem.is_some() {
        assert_eq!(
            fake.progressing(),
            "Stopped at 4.18.3: the cluster version is invalid"
        );
        fake.want(None);
        fake.settle();
        assert_eq!(fake.progressing(), "Cluster version is 4.18.3");
        assert!(condition(fake.version().unwrap().conditions(), "Invalid").is_none());
    }
}

#[rstest]
#[case::unsigned(
    "4.18.5",
    "quay.io/mirror@sha256:0",
    "RetrievePayload",
    "unable to verify sha256:0 against"
)]
#[case::other_release("4.18.5", &releases::image("4.18.4"), "VerifyPayloadVersion", "release image version 4.18.4 does not match")]
#[case::older("4.18.2", &releases::image("4.18.2"), "PreconditionChecks", "LowDesiredVersion")]
#[case::two_minors("4.20.1", &releases::image("4.20.1"), "PreconditionChecks", "MultipleMinorVersionsUpdate")]
#[case::not_upgradeable("4.19.1", &releases::image("4.19.1"), "PreconditionChecks", "\"AdminAckRequired\"")]
fn releases_are_checked_like_the_cluster_version_operator_does(
    #[case] version: &str,
    #[case] image: &str,
    #[case] reason: &str,
    #[case] text: &str,
) {
    let mut fake = Fake::ready();
    fake.control("not-upgradeable", "AdminAckRequired read the notes");
    fake.want(Some(Update {
        version: version.to_owned(),
        image: image.to_owned(),
        ..Update::default()
    }));
    fake.pass("1m");
    let cv = fake.version().unwrap();
    let accepted = condition(cv.conditions(), "ReleaseAccepted").unwrap();
    assert_eq!(accepted.reason.as_deref(), Some(reason));
    assert!(cv.message_of("ReleaseAccepted").contains(text), "{accepted:?}");
    assert_eq!(cv.newest().unwrap().version, "4.18.3");
}

#[test]
fn a_stall_holds_the_control_plane_at_its_percentage() {
    let mut fake = Fake::ready();
    fake.control("stall-at", "80");
    fake.want_version("4.18.5");
    fake.pass("1h");
    assert_eq!(
        fake.progressing(),
        "Working towards 4.18.5: 721 of 901 done (80% complete), waiting on monitoring"
    );
    fake.control("stall-at", "");
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[rstest]
#[case("hold", "all")]
#[case("degraded-operators", "etcd EtcdMembers_Degraded no quorum")]
fn nothing_completes_while_it_is_held_or_an_operator_is_degraded(#[case] key: &str, #[case] value: &str) {
    let mut fake = Fake::ready();
    fake.want_version("4.18.5");
    fake.until("10s", |c| {
        !c.cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .unwrap()
            .is_completed()
    });
    fake.control(key, value);
    fake.pass("1h");
    assert!(
        fake.cluster
            .operators
            .iter()
            .all(|o| o.name_any() == "etcd" || o.operator_version() == Some("4.18.3"))
    );
    assert!(!is_completed(&fake.cluster, "4.18.5"));
    fake.control(key, "");
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[test]
fn failing_is_told_without_stopping_the_upgrade() {
    let mut fake = Fake::ready();
    fake.control("failing", "ClusterOperatorNotAvailable ingress is away");
    fake.settle();
    assert_eq!(
        fake.progressing(),
        "Error while reconciling 4.18.3: ingress is away"
    );
    fake.want_version("4.18.5");
    fake.until("10s", |c| {
        !c.cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .unwrap()
            .is_completed()
    });
    assert_eq!(fake.progressing(), "Unable to apply 4.18.5: ingress is away");
    assert!(is_true(fake.version().unwrap().conditions(), "Failing"));
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[test]
fn updates_are_unknown_while_the_update_service_is_away() {
    let mut fake = Fake::ready();
    fake.control("conditional-offers", "4.18.6 SlowEtcd etcd may be slow");
    fake.settle();
    let status = fake.version().unwrap().status.clone().unwrap();
    let offered: Vec<_> = status
        .available_updates
        .iter()
        .flatten()
        .map(|r| r.version.as_str())
        .collect();
    assert_eq!(offered, ["4.18.5", "4.18.4"]);
    assert_eq!(status.conditional_updates[0].risks[0].name, "SlowEtcd");
    fake.control("update-service", "RemoteFailed no route to host");
    fake.settle();
    let status = fake.version().unwrap().status.clone().unwrap();
    assert_eq!(status.available_updates, None);
    assert!(!is_true(&status.conditions, "RetrievedUpdates"));
    fake.control("update-service", "");
    fake.settle();
    assert!(is_true(fake.version().unwrap().conditions(), "RetrievedUpdates"));
}

#[test]
fn a_paused_master_pool_keeps_the_control_plane_from_completing() {
    let mut fake = Fake::ready();
    fake.pause("master", true);
    fake.want_version("4.18.5");
    fake.pass("1h");
    assert!(!is_completed(&fake.cluster, "4.18.5"));
    assert!(
        fake.progressing().ends_with("waiting on machine-config"),
        "{}",
        fake.progressing()
    );
    fake.pause("master", false);
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[rstest]
#[case(None, 1)]
#[case(Some(IntOrString::Int(2)), 2)]
#[case(Some(IntOrString::String("67%".to_owned())), 2)]
#[case(Some(IntOrString::String("10%".to_owned())), 1)]
fn no_more_nodes_are_away_than_allowed_and_as_many_as_allowed(
    #[case] limit: Option<IntOrString>,
    #[case] most: usize,
) {
    let mut fake = Fake::ready();
    let pool = fake
        .cluster
        .pools
        .iter_mut()
        .find(|p| p.name_any() == "worker")
        .unwrap();
    pool.spec.max_unavailable = limit;
    fake.want_version("4.18.5");
    fake.until("90s", |c| is_completed(c, "4.18.5") && is_updated(c, "worker"));
    assert_eq!(fake.away["worker"], most);
    assert_eq!(fake.away["master"], 1);
}

#[test]
fn a_node_that_somebody_cordoned_uses_up_what_may_be_away() {
    let mut fake = Fake::ready();
    let node = fake
        .cluster
        .nodes
        .iter_mut()
        .find(|n| n.name_any() == "worker-2")
        .unwrap();
    node.spec.get_or_insert_default().unschedulable = Some(true);
    fake.want_version("4.18.5");
    fake.until("90s", |c| is_completed(c, "4.18.5") && is_updated(c, "worker"));
    assert_eq!(fake.away["worker"], 1);
}

#[test]
fn a_degraded_node_degrades_its_pool_until_the_cause_is_gone() {
    let mut fake = Fake::ready();
    fake.control("degraded-nodes", "worker-0 NoSpace disk is full");
    fake.want_version("4.18.5");
    fake.pass("10m");
    let pool = fake.pool("worker");
    assert!(is_true(pool.conditions(), "Degraded") && !is_updated(&fake.cluster, "worker"));
    let message = condition(pool.conditions(), "NodeDegraded")
        .unwrap()
        .message
        .clone();
    assert_eq!(
        message.unwrap(),
        "Node worker-0 is reporting: \"NoSpace: disk is full\""
    );
    assert_eq!(pool.state().degraded_machine_count, 1);
    fake.control("degraded-nodes", "");
    fake.until("60s", |c| is_updated(c, "worker"));
    assert!(!is_true(fake.pool("worker").conditions(), "Degraded"));
}

#[test]
fn every_state_between_two_writes_can_be_carried_on_from() {
    let mut straight = Fake::ready();
    straight.want_version("4.18.5");
    straight.until("90s", |c| {
        is_completed(c, "4.18.5") && is_updated(c, "worker") && is_updated(c, "x-app-night")
    });
    // Only ever one write of what was decided gets through before everything is read and decided again.
    let mut broken = Fake::ready();
    broken.want_version("4.18.5");
    let end = later(broken.now, SignedDuration::from_secs(90));
    let mut writes = 0;
    loop {
        let step = next(&broken.cluster, broken.now, &broken.settings);
        match (step.writes.into_iter().next(), step.wake_at) {
            (Some(write), _) => {
                writes += 1;
                broken.apply(write);
            }
            (None, Some(at)) if at <= end => broken.now = at,
            (None, _) => break,
        }
    }
    assert!(writes > 100, "{writes}");
    assert!(is_completed(&broken.cluster, "4.18.5"));
    let configs = |f: &Fake| {
        f.cluster
            .nodes
            .iter()
            .map(|n| annotation(n, CURRENT_CONFIG).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(configs(&broken), configs(&straight));
}

#[test]
fn a_desired_update_that_is_removed_after_it_was_accepted_goes_on() {
    let mut fake = Fake::ready();
    fake.want_version("4.18.5");
    fake.until("10s", |c| {
        !c.cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .unwrap()
            .is_completed()
    });
    fake.want(None);
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[test]
fn another_target_in_the_middle_takes_over() {
    let mut fake = Fake::ready();
    fake.want_version("4.18.4");
    fake.pass("8s");
    fake.want_version("4.18.5");
    fake.until("90s", |c| is_completed(c, "4.18.5"));
    let history = &fake.version().unwrap().status.as_ref().unwrap().history;
    let states: Vec<_> = history
        .iter()
        .map(|h| (h.version.as_str(), h.state.as_str()))
        .collect();
    assert_eq!(
        states,
        [
            ("4.18.5", "Completed"),
            ("4.18.4", "Partial"),
            ("4.18.3", "Completed")
        ]
    );
    assert!(history.iter().all(|h| h.completion_time.is_some()));
}
