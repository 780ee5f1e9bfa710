//! Runs that make no job, or make it late: what the config says.

use rstest::rstest;
use serde_json::json;

use crate::night::{NEW, Night, UPGRADE_CONFIG, window};

fn suspended_by_a_window() -> Night {
    let selector = json!({"configSelector": {"matchLabels": {"team": "a"}}});
    Night::pinned().with(window("freeze", "21:55", "22:30", &selector))
}

fn suspended_by_a_window_of_the_last_second() -> Night {
    let selector = json!({"configSelector": {}});
    Night::pinned().apply("21:49:59", &window("freeze", "21:55", "22:30", &selector))
}

/// The pin lies in it, and the run does not.
fn window_at_the_pin() -> Night {
    let selector = json!({"configSelector": {}});
    Night::pinned().with(window("freeze", "21:45", "21:55", &selector))
}

fn suspended_schedule() -> Night {
    let suspend = json!({"spec": {"schedule": {"suspend": true}}});
    Night::pinned().patch("21:49:59", UPGRADE_CONFIG, "tuesdays", &suspend)
}

fn update_server_silent_until(until: &str) -> Night {
    Night::pinned().fault(
        "21:45",
        until,
        &json!({"updateServiceAway": {"message": "no route to host"}}),
    )
}

/// The job of 21:50 hangs until the timeout, at 01:50.
fn previous_job_running() -> Night {
    Night::pinned()
        .schedule(&json!({"cron": "50 21,22 * * 2"}))
        .fault("21:45", "04:30", &json!({"stuckOperator": {"operator": "etcd"}}))
        .config(&json!({"machineConfigPools": null}))
}

fn nobody_was_there() -> Night {
    Night::pinned().operator_away("21:45", "80m")
}

fn bad_zone() -> Night {
    Night::pinned().schedule(&json!({"location": "Europe/Nowhere"}))
}

fn newest_is_a_minor() -> Night {
    Night::pinned()
        .scenario(&json!({
            "cluster": {"channel": "stable-4.19"},
            "updates": {"releases": [{"version": "4.19.1"}]},
        }))
        .fault(
            "21:45",
            "04:30",
            &json!({"notUpgradeable": {"message": "acknowledge the removal of APIs"}}),
        )
}

#[rstest]
#[case::suspended_by_a_window(suspended_by_a_window(), 0, "", &["SuspensionWindow: the run at Tue 2026-12-01 22:00 (Europe/Zurich) / 2026-12-01 21:00 UTC was suspended: UpgradeSuspensionWindow freeze (holidays) until Tue 2026-12-01 22:30 (Europe/Zurich) / 2026-12-01 21:30 UTC"])]
#[case::suspended_by_a_window_of_the_last_second(suspended_by_a_window_of_the_last_second(), 0, "", &["SuspensionWindow: the run at Tue 2026-12-01 22:00 (Europe/Zurich) / 2026-12-01 21:00 UTC was suspended: UpgradeSuspensionWindow freeze (holidays) until Tue 2026-12-01 22:30 (Europe/Zurich) / 2026-12-01 21:30 UTC"])]
#[case::window_at_the_pin(window_at_the_pin(), 1, NEW, &["JobCreated: run at Tue 2026-12-01 22:00 (Europe/Zurich) / \
     2026-12-01 21:00 UTC: UpgradeJob job-of-the-config to 4.18.5"])]
#[case::suspended_schedule(suspended_schedule(), 0, "", &["ScheduleSuspended: the run at Tue 2026-12-01 22:00 (Europe/Zurich) / 2026-12-01 21:00 UTC was suspended: spec.schedule.suspend is true"])]
#[case::update_server_silent_for_a_while(update_server_silent_until("21:57"), 1, NEW, &["JobCreated: run at Tue 2026-12-01 22:00 (Europe/Zurich) / 2026-12-01 21:00 UTC: UpgradeJob job-of-the-config to 4.18.5"])]
#[case::update_server_silent(update_server_silent_until("04:30"), 0, "", &["UpdatesUnknown: the run at Tue 2026-12-01 22:00 (Europe/Zurich) / 2026-12-01 21:00 UTC was missed: the list of updates could not be retrieved (RetrievedUpdates=False): Unable to retrieve available updates: no route to host"])]
#[case::previous_job_running(previous_job_running(), 1, NEW, &["JobCreated: run at Tue 2026-12-01 21:50 \
     (Europe/Zurich) / 2026-12-01 20:50 UTC: UpgradeJob job-of-the-config to 4.18.5", "PreviousJobRunning: the run at Tue 2026-12-01 22:50 (Europe/Zurich) / 2026-12-01 21:50 UTC was missed: UpgradeJob job-of-the-config of this config has not ended"])]
#[case::nobody_was_there(nobody_was_there(), 0, "", &["NotCreatedInTime: the run at Tue 2026-12-01 22:00 (Europe/Zurich) / 2026-12-01 21:00 UTC was missed: its UpgradeJob was to be created between Tue 2026-12-01 21:50 (Europe/Zurich) / 2026-12-01 20:50 UTC and Tue 2026-12-01 22:50 (Europe/Zurich) / 2026-12-01 21:50 UTC (maxSchedulingDelay), and the operator did not run then, could not reach the API server, or the config was changed since"])]
#[case::bad_zone(bad_zone(), 0, "", &["Invalid: no upgrades are scheduled: spec.schedule: location: there is no time zone \"Europe/Nowhere\"; write an IANA name such as Europe/Zurich or UTC"])]
#[case::newest_is_a_minor(newest_is_a_minor(), 1, "", &["JobCreated: run at Tue 2026-12-01 22:00 (Europe/Zurich) / 2026-12-01 21:00 UTC: UpgradeJob job-of-the-config without an update (only minor updates are offered (4.19.1), but the cluster is Upgradeable=False: acknowledge the removal of APIs: hooks and pools only)"])]
fn pinned(#[case] night: Night, #[case] jobs: usize, #[case] version: &str, #[case] told: &[&str]) {
    let morning = night.play();
    assert_eq!(morning.told_about_the_config(), told);
    assert_eq!(morning.jobs(), jobs);
    let desired = if jobs == 0 {
        None
    } else {
        morning.job().spec.desired_version
    };
    assert_eq!(desired.and_then(|d| d.version).unwrap_or_default(), version);
}
