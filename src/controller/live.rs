//! Reads that bypass the copies: before anything is written, what the decision rests on is read again.

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::DeserializeGuard,
};

use super::calls::{CallError, call, found};
use crate::{api::labels, openshift::cluster_version, world::World};

/// Most objects of a kind that are read; more than that in one namespace is not a cluster we know.
const LIMIT: u32 = 2_000;

/// The world with everything that writes rest on read afresh; operators, renders and nodes stay as they are.
pub async fn refresh(client: &Client, namespace: &str, world: World) -> Result<World, CallError> {
    let list = ListParams::default().limit(LIMIT);
    let cluster_version = found(
        "read the ClusterVersion",
        Api::all(client.clone()).get(cluster_version::NAME),
    )
    .await?;
    // A list that fails is "unknown", never "no pools".
    let pools: kube::core::ObjectList<_> =
        call("list MachineConfigPools", Api::all(client.clone()).list(&list)).await?;
    let hook_jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client.clone(), namespace);
    let hook_jobs = call(
        "list the Jobs of hooks",
        hook_jobs.list(&list.clone().labels(labels::HOOK_JOB)),
    )
    .await?;
    let World {
        operators,
        rendered,
        nodes,
        control_plane_topology,
        ..
    } = world;
    Ok(World {
        cluster_version,
        pools: sorted(pools.items),
        configs: ours(client, namespace, &list).await?,
        jobs: ours(client, namespace, &list).await?,
        hooks: ours(client, namespace, &list).await?,
        windows: ours(client, namespace, &list).await?,
        hook_jobs: sorted(hook_jobs.items),
        workflow: None,
        operators,
        rendered,
        nodes,
        control_plane_topology,
    })
}

/// All objects of one of our kinds; those that do not parse are left out, as the watches do.
async fn ours<K>(client: &Client, namespace: &str, list: &ListParams) -> Result<Vec<K>, CallError>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + 'static,
{
    let api: Api<DeserializeGuard<K>> = Api::namespaced(client.clone(), namespace);
    let all = call(format!("list {}s", K::kind(&())), api.list(list)).await?;
    Ok(sorted(
        all.items.into_iter().filter_map(|guard| guard.0.ok()).collect(),
    ))
}

fn sorted<K: ResourceExt>(mut all: Vec<K>) -> Vec<K> {
    all.sort_by_key(ResourceExt::name_any);
    all
}

/// The workflow of this name.
pub async fn workflow(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    name: &str,
) -> Result<Option<DynamicObject>, CallError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    found(format!("read workflow {name}"), api.get(name)).await
}
