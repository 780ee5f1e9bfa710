//! The version of a job: which one was pinned, and what came of it.

use rstest::rstest;
use serde_json::json;

use crate::{
    assert_ends,
    ending::{DONE, Left, UNTOUCHED},
    night::{NEW, Night, OLD, at},
};
use openshift_upgrade_operator::simulator::openshift::releases::image;

const ALL: &str = "Create, Start:Started, UpgradeComplete:Completed, MachineConfigPoolUnpause night:DelayReached, \
                   Success:Succeeded, Finish:Succeeded";
/// Nothing is pending for the pool.
const NOTHING_PENDING: &str = "Create, Start:Started, MachineConfigPoolUnpause night:Completed, \
     UpgradeComplete:Completed, Success:Succeeded, Finish:Succeeded";

fn desired(version: &str) -> serde_json::Value {
    json!({"desiredVersion": {"version": version, "image": image(version)}})
}

/// It was installed by somebody between the pin and the run.
fn installed_meanwhile() -> Night {
    Night::pinned().someone_asks_for("21:51", NEW)
}

fn installed_already() -> Night {
    Night::by_hand().job(&desired(OLD))
}

fn none_is_offered() -> Night {
    Night::pinned().scenario(
        &json!({"updates": {"automatic": false, "releases": [{"version": "4.18.6", "from": at("04:30")}]}}),
    )
}

fn only_conditional_ones_at_the_pin() -> Night {
    let risk = json!({"name": "BadDisk", "message": "Disks are lost", "until": at("04:30")});
    Night::pinned().scenario(&json!({"updates": {"releases": [{"version": NEW, "risks": [risk]}, {"version": "4.18.6", "from": at("04:30")}]}}))
}

fn image_is_completed() -> Night {
    Night::by_hand().job(&json!({"desiredVersion": {"image": null}}))
}

/// Back to where the cluster came from: nothing else is supported.
fn downgrade() -> Night {
    Night::by_hand()
        .someone_asks_for("21:41", NEW)
        .job(&json!({"allowDowngrade": true, "desiredVersionCheckAvailability": false}))
        .job(&desired(OLD))
}

fn conditional_and_accepted() -> Night {
    let risk = json!({"name": "BadDisk", "message": "Disks are lost"});
    Night::by_hand()
        .job(&json!({"desiredVersionCheckAvailability": false}))
        .scenario(&json!({"updates": {"releases": [{"version": NEW, "risks": [risk]}, {"version": "4.18.6", "from": at("04:30")}]}}))
}

#[rstest]
#[case::by_hand(Night::by_hand(), "Upgrade to 4.18.5 succeeded", ALL, DONE)]
#[case::pinned(Night::pinned(), "Upgrade to 4.18.5 succeeded", ALL, DONE)]
#[case::image_is_completed(image_is_completed(), "Upgrade to 4.18.5 succeeded", ALL, DONE)]
#[case::installed_already(
    installed_already(),
    "4.18.3 was there already; hooks and pools are done",
    NOTHING_PENDING,
    UNTOUCHED
)]
#[case::installed_meanwhile(
    installed_meanwhile(),
    "4.18.5 was there already; hooks and pools are done",
    NOTHING_PENDING,
    DONE
)]
#[case::none_is_offered(
    none_is_offered(),
    "Maintenance without an update succeeded",
    NOTHING_PENDING,
    UNTOUCHED
)]
#[case::only_conditional_ones_at_the_pin(
    only_conditional_ones_at_the_pin(),
    "Maintenance without an update succeeded",
    NOTHING_PENDING,
    UNTOUCHED
)]
#[case::conditional_and_accepted(conditional_and_accepted(), "Upgrade to 4.18.5 succeeded", ALL, DONE)]
#[case::downgrade(downgrade(), "Upgrade to 4.18.3 succeeded", ALL, Left { asks_for: Some(OLD), has: OLD, paused: &[] })]
fn succeeded(#[case] night: Night, #[case] message: &str, #[case] hooks: &str, #[case] left: Left) {
    assert_ends(&night, "Succeeded/Succeeded", message, hooks, left);
}
