//! Jobs that openshift-upgrade-controller started, and was stopped in the midst of.

use rstest::rstest;

use crate::{assert_ends, ending::DONE, night::Night};

/// Whoever ran them.
const HOOKS: &str = "Create, Start:Started, UpgradeComplete:Completed, MachineConfigPoolUnpause night:DelayReached, \
     Success:Succeeded, Finish:Succeeded";

/// As if nothing had happened: the update is asked for once, no hook runs twice, every pool is given back.
#[rstest]
#[case::start_hook_runs("night-tell-start-hook", "22:00")]
#[case::before_desired_update("PreHealthCheckDone=true", "22:03")]
#[case::in_mid_control_plane("UpgradeCompleted=false", "22:05")]
#[case::before_post_health("UpgradeCompleted=true", "22:12")]
#[case::pool_is_held("Paused=true", "22:30")]
#[case::hook_of_the_pool_runs("night-tell-machineconfigpoolunpause-hook", "22:45")]
#[case::pool_reboots("night paused=false", "22:46")]
fn a_job_of_the_peer_is_carried_on(#[case] last: &'static str, #[case] from: &'static str) {
    let night = Night::by_hand().led_by_peer(last, from);
    assert_succeeds(&night);
}

/// The operator is killed while it takes the job over, and the next job upgrades as ever.
#[test]
fn a_takeover_that_is_cut_short_is_made_by_the_next_operator() {
    let night = Night::by_hand()
        .led_by_peer("UpgradeCompleted=false", "22:05")
        .operator_away("22:05", "1m")
        .operator_away("22:07", "1m")
        .and_later_job();
    assert_succeeds(&night);
}

#[track_caller]
fn assert_succeeds(night: &Night) {
    let message = "Upgrade to 4.18.5 succeeded";
    assert_ends(night, "Succeeded/Succeeded", message, HOOKS, DONE);
}
