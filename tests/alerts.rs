//! The alerts in `deploy/alerts`: that Prometheus understands them, when they fire and when they do not, and that each has a
//! runbook and is made of metrics that there are.

// The configuration of clippy allows these inside test functions only, and this whole crate is tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{fs, path::Path, process::Command};

use openshift_upgrade_operator::health::prometheus::OWN_ALERT;
use serde_json::{Value, json};

const RULES: &str = include_str!("../deploy/alerts/upgrade-operator.yaml");
const DRAINING: &str = r#"openshift_upgrade_controller_node_draining{node="w-8"}"#;

fn groups() -> Value {
    let object: Value = serde_yaml::from_str(RULES).unwrap();
    object["spec"].clone()
}

fn alerts() -> Vec<Value> {
    let groups = groups()["groups"].as_array().unwrap().clone();
    groups
        .iter()
        .flat_map(|g| g["rules"].as_array().unwrap())
        .cloned()
        .collect()
}

/// Text that may name metrics: the sources in which they are defined, but for tests.
fn defined() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    ["drain/metrics.rs", "overlay/metrics.rs"]
        .map(|file| fs::read_to_string(root.join(file)).unwrap())
        .concat()
}

#[test]
fn every_alert_has_a_runbook_and_metrics_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let defined = defined();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let page = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert_eq!(page, format!("docs/runbooks/{name}.md"));
        let text = fs::read_to_string(root.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(text.starts_with(&format!("# {name}\n")), "{page}");
        for part in ["## Impact", "## Diagnosis", "## Remedy"] {
            assert!(text.contains(part), "{page} has no {part}");
        }
        let (label, value) = OWN_ALERT;
        assert_eq!(alert["labels"][label], value, "{name} would hold an upgrade");
        let all = format!("{} {}", alert["expr"], alert["annotations"]["description"]);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names: Vec<&str> = all
            .split(|c| !is_name(c))
            .filter(|word| word.starts_with("openshift_upgrade_controller_"))
            .collect();
        assert!(!names.is_empty(), "{name} is about no metric of ours");
        for metric in names {
            assert!(
                defined.contains(&format!("\"{metric}\"")),
                "{name}: there is no metric {metric}"
            );
        }
    }
}

/// Runs promtool on the rules; `tests` are those of its `test rules`.
fn promtool(arguments: &[&str], tests: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| {
        fs::write(folder.path().join(name), serde_yaml::to_string(value).unwrap()).unwrap();
    };
    write("rules.yaml", &groups());
    write("tests.yaml", tests);
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect("promtool, which comes with Prometheus");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
#[ignore = "needs promtool: tests/run"]
fn prometheus_understands_the_rules() {
    promtool(
        &["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"],
        &json!({}),
    );
}

/// Values of a series, one a minute.
fn series(name: &str, values: &str) -> Value {
    json!({"series": name, "values": values})
}

fn fires(at: &str, alert: &str, with: &Value) -> Value {
    json!({"eval_time": at, "alertname": alert, "exp_alerts": with})
}

#[test]
#[ignore = "needs promtool: tests/run"]
fn a_drain_that_is_stuck_is_told_of_with_what_is_in_the_way() {
    let blocked = |node, cause, value| {
        let name =
            format!("openshift_upgrade_controller_drain_blocking_pods{{node=\"{node}\",cause=\"{cause}\"}}");
        series(&name, value)
    };
    let alert = |in_the_way: &str| {
        let description = format!(
            "The machine-config operator drains node w-8 for more than 15 minutes; its pool and the upgrade wait for it.{in_the_way} \
             The UpgradeJob names the pods in status.blockers."
        );
        json!([{
            "exp_labels": {"severity": "warning", "component": "openshift-upgrade-operator", "node": "w-8"},
            "exp_annotations": {
                "summary": "Node w-8 is being drained for more than 15 minutes.",
                "description": description,
                "runbook_url": "docs/runbooks/NodeDrainStuck.md",
            },
        }])
    };
    let name = "NodeDrainStuck";
    let causes = " What is in the way: 1 of cause Finalizer, 2 of cause PodDisruptionBudget.";
    promtool(
        &["test", "rules", "tests.yaml"],
        &json!({
            "rule_files": ["rules.yaml"], "evaluation_interval": "1m",
            "tests": [
                {
                    "name": "a drain that does not end",
                    "interval": "1m",
                    "input_series": [
                        series(DRAINING, "0 1x40"),
                        blocked("w-8", "Finalizer", "1x40"), blocked("w-8", "PodDisruptionBudget", "2x40"),
                        blocked("w-9", "StillRunning", "5x40"),
                    ],
                    "alert_rule_test": [
                        fires("15m", name, &json!([])), fires("16m", name, &alert(causes)), fires("40m", name, &alert(causes)),
                    ],
                },
                {
                    "name": "nobody knows why",
                    "interval": "1m",
                    "input_series": [series(DRAINING, "1x40")],
                    "alert_rule_test": [fires("20m", name, &alert(""))],
                },
                {
                    "name": "nodes that are drained one after the other, each in its time",
                    "interval": "1m",
                    "input_series": [
                        series(DRAINING, "1x14 0x30"),
                        series(&DRAINING.replace("w-8", "w-9"), "0x14 1x14 0x30"),
                    ],
                    "alert_rule_test": [fires("14m", name, &json!([])), fires("16m", name, &json!([])), fires("40m", name, &json!([]))],
                },
                {
                    "name": "the operator is started anew in the middle of it",
                    "interval": "1m",
                    "input_series": [
                        series(r#"openshift_upgrade_controller_node_draining{node="w-8",pod="a"}"#, "1x8 _x30"),
                        series(r#"openshift_upgrade_controller_node_draining{node="w-8",pod="b"}"#, "_x8 1x30"),
                    ],
                    "alert_rule_test": [fires("16m", name, &alert(""))],
                },
                {
                    "name": "over",
                    "interval": "1m",
                    "input_series": [series(DRAINING, "1x20 0x10")],
                    "alert_rule_test": [fires("18m", name, &alert("")), fires("22m", name, &json!([]))],
                },
            ],
        }),
    );
}
