//! add-capacity and remove-capacity, against a real API server with OpenShift's own kinds; the test is the machine-api.

use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use openshift_upgrade_operator::api::upgrade_job_hook::HookEvent;
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, wait_for},
    hook::{Hook, SOON},
};

const WHERE: &str = "openshift-machine-api";
const ANNOTATION: &str = "managedupgrade.appuio.io/capacity";

fn api(cluster: &Cluster, kind: &str) -> Api<DynamicObject> {
    cluster.dynamic("machine.openshift.io", "v1beta1", kind, WHERE)
}

pub async fn make(cluster: &Cluster, name: &str, replicas: i64, annotations: Value) {
    cluster
        .make(json!({
            "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
            "metadata": {"name": name, "namespace": WHERE, "annotations": annotations},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"set": name}},
                "template": {"metadata": {"labels": {"set": name}}, "spec": {}},
            },
        }))
        .await;
    set_ready(cluster, name, replicas).await;
}

pub async fn set_ready(cluster: &Cluster, name: &str, ready: i64) {
    let status = json!({"status": {"replicas": ready, "readyReplicas": ready}});
    api(cluster, "MachineSet")
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
}

/// Its replicas, and our annotation.
pub async fn state(cluster: &Cluster, name: &str) -> (i64, Option<String>) {
    let set = api(cluster, "MachineSet").get(name).await.unwrap();
    let replicas = set.data["spec"]["replicas"].as_i64().unwrap();
    (replicas, set.annotations().get(ANNOTATION).cloned())
}

async fn set_replicas(cluster: &Cluster, name: &str, replicas: i64) {
    let spec = json!({"spec": {"replicas": replicas}});
    api(cluster, "MachineSet")
        .patch(name, &PatchParams::default(), &Patch::Merge(&spec))
        .await
        .unwrap();
}

fn add(name: &str) -> Hook {
    Hook::new("add-capacity", HookEvent::Start, name).with("machineset", name)
}

fn remove(name: &str) -> Hook {
    Hook::new("remove-capacity", HookEvent::Finish, name).with("machineset", name)
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn nodes_are_added_once_waited_for_and_removed_even_if_the_hook_is_killed() {
    let cluster = Cluster::ready().await;
    make(&cluster, "workers", 3, json!({})).await;
    let hook = add("workers").with("nodes", "2");
    let mut run = hook.start(&cluster).await;
    run.says("3 of 5 nodes are Ready").await;
    run.kill().await;
    run.says("has its additional nodes already").await;
    assert_eq!(
        state(&cluster, "workers").await,
        (5, Some(r#"{"before":3,"added":2}"#.to_owned()))
    );
    set_ready(&cluster, "workers", 5).await;
    run.end().await.was_killed_once().said("all 5 nodes are Ready");
    add("workers").with("nodes", "2").run(&cluster).await.succeeded();
    assert_eq!(state(&cluster, "workers").await.0, 5, "a second run adds none");

    remove("workers")
        .run(&cluster)
        .await
        .succeeded()
        .said("from 5 to 3 replicas");
    remove("workers")
        .run(&cluster)
        .await
        .succeeded()
        .said("nothing to remove");
    assert_eq!(state(&cluster, "workers").await, (3, None));
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_machine_set_that_somebody_else_changes_at_the_same_time_is_read_again() {
    let cluster = Cluster::ready().await;
    make(&cluster, "busy", 1, json!({})).await;
    let hook = add("busy");
    let run = hook.start(&cluster).await;
    // Without a pause: the hook needs longer between its read and its write.
    let machine_sets = api(&cluster, "MachineSet");
    let busy = tokio::spawn(async move {
        for changes in 1.. {
            let change = json!({"metadata": {"annotations": {"changes": changes.to_string()}}});
            let merge = Patch::Merge(&change);
            machine_sets
                .patch("busy", &PatchParams::default(), &merge)
                .await
                .unwrap();
        }
    });
    run.says("(Conflict)").await;
    busy.abort();
    run.says("1 added to 1").await;
    set_ready(&cluster, "busy", 2).await;
    run.end().await.succeeded();
    assert_eq!(
        state(&cluster, "busy").await,
        (2, Some(r#"{"before":1,"added":1}"#.to_owned()))
    );
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn what_somebody_did_to_the_count_meanwhile_is_kept() {
    let cluster = Cluster::ready().await;
    // Before 2, one was added; then somebody made it this many; so many are left.
    for (name, meanwhile, left) in [("grown", 5, 4), ("shrunk", 2, 2), ("halved", 1, 1)] {
        make(
            &cluster,
            name,
            2,
            json!({ANNOTATION: r#"{"before":2,"added":1}"#}),
        )
        .await;
        set_replicas(&cluster, name, meanwhile).await;
        remove(name).run(&cluster).await.succeeded();
        assert_eq!(state(&cluster, name).await, (left, None), "{name}");
    }
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn nodes_that_do_not_come_are_named_and_what_is_wrong_is_said() {
    let cluster = Cluster::ready().await;
    make(&cluster, "late", 1, json!({})).await;
    for (name, status) in [
        ("late-ok", json!({"phase": "Running"})),
        ("late-new", json!({"phase": "Failed", "errorMessage": "no quota"})),
    ] {
        cluster
            .make(json!({
                "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
                "metadata": {"name": name, "namespace": WHERE, "labels": {"machine.openshift.io/cluster-api-machineset": "late"}},
                "spec": {},
            }))
            .await;
        api(&cluster, "Machine")
            .patch_status(
                name,
                &PatchParams::default(),
                &Patch::Merge(&json!({"status": status})),
            )
            .await
            .unwrap();
    }
    let scaled = json!({"machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "9"});
    make(&cluster, "scaled", 1, scaled).await;
    let hooks = (
        add("late").with("timeout", "3s"),
        add("scaled"),
        add("nowhere"),
        add("late").with("nodes", "-1"),
        add("late").with("timeout", "3h"),
    );
    let ended = tokio::join!(
        hooks.0.run(&cluster),
        hooks.1.run(&cluster),
        hooks.2.run(&cluster),
        hooks.3.run(&cluster),
        hooks.4.run(&cluster),
    );
    ended.0.failed(
        4,
        &[
            "MachineSet late: 1 of 2 nodes are Ready after 3s; late-new is Failed (no quota)",
            "remove-capacity",
        ],
    );
    ended.1.failed(
        2,
        &["a MachineAutoscaler scales MachineSet scaled", "minReplicas"],
    );
    assert_eq!(state(&cluster, "scaled").await, (1, None));
    ended.2.failed(2, &["nowhere", "NotFound", "mend the parameters"]);
    ended.3.failed(2, &["parameter nodes is '-1'"]);
    ended.4.failed(2, &["parameter timeout is '3h': at most 110m"]);
    // What was added goes, also when it never came.
    wait_for("the late node is given up", SOON, async || {
        remove("late").run(&cluster).await.succeeded();
        (state(&cluster, "late").await == (1, None)).then_some(())
    })
    .await;
}
