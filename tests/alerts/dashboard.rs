//! `deploy/dashboards`: valid for Grafana, of metrics that there are, in PromQL that Prometheus understands.

use serde_json::{Value, json};

use super::{check, promtool};

const DASHBOARD: &str = include_str!("../../deploy/dashboards/upgrade-operator.json");

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

/// The expressions with the titles of their panels.
fn expressions() -> Vec<(String, String)> {
    let panels = panels();
    let all = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        targets.map(move |target| (text(&panel["title"]), text(&target["expr"])))
    });
    all.collect()
}

#[test]
fn panels_are_made_of_metrics_that_there_are() {
    let expressions = expressions();
    assert!(expressions.len() >= 15, "{}", expressions.len());
    for (title, expression) in expressions {
        check(&title, &expression);
    }
}

#[test]
fn every_panel_has_its_place_its_own_id_and_a_description() {
    let panels = panels();
    let mut taken: Vec<[u64; 4]> = Vec::new();
    for (n, panel) in panels.iter().enumerate() {
        let title = panel["title"].as_str().unwrap();
        assert_eq!(panel["id"], n + 1, "{title}");
        assert!(
            panel["type"] == "row" || panel["description"].is_string(),
            "{title}"
        );
        assert!(
            panel["type"] == "row" || panel["datasource"]["uid"] == "${datasource}",
            "{title}"
        );
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24, "{title}");
        let overlaps = |[a, b, c, d]: &[u64; 4]| x < a + c && *a < x + w && y < b + d && *b < y + h;
        assert!(!taken.iter().any(overlaps), "{title} lies over another panel");
        taken.push([x, y, w, h]);
    }
}

#[test]
#[ignore = "needs promtool: tests/run"]
fn prometheus_understands_the_expressions() {
    let rules: Vec<Value> = expressions()
        .into_iter()
        .map(|(_, expr)| json!({"record": "checked", "expr": expr.replace("$__rate_interval", "5m")}))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dashboard.yaml");
    let groups = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    std::fs::write(&path, serde_yaml::to_string(&groups).unwrap()).unwrap();
    promtool(
        &["check", "rules", "--lint=none", path.to_str().unwrap()],
        &json!({}),
    );
}
