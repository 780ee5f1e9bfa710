//! Drains that do not end: real budgets, counted by kube-controller-manager, real finalizers, and a webhook.

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use openshift_upgrade_operator::api::{
    UpgradeJob,
    blocker::{Blocker, BlockerCause},
};
use serde_json::{Value, json};

use crate::harness::{NAMESPACE, Scenario, assert_succeeded, objects::job, scenario, status, until};

const SHOP: &str = "shop";
/// Its evictions go to a webhook that nobody answers.
const GUARDED: &str = "guarded";

/// Creates an object wherever it belongs.
async fn create(s: &Scenario, object: &Value) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let gvk = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let resource = ApiResource::from_gvk(&gvk);
    let api = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(s.client.clone(), namespace, &resource),
        None => Api::all_with(s.client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn workload(s: &Scenario) {
    for namespace in [SHOP, GUARDED] {
        create(
            s,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        )
        .await;
        until("the namespace has its ServiceAccount", async || {
            let api: Api<ServiceAccount> = Api::namespaced(s.client.clone(), namespace);
            api.get_opt("default").await.ok().flatten()
        })
        .await;
    }
    create(s, &json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": SHOP, "name": "db"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    }))
    .await;
    create(s, &json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "guard"},
        "webhooks": [{
            "name": "guard.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "timeoutSeconds": 1,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": GUARDED}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}],
        }],
    }))
    .await;
    for (namespace, name, finalizers) in [
        (SHOP, "db-0", json!([])),
        (SHOP, "kept", json!(["shop.example.com/keep"])),
        (GUARDED, "web", json!([])),
    ] {
        create(s, &pod(namespace, name, &finalizers)).await;
    }
}

fn pod(namespace: &str, name: &str, finalizers: &Value) -> Value {
    let app = name.split('-').next();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}, "finalizers": finalizers},
        "spec": {"nodeName": "worker-0", "containers": [{"name": "c", "image": "i"}]},
    })
}

fn causes(job: &UpgradeJob) -> Vec<(String, BlockerCause)> {
    let of = |b: &Blocker| (format!("{}/{}", b.namespace, b.pod), b.cause);
    status(job).blockers.iter().map(of).collect()
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn what_keeps_a_node_from_being_drained_is_named_and_the_upgrade_goes_on_once_it_is_gone() {
    scenario(&["--drain-report-after=2s"], async |s| {
        workload(s).await;
        let mut slow = pod(SHOP, "slow", &json!([]));
        slow["metadata"]["annotations"] = json!({"simulated.openshift.io/ignores-sigterm": ""});
        slow["spec"]["terminationGracePeriodSeconds"] = json!(900);
        create(s, &slow).await;
        s.create(&job("stuck", Some("4.18.5"), json!({}))).await;
        let expected = [
            ("guarded/web", BlockerCause::EvictionRefused),
            ("shop/db-0", BlockerCause::PodDisruptionBudget),
            ("shop/kept", BlockerCause::Finalizer),
            ("shop/slow", BlockerCause::GracePeriod),
        ];
        let expected = expected.map(|(pod, cause)| (pod.to_owned(), cause));
        let found = s
            .until_job("stuck", "all four are named", |j| causes(j) == expected)
            .await;
        let said = status(&found).message.unwrap_or_default();
        for part in [
            " (4 pods left): shop/db-0 blocked by PDB shop/db (0 allowed)",
            "guarded/web eviction refused: ",
            "shop/kept kept by finalizer shop.example.com/keep",
        ] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        let refusal = status(&found).blockers[0].message.clone();
        assert!(refusal.contains("guard.example.com"), "{refusal}");
        until("Events on the job name each", async || {
            let events = s.events_about("stuck").await;
            let notes: Vec<_> = events.into_iter().filter_map(|e| e.note).collect();
            let named = [
                "shop/db-0 blocked",
                "guarded/web eviction refused",
                "shop/kept kept",
                "shop/slow ends ",
            ];
            named
                .iter()
                .all(|n| notes.iter().any(|note| note.contains(n)))
                .then_some(())
        })
        .await;
        let series = s.series("openshift_upgrade_controller_drain_blocking_pods");
        assert_eq!(series.len(), 4, "{series:?}");
        let draining = s.series("openshift_upgrade_controller_node_draining");
        assert!(
            draining
                .iter()
                .any(|l| l.contains("worker-0") && l.ends_with(" 1.0")),
            "{draining:?}"
        );
        let kubectl = |arguments: &[&str]| s.lane.must(arguments);
        kubectl(&["-n", SHOP, "delete", "poddisruptionbudget", "db"]);
        kubectl(&["delete", "validatingwebhookconfiguration", "guard"]);
        kubectl(&["-n", SHOP, "delete", "pod", "slow", "--grace-period=0", "--force"]);
        kubectl(&[
            "-n",
            SHOP,
            "patch",
            "pod",
            "kept",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ]);
        let over = s.until_over("stuck").await;
        assert_succeeded(&over);
        assert!(status(&over).blockers.is_empty());
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_node_force_drain_deletes_the_pods_that_it_selects_and_no_others() {
    scenario(&["--drain-report-after=2s"], async |s| {
        workload(s).await;
        create(s, &pod(SHOP, "db-1", &json!([]))).await;
        // So that neither is evicted, nor is the other one when one is gone.
        let both = r#"{"spec":{"minAvailable":2}}"#;
        s.lane.must(&[
            "-n",
            SHOP,
            "patch",
            "poddisruptionbudget",
            "db",
            "--type=merge",
            "-p",
            both,
        ]);
        create(
            s,
            &json!({
                "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "NodeForceDrain",
                "metadata": {"name": "workers", "namespace": NAMESPACE},
                "spec": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SHOP}},
                    "podJQSelector": r#".metadata.name | test("^db-1$")"#,
                    "nodeDrainGracePeriod": "5s", "podForceDeleteGracePeriod": "1m"},
            }),
        )
        .await;
        s.create(&job("forced", Some("4.18.5"), json!({}))).await;
        let pods: Api<Pod> = Api::namespaced(s.client.clone(), SHOP);
        let guarded: Api<Pod> = Api::namespaced(s.client.clone(), GUARDED);
        until("pod shop/db-1 is gone", async || {
            pods.get_opt("db-1").await.ok()?.is_none().then_some(())
        })
        .await;
        // The pod may go before the operator hears that it was deleted.
        let series = until("the deletion is counted", async || {
            let all = s.series("openshift_upgrade_controller_node_force_drain_pod_deletions_total");
            (!all.is_empty()).then_some(all)
        })
        .await;
        let [only] = series.as_slice() else {
            panic!("{series:?}")
        };
        assert!(
            only.contains("node=\"worker-0\"") && only.contains("namespace=\"shop\""),
            "{only}"
        );
        until("they are looked at again", async || {
            let found = status(&s.job("forced").await).blockers;
            let names: Vec<_> = found.iter().map(|b| b.pod.as_str()).collect();
            (names == ["web", "db-0", "kept"]).then_some(())
        })
        .await;
        for name in ["db-0", "kept"] {
            assert!(
                pods.get_opt(name).await.unwrap().is_some(),
                "{name} is not selected"
            );
        }
        assert!(
            guarded.get_opt("web").await.unwrap().is_some(),
            "its namespace is not selected"
        );
        let log = s.operator().output();
        assert_eq!(log.matches("NodeDrainDeletePod").count(), 1, "{log}");
    })
    .await;
}
