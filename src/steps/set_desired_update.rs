//! `set-desired-update`: the one write that starts an upgrade.
//!
//! Rules: design 5 ("never start on a moving cluster", the endings for versions that are gone) and 6.

use jiff::{SignedDuration, Timestamp};

use super::{Action, Scene, Tick};
use crate::{
    api::conditions::reasons,
    openshift::{self, cluster_version::ClusterVersion},
    target::{self, Target},
    text,
};

pub(super) fn tick(scene: &Scene<'_>) -> Tick {
    let Some(cluster) = &scene.world.cluster_version else {
        return Tick::wait("the ClusterVersion is not known");
    };
    let Some(target) = scene.target() else {
        return not_offered(scene, cluster, None);
    };
    let Some(newest) = cluster.newest() else {
        return Tick::wait("the ClusterVersion has no history yet");
    };
    if target.is(newest) {
        if is_recorded(scene, &target) {
            return Tick::done(format!("{} was asked for and accepted", target.version));
        }
        let state = if newest.is_completed() {
            "installed"
        } else {
            "being installed"
        };
        return Tick::done(format!("{} is already {state}", target.version));
    }
    if let Some(desired) = &cluster.spec.desired_update
        && target.is_exactly(desired)
        && is_recorded(scene, &target)
    {
        return Tick::done(format!(
            "spec.desiredUpdate of the ClusterVersion is {}",
            target.version
        ));
    }
    if is_recorded(scene, &target)
        && let Some(desired) = &cluster.spec.desired_update
        && !target.is_asked_by(desired)
        && !target::asks_for(desired, newest)
    {
        // Between our write and this look: never fight.
        return Tick::failed(
            reasons::DESIRED_UPDATE_CHANGED,
            target::changed_by_someone(&target, desired),
        );
    }
    if let Some(moving) = target::movement(cluster, Some(&target)) {
        return wait_or_fail(scene, &moving, reasons::PRE_HEALTH_CHECK_FAILED);
    }
    if scene.job.spec.check_availability() && !is_available(cluster, &target) {
        return not_offered(scene, cluster, Some(&target));
    }
    Tick::act(
        vec![Action::SetDesiredUpdate(target.clone())],
        format!("setting spec.desiredUpdate to {}", target.version),
    )
}

fn is_recorded(scene: &Scene<'_>, target: &Target) -> bool {
    scene
        .status
        .desired_update
        .as_ref()
        .is_some_and(|d| d.version.as_deref() == Some(target.version.as_str()))
}

fn is_available(cluster: &ClusterVersion, target: &Target) -> bool {
    let offered = cluster.status.as_ref().and_then(|s| s.available_updates.as_ref());
    offered.is_some_and(|all| {
        all.iter()
            .any(|r| r.version == target.version && r.image == target.image)
    })
}

/// Why the version cannot be set now, and whether that may change.
fn not_offered(scene: &Scene<'_>, cluster: &ClusterVersion, target: Option<&Target>) -> Tick {
    let wanted = target.map(|t| t.version.clone()).or_else(|| {
        scene
            .job
            .spec
            .desired_version
            .as_ref()
            .and_then(|d| d.version.clone().or_else(|| d.image.clone()))
    });
    let wanted = wanted.unwrap_or_default();
    let conditional = cluster
        .status
        .iter()
        .flat_map(|s| &s.conditional_updates)
        .find(|c| c.release.version == wanted || target.is_some_and(|t| t.image == c.release.image));
    if let Some(conditional) = conditional {
        let risks: Vec<&str> = conditional.risks.iter().map(|r| r.name.as_str()).collect();
        let why = format!(
            "{wanted} is now only offered with known risks: {}",
            risks.join(", ")
        );
        return wait_or_fail(scene, &why, reasons::UPGRADE_CONDITIONAL);
    }
    // An empty list is null on the wire, so it is the condition that says whether the list is true.
    if !openshift::is_true(cluster.conditions(), "RetrievedUpdates") || !cluster.is_observed() {
        let text = cluster.message_of("RetrievedUpdates");
        let why = format!(
            "the update service does not answer, so nobody knows whether {wanted} is still offered: {text}"
        );
        return wait_or_fail(scene, &why, reasons::UPDATE_SERVICE_UNAVAILABLE);
    }
    Tick::failed(
        reasons::UPGRADE_WITHDRAWN,
        format!(
            "{wanted} is no longer offered (neither in availableUpdates nor in conditionalUpdates of the ClusterVersion)"
        ),
    )
}

/// Waits until the job's start window is over, at least 30 minutes, within the upgrade's timeout; then fails.
fn wait_or_fail(scene: &Scene<'_>, why: &str, reason: &'static str) -> Tick {
    let spec = &scene.job.spec;
    let half_an_hour = scene
        .began
        .saturating_add(SignedDuration::from_mins(30))
        .unwrap_or(Timestamp::MAX);
    let deadline = spec.start_before.0.max(half_an_hour).min(spec.upgrade_deadline());
    if scene.now >= deadline {
        return Tick::failed(reason, why);
    }
    Tick::wait_until(
        format!(
            "{why}; waiting until {}",
            text::time(deadline, scene.settings.zone())
        ),
        deadline,
    )
}
