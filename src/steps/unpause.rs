//! `unpause-<group>`: the only place where a pool with something pending is unpaused.

use kube::ResourceExt;

use super::{Action, Scene, Tick, hold};
use crate::{
    pools::{self, Pause},
    text,
};

pub(super) fn tick(scene: &Scene<'_>, index: usize) -> Tick {
    let members = pools::members(scene.job, index, &scene.world.pools);
    let ours: Vec<String> = members
        .iter()
        .filter(|p| matches!(pools::pause(scene.job, p), Pause::Ours(_)))
        .map(|p| p.name_any())
        .collect();
    if ours.is_empty() {
        let foreign = members.iter().filter(|p| p.spec.paused).count();
        return Tick::done(if foreign > 0 {
            "paused by someone else; left alone"
        } else {
            "unpaused"
        });
    }
    // A node that was resumed by hand in the engine must not reboot nodes early.
    if !scene.control_plane_done() {
        return Tick::wait("waiting for the control plane");
    }
    if let Some(why) = pools::unsettled(scene.world) {
        return Tick::wait(why);
    }
    // Too late is not a time to reboot nodes either; the job fails for it.
    let group = pools::held_group(scene.job, index, &scene.world.pools);
    if let Some(limit) = group.as_ref().and_then(|g| g.not_after)
        && scene.now > limit
    {
        let by = text::time(limit, scene.settings.zone());
        return Tick::wait(format!("too late: it had to be unpaused by {by}"));
    }
    let not_before = group.map(|g| g.not_before);
    if let Some(not_before) = not_before
        && scene.now < not_before
        && !hold::is_nothing_pending(scene, index)
    {
        let when = text::time(not_before, scene.settings.zone());
        return Tick::wait_until(format!("held until {when}"), not_before);
    }
    let message = format!("unpausing {}", ours.join(", "));
    Tick::act(
        ours.into_iter()
            .map(|pool| Action::UnpausePool { pool })
            .collect(),
        message,
    )
}
