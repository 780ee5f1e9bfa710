//! What became of hooks: `UpgradeJob.status.hookTracker`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, de::IntoDeserializer};

use super::{
    hook_run::{Again, HookRun, RunKind, RunName},
    naming,
};
use crate::api::{
    UpgradeJob, labels,
    upgrade_job::{HookState, HookTracker, WorkflowStep},
    upgrade_job_hook::HookEvent,
};

/// The tracker of `job`, renewed from what runs for its hooks: one entry per hook, event and tracking key, sorted by these.
///
/// `tracker` is the stored one, `runs` are all of the namespace; those of other UpgradeJobs are passed over.
/// - A run that exists is the truth, except that a stored Complete is never taken back, and that a TaskRun that counts as failed
///   while it still waits for Tekton has been given up for good. Of several tries the last one counts.
/// - An entry that ended stays when its run is gone.
/// - An entry that was Active, and whose run is gone, has Failed: its result can no longer be known. `runs` must
///   therefore be at least as fresh as `tracker`; read them live before a failure is acted upon.
/// - An entry of a hook that runs in a workflow stays as it is: the workflow tells.
pub fn track(job: &UpgradeJob, tracker: &[HookTracker], runs: &[HookRun<'_>]) -> Vec<HookTracker> {
    let mut known: BTreeMap<Key, Known> = BTreeMap::new();
    let (in_workflows, of_runs): (Vec<_>, Vec<_>) = tracker.iter().partition(|e| e.workflow_step.is_some());
    for entry in of_runs {
        let key = Key::of_entry(entry);
        let stored = &mut known.entry(key).or_default().stored;
        *stored = Some(worse(stored.take(), (entry.status, entry.message.clone())));
    }
    for (key, run) in last_tries(job, runs) {
        let existing = &mut known.entry(key.clone()).or_default().existing;
        *existing = Some(worse(existing.take(), (run.state, run.message.clone())));
        known.entry(key).or_default().can_be_given_up = run.kind == RunKind::TaskRun;
    }
    for entry in &in_workflows {
        known.remove(&Key::of_entry(entry));
    }
    let mut all: Vec<HookTracker> = known
        .into_iter()
        .filter_map(|(key, known)| key.entry(job, known))
        .chain(in_workflows.into_iter().cloned())
        .collect();
    all.sort_by_cached_key(Key::of_entry);
    all
}

/// A hook whose pod was killed, and that is to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextTry {
    /// The try that was killed.
    pub after: RunName,
    /// Name of the next one.
    pub name: String,
    /// Its number.
    pub attempt: u32,
    /// How long it may take.
    pub again: Again,
}

/// The hooks of `job` that are to be tried again: not those that have their end in `tracker`, which is the stored one. One that
/// was given up may end as if its pod had been killed when Tekton is back.
pub fn next_tries(job: &UpgradeJob, tracker: &[HookTracker], runs: &[HookRun<'_>]) -> Vec<NextTry> {
    let is_over = |key: &Key| {
        tracker
            .iter()
            .any(|t| t.status != HookState::Active && Key::of_entry(t) == *key)
    };
    let next = |(key, run): (Key, &HookRun<'_>)| {
        let attempt = run.attempt.saturating_add(1);
        Some(NextTry {
            after: run.name(),
            name: naming::try_name(&naming::name(job, &key.hook, key.event, &key.tracking), attempt),
            attempt,
            again: run.again?,
        })
    };
    let tries = last_tries(job, runs).into_iter();
    tries.filter(|(key, _)| !is_over(key)).filter_map(next).collect()
}

/// When the hook of this entry ends by its own deadline; `None`: it has none, or that is not known.
pub fn ends_by(job: &UpgradeJob, entry: &HookTracker, runs: &[HookRun<'_>]) -> Option<Timestamp> {
    let key = Key::of_entry(entry);
    let mut tries = last_tries(job, runs).into_iter();
    tries.find(|(of, _)| *of == key)?.1.ends_by
}

/// What runs for `job`, without tries that others followed.
fn last_tries<'r, 'a>(job: &UpgradeJob, runs: &'r [HookRun<'a>]) -> Vec<(Key, &'r HookRun<'a>)> {
    let ours = runs.iter().filter(|r| is_of(r.metadata, job));
    let all: Vec<_> = ours.filter_map(|r| Some((Key::of(r.metadata)?, r))).collect();
    all.iter()
        .filter(|(key, run)| !all.iter().any(|(k, r)| k == key && follows(r, run)))
        .cloned()
        .collect()
}

fn follows(later: &HookRun<'_>, run: &HookRun<'_>) -> bool {
    later.kind == run.kind && later.attempt > run.attempt
}

/// What ran for `job`, has ended, has its end in `tracker`, and still carries our finalizer.
///
/// `tracker` is the one that was stored, not one that is about to be.
pub fn releasable(job: &UpgradeJob, tracker: &[HookTracker], runs: &[HookRun<'_>]) -> Vec<RunName> {
    let recorded = |run: &HookRun<'_>| {
        Key::of(run.metadata).is_none_or(|key| {
            tracker
                .iter()
                .any(|t| t.status != HookState::Active && Key::of_entry(t) == key)
        })
    };
    let last = last_tries(job, runs);
    let is_last = |run: &HookRun<'_>| last.iter().any(|(_, r)| r.metadata.name == run.metadata.name);
    let over = |run: &HookRun<'_>| run.state != HookState::Active && recorded(run);
    sorted_names(runs.iter().filter(|r| {
        let nobody_asks = Key::of(r.metadata).is_some() && !is_last(r);
        r.is_held() && is_of(r.metadata, job) && (over(r) || nobody_asks)
    }))
}

/// The TaskRuns of `job` that were given up, and still carry our finalizer: `tracker`, which is the stored one, has them as failed
/// although Tekton has not ended them.
pub fn given_up(job: &UpgradeJob, tracker: &[HookTracker], runs: &[HookRun<'_>]) -> Vec<String> {
    let tries = last_tries(job, runs).into_iter();
    let given_up = tries.filter(|(_, run)| run.is_held() && is_given_up(tracker, run));
    let mut names: Vec<String> = given_up.map(|(_, run)| run.name().name).collect();
    names.sort();
    names
}

/// Whether a TaskRun counts as failed although Tekton has not ended it.
fn is_given_up(tracker: &[HookTracker], run: &HookRun<'_>) -> bool {
    let failed = |t: &&HookTracker| t.status == HookState::Failed && t.workflow_step.is_none();
    let key = Key::of(run.metadata);
    let is_stored = key.is_some_and(|key| tracker.iter().filter(failed).any(|t| Key::of_entry(t) == key));
    run.kind == RunKind::TaskRun && run.state == HookState::Active && is_stored
}

/// Whether any of the jobs waits for what runs for a hook of its.
pub fn is_any_awaited(jobs: &[UpgradeJob]) -> bool {
    let is_awaited = |t: &HookTracker| t.status == HookState::Active && t.workflow_step.is_none();
    let mut tracked = jobs
        .iter()
        .filter_map(|j| j.status.as_ref())
        .flat_map(|s| &s.hook_tracker);
    tracked.any(is_awaited)
}

/// The TaskRuns of `job` that `tracker` has as running, by name, each with the number of its entry.
pub fn task_runs_under_way(
    job: &UpgradeJob,
    tracker: &[HookTracker],
    runs: &[HookRun<'_>],
) -> Vec<(usize, String)> {
    let entry_of = |key: &Key| {
        let is_active = |t: &HookTracker| t.status == HookState::Active && t.workflow_step.is_none();
        tracker
            .iter()
            .position(|t| is_active(t) && Key::of_entry(t) == *key)
    };
    let tries = last_tries(job, runs).into_iter();
    tries
        .filter(|(_, run)| run.kind == RunKind::TaskRun && run.state == HookState::Active)
        .filter_map(|(key, run)| Some((entry_of(&key)?, run.name().name)))
        .collect()
}

/// What runs for hooks, carries our finalizer, and has its UpgradeJob gone, or going: nobody will read it.
///
/// `owners` are all UpgradeJobs, also those that cannot be read. One that is being deleted counts as gone: a foreground deletion
/// waits for its Jobs first.
pub fn abandoned(owners: &[&ObjectMeta], runs: &[HookRun<'_>]) -> Vec<RunName> {
    let is_wanted = |run: &HookRun<'_>| {
        let mut there = owners.iter().filter(|o| o.deletion_timestamp.is_none());
        there.any(|owner| is_owned_by(run.metadata, owner))
    };
    sorted_names(runs.iter().filter(|r| r.is_held() && !is_wanted(r)))
}

/// The entry of a hook that could not be run at all.
pub fn failed(hook: &str, event: HookEvent, key: &str, message: impl Into<String>) -> HookTracker {
    HookTracker {
        hook_event: event,
        tracking_key: key.to_owned(),
        upgrade_job_hook: hook.to_owned(),
        status: HookState::Failed,
        message: message.into(),
        workflow_step: None,
    }
}

/// The entry of a hook that is about to run in a workflow.
pub fn started(hook: &str, event: HookEvent, key: &str, by: WorkflowStep) -> HookTracker {
    HookTracker {
        hook_event: event,
        tracking_key: key.to_owned(),
        upgrade_job_hook: hook.to_owned(),
        status: HookState::Active,
        message: String::new(),
        workflow_step: Some(by),
    }
}

/// The entry of a Job or TaskRun that the API server refused; `None` for one that is not of ours.
pub fn refused(run: &ObjectMeta, why: &str) -> Option<HookTracker> {
    let key = Key::of(run)?;
    Some(failed(&key.hook, key.event, &key.tracking, why))
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
    can_be_given_up: bool,
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
    fn of(run: &ObjectMeta) -> Option<Self> {
        let text = |key: &str| {
            let of = |map: &Option<BTreeMap<String, String>>| map.as_ref()?.get(key).cloned();
            of(&run.annotations).or_else(|| of(&run.labels))
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
            (Some(failed @ (HookState::Failed, _)), Some((HookState::Active, _)))
                if known.can_be_given_up =>
            {
                failed
            }
            (_, Some(existing)) => existing,
            (Some((HookState::Active, _)), None) => {
                let name = naming::name(job, &self.hook, self.event, &self.tracking);
                let why = format!(
                    "{name}, which ran hook {}, disappeared before its end was recorded: was it deleted by hand?",
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
            workflow_step: None,
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

fn is_of(run: &ObjectMeta, job: &UpgradeJob) -> bool {
    is_owned_by(run, &job.metadata)
}

/// By label and by UID: a Job of an earlier UpgradeJob of the same name is not ours.
fn is_owned_by(run: &ObjectMeta, owner: &ObjectMeta) -> bool {
    let is_uid = |uid: &String| run.owner_references.iter().flatten().any(|o| o.uid == *uid);
    let label = run.labels.as_ref().and_then(|l| l.get(labels::HOOK_JOB));
    let name = owner.name.as_deref().unwrap_or_default();
    owner.uid.as_ref().is_some_and(is_uid) && label == Some(&naming::label_value(name))
}

fn sorted_names<'r, 'a: 'r>(runs: impl Iterator<Item = &'r HookRun<'a>>) -> Vec<RunName> {
    let mut names: Vec<RunName> = runs.map(HookRun::name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::ResourceExt;
    use rstest::rstest;
    use serde_json::json;

    use k8s_openapi::api::batch::v1::Job;

    use super::*;
    use crate::hooks::{
        fixtures::{entry, hook, hook_job, upgrade_job},
        hook_run::RunKind,
        job,
    };
    use crate::{
        unreadable::{Kind, Unreadable},
        world::World,
    };

    fn runs(jobs: &[Job]) -> Vec<HookRun<'_>> {
        jobs.iter().map(HookRun::of_job).collect()
    }

    fn track(job: &UpgradeJob, tracker: &[HookTracker], jobs: &[Job]) -> Vec<HookTracker> {
        super::track(job, tracker, &runs(jobs))
    }

    fn names(all: Vec<RunName>) -> Vec<String> {
        let all = all.into_iter().inspect(|n| assert_eq!(n.kind, RunKind::Job));
        all.map(|n| n.name).collect()
    }

    fn releasable(job: &UpgradeJob, tracker: &[HookTracker], jobs: &[Job]) -> Vec<String> {
        names(super::releasable(job, tracker, &runs(jobs)))
    }

    fn abandoned(upgrade_jobs: &[UpgradeJob], jobs: &[Job]) -> Vec<String> {
        let owners: Vec<_> = upgrade_jobs.iter().map(|u| &u.metadata).collect();
        names(super::abandoned(&owners, &runs(jobs)))
    }

    fn start_job(condition: &str) -> Job {
        hook_job(&hook("notify", &json!({})), HookEvent::Start, "", condition)
    }

    fn start_entry(status: HookState) -> HookTracker {
        entry("notify", HookEvent::Start, "", status)
    }

    fn deleted(mut job: Job) -> Job {
        job.metadata.deletion_timestamp = Some(Time("2021-01-01T21:30:00Z".parse().unwrap()));
        job
    }

    #[rstest]
    #[case::seen_first(None, "", HookState::Active)]
    #[case::goes_on(Some(HookState::Active), "", HookState::Active)]
    #[case::completes(Some(HookState::Active), "Complete", HookState::Complete)]
    #[case::fails(Some(HookState::Active), "Failed", HookState::Failed)]
    #[case::completes_unseen(None, "Complete", HookState::Complete)]
    #[case::was_wrongly_taken_for_gone(Some(HookState::Failed), "Complete", HookState::Complete)]
    #[case::never_taken_back(Some(HookState::Complete), "", HookState::Complete)]
    #[case::never_failed_afterwards(Some(HookState::Complete), "Failed", HookState::Complete)]
    fn an_existing_job_is_the_truth(
        #[case] stored: Option<HookState>,
        #[case] condition: &str,
        #[case] expected: HookState,
    ) {
        let stored: Vec<_> = stored.map(start_entry).into_iter().collect();
        let tracker = track(&upgrade_job(), &stored, &[start_job(condition)]);
        assert_eq!(tracker.len(), 1);
        assert_eq!(tracker[0].status, expected);
    }

    #[rstest]
    #[case(HookState::Complete)]
    #[case(HookState::Failed)]
    fn a_result_outlives_its_job(#[case] status: HookState) {
        let stored = [start_entry(status)];
        assert_eq!(track(&upgrade_job(), &stored, &[]), stored);
    }

    #[test]
    fn an_active_entry_without_job_has_failed_and_says_which() {
        let tracker = track(&upgrade_job(), &[start_entry(HookState::Active)], &[]);
        assert_eq!(tracker[0].status, HookState::Failed);
        let name = start_job("").name_any();
        assert_eq!(
            tracker[0].message,
            format!(
                "{name}, which ran hook notify, disappeared before its end was recorded: was it deleted by hand?"
            )
        );
    }

    #[test]
    fn tracking_twice_changes_nothing() {
        let jobs = [
            start_job("Failed"),
            hook_job(&hook("b", &json!({})), HookEvent::Finish, "", ""),
        ];
        let stored = [entry("gone", HookEvent::Create, "", HookState::Active)];
        let once = track(&upgrade_job(), &stored, &jobs);
        assert_eq!(once.len(), 3);
        assert_eq!(track(&upgrade_job(), &once, &jobs), once);
    }

    #[test]
    fn entries_are_sorted_by_hook_event_and_key_and_there_is_one_of_each() {
        let stored = [
            entry("b", HookEvent::Start, "", HookState::Complete),
            entry("a", HookEvent::Start, "", HookState::Complete),
            entry(
                "a",
                HookEvent::MachineConfigPoolUnpause,
                "worker",
                HookState::Failed,
            ),
            entry(
                "a",
                HookEvent::MachineConfigPoolUnpause,
                "infra",
                HookState::Complete,
            ),
            entry(
                "a",
                HookEvent::MachineConfigPoolUnpause,
                "worker",
                HookState::Complete,
            ),
            entry("a", HookEvent::Start, "", HookState::Complete),
        ];
        let tracker = track(&upgrade_job(), &stored, &[]);
        let keys: Vec<_> = tracker
            .iter()
            .map(|t| {
                (
                    t.upgrade_job_hook.as_str(),
                    t.hook_event.as_str(),
                    t.tracking_key.as_str(),
                    t.status,
                )
            })
            .collect();
        assert_eq!(
            keys,
            [
                ("a", "MachineConfigPoolUnpause", "infra", HookState::Complete),
                ("a", "MachineConfigPoolUnpause", "worker", HookState::Failed),
                ("a", "Start", "", HookState::Complete),
                ("b", "Start", "", HookState::Complete),
            ]
        );
    }

    #[test]
    fn of_two_jobs_for_one_key_the_running_one_counts_then_the_failed_one() {
        let mut peers = start_job("");
        peers.metadata.name = Some("peers-name".to_owned());
        let states = |second: &str| {
            let tracker = track(&upgrade_job(), &[], &[start_job(second), peers.clone()]);
            assert_eq!(tracker.len(), 1);
            tracker[0].status
        };
        assert_eq!(states("Failed"), HookState::Active);
        peers.status = start_job("Complete").status;
        let tracker = track(&upgrade_job(), &[], &[start_job("Failed"), peers]);
        assert_eq!(tracker[0].status, HookState::Failed);
    }

    #[test]
    fn long_names_are_tracked_in_full() {
        let (name, pool) = ("h".repeat(253), "p".repeat(253));
        let mut job = upgrade_job();
        job.metadata.name = Some("j".repeat(253));
        let hook = hook(&name, &json!({}));
        let event = crate::hooks::fixtures::event(HookEvent::MachineConfigPoolUnpause);
        let built = job::build(&hook, &event, &job, &pool, false, None).unwrap();
        let tracker = track(&job, &[], std::slice::from_ref(&built));
        assert_eq!(
            tracker,
            [entry(
                &name,
                HookEvent::MachineConfigPoolUnpause,
                &pool,
                HookState::Active
            )]
        );
        assert!(find(&tracker, &name, HookEvent::MachineConfigPoolUnpause, &pool).is_some());
    }

    #[test]
    fn jobs_of_others_are_passed_over() {
        let mut older = start_job("Failed");
        older.metadata.owner_references.as_mut().unwrap()[0].uid = "older".to_owned();
        let mut unlabelled = start_job("Failed");
        unlabelled.metadata.labels = None;
        let mut foreign = start_job("Failed");
        foreign
            .metadata
            .labels
            .as_mut()
            .unwrap()
            .insert(labels::HOOK_EVENT.to_owned(), "Lunch".to_owned());
        assert_eq!(track(&upgrade_job(), &[], &[older, unlabelled, foreign]), []);
    }

    #[rstest]
    #[case::ended_and_recorded("Complete", Some(HookState::Complete), true)]
    #[case::failed_and_recorded("Failed", Some(HookState::Failed), true)]
    #[case::ended_not_recorded("Complete", None, false)]
    #[case::ended_recorded_as_active("Complete", Some(HookState::Active), false)]
    #[case::still_running("", Some(HookState::Active), false)]
    fn a_job_is_let_go_once_its_end_is_recorded(
        #[case] condition: &str,
        #[case] stored: Option<HookState>,
        #[case] expected: bool,
    ) {
        let jobs = [start_job(condition)];
        let tracker: Vec<_> = stored.map(start_entry).into_iter().collect();
        let expected = if expected {
            vec![jobs[0].name_any()]
        } else {
            vec![]
        };
        assert_eq!(releasable(&upgrade_job(), &tracker, &jobs), expected);
    }

    #[test]
    fn a_job_deleted_in_mid_run_is_recorded_and_then_let_go() {
        let jobs = [deleted(start_job(""))];
        let tracker = track(&upgrade_job(), &[start_entry(HookState::Active)], &jobs);
        assert_eq!(
            releasable(&upgrade_job(), &[start_entry(HookState::Active)], &jobs),
            Vec::<String>::new()
        );
        assert_eq!(releasable(&upgrade_job(), &tracker, &jobs), [jobs[0].name_any()]);
        // It stays failed when it is gone.
        assert_eq!(track(&upgrade_job(), &tracker, &[]), tracker);
    }

    #[test]
    fn a_job_without_our_finalizer_needs_no_release() {
        let mut job = start_job("Complete");
        job.metadata.finalizers = Some(vec!["other/finalizer".to_owned()]);
        let tracker = [start_entry(HookState::Complete)];
        assert_eq!(
            releasable(&upgrade_job(), &tracker, std::slice::from_ref(&job)),
            Vec::<String>::new()
        );
        assert_eq!(abandoned(&[], &[job]), Vec::<String>::new());
    }

    #[test]
    fn jobs_are_abandoned_when_their_upgrade_job_is_gone_or_going() {
        let jobs = [start_job("")];
        let name = jobs[0].name_any();
        assert_eq!(abandoned(&[upgrade_job()], &jobs), Vec::<String>::new());
        assert_eq!(abandoned(&[], &jobs), [name.as_str()]);
        let mut going = upgrade_job();
        going.metadata.deletion_timestamp = Some(Time("2021-01-01T21:30:00Z".parse().unwrap()));
        assert_eq!(abandoned(&[going], &jobs), [name.as_str()]);
        let mut recreated = upgrade_job();
        recreated.metadata.uid = Some("younger".to_owned());
        assert_eq!(abandoned(&[recreated], &jobs), [name.as_str()]);
        let world = World {
            unreadable: vec![Unreadable {
                metadata: upgrade_job().metadata,
                ..Unreadable::named(Kind::UpgradeJob, "")
            }],
            ..World::default()
        };
        assert_eq!(
            names(super::abandoned(&world.job_metadata(), &runs(&jobs))),
            [""; 0],
            "one that cannot be read is there"
        );
    }
}
