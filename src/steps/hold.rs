//! `hold-<group>`: a held group waits for its time, for the control plane, and for a healthy cluster.

use kube::ResourceExt;

use super::{Scene, Tick};
use crate::{health::Moment, pools, text};

pub(super) fn tick(scene: &Scene<'_>, index: usize) -> Tick {
    let Some(group) = pools::held_group(scene.job, index, &scene.world.pools) else {
        return Tick::done("the delay was taken out of the job");
    };
    if !scene.control_plane_done() {
        return wait(scene, "waiting for the control plane", group.not_after);
    }
    if let Some(why) = pools::unsettled(scene.world) {
        return wait(scene, &why, group.not_after);
    }
    if is_nothing_pending(scene, index) {
        return Tick::done("nothing is pending for its pools");
    }
    if scene.now < group.not_before {
        let when = text::time(group.not_before, scene.settings.zone());
        let names = member_names(scene, index);
        return Tick::wait_until(format!("{names} held until {when}"), group.not_before);
    }
    let checks = &scene.job.spec.config.post_upgrade_health_checks;
    let findings = scene.health(checks, Moment::BeforePool);
    if !findings.is_healthy() {
        let what = findings.describe();
        let why = format!("{what}; its nodes are not touched before that is mended");
        let message = with_limit(scene, why, group.not_after);
        return Tick::wait_for_health(message, group.not_after, findings);
    }
    Tick::done(format!("time reached; {}", findings.describe()))
}

/// Whether no pool of the group would reboot a node when unpaused: then there is nothing to hold.
pub(super) fn is_nothing_pending(scene: &Scene<'_>, index: usize) -> bool {
    pools::members(scene.job, index, &scene.world.pools)
        .iter()
        .all(|p| !pools::is_pending(scene.world, p))
}

fn member_names(scene: &Scene<'_>, index: usize) -> String {
    let names: Vec<String> = pools::members(scene.job, index, &scene.world.pools)
        .iter()
        .map(|p| p.name_any())
        .collect();
    names.join(", ")
}

fn wait(scene: &Scene<'_>, why: &str, not_after: Option<jiff::Timestamp>) -> Tick {
    let message = with_limit(scene, why.to_owned(), not_after);
    match not_after {
        Some(limit) => Tick::wait_until(message, limit),
        None => Tick::wait(message),
    }
}

fn with_limit(scene: &Scene<'_>, why: String, not_after: Option<jiff::Timestamp>) -> String {
    match not_after {
        Some(limit) => {
            let by = text::time(limit, scene.settings.zone());
            format!("{why}; must be unpaused by {by}")
        }
        None => why,
    }
}
