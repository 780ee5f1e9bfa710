//! What goes wrong on a cluster, or is changed there by somebody else.

use openshift_upgrade_operator::{
    api::annotations,
    openshift::cluster_version::{ClusterVersion, ClusterVersionStatus},
    world::World,
};
use serde_json::{Value, json};

use crate::{
    cluster::{self, NEW, NEWER, image, object},
    plays::HOSTILE,
};

fn version(world: &mut World) -> &mut ClusterVersion {
    world.cluster_version.as_mut().unwrap()
}

fn status(world: &mut World) -> &mut ClusterVersionStatus {
    version(world).status.as_mut().unwrap()
}

fn condition(world: &mut World, condition: Value) {
    let all = &mut status(world).conditions;
    all.retain(|c| c.type_ != condition["type"]);
    all.push(object(condition));
}

/// etcd is not well.
pub fn etcd_is_degraded(world: &mut World) {
    let etcd = world
        .operators
        .iter_mut()
        .find(|o| o.metadata.name.as_deref() == Some("etcd"));
    let all = &mut etcd.unwrap().status.as_mut().unwrap().conditions;
    all.retain(|c| c.type_ != "Degraded");
    let message = format!("no quorum, says {HOSTILE}");
    all.push(object(
        json!({"type": "Degraded", "status": "True", "message": message}),
    ));
}

/// The job's version is not offered any more.
pub fn is_withdrawn(world: &mut World) {
    status(world).available_updates = None;
}

/// It is offered with a known risk only.
pub fn is_conditional(world: &mut World) {
    is_withdrawn(world);
    let risk = json!({"name": "NodesStayDown", "message": "m", "url": "u"});
    status(world).conditional_updates = vec![object(
        json!({"release": {"version": NEW, "image": image(NEW)}, "risks": [risk]}),
    )];
}

/// The update service does not answer.
pub fn updates_are_unknown(world: &mut World) {
    is_withdrawn(world);
    condition(
        world,
        json!({"type": "RetrievedUpdates", "status": "False", "message": "no route to the update service"}),
    );
}

/// The cluster begins with another release.
pub fn another_begins(world: &mut World) {
    cluster::begins_with(world, NEWER, "Partial");
}

/// Somebody asks for another release.
pub fn another_is_asked_for(world: &mut World) {
    let update = json!({"version": NEWER, "image": image(NEWER)});
    version(world).spec.desired_update = Some(object(update));
}

/// Somebody takes back what was asked for.
pub fn none_is_asked_for(world: &mut World) {
    version(world).spec.desired_update = None;
}

/// The cluster finds the release invalid.
pub fn is_invalid(world: &mut World) {
    condition(
        world,
        json!({"type": "Invalid", "status": "True", "message": "no such image"}),
    );
}

/// It refuses the release until there is a backup.
pub fn is_rejected(world: &mut World) {
    let message = format!("preconditions of {NEW} are not met: etcd has no backup");
    condition(
        world,
        json!({"type": "ReleaseAccepted", "status": "False", "reason": "PreconditionChecks", "message": message}),
    );
}

/// Somebody removes the job's lock.
pub fn lock_is_removed(world: &mut World) {
    version(world).metadata.annotations = None;
}

/// The lock is another job's.
pub fn lock_is_taken(world: &mut World) {
    let owner = (
        annotations::UPGRADE_JOB.to_owned(),
        "elsewhere/another".to_owned(),
    );
    version(world).metadata.annotations = Some([owner].into());
}
