//! Health checks with a real Prometheus: what holds an upgrade, and what is said when nobody can tell.

use openshift_upgrade_operator::api::{UpgradeJob, upgrade_job::StepPhase};
use serde_json::json;

use crate::harness::{
    Scenario, assert_succeeded, desired, monitoring::Monitoring, objects::job, scenario, status,
};

const CHECK: &str = "pre-health-check";

/// The message of the check that the job waits at.
fn message(job: &UpgradeJob) -> String {
    let steps = status(job).steps;
    let step = steps.iter().find(|s| s.name == CHECK);
    let running = step.filter(|s| s.phase == StepPhase::Running);
    running.and_then(|s| s.message.clone()).unwrap_or_default()
}

/// Waits until the check says this.
async fn until_said(s: &Scenario, job: &str, part: &str) -> String {
    let what = format!("{CHECK} says {part:?}");
    message(&s.until_job(job, &what, |j| message(j).contains(part)).await)
}

/// Runs a scenario whose operator asks this Prometheus, with these alerts firing.
async fn monitored(firing: &[&'static str], test: impl AsyncFnOnce(&mut Scenario, &mut Monitoring)) {
    let mut monitoring = Monitoring::new().await;
    let flags = monitoring.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    scenario(&flags, async |s| {
        monitoring.start(&s.lane, firing).await;
        test(s, &mut monitoring).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_critical_alert_holds_the_upgrade_until_it_resolves_and_excluded_ones_never() {
    let excluded = ["KubePodCrashLooping", "WebhookDown"];
    let firing = ["KubeAPIDown", excluded[0], excluded[1]];
    monitored(&firing, async |s, monitoring| {
        let checks = json!({
            "checkCriticalAlerts": true,
            "excludeAlerts": [{"alertname": "KubePodCrashLooping"}],
            "excludeNamespaces": ["openshift-console"],
            "customQueries": [{"query": "up{job=\"target\"} != 1"}],
        });
        let config = json!({"preUpgradeHealthChecks": checks, "postUpgradeHealthChecks": checks});
        s.create(&job("alerted", Some("4.18.5"), config)).await;
        let expected = "not healthy: critical alert KubeAPIDown in openshift-kube-apiserver; waiting until";
        let said = until_said(s, "alerted", expected).await;
        assert!(said.starts_with(expected), "{said}");
        s.until_workflow("alerted-run-1", "shows the alert", |w| {
            let nodes = w.data["status"]["nodes"].as_object();
            nodes.is_some_and(|all| {
                all.values().any(|n| {
                    n["message"]
                        .as_str()
                        .is_some_and(|m| m.contains("critical alert KubeAPIDown in openshift-kube-apiserver"))
                })
            })
        })
        .await;
        assert_eq!(desired(&s.cluster_version().await), None);

        monitoring.trouble(&excluded).await;
        let done = s.until_over("alerted").await;
        assert_succeeded(&done);
        let check = status(&done).steps.into_iter().find(|s| s.name == CHECK).unwrap();
        assert_eq!(check.message.as_deref(), Some("healthy"));
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn every_trouble_with_prometheus_reads_clearly_and_holds_the_upgrade() {
    monitored(&[], async |s, monitoring| {
        let mut number = 0;
        // A query that nobody has asked yet is asked at once.
        let mut new_query = move || {
            number += 1;
            format!("vector(0) > {number}")
        };
        let checks = |query: &str| json!({"checkCriticalAlerts": false, "customQueries": [{"query": query}]});
        let edit = async |query: &str| {
            let patch = json!({"spec": {"config": {"preUpgradeHealthChecks": checks(query)}}});
            s.edit_job("troubled", patch).await;
        };
        let broken = "up{job=";
        let config = json!({"preUpgradeHealthChecks": checks(broken)});
        s.create(&job("troubled", Some("4.18.5"), config)).await;
        let said = until_said(s, "troubled", "cannot tell").await;
        assert!(
            said.contains("cannot tell about query up{job=: Prometheus at https://"),
            "{said}"
        );
        assert!(said.contains(" finds the query wrong: "), "{said}");
        assert!(said.contains("parse error"), "{said}");

        edit("up{job=\"target\"}").await;
        until_said(
            s,
            "troubled",
            "query up{job=\"target\"} finds 1 result: {__name__=\"up\"",
        )
        .await;
        edit("up[5m]").await;
        until_said(
            s,
            "troubled",
            "answers the query with a matrix; it must give a vector",
        )
        .await;
        edit("scalar(up)").await;
        until_said(
            s,
            "troubled",
            "answers the query with a scalar; it must give a vector",
        )
        .await;

        monitoring.want_token("better");
        edit(&new_query()).await;
        until_said(s, "troubled", "refuses our token (401): Unauthorized").await;
        monitoring.give_token("better\n");

        monitoring.flood(true);
        edit(&new_query()).await;
        until_said(
            s,
            "troubled",
            "answers with more than 5 MiB: make the query narrower",
        )
        .await;
        monitoring.flood(false);

        monitoring.close().await;
        edit(&new_query()).await;
        until_said(
            s,
            "troubled",
            "cannot be reached: Connection refused (os error 111)",
        )
        .await;

        monitoring.open_as_a_stranger().await;
        edit(&new_query()).await;
        let said = until_said(s, "troubled", "does not vouch for").await;
        assert!(
            said.contains("ca.crt (--prometheus-ca-file) does not vouch for: invalid peer certificate"),
            "{said}"
        );
        monitoring.close().await;
        assert_eq!(desired(&s.cluster_version().await), None);

        // It is asked again by itself.
        monitoring.open().await;
        assert_succeeded(&s.until_over("troubled").await);
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn without_a_prometheus_a_check_that_was_asked_for_blocks() {
    scenario(&[], async |s| {
        let config = json!({"preUpgradeHealthChecks": {"checkCriticalAlerts": true}});
        s.create(&job("unmonitored", Some("4.18.5"), config)).await;
        let said = until_said(s, "unmonitored", "cannot tell about critical alerts").await;
        assert!(
            said.contains("give it --prometheus-url, or take the check out"),
            "{said}"
        );
        let off = json!({"spec": {"config": {"preUpgradeHealthChecks": {"checkCriticalAlerts": null}}}});
        s.edit_job("unmonitored", off).await;
        assert_succeeded(&s.until_over("unmonitored").await);
    })
    .await;
}
