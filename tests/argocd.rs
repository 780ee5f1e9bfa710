//! The health checks for Argo CD (`deploy/argocd`), state by state. The states that upgrades really pass through are judged in
//! `tests/endings`; here are those that no night there has, and what the files promise of each other.

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "support/argocd.rs"]
mod argocd;

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use argocd::{folder, health};
use openshift_upgrade_operator::api;
use rstest::rstest;
use serde_json::{Value, json};

/// An object with these conditions: `type=status/reason`, each with the message `m of <type>`.
fn object(kind: &str, conditions: &[&str], status: &Value) -> Value {
    let condition = |text: &&str| {
        let (type_, rest) = text.split_once('=').unwrap();
        let (value, reason) = rest.split_once('/').unwrap();
        json!({"type": type_, "status": value, "reason": reason, "message": format!("m of {type_}"), "observedGeneration": 3})
    };
    let mut status = status.clone();
    status["conditions"] = conditions.iter().map(condition).collect();
    json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": kind,
        "metadata": {"name": "x", "generation": 3}, "status": status,
    })
}

const VALID: &str = "Valid=True/Valid";
const SCHEDULED: &str = "Scheduled=True/Scheduled";

#[rstest]
#[case::scheduled(&[VALID, SCHEDULED], "Healthy", "m of Scheduled")]
#[case::invalid(&["Valid=False/Invalid"], "Degraded", "Invalid: m of Valid")]
#[case::unreadable(&["Valid=False/Unreadable", SCHEDULED], "Degraded", "Unreadable: m of Valid")]
#[case::hosted(&["Valid=False/UnsupportedTopology"], "Degraded", "UnsupportedTopology: m of Valid")]
#[case::clock(&[VALID, SCHEDULED, "Held=True/ClockSkew"], "Degraded", "ClockSkew: m of Held")]
#[case::peer(&["Held=True/PeerAtWork"], "Suspended", "PeerAtWork: m of Held")]
#[case::held_no_more(&[VALID, SCHEDULED, "Held=False/NotHeld"], "Healthy", "m of Scheduled")]
#[case::never(&[VALID, "Scheduled=False/NeverRuns"], "Degraded", "NeverRuns: m of Scheduled")]
#[case::waits(&[VALID, "Scheduled=False/UpdatesUnknown"], "Progressing", "UpdatesUnknown: m of Scheduled")]
#[case::missed(&[VALID, SCHEDULED, "RunMissed=True/ClockSkew"], "Degraded", "a run was missed, ClockSkew: m of RunMissed")]
#[case::failed(
    &[VALID, SCHEDULED, "LastUpgradeSucceeded=False/TimedOut"],
    "Degraded",
    "the last upgrade did not succeed, TimedOut: m of LastUpgradeSucceeded"
)]
#[case::succeeded(&[VALID, SCHEDULED, "LastUpgradeSucceeded=True/Succeeded"], "Healthy", "m of Scheduled")]
#[case::failed_and_suspended(
    &[VALID, SCHEDULED, "Suspended=True/ScheduleSuspended", "LastUpgradeSucceeded=False/HookFailed"],
    "Degraded",
    "the last upgrade did not succeed, HookFailed: m of LastUpgradeSucceeded"
)]
#[case::suspended(
    &[VALID, "Scheduled=False/SuspensionWindow", "Suspended=True/SuspensionWindow"],
    "Suspended",
    "SuspensionWindow: m of Suspended"
)]
#[case::channel(
    &[VALID, SCHEDULED, "ChannelChangeAhead=True/OverlayDue"],
    "Healthy",
    "m of Scheduled; m of ChannelChangeAhead"
)]
#[case::half_told(&[VALID], "Progressing", "the operator has not looked for the next run yet")]
fn an_upgrade_config(#[case] conditions: &[&str], #[case] status: &str, #[case] message: &str) {
    let found = health(&object("UpgradeConfig", conditions, &json!({})));
    assert_eq!((found.status.as_str(), found.message.as_str()), (status, message));
}

#[rstest]
#[case::before_its_time(&[], json!({"phase": "Pending", "message": "starts at 22:00"}), "Suspended", "Pending: starts at 22:00")]
#[case::nothing_said(&[], json!({}), "Suspended", "Pending: waits for its start")]
#[case::running(
    &["Started=True/Started"],
    json!({"phase": "Running", "message": "etcd", "progress": "4/11"}),
    "Progressing",
    "4/11 steps: etcd"
)]
#[case::engine_away(
    &["EngineStalled=True/Silent"],
    json!({"phase": "Running", "message": "etcd"}),
    "Progressing",
    "etcd; Silent: m of EngineStalled"
)]
#[case::holds_a_pool(&[], json!({"phase": "Paused", "message": "until 23:00"}), "Suspended", "Paused: until 23:00")]
#[case::clock(&["Held=True/ClockSkew"], json!({"phase": "Pending"}), "Degraded", "ClockSkew: m of Held")]
#[case::peer(&["Held=True/PeerAtWork"], json!({"phase": "Running"}), "Suspended", "PeerAtWork: m of Held")]
#[case::invalid(&["Valid=False/Invalid"], json!({"phase": "Pending"}), "Degraded", "Invalid: m of Valid")]
#[case::bad_hook(
    &[VALID, "HooksRunnable=False/HookNotRunnable"],
    json!({"phase": "Pending"}),
    "Degraded",
    "HookNotRunnable: m of HooksRunnable"
)]
#[case::bad_template(&["TemplateValid=False/Invalid"], json!({}), "Degraded", "Invalid: m of TemplateValid")]
#[case::failed(
    &["Failed=True/TimedOut", "PoolsLeftPaused=True/PendingChanges", "Held=True/ClockSkew"],
    json!({"phase": "Failed"}),
    "Degraded",
    "TimedOut: m of Failed; m of PoolsLeftPaused"
)]
#[case::of_the_peer(&["Started=True/Started", "Succeeded=True/Succeeded"], json!({}), "Healthy", "Succeeded: m of Succeeded")]
#[case::taken_over(
    &["Succeeded=True/Succeeded", "PoolsLeftPaused=True/PendingChanges"],
    json!({}),
    "Healthy",
    "Succeeded: m of Succeeded; m of PoolsLeftPaused"
)]
#[case::left_to_people(
    &["Succeeded=True/Skipped", "PoolsLeftPaused=True/Orphaned"],
    json!({}),
    "Degraded",
    "Skipped: m of Succeeded; m of PoolsLeftPaused"
)]
#[case::expired(
    &["Succeeded=True/Skipped", "Expired=True/OperatorDown"],
    json!({"phase": "Skipped"}),
    "Degraded",
    "not run, OperatorDown: m of Expired"
)]
fn an_upgrade_job(
    #[case] conditions: &[&str],
    #[case] status: Value,
    #[case] expected: &str,
    #[case] message: &str,
) {
    let found = health(&object("UpgradeJob", conditions, &status));
    assert_eq!(
        (found.status.as_str(), found.message.as_str()),
        (expected, message)
    );
}

#[rstest]
#[case::applied(&[VALID, "Applied=True/Applied"], "Healthy", "m of Applied")]
#[case::not_yet(&[VALID], "Progressing", "it is not applied yet")]
#[case::held(&[VALID, "Applied=False/Held"], "Progressing", "Held: m of Applied")]
#[case::set_back(&[VALID, "Applied=False/SetBack"], "Degraded", "SetBack: m of Applied")]
#[case::refused_later(&["Valid=False/Refused", "Applied=True/Applied"], "Degraded", "Refused: m of Valid")]
#[case::other_name(&["Valid=False/NotServed"], "Degraded", "NotServed: m of Valid")]
fn a_cluster_version(#[case] conditions: &[&str], #[case] status: &str, #[case] message: &str) {
    let found = health(&object("ClusterVersion", conditions, &json!({})));
    assert_eq!((found.status.as_str(), found.message.as_str()), (status, message));
}

#[rstest]
#[case("UpgradeJobHook", json!({"claimedBy": {"name": "job"}}), "m of Valid; claimed by UpgradeJob job")]
#[case("UpgradeJobHook", json!({"claimedBy": {"name": ""}}), "m of Valid")]
#[case(
    "UpgradeSuspensionWindow",
    json!({"matchingConfigs": [{"name": "a"}], "moreMatchingConfigs": 2}),
    "m of Valid; it selects 3 UpgradeConfigs and 0 UpgradeJobs"
)]
#[case("NodeForceDrain", json!({}), "m of Valid")]
fn what_is_only_valid_or_not(#[case] kind: &str, #[case] status: Value, #[case] message: &str) {
    let of = |conditions: &[&str]| health(&object(kind, conditions, &status));
    let found = of(&[VALID]);
    assert_eq!(
        (found.status.as_str(), found.message.as_str()),
        ("Healthy", message)
    );
    for reason in ["Invalid", "Unreadable"] {
        let found = of(&[&format!("Valid=False/{reason}")]);
        assert_eq!(found.status, "Degraded");
        assert_eq!(found.message, format!("{reason}: m of Valid"));
    }
}

/// What the operator has not looked at is neither good nor bad, before the first look and after an edit.
#[test]
fn what_nobody_has_looked_at_is_under_way() {
    for crd in api::crds() {
        let kind = crd.spec.names.kind;
        let mut new = object(&kind, &[VALID, SCHEDULED, "Applied=True/Applied"], &json!({}));
        let spec_changes_at_will = kind == "UpgradeJob";
        new["metadata"]["generation"] = json!(4);
        if !spec_changes_at_will {
            assert_eq!(health(&new).status, "Progressing", "{kind}, edited");
        }
        new.as_object_mut().unwrap().remove("status");
        assert_eq!(health(&new).status, "Progressing", "{kind}, new");
    }
}

/// The checks by the name of their kind.
fn scripts() -> BTreeMap<String, String> {
    let kinds = api::crds().map(|crd| crd.spec.names.kind);
    let read = |kind: &String| fs::read_to_string(folder().join(kind).join("health.lua"));
    kinds
        .into_iter()
        .map(|kind| (kind.clone(), read(&kind).unwrap()))
        .collect()
}

/// `text` as a YAML block, so many spaces below its key.
fn block(text: &str, spaces: usize) -> String {
    text.lines().fold(String::new(), |mut all, line| {
        let indent = if line.is_empty() { 0 } else { spaces };
        writeln!(all, "{:indent$}{line}", "").unwrap();
        all
    })
}

const REGENERATE: &str = "run `UPDATE_FILES=1 cargo test --test argocd` and commit";

const CONFIG_MAP: &str = "\
# For the ConfigMap of Argo CD: `kubectl -n argocd patch configmap argocd-cm --patch-file argocd-cm.yaml`.
# Made of the files in resource_customizations.
apiVersion: v1
kind: ConfigMap
metadata:
  name: argocd-cm
  namespace: argocd
data:
";

fn in_config_map(kind: &str, script: &str) -> String {
    let script = block(script, 4);
    format!("  resource.customizations.health.managedupgrade.appuio.io_{kind}: |\n{script}")
}

const OPENSHIFT_GITOPS: &str = "\
# For OpenShift GitOps, whose operator writes argocd-cm by itself:
# `oc -n openshift-gitops patch argocd openshift-gitops --type merge --patch-file openshift-gitops.yaml`.
# It replaces other `resourceHealthChecks` that you have: put them here, too.
# Made of the files in resource_customizations.
apiVersion: argoproj.io/v1beta1
kind: ArgoCD
metadata:
  name: openshift-gitops
  namespace: openshift-gitops
spec:
  resourceHealthChecks:
";

fn in_openshift_gitops(kind: &str, script: &str) -> String {
    let script = block(script, 8);
    format!("    - group: managedupgrade.appuio.io\n      kind: {kind}\n      check: |\n{script}")
}

/// Both ways to give the checks to Argo CD are made of the files, and are YAML that holds them as they are.
#[rstest]
#[case::config_map("argocd-cm.yaml", CONFIG_MAP, in_config_map)]
#[case::openshift_gitops("openshift-gitops.yaml", OPENSHIFT_GITOPS, in_openshift_gitops)]
fn the_checks_as_argo_cd_takes_them(
    #[case] name: &str,
    #[case] head: &str,
    #[case] entry: impl Fn(&str, &str) -> String,
) {
    let mut expected = head.to_owned();
    for (kind, script) in scripts() {
        expected += &entry(&kind, &script);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/argocd")
        .join(name);
    if std::env::var_os("UPDATE_FILES").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == expected, "{name} is out of date: {REGENERATE}");

    let read: Value = serde_yaml::from_str(&stored).unwrap();
    let held: Vec<&Value> = match (&read["data"], &read["spec"]["resourceHealthChecks"]) {
        (Value::Object(data), _) => data.values().collect(),
        (_, Value::Array(checks)) => checks.iter().map(|c| &c["check"]).collect(),
        other => panic!("{other:?}"),
    };
    let scripts: Vec<Value> = scripts().into_values().map(Value::from).collect();
    assert_eq!(held, scripts.iter().collect::<Vec<_>>());
}
