//! The YAML and the links of the documents. What only a real API server can tell is told by `tests/scenarios/documents_applied.rs`.

#[path = "../../tests/support/documents.rs"]
mod documents;

use std::path::Path;

use serde_json::Value;

use self::documents::{blocks, examples, objects};
use crate::api::{
    GROUP,
    schema_tests::{problems, refusals},
};

/// Fragments that are shown, by their first line: everything else is complete, and applied by a test.
const FRAGMENTS: &[(&str, &str)] = &[
    // No lane has Argo CD's kinds.
    ("docs/gitops.md", "apiVersion: argoproj.io/v1alpha1"),
    ("docs/gitops.md", "spec:"),
];

#[test]
fn every_example_of_our_kinds_is_taken_by_the_api_server_and_valid() {
    let mut checked = 0;
    for example in examples() {
        let (place, object) = (&example.place, &example.object);
        for field in ["/apiVersion", "/kind", "/metadata/name"] {
            let is_there = object.pointer(field).is_some_and(Value::is_string);
            assert!(
                is_there,
                "{place} has no {field}: if it is a fragment, mark it, ```yaml fragment"
            );
        }
        if !object["apiVersion"].as_str().unwrap().starts_with(GROUP) {
            continue;
        }
        assert_eq!(refusals(object, None), Vec::<String>::new(), "{place}: {object}");
        assert_eq!(problems(object), [], "{place}: {object}");
        checked += 1;
    }
    assert!(checked >= 20, "only {checked} examples are left");
}

#[test]
fn every_fragment_is_known_and_is_yaml() {
    let mut found = Vec::new();
    for block in blocks().into_iter().filter(|b| b.info == "yaml fragment") {
        assert!(!objects(&block.place, &block.text).is_empty(), "{}", block.place);
        let first = block.text.lines().find(|l| !l.trim_start().starts_with('#'));
        let file = block.place.split(':').next().unwrap().to_owned();
        found.push((file, first.unwrap_or_default().to_owned()));
    }
    let known: Vec<(String, String)> = FRAGMENTS
        .iter()
        .map(|(file, first)| ((*file).to_owned(), (*first).to_owned()))
        .collect();
    assert_eq!(found, known);
}

/// Whoever writes a block says what it is: a highlighter wants to know, and so do the tests.
#[test]
fn every_block_says_what_it_is() {
    for block in blocks() {
        let known = [
            "yaml",
            "yaml fragment",
            "sh",
            "console",
            "mermaid",
            "promql",
            "text",
        ];
        // What is told by a program has no language.
        let is_known = block.info.is_empty() || known.contains(&block.info.as_str());
        assert!(is_known, "{}: {}", block.place, block.info);
    }
}

/// The anchors of the headings of a document, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut all = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if !is_code && line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            all.push(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    all
}

#[test]
fn every_link_leads_to_something() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut checked = 0;
    for (file, text) in documents::documents() {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|l| !l.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let here = root.join(&file);
            let target = if path.is_empty() {
                here
            } else {
                here.parent().unwrap().join(path)
            };
            assert!(target.exists(), "{file} links to {link}, which is not there");
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                assert!(
                    anchors(&text).iter().any(|a| a == anchor),
                    "{file} links to {link}: no such heading"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 60, "only {checked} links are left");
}

/// A default that the API server fills into an item of a list looks like a change to tools that compare lists as a whole, as
/// Argo CD does with kinds that it does not know.
#[test]
fn no_default_is_filled_into_the_items_of_a_list() {
    for file in crate::cli::crds::files().unwrap() {
        let crd: Value = serde_yaml::from_str(&file.yaml).unwrap();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
        let found = defaults_in_lists(crd.pointer(spec).unwrap(), "spec", false);
        assert_eq!(found, Vec::<String>::new(), "{}", file.name);
    }
}

fn defaults_in_lists(schema: &Value, path: &str, is_in_list: bool) -> Vec<String> {
    let mut found = Vec::new();
    if is_in_list && !schema["default"].is_null() {
        found.push(path.to_owned());
    }
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        found.extend(defaults_in_lists(below, &format!("{path}.{name}"), is_in_list));
    }
    if schema["items"].is_object() {
        found.extend(defaults_in_lists(&schema["items"], &format!("{path}[]"), true));
    }
    found
}
