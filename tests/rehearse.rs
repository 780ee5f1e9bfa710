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
