use rstest::rstest;

use super::*;
use crate::{
    clock::Clock,
    simulator::api::{ApiServer, Identity, Kinds},
};

/// A TaskRun of the cluster, held by us, with this condition `Succeeded`.
async fn world_with(client: &Client, condition: Option<&str>) -> World {
    let conditions: Vec<Value> = condition
        .map(|status| json!({"type": "Succeeded", "status": status}))
        .into_iter()
        .collect();
    let run = json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "TaskRun",
        "metadata": {"name": "r", "finalizers": [finalizers::HOOK_JOB]},
        "spec": {},
        "status": {"conditions": conditions},
    });
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "ns", &task_run::resource());
    let run = serde_json::from_value(run).unwrap();
    let stored = api.create(&PostParams::default(), &run).await.unwrap();
    World {
        hook_task_runs: vec![TaskRun::from(stored)],
        ..World::default()
    }
}

fn server() -> ApiServer {
    let kind = task_run::resource();
    let definition = json!({"metadata": {}, "spec": {
        "group": kind.group, "scope": "Namespaced",
        "names": {"kind": kind.kind, "plural": kind.plural},
        "versions": [{"name": kind.version, "served": true, "storage": true}],
    }});
    let clock = Clock::starting_at("2026-11-21T00:00:00Z".parse().unwrap());
    ApiServer::new(
        clock,
        Kinds::ours().and(&serde_json::from_value(definition).unwrap()),
    )
}

/// Whoever lets go of hooks whose end nobody reads, as where the operator is removed, must not end what is at work.
#[rstest]
#[case::not_begun(None, true, true)]
#[case::at_work(Some("Unknown"), false, true)]
#[case::ended(Some("False"), false, false)]
#[tokio::test(start_paused = true)]
async fn only_a_task_run_that_was_given_up_is_cancelled_at_work(
    #[case] condition: Option<&str>,
    #[case] when_let_go: bool,
    #[case] when_given_up: bool,
) {
    for (is_given_up, is_cancelled) in [(false, when_let_go), (true, when_given_up)] {
        let server = server();
        let client = server.client(Identity::Admin);
        let world = world_with(&client, condition).await;
        if is_given_up {
            cancel_hook_task_run(&client, "ns", &world, "r").await.unwrap();
        } else {
            let run = RunName {
                kind: RunKind::TaskRun,
                name: "r".to_owned(),
            };
            release_hook_run(&client, "ns", &world, &run).await.unwrap();
        }
        let api: Api<DynamicObject> = Api::namespaced_with(client, "ns", &task_run::resource());
        let after = api.get("r").await.unwrap();
        assert!(after.finalizers().is_empty());
        assert_eq!(
            after.data["spec"]["status"].as_str() == Some("TaskRunCancelled"),
            is_cancelled
        );
    }
}
