//! Jobs that fail.

use openshift_upgrade_operator::{api::upgrade_job::EngineChoice, simulator::openshift::releases::image};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    assert_ends,
    ending::{DONE, GOES_ON, HELD, Left, UNTOUCHED},
    night::{CLUSTER_VERSION, NEW, NEWER, Night, POOL, at},
};

fn releases(change: &Value) -> Value {
    let mut release = json!({"version": NEW});
    json_patch::merge(&mut release, change);
    json!({"updates": {"releases": [release, {"version": NEWER, "from": at("04:30")}]}})
}

fn failing() -> Night {
    Night::by_hand().broken("21:45", &json!({"failing": {"message": "etcd has no quorum"}}))
}

fn degraded() -> Night {
    Night::by_hand().broken(
        "21:45",
        &json!({"degradedOperator": {"operator": "etcd", "message": "1 of 3 members"}}),
    )
}

fn pool_is_degraded() -> Night {
    Night::by_hand().broken(
        "21:45",
        &json!({"degradedPool": {"pool": "worker", "message": "cannot be rendered"}}),
    )
}

fn update_of_someone_else_is_stuck() -> Night {
    Night::by_hand()
        .someone_asks_for("21:50", NEWER)
        .broken("21:45", &json!({"stuckOperator": {"operator": "etcd"}}))
}

fn withdrawn() -> Night {
    Night::by_hand().scenario(&releases(&json!({"until": "2026-12-01T20:55:00Z"})))
}

fn conditional() -> Night {
    let risk = json!({"name": "BadDisk", "message": "Disks are lost", "from": "2026-12-01T20:55:00Z"});
    Night::by_hand().scenario(&releases(&json!({"risks": [risk]})))
}

fn update_server_silent() -> Night {
    Night::by_hand().broken(
        "21:55",
        &json!({"updateServiceAway": {"message": "no route to host"}}),
    )
}

fn rejected(reason: &str) -> Night {
    let fault = json!({"releaseRejected": {"reason": reason, "message": "the release is not signed"}});
    Night::by_hand().broken("21:45", &fault)
}

/// It is of another version than the job says.
fn wrong_image() -> Night {
    Night::by_hand().job(&json!({
        "desiredVersion": {"image": image("4.18.4")}, "desiredVersionCheckAvailability": false,
    }))
}

fn target_changed() -> Night {
    Night::by_hand().someone_asks_for("22:05", NEWER)
}

fn target_removed_before_acceptance() -> Night {
    rejected("RetrievePayload").desired("22:05", &Value::Null)
}

/// What is wrong with the ClusterVersion has nothing to do with the release.
fn invalid() -> Night {
    let upstream = |url: Value| json!({"spec": {"upstream": url}});
    Night::by_hand()
        .patch(
            "21:50",
            CLUSTER_VERSION,
            "version",
            &upstream(json!("http://no host")),
        )
        .patch("04:30", CLUSTER_VERSION, "version", &upstream(Value::Null))
}

/// The canary is broken: what waits for its time waits on.
fn unhealthy_at_the_time_of_the_pool() -> Night {
    critical().alert("22:20", "04:30", "EtcdNoLeader")
}

fn timed_out() -> Night {
    let hold = json!([{"matchLabels": {"name": "night-maintenance"}, "delayUpgrade": {"delayMin": "45m"}}]);
    Night::by_hand()
        .config(&json!({"machineConfigPools": hold}))
        .broken("21:45", &json!({"stuckOperator": {"operator": "etcd"}}))
}

fn control_plane_too_slow() -> Night {
    Night::by_hand().fault("21:45", "23:50", &json!({"stuckOperator": {"operator": "etcd"}}))
}

fn unpause_hook_too_slow() -> Night {
    Night::by_hand()
        .hook("ask", "MachineConfigPoolUnpause", "Ignore")
        .hook_jobs("ask", "Succeeds", "1h")
}

fn unhealthy_after_the_control_plane() -> Night {
    critical().alert("22:06", "04:30", "EtcdNoLeader")
}

fn critical() -> Night {
    Night::by_hand().config(&json!({"postUpgradeHealthChecks": {"checkCriticalAlerts": true}}))
}

fn unhealthy_after_the_last_pool() -> Night {
    critical().alert("22:46", "04:30", "EtcdNoLeader")
}

fn abort(event: &str) -> Night {
    Night::by_hand()
        .hook("guard", event, "Abort")
        .hook_jobs("guard", "Fails", "1m")
}

fn paused_on_failure() -> Night {
    let pause = json!({"enabled": true, "selector": {}});
    let unpause = json!({"spec": {"paused": false}});
    Night::by_hand()
        .config(&json!({"pauseMachineConfigPoolsOnFailure": pause}))
        .fault("21:45", "04:30", &json!({"stuckDrain": {"node": "worker-0"}}))
        .config(&json!({"upgradeTimeout": "1h"}))
        .patch("04:35", POOL, "worker", &unpause)
}

const START: &str = "Create, Start:Started";
const COMPLETE: &str = "Create, Start:Started, UpgradeComplete:Completed";
const UNPAUSE: &str = "Create, Start:Started, MachineConfigPoolUnpause night:DelayReached";
const BOTH: &str =
    "Create, Start:Started, UpgradeComplete:Completed, MachineConfigPoolUnpause night:DelayReached";
/// That of somebody else.
const NEWER_HELD: Left = Left {
    asks_for: Some(NEWER),
    has: NEWER,
    paused: &["night: delay"],
};
const NEWER_PARTIAL: Left = Left {
    asks_for: Some(NEWER),
    has: "4.18.6 Partial",
    paused: &[],
};

fn ends(night: &Night, reason: &str, message: &str, hooks: &str, left: Left) {
    let hooks = format!("{hooks}, Failure:{reason}, Finish:{reason}");
    assert_ends(night, &format!("Failed/{reason}"), message, &hooks, left);
}

#[rstest]
#[case::pre_health_operator(
    degraded(),
    "PreHealthCheckFailed",
    "pre-health-check: not healthy: operator etcd is Degraded: 1 of 3 members (waited 30m). Nothing was upgraded: \
         mend that, or exclude it in preUpgradeHealthChecks; to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::pre_health_pool(
    pool_is_degraded(),
    "PreHealthCheckFailed",
    "pre-health-check: not healthy: pool worker is Degraded (0 of 1 nodes) (waited 30m). Nothing was upgraded: mend \
         that, or exclude it in preUpgradeHealthChecks; to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::never_on_a_moving_cluster(
    update_of_someone_else_is_stuck(),
    "PreHealthCheckFailed",
    "pre-health-check: not healthy: update to 4.18.6 in progress, started by someone else (waited 30m). Nothing was \
         upgraded: mend that, or exclude it in preUpgradeHealthChecks; to try again, create another UpgradeJob",
    START,
    NEWER_PARTIAL
)]
#[case::rejected_preconditions(
    rejected("PreconditionChecks"),
    "UpgradeRejected",
    "await-control-plane: release 4.18.5 was rejected: Preconditions failed for payload loaded version=\"4.18.5\" \
         image=\"image-of-4.18.5\": Precondition \"ClusterVersionUpgradeable\" failed because of \
         \"SimulatedFault\": the release is not signed. Nothing was upgraded: mend the cause (`oc adm upgrade` \
         shows it, too); to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::rejected_image(
    wrong_image(),
    "UpgradeRejected",
    "await-control-plane: release 4.18.5 was rejected: Retrieving payload failed version=\"4.18.5\" \
         image=\"image-of-4.18.4\" failure=The update cannot be verified: unable to verify digest-of-4.18.4 against \
         keyrings: verifier-public-key-redhat. Nothing was upgraded: mend the cause (`oc adm upgrade` shows it, \
         too); to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::invalid(
    invalid(),
    "UpgradeInvalid",
    "await-control-plane: the cluster-version operator finds 4.18.5 invalid: The cluster version is invalid: \
         spec.upstream: Invalid value: \"http://no host\": must be a valid URL or empty. Nothing was upgraded: mend \
         the cause (`oc adm upgrade` shows it, too); to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::pool_not_unpaused_for_a_hook(
    unpause_hook_too_slow(),
    "UnpausingPoolsExpired",
    "night could not be unpaused by Tue 2026-12-01 23:30 (Europe/Zurich) / 2026-12-01 22:30 UTC; it was held by \
         hook-unpause-night-ask (waiting for hooks of MachineConfigPoolUnpause: hook ask for pool night). The \
         condition PoolsLeftPaused has the command that unpauses it: mend what held it, or make delayMax longer",
    BOTH,
    HELD
)]
#[case::pool_not_unpaused_for_health(
    unhealthy_at_the_time_of_the_pool(),
    "UnpausingPoolsExpired",
    "night could not be unpaused by Tue 2026-12-01 23:30 (Europe/Zurich) / 2026-12-01 22:30 UTC; it was held by \
         hold-night (not healthy: critical alert EtcdNoLeader; its nodes are not touched before that is mended; \
         must be unpaused by Tue 2026-12-01 23:30 (Europe/Zurich) / 2026-12-01 22:30 UTC). The condition \
         PoolsLeftPaused has the command that unpauses it: mend what held it, or make delayMax longer",
    COMPLETE,
    HELD
)]
#[case::abort_hook_of_create(
    abort("Create"),
    "HookFailed",
    "hook-create-guard: hook guard failed: Job job-of-guard failed: Job has reached the specified \
         backoff limit (BackoffLimitExceeded). Nothing was upgraded: read the logs of its pods, and mend the hook; \
         to try again, create another UpgradeJob",
    "Create",
    UNTOUCHED
)]
#[case::abort_hook_of_start(
    abort("Start"),
    "HookFailed",
    "hook-start-guard: hook guard failed: Job job-of-guard failed: Job has reached the specified \
         backoff limit (BackoffLimitExceeded). Nothing was upgraded: read the logs of its pods, and mend the hook; \
         to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::abort_hook_of_unpause(
    abort("MachineConfigPoolUnpause"),
    "HookFailed",
    "hook-unpause-night-guard: hook guard for pool night failed: Job \
         job-of-guard failed: Job has reached the specified backoff limit \
         (BackoffLimitExceeded). What has begun goes on without this job: read the logs of its pods, and mend the \
         hook; to try again, create another UpgradeJob",
    BOTH,
    HELD
)]
#[case::conditional(
    conditional(),
    "UpgradeConditional",
    "set-desired-update: 4.18.5 is now only offered with known risks: BadDisk. Nothing was upgraded: read about the \
         risks (`oc adm upgrade --include-not-recommended`); to accept them, create an UpgradeJob with \
         desiredVersionCheckAvailability: false",
    START,
    UNTOUCHED
)]
#[case::update_server_silent(
    update_server_silent(),
    "UpdateServiceUnavailable",
    "set-desired-update: the update service does not answer, so nobody knows whether 4.18.5 is still offered: \
         Unable to retrieve available updates: no route to host. Nothing was upgraded: see why the cluster does not \
         reach its update service (spec.upstream of the ClusterVersion, proxy); to try again, create another \
         UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::target_removed(
    target_removed_before_acceptance(),
    "DesiredUpdateChanged",
    "await-control-plane: someone removed spec.desiredUpdate (4.18.5) from the ClusterVersion. This job does not \
         fight over it: see who it was (`oc get clusterversion version -o yaml --show-managed-fields`), and watch \
         what the cluster does now",
    START,
    UNTOUCHED
)]
#[case::pools_paused_on_failure(paused_on_failure(), "TimedOut", "not done 1h after startAfter; was at await-pools (worker: 0 of 1 updated; worker-0 draining for 50m (1 pod left): simulated-workload/stuck-on-worker-0 blocked by PDB simulated-workload/stuck-on-worker-0 (0 allowed)). What has begun goes on without this job: see where it is (`oc get clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or make upgradeTimeout longer; to try again, create another UpgradeJob", UNPAUSE, Left { paused: &["worker: failure"], ..DONE })]
#[case::post_health_of_the_last_pool(
    unhealthy_after_the_last_pool(),
    "PostHealthCheckFailed",
    "final-health-check: not healthy: critical alert EtcdNoLeader (waited 30m). What has begun goes on without this \
         job: mend that; pools that wait for it are in the condition PoolsLeftPaused",
    BOTH,
    DONE
)]
fn failed(
    #[case] night: Night,
    #[case] reason: &str,
    #[case] message: &str,
    #[case] hooks: &str,
    #[case] left: Left,
) {
    // Where nothing is left, there is nothing to take over.
    let night = if left.paused.is_empty() {
        night
    } else {
        night.and_later_job()
    };
    ends(&night, reason, message, hooks, left);
}

/// An ending of each kind, whoever orders the steps.
#[rstest]
#[case::pre_health(
    failing(),
    "PreHealthCheckFailed",
    "pre-health-check: not healthy: ClusterVersion is Failing: etcd has no quorum (waited 30m). Nothing was \
         upgraded: mend that, or exclude it in preUpgradeHealthChecks; to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::withdrawn(
    withdrawn(),
    "UpgradeWithdrawn",
    "set-desired-update: 4.18.5 is no longer offered (neither in availableUpdates nor in conditionalUpdates of the \
         ClusterVersion). Nothing was upgraded: `oc adm upgrade` shows what is offered instead; to try again, \
         create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::rejected(
    rejected("RetrievePayload"),
    "UpgradeRejected",
    "await-control-plane: release 4.18.5 was rejected: Retrieving payload failed version=\"4.18.5\" \
         image=\"image-of-4.18.5\" failure=the release is not signed. Nothing was upgraded: mend the cause (`oc adm \
         upgrade` shows it, too); to try again, create another UpgradeJob",
    START,
    UNTOUCHED
)]
#[case::target_changed(
    target_changed(),
    "DesiredUpdateChanged",
    "await-control-plane: someone changed spec.desiredUpdate of the ClusterVersion from 4.18.5 to 4.18.6. This job \
         does not fight over it: see who it was (`oc get clusterversion version -o yaml --show-managed-fields`), \
         and watch what the cluster does now",
    START,
    NEWER_HELD
)]
#[case::upgrade_timeout(
    timed_out(),
    "TimedOut",
    "not done 4h after startAfter; was at await-control-plane (84% done, waiting on etcd over 30 minutes which is \
         longer than expected). What has begun goes on without this job: see where it is (`oc get \
         clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or make upgradeTimeout longer; \
         to try again, create another UpgradeJob",
    START,
    GOES_ON
)]
#[case::pool_not_unpaused_by_delay_max(
    control_plane_too_slow(),
    "UnpausingPoolsExpired",
    "night could not be unpaused by Tue 2026-12-01 23:30 (Europe/Zurich) / 2026-12-01 22:30 UTC; it was held by \
         await-control-plane (84% done, waiting on etcd over 30 minutes which is longer than expected). The \
         condition PoolsLeftPaused has the command that unpauses it: mend what held it, or make delayMax longer",
    START,
    HELD
)]
#[case::post_health(
    unhealthy_after_the_control_plane(),
    "PostHealthCheckFailed",
    "post-health-check: not healthy: critical alert EtcdNoLeader (waited 30m). What has begun goes on without this \
         job: mend that; pools that wait for it are in the condition PoolsLeftPaused",
    START,
    HELD
)]
#[case::abort_hook(
    abort("UpgradeComplete"),
    "HookFailed",
    "hook-upgrade-complete-guard: hook guard failed: Job job-of-guard failed: Job has \
         reached the specified backoff limit (BackoffLimitExceeded). What has begun goes on without this job: read \
         the logs of its pods, and mend the hook; to try again, create another UpgradeJob",
    COMPLETE,
    HELD
)]
fn failed_with(
    #[case] night: Night,
    #[case] reason: &str,
    #[case] message: &str,
    #[case] hooks: &str,
    #[case] left: Left,
    #[values(EngineChoice::Embedded, EngineChoice::Argo)] engine: EngineChoice,
) {
    let night = night.on(engine);
    let night = match engine {
        EngineChoice::Argo => night,
        _ => night.and_later_job(),
    };
    ends(&night, reason, message, hooks, left);
}
