//! Objects as people write them.

use jiff::{SignedDuration, Timestamp};
use openshift_upgrade_operator::api::{UpgradeJob, duration};
use serde_json::{Value, json};

use super::{NAMESPACE, kubelet};

/// Now, in whole seconds as the API has them.
pub fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).expect("a time")
}

/// `now` and some seconds.
pub fn in_seconds(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

/// The time since the job's `startAfter`, and some seconds, as a Go duration.
pub fn since_start(job: &UpgradeJob, more: i64) -> String {
    let since = now().duration_since(job.spec.start_after.0);
    duration::format(since + SignedDuration::from_secs(more))
}

/// An UpgradeJob that may start now, and until in an hour.
pub fn job(name: &str, version: Option<&str>, config: Value) -> Value {
    job_between(name, version, config, now(), in_seconds(3_600))
}

/// An UpgradeJob with its start window.
pub fn job_between(
    name: &str,
    version: Option<&str>,
    config: Value,
    after: Timestamp,
    before: Timestamp,
) -> Value {
    let mut job = json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"scenario": "true"}},
        "spec": {"startAfter": after, "startBefore": before},
    });
    job["spec"]["config"] = config;
    if let Some(version) = version {
        job["spec"]["desiredVersion"] = json!({"version": version});
    }
    job
}

/// `machineConfigPools` that hold the night pool.
pub fn hold_night(min: &str, max: Option<&str>) -> Value {
    let mut delay = json!({"delayMin": min});
    if let Some(max) = max {
        delay["delayMax"] = json!(max);
    }
    json!([{"matchLabels": {"name": "x-app-night-maintenance"}, "delayUpgrade": delay}])
}

/// An UpgradeJobHook whose pod ends well at once.
pub fn hook(name: &str, events: &[&str]) -> Value {
    json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"events": events, "template": job_template()},
    })
}

/// An UpgradeJobHook whose pod fails.
pub fn failing_hook(name: &str, events: &[&str], policy: &str) -> Value {
    let mut hook = hook(name, events);
    hook["spec"]["failurePolicy"] = json!(policy);
    hook["spec"]["template"]["spec"]["template"]["metadata"] =
        json!({"annotations": {kubelet::EXIT_CODE: "1"}});
    hook
}

/// The same, but its pod runs for a while.
pub fn running_for(mut hook: Value, milliseconds: u64) -> Value {
    hook["spec"]["template"]["spec"]["template"]["metadata"]["annotations"][kubelet::RUNS_MS] =
        json!(milliseconds.to_string());
    hook
}

/// A Job as the security standard `restricted` asks for. Its deadline is no part of any scenario: it is longer than all of them.
fn job_template() -> Value {
    json!({"spec": {
        "backoffLimit": 0,
        "activeDeadlineSeconds": 7_200,
        "template": {"spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "hook", "image": "localhost/hook:1",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        }},
    }})
}
