//! `upgrade-operator rehearse` as a program: what goes where, and the exit code.

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use assert_cmd::Command;
use rstest::rstest;
use serde_json::Value;

const CONFIG: &str = "
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeConfig
metadata: {name: c, namespace: ns}
spec: {schedule: {cron: '0 22 * * 2'}, jobTemplate: {spec: {}}}
";

/// Rehearses in a folder with these files.
fn rehearse(files: &[(&str, &str)], args: &[&str]) -> assert_cmd::assert::Assert {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let mut command = Command::cargo_bin("upgrade-operator").unwrap();
    command
        .current_dir(folder.path())
        .env_remove("RUST_LOG")
        .arg("rehearse")
        .args(args)
        .assert()
}

#[rstest]
#[case::not_yaml("kind: [", &["f.yaml"], "f.yaml:2: not valid YAML")]
#[case::no_object("", &["f.yaml"], "f.yaml holds no Kubernetes object")]
#[case::missing(CONFIG, &["f.yaml", "g.yaml"], "cannot read g.yaml: ")]
#[case::nothing_to_do("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}", &["-f", "f.yaml"], "no UpgradeConfig and no UpgradeJob")]
#[case::scenario(CONFIG, &["f.yaml", "--scenario", "f.yaml"], "f.yaml:2: ")]
#[case::no_scenario(CONFIG, &["f.yaml", "--scenario", "s.yaml"], "cannot read scenario s.yaml: ")]
#[case::from(CONFIG, &["f.yaml", "--from", "tomorrow"], "invalid value 'tomorrow' for '--from <TIME>'")]
#[case::length(CONFIG, &["f.yaml", "--for", "1w"], "invalid value '1w' for '--for <DURATION>'")]
#[case::zone(CONFIG, &["f.yaml", "--default-location", "+02:00"], "cannot use --default-location")]
#[case::fail_on(CONFIG, &["f.yaml", "--fail-on", "all"], "[possible values: failed, skipped, warning]")]
#[case::flag(CONFIG, &["f.yaml", "--fast"], "unexpected argument '--fast' found")]
fn wrong_input_is_one_line_on_standard_error_and_exit_code_2(
    #[case] text: &str,
    #[case] args: &[&str],
    #[case] expected: &str,
) {
    let output = rehearse(&[("f.yaml", text)], args).code(2).get_output().clone();
    assert_eq!(output.stdout, b"");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(
        message.starts_with("error: ") && message.contains(expected),
        "{message}"
    );
}

#[test]
fn the_help_has_an_example() {
    let output = rehearse(&[], &["--help"]).success().get_output().clone();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("upgrade-operator rehearse clusters/prod/ --from 2026-12-01T00:00:00Z --for 1y"));
    assert!(!help.contains('\u{1b}'), "no colours in a pipe");
}

/// Rehearses `tests/golden/rehearse`: one night that goes well, one that is suspended, one that fails.
fn golden(args: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = Command::cargo_bin("upgrade-operator").unwrap();
    command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/rehearse"))
        .env_remove("RUST_LOG")
        .args([
            "rehearse",
            "manifests",
            "--scenario",
            "scenario.yaml",
            "--seed",
            "7",
        ])
        .args(["--from", "2026-12-01T00:00:00Z", "--for", "21d"])
        .args(args)
        .assert()
}

fn assert_golden(name: &str, output: Vec<u8>) {
    insta::with_settings!({
        snapshot_path => "golden/rehearse",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_binary_snapshot!(name, output);
    });
}

#[test]
fn the_timeline_of_three_nights() {
    let output = golden(&["--fail-on", "skipped"]).code(1).get_output().clone();
    assert_eq!(output.stderr, b"", "no progress and no logs in a pipe");
    assert_golden("timeline.txt", output.stdout);
}

#[test]
fn the_document_of_three_nights() {
    let output = golden(&["-o", "json"]).success().get_output().clone();
    assert_eq!(output.stderr, b"");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let phases: Vec<_> = document["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| &job["phase"])
        .collect();
    assert_eq!(phases, ["Succeeded", "Failed"]);
    assert_eq!(document["skipped"][0]["run"], "2026-12-08T21:00:00Z");
    assert_golden("document.json", output.stdout);
}

/// Every call of `rehearse` in a file for a CI service, as words: in a line of a script, or as the arguments of a container.
fn calls(file: &Value) -> Vec<Vec<String>> {
    let words: Vec<String> = match file {
        Value::String(line) => line.split_whitespace().map(str::to_owned).collect(),
        Value::Array(all) => {
            let words = all.iter().map(|w| w.as_str().map(str::to_owned));
            words.collect::<Option<_>>().unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let at = words.iter().position(|w| w == "rehearse");
    // Names of jobs have no flags.
    let call = at.filter(|_| words.iter().any(|w| w.starts_with("--from")));
    if let Some(at) = call {
        return vec![words[at + 1..].to_vec()];
    }
    match file {
        Value::Array(all) => all.iter().flat_map(calls).collect(),
        Value::Object(fields) => fields.values().flat_map(calls).collect(),
        _ => Vec::new(),
    }
}

/// As they stand there, but for the folder and for the length: a fortnight instead of a year. The manifests are those of the
/// layout for many clusters before Kustomize puts them together.
#[rstest]
#[case::github("ci/github.yaml", &["manifests.yaml"])]
#[case::gitlab("ci/gitlab.yaml", &["test-1.yaml", "prod-1.yaml"])]
#[case::tekton("rehearse-task.yaml", &["manifests.yaml"])]
fn what_the_examples_for_ci_call_rehearses_the_manifests_of_a_cluster(
    #[case] file: &str,
    #[case] manifests: &[&str],
) {
    let read = |name: &str| {
        let path = format!("{}/docs/examples/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
    };
    let shown: Value = serde_yaml::from_str(&read(file)).unwrap();
    let calls = calls(&shown);
    assert_eq!(calls.len(), manifests.len(), "{calls:?}");
    for (call, name) in calls.iter().zip(manifests) {
        let cluster = if *name == "test-1.yaml" {
            "test-1"
        } else {
            "prod-1"
        };
        let parts = ["base/holidays", "base/notify", "base/upgrade"].map(str::to_owned);
        let parts = parts
            .into_iter()
            .chain([format!("clusters/{cluster}/cluster-version")]);
        let all: Vec<String> = parts.map(|p| read(&format!("gitops/{p}.yaml"))).collect();
        let arguments: Vec<String> = call
            .iter()
            .map(|word| {
                word.replace("$(workspaces.source.path)/", "")
                    .replace("$(params.manifests)", "manifests.yaml")
                    .replace("/work/", "")
                    .replace("1y", "14d")
            })
            .collect();
        assert_eq!(arguments[0], *name);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = rehearse(&[(name, &all.join("\n---\n"))], &arguments);
        let output = output.success().get_output().clone();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("\n2 runs: 2 succeeded, 0 failed, 0 skipped\n"),
            "{file}: {text}"
        );
    }
}

#[test]
fn the_shipped_example_succeeds() {
    let output = rehearse(
        &[],
        &[
            "--from",
            "2026-12-01T00:00:00Z",
            "--for",
            "2d",
            "--fail-on",
            "skipped",
        ],
    );
    let output = output.success().get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("unpause-x-app-night"), "its pool is there: {text}");
    assert!(
        text.contains("\n1 run: 1 succeeded, 0 failed, 0 skipped\n"),
        "{text}"
    );
}
