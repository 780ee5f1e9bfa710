//! Conditions: types, reasons, and the rule that a transition time moves only when the status does.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Condition types. The first eight are the peer's.
#[allow(missing_docs)]
pub mod types {
    pub const STARTED: &str = "Started";
    pub const PRE_HEALTH_CHECK_DONE: &str = "PreHealthCheckDone";
    pub const UPGRADE_COMPLETED: &str = "UpgradeCompleted";
    pub const POST_HEALTH_CHECK_DONE: &str = "PostHealthCheckDone";
    pub const PAUSED: &str = "Paused";
    pub const MACHINE_CONFIG_POOLS_PAUSED: &str = "MachineConfigPoolsPaused";
    pub const SUCCEEDED: &str = "Succeeded";
    pub const FAILED: &str = "Failed";
    /// The job was not started in time; the reason says why.
    pub const EXPIRED: &str = "Expired";
    /// The job ended and left pools paused that have something pending.
    pub const POOLS_LEFT_PAUSED: &str = "PoolsLeftPaused";
    /// Our desiredUpdate was taken back.
    pub const INTENT_WITHDRAWN: &str = "IntentWithdrawn";
    /// Whether the object can be acted upon.
    pub const VALID: &str = "Valid";
    /// Whether the next run is suspended.
    pub const SUSPENDED: &str = "Suspended";
    /// Whether a next run is known.
    pub const SCHEDULED: &str = "Scheduled";
    /// Whether the newest run that was due made no job though nothing suspended it.
    pub const RUN_MISSED: &str = "RunMissed";
    /// Whether the newest job of the config that has ended, and was not skipped on purpose, succeeded.
    pub const LAST_UPGRADE_SUCCEEDED: &str = "LastUpgradeSucceeded";
    /// Whether the cluster's ClusterVersion has the spec that ours says.
    pub const APPLIED: &str = "Applied";
    /// Whether something outside of the cluster's objects keeps the operator from starting anything.
    pub const HELD: &str = "Held";
    /// Whether the channel changes between the choice of a version and its run.
    pub const CHANNEL_CHANGE_AHEAD: &str = "ChannelChangeAhead";
    /// Whether the engine of the job can run its hooks of reusable templates, as was seen when the job was made.
    pub const HOOKS_RUNNABLE: &str = "HooksRunnable";
    /// Whether a workflow can be made of the user's own template, as was seen when the job was made.
    pub const TEMPLATE_VALID: &str = "TemplateValid";
    /// Whether the workflow engine does not do its part; the reason says what.
    pub const ENGINE_STALLED: &str = "EngineStalled";
    /// Somebody else started the job, and this operator carries it on.
    pub const TAKEN_OVER: &str = "TakenOver";
}

/// Condition reasons. The first block is the peer's.
#[allow(missing_docs)]
pub mod reasons {
    pub const FAILED: &str = "Failed";
    pub const EXPIRED: &str = "Expired";
    pub const UNPAUSING_POOLS_EXPIRED: &str = "UnpausingPoolsExpired";
    pub const TIMED_OUT: &str = "TimedOut";
    pub const PRE_HEALTH_CHECK_FAILED: &str = "PreHealthCheckFailed";
    pub const POST_HEALTH_CHECK_FAILED: &str = "PostHealthCheckFailed";
    pub const UPGRADE_WITHDRAWN: &str = "UpgradeWithdrawn";
    pub const HOOK_FAILED: &str = "HookFailed";
    /// The engine has what the hooks need.
    pub const TEMPLATES_FOUND: &str = "TemplatesFound";
    /// The engine cannot run a hook.
    pub const HOOK_NOT_RUNNABLE: &str = "HookNotRunnable";
    pub const STARTED: &str = "Started";
    pub const SUCCEEDED: &str = "Succeeded";
    pub const SKIPPED: &str = "Skipped";
    pub const COMPLETED: &str = "Completed";
    pub const IN_PROGRESS: &str = "InProgress";
    pub const NO_MANAGED_POOLS: &str = "NoManagedPools";
    pub const DELAY_SET: &str = "DelaySet";
    pub const DELAY_REACHED: &str = "DelayReached";
    pub const PAUSED_ON_FAILURE: &str = "PausedOnFailure";

    pub const UPGRADE_CONDITIONAL: &str = "UpgradeConditional";
    pub const UPDATE_SERVICE_UNAVAILABLE: &str = "UpdateServiceUnavailable";
    pub const UPGRADE_REJECTED: &str = "UpgradeRejected";
    pub const UPGRADE_INVALID: &str = "UpgradeInvalid";
    pub const DESIRED_UPDATE_CHANGED: &str = "DesiredUpdateChanged";
    pub const WORKFLOW_STOPPED: &str = "WorkflowStopped";
    pub const LOCK_LOST: &str = "LockLost";
    pub const OVERRIDDEN: &str = "Overridden";
    pub const FOREIGN_PAUSE: &str = "ForeignPause";
    pub const UNSUPPORTED_TOPOLOGY: &str = "UnsupportedTopology";
    pub const INVALID: &str = "Invalid";
    pub const VALID: &str = "Valid";
    /// The stored object does not parse.
    pub const UNREADABLE: &str = "Unreadable";
    /// The next run makes a job.
    pub const SCHEDULED: &str = "Scheduled";
    /// `schedule.suspend` is set.
    pub const SCHEDULE_SUSPENDED: &str = "ScheduleSuspended";
    /// An UpgradeSuspensionWindow is in the way.
    pub const SUSPENSION_WINDOW: &str = "SuspensionWindow";
    /// Nothing suspends the next run.
    pub const NOT_SUSPENDED: &str = "NotSuspended";
    /// The ClusterVersion cannot say which updates there are.
    pub const UPDATES_UNKNOWN: &str = "UpdatesUnknown";
    /// A job of the same config has not ended.
    pub const PREVIOUS_JOB_RUNNING: &str = "PreviousJobRunning";
    /// The dates of the schedule never come.
    pub const NEVER_RUNS: &str = "NeverRuns";
    /// Nobody looked in time.
    pub const NOT_CREATED_IN_TIME: &str = "NotCreatedInTime";
    /// Nobody was there to start the job in its window.
    pub const OPERATOR_DOWN: &str = "OperatorDown";
    /// Another job goes first.
    pub const LOCK_HELD: &str = "LockHeld";
    /// Hooks of Create were still running at the end of the window.
    pub const CREATE_HOOK_RUNNING: &str = "CreateHookRunning";
    /// The config that made the job cannot be acted upon any more.
    pub const CONFIG_INVALID: &str = "ConfigInvalid";
    /// The UpgradeJob of a run was deleted before it began.
    pub const JOB_DELETED: &str = "JobDeleted";
    /// The UpgradeJob of a run was created.
    pub const JOB_CREATED: &str = "JobCreated";
    /// The cluster's ClusterVersion has the spec that ours says.
    pub const APPLIED: &str = "Applied";
    /// A job's control plane is being updated, so nothing is changed.
    pub const HELD: &str = "Held";
    /// The API server refuses what ours says.
    pub const REFUSED: &str = "Refused";
    /// Only the object named `version` counts.
    pub const NOT_SERVED: &str = "NotServed";
    /// The cluster has no ClusterVersion.
    pub const CLUSTER_VERSION_MISSING: &str = "ClusterVersionMissing";
    /// Somebody else's change of the cluster's ClusterVersion was undone.
    pub const SET_BACK: &str = "SetBack";
    /// An overlay changes the channel.
    pub const OVERLAY_DUE: &str = "OverlayDue";
    /// The clocks of the operator and of the API server disagree.
    pub const CLOCK_SKEW: &str = "ClockSkew";
    /// openshift-upgrade-controller started the job.
    pub const STARTED_BY_PEER: &str = "StartedByPeer";
    /// openshift-upgrade-controller renews its lease.
    pub const PEER_AT_WORK: &str = "PeerAtWork";
    /// A pool stays paused because its nodes would reboot; a later job takes it over.
    pub const PENDING_CHANGES: &str = "PendingChanges";
    /// The same, and no later job will.
    pub const ORPHANED: &str = "Orphaned";
    /// A pool stays paused though nothing is pending for it.
    pub const NOTHING_PENDING: &str = "NothingPending";
    /// The workflow engine does not do its part.
    pub const ENGINE_STALLED: &str = "EngineStalled";
    /// The workflow of the job could not be made.
    pub const NOT_CREATED: &str = "NotCreated";
    /// The engine has not begun with the workflow.
    pub const NOT_PICKED_UP: &str = "NotPickedUp";
    /// The engine has not gone on to the next step.
    pub const SILENT: &str = "Silent";
    /// A person suspended the workflow of the job.
    pub const WORKFLOW_SUSPENDED: &str = "WorkflowSuspended";
    /// The engine shows the workflow in a way that this operator cannot lead.
    pub const ENGINE_UNSUPPORTED: &str = "EngineUnsupported";
    /// The embedded engine follows the rest of the plan.
    pub const HANDED_OVER: &str = "HandedOver";
    /// The engine does its part.
    pub const AT_WORK: &str = "AtWork";
    /// Nothing keeps the operator from acting.
    pub const NOT_HELD: &str = "NotHeld";
    /// No overlay changes the channel in this time.
    pub const NO_CHANNEL_CHANGE: &str = "NoChannelChange";
}

/// `True` or `False` as conditions spell them.
pub const fn status(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// Longest condition message that the API server takes.
const MAX_MESSAGE: usize = 32_768;

/// Sets a condition. The transition time moves only when `status` changes; returns whether anything changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    value: bool,
    reason: &str,
    message: impl Into<String>,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let mut message: String = message.into();
    if message.len() > MAX_MESSAGE {
        message = message.chars().take(MAX_MESSAGE / 4).collect();
    }
    let wanted = Condition {
        type_: type_.to_owned(),
        status: status(value).to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: Time(whole_seconds(now)),
    };
    match conditions.iter_mut().find(|c| c.type_ == type_) {
        None => {
            conditions.push(wanted);
            true
        }
        Some(old) => {
            let keep_time = old.status == wanted.status;
            let wanted = if keep_time {
                Condition {
                    last_transition_time: old.last_transition_time.clone(),
                    ..wanted
                }
            } else {
                wanted
            };
            let changed = *old != wanted;
            *old = wanted;
            changed
        }
    }
}

/// The condition of this type.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of this type is `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|c| c.status == "True")
}

/// Kubernetes times have whole seconds on the wire; comparing anything finer would patch for ever.
pub fn whole_seconds(t: Timestamp) -> Timestamp {
    Timestamp::from_second(t.as_second()).unwrap_or(t)
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + second.seconds() + 123.milliseconds()
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        assert!(set(
            &mut conditions,
            types::STARTED,
            false,
            "Waiting",
            "a",
            Some(1),
            at(1)
        ));
        assert!(
            !set(
                &mut conditions,
                types::STARTED,
                false,
                "Waiting",
                "a",
                Some(1),
                at(2)
            ),
            "nothing changed"
        );
        assert!(set(
            &mut conditions,
            types::STARTED,
            false,
            "Waiting",
            "b",
            Some(1),
            at(3)
        ));
        assert_eq!(
            get(&conditions, types::STARTED).unwrap().last_transition_time.0,
            whole_seconds(at(1))
        );
        assert!(set(
            &mut conditions,
            types::STARTED,
            true,
            "Started",
            "b",
            Some(1),
            at(4)
        ));
        assert_eq!(
            get(&conditions, types::STARTED).unwrap().last_transition_time.0,
            whole_seconds(at(4))
        );
        assert!(is_true(&conditions, types::STARTED));
        assert!(!is_true(&conditions, types::FAILED));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn a_condition_survives_the_wire_unchanged() {
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            types::VALID,
            true,
            reasons::VALID,
            "",
            None,
            at(1),
        );
        let wire = serde_json::to_string(&conditions).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Condition>>(&wire).unwrap(), conditions);
    }

    #[test]
    fn a_message_is_cut_to_what_the_api_server_takes() {
        let mut conditions = Vec::new();
        let long = "ä".repeat(MAX_MESSAGE);
        set(
            &mut conditions,
            types::VALID,
            false,
            reasons::INVALID,
            long.clone(),
            None,
            at(1),
        );
        assert!(conditions[0].message.len() <= MAX_MESSAGE);
        assert!(
            !set(
                &mut conditions,
                types::VALID,
                false,
                reasons::INVALID,
                long,
                None,
                at(2)
            ),
            "the same message is the same after the cut"
        );
    }
}
