//! The JSONPaths in the documents' commands: each field is one of the schema of our kinds. What kubectl does not find it prints
//! as nothing, so running a command does not tell.

use openshift_upgrade_operator::cli::crds;
use serde_json::Value;

use crate::documents_commands::{Shown, scripts};

/// The schema of our kind that a command gets, by the names that kubectl takes for it.
fn schema_of(kind: &str) -> Option<Value> {
    // Each of our kinds has these; the reader puts in which.
    let kind = if kind == "KIND" { "upgradeconfig" } else { kind };
    let files = crds::files().unwrap();
    files.into_iter().find_map(|file| {
        let crd: Value = serde_yaml::from_str(&file.yaml).unwrap();
        let names = &crd["spec"]["names"];
        let is_it = names["plural"] == kind || names["singular"] == kind;
        let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema")?.clone();
        is_it.then_some(schema)
    })
}

/// Steps of a path: fields, and `[…]` for items of a list.
fn steps(path: &str) -> Vec<String> {
    let (mut all, mut now, mut depth) = (Vec::new(), String::new(), 0);
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => now.extend(chars.next()),
            '.' if depth == 0 => all.push(std::mem::take(&mut now)),
            '[' => {
                depth += 1;
                if depth == 1 {
                    all.push(std::mem::take(&mut now));
                }
                now.push(c);
            }
            ']' => {
                depth -= 1;
                now.push(c);
            }
            _ => now.push(c),
        }
    }
    all.push(now);
    all.retain(|step| !step.is_empty());
    all
}

/// What a path leads to, from a schema.
fn walk<'a>(from: &'a Value, path: &str) -> Result<&'a Value, String> {
    let mut here = from;
    for step in steps(path) {
        // Kubernetes' own.
        if step == "metadata" {
            return Ok(&Value::Null);
        }
        here = if step.starts_with('[') {
            let items = &here["items"];
            if let Some((_, condition)) = step.split_once("@.") {
                let field: String = condition.chars().take_while(|c| c.is_alphanumeric()).collect();
                if items["properties"][&field].is_null() {
                    return Err(format!("{path}: no field {field}"));
                }
            }
            items
        } else {
            &here["properties"][&step]
        };
        if here.is_null() {
            return Err(format!("{path}: no {step}"));
        }
    }
    Ok(here)
}

/// What is wrong with a template such as `{range .status.steps[*]}{.name}{end}`; how many paths it has.
fn check(schema: &Value, template: &str) -> Result<usize, String> {
    let (mut context, mut count) = (schema, 0);
    for part in template.split('{').skip(1) {
        let part = part.rsplit_once('}').map_or(part, |(inside, _)| inside);
        if part == "end" {
            context = schema;
        } else if let Some(path) = part.strip_prefix("range ") {
            // A list of objects of the kind.
            let path = path.strip_prefix(".items[*]").unwrap_or(path);
            context = walk(schema, path)?;
            count += 1;
        } else if part.starts_with('.') {
            walk(context, part)?;
            count += 1;
        }
    }
    Ok(count)
}

/// The kind that is got, and the template, if the command has one.
fn template(command: &str) -> Option<(String, &str)> {
    let (before, rest) = command.split_once("jsonpath='")?;
    let (_, got) = before.rsplit_once(" get ")?;
    let kind = got.split([' ', '.']).next()?.to_owned();
    Some((kind, rest.split('\'').next()?))
}

#[test]
fn every_field_that_a_command_asks_for_is_there() {
    let mut checked = 0;
    for Shown { place, text } in scripts().into_iter().flatten() {
        let Some((kind, template)) = template(&text) else {
            continue;
        };
        let Some(schema) = schema_of(&kind) else {
            let is_kubernetes = template
                .split('{')
                .skip(1)
                .all(|p| p.starts_with(".metadata.") || p.starts_with('"'));
            assert!(
                is_kubernetes,
                "{place}: the schema of {kind} is not known here: {template}"
            );
            continue;
        };
        checked += check(&schema, template).unwrap_or_else(|e| panic!("{place}: {e}"));
    }
    assert!(checked >= 30, "only {checked} fields are left");
}

#[test]
fn a_field_that_is_not_there_is_found() {
    let job = schema_of("upgradejob").unwrap();
    assert_eq!(
        check(&job, r#"{.status.conditions[?(@.type=="Failed")].message}{"\n"}"#),
        Ok(1)
    );
    assert_eq!(
        check(&job, r"{range .status.steps[*]}{.name}: {.message}{end}"),
        Ok(3)
    );
    for wrong in [
        "{.status.mesage}",
        "{range .status.steps[*]}{.nam}{end}",
        r#"{.status.conditions[?(@.typ=="A")].message}"#,
    ] {
        assert!(check(&job, wrong).is_err(), "{wrong}");
    }
}
