//! What tests in simulated time have in common: the settings of the operator, and objects that an administrator writes.

use jiff::SignedDuration;
use kube::api::DynamicObject;
use openshift_upgrade_operator::{api::upgrade_job::EngineChoice, schedule::Zones, settings::Settings};
use serde_json::{Value, json};

pub const NAMESPACE: &str = "openshift-upgrade";
/// The label that the hooks of an upgrade ask for.
pub const LABEL: (&str, &str) = ("upgrade", "night");

pub fn settings(engine: EngineChoice) -> Settings {
    // Elections are tested elsewhere (`simulator/two_operators.rs`): here they would be a write every few seconds.
    Settings {
        engine,
        // Texts alone are written seldom: each write costs time.
        live_message_interval: SignedDuration::from_mins(3),
        retrieval_grace: SignedDuration::from_mins(10),
        ..Settings::new(NAMESPACE, Zones::bundled("Europe/Zurich").unwrap())
    }
}

/// An object of ours.
pub fn object(kind: &str, name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    }))
    .unwrap()
}

/// A hook of jobs with [`LABEL`], as a Job of one container; `deadline` in seconds.
pub fn hook(name: &str, events: &[&str], deadline: i64, change: &Value) -> DynamicObject {
    let container = json!({"name": "hook", "image": "registry.example.com/hook:1"});
    let pod = json!({"restartPolicy": "Never", "containers": [container]});
    let mut spec = json!({
        "events": events, "selector": {"matchLabels": {LABEL.0: LABEL.1}},
        "template": {"spec": {"activeDeadlineSeconds": deadline, "backoffLimit": 0, "template": {"spec": pod}}},
    });
    json_patch::merge(&mut spec, change);
    object("UpgradeJobHook", name, &spec)
}
