//! Why pods are left, as tables: what is in the cluster, and what is said.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::api::{core::v1, policy::v1::PodDisruptionBudget};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::blocker::{Blocker, BlockerCause},
    openshift::node::{Drain, NodeView},
};

const NOW: &str = "2026-11-24T22:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A pod that runs and is ready, with a patch.
fn raw(change: &Value) -> v1::Pod {
    let mut pod = json!({
        "metadata": {"namespace": "shop", "name": "db-0", "uid": "u", "labels": {"app": "db"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "o", "controller": true}]},
        "spec": {"nodeName": "w-8", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    json_patch::merge(&mut pod, change);
    serde_json::from_value(pod).unwrap()
}

fn pod(change: &Value) -> Pod {
    Pod::from(&raw(change))
}

fn budget(spec: &Value, status: &Value) -> Budget {
    let mut whole = json!({
        "metadata": {"name": "db", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"observedGeneration": 1, "expectedPods": 3, "currentHealthy": 2, "desiredHealthy": 2, "disruptionsAllowed": 0},
    });
    json_patch::merge(&mut whole, &json!({"spec": spec, "status": status}));
    let budget: PodDisruptionBudget = serde_json::from_value(whole).unwrap();
    Budget::from(&budget)
}

fn ended(more: &Value) -> Value {
    let mut change = json!({
        "metadata": {"deletionTimestamp": "2026-11-24T21:50:00Z"},
        "status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0}}}]},
    });
    json_patch::merge(&mut change, more);
    change
}

fn cause_of(
    change: &Value,
    namespace: Result<Namespace, String>,
    eviction: Option<Eviction>,
) -> (BlockerCause, String) {
    let namespaces = BTreeMap::from([("shop".to_owned(), namespace)]);
    let evictions = eviction.map(|e| ("u".to_owned(), e)).into_iter().collect();
    let pods = [pod(change)];
    let found = diagnose(&pods, &namespaces, &evictions, &TimeZone::UTC, at(NOW));
    (found[0].cause, found[0].short.clone())
}

fn with(budgets: Vec<Budget>) -> Namespace {
    Namespace {
        budgets,
        pending: Vec::new(),
    }
}

#[rstest]
#[case::nothing_allowed(json!({}), json!({}), Some("blocked by PDB shop/db (0 allowed, 1 unhealthy)"))]
#[case::as_many_as_needed(json!({}), json!({"currentHealthy": 3, "desiredHealthy": 3}), Some("blocked by PDB shop/db (0 allowed)"))]
#[case::one_is_allowed(json!({}), json!({"disruptionsAllowed": 1}), None)]
#[case::of_others(json!({"selector": {"matchLabels": {"app": "web"}}}), json!({}), None)]
#[case::of_all(json!({"selector": {"matchLabels": null}}), json!({}), Some("blocked by PDB shop/db (0 allowed, 1 unhealthy)"))]
#[case::of_none(json!({"selector": null}), json!({}), None)]
#[case::not_counted(json!({}), json!({"observedGeneration": 0, "disruptionsAllowed": 1}),
    Some("blocked by PDB shop/db (not counted yet: does kube-controller-manager run?)"))]
fn a_budget_keeps_its_healthy_pods(
    #[case] spec: Value,
    #[case] status: Value,
    #[case] expected: Option<&str>,
) {
    let (cause, short) = cause_of(
        &json!({}),
        Ok(with(vec![budget(&spec, &status)])),
        Some(Eviction::Allowed),
    );
    match expected {
        Some(text) => assert_eq!((cause, short.as_str()), (BlockerCause::PodDisruptionBudget, text)),
        None => assert_eq!(cause, BlockerCause::EvictionPending, "{short}"),
    }
}

/// The API server's rules for pods that are not ready, policy by policy.
#[rstest]
#[case::enough_without_it(json!({}), json!({}), false)]
#[case::too_few(json!({}), json!({"currentHealthy": 1}), true)]
#[case::too_few_but_always_allowed(json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"}), json!({"currentHealthy": 1}), false)]
#[case::if_healthy_is_the_default(json!({"unhealthyPodEvictionPolicy": "IfHealthyBudget"}), json!({"currentHealthy": 1}), true)]
fn a_budget_lets_unhealthy_pods_go(#[case] spec: Value, #[case] status: Value, #[case] blocks: bool) {
    let unready = pod(&json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
    assert_eq!(budget(&spec, &status).blocks(&unready), blocks);
    let pending = pod(&json!({"status": {"phase": "Pending", "conditions": null}}));
    assert!(!budget(&spec, &status).blocks(&pending), "it has not begun");
}

#[test]
fn two_budgets_keep_a_pod_whatever_they_allow() {
    let allows = json!({"disruptionsAllowed": 1});
    let two = with(vec![budget(&json!({}), &allows), budget(&json!({}), &allows)]);
    let (cause, short) = cause_of(&json!({}), Ok(two), None);
    assert_eq!(cause, BlockerCause::SeveralPodDisruptionBudgets);
    assert_eq!(short, "never evicted: it has more than one PDB, shop/db, shop/db");
}

#[rstest]
#[case::of_the_same_budget("db", "Unschedulable", BlockerCause::NoRoomElsewhere)]
#[case::of_another("web", "Unschedulable", BlockerCause::PodDisruptionBudget)]
#[case::held_back_on_purpose("db", "SchedulingGated", BlockerCause::PodDisruptionBudget)]
fn a_pod_that_finds_no_node_explains_its_budget(
    #[case] app: &str,
    #[case] reason: &str,
    #[case] expected: BlockerCause,
) {
    let condition =
        json!([{"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/9 nodes fit"}]);
    let stranded = json!({"metadata": {"name": "db-2", "labels": {"app": app}},
        "status": {"phase": "Pending", "conditions": condition}});
    let namespace = Namespace {
        budgets: vec![budget(&json!({}), &json!({}))],
        pending: vec![pod(&stranded)],
    };
    let (cause, short) = cause_of(&json!({}), Ok(namespace), None);
    assert_eq!(cause, expected);
    if expected == BlockerCause::NoRoomElsewhere {
        let text = "blocked by PDB shop/db (0 allowed, 1 unhealthy): shop/db-2 finds no node: 0/9 nodes fit";
        assert_eq!(short, text);
    }
}

#[rstest]
#[case::grace_period(json!({"metadata": {"deletionTimestamp": "2026-11-24T22:14:00Z", "finalizers": ["a/b"]}}),
    BlockerCause::GracePeriod, "ends within its grace period, by Tue 2026-11-24 22:14 UTC")]
#[case::grace_period_over(json!({"metadata": {"deletionTimestamp": NOW}}),
    BlockerCause::StillRunning, "should have ended by Tue 2026-11-24 22:00 UTC")]
#[case::finalizer(ended(&json!({"metadata": {"finalizers": ["a/b", "c/d"]}})),
    BlockerCause::Finalizer, "kept by finalizer a/b, c/d")]
#[case::finalizer_of_one_that_is_over(json!({"metadata": {"deletionTimestamp": "2026-11-24T22:14:00Z", "finalizers": ["a/b"]},
    "status": {"phase": "Succeeded"}}), BlockerCause::Finalizer, "kept by finalizer a/b")]
#[case::volume(ended(&json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data-db-0"}}, {"name": "e", "emptyDir": {}}]}})),
    BlockerCause::VolumeDetach, "has ended, and PersistentVolumeClaim data-db-0 is still in use on the node")]
#[case::only_local_volumes(ended(&json!({"spec": {"volumes": [{"name": "e", "emptyDir": {}}]}})),
    BlockerCause::StillRunning, "should have ended by Tue 2026-11-24 21:50 UTC")]
fn a_pod_that_was_deleted(#[case] change: Value, #[case] expected: BlockerCause, #[case] text: &str) {
    // Whatever its budgets say: it is going.
    let budgets = with(vec![budget(&json!({}), &json!({}))]);
    assert_eq!(cause_of(&change, Ok(budgets), None), (expected, text.to_owned()));
}

#[rstest]
#[case::by_a_webhook(Ok(()), Some(Eviction::Refused("admission webhook \"no\" denied the request".into())),
    BlockerCause::EvictionRefused, "eviction refused: admission webhook \"no\" denied the request")]
#[case::nothing(Ok(()), Some(Eviction::Allowed), BlockerCause::EvictionPending, "waits to be evicted")]
#[case::not_asked(Ok(()), None, BlockerCause::EvictionPending, "waits to be evicted")]
#[case::no_right(Ok(()), Some(Eviction::Unknown("forbidden".into())), BlockerCause::Unknown, "left, why is not known: forbidden")]
#[case::budgets_unread(
    Err("timeout"),
    None,
    BlockerCause::Unknown,
    "left, why is not known: timeout"
)]
#[case::budgets_unread_but_asked(
    Err("timeout"),
    Some(Eviction::Allowed),
    BlockerCause::EvictionPending,
    "waits to be evicted"
)]
fn a_pod_that_no_budget_keeps(
    #[case] budgets: Result<(), &str>,
    #[case] eviction: Option<Eviction>,
    #[case] expected: BlockerCause,
    #[case] text: &str,
) {
    let namespace = budgets.map(|()| Namespace::default()).map_err(str::to_owned);
    let found = cause_of(&json!({}), namespace, eviction);
    assert_eq!(found, (expected, text.to_owned()));
}

#[test]
fn only_what_nothing_explains_is_asked_about() {
    let name = |name: &str, change: &Value| {
        let mut whole = json!({"metadata": {"name": name}});
        json_patch::merge(&mut whole, change);
        pod(&whole)
    };
    let pods = [
        name("kept", &json!({})),
        name("ending", &json!({"metadata": {"deletionTimestamp": NOW}})),
        name("free", &json!({"metadata": {"labels": {"app": "web"}}})),
        name("unread", &json!({"metadata": {"namespace": "other"}})),
    ];
    let namespaces = BTreeMap::from([("shop".to_owned(), Ok(with(vec![budget(&json!({}), &json!({}))])))]);
    let asked: Vec<_> = unexplained(&pods, &namespaces)
        .into_iter()
        .map(|p| p.name.as_str())
        .collect();
    assert_eq!(asked, ["free", "unread"]);
}

#[rstest]
#[case::runs(json!({}), true)]
#[case::is_over(json!({"status": {"phase": "Succeeded"}}), false)]
#[case::is_over_and_deleted(json!({"status": {"phase": "Failed"}, "metadata": {"deletionTimestamp": NOW}}), true)]
#[case::mirror(json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}), false)]
#[case::daemon_set(json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]}}), false)]
fn a_drain_waits_for(#[case] change: Value, #[case] expected: bool) {
    assert_eq!(is_left(&raw(&change)), expected);
}

#[rstest]
#[case::as_it_is("StatefulSet", "db", json!({}), "StatefulSet", "db")]
#[case::deployment("ReplicaSet", "web-6f7", json!({"pod-template-hash": "6f7"}), "Deployment", "web")]
#[case::replica_set_by_hand("ReplicaSet", "web-6f7", json!({}), "ReplicaSet", "web-6f7")]
fn the_owner_is_what_people_know(
    #[case] kind: &str,
    #[case] name: &str,
    #[case] labels: Value,
    #[case] owner_kind: &str,
    #[case] owner: &str,
) {
    let change = json!({"metadata": {"labels": labels,
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true}]}});
    let found = pod(&change).owner().unwrap();
    assert_eq!((found.kind.as_str(), found.name.as_str()), (owner_kind, owner));
    assert_eq!(
        pod(&change).reference().unwrap().name,
        name,
        "Events are about what has the UID"
    );
}

fn node(name: &str) -> NodeView {
    NodeView {
        name: name.to_owned(),
        desired_config: Some("rendered-worker-2".to_owned()),
        drain: Some(Drain {
            wanted: "drain-rendered-worker-2".to_owned(),
            last_applied: "uncordon-rendered-worker-1".to_owned(),
        }),
        ..NodeView::default()
    }
}

fn blocking(name: &str, cause: BlockerCause) -> BlockingPod {
    BlockingPod {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        cause,
        short: "stays".to_owned(),
        advice: "push it".to_owned(),
        owner: None,
        controller: None,
    }
}

const FIVE: SignedDuration = SignedDuration::from_mins(5);

fn minutes(n: i64) -> Timestamp {
    at(NOW) + SignedDuration::from_mins(n)
}

#[test]
fn a_drain_is_told_of_from_five_minutes_on_and_looked_at_once_a_minute() {
    let nodes = [node("w-8")];
    let mut drains = Drains::default();
    drains.see(&nodes, &[], minutes(0));
    let early = explain(&drains, &nodes, "worker", &[], FIVE, minutes(4));
    assert_eq!(
        early,
        Explained {
            wake_at: Some(minutes(5)),
            ..Explained::default()
        }
    );
    let due = explain(&drains, &nodes, "worker", &[], FIVE, minutes(5));
    assert_eq!(due.looks, BTreeSet::from(["w-8".to_owned()]));
    assert_eq!(due.text.as_deref(), Some("w-8 draining for 5m"));
    let pods: Vec<_> = ["a", "b", "c", "d"]
        .map(|n| blocking(n, BlockerCause::Unknown))
        .into();
    let sight = Sight {
        left: 9,
        is_cut: false,
        pods,
    };
    drains.keep(
        "w-8",
        Look {
            at: minutes(5),
            said: Ok(sight),
        },
    );
    let told = explain(&drains, &nodes, "worker", &[], FIVE, minutes(5));
    let text = "w-8 draining for 5m (9 pods left): shop/a stays, shop/b stays, shop/c stays, and 6 more";
    assert_eq!(told.text.as_deref(), Some(text));
    assert_eq!(
        (told.looks.len(), told.findings.len(), told.wake_at),
        (0, 4, Some(minutes(6)))
    );
    let later = explain(&drains, &nodes, "worker", &[], FIVE, minutes(6));
    assert_eq!(later.looks.len(), 1, "the look is a minute old");
    assert!(
        explain(&drains, &nodes, "master", &[], FIVE, minutes(6))
            .text
            .is_none(),
        "another pool"
    );
}

#[test]
fn what_is_told_is_bounded() {
    let nodes: Vec<_> = (0..50).map(|n| node(&format!("w-{n:02}"))).collect();
    let mut drains = Drains::default();
    for (minute, some) in nodes.chunks(10).enumerate() {
        drains.see(
            &nodes[..(minute + 1) * 10],
            &[],
            minutes(i64::try_from(minute).unwrap()),
        );
        assert!(!some.is_empty());
    }
    let told = explain(&drains, &nodes, "worker", &[], FIVE, minutes(30));
    let expected: BTreeSet<_> = ["w-00", "w-01", "w-02"].map(str::to_owned).into();
    assert_eq!(told.looks, expected, "those that drain longest");
    assert!(told.text.unwrap().ends_with("; 47 more nodes drain as long"));
    let finding = |n: usize| Finding {
        blocker: Blocker {
            pod: format!("p-{n:02}"),
            cause: if n == 49 {
                BlockerCause::PodDisruptionBudget
            } else {
                BlockerCause::GracePeriod
            },
            ..blocker("w-0", minutes(0))
        },
        controller: None,
    };
    let kept = merged((0..50).chain(0..50).map(finding).collect());
    assert_eq!(kept.len(), MAX_BLOCKERS);
    assert!(kept.is_sorted_by_key(|f| f.blocker.pod.clone()));
    assert_eq!(kept.last().unwrap().blocker.pod, "p-49", "it matters most");
}

fn blocker(node: &str, draining_since: Timestamp) -> Blocker {
    serde_json::from_value(
        json!({"node": node, "namespace": "shop", "pod": "a", "cause": "Finalizer",
        "drainingSince": draining_since, "since": draining_since}),
    )
    .unwrap()
}

#[test]
fn what_was_found_stays_on_record_while_the_node_cannot_be_read() {
    let nodes = [node("w-8")];
    let mut drains = Drains::default();
    drains.see(&nodes, &[], minutes(0));
    drains.keep(
        "w-8",
        Look {
            at: minutes(20),
            said: Err("cannot list the pods".to_owned()),
        },
    );
    let stored = [blocker("w-8", minutes(0)), blocker("w-9", minutes(0))];
    let told = explain(&drains, &nodes, "worker", &stored, FIVE, minutes(20));
    assert_eq!(
        told.text.as_deref(),
        Some("w-8 draining for 20m: cannot tell why: cannot list the pods")
    );
    assert_eq!(told.findings.len(), 1);
    assert_eq!(told.findings[0].blocker, stored[0]);
}

#[test]
fn a_finding_is_as_old_as_its_record() {
    let nodes = [node("w-8")];
    let mut drains = Drains::default();
    drains.see(&nodes, &[], minutes(0));
    let pods = vec![
        blocking("a", BlockerCause::Finalizer),
        blocking("b", BlockerCause::Finalizer),
    ];
    let sight = Sight {
        left: 2,
        is_cut: false,
        pods,
    };
    drains.keep(
        "w-8",
        Look {
            at: minutes(20),
            said: Ok(sight),
        },
    );
    let told = explain(
        &drains,
        &nodes,
        "worker",
        &[blocker("w-8", minutes(3))],
        FIVE,
        minutes(20),
    );
    let since: Vec<_> = told.findings.iter().map(|f| f.blocker.since.0).collect();
    assert_eq!(since, [minutes(3), minutes(20)]);
}

#[test]
fn an_operator_that_was_started_since_knows_how_long_a_node_drains() {
    let job = |finished: Option<&str>| -> crate::api::UpgradeJob {
        serde_json::from_value(json!({"metadata": {"name": "j"},
            "spec": {"startAfter": NOW, "startBefore": "2026-11-24T23:00:00Z", "config": {}},
            "status": {"startedAt": NOW, "finishedAt": finished, "blockers": [blocker("w-8", minutes(1))]}}))
        .unwrap()
    };
    let since = |jobs: &[crate::api::UpgradeJob]| {
        let mut drains = Drains::default();
        drains.see(&[node("w-8")], jobs, minutes(20));
        drains.since("w-8")
    };
    assert_eq!(since(&[job(None)]), Some(minutes(1)));
    assert_eq!(
        since(&[job(Some(NOW))]),
        Some(minutes(20)),
        "that was another drain"
    );
    assert_eq!(since(&[]), Some(minutes(20)));
}

#[test]
fn metrics_have_each_node_and_what_a_running_job_has_on_record() {
    let blockers = ["a", "b", "c"].map(|pod| Blocker {
        pod: pod.to_owned(),
        cause: if pod == "c" {
            BlockerCause::GracePeriod
        } else {
            BlockerCause::Finalizer
        },
        ..blocker("w-8", minutes(0))
    });
    let job = |finished: Option<&str>| -> crate::api::UpgradeJob {
        serde_json::from_value(json!({"metadata": {"name": "j"},
            "spec": {"startAfter": NOW, "startBefore": "2026-11-24T23:00:00Z", "config": {}},
            "status": {"startedAt": NOW, "finishedAt": finished, "blockers": blockers}}))
        .unwrap()
    };
    let mut idle = node("w-9");
    idle.drain = None;
    let told = metrics(&[node("w-8"), idle], &[job(None), job(Some(NOW))]);
    let of = |index: usize| -> Vec<(Vec<&str>, f64)> {
        let series = told[index].series.iter();
        series
            .map(|s| {
                (
                    s.labels.iter().map(|(_, v)| v.as_str()).collect(),
                    s.value.number().unwrap(),
                )
            })
            .collect()
    };
    assert_eq!(of(0), [(vec!["w-8"], 1.0), (vec!["w-9"], 0.0)]);
    assert_eq!(
        of(1),
        [(vec!["w-8", "Finalizer"], 2.0), (vec!["w-8", "GracePeriod"], 1.0)]
    );
}

#[test]
fn another_drain_of_a_node_begins_anew() {
    let mut drains = Drains::default();
    drains.see(&[node("w-8")], &[], minutes(0));
    let mut other = node("w-8");
    other.drain.as_mut().unwrap().wanted = "drain-rendered-worker-3".to_owned();
    drains.see(&[other.clone()], &[], minutes(9));
    assert_eq!(drains.since("w-8"), Some(minutes(9)));
    other.drain = None;
    drains.see(&[other], &[], minutes(10));
    assert_eq!(drains.since("w-8"), None);
}

#[rstest]
#[case(5, "5m")]
#[case(29, "29m")]
#[case(34, "30m")]
#[case(74, "1h10m")]
fn minutes_are_counted_while_there_are_few(#[case] passed: i64, #[case] expected: &str) {
    let nodes = [node("w-8")];
    let mut drains = Drains::default();
    drains.see(&nodes, &[], minutes(0));
    let told = explain(&drains, &nodes, "worker", &[], FIVE, minutes(passed));
    assert_eq!(told.text.unwrap(), format!("w-8 draining for {expected}"));
}
