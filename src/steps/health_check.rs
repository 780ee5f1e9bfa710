//! `pre-health-check`, `post-health-check`, `final-health-check`: wait until green, or fail at the timeout.

use jiff::SignedDuration;

use super::{Scene, Tick};
use crate::{
    api::{conditions::reasons, duration, health_check::HealthChecks},
    health::{FAILING_MATURES, Moment},
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
    let findings = scene.health(checks, moment);
    if findings.is_healthy() {
        return Tick::done(findings.describe());
    }
    let timeout = checks.timeout();
    let grace = if findings.is_only_young() {
        FAILING_MATURES
    } else {
        SignedDuration::ZERO
    };
    let deadline = [timeout, grace].into_iter().fold(scene.began, |t, d| {
        t.saturating_add(d).unwrap_or(jiff::Timestamp::MAX)
    });
    // While something is still to be asked for there is no verdict; whoever asks decides again at once.
    if scene.now >= deadline && findings.asks.is_empty() {
        let took = duration::format(timeout);
        return Tick::failed(reason, format!("{} (waited {took})", findings.describe()));
    }
    let until = text::time(deadline, scene.settings.zone());
    let message = format!("{}; waiting until {until}", findings.describe());
    Tick::wait_for_health(message, Some(deadline), findings)
}
