//! What an administrator does about an ending: the last sentence of its message.

use kube::ResourceExt;

use crate::api::{UpgradeJob, conditions::reasons, labels};

const UPDATE_SERVICE: &str =
    "see why the cluster does not reach its update service (spec.upstream of the ClusterVersion, proxy)";
const LOCK: &str = "annotation managedupgrade.appuio.io/upgrade-job of the ClusterVersion";

/// What to do about a job that failed for this reason; `is_under_way`: the cluster installs its version, or has it.
pub(super) fn after_failure(job: &UpgradeJob, reason: &str, is_under_way: bool) -> String {
    let again = again(job);
    let state = if is_under_way {
        "What has begun goes on without this job"
    } else {
        "Nothing was upgraded"
    };
    match reason {
        reasons::PRE_HEALTH_CHECK_FAILED => {
            format!("{state}: mend that, or exclude it in preUpgradeHealthChecks; {again}")
        }
        reasons::UPGRADE_WITHDRAWN => {
            format!("{state}: `oc adm upgrade` shows what is offered instead; {again}")
        }
        reasons::UPGRADE_CONDITIONAL => format!(
            "{state}: read about the risks (`oc adm upgrade --include-not-recommended`); to accept them, create an UpgradeJob \
             with desiredVersionCheckAvailability: false"
        ),
        reasons::UPDATE_SERVICE_UNAVAILABLE => format!("{state}: {UPDATE_SERVICE}; {again}"),
        reasons::UPGRADE_REJECTED | reasons::UPGRADE_INVALID => {
            format!("{state}: mend the cause (`oc adm upgrade` shows it, too); {again}")
        }
        reasons::DESIRED_UPDATE_CHANGED => {
            "This job does not fight over it: see who it was (`oc get clusterversion version \
             -o yaml --show-managed-fields`), and watch what the cluster does now"
                .to_owned()
        }
        reasons::TIMED_OUT => format!(
            "{state}: see where it is (`oc get clusterversion,clusteroperators,machineconfigpools`), mend what keeps it, or \
             make upgradeTimeout longer; {again}"
        ),
        reasons::UNPAUSING_POOLS_EXPIRED => {
            "The condition PoolsLeftPaused has the command that unpauses it: mend what held \
             it, or make delayMax longer"
                .to_owned()
        }
        reasons::POST_HEALTH_CHECK_FAILED => {
            format!("{state}: mend that; pools that wait for it are in the condition PoolsLeftPaused")
        }
        reasons::HOOK_FAILED => format!("{state}: read the logs of its pods, and mend the hook; {again}"),
        reasons::WORKFLOW_STOPPED => format!("{state}; {again}"),
        reasons::ENGINE_UNSUPPORTED => format!("{state}: mend that, or use another engine; {again}"),
        reasons::LOCK_LOST => format!(
            "This job touches no pool any more, so some may be paused (condition PoolsLeftPaused): see who changed the \
             {LOCK}"
        ),
        // The reasons are not an enum: another one has nothing more to say than its message.
        _ => sentence(&again),
    }
}

/// What to do about a job that was skipped; `expired`: the reason of `Expired`, if it could not start in time.
pub(super) fn after_skip(job: &UpgradeJob, expired: Option<&str>) -> String {
    let again = again(job);
    match expired {
        Some(reasons::OPERATOR_DOWN) => {
            format!("See why the operator was away (its logs, its Deployment); {again}")
        }
        Some(reasons::LOCK_HELD) => {
            format!("See what that job does; if it is gone, remove the {LOCK}; {again}")
        }
        Some(reasons::CREATE_HOOK_RUNNING) => {
            format!("Make the hooks of Create quicker, or pinVersionWindow longer; {again}")
        }
        Some(reasons::UPDATES_UNKNOWN) => sentence(&format!("{UPDATE_SERVICE}; {again}")),
        // These say in their messages what is to be done.
        Some(_) => sentence(&again),
        None => match config_of(job) {
            Some(config) => format!("UpgradeConfig {config} goes on with its next run"),
            None => "To upgrade all the same, create another UpgradeJob".to_owned(),
        },
    }
}

/// How the upgrade is tried again.
fn again(job: &UpgradeJob) -> String {
    match config_of(job) {
        Some(config) => format!("the next run of UpgradeConfig {config} tries again"),
        None => "to try again, create another UpgradeJob".to_owned(),
    }
}

fn config_of(job: &UpgradeJob) -> Option<&String> {
    job.labels().get(labels::UPGRADE_CONFIG)
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn job(config: Option<&str>) -> UpgradeJob {
        let labels = config.map(|c| json!({labels::UPGRADE_CONFIG: c}));
        serde_json::from_value(json!({
            "metadata": {"name": "j", "labels": labels},
            "spec": {"startAfter": "2026-01-01T00:00:00Z", "startBefore": "2026-01-01T01:00:00Z", "config": {}},
        }))
        .unwrap()
    }

    #[rstest]
    #[case::by_hand(None, "to try again, create another UpgradeJob")]
    #[case::of_a_config(Some("c"), "the next run of UpgradeConfig c tries again")]
    fn it_is_tried_again_by_who_made_the_job(#[case] config: Option<&str>, #[case] expected: &str) {
        let job = job(config);
        for advice in [
            after_failure(&job, reasons::HOOK_FAILED, true),
            after_failure(&job, "AnotherReason", true),
            after_skip(&job, Some("OperatorDown")),
            after_skip(&job, Some("AnotherCause")),
        ] {
            assert!(
                advice.to_lowercase().ends_with(&expected.to_lowercase()),
                "{advice}"
            );
        }
    }

    #[rstest]
    #[case(false, "Nothing was upgraded")]
    #[case(true, "What has begun goes on without this job")]
    fn it_says_whether_something_has_begun(#[case] is_under_way: bool, #[case] expected: &str) {
        for reason in [
            reasons::TIMED_OUT,
            reasons::HOOK_FAILED,
            reasons::WORKFLOW_STOPPED,
        ] {
            let advice = after_failure(&job(None), reason, is_under_way);
            assert!(advice.starts_with(expected), "{advice}");
        }
    }
}
