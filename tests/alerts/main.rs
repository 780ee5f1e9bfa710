//! The alerts in `deploy/alerts` and the dashboard in `deploy/dashboards`: that Prometheus understands them, when alerts fire and
//! when they do not, that each has a runbook, and that all are made of metrics that there are. That docs/metrics.md has what the
//! code emits is tested with the code (`src/documentation/metrics.rs`).

// The configuration of clippy allows these inside test functions only, and this whole crate is tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod dashboard;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use openshift_upgrade_operator::health::prometheus::OWN_ALERT;
use serde_json::{Value, json};

const RULES: &str = include_str!("../../deploy/alerts/upgrade-operator.yaml");
const EXPECTED: &str = include_str!("rules.yaml");
const METRICS: &str = include_str!("../../docs/metrics.md");
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

fn name_of(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap()
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The metrics that there are, by the names under which they are queried, with their labels.
fn metrics() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let in_quotes = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let rows = METRICS
        .lines()
        .filter(|line| line.starts_with("| `openshift_upgrade_controller_"));
    let metrics = rows.map(|row| {
        let cells: Vec<&'static str> = row.split('|').collect();
        (in_quotes(cells[1]).next().unwrap(), in_quotes(cells[3]).collect())
    });
    metrics.collect()
}

/// Checks that all metrics in an expression are there, with the labels by which it selects and groups them.
fn check(what: &str, expression: &str) {
    let metrics = metrics();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c| !is_name(c));
    let of = |name: &str| {
        let series = name
            .trim_end_matches("_bucket")
            .trim_end_matches("_sum")
            .trim_end_matches("_count");
        metrics.get(name).or_else(|| metrics.get(series))
    };
    let names: Vec<&str> = words
        .filter(|word| word.starts_with("openshift_upgrade_controller_"))
        .collect();
    assert!(!names.is_empty(), "{what} is about no metric of ours");
    let mut known = BTreeSet::from(["le"]);
    for name in names {
        known.extend(of(name).unwrap_or_else(|| panic!("{what}: there is no metric {name}")));
    }
    for grouped in expression.split(" by (").skip(1) {
        for label in grouped.split(')').next().unwrap().split(',') {
            assert!(
                known.contains(label.trim()),
                "{what} groups by {label}, which its metrics have not"
            );
        }
    }
    for selected in expression.split('{').skip(1) {
        for matcher in selected.split('}').next().unwrap().split(',') {
            let label = matcher.split(['=', '!']).next().unwrap().trim();
            assert!(
                known.contains(label),
                "{what} selects by {label}, which its metrics have not"
            );
        }
    }
}

#[test]
fn every_alert_has_a_runbook_and_metrics_that_there_are() {
    for alert in alerts() {
        let name = name_of(&alert);
        let page = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert_eq!(page, format!("docs/runbooks/{name}.md"));
        let text = fs::read_to_string(file(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(text.starts_with(&format!("# {name}\n")), "{page}");
        for part in ["## Impact", "## Diagnosis", "## Remedy", "```sh\n"] {
            assert!(text.contains(part), "{page} has no {part}");
        }
        assert!(alert["annotations"]["summary"].is_string(), "{name}");
        check(name, alert["expr"].as_str().unwrap());
        for query in alert["annotations"]["description"]
            .as_str()
            .unwrap()
            .split("printf \"")
            .skip(1)
        {
            let query = query.split("\" $labels").next().unwrap();
            check(name, &query.replace("%q", "\"x\"").replace("\\\"", "\""));
        }
    }
}

#[test]
fn the_questions_on_the_page_of_metrics_are_about_metrics_that_there_are() {
    let questions = METRICS
        .split("| question | PromQL |")
        .nth(1)
        .unwrap()
        .lines()
        .skip(2);
    let questions: Vec<&str> = questions.filter(|line| line.starts_with("| ")).collect();
    assert!(questions.len() >= 6);
    for row in questions {
        check(row, row.split('`').nth(1).unwrap());
    }
}

/// By these the health checks of jobs pass over our own alerts, twice: by the label, and since they are not critical.
#[test]
fn no_alert_of_ours_can_hold_an_upgrade() {
    let (label, value) = OWN_ALERT;
    for alert in alerts() {
        assert_eq!(alert["labels"][label], value, "{}", name_of(&alert));
        assert_eq!(alert["labels"]["severity"], "warning", "{}", name_of(&alert));
    }
}

#[test]
fn every_runbook_and_every_line_of_the_page_of_alerts_is_of_an_alert() {
    let alerts = alerts();
    let names: BTreeSet<&str> = alerts.iter().map(name_of).collect();
    let pages = fs::read_dir(file("docs/runbooks")).unwrap();
    let pages: Vec<String> = pages
        .map(|p| {
            p.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    let pages: BTreeSet<&str> = pages.iter().map(String::as_str).collect();
    assert_eq!(pages, names);
    let text = fs::read_to_string(file("docs/alerts.md")).unwrap();
    let listed = text
        .lines()
        .filter_map(|line| line.strip_prefix("| [")?.split(']').next());
    assert_eq!(listed.collect::<BTreeSet<_>>(), names);
}

#[test]
fn the_pages_link_to_files_that_are_there() {
    let pages = ["docs/alerts.md".to_owned(), "docs/metrics.md".to_owned()].into_iter();
    let runbooks = alerts()
        .into_iter()
        .map(|alert| format!("docs/runbooks/{}.md", name_of(&alert)));
    for page in pages.chain(runbooks) {
        let text = fs::read_to_string(file(&page)).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => file(&page),
                path => file(&page).parent().unwrap().join(path),
            };
            let target =
                fs::read_to_string(&target).unwrap_or_else(|e| panic!("{page} links to {link}: {e}"));
            let anchor = |line: &str| {
                line.trim_start_matches(['#', ' '])
                    .to_lowercase()
                    .replace([' '], "-")
                    .replace(['`', '(', ')', ':', ','], "")
            };
            let headings: Vec<String> = target
                .lines()
                .filter(|l| l.starts_with('#'))
                .map(anchor)
                .collect();
            assert!(
                heading.is_empty() || headings.iter().any(|h| h == heading),
                "{page} links to {link}"
            );
        }
    }
}

/// An expectation that is only ever met by silence, or only by noise, would not tell a broken alert.
#[test]
fn of_every_alert_it_is_tested_that_it_fires_and_that_it_does_not() {
    let expected: Value = serde_yaml::from_str(EXPECTED).unwrap();
    let checks: Vec<&Value> = expected["tests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|t| t["alert_rule_test"].as_array().unwrap())
        .collect();
    for alert in alerts() {
        let name = name_of(&alert);
        if name == "NodeDrainStuck" {
            continue; // Its own test is below.
        }
        let fires = |c: &&&Value| !c["exp_alerts"].as_array().unwrap().is_empty();
        let of_alert = || checks.iter().filter(|c| c["alertname"] == name);
        assert!(of_alert().any(|c| fires(&c)), "{name} never fires");
        assert!(of_alert().any(|c| !fires(&c)), "{name} always fires");
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

#[test]
#[ignore = "needs promtool: tests/run"]
fn alerts_fire_when_they_should_and_only_then() {
    let expected: Value = serde_yaml::from_str(EXPECTED).unwrap();
    promtool(&["test", "rules", "tests.yaml"], &expected);
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
                    "name": "the operator is moved while it is told",
                    "interval": "1m",
                    "input_series": [
                        series(r#"openshift_upgrade_controller_node_draining{node="w-8",pod="a"}"#, "1x18 _x30"),
                        series(r#"openshift_upgrade_controller_node_draining{node="w-8",pod="b"}"#, "_x24 1x30"),
                    ],
                    "alert_rule_test": [
                        fires("18m", name, &alert("")), fires("21m", name, &alert("")), fires("24m", name, &alert("")), fires("30m", name, &alert("")),
                    ],
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
