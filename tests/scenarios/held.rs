//! What is outside of the cluster's objects and keeps everything from being started, as a process meets it: a clock that is
//! wrong, and openshift-upgrade-controller at work. In simulated time: `simulator/two_operators.rs`.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use openshift_upgrade_operator::{
    api::UpgradeJob,
    leader::{LEASE, RETRY},
    outside::PEER_LEASE,
};
use serde_json::json;

use crate::{
    harness::{
        NAMESPACE, Scenario, assert_succeeded,
        audit::OPERATOR,
        condition, has, is_installed,
        objects::{hook, job},
        scenario, status, until,
    },
    leader::until_held_by,
};

const AN_HOUR: i64 = 3_600;

/// Waits until this Lease is renewed once more.
async fn until_renewed(api: &Api<Lease>, name: &str) {
    let renewed = async || api.get(name).await.ok()?.spec?.renew_time;
    let before = renewed().await;
    until(&format!("Lease {name} is renewed"), async || {
        renewed().await.filter(|t| Some(t) != before.as_ref())
    })
    .await;
}

/// Waits until the leader has renewed its Lease a few times: it was at work all the while.
async fn let_it_work(s: &Scenario) {
    let api: Api<Lease> = Api::namespaced(s.client.clone(), NAMESPACE);
    for _ in 0..3 {
        until_renewed(&api, LEASE).await;
    }
}

/// Creates a job that is due, and waits until it says that it is held for this reason; returns what it says.
async fn held_job(s: &Scenario, name: &str, reason: &str) -> String {
    s.create(&hook("at-start", &["Start"])).await;
    s.create(&job(name, Some("4.18.5"), json!({}))).await;
    let expected = format!("Held=True/{reason}");
    let is_held = |job: &UpgradeJob| condition(job, "Held") == expected;
    s.until_job(name, &expected, is_held).await;
    // It goes on to be passed over, also when it is touched.
    s.edit_job(name, json!({"metadata": {"annotations": {"touched": "true"}}}))
        .await;
    let_it_work(s).await;
    let job = s.job(name).await;
    assert!(is_held(&job) && has(&job, "Started").is_none(), "{job:#?}");
    has(&job, "Held").map(|c| c.message.clone()).unwrap_or_default()
}

/// Nothing but what is said of it, and the election, was written by `by`, which is a part of the program's name.
fn assert_only_said(s: &Scenario, by: &str) {
    let mut written = s.writes();
    written.retain(|w| w.user == OPERATOR && w.agent.contains(by));
    let is_said =
        |resource: &str| resource == "leases" || resource == "events" || resource.ends_with("/status");
    assert!(!written.is_empty());
    assert!(written.iter().all(|w| is_said(&w.resource)), "{written:#?}");
}

async fn assert_goes_on(s: &Scenario, name: &str) {
    let done = s.until_over(name).await;
    assert_succeeded(&done);
    assert_eq!(condition(&done, "Held"), "Held=False/NotHeld");
    assert_eq!(status(&done).hook_tracker.len(), 1);
    assert!(is_installed(&s.cluster_version().await, "4.18.5"));
    let desired = s.operators_writes();
    let desired = desired.iter().filter(|w| w.is_of_desired_update()).count();
    assert_eq!(desired, 1, "writes of desiredUpdate");
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn an_operator_whose_clock_is_an_hour_ahead_starts_nothing_and_says_so() {
    scenario(&["--identity", "right"], async |s| {
        until_held_by(s, "right").await;
        let mut wrong = s.another_operator_ahead(AN_HOUR, &["--identity", "wrong"]).await;
        s.kill_operator();
        until_held_by(s, "wrong").await;
        let message = held_job(s, "ahead", "ClockSkew").await;
        assert!(
            message.contains("ahead of that of the API server") && message.contains("chronyd"),
            "{message}"
        );
        assert_only_said(s, "(wrong)");
        wrong.kill();
        s.start_operator();
        assert_goes_on(s, "ahead").await;
        assert_only_said(s, "(wrong)");
    })
    .await;
}

/// Renews the Lease of openshift-upgrade-controller as that does, until the task is aborted.
async fn be_the_peer(client: Client) {
    let api: Api<Lease> = Api::namespaced(client, "default");
    let as_it_does = PatchParams::apply("controller-0").force();
    loop {
        let now = jiff::Timestamp::now();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": PEER_LEASE},
            "spec": {"holderIdentity": "controller-0", "leaseDurationSeconds": 15, "renewTime": format!("{now:.6}")},
        });
        api.patch(PEER_LEASE, &as_it_does, &Patch::Apply(&lease))
            .await
            .expect("renewing the Lease of openshift-upgrade-controller");
        tokio::time::sleep(RETRY).await;
    }
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn while_the_peer_renews_its_lease_nothing_is_started_and_that_is_said() {
    scenario(&["--identity", "before"], async |s| {
        // One that starts beside it knows from the first moment on.
        s.kill_operator();
        let peer = tokio::spawn(be_the_peer(s.client.clone()));
        let api: Api<Lease> = Api::namespaced(s.client.clone(), "default");
        until("the peer has its Lease", async || api.get(PEER_LEASE).await.ok()).await;
        s.start_operator();
        let message = held_job(s, "beside", "PeerAtWork").await;
        let expected = format!("controller-0 renews Lease default/{PEER_LEASE}");
        assert!(message.contains(&expected), "{message}");
        assert_only_said(s, "");
        // It goes right after it has renewed its Lease, however slow it was before.
        until_renewed(&api, PEER_LEASE).await;
        peer.abort();
        let began = std::time::Instant::now();
        let started = |job: &UpgradeJob| has(job, "Started").is_some();
        s.until_job("beside", "it has started", started).await;
        assert!(
            began.elapsed() > Duration::from_secs(10),
            "its Lease was still valid"
        );
        assert_goes_on(s, "beside").await;
    })
    .await;
}
