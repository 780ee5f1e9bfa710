//! `pre-health-check`, `post-health-check`, `final-health-check`: wait until green, or fail at the timeout.

use super::{Scene, Tick};
use crate::{
    api::{conditions::reasons, duration, health_check::HealthChecks},
    health::{self, Moment},
    text,
};

pub(super) fn before(scene: &Scene<'_>) -> Tick {
    let checks = &scene.job.spec.config.pre_upgrade_health_checks;
    check(
        scene,
        checks,
        Moment::BeforeUpgrade,
        reasons::PRE_HEALTH_CHECK_FAILED,
    )
}

pub(super) fn after(scene: &Scene<'_>) -> Tick {
    let checks = &scene.job.spec.config.post_upgrade_health_checks;
    check(
        scene,
        checks,
        Moment::AfterUpgrade,
        reasons::POST_HEALTH_CHECK_FAILED,
    )
}

fn check(scene: &Scene<'_>, checks: &HealthChecks, moment: Moment, reason: &'static str) -> Tick {
    let findings = health::check(checks, scene.world, moment, scene.target().as_ref());
    if findings.is_healthy() {
        return Tick::done(findings.describe());
    }
    let timeout = checks.timeout();
    let deadline = scene
        .began
        .saturating_add(timeout)
        .unwrap_or(jiff::Timestamp::MAX);
    if scene.now >= deadline {
        let took = duration::format(timeout);
        return Tick::failed(reason, format!("{} (waited {took})", findings.describe()));
    }
    let until = text::time(deadline, scene.settings.zone());
    Tick::wait_until(
        format!("{}; waiting until {until}", findings.describe()),
        deadline,
    )
}
