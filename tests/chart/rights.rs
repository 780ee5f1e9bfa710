//! The table of rights in docs/install.md, against the roles that the chart makes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{rendering::base, text};

/// Where, API group, resource (with the name it is limited to), verb. A role of OpenShift's has no verb.
type Right = [String; 4];

fn strings(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|v| v.as_str().unwrap().to_owned()).collect()
}

/// What a rule grants.
fn granted(place: &str, rule: &Value) -> Vec<Right> {
    let name = strings(&rule["resourceNames"]).join(", ");
    let mut rights = Vec::new();
    for group in strings(&rule["apiGroups"]) {
        for resource in strings(&rule["resources"]) {
            let resource = match name.as_str() {
                "" => resource,
                name => format!("{resource} named {name}"),
            };
            for verb in strings(&rule["verbs"]) {
                rights.push([place.to_owned(), group.clone(), resource.clone(), verb]);
            }
        }
    }
    rights
}

/// What the chart's roles grant by default, and those of others that it binds.
fn of_the_chart() -> BTreeSet<Right> {
    let objects = base();
    let of = |o: &Value| -> Vec<Right> {
        let (kind, name) = (
            o["kind"].as_str().unwrap(),
            o["metadata"]["name"].as_str().unwrap(),
        );
        let place = match (kind, name) {
            ("Role", "upgrade-operator") => "its namespace",
            ("Role", "upgrade-workflow") => "pods of workflows",
            ("ClusterRole", "upgrade-operator") => "the cluster",
            ("ClusterRoleBinding" | "RoleBinding", _) => {
                let role = o["roleRef"]["name"].as_str().unwrap();
                let is_ours = ["upgrade-operator", "upgrade-workflow"].contains(&role);
                let bound = ["the cluster", "", role, ""].map(str::to_owned);
                return if is_ours { Vec::new() } else { vec![bound] };
            }
            ("Role" | "ClusterRole", other) => {
                panic!("{kind} {other} is not in the table of docs/install.md")
            }
            _ => return Vec::new(),
        };
        let rules = o["rules"].as_array().unwrap();
        rules.iter().flat_map(|rule| granted(place, rule)).collect()
    };
    objects.iter().flat_map(of).collect()
}

fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What the table says.
fn documented() -> BTreeSet<Right> {
    let install = text("docs/install.md");
    let table = install
        .split_once("| where | API group | resources | verbs | why |\n")
        .and_then(|(_, rest)| rest.split("\n\n").next())
        .expect("a table of rights in docs/install.md");
    let (mut place, mut rights) = (String::new(), BTreeSet::new());
    for row in table.lines().skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [here, group, resources, verbs, why] = cells[..] else {
            panic!("not five cells: {row}");
        };
        assert!(!why.is_empty(), "no reason: {row}");
        if !here.is_empty() {
            here.clone_into(&mut place);
        }
        let group = if group == "core" {
            String::new()
        } else {
            code(group).concat()
        };
        let resources = match resources.split_once(" named ") {
            Some((resource, name)) => vec![format!(
                "{} named {}",
                code(resource).concat(),
                code(name).concat()
            )],
            None => code(resources),
        };
        let verbs = if verbs.is_empty() {
            vec![String::new()]
        } else {
            code(verbs)
        };
        for resource in resources {
            for verb in &verbs {
                let right = [place.clone(), group.clone(), resource.clone(), verb.clone()];
                assert!(rights.insert(right), "twice in the table: {resource} {verb}");
            }
        }
    }
    rights
}

#[test]
fn the_table_of_rights_is_what_the_chart_grants() {
    let (granted, documented) = (of_the_chart(), documented());
    assert!(granted.len() > 80, "{granted:#?}");
    let missing: Vec<_> = granted.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&granted).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "docs/install.md, granted and not in the table: {missing:#?}; in the table and not granted: {stale:#?}"
    );
}
