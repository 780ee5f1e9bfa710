//! Before the simulation: is this the right cluster, and is it to be made anew?

use std::{fmt::Debug, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Node, Pod},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::{
    openshift::{SIMULATED, faults, initial},
    writer::AT_ONCE,
};
use crate::openshift::{
    cluster_operator::ClusterOperator,
    cluster_version::{self, ClusterVersion},
    infrastructure::Infrastructure,
    machine_config::MachineConfig,
    machine_config_pool::MachineConfigPool,
};

/// Between two looks whether everything is gone.
const POLL: Duration = Duration::from_millis(100);

/// Why the simulator can't run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kind is missing.
    #[error("the API server does not serve {0}: install OpenShift's CRDs first")]
    MissingKind(String),
    /// Somebody's real cluster.
    #[error(
        "ClusterVersion `version` exists without label {SIMULATED}: this looks like a real OpenShift cluster, which is left alone; use an empty one"
    )]
    RealCluster,
    /// The API server refused or could not be reached.
    #[error("could not {action}: {source}")]
    Api {
        /// What was attempted.
        action: String,
        /// Why it failed.
        source: kube::Error,
    },
}

/// Whether the Infrastructure kind is served; an error if one of the kinds that are needed is not.
///
/// An API server that does not answer is waited for.
pub async fn check_kinds(client: &Client) -> Result<bool, Error> {
    for (name, is_served) in [
        ("ClusterVersion", is_served::<ClusterVersion>(client).await?),
        ("ClusterOperator", is_served::<ClusterOperator>(client).await?),
        ("MachineConfigPool", is_served::<MachineConfigPool>(client).await?),
        ("MachineConfig", is_served::<MachineConfig>(client).await?),
    ] {
        if !is_served {
            return Err(Error::MissingKind(name.to_owned()));
        }
    }
    is_served::<Infrastructure>(client).await
}

async fn is_served<K>(client: &Client) -> Result<bool, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api = Api::<K>::all(client.clone());
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => return Ok(true),
            Err(error) if is_code(&error, 404) => return Ok(false),
            Err(error @ kube::Error::Api(_)) => {
                let action = format!("list {}", K::plural(&()));
                return Err(Error::Api {
                    action,
                    source: error,
                });
            }
            Err(error) => {
                warn!("the API server does not answer, trying again: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Refuses to touch a ClusterVersion that the simulator did not make.
pub async fn refuse_real_cluster(client: &Client) -> Result<(), Error> {
    let api = Api::<ClusterVersion>::all(client.clone());
    let found = api.get_metadata_opt(cluster_version::NAME).await;
    match found {
        Ok(Some(object)) if !object.labels().contains_key(SIMULATED) => Err(Error::RealCluster),
        Ok(_) => Ok(()),
        Err(source) => Err(Error::Api {
            action: "read ClusterVersion version".to_owned(),
            source,
        }),
    }
}

/// Deletes the simulated cluster, also pools and operators that were added to it, and waits until it is gone.
pub async fn reset(client: &Client, with_infrastructure: bool) -> Result<(), Error> {
    let (all, ours) = (ListParams::default(), ListParams::default().labels(SIMULATED));
    delete_all::<ClusterVersion>(Api::all(client.clone()), &all).await?;
    delete_all::<ClusterOperator>(Api::all(client.clone()), &all).await?;
    delete_all::<MachineConfigPool>(Api::all(client.clone()), &all).await?;
    delete_all::<MachineConfig>(Api::all(client.clone()), &all).await?;
    if with_infrastructure {
        delete_all::<Infrastructure>(Api::all(client.clone()), &all).await?;
    }
    let workload = Api::<Deployment>::namespaced(client.clone(), initial::WORKLOAD);
    delete_all(workload, &all).await?;
    let nodes = Api::<Node>::all(client.clone());
    let names = list(&nodes, &ours).await?;
    let deletions = names.iter().map(|(_, name)| delete_pods_of(client, name));
    let mut deletions = stream::iter(deletions).buffer_unordered(AT_ONCE);
    while let Some(done) = deletions.next().await {
        done?;
    }
    delete_all(nodes, &ours).await?;
    let controls = Api::<ConfigMap>::namespaced(client.clone(), faults::NAMESPACE);
    ignore_gone(
        controls
            .delete(faults::NAME, &DeleteParams::default())
            .await
            .map(drop),
        "delete the simulator's ConfigMap",
    )
}

/// Pods of a fake node have no kubelet that would end them.
async fn delete_pods_of(client: &Client, node: &str) -> Result<(), Error> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    for (namespace, pod) in list(&Api::<Pod>::all(client.clone()), &on_node).await? {
        let api = Api::<Pod>::namespaced(client.clone(), &namespace);
        let now = DeleteParams::default().grace_period(0);
        ignore_gone(
            api.delete(&pod, &now).await.map(drop),
            "delete a pod of a fake node",
        )?;
    }
    Ok(())
}

async fn list<K>(api: &Api<K>, what: &ListParams) -> Result<Vec<(String, String)>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let found = api.list_metadata(what).await.map_err(|source| Error::Api {
        action: format!("list {}", K::plural(&())),
        source,
    })?;
    let names = found
        .items
        .iter()
        .map(|o| (o.namespace().unwrap_or_default(), o.name_any()));
    Ok(names.collect())
}

async fn delete_all<K>(api: Api<K>, what: &ListParams) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    loop {
        let action = format!("delete {}", K::plural(&()));
        let deleted = api.delete_collection(&DeleteParams::default(), what).await;
        ignore_gone(deleted.map(drop), &action)?;
        if list(&api, what).await?.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

fn ignore_gone(result: kube::Result<()>, action: &str) -> Result<(), Error> {
    match result {
        Err(source) if !is_code(&source, 404) => Err(Error::Api {
            action: action.to_owned(),
            source,
        }),
        Ok(()) | Err(_) => Ok(()),
    }
}
