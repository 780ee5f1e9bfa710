//! The chart by the real helm: upgraded with its CRDs, not removed while an upgrade runs, given a second replica after the
//! refusal, removed without a trace of the operator, and installed again beside what stayed.

use std::{fs, path::Path};

use jiff::Timestamp;
use kube::ResourceExt;
use openshift_upgrade_operator::api::upgrade_job::StepPhase;
use serde_json::Value;

use crate::{
    SOON, UPGRADE,
    example::{Delay, config, job_to},
    installation::{Installation, RELEASE, chart, get, helm, rolled_out, run},
    is_over, step_phase,
    testbed::{self, NAMESPACE, Testbed, wait_for},
};

/// The CRD that the older chart has an older schema of.
const CRD: &str = "upgradesuspensionwindows.managedupgrade.appuio.io";
/// Every kind that the chart or the operator makes.
const KINDS: &str = "deployments,replicasets,pods,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings";

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

/// What Helm says of the newest revision of the release: its number, and what has become of it.
fn newest_revision() -> (u64, String) {
    let history: Value = serde_json::from_str(&helm(&["history", RELEASE, "--output=json"])).unwrap();
    let newest = history.as_array().unwrap().last().unwrap().clone();
    let status = newest["status"].as_str().unwrap().to_owned();
    (newest["revision"].as_u64().unwrap(), status)
}

/// Upgrades the release to a chart, with these values besides.
fn upgrade(chart: &str, values: &str, more: &[&str]) {
    helm(&[&["upgrade", RELEASE, chart, "--values", values], more].concat());
}

/// As a person does whose removal was refused: says which revision counts, and goes on from there.
async fn take_the_refusal_back(cluster: &Testbed, values: &str) {
    let (revision, status) = newest_revision();
    assert_ne!(status, "deployed", "Helm takes it for removed in part");
    helm(&["rollback", RELEASE, &revision.to_string()]);
    rolled_out();
    for replicas in [2, 1] {
        upgrade(&chart(), values, &[&format!("--set=replicas={replicas}")]);
        rolled_out();
        wait_for("as many pods as replicas", SOON, async || {
            let pods = cluster.operator_pods().await;
            (pods.len() == replicas && pods.iter().all(testbed::is_ready)).then_some(())
        })
        .await;
    }
    assert_eq!(newest_revision().1, "deployed");
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn the_chart_is_upgraded_removed_and_installed_again() {
    let cluster = Testbed::fresh(&[]).await;
    let installation = Installation::remember();
    let values = installation.values();
    let folder = tempfile::tempdir().unwrap();

    // An older one, and back.
    let older = older_chart(folder.path());
    upgrade(&older, &values, &["--set=operator.drainReportAfter=6m"]);
    assert!(!knows_the_reason() && arguments_of_operator().contains("--drain-report-after=6m"));
    upgrade(&chart(), &values, &[]);
    assert!(knows_the_reason(), "the CRD was not upgraded");
    assert!(!arguments_of_operator().contains("--drain-report-after"));
    rolled_out();

    // Not while an upgrade runs, and that goes on.
    let to = cluster.offered("4.18.5").await;
    cluster.fault("stall-at", "40").await;
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
    cluster.fault("stall-at", "").await;
    rolled_out();
    take_the_refusal_back(&cluster, &values).await;
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
    wait_for("the operator is at work again", SOON, async || {
        let runs = get(&["upgradeconfig", "new"])["status"]["nextPossibleSchedules"].clone();
        runs.as_array().is_some_and(|r| !r.is_empty()).then_some(())
    })
    .await;
}
