//! Removing the operator: whether it may go now, and what it still holds (design 10). Nothing of it may keep an object once
//! nobody is there who could let it go.
//!
//! What a job gives back is decided as if the job were deleted, see [`super::deletion`]: so a pool with pending changes stays
//! paused, since its nodes would reboot at once.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Decision, EngineState, Input, RunState, Stage, deletion, draft::Draft, is_protected, lock, owner,
};
use crate::{
    api::{UpgradeJob, annotations},
    drain::Drains,
    engine::Templates,
    health::answers::Answers,
    hooks::{
        hook_run::{HookRun, RunName},
        pods::HookPods,
    },
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
    settings::Settings,
    unreadable::Kind,
    world::World,
};

/// What is to be done before the operator may go.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Carry out what a job gives back: status first, then actions.
    GiveBack {
        /// The job.
        job: String,
        /// What it gives back; without reports.
        decision: Box<Decision>,
    },
    /// Remove our finalizer from what ran a hook.
    ReleaseHookRun(RunName),
    /// Remove the name of a job from a pool that is not paused.
    DisownPool(String),
    /// Remove the lock of a job that is gone, or has nothing to give back, from the ClusterVersion.
    Unlock,
}

/// Decides what is to be done next; nothing = the operator may go.
///
/// The error says what keeps it: jobs that run, those that cannot be read, and those whose paused pools cannot be seen, each
/// with what to do.
pub fn removal(world: &World, settings: &Settings, now: Timestamp) -> Result<Vec<Task>, Vec<String>> {
    let obstacles = obstacles(world, &settings.namespace);
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    let given_back = world
        .jobs
        .iter()
        .filter(|job| is_protected(job))
        .map(|job| give_back(world, settings, job, now));
    let mut tasks: Vec<Task> = given_back.collect();
    let runs = world.hook_runs(now);
    let held: BTreeSet<RunName> = runs.iter().filter(|r| r.is_held()).map(HookRun::name).collect();
    tasks.extend(held.into_iter().map(Task::ReleaseHookRun));
    // What a job holds it gives back itself; what is left then is of nobody.
    if tasks.iter().all(|t| !matches!(t, Task::GiveBack { .. })) {
        let namespace = &settings.namespace;
        let stale = |pool: &&MachineConfigPool| owner::is_stale(world, namespace, pool);
        let pools = world.pools.iter().filter(stale);
        tasks.extend(pools.map(|pool| Task::DisownPool(pool.name_any())));
        if world
            .cluster_version
            .as_ref()
            .is_some_and(|c| names_a_job_of(c, namespace))
        {
            tasks.push(Task::Unlock);
        }
    }
    Ok(tasks)
}

/// Pools that stay paused in the name of a job of this namespace, each with the command that a person lifts it by.
pub fn left_paused(world: &World, namespace: &str) -> Vec<String> {
    let pools = world.pools.iter().filter(|pool| pool.spec.paused);
    pools
        .filter_map(|pool| {
            let owner = pool.annotations().get(annotations::UPGRADE_JOB)?;
            let (of, _) = owner.split_once('/')?;
            let name = pool.name_any();
            (of == namespace).then(|| {
                format!(
                    "MachineConfigPool {name} stays paused, as UpgradeJob {owner} left it: its nodes may reboot when it is unpaused. \
                     By hand: oc patch machineconfigpool {name} --type merge -p '{{\"spec\":{{\"paused\":false}}}}'"
                )
            })
        })
        .collect()
}

fn obstacles(world: &World, namespace: &str) -> Vec<String> {
    let running = world.jobs.iter().filter(|job| is_running(job)).map(|job| {
        let phase = job
            .status
            .as_ref()
            .and_then(|s| s.message.clone())
            .unwrap_or_default();
        let name = job.name_any();
        format!("UpgradeJob {name} is running ({phase}): wait until it has ended, or delete it")
    });
    let unreadable = world.unreadable_of(Kind::UpgradeJob).map(|job| {
        let name = job.name();
        format!(
            "UpgradeJob {name} cannot be read and may be running ({}): mend or delete it",
            job.problem
        )
    });
    let unknown = world
        .cluster_version
        .is_none()
        .then(|| "the ClusterVersion was not found: whether a job holds it is not known".to_owned());
    let unseen = world
        .jobs
        .iter()
        .filter_map(|job| pools_out_of_sight(world, namespace, job));
    running.chain(unreadable).chain(unknown).chain(unseen).collect()
}

/// A job that paused pools, where none at all is to be seen. Without them nothing is unpaused, and nobody is told of them
/// once the job is let go.
fn pools_out_of_sight(world: &World, namespace: &str, job: &UpgradeJob) -> Option<String> {
    let paused = job.status.as_ref().map(|s| &s.paused_pools)?;
    if !world.pools.is_empty() || paused.is_empty() || !is_protected(job) || is_running(job) {
        return None;
    }
    let pools: Vec<&str> = paused.iter().map(|pool| pool.name.as_str()).collect();
    let (name, pools) = (job.name_any(), pools.join(", "));
    Some(format!(
        "UpgradeJob {name} has paused MachineConfigPools ({pools}), and the API server shows none: see whether `oc get \
         machineconfigpools` does, and try again then. If they are gone for good, let the job go by hand: oc -n {namespace} patch \
         upgradejob {name} --type merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"
    ))
}

/// Started, and without an outcome.
fn is_running(job: &UpgradeJob) -> bool {
    match Stage::of(job) {
        Stage::Started => true,
        Stage::Pending | Stage::Finished => false,
        Stage::Deleting => is_protected(job) && job.is_started() && !job.is_finished(),
    }
}

fn give_back(world: &World, settings: &Settings, job: &UpgradeJob, now: Timestamp) -> Task {
    let mut leaving = job.clone();
    leaving
        .metadata
        .deletion_timestamp
        .get_or_insert(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    let (drains, hook_pods, templates) = (Drains::default(), HookPods::default(), Templates::default());
    let engine = EngineState::Missing("the operator is being removed".to_owned());
    let mut draft = Draft::new(Input {
        world,
        answers: &Answers::NobodyToAsk,
        drains: &drains,
        hook_pods: &hook_pods,
        templates: &templates,
        job: &leaving,
        run: &RunState::Absent,
        others: &[],
        engine: &engine,
        settings,
        now,
    });
    deletion::decide(&mut draft);
    Task::GiveBack {
        job: job.name_any(),
        decision: Box::new(draft.untouched()),
    }
}

fn names_a_job_of(cluster: &ClusterVersion, namespace: &str) -> bool {
    lock::holder_of(cluster)
        .and_then(|(key, _)| key.split_once('/'))
        .is_some_and(|(of, _)| of == namespace)
}
