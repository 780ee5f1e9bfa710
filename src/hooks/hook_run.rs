//! What runs for a hook: a Job, or a TaskRun of Tekton. The tracker asks both the same.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::batch::v1::{Job, JobCondition, JobStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{ResourceExt, api::DynamicObject};

use super::{
    job,
    task_run::{self, TaskRun},
};
use crate::api::{finalizers, upgrade_job::HookState};

/// The kinds that run hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunKind {
    /// `batch/v1` Job.
    Job,
    /// `tekton.dev/v1` TaskRun.
    TaskRun,
}

impl RunKind {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::TaskRun => "TaskRun",
        }
    }
}

/// Which object runs a hook. In order: Jobs, then TaskRuns, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunName {
    /// Its kind.
    pub kind: RunKind,
    /// Its name.
    pub name: String,
}

/// As messages name it.
impl std::fmt::Display for RunName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// What runs, or ran, for a hook.
#[derive(Clone, Debug, PartialEq)]
pub struct HookRun<'a> {
    /// Its kind.
    pub kind: RunKind,
    /// Its metadata: whose it is is in labels, annotations and owner.
    pub metadata: &'a ObjectMeta,
    /// Which try it is, from 1. A Job tries again by itself; of TaskRuns the last one counts.
    pub attempt: u32,
    /// Where it is.
    pub state: HookState,
    /// Why it failed, or what keeps it; may be empty.
    pub message: String,
    /// Its pod was killed, which is no failure of the hook: another one is to be made.
    pub again: Option<Again>,
    /// When it ends by its own deadline; `None`: it has none.
    pub ends_by: Option<Timestamp>,
}

/// How a hook is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// How long the next try may take; `None`: as long as it wants.
    pub timeout: Option<SignedDuration>,
}

/// What is to be created for a hook.
#[derive(Clone, Debug, PartialEq)]
pub enum NewRun {
    /// A Job.
    Job(Box<Job>),
    /// A TaskRun of Tekton.
    TaskRun(Box<DynamicObject>),
}

impl NewRun {
    /// Which object it is.
    pub fn name(&self) -> RunName {
        let (kind, name) = match self {
            Self::Job(job) => (RunKind::Job, job.name_any()),
            Self::TaskRun(run) => (RunKind::TaskRun, run.name_any()),
        };
        RunName { kind, name }
    }

    /// Whether its environment was trimmed.
    pub fn is_trimmed(&self) -> bool {
        match self {
            Self::Job(job) => job::is_trimmed(&job.metadata),
            Self::TaskRun(run) => job::is_trimmed(&run.metadata),
        }
    }

    /// The field that sets a deadline, where there is none.
    pub fn field_of_deadline(&self) -> Option<&'static str> {
        match self {
            Self::Job(job) => {
                let spec = job.spec.as_ref();
                let none = spec.is_some_and(|s| s.active_deadline_seconds.is_none());
                none.then_some("spec.template.spec.activeDeadlineSeconds")
            }
            Self::TaskRun(run) => task_run::has_no_limit(run).then_some("spec.taskRef.timeout"),
        }
    }
}

impl<'a> HookRun<'a> {
    /// A hook's Job.
    pub fn of_job(job: &'a Job) -> Self {
        let (state, message) = job_state(job);
        Self {
            kind: RunKind::Job,
            metadata: &job.metadata,
            attempt: 1,
            state,
            message,
            again: None,
            ends_by: job_ends_by(job),
        }
    }

    /// A hook's TaskRun, as it is now.
    pub fn of_task_run(run: &'a TaskRun, now: Timestamp) -> Self {
        let seen = run.seen(now);
        Self {
            kind: RunKind::TaskRun,
            metadata: &run.metadata,
            attempt: run.attempt(),
            state: seen.state,
            message: seen.message,
            again: seen.again,
            ends_by: run.ends_by(),
        }
    }

    /// Which object it is.
    pub fn name(&self) -> RunName {
        RunName {
            kind: self.kind,
            name: self.metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Whether our finalizer holds it.
    pub fn is_held(&self) -> bool {
        is_held(self.metadata)
    }
}

/// Whether our finalizer holds what has this metadata.
pub(super) fn is_held(metadata: &ObjectMeta) -> bool {
    let mut all = metadata.finalizers.iter().flatten();
    all.any(|f| f == finalizers::HOOK_JOB)
}

/// State of a hook's Job, and why it failed, or what keeps it (empty otherwise).
///
/// SuccessCriteriaMet counts as Complete: the result is certain, only pods have to end. A Job that is being deleted before
/// it ended has Failed: it makes no new pods, and our finalizer would hold it for ever.
fn job_state(job: &Job) -> (HookState, String) {
    let name = job.name_any();
    if let Some(failed) = condition(job, "Failed") {
        let why = match (failed.message.as_deref(), failed.reason.as_deref()) {
            (None | Some(""), None | Some("")) => String::new(),
            (None | Some(""), Some(reason)) => format!(": {reason}"),
            (Some(message), None | Some("")) => format!(": {message}"),
            (Some(message), Some(reason)) => format!(": {message} ({reason})"),
        };
        return (HookState::Failed, format!("Job {name} failed{why}"));
    }
    if condition(job, "Complete")
        .or_else(|| condition(job, "SuccessCriteriaMet"))
        .is_some()
    {
        return (HookState::Complete, String::new());
    }
    if job.metadata.deletion_timestamp.is_some() {
        return (
            HookState::Failed,
            format!("Job {name} was deleted before it ended"),
        );
    }
    (HookState::Active, obstacle(job).unwrap_or_default())
}

/// By `activeDeadlineSeconds`, which counts from when the Job was begun.
fn job_ends_by(job: &Job) -> Option<Timestamp> {
    let limit = job.spec.as_ref()?.active_deadline_seconds?;
    let begun = job.status.as_ref().and_then(|s| s.start_time.as_ref());
    let begun = begun.or(job.metadata.creation_timestamp.as_ref())?;
    begun.0.saturating_add(SignedDuration::from_secs(limit)).ok()
}

/// What keeps a Job that is not over: pods that failed, or one that cannot be made, scheduled or pulled. The Job counts them
/// only, so the message says where to look.
///
/// Of one that cannot be made (quota, ServiceAccount, a policy) the Job says no more than that there is none: only its Events
/// have the reason (kubernetes pkg/controller/job `manageJob`).
fn obstacle(job: &Job) -> Option<String> {
    let name = job.name_any();
    let status = job.status.as_ref()?;
    let failed = match status.failed.unwrap_or_default() {
        0 => None,
        1 => Some("1 pod failed".to_owned()),
        n => Some(format!("{n} pods failed")),
    };
    let namespace = job.namespace().unwrap_or_default();
    if has_no_pod(job, status) {
        return Some(format!(
            "Job {name}: no pod could be made so far; see oc -n {namespace} describe job {name}"
        ));
    }
    let idle = status.active.unwrap_or_default() > 0 && status.ready == Some(0);
    let idle = idle.then(|| "no pod is ready yet".to_owned());
    let what: Vec<String> = failed.into_iter().chain(idle).collect();
    (!what.is_empty()).then(|| {
        let what = what.join(", ");
        format!(
            "Job {name}: {what}; see oc -n {namespace} describe pods -l batch.kubernetes.io/job-name={name}"
        )
    })
}

/// Whether the Job was begun, and never had a pod that it knows of.
fn has_no_pod(job: &Job, status: &JobStatus) -> bool {
    let counts = [status.active, status.succeeded, status.failed, status.terminating];
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let is_suspended = job.spec.as_ref().and_then(|s| s.suspend) == Some(true);
    status.start_time.is_some()
        && counts.iter().all(|c| c.unwrap_or_default() == 0)
        && uncounted.is_none_or(|u| u.succeeded.iter().chain(&u.failed).flatten().next().is_none())
        && !is_suspended
}

fn condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == type_ && c.status == "True")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::upgrade_job_hook::HookEvent,
        hooks::fixtures::{hook, hook_job},
    };

    const AT: &str = "2021-01-01T21:00:00Z";

    fn start_job(condition: &str) -> Job {
        hook_job(&hook("notify", &json!({})), HookEvent::Start, "", condition)
    }

    fn deleted(mut job: Job) -> Job {
        job.metadata.deletion_timestamp = Some(Time("2021-01-01T21:30:00Z".parse().unwrap()));
        job
    }

    #[rstest]
    #[case("", HookState::Active, "")]
    #[case("Suspended", HookState::Active, "")]
    #[case("FailureTarget", HookState::Active, "")]
    #[case("Complete", HookState::Complete, "")]
    #[case("SuccessCriteriaMet", HookState::Complete, "")]
    #[case("Failed", HookState::Failed, "failed: it says so (ItsReason)")]
    fn the_conditions_of_a_job_are_its_state(
        #[case] condition: &str,
        #[case] status: HookState,
        #[case] message: &str,
    ) {
        let job = start_job(condition);
        let (found, text) = job_state(&job);
        assert_eq!(found, status);
        if message.is_empty() {
            assert_eq!(text, "");
        } else {
            assert_eq!(text, format!("Job {} {message}", job.name_any()));
        }
    }

    #[rstest]
    #[case::not_seen_by_the_controller(json!({}), "")]
    #[case::cannot_be_scheduled_or_pulled(json!({"active": 1, "ready": 0}), "Job j: no pod is ready yet; see ")]
    #[case::runs(json!({"active": 1, "ready": 1}), "")]
    #[case::tries_again(json!({"active": 1, "ready": 1, "failed": 1}), "Job j: 1 pod failed; see ")]
    #[case::is_about_to_try_again(json!({"active": 1, "ready": 0, "failed": 2}), "Job j: 2 pods failed, no pod is ready yet; see ")]
    #[case::waits_to_try_again(json!({"ready": 0, "failed": 2}), "Job j: 2 pods failed; see ")]
    #[case::its_pod_has_just_ended(json!({"ready": 0, "startTime": AT, "uncountedTerminatedPods": {"succeeded": ["uid"]}}), "")]
    #[case::its_pod_has_succeeded(json!({"ready": 0, "startTime": AT, "succeeded": 1, "uncountedTerminatedPods": {}}), "")]
    #[case::its_pod_is_ending(json!({"ready": 0, "startTime": AT, "terminating": 1}), "")]
    fn a_job_that_does_not_get_on_says_where_to_look(#[case] status: Value, #[case] expected: &str) {
        let job = json!({"metadata": {"name": "j", "namespace": "ns"}, "status": status});
        let job: Job = serde_json::from_value(job).unwrap();
        let (state, message) = job_state(&job);
        assert_eq!(state, HookState::Active);
        let pods = "oc -n ns describe pods -l batch.kubernetes.io/job-name=j";
        let command = if expected.is_empty() { "" } else { pods };
        assert_eq!(message, format!("{expected}{command}"));
    }

    /// A quota refuses its pod, or its ServiceAccount is missing.
    #[rstest]
    #[case::begun(false, "Job j: no pod could be made so far; see oc -n ns describe job j")]
    #[case::suspended_by_a_person(true, "")]
    fn a_job_whose_pod_cannot_be_made_says_where_to_look(#[case] suspend: bool, #[case] expected: &str) {
        let job = json!({
            "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"suspend": suspend, "template": {}},
            "status": {"startTime": AT, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}},
        });
        let job: Job = serde_json::from_value(job).unwrap();
        assert_eq!(job_state(&job), (HookState::Active, expected.to_owned()));
    }

    #[test]
    fn a_condition_that_is_false_says_nothing() {
        let mut job = start_job("Failed");
        job.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "False".to_owned();
        assert_eq!(job_state(&job).0, HookState::Active);
    }

    #[test]
    fn a_job_deleted_in_mid_run_has_failed_one_deleted_after_its_end_has_not() {
        let (status, message) = job_state(&deleted(start_job("")));
        assert_eq!(status, HookState::Failed);
        assert!(message.ends_with("was deleted before it ended"), "{message}");
        assert_eq!(job_state(&deleted(start_job("Complete"))).0, HookState::Complete);
    }
}
