//! pause-argocd and resume-argocd, against a real API server with Argo CD's own kind.

use std::collections::BTreeMap;

use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use openshift_upgrade_operator::api::upgrade_job_hook::HookEvent;
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, wait_for},
    hook::{Hook, SOON},
};

const WHERE: &str = "openshift-gitops";
const ANNOTATION: &str = "managedupgrade.appuio.io/paused-auto-sync";

fn applications(cluster: &Cluster) -> Api<DynamicObject> {
    cluster.dynamic("argoproj.io", "v1alpha1", "Application", WHERE)
}

/// Applications of a test by name, with this `syncPolicy`.
pub async fn make(cluster: &Cluster, test: &str, all: &[(&str, Value)]) {
    for (name, policy) in all {
        let mut application = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": WHERE, "labels": {"test": test}},
            "spec": {
                "project": "default",
                "destination": {"namespace": "shop"},
                "source": {"repoURL": "https://git.example.com/shop", "path": "."},
            },
        });
        if !policy.is_null() {
            application["spec"]["syncPolicy"] = policy.clone();
        }
        cluster.make(application).await;
    }
}

/// By name: `syncPolicy` and our annotation.
pub async fn state(cluster: &Cluster, test: &str) -> BTreeMap<String, (Value, Option<String>)> {
    let of_test = ListParams::default().labels(&format!("test={test}"));
    let all = applications(cluster).list(&of_test).await.unwrap();
    let describe = |a: DynamicObject| {
        let policy = a.data["spec"]["syncPolicy"].clone();
        (a.name_any(), (policy, a.annotations().get(ANNOTATION).cloned()))
    };
    all.into_iter().map(describe).collect()
}

fn pause(test: &str) -> Hook {
    Hook::new("pause-argocd", HookEvent::Start, test)
        .with("selector", format!("test={test}"))
        .with("settle", "1s")
}

fn resume(test: &str) -> Hook {
    Hook::new("resume-argocd", HookEvent::Finish, test).with("selector", format!("test={test}"))
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn auto_sync_is_paused_once_and_put_back_exactly_even_if_the_hook_is_killed() {
    let cluster = Cluster::ready().await;
    let retry = json!({"limit": 3, "backoff": {"duration": "5s"}});
    let all = [
        (
            "exact-full",
            json!({"automated": {"prune": true, "selfHeal": false}, "syncOptions": ["A=b"], "retry": retry}),
        ),
        ("exact-bare", json!({"automated": {}})),
        ("exact-manual", json!({"syncOptions": ["A=b"]})),
        ("exact-none", Value::Null),
    ];
    make(&cluster, "exact", &all).await;
    make(&cluster, "bystander", &[("bystander", json!({"automated": {}}))]).await;
    let before = state(&cluster, "exact").await;

    // Killed while it looks whether something puts auto-sync back.
    let hook = pause("exact").with("settle", "10s");
    let mut run = hook.start(&cluster).await;
    wait_for("all are paused", SOON, async || {
        let now = state(&cluster, "exact").await;
        now.values().all(|(p, _)| p["automated"].is_null()).then_some(())
    })
    .await;
    run.kill().await;
    run.end().await.was_killed_once();
    let paused = state(&cluster, "exact").await;
    let kept: Vec<_> = paused
        .values()
        .map(|(_, annotation)| annotation.as_deref())
        .collect();
    assert_eq!(
        kept,
        [Some("{}"), Some(r#"{"prune":true,"selfHeal":false}"#), None, None],
        "{paused:#?}"
    );

    resume("exact").run(&cluster).await.succeeded();
    assert_eq!(state(&cluster, "exact").await, before);
    resume("exact")
        .run(&cluster)
        .await
        .succeeded()
        .said("nothing to put back");
    assert_eq!(state(&cluster, "exact").await, before);
    assert_eq!(
        state(&cluster, "bystander").await["bystander"],
        (json!({"automated": {}}), None),
        "others are left alone"
    );
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn auto_sync_that_comes_back_is_said_and_what_somebody_set_is_kept() {
    let cluster = Cluster::ready().await;
    make(
        &cluster,
        "child",
        &[("child", json!({"automated": {"prune": true}}))],
    )
    .await;
    let hook = pause("child").with("settle", "10s");
    let run = hook.start(&cluster).await;
    // What a parent Application does.
    wait_for("the child is paused", SOON, async || {
        state(&cluster, "child").await["child"].0["automated"]
            .is_null()
            .then_some(())
    })
    .await;
    let back = json!({"spec": {"syncPolicy": {"automated": {"selfHeal": true}}}});
    applications(&cluster)
        .patch("child", &PatchParams::default(), &Patch::Merge(&back))
        .await
        .unwrap();
    run.end().await.failed(
        3,
        &["auto-sync of child came back within 10s", "pause the parent too"],
    );

    resume("child")
        .run(&cluster)
        .await
        .succeeded()
        .said("left as it is");
    let left = state(&cluster, "child").await;
    assert_eq!(left["child"], (json!({"automated": {"selfHeal": true}}), None));

    let (none, empty, elsewhere) = (
        pause("nobody"),
        pause("child").with("selector", ""),
        pause("child").with("namespace", "default"),
    );
    let ended = tokio::join!(none.run(&cluster), empty.run(&cluster), elsewhere.run(&cluster));
    ended.0.failed(
        2,
        &["no Application in namespace openshift-gitops has the labels test=nobody"],
    );
    ended.1.failed(2, &["parameter selector is empty"]);
    ended.2.failed(
        3,
        &[
            "cannot list Applications in namespace default",
            "Forbidden",
            "apply the roles",
        ],
    );
}
