//! Reads that bypass the copies: before anything is written, what the decision rests on is read again.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::DeserializeGuard,
};

use super::{
    calls::{CallError, call, found},
    stores::{parsed, readable},
};
use crate::{
    api::{cluster_version::ClusterVersion as ManagedClusterVersion, labels},
    engine::{Engine, Workflow},
    hooks::{
        task_run::{self, PodSight, TaskRun},
        tracker,
    },
    openshift::{cluster_operator::ClusterOperator, cluster_version, machine_config_pool::MachineConfigPool},
    unreadable::Unreadable,
    world::World,
};

/// Most objects of a kind that are read; more than that in one namespace is not a cluster we know.
const LIMIT: u32 = 2_000;

/// Kinds that not every cluster has. One that is not there has no objects, and is not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// MachineConfigPools: a hosted control plane has none.
    pub pools: bool,
    /// TaskRuns: they come with Tekton.
    pub task_runs: TaskRuns,
}

/// Whether TaskRuns are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRuns {
    /// There are none.
    Absent,
    /// They are, and it is an error if their kind is not there.
    Asked,
    /// They are. If their kind is not there, those that were there last will do as long as no job waits for one: a Tekton that is
    /// being removed must not keep everybody waiting until it is certain that it is gone.
    AskedOrCopied,
}

/// The world with what writes rest on read afresh; renders (which never change under one name), nodes (which only warn
/// by default) and the topology stay as they are.
pub async fn refresh(
    client: &Client,
    namespace: &str,
    world: World,
    kinds: Kinds,
) -> Result<World, CallError> {
    let list = ListParams::default().limit(LIMIT);
    let cluster_version = found(
        "read the ClusterVersion",
        Api::all(client.clone()).get(cluster_version::NAME),
    )
    .await?;
    // A list that fails is "unknown", never "no pools".
    let pools: Vec<MachineConfigPool> = if kinds.pools {
        call("list MachineConfigPools", Api::all(client.clone()).list(&list))
            .await?
            .items
    } else {
        Vec::new()
    };
    let operators: kube::core::ObjectList<ClusterOperator> =
        call("list ClusterOperators", Api::all(client.clone()).list(&list)).await?;
    let hook_jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client.clone(), namespace);
    let hook_jobs = call(
        "list the Jobs of hooks",
        hook_jobs.list(&list.clone().labels(labels::HOOK_JOB)),
    )
    .await?;
    let hook_task_runs = match kinds.task_runs {
        TaskRuns::Absent => Ok(Vec::new()),
        TaskRuns::Asked | TaskRuns::AskedOrCopied => task_runs(client, namespace, &list).await,
    };
    let mut unreadable = Vec::new();
    let managed_versions = ours(client, namespace, &list, &mut unreadable).await?;
    let configs = ours(client, namespace, &list, &mut unreadable).await?;
    let jobs = ours(client, namespace, &list, &mut unreadable).await?;
    let hooks = ours(client, namespace, &list, &mut unreadable).await?;
    let windows = ours(client, namespace, &list, &mut unreadable).await?;
    let World {
        rendered,
        nodes,
        control_plane_topology,
        outside,
        hook_task_runs: copied,
        ..
    } = world;
    let will_copies_do = kinds.task_runs == TaskRuns::AskedOrCopied && !tracker::is_any_awaited(&jobs);
    let hook_task_runs = match hook_task_runs {
        Err(error) if will_copies_do && error.is_no_such_kind() => copied,
        asked => asked?,
    };
    Ok(World {
        cluster_version,
        managed_versions,
        pools: sorted(pools),
        configs,
        jobs,
        unreadable,
        hooks,
        windows,
        hook_jobs: sorted(hook_jobs.items),
        hook_task_runs,
        operators: sorted(operators.items),
        rendered,
        nodes,
        control_plane_topology,
        outside,
    })
}

/// The TaskRuns of hooks, with what their pods tell where that decides whether a hook failed.
async fn task_runs(client: &Client, namespace: &str, list: &ListParams) -> Result<Vec<TaskRun>, CallError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &task_run::resource());
    let list = list.clone().labels(labels::HOOK_JOB);
    let all = call("list the TaskRuns of hooks", api.list(&list)).await?;
    let mut runs: Vec<TaskRun> = sorted(all.items).into_iter().map(TaskRun::from).collect();
    for run in &mut runs {
        // One that is let go has its end on record.
        if let Some(pod) = run.pod_to_look_at().filter(|_| run.is_held()) {
            run.pod_sight = pod_sight(client, namespace, pod).await?;
        }
    }
    Ok(runs)
}

async fn pod_sight(client: &Client, namespace: &str, name: &str) -> Result<PodSight, CallError> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = found(format!("read pod {name} of a hook"), api.get(name)).await?;
    Ok(pod.as_ref().map_or(PodSight::Deleted, PodSight::of))
}

/// A ClusterVersion of our own kind, and what writes of it rest on: the cluster's ClusterVersion, with its managed
/// fields, and the jobs. `None` if it is gone.
pub async fn managed_version(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<(ManagedClusterVersion, World)>, CallError> {
    let api: Api<ManagedClusterVersion> = Api::namespaced(client.clone(), namespace);
    let attempt = format!("read ClusterVersion {namespace}/{name}");
    let Some(managed) = found(attempt, api.get(name)).await? else {
        return Ok(None);
    };
    let cluster_version = found(
        "read the ClusterVersion",
        Api::all(client.clone()).get(cluster_version::NAME),
    )
    .await?;
    let list = ListParams::default().limit(LIMIT);
    let mut unreadable = Vec::new();
    let jobs = ours(client, namespace, &list, &mut unreadable).await?;
    let world = World {
        cluster_version,
        jobs,
        unreadable,
        managed_versions: vec![managed.clone()],
        ..World::default()
    };
    Ok(Some((managed, world)))
}

/// A pool, and the jobs whose name it may carry. `None` if it is gone.
pub async fn pool(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<(MachineConfigPool, World)>, CallError> {
    let api: Api<MachineConfigPool> = Api::all(client.clone());
    let Some(pool) = found(format!("read MachineConfigPool {name}"), api.get(name)).await? else {
        return Ok(None);
    };
    let list = ListParams::default().limit(LIMIT);
    let mut unreadable = Vec::new();
    let jobs = ours(client, namespace, &list, &mut unreadable).await?;
    let world = World {
        jobs,
        unreadable,
        ..World::default()
    };
    Ok(Some((pool, world)))
}

/// All objects of one of our kinds; those that do not parse go to `unreadable`.
async fn ours<K>(
    client: &Client,
    namespace: &str,
    list: &ListParams,
    unreadable: &mut Vec<Unreadable>,
) -> Result<Vec<K>, CallError>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + 'static,
{
    let api: Api<DeserializeGuard<K>> = Api::namespaced(client.clone(), namespace);
    let attempt = format!("list {}s", K::kind(&()));
    let all = call(attempt.clone(), api.list(list)).await?;
    if all.metadata.continue_.as_ref().is_some_and(|c| !c.is_empty()) {
        let problem = format!("there are more than {LIMIT} in namespace {namespace}; delete some");
        return Err(CallError::Own { attempt, problem });
    }
    Ok(sorted(readable(
        all.items.into_iter().filter_map(parsed),
        unreadable,
    )))
}

fn sorted<K: ResourceExt>(mut all: Vec<K>) -> Vec<K> {
    all.sort_by_key(ResourceExt::name_any);
    all
}

/// Whether the API server has the kind. `attempt` completes the sentence "cannot …".
pub async fn is_there(attempt: impl Into<String>, api: &Api<DynamicObject>) -> Result<bool, CallError> {
    match call(attempt, api.list(&ListParams::default().limit(1))).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_no_such_kind() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The workflow of this name, with the objects of its steps.
pub async fn workflow(
    client: &Client,
    namespace: &str,
    engine: &dyn Engine,
    name: &str,
) -> Result<Option<Workflow>, CallError> {
    let api = |kind: &ApiResource| Api::<DynamicObject>::namespaced_with(client.clone(), namespace, kind);
    let read = format!("read workflow {name}");
    let Some(object) = found(read, api(&engine.resource()).get(name)).await? else {
        return Ok(None);
    };
    let (Some(kind), Some(label)) = (engine.step_resource(), engine.step_label()) else {
        return Ok(Some(object.into()));
    };
    let list = ListParams::default()
        .limit(LIMIT)
        .labels(&format!("{label}={name}"));
    let attempt = format!("list the steps of workflow {name}");
    let steps = call(attempt, api(&kind).list(&list)).await?;
    Ok(Some(Workflow {
        object,
        steps: sorted(steps.items),
    }))
}
