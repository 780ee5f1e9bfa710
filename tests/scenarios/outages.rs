//! Parts of the control plane are away in mid-run.

use std::time::Duration;

use openshift_upgrade_operator::api::upgrade_job::StepPhase;
use serde_json::json;

use crate::harness::{
    NIGHT, Scenario, assert_succeeded, creations, has, is_installed, is_owned, is_updated, lock,
    objects::{hold_night, hook, job},
    scenario, status,
};

/// How long the API server is away: the outage itself, not a wait for something.
const OUTAGE: Duration = Duration::from_secs(30);

async fn assert_done_once(s: &Scenario, name: &str) {
    let done = s.until_over(name).await;
    assert_succeeded(&done);
    assert!(has(&done, "Failed").is_none());
    let cluster = s.cluster_version().await;
    assert!(is_installed(&cluster, "4.18.5"));
    assert_eq!(lock(&cluster), None);
    let night = s.pool(NIGHT).await;
    assert!(
        is_updated(&night) && !night.spec.paused && !is_owned(&night),
        "{night:#?}"
    );
    let writes = s.operators_writes();
    let count = |resource: &str| creations(&writes, resource).count();
    assert_eq!(
        (count("workflows"), count("jobs")),
        (1, 3),
        "workflows and Jobs of hooks"
    );
    assert_eq!(
        writes.iter().filter(|w| w.is_of_desired_update()).count(),
        1,
        "writes of desiredUpdate"
    );
    assert_eq!(
        writes.iter().filter(|w| w.pauses() == Some(true)).count(),
        1,
        "pauses"
    );
    assert_eq!(
        writes.iter().filter(|w| w.pauses() == Some(false)).count(),
        1,
        "unpauses"
    );
}

async fn create(s: &Scenario, name: &str) {
    for event in ["Start", "UpgradeComplete", "Finish"] {
        s.create(&hook(&format!("at-{}", event.to_lowercase()), &[event]))
            .await;
    }
    s.create(&job(
        name,
        Some("4.18.5"),
        json!({"machineConfigPools": hold_night("1s", None)}),
    ))
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn an_api_server_that_is_away_in_mid_run_delays_the_upgrade_and_nothing_else() {
    scenario(&[], async |s| {
        create(s, "outage").await;
        s.until_step_runs("outage", "await-control-plane").await;
        s.lane.component("kill", "apiserver").await;
        tokio::time::sleep(OUTAGE).await;
        s.lane.component("start", "apiserver").await;
        assert_done_once(s, "outage").await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn argo_that_is_away_in_mid_run_delays_the_upgrade_and_nothing_else() {
    scenario(&[], async |s| {
        create(s, "outage").await;
        s.until_step_runs("outage", "await-control-plane").await;
        s.lane.component("kill", "argo").await;
        s.until_cluster_version("4.18.5 is installed", |c| is_installed(c, "4.18.5"))
            .await;
        // The step is the operator's: it ends although Argo is away.
        s.until_job("outage", "await-control-plane has ended", |j| {
            status(j)
                .steps
                .iter()
                .any(|x| x.name == "await-control-plane" && x.phase == StepPhase::Succeeded)
        })
        .await;
        s.lane.component("start", "argo").await;
        assert_done_once(s, "outage").await;
    })
    .await;
}
