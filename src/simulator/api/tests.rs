//! The server through an ordinary client. What a real server answers to the same requests: `tests/api_conformance`.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::watcher::{self, Event},
};
use serde_json::{Value, json};

use super::*;

fn server() -> ApiServer {
    let start: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
    ApiServer::new(Clock::starting_at(start), Kinds::ours())
}

fn map(name: &str, metadata: &Value) -> ConfigMap {
    let mut object = json!({"metadata": {"name": name}, "data": {"a": "1"}});
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn maps(server: &ApiServer, identity: Identity) -> Api<ConfigMap> {
    Api::namespaced(server.client(identity), "ns")
}

fn code(error: kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason),
        other => panic!("{other}"),
    }
}

/// The overlays of a ClusterVersion are tried ahead of their time.
#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_and_leaves_no_trace() {
    let server = server();
    let api = maps(&server, Identity::Admin);
    let dry = true;
    let params = PostParams {
        dry_run: dry,
        ..PostParams::default()
    };
    let made = api.create(&params, &map("m", &json!({}))).await.unwrap();
    assert!(made.metadata.uid.is_some());
    assert!(api.get_opt("m").await.unwrap().is_none());
    let made = api
        .create(&PostParams::default(), &map("m", &json!({})))
        .await
        .unwrap();
    let params = PatchParams {
        dry_run: dry,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"data": {"a": "2"}}));
    let changed = api.patch("m", &params, &patch).await.unwrap();
    assert_eq!(changed.data.unwrap()["a"], "2");
    assert_eq!(api.get("m").await.unwrap(), made);
}

#[tokio::test(start_paused = true)]
async fn objects_live_and_die() {
    let server = server();
    let api = maps(&server, Identity::Admin);
    let made = api
        .create(&PostParams::default(), &map("m", &json!({})))
        .await
        .unwrap();
    assert_eq!(made.metadata.generation, None, "ConfigMaps count none");
    let again = api.create(&PostParams::default(), &map("m", &json!({}))).await;
    assert_eq!(code(again.unwrap_err()), (409, "AlreadyExists".to_owned()));
    let patch = json!({"data": {"a": "2"}, "metadata": {"resourceVersion": made.resource_version()}});
    let changed = api
        .patch("m", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let late = api
        .patch("m", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    assert_eq!(code(late.unwrap_err()), (409, "Conflict".to_owned()));
    let same = api
        .patch(
            "m",
            &PatchParams::default(),
            &Patch::Merge(json!({"data": {"a": "2"}})),
        )
        .await;
    assert_eq!(
        same.unwrap().resource_version(),
        changed.resource_version(),
        "nothing changed"
    );
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some("other".to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    assert_eq!(code(api.delete("m", &params).await.unwrap_err()).0, 409);
    api.delete("m", &DeleteParams::default()).await.unwrap();
    assert_eq!(
        code(api.get("m").await.unwrap_err()),
        (404, "NotFound".to_owned())
    );
    assert_eq!(server.unknown_requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_and_owners_take_along() {
    let server = server();
    let api = maps(&server, Identity::Admin);
    let post = PostParams::default();
    let owner = api
        .create(&post, &map("owner", &json!({"finalizers": ["a/b"]})))
        .await
        .unwrap();
    let reference = json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid()}]});
    api.create(&post, &map("owned", &reference)).await.unwrap();
    api.delete("owner", &DeleteParams::default()).await.unwrap();
    assert!(
        api.get("owner")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    assert!(api.get_opt("owned").await.unwrap().is_some());
    let release = json!({"metadata": {"finalizers": null}});
    api.patch("owner", &PatchParams::default(), &Patch::Merge(release))
        .await
        .unwrap();
    assert!(api.get_opt("owner").await.unwrap().is_none());
    assert!(api.get_opt("owned").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_by_itself() {
    let server = server();
    let api: Api<Job> = Api::namespaced(server.client(Identity::Admin), "ns");
    let job = json!({
        "metadata": {"name": "j"}, "status": {"active": 1},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    let job: Job = serde_json::from_value(job).unwrap();
    let made = api.create(&PostParams::default(), &job).await.unwrap();
    assert_eq!(made.status.unwrap().active, None, "not at creation");
    let patch = json!({"status": {"active": 2}, "spec": {"ttlSecondsAfterFinished": 5}});
    let params = PatchParams::default();
    let status = api
        .patch_status("j", &params, &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(status.spec.unwrap().ttl_seconds_after_finished, None);
    assert_eq!(status.metadata.generation, Some(1));
    let both = api.patch("j", &params, &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(both.metadata.generation, Some(2));
    assert_eq!(both.status.unwrap().active, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_selector_sees_objects_come_and_go() {
    let server = server();
    let api = maps(&server, Identity::Operator(1));
    let config = watcher::Config::default().labels("a=1");
    let mut events = Box::pin(watcher::watcher(api.clone(), config));
    let mut seen = Vec::new();
    let post = PostParams::default();
    api.create(&post, &map("other", &json!({}))).await.unwrap();
    for step in 0..3 {
        while seen.len() < [2, 3, 4][step] {
            seen.push(match events.next().await.unwrap().unwrap() {
                Event::Init => "init".to_owned(),
                Event::InitDone => "known".to_owned(),
                Event::InitApply(o) | Event::Apply(o) => format!("+{}", o.name_any()),
                Event::Delete(o) => format!("-{}", o.name_any()),
            });
        }
        let labels = json!({"metadata": {"labels": {"a": if step == 0 { json!("1") } else { Value::Null }}}});
        api.patch("other", &PatchParams::default(), &Patch::Merge(labels))
            .await
            .unwrap();
    }
    assert_eq!(seen, ["init", "known", "+other", "-other"]);
    assert_eq!(
        api.list(&ListParams::default().labels("a"))
            .await
            .unwrap()
            .items
            .len(),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_can_be_lost_before_and_after() {
    for (fault, is_there, is_dead) in [
        (Fault::KillBefore, false, true),
        (Fault::KillAfter, true, true),
        (Fault::RequestLost, false, false),
        (Fault::AnswerLost, true, false),
        (Fault::Conflict, false, false),
    ] {
        let server = server();
        let operator = Identity::Operator(1);
        server.plan(1, fault);
        let api = maps(&server, operator);
        let (post, object) = (PostParams::default(), map("m", &json!({})));
        let create = api.create(&post, &object);
        let answer = tokio::time::timeout(Duration::from_secs(60), create).await;
        assert!(!matches!(answer, Ok(Ok(_))), "{fault:?}");
        assert_eq!(server.dump().len(), usize::from(is_there), "{fault:?}");
        let dead = tokio::time::timeout(Duration::from_secs(1), server.killed(operator)).await;
        assert_eq!((dead.is_ok(), server.struck()), (is_dead, 1), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_answers_no_operator() {
    let server = server();
    server.set_away_until("2026-11-21T00:10:00Z".parse().unwrap());
    let api = maps(&server, Identity::Operator(1));
    assert!(matches!(api.get("m").await, Err(kube::Error::Service(_))));
    assert_eq!(
        code(maps(&server, Identity::Admin).get("m").await.unwrap_err()).0,
        404
    );
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(code(api.get("m").await.unwrap_err()).0, 404);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_simulated_is_told() {
    let server = server();
    let client = server.client(Identity::Admin);
    let request = http::Request::get("/api/v1/namespaces/ns/pods/p/log")
        .body(Vec::new())
        .unwrap();
    let error = client.request_text(request).await.unwrap_err();
    assert_eq!(code(error).0, 501);
    assert_eq!(
        server.unknown_requests(),
        ["GET /api/v1/namespaces/ns/pods/p/log"]
    );
    let absent: Api<kube::api::DynamicObject> = Api::namespaced_with(
        client,
        "ns",
        &crate::engine::Engine::resource(&crate::engine::argo::Argo),
    );
    // No Status, as of the real one: this is what kube makes of a line of text.
    assert_eq!(
        code(absent.get("w").await.unwrap_err()),
        (404, "Failed to parse error data".to_owned())
    );
}
