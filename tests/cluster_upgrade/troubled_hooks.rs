//! Hooks whose Jobs go wrong on real nodes, each in its own way: none holds the upgrade for ever, and each says why.

use jiff::Timestamp;
use openshift_upgrade_operator::api::{
    UpgradeJob, UpgradeJobHook,
    upgrade_job::{HookState, HookTracker, JobPhase},
    upgrade_job_hook::HookEvent,
};
use serde_json::{Value, json};

use crate::{
    SOON, UPGRADE,
    example::{hook, job_to},
    is_over, phase,
    testbed::{NAMESPACE, Testbed, wait_for},
};

/// Of hooks that are ended by it: short for a test.
const SHORT: i64 = 25;
/// Of those that have another end before.
const LONG: i64 = 3_600;

/// The image that the test cluster has.
const IMAGE: &str = "localhost/busybox:1";

/// A hook of Start that does `script`, on a node with these labels.
fn troubled(name: &str, image: &str, script: &str, node: &Value, deadline: i64) -> UpgradeJobHook {
    let mut all = serde_json::to_value(hook(name, &[HookEvent::Start])).unwrap();
    let spec = &mut all["spec"]["template"]["spec"];
    spec["activeDeadlineSeconds"] = json!(deadline);
    spec["backoffLimit"] = json!(0);
    let pod = &mut spec["template"]["spec"];
    pod["nodeSelector"] = node.clone();
    pod["containers"][0]["image"] = json!(image);
    pod["containers"][0]["command"] = json!(["sh", "-c", script]);
    pod["containers"][0]["args"] = json!([]);
    serde_json::from_value(all).unwrap()
}

fn tracked(job: &UpgradeJob, hook: &str) -> HookTracker {
    let all = &job.status.as_ref().unwrap().hook_tracker;
    all.iter().find(|t| t.upgrade_job_hook == hook).cloned().unwrap()
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn hooks_that_go_wrong_say_why_and_the_upgrade_goes_on() {
    let cluster = Testbed::fresh(&["--from-version", "4.18.5"]).await;
    let (anywhere, nowhere) = (json!({}), json!({"there-is": "no-such-node"}));
    for (name, image, script, node, deadline) in [
        ("never-ends", IMAGE, "sleep 3600", &anywhere, SHORT),
        ("no-node", IMAGE, "true", &nowhere, SHORT),
        (
            "wrong-image",
            "localhost/there-is-no-such-image:1",
            "true",
            &anywhere,
            SHORT,
        ),
        ("fails", IMAGE, "echo sorry; exit 3", &anywhere, LONG),
        ("deleted", IMAGE, "sleep 3600", &anywhere, LONG),
        ("works", IMAGE, "true", &anywhere, LONG),
    ] {
        cluster
            .apply(&troubled(name, image, script, node, deadline))
            .await;
    }
    let mut job = job_to(
        "troubled",
        &cluster.cluster_version().await.status.unwrap().desired,
        Timestamp::now(),
        &crate::example::Delay { min: 0, max: 0 },
    );
    // Hooks and health checks only.
    job.spec.desired_version = None;
    cluster.apply(&job).await;

    let seen = wait_for("a hook's pod finds no node, and that shows", SOON, async || {
        let job = cluster.job("troubled").await;
        let steps = &job.status.as_ref()?.steps;
        let step = steps.iter().find(|s| s.name == "hook-start-no-node")?;
        step.message.clone().filter(|m| m.contains("no pod is ready yet"))
    })
    .await;
    assert!(
        seen.contains(&format!(
            "see oc -n {NAMESPACE} describe pods -l batch.kubernetes.io/job-name=troubled-no-node"
        )),
        "{seen}"
    );
    cluster.delete_hook_job("deleted").await;

    let job = wait_for("the job ends", UPGRADE, async || {
        Some(cluster.job("troubled").await).filter(is_over)
    })
    .await;
    assert_eq!(
        phase(&job),
        Some(JobPhase::Succeeded),
        "their failures are ignored"
    );
    for (hook, why) in [
        ("never-ends", "(DeadlineExceeded)"),
        ("no-node", "(DeadlineExceeded)"),
        ("wrong-image", "(DeadlineExceeded)"),
        ("fails", "(BackoffLimitExceeded)"),
        ("deleted", "was deleted before it ended"),
    ] {
        let entry = tracked(&job, hook);
        assert_eq!(entry.status, HookState::Failed, "{entry:?}");
        assert!(entry.message.contains(why), "{hook}: {}", entry.message);
    }
    let works = tracked(&job, "works");
    assert_eq!((works.status, works.message.as_str()), (HookState::Complete, ""));
    let join = job
        .status
        .as_ref()
        .unwrap()
        .steps
        .iter()
        .find(|s| s.name == "hooks-start")
        .unwrap();
    let message = join.message.as_deref().unwrap();
    assert!(
        message.starts_with("hooks of Start: 1 done, 5 failed and ignored: "),
        "{message}"
    );
    cluster.assert_nothing_is_held().await;
}
