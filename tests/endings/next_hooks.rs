//! `run: Next`: of jobs that are due at once, one runs the hook, at all of its events.

use openshift_upgrade_operator::{
    api::{
        UpgradeJob, UpgradeJobHook,
        upgrade_job::{HookState, JobPhase},
        upgrade_job_hook::HookEvent,
    },
    simulator::openshift::releases::image,
};
use rstest::rstest;
use serde_json::json;

use crate::{
    night::{BY_HAND, Morning, NEW, Night, at, job_of, window},
    simulated::{self, NAMESPACE},
};

const OTHER: &str = "other";
const ONCE: &str = "once";
const DEADLINE: i64 = 600;

/// Two jobs for the same time, and a hook for the next one.
fn two_jobs() -> Night {
    let spec = json!({
        "startAfter": at("22:00"), "startBefore": at("23:30"),
        "desiredVersion": {"version": NEW, "image": image(NEW)},
    });
    let once = simulated::hook(ONCE, &["Start", "Finish"], DEADLINE, &json!({"run": "Next"}));
    Night::by_hand()
        .with(job_of(OTHER, &spec, &json!({"upgradeTimeout": "4h"}), true))
        .with(once)
}

fn job(morning: &Morning, name: &str) -> UpgradeJob {
    let object = &morning.objects[&format!("upgradejobs/{NAMESPACE}/{name}")];
    serde_json::from_value(object.clone()).unwrap()
}

fn phase(morning: &Morning, name: &str) -> Option<JobPhase> {
    job(morning, name).status.and_then(|s| s.phase)
}

/// The events at which a job has run the hook.
fn ran(morning: &Morning, name: &str) -> Vec<HookEvent> {
    let tracker = job(morning, name).status.unwrap_or_default().hook_tracker;
    let ours = tracker.into_iter().filter(|t| t.upgrade_job_hook == ONCE);
    ours.map(|t| {
        assert_eq!(t.status, HookState::Complete, "{t:?}");
        t.hook_event
    })
    .collect()
}

fn claimed_by(morning: &Morning) -> Option<String> {
    let object = &morning.objects[&format!("upgradejobhooks/{NAMESPACE}/{ONCE}")];
    let hook: UpgradeJobHook = serde_json::from_value(object.clone()).unwrap();
    hook.status?.claimed_by.map(|by| by.name)
}

#[rstest]
#[case::undisturbed(two_jobs())]
#[case::the_operator_is_killed_at_the_start(two_jobs().operator_away("22:00", "20s"))]
fn of_two_jobs_that_are_due_at_once_one_runs_the_hook(#[case] night: Night) {
    let morning = night.play();
    let both = [BY_HAND, OTHER];
    for name in both {
        assert_eq!(phase(&morning, name), Some(JobPhase::Succeeded), "{name}");
    }
    let claimant = claimed_by(&morning).expect("it was claimed");
    for name in both {
        let expected: &[HookEvent] = if name == claimant {
            &[HookEvent::Finish, HookEvent::Start]
        } else {
            &[]
        };
        assert_eq!(ran(&morning, name), expected, "{name}; claimed by {claimant}");
    }
}

#[test]
fn a_job_that_is_skipped_leaves_the_hook_to_the_next() {
    let selects = json!({"jobSelector": {"matchLabels": {"suspended": "yes"}}});
    let mut skipped = job_of(
        "early",
        &json!({"startAfter": at("21:50"), "startBefore": at("21:55"),
            "desiredVersion": {"version": NEW, "image": image(NEW)}}),
        &json!({"upgradeTimeout": "4h"}),
        true,
    );
    let labels = skipped.metadata.labels.get_or_insert_default();
    labels.insert("suspended".into(), "yes".into());
    let morning = two_jobs()
        .with(skipped)
        .with(window("holidays", "21:45", "23:00", &selects))
        .play();
    assert_eq!(phase(&morning, "early"), Some(JobPhase::Skipped));
    assert_eq!(ran(&morning, "early"), []);
    let claimant = claimed_by(&morning).expect("it was claimed");
    assert_ne!(claimant, "early");
    assert_eq!(ran(&morning, &claimant), [HookEvent::Finish, HookEvent::Start]);
}
