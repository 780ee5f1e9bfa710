//! What the documents show, on a real API server: every complete YAML is taken as it is written, and what is ours is found valid
//! by the operator, without a warning.

use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use openshift_upgrade_operator::{
    api::GROUP,
    engine::{Engine, argo::Argo, tekton::Tekton},
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    documents::{Example, examples, objects},
    harness::{NAMESPACE, Scenario, scenario_on, until},
};

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Whether the kind is there where only this engine is.
fn is_here(engine: &dyn Engine, object: &Value) -> bool {
    let version = text(object, "/apiVersion");
    let of_tekton = version.starts_with("tekton.dev/");
    of_tekton == (engine.kind() == Tekton.kind())
}

/// Applies an object, in the operator's namespace.
async fn apply(s: &Scenario, place: &str, object: &Value, dry_run: bool) {
    let params = PatchParams {
        dry_run,
        force: true,
        field_manager: Some("documents".to_owned()),
        field_validation: Some(ValidationDirective::Strict),
    };
    let mut read: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    read.metadata.namespace = Some(NAMESPACE.to_owned());
    let api = s.dynamic(text(object, "/apiVersion"), text(object, "/kind"));
    let applied = api
        .patch(text(object, "/metadata/name"), &params, &Patch::Apply(&read))
        .await;
    applied.unwrap_or_else(|e| panic!("{place}: {e}\n{object:#}"));
}

/// What the overlays of the layout for many clusters build.
fn built(s: &Scenario) -> Vec<Example> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/gitops/clusters");
    let clusters = std::fs::read_dir(folder).unwrap();
    let of = |cluster: std::io::Result<std::fs::DirEntry>| {
        let place = cluster.unwrap().path().display().to_string();
        let yaml = s.lane.kubectl(&["kustomize", &place]);
        let found = objects(&place, &yaml);
        assert_eq!(found.len(), 4, "{yaml}");
        let example = move |object| Example {
            place: place.clone(),
            object,
        };
        found.into_iter().map(example).collect::<Vec<_>>()
    };
    clusters.flat_map(of).collect()
}

/// Waits for what the operator says of an object, once it has looked at it as it is.
async fn verdict(s: &Scenario, object: &Value) -> Value {
    let api = s.dynamic(text(object, "/apiVersion"), text(object, "/kind"));
    let name = text(object, "/metadata/name");
    until(&format!("the operator has looked at {name}"), async || {
        let found = api.get(name).await.ok()?;
        let all = found.data.pointer("/status/conditions")?.as_array()?.clone();
        let is_of_now = |c: &Value| c["observedGeneration"].as_i64() == found.metadata.generation;
        all.into_iter().find(|c| c["type"] == "Valid" && is_of_now(c))
    })
    .await
}

/// The operator finds the object valid, and warns of nothing.
async fn assert_valid(s: &Scenario, place: &str, object: &Value) {
    let said = verdict(s, object).await;
    assert_eq!(said["status"], "True", "{place}: {said:#}");
    let message = said["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with("the ") && message.ends_with(" is valid") || message.ends_with(" are valid"),
        "{place}: {message}"
    );
}

#[rstest]
#[case::argo(&Argo, 20)]
#[case::tekton(&Tekton, 2)]
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn every_yaml_is_taken_by_the_api_server_and_valid(
    #[case] engine: &'static dyn Engine,
    #[case] at_least: usize,
) {
    scenario_on(engine, &[], async |s| {
        let mut all = examples();
        all.extend(built(s));
        all.retain(|e| is_here(engine, &e.object));
        assert!(all.len() >= at_least, "only {} examples are left", all.len());
        for Example { place, object } in &all {
            apply(s, place, object, true).await;
        }
        // For good, but for jobs: they would upgrade. Some have the same name.
        let is_judged =
            |o: &Value| text(o, "/apiVersion").starts_with(GROUP) && text(o, "/kind") != "UpgradeJob";
        let judged = all.iter().filter(|e| is_judged(&e.object)).enumerate();
        let (mut applied, mut one_by_one) = (Vec::new(), Vec::new());
        for (n, Example { place, object }) in judged {
            let mut object = object.clone();
            // The one name that is served.
            if text(&object, "/kind") == "ClusterVersion" {
                one_by_one.push((place, object));
                continue;
            }
            object["metadata"]["name"] = json!(format!("example-{n}"));
            apply(s, place, &object, false).await;
            applied.push((place, object));
        }
        for (place, object) in applied {
            assert_valid(s, place, &object).await;
        }
        for (place, object) in one_by_one {
            apply(s, place, &object, false).await;
            assert_valid(s, place, &object).await;
        }
    })
    .await;
}
