//! While the control plane of a job is being updated, the ClusterVersion is not changed.

use kube::ResourceExt;

use crate::{
    api::UpgradeJob,
    lifecycle::{Stage, holder_of},
    openshift::cluster_version::ClusterVersion,
    plan::StepAction,
    target::Target,
    world::World,
};

/// The job whose control plane is being updated, or (it cannot be read, and has the lock) may be.
pub(super) fn updating(world: &World, cluster: &ClusterVersion) -> Option<String> {
    let job = world.jobs.iter().find(|job| is_updating(job, cluster));
    job.map(ResourceExt::name_any).or_else(|| {
        let (_, name) = holder_of(cluster)?.0.split_once('/')?;
        world.has_unreadable_job(name).then(|| name.to_owned())
    })
}

/// From the start, where the offered versions matter, until the control plane is there. A job that has ended holds
/// nothing back: what it left behind is for people to mend, and they may need Git for it.
fn is_updating(job: &UpgradeJob, cluster: &ClusterVersion) -> bool {
    let steps = job.status.as_ref().map_or(&[][..], |s| s.steps.as_slice());
    let await_it = steps
        .iter()
        .find(|s| s.kind == StepAction::AwaitControlPlane.kind());
    let is_there = match await_it {
        Some(step) => step.phase.is_finished(),
        // A job of the peer has no steps.
        None => Target::of(job, cluster)
            .zip(cluster.newest())
            .is_some_and(|(target, newest)| newest.is_completed() && target.is(newest)),
    };
    Stage::of(job) == Stage::Started && job.spec.desired_version.is_some() && !is_there
}
