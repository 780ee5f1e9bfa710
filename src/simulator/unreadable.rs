//! Objects that the API server has and the operator cannot read, as after a change of the schema: in simulated time.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::events::v1::Event, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    api::Kinds,
    scenario::{Scenario, Timeline},
    simulation::{self, Simulation},
};
use crate::{
    api::{
        UpgradeJob,
        conditions::{self, types},
        upgrade_job::JobPhase,
    },
    clock::Clock,
    schedule::Zones,
    settings::Settings,
    unreadable::Kind,
};

const NAMESPACE: &str = "openshift-upgrade";
const START: &str = "2026-11-21T20:00:00Z";

fn settings() -> Settings {
    Settings::new(NAMESPACE, Zones::bundled("UTC").unwrap())
}

/// The kind under a schema that takes anything.
fn lax(kind: Kind) -> CustomResourceDefinition {
    let all = crate::api::crds();
    let mut crd = all
        .into_iter()
        .find(|crd| crd.spec.names.plural == kind.resource().plural)
        .unwrap();
    for version in &mut crd.spec.versions {
        let anything =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        version.schema = Some(serde_json::from_value(anything).unwrap());
    }
    crd
}

async fn cluster(kinds: Kinds) -> (Simulation, Timestamp) {
    let start: Timestamp = START.parse().unwrap();
    let mut simulation = Simulation::with_kinds(Clock::starting_at(start), kinds);
    let scenario = Scenario::parse(
        std::path::Path::new("s.yaml"),
        "updates: {releases: [{version: 4.18.5}]}\ndurations: {controlPlane: 10m, node: 1m}",
    )
    .unwrap();
    let end = start + SignedDuration::from_hours(48);
    let timeline = Arc::new(Timeline::new(scenario, start, end, 1).unwrap());
    simulation.start_cluster(&timeline).await.unwrap();
    (simulation, start)
}

fn object(kind: Kind, name: &str, spec: &Value) -> DynamicObject {
    let types = kind.resource();
    serde_json::from_value(json!({
        "apiVersion": types.api_version, "kind": types.kind, "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

fn valid(object: &DynamicObject) -> Option<(String, String)> {
    let all = object.data.pointer("/status/conditions")?.as_array()?;
    let valid = all.iter().find(|c| c["type"] == "Valid")?;
    let text = |field: &str| valid[field].as_str().unwrap_or_default().to_owned();
    Some((format!("{}/{}", text("status"), text("reason")), text("message")))
}

#[rstest]
#[case::window(Kind::UpgradeSuspensionWindow, json!({"start": "soon", "end": "2026-12-01T00:00:00Z"}), "spec.start: ")]
#[case::hook(Kind::UpgradeJobHook, json!({"events": ["Later"]}), "spec.events[0]: ")]
#[case::config(Kind::UpgradeConfig, json!({"schedule": {"cron": 5}, "jobTemplate": {"spec": {}}}), "spec.schedule.cron: ")]
#[case::cluster_version(Kind::ClusterVersion, json!({"template": 1}), "spec.template: ")]
fn it_says_what_is_wrong_with_it_once(#[case] kind: Kind, #[case] spec: Value, #[case] field: &str) {
    simulation::run(async {
        let (mut simulation, _) = cluster(Kinds::ours().and(&lax(kind))).await;
        let api: Api<DynamicObject> = Api::namespaced_with(simulation.admin(), NAMESPACE, &kind.resource());
        api.create(&PostParams::default(), &object(kind, "version", &spec))
            .await
            .unwrap();
        simulation.start_operator(&settings());
        tokio::time::sleep(std::time::Duration::from_mins(10)).await;
        let (status, message) = valid(&api.get("version").await.unwrap()).unwrap();
        assert_eq!(status, "False/Unreadable");
        assert!(message.contains(field), "{message}");
        let events: Api<Event> = Api::namespaced(simulation.admin(), NAMESPACE);
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let about: Vec<_> = all
            .iter()
            .filter(|e| e.reason.as_deref() == Some("Unreadable"))
            .collect();
        assert_eq!(about.len(), 1, "said once");
        assert_eq!(about[0].note.as_deref(), Some(message.as_str()));
        let regarding = about[0].regarding.clone().unwrap();
        assert_eq!(
            (regarding.kind, regarding.name),
            (Some(kind.resource().kind), Some("version".to_owned()))
        );
    })
    .unwrap();
}

#[rstest]
#[case::mended(true)]
#[case::deleted(false)]
fn an_upgrade_waits_for_a_window_that_cannot_be_read(#[case] mended: bool) {
    simulation::run(async {
        let kind = Kind::UpgradeSuspensionWindow;
        let (mut simulation, start) = cluster(Kinds::ours().and(&lax(kind))).await;
        let windows: Api<DynamicObject> =
            Api::namespaced_with(simulation.admin(), NAMESPACE, &kind.resource());
        let spec = json!({"start": "soon", "end": "2026-11-20T00:00:00Z", "reason": "holidays"});
        windows
            .create(&PostParams::default(), &object(kind, "w", &spec))
            .await
            .unwrap();
        let at = |minutes: i64| (start + SignedDuration::from_mins(minutes)).to_string();
        let image = super::openshift::releases::image("4.18.5");
        let job: UpgradeJob = serde_json::from_value(json!({
            "metadata": {"name": "job"},
            "spec": {"startAfter": at(5), "startBefore": at(65), "config": {},
                "desiredVersion": {"version": "4.18.5", "image": image}},
        }))
        .unwrap();
        let jobs: Api<UpgradeJob> = Api::namespaced(simulation.admin(), NAMESPACE);
        jobs.create(&PostParams::default(), &job).await.unwrap();
        simulation.start_operator(&settings());
        tokio::time::sleep(std::time::Duration::from_mins(30)).await;
        let status = jobs.get("job").await.unwrap().status.unwrap();
        assert_eq!(status.phase, Some(JobPhase::Pending));
        let said = status.message.unwrap();
        assert!(
            said.contains("UpgradeSuspensionWindow w cannot be read"),
            "{said}"
        );
        if mended {
            let patch = Patch::Merge(json!({"spec": {"start": "2026-11-19T00:00:00Z"}}));
            windows.patch("w", &PatchParams::default(), &patch).await.unwrap();
        } else {
            windows.delete("w", &DeleteParams::default()).await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_mins(1)).await;
        let status = jobs.get("job").await.unwrap().status.unwrap();
        assert!(
            conditions::is_true(&status.conditions, types::STARTED),
            "{:?}",
            status.message
        );
        if mended {
            assert_eq!(valid(&windows.get("w").await.unwrap()).unwrap().0, "True/Valid");
        }
    })
    .unwrap();
}
