//! What became of the Jobs of hooks: `UpgradeJob.status.hookTracker`.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobCondition};
use kube::ResourceExt;
use serde::{Deserialize, de::IntoDeserializer};

use super::job;
use crate::api::{
    UpgradeJob, finalizers, labels,
    upgrade_job::{HookState, HookTracker},
    upgrade_job_hook::HookEvent,
};

/// The tracker of `job`, renewed from the Jobs of its hooks: one entry per hook, event and tracking key, sorted by these.
///
/// `tracker` is the stored one, `jobs` are all Jobs of the namespace; those of other UpgradeJobs are passed over.
/// - A Job that exists is the truth, except that a stored Complete is never taken back.
/// - An entry that ended stays when its Job is gone.
/// - An entry that was Active, and whose Job is gone, has Failed: its result can no longer be known. `jobs` must
///   therefore be at least as fresh as `tracker`; read them live before a failure is acted upon.
pub fn track(job: &UpgradeJob, tracker: &[HookTracker], jobs: &[Job]) -> Vec<HookTracker> {
    let mut known: BTreeMap<Key, Known> = BTreeMap::new();
    for entry in tracker {
        let key = Key::of_entry(entry);
        let stored = &mut known.entry(key).or_default().stored;
        *stored = Some(worse(stored.take(), (entry.status, entry.message.clone())));
    }
    for hook_job in jobs.iter().filter(|j| is_of(j, job)) {
        if let Some(key) = Key::of_job(hook_job) {
            let existing = &mut known.entry(key).or_default().existing;
            *existing = Some(worse(existing.take(), state(hook_job)));
        }
    }
    known
        .into_iter()
        .filter_map(|(key, known)| key.entry(job, known))
        .collect()
}

/// State of a hook's Job, and why it failed (empty otherwise).
///
/// SuccessCriteriaMet counts as Complete: the result is certain, only pods have to end. A Job that is being deleted before
/// it ended has Failed: it makes no new pods, and our finalizer would hold it for ever.
pub fn state(job: &Job) -> (HookState, String) {
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
    (HookState::Active, String::new())
}

/// Names of the Jobs of `job` that have ended, whose end is in `tracker`, and that still carry our finalizer.
///
/// `tracker` is the one that was stored, not one that is about to be.
pub fn releasable(job: &UpgradeJob, tracker: &[HookTracker], jobs: &[Job]) -> Vec<String> {
    let recorded = |hook_job: &Job| {
        Key::of_job(hook_job).is_none_or(|key| {
            tracker
                .iter()
                .any(|t| t.status != HookState::Active && Key::of_entry(t) == key)
        })
    };
    sorted_names(
        jobs.iter()
            .filter(|j| is_held(j) && is_of(j, job) && state(j).0 != HookState::Active && recorded(j)),
    )
}

/// Names of the Jobs of hooks that carry our finalizer and whose UpgradeJob is gone, or going: nobody will read them.
///
/// One that is being deleted counts as gone: a foreground deletion waits for its Jobs first.
pub fn abandoned(upgrade_jobs: &[UpgradeJob], jobs: &[Job]) -> Vec<String> {
    let read = |hook_job: &Job| {
        upgrade_jobs
            .iter()
            .any(|u| u.metadata.deletion_timestamp.is_none() && is_of(hook_job, u))
    };
    sorted_names(jobs.iter().filter(|j| is_held(j) && !read(j)))
}

/// The entry of a hook that could not be run at all.
pub fn failed(hook: &str, event: HookEvent, key: &str, message: impl Into<String>) -> HookTracker {
    HookTracker {
        hook_event: event,
        tracking_key: key.to_owned(),
        upgrade_job_hook: hook.to_owned(),
        status: HookState::Failed,
        message: message.into(),
    }
}

/// The entry of this hook, event and tracking key.
pub fn find<'a>(
    tracker: &'a [HookTracker],
    hook: &str,
    event: HookEvent,
    key: &str,
) -> Option<&'a HookTracker> {
    tracker
        .iter()
        .find(|t| t.upgrade_job_hook == hook && t.hook_event == event && t.tracking_key == key)
}

/// What an entry is about, in the order of the tracker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    hook: String,
    /// The event as spelled: the peer sorts by the text.
    event_name: &'static str,
    tracking: String,
    event: HookEvent,
}

/// What is known about it.
#[derive(Default)]
struct Known {
    stored: Option<(HookState, String)>,
    existing: Option<(HookState, String)>,
}

impl Key {
    fn new(hook: String, event: HookEvent, tracking: String) -> Self {
        Self {
            hook,
            event_name: event.as_str(),
            tracking,
            event,
        }
    }

    fn of_entry(entry: &HookTracker) -> Self {
        Self::new(
            entry.upgrade_job_hook.clone(),
            entry.hook_event,
            entry.tracking_key.clone(),
        )
    }

    /// Out of the labels; names that do not fit into a label are complete in the annotation of the same key.
    fn of_job(job: &Job) -> Option<Self> {
        let text = |key: &str| {
            let of = |map: &BTreeMap<String, String>| map.get(key).cloned();
            of(job.annotations()).or_else(|| of(job.labels()))
        };
        let event: Result<_, serde::de::value::Error> =
            HookEvent::deserialize(text(labels::HOOK_EVENT)?.into_deserializer());
        Some(Self::new(
            text(labels::HOOK)?,
            event.ok()?,
            text(labels::HOOK_TRACKING_KEY).unwrap_or_default(),
        ))
    }

    fn entry(self, job: &UpgradeJob, known: Known) -> Option<HookTracker> {
        let (status, message) = match (known.stored, known.existing) {
            (Some(done @ (HookState::Complete, _)), _) => done,
            (_, Some(existing)) => existing,
            (Some((HookState::Active, _)), None) => {
                let name = job::name(job, &self.hook, self.event, &self.tracking);
                let why = format!(
                    "Job {name} of hook {} disappeared before its end was recorded: was it deleted by hand?",
                    self.hook
                );
                (HookState::Failed, why)
            }
            (Some(stored @ (HookState::Failed, _)), None) => stored,
            (None, None) => return None,
        };
        Some(HookTracker {
            hook_event: self.event,
            tracking_key: self.tracking,
            upgrade_job_hook: self.hook,
            status,
            message,
        })
    }
}

/// Of two results for one key (the peer could make two): what still runs, then what failed.
fn worse(old: Option<(HookState, String)>, new: (HookState, String)) -> (HookState, String) {
    let rank = |state: HookState| match state {
        HookState::Active => 2,
        HookState::Failed => 1,
        HookState::Complete => 0,
    };
    match old {
        Some(old) if rank(old.0) >= rank(new.0) => old,
        Some(_) | None => new,
    }
}

/// By label and by UID: a Job of an earlier UpgradeJob of the same name is not ours.
fn is_of(hook_job: &Job, job: &UpgradeJob) -> bool {
    let owned = job
        .uid()
        .is_some_and(|uid| hook_job.owner_references().iter().any(|o| o.uid == uid));
    owned && hook_job.labels().get(labels::HOOK_JOB) == Some(&job::label_value(&job.name_any()))
}

fn is_held(job: &Job) -> bool {
    job.finalizers().iter().any(|f| f == finalizers::HOOK_JOB)
}

fn condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == type_ && c.status == "True")
}

fn sorted_names<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<String> {
    let mut names: Vec<String> = jobs.map(ResourceExt::name_any).collect();
    names.sort();
    names
}
