//! Scenario files as people write them.

mod documentation;

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::json;

use super::{
    Scenario,
    timeline::{Due, Happening, Timeline, TimelineError},
};
use crate::{
    openshift::machine_config_pool::MachineConfigPool,
    simulator::{batch::End, openshift::faults::Faults},
};

const START: &str = "2026-11-24T00:00:00Z";

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(Path::new("s.yaml"), text).map_err(|e| e.to_string())
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// 90 days from [`START`].
fn timeline(text: &str) -> Timeline {
    let end = at(START) + SignedDuration::from_hours(90 * 24);
    Timeline::new(parse(text).unwrap(), at(START), end, 1).unwrap()
}

fn hours(hours: i64) -> Timestamp {
    at(START) + SignedDuration::from_hours(hours)
}

/// The controls at an hour, which must be readable.
fn controls(timeline: &Timeline, now: Timestamp) -> Faults {
    let data = timeline.controls(now);
    let map = k8s_openapi::api::core::v1::ConfigMap {
        data: Some(data),
        ..Default::default()
    };
    let (faults, problems) = Faults::read(Some(&map));
    assert_eq!(problems, Vec::<String>::new());
    faults
}

#[test]
fn an_empty_scenario_is_a_healthy_cluster_with_updates() {
    let scenario = parse("{}").unwrap();
    assert_eq!(scenario, Scenario::default());
    let timeline = timeline("{}");
    let initial = timeline.initial(true);
    let pools: Vec<_> = initial
        .pools
        .iter()
        .map(|p| (p.name.as_str(), p.machines))
        .collect();
    assert_eq!(pools, [("master", 3), ("worker", 3)]);
    assert_eq!(initial.channel.as_deref(), Some("stable-4.18"));
    assert_eq!(
        initial.controls.keys().collect::<Vec<_>>(),
        ["always-an-update", "releases"]
    );
    assert!(timeline.due(Timestamp::MIN, hours(0)).is_empty());
    let changes = timeline.due(Timestamp::MIN, Timestamp::MAX);
    assert!(
        (12..30).contains(&changes.len()),
        "about one release a week and minor, got {}",
        changes.len()
    );
    assert!(changes.iter().all(|due| due.happening == Happening::Controls));
}

#[rstest]
#[case::unknown_field(
    "cluster:\n  verson: 4.18.3\n",
    "s.yaml:2: cluster: unknown field `verson`, expected one of `version`"
)]
#[case::wrong_type(
    "cluster:\n  pools:\n  - {name: master, machines: 3}\n  - name: worker\n    machines: many\n",
    "s.yaml:5: cluster.pools[1].machines: invalid type: string \"many\", expected u32"
)]
#[case::version("\ncluster: {version: 4.18}\n", "s.yaml:2: cluster.version: ")]
#[case::moment(
    "events:\n- at: tomorrow\n  do: {restartOperator: {}}\n",
    "s.yaml:2: events[0].at: \"tomorrow\" is no instant"
)]
#[case::duration(
    "durations:\n  node: 2h..1h\n",
    "s.yaml:2: durations.node: \"2h..1h\" ends before it begins"
)]
#[case::unknown_fault(
    "events:\n- at: +1h\n  fault:\n    degradedNod: {node: worker-0}\n",
    "unknown variant `degradedNod`, expected one of `releaseRejected`"
)]
#[case::unknown_field_of_a_fault(
    "events:\n- at: +1h\n  fault:\n    degradedNode:\n      nod: worker-0\n",
    "s.yaml:5: events[0].fault.degradedNode: unknown field `nod`"
)]
#[case::missing_field(
    "events:\n- fault: {stalledAt: {percent: 1}}\n",
    "s.yaml:2: events[0]: missing field `at`"
)]
#[case::not_yaml("cluster: {\n", "s.yaml:2: ")]
#[case::two_documents("{}\n---\n{}\n", "s.yaml: ")]
#[case::empty("", "s.yaml: ")]
fn what_cannot_be_read_is_told_with_line_and_field(#[case] text: &str, #[case] expected: &str) {
    let error = parse(text).unwrap_err();
    assert!(error.contains(expected), "{error}");
    assert!(!error.contains(" at line"), "the line is there twice: {error}");
    assert!(!error.contains('\n'), "{error}");
}

#[rstest]
#[case::unknown_node(
    "events:\n- at: +1h\n  fault:\n    degradedNode:\n      node: worker-3\n",
    "s.yaml:5: events[0].fault.degradedNode.node: there is no node worker-3"
)]
#[case::odd_node(
    "events:\n- {at: +1h, fault: {lostNode: {node: worker-00}}}\n",
    "s.yaml:2: events[0].fault.lostNode.node: "
)]
#[case::unknown_pool(
    "events:\n- {at: +1h, fault: {degradedPool: {pool: infra}}}\n",
    "there is no pool infra; cluster.pools has master, worker"
)]
#[case::unknown_operator(
    "events:\n- {at: +1h, fault: {slowOperator: {operator: dns, by: 1h}}}\n",
    "there is no operator dns"
)]
#[case::ends_first(
    "events:\n- at: +3h\n  until: +2h\n  fault: {stalledAt: {percent: 1}}\n",
    "s.yaml:3: events[0].until: +2h is not after +3h"
)]
#[case::two_ends(
    "events:\n- {at: +3h, until: +4h, for: 1h, alert: {alertname: A}}\n",
    "events[0].for: is there besides until"
)]
#[case::nothing("\nevents:\n\n- at: +3h\n", "s.yaml:4: events[0]: says nothing")]
#[case::two_things(
    "events:\n- {at: +3h, clear: a, alert: {alertname: A}}\n",
    "says more than one of"
)]
#[case::once(
    "events:\n- {at: +3h, for: 1h, do: {restartOperator: {}}}\n",
    "events[0].for: is only for fault, alert and query"
)]
#[case::clears_nothing(
    "events:\n- {at: +3h, clear: a}\n",
    "events[0].clear: there is no event with name a"
)]
#[case::clears_too_soon(
    "events:\n- {at: +3h, clear: a}\n- {at: +4h, name: a, alert: {alertname: A}}\n",
    "a begins only then"
)]
#[case::named_twice(
    "events:\n- {at: +3h, name: a, alert: {alertname: A}}\n- {at: +4h, name: a, alert: {alertname: A}}\n",
    "s.yaml:3: events[1].name: a is there twice"
)]
#[case::away_for_ever("events:\n- {at: +3h, fault: {apiServerAway: {}}}\n", "has no end")]
#[case::percent(
    "events:\n- {at: +3h, fault: {stalledAt: {percent: 100}}}\n",
    "is not a percentage from 0 to 99"
)]
#[case::no_object(
    "events:\n- at: +3h\n  do:\n    apply:\n      kind: X\n",
    "s.yaml:5: events[0].do.apply.apiVersion: is missing"
)]
#[case::odd_object(
    "events:\n- at: +3h\n  do:\n    apply: {apiVersion: v1, kind: X, metadata: {name: x, labels: [1]}}\n",
    "s.yaml:4: events[0].do.apply: is no object"
)]
#[case::pool_twice(
    "cluster: {pools: [{name: master, machines: 3}, {name: master, machines: 3}]}",
    "s.yaml:1: cluster.pools[1].name: master is there twice"
)]
#[case::no_masters("cluster: {pools: [{name: worker, machines: 3}]}", "there is no pool master")]
#[case::too_many_masters(
    "cluster: {topology: SingleReplica, pools: [{name: master, machines: 3}]}",
    "exactly one machine"
)]
#[case::max_unavailable(
    "cluster: {pools: [{name: master, machines: 3, maxUnavailable: 10 %}]}",
    "maxUnavailable: is neither a number"
)]
#[case::release_twice(
    "updates: {releases: [{version: 4.18.4}, {version: 4.18.4}]}",
    "updates.releases[1].version: 4.18.4 is there twice"
)]
#[case::withdrawn_first(
    "updates:\n  releases:\n  - version: 4.18.4\n    from: +2d\n    until: +1d\n",
    "s.yaml:5: updates.releases[0].until"
)]
#[case::risk(
    "updates: {releases: [{version: 4.18.4, risks: [{name: Slow-Etcd}]}]}",
    "\"Slow-Etcd\" is no name of a risk"
)]
#[case::gate("updates: {adminGates: [{key: ack-4.18}]}", "updates.adminGates[0].key: ")]
#[case::hurry("updates: {every: 1s}", "updates.every: must be an hour at least")]
fn what_makes_no_sense_is_told_with_line_and_field(#[case] text: &str, #[case] expected: &str) {
    let error = parse(text).unwrap_err();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn all_that_makes_no_sense_is_told_at_once() {
    let error = parse("updates: {every: 1s}\nevents:\n- {at: +1h}\n- {at: +1h, clear: x}\n").unwrap_err();
    assert_eq!(error.matches("s.yaml:").count(), 3, "{error}");
}

const FAULTS: &str = "
events:
- {at: +1h, for: 1h, fault: {degradedNode: {node: worker-0, message: disk full}}}
- {at: +1h, name: op, fault: {degradedOperator: {operator: etcd, reason: NoQuorum, message: \"1 of\\n3\"}}}
- {at: +4h, clear: op}
- {at: +1h, for: 5h, fault: {failing: {flapping: 10m}}}
- {at: +1h, for: 5h, fault: {slowOperator: {operator: ingress, by: 90m}}}
- {at: +1h, for: 5h, fault: {stuckOperator: {operator: monitoring}}}
- {at: +1h, for: 5h, fault: {unavailableOperator: {operator: monitoring}}}
- {at: +1h, for: 5h, fault: {stalledAt: {percent: 80}}}
- {at: +1h, for: 5h, fault: {degradedPool: {pool: worker}}}
- {at: +1h, for: 5h, fault: {notReadyNode: {node: worker-1}}}
- {at: +1h, for: 5h, fault: {lostNode: {node: worker-2}}}
- {at: +1h, for: 5h, fault: {stuckDrain: {node: worker-2, pod: shop/db-0}}}
- {at: +1h, for: 5h, fault: {updateServiceAway: {}}}
- {at: +1h, for: 5h, fault: {notUpgradeable: {message: not now}}}
- {at: +1h, for: 5h, fault: {releaseRejected: {}}}
";

#[test]
fn faults_are_there_while_they_last() {
    let timeline = timeline(FAULTS);
    let healthy = controls(&timeline, hours(0));
    assert!(healthy.degraded_nodes.is_empty() && healthy.degraded_operators.is_empty());
    let sick = controls(&timeline, hours(1));
    assert_eq!(sick.degraded_nodes["worker-0"].message, "disk full");
    assert_eq!(sick.degraded_operators["etcd"].reason, "NoQuorum");
    assert_eq!(sick.degraded_operators["etcd"].message, "1 of 3");
    assert_eq!(sick.slow_operators["ingress"], SignedDuration::from_mins(90));
    assert!(sick.stuck_operators.contains_key("monitoring"));
    assert!(sick.unavailable_operators.contains_key("monitoring"));
    assert_eq!(sick.stall_at, Some(80));
    assert!(sick.degraded_pools.contains_key("worker"));
    assert!(sick.not_ready_nodes.contains_key("worker-1"));
    assert!(sick.lost_nodes.contains_key("worker-2"));
    assert_eq!(sick.stuck_drains["worker-2"].reason, "shop/db-0");
    assert_eq!(sick.update_service.as_ref().unwrap().reason, "RemoteFailed");
    assert_eq!(sick.not_upgradeable.as_ref().unwrap().message, "not now");
    assert!(sick.rejection("4.18.9").is_some());
    let later = controls(&timeline, hours(3));
    assert!(later.degraded_nodes.is_empty() && !later.degraded_operators.is_empty());
    assert!(controls(&timeline, hours(4)).degraded_operators.is_empty());
    assert_eq!(controls(&timeline, hours(6)), healthy);
    let mut due: Vec<Timestamp> = timeline
        .due(Timestamp::MIN, hours(6))
        .iter()
        .map(|due| due.at)
        .collect();
    // The pod and the budget of the stuck drain are due besides, at its begin and its end.
    assert_eq!(due.len(), 4 + 2 * 2);
    due.dedup();
    assert_eq!(due, [hours(1), hours(2), hours(4), hours(6)]);
    assert_eq!(timeline.next_due(hours(2)), Some(hours(4)));
}

#[test]
fn things_are_done_once_in_order_and_only_in_the_range() {
    let timeline = timeline(
        "
updates: {automatic: false}
events:
- {at: +3h, do: {restartOperator: {down: 5m, clockOffset: -2m}}}
- at: +1h
  do: {apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: y}, data: {a: b}}}
- at: +2h
  do: {patch: {apiVersion: v1, kind: Node, name: worker-0, merge: {spec: {unschedulable: true}}}}
- {at: +2h, do: {delete: {apiVersion: v1, kind: Node, name: worker-1}}}
- {at: +4h, do: {acknowledge: ack-4.18-x}}
- {at: +5h, for: 10m, fault: {apiServerAway: {}}}
- {at: \"2026-11-23T00:00:00Z\", do: {acknowledge: too-late}}
- {at: +91d, do: {acknowledge: too-soon}}
",
    );
    let kinds: Vec<String> = timeline
        .due(Timestamp::MIN, Timestamp::MAX)
        .iter()
        .map(|Due { at, happening }| {
            let what = match happening {
                Happening::Controls => "controls".to_owned(),
                Happening::Prometheus => "prometheus".to_owned(),
                Happening::ApiServerAway(until) => {
                    format!("away for {} s", until.duration_since(*at).as_secs())
                }
                Happening::Apply(object) => {
                    format!(
                        "apply {} {}",
                        object.metadata.name.clone().unwrap(),
                        object.data["data"]
                    )
                }
                Happening::Patch(object, merge) => format!("patch {} {merge}", object.name),
                Happening::Delete(object) => format!("delete {}", object.name),
                Happening::Strand(pod) => format!("strand {pod:?}"),
                Happening::Free(pod) => format!("free {pod:?}"),
                Happening::RestartOperator(r) => format!("restart {} {}", r.down, r.clock_offset),
            };
            format!("{}h {what}", at.duration_since(hours(0)).as_hours())
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "1h apply x {\"a\":\"b\"}",
            "2h patch worker-0 {\"spec\":{\"unschedulable\":true}}",
            "2h delete worker-1",
            "3h restart 5m -2m",
            "4h apply admin-acks {\"ack-4.18-x\":\"true\"}",
            "5h away for 600 s",
        ]
    );
    assert_eq!(timeline.due(hours(1), hours(2)).len(), 2);
    assert!(timeline.due(hours(2), hours(2)).is_empty());
    assert_eq!(
        timeline.api_server_away(hours(5)),
        Some(hours(5) + SignedDuration::from_mins(10))
    );
    assert_eq!(timeline.api_server_away(hours(6)), None);
    let warnings = timeline.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("events[6]") && warnings[0].contains("before the start"));
    assert!(warnings[1].contains("events[7]") && warnings[1].contains("after the end"));
}

#[test]
fn what_began_before_the_start_is_there_at_the_start() {
    let timeline = timeline(
        "
updates: {automatic: false}
events:
- {at: \"2026-11-23T00:00:00Z\", until: \"2026-11-24T02:00:00Z\", fault: {stalledAt: {percent: 5}}}
- {at: \"2026-11-23T00:00:00Z\", for: 1h, fault: {degradedNode: {node: worker-0}}}
",
    );
    assert_eq!(timeline.initial(false).controls["stall-at"], "5");
    let due: Vec<Timestamp> = timeline
        .due(Timestamp::MIN, Timestamp::MAX)
        .iter()
        .map(|d| d.at)
        .collect();
    assert_eq!(due, [hours(0), hours(2)]);
}

#[test]
fn an_end_before_the_beginning_is_told_when_the_start_is_known() {
    let scenario =
        parse("events:\n- {at: +3d, until: \"2026-11-25T00:00:00Z\", alert: {alertname: A}}\n").unwrap();
    let start = at(START);
    let error = Timeline::new(scenario, start, Timestamp::MAX, 1).unwrap_err();
    assert!(matches!(
        error,
        TimelineError::EndsBeforeItBegins { event: 0, .. }
    ));
    assert!(error.to_string().contains("events[0]"), "{error}");
}

#[test]
fn alerts_and_queries_are_answered_while_they_last() {
    let timeline = timeline(
        "
queries:
  etcd_slow: [{labels: {instance: a}, value: 3}]
events:
- {at: +1h, for: 1h, alert: {alertname: KubePodCrashLooping, labels: {namespace: shop}}}
- {at: +1h, for: 1h, alert: {alertname: Later, severity: warning, state: pending}}
- {at: +2h, for: 1h, query: {query: etcd_slow, result: []}}
- {at: +3h, for: 1h, query: {query: etcd_slow, error: timed out}}
- {at: +4h, for: 1h, fault: {prometheusAway: {}}}
",
    );
    let ask = |hour: i64, query: &str| {
        let encoded: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let now = hours(hour);
        let got = timeline
            .prometheus(now)
            .respond(&format!("/api/v1/query?query={encoded}"), "", now);
        (got.status, got.body["data"]["result"].as_array().map(Vec::len))
    };
    let critical = "ALERTS{alertstate=\"firing\",severity=\"critical\"}";
    assert_eq!(ask(0, critical), (200, Some(0)));
    assert_eq!(ask(1, critical), (200, Some(1)));
    assert_eq!(ask(1, "ALERTS{namespace=\"shop\"}"), (200, Some(1)));
    assert_eq!(ask(1, "ALERTS"), (200, Some(2)));
    assert_eq!(ask(2, critical), (200, Some(0)));
    assert_eq!(ask(1, "etcd_slow"), (200, Some(1)));
    assert_eq!(ask(2, "etcd_slow"), (200, Some(0)));
    assert_eq!(ask(3, "etcd_slow"), (422, None));
    assert_eq!(ask(4, critical), (503, None));
    assert_eq!(ask(5, "etcd_slow"), (200, Some(1)));
}

#[test]
fn releases_say_when_they_are_there_and_risks_come_and_go() {
    let timeline = timeline(
        "
updates:
  releases:
  - {version: 4.18.4}
  - version: 4.18.5
    from: +1d
    until: +9d
    channels: [fast-4.18]
    updatesFrom: [4.18.3, 4.18.4]
    risks: [{name: SlowEtcd, message: etcd may be slow, from: +2d, until: +3d}]
  adminGates: [{key: ack-4.18-api-removals, message: read the notes}]
",
    );
    let now = timeline.controls(hours(0));
    assert_eq!(
        now["releases"],
        "4.18.4\n4.18.5 since=2026-11-25T00:00:00Z until=2026-12-03T00:00:00Z channels=fast-4.18 from=4.18.3,4.18.4"
    );
    assert_eq!(now["admin-gates"], "ack-4.18-api-removals read the notes");
    assert!(!now.contains_key("risks") && !now.contains_key("always-an-update"));
    let risky = controls(&timeline, hours(48));
    assert_eq!(risky.graph.risks_of("4.18.5")[0].reason, "SlowEtcd");
    assert!(controls(&timeline, hours(72)).graph.risks_of("4.18.5").is_empty());
    let due: Vec<Timestamp> = timeline
        .due(Timestamp::MIN, Timestamp::MAX)
        .iter()
        .map(|d| d.at)
        .collect();
    assert_eq!(due, [hours(48), hours(72)]);
}

#[test]
fn hook_jobs_go_as_the_first_rule_that_fits_says() {
    let timeline = timeline(
        "
hookJobs:
- {hook: notify-*, outcome: Fails, from: +1d, until: +2d}
- {hook: \"*\", duration: 1m..5m}
",
    );
    let notify = |hour| timeline.hook_job("notify-chat", "job-1", hours(hour)).end;
    assert_eq!(
        [notify(0), notify(24), notify(48)],
        [End::Complete, End::Failed, End::Complete]
    );
    let long = |job| timeline.hook_job("backup", job, hours(0)).runs;
    assert!(long("a") >= SignedDuration::from_mins(1) && long("a") <= SignedDuration::from_mins(5));
    assert_ne!(long("a"), long("b"));
}

#[test]
fn pools_of_manifests_get_nodes_that_they_select() {
    let mut scenario = Scenario::default();
    let pool = |name: &str, labels: serde_json::Value| -> MachineConfigPool {
        let pool = json!({"metadata": {"name": name}, "spec": {"nodeSelector": {"matchLabels": labels}}});
        serde_json::from_value(pool).unwrap()
    };
    scenario.add_pools(&[
        pool("worker", json!({"own": "x"})),
        pool("gpu", json!({"hardware": "gpu"})),
    ]);
    let pools = scenario.cluster.pools();
    assert_eq!(pools.iter().map(|p| p.machines).collect::<Vec<_>>(), [3, 3, 2]);
    assert_eq!(pools[2].node_labels["hardware"], "gpu");
    assert!(
        pools[1].node_labels.is_empty(),
        "the scenario knows the pool already"
    );
}
