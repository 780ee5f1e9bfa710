//! A stand-in of Argo's workflow controller, for workflows as our engine renders them: two DAGs of `suspend` nodes.
//!
//! It was written after recordings of the real one, not after its source, and is compared with them: the same workflows
//! are played on both (`tests/argo_stand_in.rs`, `tests/argo_cluster.rs`), and node for node the same must come out.
//! Not here: pods, retries, `activeDeadlineSeconds` and `ttlStrategy`, and what Argo only shows (progress, estimates).

mod condition;
mod workflow;

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, PostParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};

use super::driver::{self, CALL};
use crate::{
    clock::Clock,
    engine::{Engine, argo::Argo},
};

pub use workflow::{Unsupported, next, node_id};

/// The definition of the kind Workflow, as far as an API server needs it: anything is valid, and there is no status
/// subresource.
pub fn crd() -> CustomResourceDefinition {
    let kind = Argo.resource();
    CustomResourceDefinition {
        spec: CustomResourceDefinitionSpec {
            group: kind.group,
            names: CustomResourceDefinitionNames {
                kind: kind.kind,
                plural: kind.plural,
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Namespaced".to_owned(),
            versions: vec![CustomResourceDefinitionVersion {
                name: kind.version,
                served: true,
                storage: true,
                ..CustomResourceDefinitionVersion::default()
            }],
            ..CustomResourceDefinitionSpec::default()
        },
        ..CustomResourceDefinition::default()
    }
}

/// Runs the workflows of all namespaces until dropped.
pub async fn run(client: Client, clock: Clock) {
    let api = Api::<DynamicObject>::all_with(client.clone(), &Argo.resource());
    let config = driver::watch_config(watcher::Config::default(), clock);
    let mut events = watcher::watcher(api, config).backoff(driver::Steady).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(workflow) | Event::Apply(workflow)) => look(&client, workflow, clock).await,
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => {}
            Err(error) => tracing::debug!("watch of workflows: {error}"),
        }
    }
}

/// Looks at a workflow, until there is nothing to do or somebody was faster: then the watch tells.
async fn look(client: &Client, workflow: DynamicObject, clock: Clock) {
    let name = workflow.name_any();
    let changed = match next(&workflow, clock.now()) {
        Ok(Some(changed)) => changed,
        Ok(None) => return,
        Err(error) => {
            tracing::error!("{error}");
            return;
        }
    };
    let namespace = workflow.namespace().unwrap_or_default();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &Argo.resource());
    let params = PostParams::default();
    loop {
        match tokio::time::timeout(CALL, api.replace(&name, &params, &changed)).await {
            Ok(Ok(_)) => return,
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => return,
            Ok(Err(error)) => tracing::debug!("could not write workflow {name}: {error}"),
            Err(_) => tracing::debug!("could not write workflow {name}: no answer"),
        }
        tokio::time::sleep(driver::AFTER_A_FAILURE).await;
    }
}
