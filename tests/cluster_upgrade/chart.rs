//! The chart by the real helm: upgraded with its CRDs, not removed while an upgrade runs, removed without a trace of the
//! operator, and installed again beside what stayed.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use openshift_upgrade_operator::api::upgrade_job::StepPhase;
use serde_json::Value;

use crate::{
    SOON, UPGRADE,
    example::{Delay, config, job_to},
    is_over, step_phase,
    testbed::{NAMESPACE, Testbed, wait_for},
};

const RELEASE: &str = "upgrade-operator";
/// The CRD that the older chart has an older schema of.
const CRD: &str = "upgradesuspensionwindows.managedupgrade.appuio.io";
/// Every kind that the chart or the operator makes.
const KINDS: &str = "deployments,replicasets,pods,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings";

/// Runs a command; whether it succeeded, and all that it said.
fn run(program: &str, arguments: &[&str]) -> (bool, String) {
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

fn helm(arguments: &[&str]) -> String {
    let (done, said) = run("helm", &[arguments, &["--namespace", NAMESPACE]].concat());
    assert!(done, "helm {arguments:?}: {said}");
    said
}

fn get(what: &[&str]) -> Value {
    let (done, said) = run(
        "kubectl",
        &[&["get", "--output=json", "--namespace", NAMESPACE], what].concat(),
    );
    assert!(done, "kubectl get {what:?}: {said}");
    serde_json::from_str(&said).unwrap()
}

fn chart() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("charts/openshift-upgrade-operator")
        .to_str()
        .unwrap()
        .to_owned()
}

/// The chart with a CRD of which the reason of a window is not known.
fn older_chart(to: &Path) -> String {
    let chart = chart();
    let copy = to.join("chart").to_str().unwrap().to_owned();
    assert!(run("cp", &["-RL", &chart, &copy]).0);
    let file = Path::new(&copy).join("files/crds/upgradesuspensionwindows.yaml");
    let mut crd: Value = serde_yaml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = crd.pointer_mut(fields).unwrap().as_object_mut().unwrap();
    assert!(fields.remove("reason").is_some());
    // As in the repository: the chart finds the metadata of the CRD by the line.
    fs::write(
        &file,
        format!("# Older.\n{}", serde_yaml::to_string(&crd).unwrap()),
    )
    .unwrap();
    copy
}

fn knows_the_reason() -> bool {
    let crd = get(&["customresourcedefinition", CRD]);
    let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/reason";
    crd.pointer(fields).is_some()
}

fn arguments_of_operator() -> String {
    get(&["deployment", "upgrade-operator"])["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
}

fn rolled_out() {
    let arguments = [
        "rollout",
        "status",
        "deployment/upgrade-operator",
        "--timeout=90s",
        "--namespace",
        NAMESPACE,
    ];
    let (done, said) = run("kubectl", &arguments);
    assert!(done, "{said}");
}

/// What there is of the operator beside CRDs and our resources.
fn traces() -> Vec<String> {
    let of_ours = [
        "--selector",
        "app.kubernetes.io/part-of=openshift-upgrade-operator",
    ];
    let all = get(&[&[&format!("{KINDS},jobs.batch")[..]][..], &of_ours].concat());
    let name = |o: &Value| format!("{} {}", o["kind"], o["metadata"]["name"]);
    all["items"].as_array().unwrap().iter().map(name).collect()
}

/// The values of the release as they are now, for an installation that is like it.
fn values_of_release(to: &Path) -> String {
    let values = helm(&["get", "values", RELEASE, "--output=json"]);
    let file = to.join("values.json");
    fs::write(&file, values).unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn the_chart_is_upgraded_removed_and_installed_again() {
    let cluster = Testbed::fresh(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let values = values_of_release(folder.path());

    // An older one, and back.
    let older = older_chart(folder.path());
    helm(&[
        "upgrade",
        RELEASE,
        &older,
        "--values",
        &values,
        "--set=operator.drainReportAfter=6m",
    ]);
    assert!(!knows_the_reason() && arguments_of_operator().contains("--drain-report-after=6m"));
    helm(&["upgrade", RELEASE, &chart(), "--values", &values]);
    assert!(knows_the_reason(), "the CRD was not upgraded");
    assert!(!arguments_of_operator().contains("--drain-report-after"));
    rolled_out();

    // Not while an upgrade runs, and that goes on.
    let to = cluster.offered("4.18.5").await;
    let job = job_to("running", &to, Timestamp::now(), &Delay { min: 0, max: 0 });
    cluster.apply(&job).await;
    wait_for("the control plane updates", SOON, async || {
        let job = cluster.job("running").await;
        (step_phase(&job, "await-control-plane") == Some(StepPhase::Running)).then_some(())
    })
    .await;
    let (removed, said) = run("helm", &["uninstall", RELEASE, "--namespace", NAMESPACE]);
    println!("{said}");
    assert!(!removed, "removed in mid-upgrade");
    assert!(said.contains("UpgradeJob running is running"), "{said}");
    rolled_out();
    wait_for("the upgrade ends", UPGRADE, async || {
        is_over(&cluster.job("running").await).then_some(())
    })
    .await;
    cluster.assert_installed("4.18.5").await;

    // What stays: the resources and their kinds.
    let later = Timestamp::now() + jiff::SignedDuration::from_hours(24 * 60);
    cluster
        .apply(&config("kept", later, &Delay { min: 0, max: 0 }))
        .await;
    helm(&["uninstall", RELEASE]);
    wait_for("nothing of the operator is left", SOON, async || {
        let left = traces();
        println!("left: {left:?}");
        left.is_empty().then_some(())
    })
    .await;
    cluster.assert_nothing_is_held().await;
    assert_eq!(get(&["upgradeconfig", "kept"])["metadata"]["name"], "kept");
    assert_eq!(cluster.job("running").await.name_any(), "running");
    assert!(knows_the_reason());

    // And again, beside what stayed.
    helm(&["install", RELEASE, &chart(), "--values", &values]);
    rolled_out();
    // For half a minute after the removal the Lease is kept from it.
    cluster
        .apply(&config("new", later, &Delay { min: 0, max: 0 }))
        .await;
    wait_for(
        "the operator is at work again",
        Duration::from_secs(120),
        async || {
            let runs = get(&["upgradeconfig", "new"])["status"]["nextPossibleSchedules"].clone();
            runs.as_array().is_some_and(|r| !r.is_empty()).then_some(())
        },
    )
    .await;
}
