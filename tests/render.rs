//! `upgrade-operator render` as a program: what goes where, and the exit code.

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use assert_cmd::Command;
use serde_json::Value;

const JOB: &str = "
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeJob
metadata: {name: cluster-upgrade-1795554000-ef11c47, namespace: upgrades}
spec:
  startAfter: 2026-11-24T21:00:00Z
  startBefore: 2026-11-24T22:00:00Z
  desiredVersion: {version: 4.18.5}
";

fn render(text: &str) -> assert_cmd::assert::Assert {
    render_for("argo", text)
}

fn render_for(engine: &str, text: &str) -> assert_cmd::assert::Assert {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("job.yaml"), text).unwrap();
    let mut command = Command::cargo_bin("upgrade-operator").unwrap();
    command
        .args(["render", "--engine", engine, "-f"])
        .arg(folder.path())
        .assert()
}

#[test]
fn a_workflow_goes_to_standard_output() {
    let output = render(JOB).success().get_output().clone();
    assert_eq!(output.stderr, b"");
    let workflow: Value = serde_yaml::from_slice(&output.stdout).unwrap();
    assert_eq!(workflow["kind"], "Workflow");
    assert_eq!(
        workflow["metadata"]["name"],
        "cluster-upgrade-1795554000-ef11c47-run-1"
    );
}

#[test]
fn so_does_a_pipeline_run() {
    let output = render_for("tekton", JOB).success().get_output().clone();
    let run: Value = serde_yaml::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&run["apiVersion"], &run["kind"]),
        (&"tekton.dev/v1".into(), &"PipelineRun".into())
    );
}

#[test]
fn wrong_input_is_one_line_on_standard_error_and_exit_code_2() {
    for text in ["", "kind: [", &JOB.replace("2026-11-24T22:00:00Z", "later")] {
        let output = render(text).code(2).get_output().clone();
        assert_eq!(output.stdout, b"");
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
}
