//! The operator as the chart's release on the test cluster, for tests that take it away or change it.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::testbed::NAMESPACE;

/// The release that `tests/cluster/up` makes.
pub const RELEASE: &str = "upgrade-operator";

/// Runs a command; whether it succeeded, and all that it said.
pub fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}; eval \"$(tests/cluster/env)\""));
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// The same in the operator's namespace; what it said is the error where it failed.
fn try_run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let (done, said) = run(program, &[arguments, &["--namespace", NAMESPACE]].concat());
    if done {
        Ok(said)
    } else {
        Err(format!("{program} {arguments:?}: {said}"))
    }
}

/// helm, in the operator's namespace, where it must not fail.
pub fn helm(arguments: &[&str]) -> String {
    try_run("helm", arguments).unwrap_or_else(|said| panic!("{said}"))
}

/// kubectl, likewise.
pub fn kubectl(arguments: &[&str]) -> String {
    try_run("kubectl", arguments).unwrap_or_else(|said| panic!("{said}"))
}

/// What kubectl finds, as JSON.
pub fn get(what: &[&str]) -> Value {
    let said = kubectl(&[&["get", "--output=json"], what].concat());
    serde_json::from_str(&said).unwrap()
}

/// A file or folder of the repository.
pub fn path(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    path.to_str().unwrap().to_owned()
}

/// The chart's folder.
pub fn chart() -> String {
    path("charts/openshift-upgrade-operator")
}

/// Waits until the operator's Deployment is as it is to be.
pub fn rolled_out() {
    try_rolled_out().unwrap_or_else(|said| panic!("{said}"));
}

fn try_rolled_out() -> Result<(), String> {
    let deployment = "deployment/upgrade-operator";
    try_run("kubectl", &["rollout", "status", deployment, "--timeout=240s"]).map(drop)
}

/// The operator as it is installed when this is made. Dropped, it is installed like that again, whatever a test has made of it.
pub struct Installation {
    folder: TempDir,
}

impl Installation {
    /// Of now.
    pub fn remember() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let values = helm(&["get", "values", RELEASE, "--output=json"]);
        let installation = Self { folder };
        fs::write(installation.values(), values).unwrap();
        installation
    }

    /// A file with the values of its release.
    pub fn values(&self) -> String {
        let file = self.folder.path().join("values.json");
        file.to_str().unwrap().to_owned()
    }

    fn restore(&self) -> Result<(), String> {
        let namespace = path("deploy/kustomize/namespace.yaml");
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename",
            &namespace,
        ];
        try_run("kubectl", &apply)?;
        if !is_deployed() {
            // Half removed or half made: only what is no release at all is made anew.
            remove_at_once()?;
        }
        let values = self.values();
        let install = [
            "upgrade",
            "--install",
            RELEASE,
            &chart(),
            "--values",
            &values,
            "--reset-values",
            "--take-ownership",
            "--force-conflicts",
        ];
        try_run("helm", &install)?;
        try_rolled_out()
    }
}

/// Takes the release away, whole or not, without the hook that asks whether it may go.
///
/// The operator is stopped first, as it gives its Lease back: a moment later its rights are gone, and `tests/access` would
/// find a request that was refused.
pub fn remove_at_once() -> Result<(), String> {
    let is_there = run(
        "kubectl",
        &["get", "deployment", RELEASE, "--namespace", NAMESPACE],
    )
    .0;
    if is_there {
        try_run("kubectl", &["scale", "deployment", RELEASE, "--replicas=0"])?;
        let ours = "--selector=app.kubernetes.io/name=upgrade-operator";
        try_run(
            "kubectl",
            &["wait", "pods", ours, "--for=delete", "--timeout=240s"],
        )?;
    }
    let remove = ["uninstall", RELEASE, "--no-hooks", "--ignore-not-found", "--wait"];
    try_run("helm", &remove).map(drop)
}

/// Whether the release is whole, with whatever values.
fn is_deployed() -> bool {
    try_run("helm", &["status", RELEASE, "--output=json"])
        .ok()
        .and_then(|said| serde_json::from_str::<Value>(said.trim()).ok())
        .is_some_and(|release| release["info"]["status"] == "deployed")
}

impl Drop for Installation {
    fn drop(&mut self) {
        match self.restore() {
            Ok(()) => {}
            Err(said) if std::thread::panicking() => {
                eprintln!("the operator is not installed again: {said}");
            }
            Err(said) => panic!("the operator is not installed again: {said}"),
        }
    }
}
