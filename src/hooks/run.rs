//! One event's tick: which Jobs to create, and whether the event's hooks are done.

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{
    environment::Event,
    job::{self, BuildError},
    tracker,
};
use crate::api::{
    UpgradeJob, UpgradeJobHook,
    upgrade_job::{HookState, HookTracker},
    upgrade_job_hook::FailurePolicy,
};

/// What the Jobs need besides hook, event and job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `META_matchesDisruptiveHooks`, see [`super::select::matches_disruptive`].
    pub matches_disruptive: bool,
    /// Deadline of Jobs whose template has none (`--default-hook-deadline`).
    pub default_deadline: Option<SignedDuration>,
}

/// What an event's hooks need next.
#[derive(Clone, Debug, PartialEq)]
pub struct HooksTick {
    /// Jobs to create. Their names are deterministic: "already exists" means done.
    pub create: Vec<Job>,
    /// Entries to add to the tracker, for hooks that cannot be run at all; each is worth a Kubernetes Event.
    pub problems: Vec<HookTracker>,
    /// What people should know of the Jobs in `create`; each is worth a Kubernetes Event.
    pub warnings: Vec<String>,
    /// Where the event is.
    pub verdict: HooksVerdict,
}

/// Where an event's hooks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HooksVerdict {
    /// Some still run, or are about to.
    Running {
        /// Which.
        message: String,
    },
    /// All have ended; failures are ignored.
    Done {
        /// How many, and which failed.
        message: String,
    },
    /// A hook with `failurePolicy: Abort` failed.
    Failed {
        /// Names hook and Job, and says why.
        message: String,
    },
}

/// One tick of the hooks of one event.
///
/// - `hooks`: those that match ([`super::select::matching`]), without those that the engine runs as pods of its own.
/// - `event`: `pool` is set from the tracking key.
/// - `keys`: the tracking keys: one empty string, or the pools for MachineConfigPoolUnpause; none = nothing to do.
/// - `tracker`: as [`tracker::track`] returned it.
///
/// A failed Abort hook ends the event at once, and nothing more is created; Jobs that still run are tracked as before.
/// Failures at Success, Failure and Finish are always ignored.
pub fn tick(
    hooks: &[&UpgradeJobHook],
    event: &Event,
    keys: &[String],
    tracker: &[HookTracker],
    job: &UpgradeJob,
    settings: &Settings,
) -> HooksTick {
    let mut progress = Progress::default();
    for hook in hooks {
        for key in keys {
            progress.step(hook, event, key, tracker, job, settings);
        }
    }
    progress.finish(event)
}

#[derive(Default)]
struct Progress {
    create: Vec<Job>,
    problems: Vec<HookTracker>,
    warnings: Vec<String>,
    running: Vec<String>,
    ignored: Vec<String>,
    aborted: Vec<String>,
    complete: usize,
}

impl Progress {
    fn step(
        &mut self,
        hook: &UpgradeJobHook,
        event: &Event,
        key: &str,
        tracker: &[HookTracker],
        job: &UpgradeJob,
        settings: &Settings,
    ) {
        let name = hook.name_any();
        match tracker::find(tracker, &name, event.name, key) {
            Some(entry) => match entry.status {
                HookState::Active => self.running.push(title(&name, key)),
                HookState::Complete => self.complete += 1,
                HookState::Failed => self.failed(hook, event, key, &entry.message),
            },
            None => match build(hook, event, key, job, settings) {
                Ok(new) => self.create(hook, key, new),
                Err(problem) => {
                    self.failed(hook, event, key, &problem);
                    self.problems
                        .push(tracker::failed(&name, event.name, key, problem));
                }
            },
        }
    }

    fn create(&mut self, hook: &UpgradeJobHook, key: &str, new: Job) {
        let (hook, job) = (hook.name_any(), new.name_any());
        if job::is_trimmed(&new) {
            self.warnings.push(format!(
                "the environment of Job {job} of hook {hook} is too large and was trimmed: read the UpgradeJob from the API instead of JOB"
            ));
        }
        if new
            .spec
            .as_ref()
            .is_some_and(|s| s.active_deadline_seconds.is_none())
        {
            self.warnings.push(format!(
                "Job {job} of hook {hook} has no deadline: if it hangs, so does the upgrade; set spec.template.spec.activeDeadlineSeconds of the hook"
            ));
        }
        self.running.push(title(&hook, key));
        self.create.push(new);
    }

    fn failed(&mut self, hook: &UpgradeJobHook, event: &Event, key: &str, message: &str) {
        let text = format!("{} failed: {message}", title(&hook.name_any(), key));
        match hook.spec.failure_policy_at(event.name) {
            FailurePolicy::Abort => self.aborted.push(text),
            FailurePolicy::Ignore => self.ignored.push(text),
        }
    }

    fn finish(self, event: &Event) -> HooksTick {
        let event = event.name.as_str();
        let verdict = if !self.aborted.is_empty() {
            let message = self.aborted.join("; ");
            return HooksTick {
                // The job fails: hooks that have not begun need not begin.
                create: Vec::new(),
                problems: self.problems,
                warnings: Vec::new(),
                verdict: HooksVerdict::Failed { message },
            };
        } else if !self.running.is_empty() {
            let message = format!("waiting for hooks of {event}: {}", list(&self.running));
            HooksVerdict::Running { message }
        } else {
            HooksVerdict::Done {
                message: done(event, self.complete, &self.ignored),
            }
        };
        HooksTick {
            create: self.create,
            problems: self.problems,
            warnings: self.warnings,
            verdict,
        }
    }
}

fn build(
    hook: &UpgradeJobHook,
    event: &Event,
    key: &str,
    job: &UpgradeJob,
    settings: &Settings,
) -> Result<Job, String> {
    let spec = &hook.spec;
    let native = match (&spec.template, &spec.template_ref, &spec.task_ref) {
        (Some(_), _, _) | (None, None, None) => None,
        (None, Some(_), _) => Some(("templateRef", "Argo Workflows")),
        (None, None, Some(_)) => Some(("taskRef", "Tekton")),
    };
    if let Some((field, engine)) = native {
        return Err(format!(
            "it has a {field}, which only {engine} can run, and {engine} does not run it for this job: use a template"
        ));
    }
    let event = Event {
        pool: (!key.is_empty()).then(|| key.to_owned()),
        ..event.clone()
    };
    let built = job::build(
        hook,
        &event,
        job,
        key,
        settings.matches_disruptive,
        settings.default_deadline,
    );
    built.map_err(|e: BuildError| e.to_string())
}

fn title(hook: &str, key: &str) -> String {
    if key.is_empty() {
        format!("hook {hook}")
    } else {
        format!("hook {hook} for pool {key}")
    }
}

/// Names at most this many.
const LISTED: usize = 5;

fn list(items: &[String]) -> String {
    let named: Vec<&str> = items.iter().take(LISTED).map(String::as_str).collect();
    let more = items.len().saturating_sub(LISTED);
    match more {
        0 => named.join(", "),
        _ => format!("{} and {more} more", named.join(", ")),
    }
}

fn done(event: &str, complete: usize, ignored: &[String]) -> String {
    match (complete, ignored) {
        (0, []) => format!("no hooks to run at {event}"),
        (_, []) => format!("hooks of {event}: {complete} done"),
        (_, failures) => {
            let count = failures.len();
            format!(
                "hooks of {event}: {complete} done, {count} failed and ignored: {}",
                list(failures)
            )
        }
    }
}
