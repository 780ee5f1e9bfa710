//! MachineConfigPool: copies → decision → fresh pool and jobs → decision → the name of a job is removed.
//!
//! Pauses are no matter of this file: a job takes and lifts them, see [`crate::lifecycle`].

use jiff::Timestamp;
use kube::{Api, Client, ResourceExt, api::Patch};
use serde_json::json;

use super::{
    Context,
    calls::{CallError, call},
    effects, live,
};
use crate::{
    api::annotations, lifecycle::owner, openshift::machine_config_pool::MachineConfigPool, world::World,
};

/// Removes the name of a job from a pool that a person has unpaused since. Nothing else of the pool changes.
pub async fn reconcile(
    ctx: &Context,
    world: &World,
    pool: &MachineConfigPool,
) -> Result<Option<Timestamp>, CallError> {
    let namespace = &ctx.settings.namespace;
    if !owner::is_stale(world, namespace, pool) {
        return Ok(None);
    }
    let name = pool.name_any();
    let Some((pool, fresh)) = live::pool(&ctx.client, namespace, &name).await? else {
        return Ok(None);
    };
    if ctx.outside().peer.is_some() || !owner::is_stale(&fresh, namespace, &pool) {
        return Ok(None);
    }
    let job = pool.annotations().get(annotations::UPGRADE_JOB);
    tracing::info!(
        pool = name,
        job,
        "unpaused by hand: removing the name of the job that had paused it"
    );
    disown(&ctx.client, &pool).await?;
    Ok(None)
}

/// Removes the name of a job from a pool.
pub async fn disown(client: &Client, pool: &MachineConfigPool) -> Result<(), CallError> {
    let name = pool.name_any();
    let patch = json!({"metadata": {
        "resourceVersion": pool.resource_version(),
        "annotations": {
            annotations::UPGRADE_JOB: null,
            annotations::UPGRADE_JOB_UID: null,
            annotations::PAUSE_REASON: null,
        },
    }});
    let api: Api<MachineConfigPool> = Api::all(client.clone());
    let attempt =
        format!("remove the name of a job from MachineConfigPool {name}, which is not paused any more");
    let patch = Patch::Merge(patch);
    call(attempt, api.patch(&name, &effects::params(), &patch))
        .await
        .map(drop)
}
