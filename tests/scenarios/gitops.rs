//! Objects that come from Git: nothing that the operator writes is a difference to them, before, during and after an upgrade.

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::harness::{
    NAMESPACE, NIGHT, Scenario, assert_succeeded,
    objects::{hold_night, hook, in_seconds, job},
    scenario, until,
};

/// As Argo CD calls itself.
const MANAGER: &str = "argocd-controller";

fn api(s: &Scenario, object: &Value) -> Api<DynamicObject> {
    let (version, kind) = (
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    if object["metadata"]["namespace"].is_string() {
        return s.dynamic(version, kind);
    }
    let (group, version) = version.split_once('/').unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::all_with(s.client.clone(), &resource)
}

/// Applies as Argo CD does with `ServerSideApply=true`; a field that somebody else has is a conflict.
async fn try_apply(s: &Scenario, object: &Value, dry_run: bool) -> kube::Result<DynamicObject> {
    let params = PatchParams {
        dry_run,
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let name = object["metadata"]["name"].as_str().unwrap();
    api(s, object).patch(name, &params, &Patch::Apply(object)).await
}

async fn apply(s: &Scenario, object: &Value, dry_run: bool) -> DynamicObject {
    let applied = try_apply(s, object, dry_run).await;
    applied.unwrap_or_else(|e| panic!("applying {} {}: {e}", object["kind"], object["metadata"]["name"]))
}

/// What a person would have in Git of an object: without status, and what the API server keeps for itself.
fn shown(object: &DynamicObject) -> Value {
    let mut shown = serde_json::to_value(object).unwrap();
    shown.as_object_mut().unwrap().remove("status");
    let metadata = shown["metadata"].as_object_mut().unwrap();
    for own in ["managedFields", "resourceVersion", "generation"] {
        metadata.remove(own);
    }
    shown
}

/// Everything in Git is in the cluster; lists are the same, since whoever knows no schema compares them as a whole.
fn assert_within(git: &Value, cluster: &Value, path: &str) {
    match (git, cluster) {
        (Value::Object(git), Value::Object(cluster)) => {
            for (field, value) in git {
                let path = format!("{path}.{field}");
                let found = cluster.get(field).unwrap_or_else(|| panic!("{path} is gone"));
                assert_within(value, found, &path);
            }
        }
        _ => assert_eq!(git, cluster, "{path}"),
    }
}

async fn assert_no_difference(s: &Scenario, git: &[Value], when: &str) {
    for object in git {
        let name = object["metadata"]["name"].as_str().unwrap();
        // The operator may write at this very moment: then it is looked at again.
        let (before, would_be) = until("an object stays as it is for a moment", async || {
            let before = shown(&api(s, object).get(name).await.ok()?);
            let would_be = shown(&apply(s, object, true).await);
            let after = shown(&api(s, object).get(name).await.ok()?);
            (before == after).then_some((before, would_be))
        })
        .await;
        assert_eq!(before, would_be, "{when}: {} {name}", object["kind"]);
        assert_within(object, &before, &format!("{when}: {} {name}", object["kind"]));
    }
}

fn ours(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"from": "git"}}, "spec": spec,
    })
}

/// One of each kind that the operator looks at, as people have them in Git.
async fn in_git(s: &Scenario) -> Vec<Value> {
    let mut next = hook("next", &["Start"]);
    next["spec"]["run"] = json!("Next");
    let queries = json!([{"query": "up == 0"}]);
    let config = json!({
        "upgradeTimeout": "4h", "machineConfigPools": hold_night("1h", Some("3h")),
        "preUpgradeHealthChecks": {"customQueries": queries, "excludeAlerts": [{"alertname": "A"}]},
    });
    let cluster = s.cluster_version().await;
    let pool = s.pool(NIGHT).await;
    let pool_spec = serde_json::to_value(&pool.spec).unwrap();
    vec![
        ours(
            "UpgradeConfig",
            "yearly",
            &json!({
                "schedule": {"cron": "0 3 1 1 *", "location": "Europe/Zurich"}, "pinVersionWindow": "1h",
                "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"config": config}},
            }),
        ),
        hook("tell", &["Start", "Finish"]),
        next,
        ours(
            "UpgradeSuspensionWindow",
            "past",
            &json!({
                "start": in_seconds(-7_200), "end": in_seconds(-3_600), "reason": "past", "configSelector": {}, "jobSelector": {},
            }),
        ),
        ours(
            "NodeForceDrain",
            "none",
            &json!({
                "nodeSelector": {"matchLabels": {"no": "node"}}, "nodeDrainGracePeriod": "1h", "podForceDeleteGracePeriod": "0s",
            }),
        ),
        ours(
            "ClusterVersion",
            "version",
            &json!({
                "template": {"spec": {"channel": cluster.spec.channel}},
                "overlays": [{"from": in_seconds(30 * 86_400), "overlay": {"spec": {"channel": "stable-4.19"}}}],
            }),
        ),
        job(
            "from-git",
            Some("4.18.5"),
            json!({"machineConfigPools": hold_night("1s", None)}),
        ),
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
            "spec": {"clusterID": cluster.spec.cluster_id},
        }),
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": NIGHT, "labels": pool.labels()},
            "spec": {"nodeSelector": pool_spec.get("nodeSelector").cloned().unwrap_or_else(|| json!({}))},
        }),
    ]
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn what_the_operator_writes_is_no_difference_to_git() {
    scenario(&[], async |s| {
        let git = in_git(s).await;
        s.fault("hold", "control-plane").await;
        for object in &git {
            apply(s, object, false).await;
        }
        s.until_step_runs("from-git", "await-control-plane").await;
        assert!(
            s.pool(NIGHT).await.spec.paused,
            "the operator has written into the pool"
        );
        assert_no_difference(s, &git, "while a pool is held").await;
        // What docs/gitops.md warns of: `paused` in Git is the operator's now.
        let mut pool = git.last().unwrap().clone();
        pool["spec"]["paused"] = json!(false);
        let refused = try_apply(s, &pool, true).await.unwrap_err().to_string();
        assert!(
            refused.contains("conflict") && refused.contains(".spec.paused"),
            "{refused}"
        );

        // A whole sync in mid-run changes nothing of it.
        for object in &git {
            apply(s, object, false).await;
        }
        assert!(s.pool(NIGHT).await.spec.paused, "the sync has unpaused the pool");
        s.fault("hold", "").await;
        let done = s.until_over("from-git").await;
        assert_succeeded(&done);
        assert_no_difference(s, &git, "after the upgrade").await;
    })
    .await;
}
