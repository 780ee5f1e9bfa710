//! Whether the operator may be removed, and what it gives back before (design 10).

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    bench::Bench,
    fixtures::{NEW, at, held, hook, job, settings},
};
use crate::{
    api::{UpgradeJob, annotations, finalizers},
    lifecycle::{Task, left_paused, removal},
    steps::Action,
    unreadable::{Kind, Unreadable},
    world::World,
};

fn next(world: &World) -> Result<Vec<Task>, Vec<String>> {
    removal(world, &settings(), at(9_000))
}

/// A world with a job that has ended, and keeps its finalizer for whatever reason.
fn ended() -> World {
    let mut bench = Bench::new(job("up", json!({}))).completed();
    bench.settle_at(45 * 60);
    bench.assert_succeeded();
    bench.job_mut().metadata.finalizers = Some(vec![finalizers::UPGRADE_JOB.to_owned()]);
    bench.world
}

#[test]
fn a_cluster_without_jobs_holds_nothing() {
    let mut world = Bench::new(job("up", json!({}))).world;
    world.jobs.clear();
    assert_eq!(next(&world), Ok(vec![]));
}

#[test]
fn a_job_that_has_not_started_keeps_nobody() {
    let world = Bench::new(job("up", json!({}))).world;
    assert_eq!(next(&world), Ok(vec![]));
}

#[test]
fn a_running_job_keeps_the_operator() {
    for bench in [
        Bench::new(job("up", held())).asked(),
        Bench::new(job("up", held())).accepted(),
        Bench::new(job("up", held())).completed(),
    ] {
        let why = next(&bench.world).unwrap_err();
        assert!(
            why[0].contains("UpgradeJob up is running") && why.len() == 1,
            "{why:?}"
        );
        // Somebody deletes it: it must first be stopped by the operator.
        let mut deleted = bench;
        deleted.job_mut().metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(30)));
        assert!(next(&deleted.world).is_err());
    }
}

#[test]
fn a_job_that_cannot_be_read_may_be_running() {
    let mut world = ended();
    world.unreadable = vec![Unreadable::named(Kind::UpgradeJob, "new-kind")];
    let why = next(&world).unwrap_err();
    assert!(why[0].contains("UpgradeJob new-kind cannot be read"), "{why:?}");
}

#[test]
fn without_a_cluster_version_nothing_is_known() {
    let mut world = ended();
    world.cluster_version = None;
    assert!(next(&world).is_err());
}

/// An API server that is starting says for a moment that it has no such kind.
#[rstest]
#[case::held(true, 1)]
#[case::let_go(false, 0)]
fn a_job_that_paused_pools_is_not_let_go_where_none_is_to_be_seen(
    #[case] is_protected: bool,
    #[case] obstacles: usize,
) {
    let mut world = ended();
    let job = &mut world.jobs[0];
    job.metadata.finalizers = job.metadata.finalizers.take().filter(|_| is_protected);
    job.status.as_mut().unwrap().paused_pools =
        serde_json::from_value(json!([{"name": "night", "reason": "delay"}])).unwrap();
    let with_pools = next(&world);
    assert!(with_pools.is_ok(), "{with_pools:?}");
    world.pools.clear();
    let why = next(&world).err().unwrap_or_default();
    assert_eq!(why.len(), obstacles, "{why:?}");
    for said in [
        "UpgradeJob up has paused MachineConfigPools (night)",
        "oc -n ns patch upgradejob up",
    ] {
        assert!(why.iter().all(|w| w.contains(said)), "{why:?}");
    }
}

fn actions_of(tasks: &[Task]) -> Vec<Action> {
    let of = |task: &Task| match task {
        Task::GiveBack { decision, .. } => decision.actions.clone(),
        Task::ReleaseHookRun(_) | Task::DisownPool(_) | Task::Unlock => vec![],
    };
    tasks.iter().flat_map(of).collect()
}

#[test]
fn an_ended_job_is_let_go() {
    let world = ended();
    assert_eq!(actions_of(&next(&world).unwrap()), [Action::Unprotect]);
}

fn lock(world: &mut World, owner: &str, uid: &str) {
    let all = world.cluster_version.as_mut().unwrap();
    let all = all.metadata.annotations.get_or_insert_default();
    all.insert(annotations::UPGRADE_JOB.to_owned(), owner.to_owned());
    all.insert(annotations::UPGRADE_JOB_UID.to_owned(), uid.to_owned());
}

#[test]
fn an_ended_job_gives_the_lock_back_before_it_is_let_go() {
    let mut world = ended();
    lock(&mut world, "ns/up", "uid-up");
    assert_eq!(actions_of(&next(&world).unwrap()), [Action::ReleaseLock]);
}

#[rstest]
#[case::gone("ns/gone", true)]
#[case::ended("ns/up", true)]
#[case::of_others("other/up", false)]
fn a_lock_that_is_left_goes_if_it_is_of_this_namespace(#[case] owner: &str, #[case] goes: bool) {
    let mut world = ended();
    world
        .jobs
        .iter_mut()
        .for_each(|j: &mut UpgradeJob| j.metadata.finalizers = None);
    lock(&mut world, owner, "uid-up");
    assert_eq!(next(&world).unwrap().contains(&Task::Unlock), goes);
}

fn pause(world: &mut World, paused: bool, owner: &str) {
    let pool = world
        .pools
        .iter_mut()
        .find(|p| p.metadata.name.as_deref() == Some("night"))
        .unwrap();
    pool.spec.paused = paused;
    let named: Value = json!({
        annotations::UPGRADE_JOB: owner, annotations::UPGRADE_JOB_UID: "uid-up", annotations::PAUSE_REASON: "delay",
    });
    pool.metadata.annotations = serde_json::from_value(named).unwrap();
}

#[test]
fn a_pool_with_nothing_pending_is_unpaused() {
    let mut world = ended();
    lock(&mut world, "ns/up", "uid-up");
    pause(&mut world, true, "ns/up");
    let pool = "night".to_owned();
    assert_eq!(actions_of(&next(&world).unwrap()), [Action::UnpausePool { pool }]);
}

/// Its nodes would reboot now, outside of any window.
#[test]
fn a_pool_with_pending_changes_stays_paused_and_is_told_of() {
    let mut world = ended();
    lock(&mut world, "ns/up", "uid-up");
    pause(&mut world, true, "ns/up");
    let pool = world
        .pools
        .iter_mut()
        .find(|p| p.metadata.name.as_deref() == Some("night"))
        .unwrap();
    pool.spec.configuration.name = "rendered-night-9".to_owned();
    assert_eq!(actions_of(&next(&world).unwrap()), [Action::ReleaseLock]);
    let left = left_paused(&world, "ns");
    assert!(left[0].contains("oc patch machineconfigpool night"), "{left:?}");
    assert_eq!(left_paused(&world, "other"), Vec::<String>::new());
}

#[test]
fn a_name_that_is_left_on_a_pool_goes() {
    let mut world = ended();
    world.jobs.clear();
    pause(&mut world, false, "ns/gone");
    assert_eq!(next(&world).unwrap(), [Task::DisownPool("night".to_owned())]);
}

#[test]
fn what_ran_a_hook_is_let_go_though_it_still_runs() {
    let mut bench = Bench::new(job("up", json!({})));
    bench.world.hooks = vec![hook("h", "Finish", "Ignore")];
    let mut bench = bench.completed();
    bench.settle_at(45 * 60);
    bench.assert_succeeded();
    let held: Vec<_> = bench
        .world
        .hook_jobs
        .iter()
        .filter(|j| j.metadata.finalizers.is_some())
        .collect();
    assert_eq!(held.len(), 1, "to {NEW}");
    let tasks = next(&bench.world).unwrap();
    assert!(
        tasks.iter().any(
            |t| matches!(t, Task::ReleaseHookRun(run) if run.name == held[0].metadata.name.clone().unwrap())
        ),
        "{tasks:?}"
    );
}
