//! `await-control-plane`: the cluster-version operator does the work; we watch, and tell a rejection from a slow start.
//!
//! Source of the conditions: research/engines.md 6.2 (cluster-version-operator pkg/cvo/status.go).

use jiff::Timestamp;

use super::{Scene, Tick, drains, progress};
use crate::{
    api::conditions::reasons,
    openshift::{self, cluster_version::ClusterVersion},
    target::{Target, changed_by_someone},
    text,
};

pub(super) fn tick(scene: &Scene<'_>) -> Tick {
    let Some(cluster) = &scene.world.cluster_version else {
        return Tick::wait("the ClusterVersion is not known");
    };
    let Some(target) = scene.target() else {
        return Tick::wait("the version to wait for is not known");
    };
    if is_done(cluster, &target) {
        return Tick::done(format!("the control plane is at {}", target.version));
    }
    let accepted = cluster.newest().is_some_and(|newest| target.is(newest));
    match &cluster.spec.desired_update {
        Some(desired) if target.is_asked_by(desired) => {}
        Some(desired) => {
            return Tick::failed(
                reasons::DESIRED_UPDATE_CHANGED,
                changed_by_someone(&target, desired),
            );
        }
        None if accepted => return goes_on_without_us(scene, cluster),
        None => {
            return Tick::failed(
                reasons::DESIRED_UPDATE_CHANGED,
                format!(
                    "someone removed spec.desiredUpdate ({}) from the ClusterVersion",
                    target.version
                ),
            );
        }
    }
    if accepted {
        drains::wait_beside(scene, progress::control_plane(cluster))
    } else {
        awaiting_acceptance(scene, cluster, &target)
    }
}

/// What was accepted is installed, whoever removes `desiredUpdate` then: that is said, once as an Event, and gone on with.
fn goes_on_without_us(scene: &Scene<'_>, cluster: &ClusterVersion) -> Tick {
    const CLEARED: &str = "someone removed spec.desiredUpdate from the ClusterVersion; the upgrade was accepted before and goes on";
    let said = scene
        .step("await-control-plane")
        .and_then(|s| s.message.as_deref())
        .is_some_and(|m| m.ends_with(CLEARED));
    let mut tick = Tick::wait(format!("{}; {CLEARED}", progress::control_plane(cluster)));
    if !said {
        tick.warnings
            .push((reasons::DESIRED_UPDATE_CHANGED, CLEARED.to_owned()));
    }
    tick
}

/// Whether the target is installed and the cluster-version operator has come to rest.
pub(super) fn is_done(cluster: &ClusterVersion, target: &Target) -> bool {
    cluster
        .newest()
        .is_some_and(|newest| target.is(newest) && newest.is_completed())
        && cluster.is_observed()
        && openshift::is_true(cluster.conditions(), "Available")
        && !openshift::is_true(cluster.conditions(), "Progressing")
}

/// A release that is rejected leaves Progressing False and the history unchanged: waiting for those would hang.
fn awaiting_acceptance(scene: &Scene<'_>, cluster: &ClusterVersion, target: &Target) -> Tick {
    if !cluster.is_observed() {
        return Tick::wait(format!(
            "waiting for the cluster-version operator to see {}",
            target.version
        ));
    }
    if openshift::is_true(cluster.conditions(), "Invalid") {
        return Tick::failed(
            reasons::UPGRADE_INVALID,
            format!(
                "the cluster-version operator finds {} invalid: {}",
                target.version,
                cluster.message_of("Invalid")
            ),
        );
    }
    let Some(refusal) =
        openshift::condition(cluster.conditions(), "ReleaseAccepted").filter(|c| c.status == "False")
    else {
        return Tick::wait(format!(
            "waiting for the cluster-version operator to accept {}",
            target.version
        ));
    };
    let text = refusal.message.clone().unwrap_or_default();
    // The condition may still speak of an older attempt.
    if !(text.contains(&target.image) || text.contains(&target.version)) {
        return Tick::wait(format!(
            "waiting for the cluster-version operator to accept {}",
            target.version
        ));
    }
    let grace = match refusal.reason.as_deref() {
        Some("PreconditionChecks") => scene.settings.precondition_grace,
        _ => scene.settings.retrieval_grace,
    };
    // Counted from when the step began: the cluster-version operator tries again and again, and each try moves the
    // condition's transition time.
    let deadline = scene.began.saturating_add(grace).unwrap_or(Timestamp::MAX);
    if scene.now >= deadline {
        return Tick::failed(
            reasons::UPGRADE_REJECTED,
            format!("release {} was rejected: {text}", target.version),
        );
    }
    let until = text::time(deadline, scene.settings.zone());
    Tick::wait_until(
        format!(
            "release {} is rejected so far, waiting until {until}: {text}",
            target.version
        ),
        deadline,
    )
}
