//! Checks that the documents say what the code does.

mod api_reference;
mod containerfile;
mod examples;
mod metrics;

use crate::{
    api::{
        UpgradeJob,
        conditions::{reasons, types},
        schema_tests::documents,
    },
    openshift::machine_config_pool::MachineConfigPool,
    plan::{Plan, build},
};

const CONCEPTS: &str = include_str!("../docs/concepts.md");
const EXAMPLE: &str = include_str!("../docs/examples/cluster-upgrade.yaml");

/// What a person looks for in a UI must be there under this very name.
#[test]
fn steps_and_titles_of_the_engines_page_are_those_of_a_plan() {
    let text = include_str!("../docs/engines.md");
    let table = text
        .split("| step; ")
        .nth(1)
        .and_then(|t| t.split("\n\n").next())
        .unwrap();
    let job: UpgradeJob = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "j", "namespace": "n"},
        "spec": {
            "startAfter": "2026-11-24T21:00:00Z", "startBefore": "2026-11-24T22:00:00Z", "desiredVersion": {"version": "4.18.5"},
            "config": {"machineConfigPools": [{"matchLabels": {"pool": "night"}, "delayUpgrade": {"delayMin": "1h"}}]},
        },
    }))
    .unwrap();
    let pool: MachineConfigPool = serde_json::from_value(
        serde_json::json!({"metadata": {"name": "night", "labels": {"pool": "night"}}, "spec": {}}),
    )
    .unwrap();
    let hooks = [
        (
            "notify",
            vec!["Create", "UpgradeComplete", "Success", "Failure", "Finish"],
        ),
        ("backup", vec!["Start"]),
        ("drain", vec!["MachineConfigPoolUnpause"]),
    ];
    let hooks = hooks.map(|(name, events)| {
        let metadata = serde_json::json!({"name": name, "namespace": "n"});
        serde_json::from_value(serde_json::json!({"metadata": metadata, "spec": {"events": events}})).unwrap()
    });
    let mut all = build::create_plan(&job, &hooks, 1).unwrap().steps;
    all.extend(build::main_plan(&job, &hooks, &[pool], 1).steps);
    let in_plan: Vec<(&str, &str)> = all.iter().map(|s| (s.name.as_str(), s.title.as_str())).collect();
    let marked = |cell: &str, mark| -> Vec<String> {
        let parts = cell.split(mark).skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    };
    let mut documented = Vec::new();
    for row in table.lines().skip(2) {
        let cells: Vec<&str> = row.split('|').collect();
        documented.extend(marked(cells[1], '`').into_iter().zip(marked(cells[2], '*')));
    }
    let documented: Vec<(&str, &str)> = documented.iter().map(|(s, t)| (s.as_str(), t.as_str())).collect();
    assert_eq!(documented, in_plan);
}

/// A job of the example's config, with a pool that it holds.
fn plan_of_the_example() -> Plan {
    let config = documents(EXAMPLE)
        .into_iter()
        .find(|d| d["kind"] == "UpgradeConfig")
        .unwrap();
    let job: UpgradeJob = serde_json::from_value(serde_json::json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJob",
        "metadata": {"name": "example", "namespace": "openshift-upgrade"},
        "spec": {
            "startAfter": "2026-11-24T21:00:00Z",
            "startBefore": "2026-11-24T22:00:00Z",
            "desiredVersion": {"version": "4.18.5"},
            "config": config["spec"]["jobTemplate"]["spec"]["config"],
        },
    }))
    .unwrap();
    let pool: MachineConfigPool = serde_json::from_value(serde_json::json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "pool", "labels": {"name": "x-app-night-maintenance"}},
        "spec": {},
    }))
    .unwrap();
    build::main_plan(&job, &[], &[pool], 1)
}

#[test]
fn the_table_of_steps_has_the_steps_of_a_plan_in_their_order() {
    let section = CONCEPTS
        .split("## The steps")
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next())
        .unwrap();
    let documented: Vec<String> = section
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split_once(" |"))
        .flat_map(|(names, _)| names.split(['`', ',', ' ']))
        .filter(|name| !name.is_empty() && *name != "or")
        .map(|name| name.replace("<pool>", "pool"))
        .collect();
    let planned: Vec<String> = plan_of_the_example().steps.into_iter().map(|s| s.name).collect();
    assert_eq!(documented, planned);
}

#[test]
fn every_reason_of_an_ending_is_documented() {
    let failed = [
        reasons::PRE_HEALTH_CHECK_FAILED,
        reasons::UPGRADE_WITHDRAWN,
        reasons::UPGRADE_CONDITIONAL,
        reasons::UPDATE_SERVICE_UNAVAILABLE,
        reasons::UPGRADE_REJECTED,
        reasons::UPGRADE_INVALID,
        reasons::DESIRED_UPDATE_CHANGED,
        reasons::TIMED_OUT,
        reasons::UNPAUSING_POOLS_EXPIRED,
        reasons::POST_HEALTH_CHECK_FAILED,
        reasons::HOOK_FAILED,
        reasons::WORKFLOW_STOPPED,
        reasons::LOCK_LOST,
    ];
    let endings: Vec<&str> = CONCEPTS
        .lines()
        .filter(|l| l.starts_with("| ") && (l.contains("| `Failed`") || l.contains("| `Succeeded`")))
        .collect();
    for reason in failed {
        let row = endings.iter().find(|l| l.contains(&format!("`{reason}`")));
        assert!(
            row.is_some_and(|l| l.contains("`Failed`")),
            "{reason} is not documented"
        );
    }
    for other in [reasons::SKIPPED, types::EXPIRED] {
        assert!(
            endings.iter().any(|l| l.contains(other)),
            "{other} is not documented"
        );
    }
    assert!(CONCEPTS.contains(types::POOLS_LEFT_PAUSED));
    for reason in [
        reasons::PENDING_CHANGES,
        reasons::ORPHANED,
        reasons::PAUSED_ON_FAILURE,
        reasons::NOTHING_PENDING,
    ] {
        assert!(
            CONCEPTS.contains(&format!("| `{reason}` |")),
            "{reason} is not documented"
        );
    }
}

/// Paths of all fields of a JSON document, in the way that documents write them.
fn paths(value: &serde_json::Value, prefix: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Array(items) => {
            found.push(format!("`{prefix}[]`"));
            for item in items {
                paths(item, &format!("{prefix}[]"), found);
            }
        }
        serde_json::Value::Object(fields) => {
            if prefix.ends_with("[]") {
                found.push(format!("`{prefix}`"));
            }
            for (name, below) in fields {
                let dot = if prefix.is_empty() { "" } else { "." };
                paths(below, &format!("{prefix}{dot}{name}"), found);
            }
        }
        _ => found.push(format!("`{prefix}`")),
    }
}

#[test]
fn the_document_of_a_rehearsal_is_described() {
    let text = include_str!("../docs/rehearse.md");
    let mut found = Vec::new();
    paths(
        &crate::simulator::rehearsal::report::tests::example(),
        "",
        &mut found,
    );
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 21, "{found:?}");
    for path in found {
        assert!(text.contains(&path), "{path} is not in docs/rehearse.md");
    }
}

#[test]
fn the_concepts_have_everything_that_holds_the_operator() {
    for reason in [reasons::CLOCK_SKEW, reasons::PEER_AT_WORK] {
        assert!(CONCEPTS.contains(&format!("| `{reason}` |")), "{reason}");
    }
    let limit = crate::text::duration(crate::outside::Outside::MOST_SKEW);
    assert!(
        CONCEPTS.contains(&format!("differ by more than {limit} |")),
        "{limit}"
    );
}
