//! `docs/api.md`, made of the CustomResourceDefinitions.

use std::{fmt::Write, fs, path::Path};

use serde_json::{Map, Value};

use crate::{api, cli::crds};

const HEAD: &str = "\
# API reference

All kinds are of the group `managedupgrade.appuio.io`, version `v1beta1`, and live in the operator's namespace. What they are for, and how they work together, is in
[concepts](concepts.md). `kubectl explain upgradeconfig.spec --recursive` says the same on a cluster.

A *duration* is one of Go: `90s`, `30m`, `1h30m`; no days, and nothing negative. A *time* is RFC 3339, such as `2026-11-24T21:00:00Z`. `[]` stands for each item of a list.

This page is made of the CustomResourceDefinitions: change the types in `src/api`, then run `UPDATE_FILES=1 cargo test --lib api_reference`.
";

/// A part of the schema that is known elsewhere, and not told again.
fn known(schema: &Map<String, Value>) -> Option<&'static str> {
    let properties = schema.get("properties").and_then(Value::as_object)?;
    let has = |names: &[&str]| names.iter().all(|name| properties.contains_key(*name));
    if has(&["matchExpressions", "matchLabels"]) {
        Some("label selector")
    } else if has(&["lastTransitionTime", "reason", "status"]) {
        Some("condition")
    } else if has(&["metadata", "spec"]) && schema.get("description").is_some_and(is_of_a_job) {
        Some("JobTemplateSpec of `batch/v1`")
    } else {
        None
    }
}

fn is_of_a_job(description: &Value) -> bool {
    description
        .as_str()
        .is_some_and(|d| d.contains("JobTemplateSpec") || d.contains("Job to run"))
}

struct Reference {
    text: String,
    /// `config` of an UpgradeJob, which an UpgradeConfig has too.
    config: Value,
}

impl Reference {
    fn fields(&mut self, schema: &Map<String, Value>, path: &str) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return;
        };
        let required = schema.get("required").and_then(Value::as_array);
        let mut told: Vec<(&String, Value)> = Vec::new();
        for (name, property) in properties {
            let (mut path, mut inner) = (format!("{path}.{name}"), property);
            while inner["type"] == "array" {
                path += "[]";
                inner = &inner["items"];
            }
            let inner = inner.as_object().unwrap();
            let bare = undescribed(inner);
            let twin = told.iter().find(|(_, other)| *other == bare && is_deep(inner));
            let (type_, is_told) = match twin {
                Some((twin, _)) => (format!("as `{twin}`"), true),
                None if path.ends_with(".spec.config") && bare == self.config => (
                    "as `spec.config` of an [UpgradeJob](#upgradejob)".to_owned(),
                    true,
                ),
                None => (type_of(property), known(inner).is_some()),
            };
            let must = required.is_some_and(|r| r.contains(&Value::from(name.as_str())));
            let must = if must { ", required" } else { "" };
            let default = property
                .get("default")
                .map_or_else(String::new, |d| format!("`{d}`"));
            let about = about(property.as_object().unwrap(), inner);
            writeln!(self.text, "| `{path}` | {type_}{must} | {default} | {about} |").unwrap();
            if !is_told {
                self.fields(inner, &path);
                if let Some(values) = inner.get("additionalProperties").and_then(Value::as_object) {
                    self.fields(values, &format!("{path}.*"));
                }
            }
            told.push((name, bare));
        }
    }
}

/// Whether there is something below it that is worth leaving out.
fn is_deep(schema: &Map<String, Value>) -> bool {
    schema.get("properties").is_some() && known(schema).is_none()
}

/// What the schema demands, whatever it says about itself.
fn undescribed(schema: &Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    schema.remove("description");
    Value::Object(schema)
}

fn type_of(schema: &Value) -> String {
    let object = schema.as_object().unwrap();
    if let Some(known) = known(object) {
        return known.to_owned();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    match (schema["type"].as_str(), &schema["additionalProperties"]) {
        (Some("array"), _) => format!("list of {}", type_of(&schema["items"])),
        (Some("object"), Value::Object(_)) => format!("map to {}", type_of(&schema["additionalProperties"])),
        (Some("object"), _) if schema["x-kubernetes-preserve-unknown-fields"] == true => {
            "object with any fields".to_owned()
        }
        (Some("string"), _) if is_duration(object) => "duration".to_owned(),
        (Some("string"), _) if schema["format"] == "date-time" => "time".to_owned(),
        (Some(other), _) => other.to_owned(),
        (None, _) => "anything".to_owned(),
    }
}

fn is_duration(schema: &Map<String, Value>) -> bool {
    let pattern = schema.get("pattern").and_then(Value::as_str);
    pattern.is_some_and(|p| p.contains("ns|us|"))
}

/// What a field is for, and what is demanded of it. `inner` is the item, where the field is a list.
fn about(schema: &Map<String, Value>, inner: &Map<String, Value>) -> String {
    let mut parts = Vec::new();
    let description = schema.get("description").and_then(Value::as_str);
    parts.extend(description.map(str::to_owned));
    if let Some(allowed) = inner.get("enum").and_then(Value::as_array) {
        let allowed: Vec<String> = allowed
            .iter()
            .filter_map(|v| Some(format!("`{}`", v.as_str()?)))
            .collect();
        parts.push(format!("One of {}.", allowed.join(", ")));
    }
    let limits = [
        ("minItems", "At least", "entries"),
        ("maxItems", "At most", "entries"),
        ("minimum", "At least", ""),
        ("maximum", "At most", ""),
    ];
    for (key, bound, unit) in limits {
        if let Some(number) = schema.get(key) {
            parts.push(format!("{bound} {number} {unit}").trim_end().to_owned() + ".");
        }
    }
    if !is_duration(inner) {
        parts.extend(rules(schema));
        if schema.get("type") != inner.get("type") {
            parts.extend(rules(inner));
        }
    }
    cell(&parts.join(" "))
}

/// What the rules in CEL say when they are broken.
fn rules(schema: &Map<String, Value>) -> Vec<String> {
    let all = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    let messages = all.into_iter().flatten().filter_map(|r| r["message"].as_str());
    messages.map(|m| format!("*{m}.*")).collect()
}

/// A text that fits into a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

fn reference() -> String {
    let schemas: Vec<Value> = crds::files()
        .unwrap()
        .iter()
        .map(|f| serde_yaml::from_str(&f.yaml).unwrap())
        .collect();
    let schema = |crd: &Value| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    let of_a_job = schemas
        .iter()
        .find(|c| c["spec"]["names"]["kind"] == "UpgradeJob")
        .unwrap();
    let config = &schema(of_a_job)["properties"]["spec"]["properties"]["config"];
    let mut reference = Reference {
        text: HEAD.to_owned(),
        config: undescribed(config.as_object().unwrap()),
    };
    for kind in ORDER {
        let crd = schemas
            .iter()
            .find(|c| c["spec"]["names"]["kind"] == kind)
            .unwrap();
        let schema = schema(crd);
        let short: Vec<String> = crd["spec"]["names"]["shortNames"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| format!("`{}`", n.as_str().unwrap()))
            .collect();
        let about = schema["description"].as_str().unwrap_or_default();
        let short = short.join(", ");
        write!(reference.text, "\n## {kind}\n\n{about} Short name: {short}.\n").unwrap();
        for part in ["spec", "status"] {
            let part_schema = schema["properties"][part].as_object().unwrap();
            writeln!(
                reference.text,
                "\n| {part} | type | default | |\n|---|---|---|---|"
            )
            .unwrap();
            reference.fields(part_schema, part);
            let rules = rules(part_schema);
            if !rules.is_empty() {
                writeln!(reference.text, "\nBesides: {}", rules.join(" ")).unwrap();
            }
        }
    }
    reference.text
}

/// In the order in which people meet them.
const ORDER: [&str; 6] = [
    "UpgradeConfig",
    "UpgradeJob",
    "UpgradeJobHook",
    "UpgradeSuspensionWindow",
    "ClusterVersion",
    "NodeForceDrain",
];

#[test]
fn the_api_reference_is_that_of_the_types() {
    assert_eq!(api::crds().len(), ORDER.len(), "a kind is missing");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
    let expected = reference();
    if std::env::var_os("UPDATE_FILES").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == expected,
        "docs/api.md is out of date: run `UPDATE_FILES=1 cargo test --lib api_reference` and commit"
    );
}
