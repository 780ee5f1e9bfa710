//! The documents say what the code does: schema, examples, tables.

use std::{collections::BTreeSet, path::Path};

use jiff::Timestamp;

use super::{controls, hours, parse};
use crate::simulator::scenario::{Scenario, Timeline};

/// The schema in the documents is generated: `UPDATE_SCHEMA=1 cargo test --lib the_schema` writes it anew.
#[test]
fn the_schema_in_the_documents_is_that_of_the_code() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/scenario.schema.json");
    let schema = serde_json::to_string_pretty(&super::super::schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&file, &schema).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == schema,
        "docs/scenario.schema.json is not up to date: run UPDATE_SCHEMA=1 cargo test --lib the_schema"
    );
}

const DOCUMENT: &str = include_str!("../../../../docs/scenarios.md");

#[test]
fn every_example_is_a_scenario() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/scenarios");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(files.len() >= 3);
    for file in files {
        let scenario = Scenario::load(&file.unwrap().path()).unwrap_or_else(|e| panic!("{e}"));
        assert!(!scenario.description.is_empty());
        let end = hours(90 * 24);
        let timeline = Timeline::new(scenario, hours(0), end, 1).unwrap();
        for due in timeline.due(Timestamp::MIN, end) {
            controls(&timeline, due.at);
        }
        assert_eq!(timeline.warnings(), Vec::<String>::new());
    }
    let blocks = DOCUMENT.split("```yaml\n").skip(1);
    let blocks: Vec<_> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 2);
    for block in blocks {
        parse(block).unwrap_or_else(|e| panic!("docs/scenarios.md: {e}: {block}"));
    }
}

/// The names of all fields and faults, and the values of all enums.
fn names(schema: &serde_json::Value, found: &mut BTreeSet<String>) {
    match schema {
        serde_json::Value::Object(fields) => {
            if let Some(serde_json::Value::Object(properties)) = fields.get("properties") {
                found.extend(properties.keys().cloned());
            }
            for key in ["const", "enum"] {
                let values = fields.get(key).into_iter().flat_map(|v| match v {
                    serde_json::Value::Array(all) => all.clone(),
                    one => vec![one.clone()],
                });
                found.extend(values.filter_map(|v| v.as_str().map(str::to_owned)));
            }
            fields.values().for_each(|v| names(v, found));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|v| names(v, found)),
        _ => {}
    }
}

#[test]
fn every_field_is_documented() {
    let mut all = BTreeSet::new();
    names(&super::super::schema(), &mut all);
    assert!(all.len() > 70, "{all:?}");
    let words: BTreeSet<&str> = DOCUMENT.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let missing: Vec<&String> = all.iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(
        missing.is_empty(),
        "docs/scenarios.md does not mention {missing:?}"
    );
}

#[test]
fn the_defaults_in_the_document_are_those_of_the_code() {
    let durations = serde_json::to_value(super::super::durations::Durations::default()).unwrap();
    let updates = serde_json::to_value(super::super::updates::Updates::default()).unwrap();
    let fields = durations.as_object().unwrap().iter();
    let fields = fields.chain(updates.as_object().unwrap());
    let mut checked = 0;
    for (field, default) in fields {
        let Some(default) = default.as_str() else { continue };
        let row = DOCUMENT
            .lines()
            .find(|l| l.starts_with(&format!("| `{field}` |")));
        let written = row.and_then(|l| l.split('|').nth(2)).unwrap().trim();
        let same = |text: &str| text.parse::<super::super::values::Span>();
        assert_eq!(same(written), same(default), "{field}");
        checked += 1;
    }
    assert_eq!(checked, 11);
}
