//! One event's tick: which Jobs and TaskRuns to create, and whether the event's hooks are done.

use jiff::SignedDuration;
use kube::ResourceExt;

use super::{
    environment::Event,
    hook_run::NewRun,
    job::{self, BuildError},
    task_run, tracker,
};
use crate::{
    api::{
        UpgradeJob, UpgradeJobHook,
        upgrade_job::{HookState, HookTracker},
        upgrade_job_hook::FailurePolicy,
    },
    text,
};

/// What Jobs and TaskRuns need besides hook, event and job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `META_matchesDisruptiveHooks`, see [`super::select::matches_disruptive`].
    pub matches_disruptive: bool,
    /// Deadline of Jobs whose template has none (`--default-hook-deadline`).
    pub default_deadline: Option<SignedDuration>,
    /// Tekton runs the job; `None`: it does not, so it runs no hooks of it either.
    pub tekton: Option<Tekton>,
}

/// What TaskRuns need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tekton {
    /// ServiceAccount of pods whose hook names none; `None` leaves that to Tekton.
    pub account: Option<String>,
}

/// What an event's hooks need next.
#[derive(Clone, Debug, PartialEq)]
pub struct HooksTick {
    /// What to create. The names are deterministic: "already exists" means done.
    pub create: Vec<NewRun>,
    /// Entries to add to the tracker, for hooks that cannot be run at all; each is worth a Kubernetes Event.
    pub problems: Vec<HookTracker>,
    /// What people should know of what is in `create`; each is worth a Kubernetes Event.
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
        /// Names the hook and what ran it, and says why.
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
    create: Vec<NewRun>,
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
                HookState::Active => self.running.push(running(title(&name, key), &entry.message)),
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

    fn create(&mut self, hook: &UpgradeJobHook, key: &str, new: NewRun) {
        let (hook, run) = (hook.name_any(), new.name());
        if new.is_trimmed() {
            self.warnings.push(format!(
                "the environment of {run} of hook {hook} is too large and was trimmed: read the UpgradeJob from the API instead of JOB"
            ));
        }
        if let Some(field) = new.field_of_deadline() {
            self.warnings.push(format!(
                "{run} of hook {hook} has no deadline: if it hangs, so does the upgrade; set {field} of the hook"
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
            let message = format!(
                "waiting for hooks of {event}: {}",
                text::names(&self.running, LISTED)
            );
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
) -> Result<NewRun, String> {
    let event = Event {
        pool: (!key.is_empty()).then(|| key.to_owned()),
        ..event.clone()
    };
    let built = match (&hook.spec.template, &hook.spec.task_ref, &settings.tekton) {
        (None, Some(task), Some(Tekton { account })) => {
            task_run::build(hook, task, &event, job, key, settings, account.as_deref())
                .map(|run| NewRun::TaskRun(Box::new(run)))
        }
        _ => job::build(
            hook,
            &event,
            job,
            key,
            settings.matches_disruptive,
            settings.default_deadline,
        )
        .map(|job| NewRun::Job(Box::new(job))),
    };
    built.map_err(|e: BuildError| e.to_string())
}

fn title(hook: &str, key: &str) -> String {
    if key.is_empty() {
        format!("hook {hook}")
    } else {
        format!("hook {hook} for pool {key}")
    }
}

/// A hook that runs, and what keeps it.
fn running(title: String, obstacle: &str) -> String {
    if obstacle.is_empty() {
        title
    } else {
        format!("{title} ({obstacle})")
    }
}

/// Names at most this many.
const LISTED: usize = 5;

fn done(event: &str, complete: usize, ignored: &[String]) -> String {
    match (complete, ignored) {
        (0, []) => format!("no hooks to run at {event}"),
        (_, []) => format!("hooks of {event}: {complete} done"),
        (_, failures) => {
            let count = failures.len();
            format!(
                "hooks of {event}: {complete} done, {count} failed and ignored: {}",
                text::names(failures, LISTED)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::upgrade_job_hook::HookEvent,
        hooks::{
            fixtures::{self, entry, hook, hook_job, upgrade_job},
            hook_run::HookRun,
        },
    };

    fn one() -> Vec<String> {
        vec![String::new()]
    }

    fn run(
        hooks: &[UpgradeJobHook],
        event: HookEvent,
        keys: &[String],
        tracker: &[HookTracker],
    ) -> HooksTick {
        let hooks: Vec<_> = hooks.iter().collect();
        tick(
            &hooks,
            &fixtures::event(event),
            keys,
            tracker,
            &upgrade_job(),
            &Settings::default(),
        )
    }

    fn at_start(hooks: &[UpgradeJobHook], tracker: &[HookTracker]) -> HooksTick {
        run(hooks, HookEvent::Start, &one(), tracker)
    }

    fn created(tick: &HooksTick) -> Vec<String> {
        tick.create.iter().map(|new| new.name().name).collect()
    }

    fn the_job(tick: &HooksTick) -> &Job {
        match tick.create.as_slice() {
            [NewRun::Job(job)] => job,
            other => panic!("one Job, not {other:?}"),
        }
    }

    fn track(tracker: &[HookTracker], jobs: &[Job]) -> Vec<HookTracker> {
        let runs: Vec<_> = jobs.iter().map(HookRun::of_job).collect();
        tracker::track(&upgrade_job(), tracker, &runs)
    }

    fn done(message: &str) -> HooksVerdict {
        HooksVerdict::Done {
            message: message.to_owned(),
        }
    }

    fn running(message: &str) -> HooksVerdict {
        HooksVerdict::Running {
            message: message.to_owned(),
        }
    }

    fn failed(message: &str) -> HooksVerdict {
        HooksVerdict::Failed {
            message: message.to_owned(),
        }
    }

    #[test]
    fn no_hooks_are_done() {
        let tick = at_start(&[], &[]);
        assert_eq!(tick.verdict, done("no hooks to run at Start"));
        assert_eq!(
            run(&[hook("a", &json!({}))], HookEvent::Start, &[], &[]).create,
            []
        );
    }

    #[test]
    fn a_hook_is_created_awaited_and_done() {
        let hooks = [hook("a", &json!({}))];
        let first = at_start(&hooks, &[]);
        assert_eq!(
            created(&first),
            [hook_job(&hooks[0], HookEvent::Start, "", "").name_any()]
        );
        assert_eq!(first.verdict, running("waiting for hooks of Start: hook a"));
        // Until the Job is seen, the same Job is wanted.
        assert_eq!(at_start(&hooks, &[]), first);

        let job = hook_job(&hooks[0], HookEvent::Start, "", "");
        let tracker = track(&[], &[job]);
        let second = at_start(&hooks, &tracker);
        assert_eq!((second.create.len(), &second.verdict), (0, &first.verdict));

        let job = hook_job(&hooks[0], HookEvent::Start, "", "Complete");
        let tracker = track(&tracker, &[job]);
        assert_eq!(at_start(&hooks, &tracker).verdict, done("hooks of Start: 1 done"));
        // The Job is gone (ttlSecondsAfterFinished): it is not run again.
        let tracker = track(&tracker, &[]);
        let last = at_start(&hooks, &tracker);
        assert_eq!(
            (last.create.len(), last.verdict),
            (0, done("hooks of Start: 1 done"))
        );
    }

    #[test]
    fn a_hook_added_later_is_run() {
        let hooks = [hook("a", &json!({})), hook("b", &json!({}))];
        let tick = at_start(&hooks, &[entry("a", HookEvent::Start, "", HookState::Complete)]);
        assert_eq!(tick.create.len(), 1);
        assert_eq!(tick.verdict, running("waiting for hooks of Start: hook b"));
    }

    #[test]
    fn a_result_of_another_event_or_pool_does_not_count() {
        let hooks = [hook("a", &json!({}))];
        let tracker = [
            entry("a", HookEvent::Create, "", HookState::Complete),
            entry("a", HookEvent::Start, "worker", HookState::Complete),
        ];
        assert_eq!(at_start(&hooks, &tracker).create.len(), 1);
    }

    #[rstest]
    #[case::abort(HookEvent::Start, "Abort", failed("hook a failed: recorded failure"))]
    #[case::abort_before_start(HookEvent::Create, "Abort", failed("hook a failed: recorded failure"))]
    #[case::ignore(
        HookEvent::Start,
        "Ignore",
        done("hooks of Start: 0 done, 1 failed and ignored: hook a failed: recorded failure")
    )]
    #[case::after_the_end(
        HookEvent::Finish,
        "Abort",
        done("hooks of Finish: 0 done, 1 failed and ignored: hook a failed: recorded failure")
    )]
    fn a_failure_counts_by_policy_and_event(
        #[case] event: HookEvent,
        #[case] policy: &str,
        #[case] expected: HooksVerdict,
    ) {
        let hooks = [hook("a", &json!({"failurePolicy": policy}))];
        let tick = run(&hooks, event, &one(), &[entry("a", event, "", HookState::Failed)]);
        assert_eq!(tick.verdict, expected);
        assert_eq!(tick.create, []);
    }

    #[test]
    fn the_default_policy_ignores() {
        let tick = at_start(
            &[hook("a", &json!({}))],
            &[entry("a", HookEvent::Start, "", HookState::Failed)],
        );
        assert!(matches!(tick.verdict, HooksVerdict::Done { .. }));
    }

    #[test]
    fn the_failure_names_hook_and_job() {
        let hooks = [hook("a", &json!({"failurePolicy": "Abort"}))];
        let job = hook_job(&hooks[0], HookEvent::Start, "", "Failed");
        let name = job.name_any();
        let tracker = track(&[], &[job]);
        assert_eq!(
            at_start(&hooks, &tracker).verdict,
            failed(&format!(
                "hook a failed: Job {name} failed: it says so (ItsReason)"
            ))
        );
    }

    #[test]
    fn after_an_abort_nothing_more_is_created() {
        let hooks = [
            hook("a", &json!({})),
            hook("b", &json!({"failurePolicy": "Abort"})),
            hook("c", &json!({})),
        ];
        let tick = at_start(&hooks, &[entry("b", HookEvent::Start, "", HookState::Failed)]);
        assert_eq!(tick.verdict, failed("hook b failed: recorded failure"));
        assert_eq!(tick.create, []);
        assert_eq!(tick.warnings, Vec::<String>::new());
    }

    #[test]
    fn every_pool_has_a_job_of_its_own_that_knows_the_pool() {
        let hooks = [hook("a", &json!({}))];
        let pools = ["infra", "worker"].map(str::to_owned);
        let event = HookEvent::MachineConfigPoolUnpause;
        let tick = run(
            &hooks,
            event,
            &pools,
            &[entry("a", event, "infra", HookState::Complete)],
        );
        assert_eq!(
            tick.verdict,
            running("waiting for hooks of MachineConfigPoolUnpause: hook a for pool worker")
        );
        let job = the_job(&tick);
        let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        let env = pod.containers[0].env.as_ref().unwrap();
        let pool = env.iter().find(|v| v.name == "EVENT_pool").unwrap();
        assert_eq!(pool.value.as_deref(), Some(r#""worker""#));
        let both = run(&hooks, event, &pools, &[]);
        assert_eq!(both.create.len(), 2);
        assert_ne!(created(&both)[0], created(&both)[1]);
    }

    #[rstest]
    #[case(json!({"template": null, "templateRef": {"name": "x"}}), "hook a has a templateRef, which only Argo Workflows can run, and Argo Workflows does not run it for this job: use a template")]
    #[case(json!({"template": null, "taskRef": {"name": "x"}}), "hook a has a taskRef, which only Tekton can run, and Tekton does not run it for this job: use a template")]
    #[case(json!({"template": null}), "hook a has no template of a Job: set spec.template")]
    fn a_hook_that_cannot_run_is_a_failure_by_its_policy(#[case] mut spec: Value, #[case] problem: &str) {
        let ignored = at_start(&[hook("a", &spec)], &[]);
        assert_eq!(
            ignored.verdict,
            done(&format!(
                "hooks of Start: 0 done, 1 failed and ignored: hook a failed: {problem}"
            ))
        );
        assert_eq!(
            ignored.problems,
            [tracker::failed("a", HookEvent::Start, "", problem)]
        );

        spec["failurePolicy"] = json!("Abort");
        let hooks = [hook("a", &spec)];
        let aborted = at_start(&hooks, &[]);
        assert_eq!(aborted.verdict, failed(&format!("hook a failed: {problem}")));
        // Recorded, the verdict is the same, and there is nothing more to record.
        let tracker = track(&aborted.problems, &[]);
        let again = at_start(&hooks, &tracker);
        assert_eq!((again.problems, again.verdict), (vec![], aborted.verdict));
    }

    #[test]
    fn a_native_hook_that_the_engine_ran_is_done() {
        let hooks = [hook(
            "a",
            &json!({"template": null, "templateRef": {"name": "x"}, "failurePolicy": "Abort"}),
        )];
        let tick = at_start(&hooks, &[entry("a", HookEvent::Start, "", HookState::Complete)]);
        assert_eq!(tick.verdict, done("hooks of Start: 1 done"));
    }

    #[test]
    fn one_hook_that_cannot_run_does_not_hold_back_the_others() {
        let hooks = [hook("a", &json!({"template": null})), hook("b", &json!({}))];
        let tick = at_start(&hooks, &[]);
        assert_eq!((tick.create.len(), tick.problems.len()), (1, 1));
        assert!(matches!(tick.verdict, HooksVerdict::Running { .. }));
    }

    #[test]
    fn a_missing_deadline_is_warned_of() {
        let without = hook("a", &json!({}));
        let with = hook(
            "b",
            &json!({"template": {"spec": {"activeDeadlineSeconds": 300}}}),
        );
        let tick = at_start(&[without, with], &[]);
        let [warning] = tick.warnings.as_slice() else {
            panic!("{:?}", tick.warnings)
        };
        assert!(warning.contains("of hook a has no deadline"), "{warning}");
    }

    #[test]
    fn a_default_deadline_needs_no_warning() {
        let hook = hook("a", &json!({}));
        let settings = Settings {
            default_deadline: Some(SignedDuration::from_mins(10)),
            matches_disruptive: true,
            tekton: None,
        };
        let event = fixtures::event(HookEvent::Start);
        let tick = tick(&[&hook], &event, &one(), &[], &upgrade_job(), &settings);
        assert_eq!(tick.warnings, Vec::<String>::new());
        assert_eq!(
            the_job(&tick).spec.as_ref().unwrap().active_deadline_seconds,
            Some(600)
        );
    }

    #[test]
    fn a_trimmed_environment_is_warned_of() {
        let mut job = upgrade_job();
        job.status.as_mut().unwrap().message = Some("x".repeat(200_000));
        let hook = hook(
            "a",
            &json!({"template": {"spec": {"activeDeadlineSeconds": 300}}}),
        );
        let event = fixtures::event(HookEvent::Start);
        let tick = tick(&[&hook], &event, &one(), &[], &job, &Settings::default());
        assert!(
            tick.warnings[0].contains("too large and was trimmed"),
            "{:?}",
            tick.warnings
        );
    }

    #[test]
    fn many_running_hooks_are_counted() {
        let hooks: Vec<_> = (0..8).map(|i| hook(&format!("h{i}"), &json!({}))).collect();
        assert_eq!(
            at_start(&hooks, &[]).verdict,
            running("waiting for hooks of Start: hook h0, hook h1, hook h2, hook h3, hook h4 and 3 more")
        );
    }
}
