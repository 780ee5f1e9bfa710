//! Drains that do not end, in simulated time: what an upgrade says about them, to whom, and what it costs.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    api::Identity,
    scenario::{Scenario, Timeline},
    simulation::{self, Simulation},
};
use crate::{
    api::{
        UpgradeJob,
        blocker::BlockerCause,
        upgrade_job::{JobPhase, UpgradeJobStatus},
    },
    clock::Clock,
    schedule::Zones,
    settings::Settings,
};

const NAMESPACE: &str = "openshift-upgrade";
const START: &str = "2026-11-24T21:00:00Z";
const IMAGE: &str = "4.18.5";

/// A cluster whose job starts at once; its workers begin to roll about 10 minutes later.
struct Night {
    simulation: Simulation,
    start: Timestamp,
}

impl Night {
    async fn begin(events: Value) -> Self {
        let start: Timestamp = START.parse().unwrap();
        let mut simulation = Simulation::new(Clock::starting_at(start));
        let scenario = json!({
            "cluster": {"operators": ["etcd"], "pools": [{"name": "master", "machines": 1}, {"name": "worker", "machines": 2}]},
            "updates": {"releases": [{"version": "4.18.5"}]},
            "durations": {"retrieve": "1m", "controlPlane": "6m", "node": "2m", "podStop": "3h"},
            "events": events,
        });
        let scenario = Scenario::parse(
            std::path::Path::new("s.yaml"),
            &serde_yaml::to_string(&scenario).unwrap(),
        )
        .unwrap();
        let end = start + SignedDuration::from_hours(48);
        let timeline = Arc::new(Timeline::new(scenario, start, end, 1).unwrap());
        simulation.start_cluster(&timeline).await.unwrap();
        simulation.play(&timeline);
        simulation.start_operator(&Settings::new(
            NAMESPACE,
            Zones::bundled("Europe/Zurich").unwrap(),
        ));
        let at = |minutes: i64| (start + SignedDuration::from_mins(minutes)).to_string();
        let job: UpgradeJob = serde_json::from_value(json!({
            "metadata": {"name": "job"},
            "spec": {"startAfter": at(1), "startBefore": at(61), "config": {},
                "desiredVersion": {"version": IMAGE, "image": super::openshift::releases::image(IMAGE)}},
        }))
        .unwrap();
        let night = Self { simulation, start };
        night.jobs().create(&PostParams::default(), &job).await.unwrap();
        night
    }

    fn jobs(&self) -> Api<UpgradeJob> {
        Api::namespaced(self.simulation.admin(), NAMESPACE)
    }

    /// The status so many minutes after the start.
    async fn at(&self, minutes: i64) -> UpgradeJobStatus {
        self.simulation
            .until(self.start + SignedDuration::from_mins(minutes))
            .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.jobs().get("job").await.unwrap().status.unwrap()
    }

    /// What was said about pods in the way: kind of the object that it was said about, and the text.
    async fn told(&self, namespace: &str) -> Vec<(String, String)> {
        let events: Api<Event> = Api::namespaced(self.simulation.admin(), namespace);
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let about = all
            .into_iter()
            .filter(|e| e.reason.as_deref() == Some("DrainBlocked"));
        about
            .map(|e| (e.regarding.unwrap().kind.unwrap(), e.note.unwrap()))
            .collect()
    }

    async fn is_gone(&self, pod: &str) -> bool {
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(self.simulation.admin(), "shop");
        api.get_opt(pod).await.unwrap().is_none()
    }

    /// How often pods, budgets and evictions were asked for by the operator.
    fn looks(&self) -> usize {
        let log = self.simulation.server.log();
        let ours = log.iter().filter(|l| matches!(l.identity, Identity::Operator(_)));
        ours.filter(|l| l.line.contains("pod")).count()
    }
}

fn step(status: &UpgradeJobStatus, name: &str) -> String {
    let step = status.steps.iter().find(|s| s.name == name).unwrap();
    step.message.clone().unwrap_or_default()
}

fn apply(object: &Value) -> Value {
    json!({"at": "+0s", "do": {"apply": object}})
}

fn pod(change: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "db-0", "labels": {"app": "db"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "d", "controller": true}]},
        "spec": {"nodeName": "worker-0", "terminationGracePeriodSeconds": 30, "containers": [{"name": "db", "image": "db"}]},
    });
    json_patch::merge(&mut pod, change);
    apply(&pod)
}

fn budget(name: &str) -> Value {
    apply(&json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    }))
}

#[test]
fn a_budget_in_the_way_is_named_until_it_is_gone() {
    simulation::run(async {
        let stuck = json!({"at": "+0s", "for": "40m", "fault": {"stuckDrain": {"node": "worker-0", "pod": "shop/db-0"}}});
        let night = Night::begin(json!([stuck])).await;
        night.simulation.server.keep_log();
        let status = night.at(12).await;
        assert_eq!(night.looks(), 0, "nothing is asked before it takes long");
        assert!(status.blockers.is_empty());
        let status = night.at(30).await;
        let text = step(&status, "await-pools");
        let expected = "worker: 0 of 2 updated; worker-0 draining for ";
        assert!(text.starts_with(expected), "{text}");
        let expected = "m (1 pod left): shop/db-0 blocked by PDB shop/db-0 (0 allowed)";
        assert!(text.ends_with(expected), "{text}");
        assert!(status.message.unwrap().contains("blocked by PDB"), "the job says it as well");
        let [found] = status.blockers.as_slice() else { panic!("{:?}", status.blockers) };
        assert_eq!((found.node.as_str(), found.pod.as_str()), ("worker-0", "db-0"));
        assert_eq!(found.cause, BlockerCause::PodDisruptionBudget);
        assert!(found.draining_since.0 < found.since.0);
        let drained_for = found.since.0.duration_since(found.draining_since.0);
        assert_eq!(drained_for.as_mins(), 5, "found as soon as it was looked for");
        let told = night.told(NAMESPACE).await;
        assert_eq!(told.len(), 1, "said once: {told:?}");
        assert!(told[0].1.starts_with("node worker-0 cannot be drained for its update: pod shop/db-0 "), "{told:?}");
        // The pods of the node, the budgets and the pending pods of the namespace, a minute.
        let before = night.looks();
        night.at(35).await;
        assert!(night.looks() - before <= 3 * 6, "{}", night.looks() - before);
        let status = night.at(60).await;
        assert_eq!(status.phase, Some(JobPhase::Succeeded), "{:?}", status.message);
        assert!(status.blockers.is_empty());
    })
    .unwrap();
}

#[rstest]
#[case::finalizer(json!([pod(&json!({"metadata": {"finalizers": ["shop.example.com/keep"]}, "spec": {"terminationGracePeriodSeconds": 1}}))]),
    BlockerCause::Finalizer, "shop/db-0 kept by finalizer shop.example.com/keep")]
#[case::grace_period(json!([pod(&json!({"spec": {"terminationGracePeriodSeconds": 7200}}))]),
    BlockerCause::GracePeriod, "shop/db-0 ends within its grace period, by Wed 2026-11-25 ")]
#[case::two_budgets(json!([budget("one"), budget("two"), pod(&json!({}))]),
    BlockerCause::SeveralPodDisruptionBudgets, "shop/db-0 never evicted: it has more than one PDB, shop/one, shop/two")]
fn every_cause_is_told_with_its_owner(
    #[case] events: Value,
    #[case] cause: BlockerCause,
    #[case] text: &str,
) {
    simulation::run(async {
        let night = Night::begin(events).await;
        let status = night.at(40).await;
        let said = step(&status, "await-pools");
        assert!(said.contains(text), "{said}\n{:?}", night.simulation.problems());
        assert!(!night.is_gone("db-0").await);
        let found = status.blockers.iter().find(|b| b.pod == "db-0").unwrap();
        assert_eq!(found.cause, cause);
        assert_eq!(found.owner.clone().unwrap().kind, "StatefulSet");
        let of_owner = night.told("shop").await;
        assert_eq!(of_owner.len(), 1, "{of_owner:?}");
        assert_eq!(of_owner[0].0, "StatefulSet");
        assert!(
            of_owner[0].1.contains("pod shop/db-0 of StatefulSet db "),
            "{of_owner:?}"
        );
        assert_eq!(night.told(NAMESPACE).await.len(), 1);
        assert_eq!(night.simulation.server.unknown_requests(), Vec::<String>::new());
    })
    .unwrap();
}

#[test]
fn a_pod_that_finds_no_node_is_named() {
    simulation::run(async {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": "db"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "db"}}},
        });
        let stranded = pod(&json!({"metadata": {"name": "db-1"}, "spec": {"nodeName": null}}));
        let night = Night::begin(json!([apply(&budget), pod(&json!({})), stranded])).await;
        night.at(1).await;
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(night.simulation.admin(), "shop");
        let reason = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"});
        let status = json!({"status": {"conditions": [reason]}});
        api.patch_status("db-1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        let said = step(&night.at(40).await, "await-pools");
        let expected = "shop/db-0 blocked by PDB shop/db (0 allowed, 1 unhealthy): shop/db-1 finds no node: 0/3 nodes fit";
        assert!(said.ends_with(expected), "{said}");
    })
    .unwrap();
}

#[test]
fn an_operator_that_is_killed_goes_on_counting_and_says_nothing_twice() {
    simulation::run(async {
        let events = json!([
            {"at": "+0s", "fault": {"stuckDrain": {"node": "worker-0", "pod": "shop/db-0"}}},
            {"at": "+30m", "do": {"restartOperator": {"down": "2m"}}},
        ]);
        let night = Night::begin(events).await;
        let before = night.at(29).await.blockers;
        let after = night.at(34).await;
        assert_eq!(before.len(), 1);
        assert_eq!(after.blockers, before, "{:?}", after.message);
        assert_eq!(night.told(NAMESPACE).await.len(), 1);
    })
    .unwrap();
}

#[test]
fn degraded_nodes_are_named_with_what_they_say() {
    simulation::run(async {
        let fault = json!({"degradedNode": {"node": "worker-0", "reason": "Disk", "message": "full"}});
        let night = Night::begin(json!([{"at": "+0s", "fault": fault}])).await;
        let said = step(&night.at(40).await, "await-pools");
        assert!(
            said.contains("worker: 0 of 2 updated, 1 degraded (worker-0: Disk: full)"),
            "{said}"
        );
    })
    .unwrap();
}

/// The objects that the scenarios above apply.
#[test]
fn the_pods_of_these_scenarios_are_objects() {
    let object: DynamicObject = serde_json::from_value(pod(&json!({}))["do"]["apply"].clone()).unwrap();
    assert_eq!(object.metadata.name.as_deref(), Some("db-0"));
}

fn force(change: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "NodeForceDrain",
        "metadata": {"name": "workers", "namespace": NAMESPACE},
        "spec": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            "nodeDrainGracePeriod": "15m", "podForceDeleteGracePeriod": "2m"},
    });
    json_patch::merge(&mut object, change);
    apply(&object)
}

/// What was said on nodes: reason and text.
async fn told_on_nodes(night: &Night) -> Vec<(String, String)> {
    let events: Api<Event> = Api::namespaced(night.simulation.admin(), "default");
    let all = events.list(&ListParams::default()).await.unwrap().items;
    let of_nodes = all
        .into_iter()
        .filter(|e| e.regarding.as_ref().unwrap().kind.as_deref() == Some("Node"));
    of_nodes.map(|e| (e.reason.unwrap(), e.note.unwrap())).collect()
}

#[test]
fn a_pod_behind_a_budget_is_deleted_and_then_told_to_hurry() {
    simulation::run(async {
        let slow = json!({"spec": {"terminationGracePeriodSeconds": 7200}});
        let night = Night::begin(json!([force(&json!({})), budget("db"), pod(&slow)])).await;
        night.simulation.server.keep_log();
        let status = night.at(20).await;
        assert!(
            step(&status, "await-pools").contains("blocked by PDB"),
            "{:?}",
            status.message
        );
        assert!(told_on_nodes(&night).await.is_empty(), "it is not time yet");
        let status = night.at(50).await;
        assert!(night.is_gone("db-0").await);
        assert_eq!(status.phase, Some(JobPhase::Succeeded), "{:?}", status.message);
        let told = told_on_nodes(&night).await;
        let reasons: Vec<_> = told.iter().map(|(reason, _)| reason.as_str()).collect();
        assert_eq!(
            reasons,
            ["NodeDrainDeletePod", "NodeDrainForcingPodTermination"],
            "{told:?}"
        );
        let log = night.simulation.server.log();
        let ours = log.iter().filter(|l| matches!(l.identity, Identity::Operator(_)));
        let deletions: Vec<_> = ours.filter(|l| l.line.starts_with("DELETE ")).collect();
        assert_eq!(deletions.len(), 2, "{deletions:?}");
        for deletion in &deletions {
            assert!(deletion.line.contains("/pods/db-0"), "{deletion:?}");
            assert!(
                deletion.body.contains("\"uid\"") && deletion.body.contains("\"resourceVersion\""),
                "{deletion:?}"
            );
        }
        let between = deletions[1].at.duration_since(deletions[0].at);
        assert_eq!(between.as_mins(), 2);
    })
    .unwrap();
}

#[rstest]
#[case::dry_run(json!({"spec": {"dryRun": true}}), "NodeDrainDeletePodDryRun", "pod shop/db-0 would be deleted past its budgets")]
#[case::jq_says_no(json!({"spec": {"podJQSelector": ".metadata.name == \"other\""}}), "", "")]
#[case::other_nodes(json!({"spec": {"nodeSelector": {"matchLabels": {"a": "b"}}}}), "", "")]
#[case::switched_off(json!({"spec": {"nodeDrainGracePeriod": "0s"}}), "", "")]
fn a_pod_that_is_not_meant_stays(#[case] change: Value, #[case] reason: &str, #[case] text: &str) {
    simulation::run(async {
        let night = Night::begin(json!([force(&change), budget("db"), pod(&json!({}))])).await;
        night.at(50).await;
        assert!(!night.is_gone("db-0").await);
        let told = told_on_nodes(&night).await;
        if reason.is_empty() {
            assert!(told.is_empty(), "{told:?}");
        } else {
            let [(found, note)] = told.as_slice() else {
                panic!("said once: {told:?}")
            };
            assert_eq!(found, reason);
            assert!(note.contains(text), "{note}");
        }
    })
    .unwrap();
}

#[rstest]
#[case::fails_for_the_pod(
    "error(\"no\")",
    "pod shop/db-0 is not deleted: podJQSelector fails for it: \"no\""
)]
#[case::is_no_expression(".[", "podJQSelector is no jq expression")]
fn an_expression_that_fails_deletes_nothing_and_says_so(#[case] program: &str, #[case] text: &str) {
    simulation::run(async {
        let selector = json!({"spec": {"podJQSelector": program}});
        let night = Night::begin(json!([force(&selector), budget("db"), pod(&json!({}))])).await;
        night.at(50).await;
        assert!(!night.is_gone("db-0").await);
        let events: Api<Event> = Api::namespaced(night.simulation.admin(), NAMESPACE);
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let about: Vec<_> = all
            .iter()
            .filter(|e| e.regarding.as_ref().unwrap().kind.as_deref() == Some("NodeForceDrain"))
            .collect();
        assert_eq!(about.len(), 1, "said once: {about:?}");
        assert!(about[0].note.as_ref().unwrap().contains(text), "{about:?}");
    })
    .unwrap();
}

#[test]
fn namespaces_are_chosen_by_their_labels() {
    simulation::run(async {
        let namespace = |name: &str| {
            apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"tier": name}}}))
        };
        let chosen = json!({"spec": {"namespaceSelector": {"matchLabels": {"tier": "other"}}}});
        let other = pod(&json!({"metadata": {"namespace": "other"}}));
        let events = json!([namespace("shop"), namespace("other"), force(&chosen), budget("db"), pod(&json!({})),
            apply(&json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "other", "name": "db"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
            })), other]);
        let night = Night::begin(events).await;
        night.at(50).await;
        let told = told_on_nodes(&night).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].1.contains("pod other/db-0 is deleted"), "{told:?}");
        assert!(!night.is_gone("db-0").await, "namespace shop is not chosen");
    })
    .unwrap();
}
