//! Two operators at once, by accident: never two writers, by the API server's own record.

use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use openshift_upgrade_operator::leader::LEASE;
use serde_json::json;

use crate::harness::{
    NAMESPACE, NIGHT, Scenario, assert_succeeded,
    audit::OPERATOR,
    creations, history, is_installed, is_owned, is_updated, lock,
    objects::{hold_night, hook, job},
    process::Process,
    scenario, until,
};

const EVENTS: [&str; 3] = ["Start", "UpgradeComplete", "Finish"];
/// Longest time without a leader, in seconds.
const TAKEOVER: u64 = 20;

/// Who holds the Lease; nobody at first.
pub async fn holder(s: &Scenario) -> String {
    let api: Api<Lease> = Api::namespaced(s.client.clone(), NAMESPACE);
    let lease = api.get_opt(LEASE).await.expect("reading the Lease");
    lease.and_then(|l| l.spec?.holder_identity).unwrap_or_default()
}

pub async fn until_held_by(s: &Scenario, name: &str) {
    until(&format!("{name} holds the Lease"), async || {
        (holder(s).await == name).then_some(())
    })
    .await;
}

/// Who wrote, in turns: the same one twice has had two turns. Leases are not meant: they are how it is found out.
fn turns(s: &Scenario) -> Vec<String> {
    let mut writes = s.writes();
    writes.retain(|w| w.user == OPERATOR && w.resource != "leases");
    writes.sort_by_key(|w| w.at);
    let name = |agent: &str| Some(agent.split_once('(')?.1.trim_end_matches(')').to_owned());
    let mut turns: Vec<String> = writes.iter().filter_map(|w| name(&w.agent)).collect();
    turns.dedup();
    turns
}

/// An upgrade with operators `one`, which leads, and `two`; `happens` to the first one in mid-run.
async fn upgrade_by_two(happens: impl AsyncFnOnce(&mut Scenario)) {
    scenario(&["--identity", "one"], async |s| {
        until_held_by(s, "one").await;
        let two = s.another_operator(&["--identity", "two"]).await;
        for event in EVENTS {
            s.create(&hook(&format!("at-{}", event.to_lowercase()), &[event]))
                .await;
        }
        let config = json!({"machineConfigPools": hold_night("1s", Some("1h"))});
        s.create(&job("two", Some("4.18.5"), config)).await;
        s.until_step_runs("two", "await-control-plane").await;
        assert_eq!(turns(s), ["one"], "before anything happens");
        let began = Instant::now();
        happens(s).await;
        until_held_by(s, "two").await;
        let seconds = began.elapsed().as_secs();
        assert!(seconds <= TAKEOVER, "nobody held the Lease for {seconds} s");
        assert_done_once(s, &two).await;
    })
    .await;
}

async fn assert_done_once(s: &mut Scenario, two: &Process) {
    // Whoever was frozen goes on in the middle of whatever it was doing.
    if s.is_operator_there() {
        s.operator().signal("CONT");
    } else {
        s.start_operator();
    }
    let done = s.until_over("two").await;
    assert_succeeded(&done);
    let cluster = s.cluster_version().await;
    assert!(is_installed(&cluster, "4.18.5"));
    assert_eq!(
        (history(&cluster), lock(&cluster)),
        (vec!["4.18.5", "4.18.3"], None)
    );
    let night = s.pool(NIGHT).await;
    assert!(
        !night.spec.paused && !is_owned(&night) && is_updated(&night),
        "{night:#?}"
    );
    let writes = s.operators_writes();
    let created = |resource: &str| creations(&writes, resource).count();
    assert_eq!((created("workflows"), created("jobs")), (1, EVENTS.len()));
    let desired = writes.iter().filter(|w| w.is_of_desired_update()).count();
    assert_eq!(desired, 1, "writes of desiredUpdate");
    assert_eq!(turns(s), ["one", "two"]);
    assert_eq!(holder(s).await, "two", "who comes back follows");
    assert!(
        !two.output().contains("panicked at"),
        "the second operator panicked"
    );
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn of_two_operators_one_writes_and_the_other_carries_on_when_it_is_killed() {
    upgrade_by_two(async |s| s.kill_operator()).await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn an_operator_that_was_frozen_past_its_lease_writes_nothing_more() {
    upgrade_by_two(async |s| s.operator().signal("STOP")).await;
}
