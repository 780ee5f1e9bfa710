//! `values.yaml`, its schema, and the table of it in docs/install.md.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{CHART, text};

/// One value: where it is, what it is by default, and what the comment above it says.
pub struct Entry {
    /// Such as `operator.engine`.
    pub path: String,
    /// As in the file.
    pub default: Value,
    /// The comment above it, as one line; that of the whole section if it has none.
    pub comment: String,
}

/// All values that are no section, in the order of the file.
pub fn entries() -> Vec<Entry> {
    let source = text(&format!("{CHART}/values.yaml"));
    let values: Value = serde_yaml::from_str(&source).unwrap();
    let (mut comment, mut section) = (String::new(), String::new());
    let mut found = Vec::new();
    for line in source.lines().skip_while(|l| !l.is_empty()) {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if let Some(said) = text.strip_prefix('#') {
            if !comment.is_empty() {
                comment.push(' ');
            }
            comment.push_str(said.trim());
            continue;
        }
        let said = std::mem::take(&mut comment);
        let Some((key, _)) = text.split_once(':').filter(|_| !text.starts_with("- ")) else {
            continue;
        };
        let parts: Vec<&str> = section
            .split('.')
            .filter(|p| !p.is_empty())
            .take(depth / 2)
            .collect();
        let path = [&parts[..], &[key]].concat().join(".");
        let Some(default) = values.pointer(&format!("/{}", path.replace('.', "/"))) else {
            continue;
        };
        // What Kubernetes defines is one value.
        let is_section = default.as_object().is_some_and(|o| !o.is_empty()) && !is_of_kubernetes(&path);
        section.clone_from(&path);
        if is_section {
            continue;
        }
        if found
            .iter()
            .any(|e: &Entry| path.starts_with(&format!("{}.", e.path)))
        {
            continue;
        }
        found.push(Entry {
            path,
            default: default.clone(),
            comment: said,
        });
    }
    found
}

/// Values that are put into an object as they are.
fn is_of_kubernetes(path: &str) -> bool {
    [
        "resources",
        "nodeAffinity",
        "podSecurityContext",
        "securityContext",
    ]
    .contains(&path)
}

/// Compares the keys of both, and so on below.
fn same_keys(place: &str, values: &Value, schema: &Value) {
    let (Some(values), Some(known)) = (values.as_object(), schema["properties"].as_object()) else {
        return;
    };
    if is_of_kubernetes(place.trim_start_matches('.')) {
        return;
    }
    assert_eq!(
        schema["additionalProperties"], false,
        "{place}: a misspelt key passes"
    );
    let names = |o: &serde_json::Map<String, Value>| o.keys().cloned().collect::<BTreeSet<_>>();
    let mut allowed = names(known);
    // Helm puts it there when the chart is a part of another one.
    allowed.remove("global");
    assert_eq!(names(values), allowed, "values and schema of {place:?}");
    for (key, value) in values {
        same_keys(&format!("{place}.{key}"), value, &known[key]);
    }
}

#[test]
fn the_schema_knows_the_values_that_there_are_and_no_others() {
    let values: Value = serde_yaml::from_str(&text(&format!("{CHART}/values.yaml"))).unwrap();
    let schema: Value = serde_json::from_str(&text(&format!("{CHART}/values.schema.json"))).unwrap();
    same_keys("", &values, &schema);
}

#[test]
fn chart_and_operator_have_one_version() {
    let chart: Value = serde_yaml::from_str(&text(&format!("{CHART}/Chart.yaml"))).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&version.into(), &version.into())
    );
}

/// The rows of the table of values.
fn table() -> String {
    let rows = entries().into_iter().map(|entry| {
        let default = match &entry.default {
            Value::String(text) if text.is_empty() => String::new(),
            Value::String(text) => format!("`{text}`"),
            Value::Array(_) | Value::Object(_) if entry.default.to_string().len() > 2 => {
                "see values.yaml".to_owned()
            }
            other => format!("`{other}`"),
        };
        format!(
            "| `{}` | {default} | {} |\n",
            entry.path,
            entry.comment.replace('|', "\\|")
        )
    });
    rows.collect()
}

#[test]
fn the_table_of_values_is_that_of_the_chart() {
    const HEAD: &str = "| value | default | |\n|---|---|---|\n";
    let install = text("docs/install.md");
    let (before, rest) = install
        .split_once(HEAD)
        .expect("a table of values in docs/install.md");
    let end = rest.find("\n\n").map_or(rest.len(), |at| at + 1);
    if rest[..end] == table() {
        return;
    }
    let renewed = format!("{before}{HEAD}{}{}", table(), &rest[end..]);
    if std::env::var_os("UPDATE_FILES").is_some() {
        std::fs::write(crate::path("docs/install.md"), renewed).unwrap();
    } else {
        panic!(
            "the table of values in docs/install.md is not that of values.yaml: UPDATE_FILES=1 cargo test --test chart"
        );
    }
}
