//! Faults, with the durations that OpenShift's books state.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use kube::ResourceExt;
use rstest::rstest;

use super::{
    super::{node_update, *},
    Fake, is_completed, is_updated,
};
use crate::openshift::{StatusCondition, condition, is_true, node::STATE};

/// 3 masters, 2 workers; 4.18.5 is offered.
const SCENARIO: &str = "
cluster:
  pools: [{name: master, machines: 3}, {name: worker, machines: 2}]
updates: {releases: [{version: 4.18.5}, {version: 4.19.1}]}
";

fn upgrading() -> Fake {
    let mut fake = Fake::of_scenario(SCENARIO, 1);
    fake.want_version("4.18.5");
    fake
}

fn failing(fake: &Fake) -> (String, String) {
    let version = fake.version().unwrap();
    let failing = condition(version.conditions(), "Failing").unwrap();
    (failing.status.clone(), failing.reason.clone().unwrap_or_default())
}

fn is_current(operator: &'static str) -> impl Fn(&Cluster) -> bool {
    move |cluster| {
        let found = cluster.operators.iter().find(|o| o.name_any() == operator);
        found.is_some_and(|o| is_true(o.conditions(), "Progressing"))
    }
}

fn node<'a>(fake: &'a Fake, name: &str) -> &'a Node {
    let mut nodes = fake.cluster.nodes.iter();
    nodes.find(|n| n.name_any() == name).unwrap()
}

fn pool_condition(fake: &Fake, pool: &str, type_: &str) -> StatusCondition {
    condition(fake.pool(pool).conditions(), type_).unwrap().clone()
}

#[test]
fn an_upgrade_takes_as_long_as_the_books_say_and_the_same_for_the_same_seed() {
    let took = |seed| {
        let mut fake = Fake::of_scenario(SCENARIO, seed);
        let start = fake.now;
        fake.want_version("4.18.5");
        fake.until("4h", |c| is_completed(c, "4.18.5") && is_updated(c, "worker"));
        fake.now.duration_since(start)
    };
    let all: Vec<SignedDuration> = (0..10).map(took).collect();
    // 60 to 120 minutes for the operators, 3 masters of 5 to 10 minutes one after the other, 1 to 3 to retrieve.
    let range = SignedDuration::from_mins(60 + 15 + 1)..=SignedDuration::from_mins(120 + 30 + 3);
    assert!(all.iter().all(|d| range.contains(d)), "{all:?}");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 10, "{all:?}");
    assert_eq!(all, (0..10).map(took).collect::<Vec<_>>());
}

#[test]
fn nobody_is_woken_for_a_cluster_at_rest() {
    let mut fake = upgrading();
    fake.until("4h", |c| is_completed(c, "4.18.5") && is_updated(c, "worker"));
    assert_eq!(fake.settle(), None);
}

#[test]
fn a_slow_operator_makes_failing_unknown_after_half_an_hour_and_the_upgrade_completes() {
    let mut fake = upgrading();
    fake.control("slow-operators", "ingress 1h");
    fake.until("3h", is_current("ingress"));
    fake.pass("29m");
    assert_eq!(failing(&fake), ("False".to_owned(), String::new()));
    fake.pass("2m");
    assert_eq!(
        failing(&fake),
        ("Unknown".to_owned(), "SlowClusterOperator".to_owned())
    );
    assert!(
        fake.progressing()
            .ends_with("waiting on ingress over 30 minutes which is longer than expected"),
        "{}",
        fake.progressing()
    );
    fake.until("4h", |c| is_completed(c, "4.18.5"));
    assert_eq!(failing(&fake), ("False".to_owned(), String::new()));
}

#[test]
fn a_degraded_operator_makes_the_upgrade_fail_after_40_minutes_until_it_is_well() {
    let mut fake = upgrading();
    fake.until("3h", is_current("monitoring"));
    fake.control("degraded-operators", "etcd EtcdMembers_Degraded no quorum");
    fake.pass("39m");
    assert_eq!(failing(&fake).0, "False");
    assert!(
        fake.progressing().ends_with("waiting up to 40 minutes on etcd"),
        "{}",
        fake.progressing()
    );
    fake.pass("2m");
    assert_eq!(
        failing(&fake),
        ("True".to_owned(), "ClusterOperatorDegraded".to_owned())
    );
    assert_eq!(
        fake.progressing(),
        "Unable to apply 4.18.5: Cluster operator etcd is degraded"
    );
    fake.control("degraded-operators", "");
    fake.until("4h", |c| is_completed(c, "4.18.5"));
}

#[test]
fn an_unavailable_operator_makes_the_upgrade_fail_at_once() {
    let mut fake = upgrading();
    fake.until("3h", is_current("ingress"));
    fake.control("unavailable-operators", "ingress");
    fake.settle();
    assert_eq!(
        failing(&fake),
        ("True".to_owned(), "ClusterOperatorNotAvailable".to_owned())
    );
}

#[test]
fn a_stuck_operator_holds_the_upgrade_and_looks_healthy() {
    let mut fake = upgrading();
    fake.control("stuck-operators", "ingress Waiting for the router");
    fake.pass("5h");
    assert!(!is_completed(&fake.cluster, "4.18.5"));
    let ingress = fake.cluster.operators.iter().find(|o| o.name_any() == "ingress");
    let conditions = ingress.unwrap().conditions();
    assert!(is_true(conditions, "Available") && !is_true(conditions, "Degraded"));
    let told = condition(conditions, "Progressing").unwrap().message.clone();
    assert_eq!(told.as_deref(), Some("Working towards 4.18.5: for the router"));
    fake.control("stuck-operators", "");
    fake.until("3h", |c| is_completed(c, "4.18.5"));
}

#[test]
fn failing_comes_and_goes_by_itself() {
    let mut fake = upgrading();
    fake.control("failing", "MultipleErrors now and then");
    fake.control("failing-period", "10m");
    let mut changes = 0;
    let (mut last, start) = (String::new(), fake.now);
    while fake.now < later(start, SignedDuration::from_hours(1)) {
        fake.pass("1m");
        let now = failing(&fake).0;
        changes += usize::from(now != last);
        last = now;
    }
    assert!((11..=13).contains(&changes), "{changes}");
    fake.until("4h", |c| is_completed(c, "4.18.5"));
}

#[test]
fn a_drain_that_is_stuck_degrades_the_node_after_an_hour_and_goes_on_when_it_can() {
    let mut fake = upgrading();
    fake.control("stuck-drains", "worker-0 shop/db-0");
    fake.until("3h", |c| is_completed(c, "4.18.5"));
    let stuck = node(&fake, "worker-0");
    assert_eq!(stuck.spec.as_ref().unwrap().unschedulable, Some(true));
    fake.pass("90m");
    assert_eq!(annotation(node(&fake, "worker-0"), STATE), "Degraded");
    let told = pool_condition(&fake, "worker", "NodeDegraded").message.unwrap();
    assert!(
        told.contains("failed to drain node: worker-0 after 1h. Please see"),
        "{told}"
    );
    assert!(is_true(fake.pool("worker").conditions(), "Degraded"));
    assert_eq!(
        annotation(node(&fake, "worker-1"), STATE),
        "Done",
        "one at a time"
    );
    fake.control("stuck-drains", "");
    fake.until("1h", |c| is_updated(c, "worker"));
    assert!(!is_true(fake.pool("worker").conditions(), "Degraded"));
    assert_eq!(fake.away["worker"], 1);
}

#[test]
fn a_lost_node_is_not_ready_until_it_is_found() {
    let mut fake = upgrading();
    fake.control("lost-nodes", "worker-0 KernelPanic not syncing");
    fake.until("3h", |c| is_completed(c, "4.18.5"));
    fake.pass("12h");
    let lost = node(&fake, "worker-0");
    let ready = lost.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let ready = ready.iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.message.as_deref()),
        ("Unknown", Some("not syncing"))
    );
    let status = fake.pool("worker").state();
    assert_eq!(
        (status.updated_machine_count, status.unavailable_machine_count),
        (0, 1)
    );
    assert!(is_true(&status.conditions, "Updating") && !is_true(&status.conditions, "Degraded"));
    fake.control("lost-nodes", "");
    fake.until("30m", |c| is_updated(c, "worker"));
    assert!(node_update::is_available(node(&fake, "worker-0")));
}

#[test]
fn a_pool_that_cannot_be_rendered_stays_where_it_is() {
    let mut fake = upgrading();
    fake.control("degraded-pools", "worker BadConfig conflicting files");
    fake.until("3h", |c| is_completed(c, "4.18.5"));
    fake.pass("5h");
    let render = pool_condition(&fake, "worker", "RenderDegraded");
    assert_eq!(
        (render.status.as_str(), render.message.as_deref()),
        ("True", Some("conflicting files"))
    );
    assert!(is_true(fake.pool("worker").conditions(), "Degraded"));
    let versions: Vec<&str> = fake
        .cluster
        .machine_configs
        .iter()
        .filter(|c| c.name_any() == fake.pool("worker").spec.configuration.name)
        .map(|c| c.annotations()[crate::openshift::machine_config::RELEASE_VERSION].as_str())
        .collect();
    assert_eq!(versions, ["4.18.3"]);
    fake.control("degraded-pools", "");
    fake.until("1h", |c| {
        is_updated(c, "worker")
            && c.pools
                .iter()
                .all(|p| is_updated(c, &p.name_any()) && !is_true(p.conditions(), "Degraded"))
    });
}

/// Passes the whole upgrade and notes when the API server was away: how often, and for how long together.
fn away_during_the_upgrade(fake: &mut Fake) -> (usize, SignedDuration) {
    let (mut times, mut away) = (0, SignedDuration::ZERO);
    loop {
        let wake = fake.settle();
        let step = next(&fake.cluster, fake.now, &fake.settings);
        if let Some(back) = step.api_server_back_at {
            assert!(step.writes.is_empty(), "a write to an API server that is away");
            assert_eq!(step.wake_at, Some(back));
            times += 1;
            away += back.duration_since(fake.now);
            fake.now = back;
            continue;
        }
        if is_completed(&fake.cluster, "4.18.5") && is_updated(&fake.cluster, "master") {
            return (times, away);
        }
        fake.now = wake.unwrap();
    }
}

#[test]
fn the_api_server_is_away_in_the_middle_of_its_own_update() {
    let scenario = format!("{SCENARIO}\napiServerAwayDuringUpdate: 90s\n");
    let mut fake = Fake::of_scenario(&scenario, 1);
    fake.want_version("4.18.5");
    assert_eq!(
        away_during_the_upgrade(&mut fake),
        (1, SignedDuration::from_secs(90))
    );
}

#[test]
fn a_single_node_is_not_drained_and_takes_the_api_server_with_it() {
    let mut fake = Fake::of_scenario(
        "cluster: {topology: SingleReplica}\nupdates: {releases: [{version: 4.18.5}]}\n",
        1,
    );
    fake.add_pod("web", "master-0", "ReplicaSet");
    fake.want_version("4.18.5");
    let (times, away) = away_during_the_upgrade(&mut fake);
    assert_eq!(times, 1);
    let reboot = SignedDuration::from_mins(5) * 3 / 4..=SignedDuration::from_mins(10) * 3 / 4;
    assert!(reboot.contains(&away), "{away:?}");
    assert_eq!(fake.evictions, Vec::<String>::new());
}

#[rstest]
#[case::one_at_a_time("1", 40, 1)]
#[case::a_tenth("\"10%\"", 10, 4)]
fn a_big_pool_goes_in_waves(#[case] limit: &str, #[case] waves: i32, #[case] most: usize) {
    let scenario = format!(
        "
cluster:
  pools:
  - {{name: master, machines: 3}}
  - {{name: worker, machines: 40, maxUnavailable: {limit}}}
durations: {{node: 10m}}
updates: {{releases: [{{version: 4.18.5}}]}}
"
    );
    let mut fake = Fake::of_scenario(&scenario, 1);
    fake.want_version("4.18.5");
    fake.until("3h", |c| {
        c.nodes
            .iter()
            .any(|n| annotation(n, STATE) == "Working" && n.name_any().starts_with("worker"))
    });
    let start = fake.now;
    fake.until("8h", |c| is_updated(c, "worker"));
    assert_eq!(
        fake.now.duration_since(start),
        SignedDuration::from_mins(10) * waves
    );
    assert_eq!(fake.away["worker"], most);
}
