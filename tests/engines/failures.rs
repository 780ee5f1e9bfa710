//! The plays in which steps of the operator's own fail, each in every way it can, or never end.

use serde_json::json;

use crate::{
    plays::{Play, What, guarded},
    upsets,
};

/// What is asked for just before `set-desired-update` looks for the last time.
const PAUSING: &str = "pause pool infra";
/// What it asks for itself.
const SETTING: &str = "set desiredUpdate to 4.18.5";

/// All of them.
pub fn all() -> Vec<Play> {
    let mut all = before_the_upgrade();
    all.extend(control_plane());
    all.extend(pools());
    all.extend(locks());
    all
}

/// An upgrade that holds a pool, without hooks.
fn upgrade(name: &str) -> Play {
    Play::upgrade(name, &["infra"])
}

fn before_the_upgrade() -> Vec<Play> {
    vec![
        guarded("create-hook-never-ends")
            .without("notify@Create")
            .ends("Skipped"),
        upgrade("pre-health")
            .once_asked("take the lock", upsets::etcd_is_degraded)
            .ends("PreHealthCheckFailed"),
        upgrade("withdrawn")
            .once_asked(PAUSING, upsets::is_withdrawn)
            .ends("UpgradeWithdrawn"),
        upgrade("conditional")
            .once_asked(PAUSING, upsets::is_conditional)
            .ends("UpgradeConditional"),
        upgrade("updates-unknown")
            .once_asked(PAUSING, upsets::updates_are_unknown)
            .ends("UpdateServiceUnavailable"),
        upgrade("another-begins")
            .once_asked(PAUSING, upsets::another_begins)
            .without("Installs")
            .ends("PreHealthCheckFailed"),
        upgrade("changed-at-once")
            .once_asked(SETTING, upsets::another_is_asked_for)
            .ends("DesiredUpdateChanged"),
    ]
}

fn control_plane() -> Vec<Play> {
    let awaited = |name: &str, change| upgrade(name).twist("await-control-plane", What::Changes(change));
    let accepted = |name: &str, change| awaited(name, change).once_said("62% done");
    vec![
        awaited("invalid", upsets::is_invalid).ends("UpgradeInvalid"),
        awaited("rejected", upsets::is_rejected)
            .without("Begins")
            .ends("UpgradeRejected"),
        awaited("removed", upsets::none_is_asked_for).ends("DesiredUpdateChanged"),
        accepted("changed", upsets::another_is_asked_for).ends("DesiredUpdateChanged"),
        accepted("removed-too-late", upsets::none_is_asked_for),
        upgrade("control-plane-timed-out")
            .without("Installs")
            .ends("TimedOut"),
    ]
}

fn pools() -> Vec<Play> {
    let bounded = |name: &str| {
        let mut play = guarded(name);
        let entry = &mut play.spec["config"]["machineConfigPools"][0];
        entry["delayUpgrade"]["delayMax"] = json!("90m");
        play.ends("UnpausingPoolsExpired")
    };
    let mut unhealthy =
        bounded("expired-in-bad-health").twist("await-pools", What::Changes(upsets::etcd_is_degraded));
    unhealthy.spec["config"]["postUpgradeHealthChecks"] = json!({"timeout": "3h"});
    vec![
        upgrade("pools-timed-out")
            .without("Rolls master")
            .ends("TimedOut"),
        upgrade("held-pool-timed-out")
            .without("Rolls infra")
            .ends("TimedOut"),
        bounded("expired-in-hold").without("Installs"),
        unhealthy,
        bounded("expired-in-hook").without("notify@MachineConfigPoolUnpause"),
        upgrade("post-health")
            .twist("await-pools", What::Changes(upsets::etcd_is_degraded))
            .ends("PostHealthCheckFailed"),
        upgrade("final-health")
            .twist("await-infra", What::Changes(upsets::etcd_is_degraded))
            .ends("PostHealthCheckFailed"),
    ]
}

fn locks() -> Vec<Play> {
    vec![
        upgrade("lock-removed")
            .twist("await-control-plane", What::Changes(upsets::lock_is_removed))
            .ends("LockLost"),
        upgrade("lock-taken")
            .twist("await-infra", What::Changes(upsets::lock_is_taken))
            .ends("LockLost"),
    ]
}
