//! The lock: one running UpgradeJob at a time, by annotation on the ClusterVersion (the peer's, plus the job's UID).

use kube::ResourceExt;

use crate::{
    api::{UpgradeJob, annotations},
    openshift::cluster_version::ClusterVersion,
    pools,
    steps::Action,
    world::World,
};

use super::{Stage, draft::Draft, is_protected};

/// Who has the lock, as seen by one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The ClusterVersion is not known.
    Unknown,
    /// Nobody, or a job that is gone or has ended and given everything back.
    Free,
    /// This job.
    Ours,
    /// Another one, `namespace/name`.
    Held(String),
}

/// `namespace/name` and UID of the job that the ClusterVersion names as holder.
pub fn holder_of(cluster: &ClusterVersion) -> Option<(&str, Option<&str>)> {
    let all = cluster.annotations();
    let key = all.get(annotations::UPGRADE_JOB)?;
    Some((
        key.as_str(),
        all.get(annotations::UPGRADE_JOB_UID).map(String::as_str),
    ))
}

/// The lock as seen by `job`. A holder is judged by `world.jobs`, so before a takeover that list must be a live one.
pub(super) fn state(world: &World, job: &UpgradeJob) -> Lock {
    let Some(cluster) = &world.cluster_version else {
        return Lock::Unknown;
    };
    let Some((key, uid)) = holder_of(cluster) else {
        return Lock::Free;
    };
    if key == pools::key(job) {
        // A job that was deleted and made again under one name is another job.
        return if uid.is_none_or(|u| Some(u) == job.metadata.uid.as_deref()) {
            Lock::Ours
        } else {
            Lock::Free
        };
    }
    let Some((namespace, name)) = key.split_once('/') else {
        return Lock::Free;
    };
    if Some(namespace) != job.namespace().as_deref() {
        return Lock::Held(key.to_owned());
    }
    if world.has_unreadable_job(name) {
        return Lock::Held(key.to_owned());
    }
    let holder = world
        .job(name)
        .filter(|j| uid.is_none_or(|u| j.metadata.uid.as_deref() == Some(u)));
    match holder {
        None => Lock::Free,
        Some(holder) if Stage::of(holder) == Stage::Finished && !is_protected(holder) => Lock::Free,
        Some(_) => Lock::Held(key.to_owned()),
    }
}

/// Our finalizer on the job, then the lock with the job's UID: each is on the cluster before what rests on it. `false` while
/// one of them is still to be written. Only for a job that may have the lock.
pub(super) fn secure(draft: &mut Draft<'_>) -> bool {
    let (world, job) = (draft.input.world, draft.input.job);
    if !is_protected(job) {
        draft.status.message = Some("setting the finalizer".to_owned());
        draft.actions.push(Action::Protect);
        return false;
    }
    let is_signed = || {
        let (key, uid) = holder_of(world.cluster_version.as_ref()?)?;
        Some(key == pools::key(job) && uid.is_some() && uid == job.metadata.uid.as_deref())
    };
    if is_signed() != Some(true) {
        draft.status.message = Some("taking the lock".to_owned());
        draft.actions.push(Action::TakeLock);
        return false;
    }
    true
}
