//! Jobs that do not start.

use kube::api::DynamicObject;
use openshift_upgrade_operator::{
    api::{annotations, upgrade_job::EngineChoice},
    engine::{
        Engine,
        argo::{self, Argo},
    },
    simulator::openshift::releases::image,
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    assert_ends,
    ending::{Left, UNTOUCHED},
    night::{CLUSTER_VERSION, NEW, NEWER, Night, UPGRADE_CONFIG, at, job_of, window},
    simulated::NAMESPACE,
};

/// Hooks before the end.
const CREATED: &str = "Create, ";
const NOT_CREATED: &str = "";
const NEWER_THERE: Left = Left {
    has: NEWER,
    ..UNTOUCHED
};
const NEWER_INSTALLED: Left = Left {
    asks_for: Some(NEWER),
    ..NEWER_THERE
};
/// That of the other job.
const OTHER_GOES_ON: Left = Left {
    asks_for: Some(NEW),
    has: "4.18.5 Partial",
    paused: &[],
};

fn window_of_the_job() -> Night {
    let selector = json!({"jobSelector": {"matchLabels": {"upgrade": "night"}}});
    Night::pinned().with(window("freeze", "21:55", "22:30", &selector))
}

/// It has begun when the job, whose start it was not to be, would start after all.
fn window_that_begins_late() -> Night {
    let selector = json!({"jobSelector": {}});
    let window = window("freeze", "22:20", "22:50", &selector);
    Night::by_hand().with(window).operator_away("21:55", "30m")
}

fn window_made_at_the_last_second() -> Night {
    let selector = json!({"configSelector": {"matchLabels": {"team": "a"}}});
    Night::pinned().apply("21:59:59", &window("freeze", "21:00", "22:30", &selector))
}

fn window_edited_at_the_last_second() -> Night {
    let selector = json!({"jobSelector": {}});
    let spec = |until: &str| window("freeze", "21:00", until, &selector);
    Night::by_hand()
        .with(spec("21:30"))
        .apply("21:59:59", &spec("22:30"))
}

fn config_suspended() -> Night {
    let suspend = json!({"spec": {"schedule": {"suspend": true}}});
    Night::pinned().patch("21:59:59", UPGRADE_CONFIG, "tuesdays", &suspend)
}

fn rescheduled() -> Night {
    let cron = json!({"spec": {"schedule": {"cron": "0 22 * * 3"}}});
    Night::pinned().patch("21:55", UPGRADE_CONFIG, "tuesdays", &cron)
}

fn superseded() -> Night {
    Night::by_hand().scenario(&json!({"cluster": {"version": NEWER}}))
}

/// Another job, which is due earlier and has the lock, upgrades to a newer version meanwhile.
fn superseded_while_it_waits_for_the_lock() -> Night {
    Night::by_hand()
        .with(other(NEWER))
        .scenario(&json!({"updates": {"releases": [{"version": NEWER}]}}))
}

/// A job that is due ten minutes earlier.
fn other(version: &str) -> DynamicObject {
    let spec = json!({
        "startAfter": at("21:50"), "startBefore": at("22:50"),
        "desiredVersion": {"version": version, "image": image(version)},
    });
    job_of("other", &spec, &json!({"upgradeTimeout": "12h"}), false)
}

fn operator_down() -> Night {
    Night::by_hand().operator_away("21:55", "2h")
}

fn api_server_away() -> Night {
    Night::by_hand().fault("21:55", "23:10", &json!({"apiServerAway": {}}))
}

fn lock_held() -> Night {
    Night::by_hand()
        .with(other(NEW))
        .broken("21:45", &json!({"stuckOperator": {"operator": "etcd"}}))
}

fn locked_by(holder: &str) -> Value {
    json!({"metadata": {"annotations": {annotations::UPGRADE_JOB: holder}}})
}

fn lock_of_another_namespace() -> Night {
    Night::by_hand()
        .patch("21:45", CLUSTER_VERSION, "version", &locked_by("elsewhere/job"))
        .patch(
            "04:30",
            CLUSTER_VERSION,
            "version",
            &json!({"metadata": {"annotations": {annotations::UPGRADE_JOB: null}}}),
        )
}

/// The user's template has it so, once the hooks of Create have run; nobody lets it go on.
fn workflow_suspended() -> Night {
    let template = |text: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own", "namespace": NAMESPACE},
            "data": {Argo.template_key(): text}});
        serde_json::from_value::<DynamicObject>(map).unwrap()
    };
    let suspended = argo::TEMPLATE.replacen("\nspec:\n", "\nspec:\n  suspend: true\n", 1);
    assert_ne!(suspended, argo::TEMPLATE);
    Night::by_hand()
        .on(EngineChoice::Argo)
        .config(&json!({"workflow": {"template": {"name": "own"}}}))
        .with(template(argo::TEMPLATE))
        .apply("21:58", &template(&suspended))
}

fn create_hook_running() -> Night {
    Night::by_hand()
        .hook("ask", "Create", "Ignore")
        .hook_jobs("ask", "Succeeds", "2h")
}

fn clock_skew() -> Night {
    Night::by_hand()
        .does("21:45", &json!({"restartOperator": {"clockOffset": "5m"}}))
        .does("04:30", &json!({"restartOperator": {}}))
}

fn peer_at_work() -> Night {
    let lease = |renewed: &str| {
        serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "9fced507.appuio.io", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "peer", "leaseDurationSeconds": 90, "renewTime": renewed},
        }))
        .unwrap()
    };
    // Until after the end of the start window.
    (45..145).fold(Night::by_hand(), |night, minute: u32| {
        let (hour, minute) = (21 + minute / 60, minute % 60);
        let renewed = format!("2026-12-01T{}:{minute:02}:00.000000Z", hour - 1);
        night.apply(&format!("{hour}:{minute:02}"), &lease(&renewed))
    })
}

fn force() -> Night {
    Night::by_hand().job(&json!({"desiredVersion": {"force": true}}))
}

fn version_that_nobody_knows() -> Night {
    Night::by_hand().job(&json!({"desiredVersion": {"version": "4.18.99", "image": null}}))
}

fn delay_that_never_comes() -> Night {
    Night::by_hand().config(&json!({"upgradeTimeout": "30m"}))
}

fn update_server_silent_about_the_image() -> Night {
    Night::by_hand()
        .job(&json!({"desiredVersion": {"image": null}}))
        .broken(
            "21:45",
            &json!({"updateServiceAway": {"message": "no route to host"}}),
        )
}

fn hosted_control_plane() -> Night {
    Night::by_hand().scenario(&json!({"cluster": {"topology": "External"}}))
}

#[rstest]
#[case::window_matched_by_the_job(
    window_of_the_job(),
    "",
    "Upgrade job skipped by UpgradeSuspensionWindow freeze (holidays) until Tue 2026-12-01 22:30 (Europe/Zurich) / \
         2026-12-01 21:30 UTC. UpgradeConfig tuesdays goes on with its next run",
    CREATED,
    UNTOUCHED
)]
#[case::window_that_begins_before_a_late_start(
    window_that_begins_late(),
    "",
    "Upgrade job skipped by UpgradeSuspensionWindow freeze (holidays) until Tue 2026-12-01 22:50 (Europe/Zurich) / \
         2026-12-01 21:50 UTC. To upgrade all the same, create another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::window_made_at_the_last_second(
    window_made_at_the_last_second(),
    "",
    "Upgrade job skipped by UpgradeSuspensionWindow freeze (holidays) until Tue 2026-12-01 22:30 (Europe/Zurich) / \
         2026-12-01 21:30 UTC. UpgradeConfig tuesdays goes on with its next run",
    CREATED,
    UNTOUCHED
)]
#[case::window_edited_at_the_last_second(
    window_edited_at_the_last_second(),
    "",
    "Upgrade job skipped by UpgradeSuspensionWindow freeze (holidays) until Tue 2026-12-01 22:30 (Europe/Zurich) / \
         2026-12-01 21:30 UTC. To upgrade all the same, create another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::config_suspended_at_the_last_second(
    config_suspended(),
    "",
    "UpgradeConfig \"tuesdays\" is suspended (spec.schedule.suspend). UpgradeConfig tuesdays goes on with its next \
         run",
    CREATED,
    UNTOUCHED
)]
#[case::rescheduled(
    rescheduled(),
    "",
    "Rescheduled: Tue 2026-12-01 22:00 (Europe/Zurich) / 2026-12-01 21:00 UTC is no run of UpgradeConfig \
         \"tuesdays\" any more. UpgradeConfig tuesdays goes on with its next run",
    CREATED,
    UNTOUCHED
)]
#[case::superseded(
    superseded(),
    "",
    "Superseded: the cluster is at 4.18.6, newer than 4.18.5. To upgrade all the same, create another UpgradeJob",
    CREATED,
    NEWER_THERE
)]
#[case::superseded_while_it_waits_for_the_lock(
    superseded_while_it_waits_for_the_lock(),
    "",
    "Superseded: the cluster is at 4.18.6, newer than 4.18.5. To upgrade all the same, create another UpgradeJob",
    CREATED,
    NEWER_INSTALLED
)]
#[case::operator_down(
    operator_down(),
    "OperatorDown",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: the operator was \
         not running, or could not reach the API server, in the start window. See why the operator was away (its \
         logs, its Deployment); to try again, create another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::api_server_away(
    api_server_away(),
    "OperatorDown",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: the operator was \
         not running, or could not reach the API server, in the start window. See why the operator was away (its \
         logs, its Deployment); to try again, create another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::lock_held(
    lock_held(),
    "LockHeld",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: upgrade job \
         openshift-upgrade/other has the lock. See what that job does; if it is gone, remove the annotation \
         managedupgrade.appuio.io/upgrade-job of the ClusterVersion; to try again, create another UpgradeJob",
    CREATED,
    OTHER_GOES_ON
)]
#[case::lock_of_another_namespace(
    lock_of_another_namespace(),
    "LockHeld",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: upgrade job \
         elsewhere/job has the lock. See what that job does; if it is gone, remove the annotation \
         managedupgrade.appuio.io/upgrade-job of the ClusterVersion; to try again, create another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::engine_missing(Night::by_hand().without_argo(), "EngineMissing", "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: engine argo is not installed (the API server has no kind Workflow of argoproj.io): install Argo Workflows, or choose another engine. To try again, create another UpgradeJob", NOT_CREATED, UNTOUCHED)]
#[case::engine_stalled(
    Night::by_hand().with_idle_argo().without_hand_over(),
    "EngineStalled",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: the engine has not \
         picked up workflow night-create-1 since Tue 2026-12-01 21:40 (Europe/Zurich) / 2026-12-01 20:40 UTC: see \
         whether the controller of Argo Workflows runs, serves namespace openshift-upgrade, and what its log says. To try \
         again, create another UpgradeJob",
    NOT_CREATED,
    UNTOUCHED
)]
#[case::workflow_suspended(
    workflow_suspended(),
    "WorkflowSuspended",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: workflow night-run-1 was \
         suspended by a person. To try again, create another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::create_hook_running(
    create_hook_running(),
    "CreateHookRunning",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: hooks of Create \
         are still running. Make the hooks of Create quicker, or pinVersionWindow longer; to try again, create \
         another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::clock_skew(
    clock_skew(),
    "ClockSkew",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: the clock of the \
         operator's node is 4m59s ahead of that of the API server, more than 1m, so nothing is started: set the \
         clocks of the nodes right (chronyd). To try again, create another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::peer_at_work(
    peer_at_work(),
    "PeerAtWork",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: \
         openshift-upgrade-controller is at work on this cluster (peer renews Lease \
         openshift-upgrade/9fced507.appuio.io), so this operator does nothing: remove one of the two. To try again, \
         create another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::force_is_refused(
    force(),
    "Invalid",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: \
         spec.desiredVersion.force: force: true bypasses the check of the release's signature, so it is never set \
         for you: leave it out, or upgrade by hand with `oc adm upgrade --force`. To try again, create another \
         UpgradeJob",
    NOT_CREATED,
    UNTOUCHED
)]
#[case::version_that_nobody_knows(
    version_that_nobody_knows(),
    "Invalid",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: \
         spec.desiredVersion: version and image cannot be completed from availableUpdates, conditionalUpdates or \
         the history of the ClusterVersion; give both. To try again, create another UpgradeJob",
    NOT_CREATED,
    UNTOUCHED
)]
#[case::delay_that_never_comes(
    delay_that_never_comes(),
    "Invalid",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: \
         spec.config.machineConfigPools[0].delayUpgrade.delayMin: 45m is not shorter than upgradeTimeout, 30m, and \
         both count from startAfter, so the job would always time out: write a shorter delay or a longer \
         upgradeTimeout. To try again, create another UpgradeJob",
    NOT_CREATED,
    UNTOUCHED
)]
#[case::update_server_silent_about_the_image(
    update_server_silent_about_the_image(),
    "UpdatesUnknown",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: the cluster does \
         not know its updates, so 4.18.5 cannot be completed to version and image: Unable to retrieve available \
         updates: no route to host. See why the cluster does not reach its update service (spec.upstream of the \
         ClusterVersion, proxy); to try again, create another UpgradeJob",
    CREATED,
    UNTOUCHED
)]
#[case::unsupported_topology(
    hosted_control_plane(),
    "UnsupportedTopology",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: the cluster has a \
         hosted control plane or no MachineConfigPools: it is not upgraded by this operator. To try again, create \
         another UpgradeJob",
    NOT_CREATED,
    UNTOUCHED
)]
#[case::no_kind_of_pools(
    Night::by_hand().without_kind_of_pools(),
    "UnsupportedTopology",
    "Job could not be started before Tue 2026-12-01 23:00 (Europe/Zurich) / 2026-12-01 22:00 UTC: the cluster has a \
         hosted control plane or no MachineConfigPools: it is not upgraded by this operator. To try again, create \
         another UpgradeJob",
    NOT_CREATED,
    UNTOUCHED
)]
fn not_started(
    #[case] night: Night,
    #[case] expired: &str,
    #[case] message: &str,
    #[case] created: &str,
    #[case] left: Left,
) {
    let (as_, reason) = match expired {
        "" => ("Succeeded/Skipped".to_owned(), "Skipped"),
        cause => (format!("Succeeded/Skipped Expired/{cause}"), "Expired"),
    };
    let hooks = format!("{created}Success:{reason}, Finish:{reason}");
    assert_ends(&night, &as_, message, &hooks, left);
}
