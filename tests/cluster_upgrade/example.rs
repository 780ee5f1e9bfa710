//! The example of the documentation, changed as little as the test cluster asks for.

use jiff::{Timestamp, tz::TimeZone};
use openshift_upgrade_operator::{
    api::{UpgradeConfig, UpgradeJob, UpgradeJobHook, upgrade_job_hook::HookEvent},
    openshift::cluster_version::Release,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::testbed::NAMESPACE;

const EXAMPLE: &str = include_str!("../../docs/examples/cluster-upgrade.yaml");

/// The pool that the example holds.
pub const NIGHT_POOL: &str = "x-app-night";

/// `delayUpgrade` in seconds; 0 = none.
pub struct Delay {
    pub min: i64,
    pub max: i64,
}

fn document(kind: &str) -> Value {
    serde_yaml::Deserializer::from_str(EXAMPLE)
        .map(|d| Value::deserialize(d).unwrap())
        .find(|d| d["kind"] == kind)
        .unwrap_or_else(|| panic!("the example has no {kind}"))
}

fn read<K: DeserializeOwned>(document: Value) -> K {
    serde_json::from_value(document).unwrap()
}

/// The first full minute that leaves time to create what is due then.
pub fn near_minute(now: Timestamp) -> Timestamp {
    let seconds = now.as_second() + 10;
    Timestamp::from_second(seconds - seconds.rem_euclid(60) + 60).unwrap()
}

/// `machineConfigPools` that hold the night pool.
pub fn delays(delay: &Delay) -> Value {
    if delay.min == 0 {
        return json!([]);
    }
    let [min, max] = [delay.min, delay.max].map(|s| format!("{s}s"));
    json!([{
        "matchLabels": {"name": "x-app-night-maintenance"},
        "delayUpgrade": {"delayMin": min, "delayMax": max},
    }])
}

/// The example's UpgradeConfig under this name, with `start` as its next run.
pub fn config(name: &str, start: Timestamp, delay: &Delay) -> UpgradeConfig {
    let mut config = document("UpgradeConfig");
    config["metadata"]["name"] = json!(name);
    let schedule = &mut config["spec"]["schedule"];
    let zone = TimeZone::get(schedule["location"].as_str().unwrap()).unwrap();
    let local = start.to_zoned(zone);
    let (minute, hour, day, month) = (local.minute(), local.hour(), local.day(), local.month());
    schedule["cron"] = json!(format!("{minute} {hour} {day} {month} *"));
    let parity = if local.date().iso_week_date().week() % 2 == 0 {
        "@even"
    } else {
        "@odd"
    };
    schedule["isoWeek"] = json!(parity);
    // Pinned at once.
    config["spec"]["pinVersionWindow"] = json!("10m");
    config["spec"]["jobTemplate"]["spec"]["config"]["machineConfigPools"] = delays(delay);
    read(config)
}

/// A job with the example's settings, without a config: due now.
pub fn job_to(name: &str, to: &Release, start: Timestamp, delay: &Delay) -> UpgradeJob {
    let template = &document("UpgradeConfig")["spec"]["jobTemplate"];
    let mut settings = template["spec"]["config"].clone();
    settings["machineConfigPools"] = delays(delay);
    let start = start.as_second();
    let at = |second| Timestamp::from_second(second).unwrap().to_string();
    read(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]},
        "spec": {
            "startAfter": at(start),
            "startBefore": at(start + 3600),
            "desiredVersion": {"version": to.version, "image": to.image},
            "config": settings,
        },
    }))
}

/// The example's hook under this name and for these events. In place of the webhook it prints what it would send, and
/// two of its variables; and it is fit for a namespace that enforces the pod security standard `restricted`.
pub fn hook(name: &str, events: &[HookEvent]) -> UpgradeJobHook {
    let mut hook = document("UpgradeJobHook");
    hook["metadata"]["name"] = json!(name);
    hook["spec"]["events"] = events.iter().map(|e| e.as_str()).collect();
    let pod = &mut hook["spec"]["template"]["spec"]["template"]["spec"];
    pod["securityContext"] =
        json!({"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}});
    let container = &mut pod["containers"][0];
    let body = container["args"][4].clone();
    container["image"] = json!("localhost/busybox:1");
    let print = r#"echo "$1"; echo "EVENT_name=$EVENT_name"
        echo "JOB_spec_desiredVersion_image=$JOB_spec_desiredVersion_image""#;
    container["command"] = json!(["sh", "-c", print, "hook"]);
    container["args"] = json!([body]);
    container["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    read(hook)
}
