//! Health checks that rest on Prometheus: what is asked when, and what comes of the answers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    bench::Bench,
    fixtures::{at, job},
};
use crate::{
    health::{
        answers::{Answer, Answers, Sample, Vector},
        prometheus::{ALERTS_SINCE, CRITICAL_ALERTS},
    },
    steps::Action,
};

/// A job that checks critical alerts before and after, and holds pool `night` from minute 30 on.
fn checked() -> Bench {
    let checks = json!({"checkCriticalAlerts": true});
    let config = json!({
        "preUpgradeHealthChecks": checks, "postUpgradeHealthChecks": checks,
        "machineConfigPools": [{"matchLabels": {"name": "night"}, "delayUpgrade": {"delayMin": "30m"}}],
    });
    let mut bench = Bench::new(job("j", json!({"spec": {"config": config}})));
    bench.answers = Answers::Known(BTreeMap::new());
    bench
}

fn is_asked(bench: &Bench) -> bool {
    !bench.decide().asks.is_empty()
}

/// Settles at `now` with a Prometheus that answers every question at once: these alerts fire.
fn settle(bench: &mut Bench, now: i64, firing: &[&str]) {
    bench.now = now;
    for _ in 0..200 {
        let asks = bench.decide().asks;
        if asks.is_empty() && !bench.pass() {
            return;
        }
        let Answers::Known(known) = &mut bench.answers else {
            panic!("somebody is there to be asked");
        };
        for query in asks {
            let said = Ok(vector(&query, firing));
            known.insert(query, Answer { at: at(now), said });
        }
    }
    panic!("no end of questions");
}

fn vector(query: &str, firing: &[&str]) -> Vector {
    let labels: fn(&str) -> Value = match query {
        CRITICAL_ALERTS => |name| json!({"alertname": name, "alertstate": "firing", "severity": "critical"}),
        ALERTS_SINCE => |name| json!({"alertname": name, "severity": "critical"}),
        other => panic!("nobody configured {other}"),
    };
    let samples = firing.iter().map(|name| Sample {
        labels: serde_json::from_value(labels(name)).unwrap(),
        value: "1800000000".into(),
    });
    Vector {
        samples: samples.collect(),
        ..Vector::default()
    }
}

fn message(bench: &Bench, step: &str) -> String {
    bench.step(step).unwrap().message.unwrap_or_default()
}

#[test]
fn an_alert_holds_the_upgrade_until_it_resolves() {
    let mut bench = checked();
    bench.settle_at(10);
    assert_eq!(
        message(&bench, "pre-health-check").split("; waiting").next(),
        Some("asking Prometheus"),
        "without an answer nothing begins"
    );
    assert!(is_asked(&bench));

    settle(&mut bench, 11, &["KubeAPIDown"]);
    assert!(
        message(&bench, "pre-health-check")
            .starts_with("not healthy: critical alert KubeAPIDown; waiting until"),
        "{}",
        bench.message()
    );
    let again = bench.decide().wake_at.unwrap();
    assert_eq!(again, at(11 + 30), "it looks again when the answer has aged");
    bench.now = 40;
    assert!(!is_asked(&bench), "Prometheus is not asked all the time");

    settle(&mut bench, 41, &[]);
    assert_eq!(message(&bench, "pre-health-check"), "healthy");
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 1);
}

#[test]
fn a_prometheus_that_never_says_anything_good_fails_the_check_at_its_timeout() {
    let mut bench = checked();
    settle(&mut bench, 10, &["KubeAPIDown"]);
    settle(&mut bench, 10 + 3599, &["KubeAPIDown"]);
    assert_eq!(bench.is_true("Failed"), None);
    // An answer from before the deadline does not fail the job: it asks once more.
    bench.settle_at(10 + 3630);
    assert_eq!(bench.is_true("Failed"), None, "{}", bench.message());
    settle(&mut bench, 10 + 3630, &["KubeAPIDown"]);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("PreHealthCheckFailed"));
    assert!(
        bench.message().contains("critical alert KubeAPIDown"),
        "{}",
        bench.message()
    );
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 0);
}

#[test]
fn prometheus_is_asked_only_while_a_check_is_due() {
    let mut bench = checked();
    bench.settle_at(-600);
    assert!(!is_asked(&bench), "before the start");
    settle(&mut bench, 10, &[]);
    bench.accept();
    bench.settle_at(600);
    assert!(!is_asked(&bench), "while the control plane is upgraded");
    bench.complete();
    settle(&mut bench, 660, &[]);
    assert_eq!(message(&bench, "post-health-check"), "healthy");
    bench.settle_at(1200);
    assert!(!is_asked(&bench), "while a pool is held for its time");
    assert_eq!(bench.decide().wake_at, Some(at(1800)));

    settle(&mut bench, 1800, &["CanaryBroke"]);
    assert!(bench.world.pool("night").unwrap().spec.paused);
    let held = message(&bench, "hold-night");
    assert!(
        held.starts_with("not healthy: critical alert CanaryBroke; its nodes"),
        "{held}"
    );
    assert_eq!(bench.decide().wake_at, Some(at(1830)), "without a limit too");
    settle(&mut bench, 1830, &[]);
    assert!(!bench.world.pool("night").unwrap().spec.paused);
}

#[test]
fn a_suspended_workflow_asks_nothing_and_is_not_busy() {
    let mut bench = checked();
    bench.settle_at(10);
    bench.workflow.as_mut().unwrap().1.suspended = true;
    bench.settle_at(11);
    let decision = bench.decide();
    assert!(decision.asks.is_empty());
    assert_eq!(decision.wake_at, Some(at(10 + 3600)), "the timeout of the check");
}

#[test]
fn failing_for_a_moment_does_not_fail_a_job_and_failing_for_longer_does() {
    let mut bench = Bench::new(job("j", json!({})));
    let fail = |bench: &mut Bench, since: i64| {
        bench.condition("Failing", "True", "etcd is slow");
        let cluster = bench.world.cluster_version.as_mut().unwrap();
        let conditions = &mut cluster.status.as_mut().unwrap().conditions;
        let failing = conditions.iter_mut().find(|c| c.type_ == "Failing").unwrap();
        failing.last_transition_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(since)));
    };
    fail(&mut bench, 3600);
    bench.settle_at(10);
    bench.settle_at(10 + 3600);
    assert_eq!(
        bench.is_true("Failed"),
        None,
        "it fails for 10 s only: {}",
        bench.message()
    );
    assert_eq!(bench.decide().wake_at, Some(at(3720)), "when it counts");
    // It comes and goes: that buys two minutes, once.
    fail(&mut bench, 3700);
    bench.settle_at(3720);
    assert_eq!(bench.is_true("Failed"), None);
    bench.settle_at(10 + 3600 + 120);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("PreHealthCheckFailed"));
}
