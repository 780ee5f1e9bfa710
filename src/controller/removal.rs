//! `upgrade-operator release --all`: gives back what the operator holds, so that it can be removed. The rules are in
//! [`crate::lifecycle::removal`].
//!
//! It must not work against an operator that still runs, so it takes the Lease from it: by force, since that one would renew
//! it for ever. The operator loses the lease at its next renewal, and stops writing when its term is over at the latest; that
//! is waited for. Then the lease is kept for a while, so that the operator starts nothing while it is being removed.

#[cfg(test)]
mod tests;

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, PostParams},
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    calls::{CallError, call, found},
    effects::{Effects, params, release_hook_run},
    live, machine_config_pool,
};
use crate::{
    clock::Clock,
    hooks::task_run,
    leader::{DURATION, LEASE, Record},
    lifecycle::{self, Task, removal},
    openshift::machine_config_pool::MachineConfigPool,
    settings::Settings,
    steps::Action,
    world::World,
};

/// Longest time for all of it but the wait for the operator.
const AT_MOST: Duration = Duration::from_secs(90);
/// For how long the lease is taken: longer than it is needed.
const TAKEN: Duration = Duration::from_secs(180);
/// For how long it is kept when all is given back: time to remove the operator, and not too long to install it again.
const KEPT: Duration = Duration::from_secs(30);
/// How long the API server is asked for a kind that it says it has not: one that is starting says so for a moment.
const ABSENT: Duration = Duration::from_secs(15);
/// How long the write that takes the lease may go on once it is to stop: the lease must not stay taken.
const LAST_WRITE: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// The operator cannot be removed, or it is not known whether it can.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something keeps it.
    #[error("the operator must not be removed now: {}", .0.join("; "))]
    Refused(Vec<String>),
    /// A call did not go through.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Objects change all the time.
    #[error("not everything was given back within {} s, the last problem: {problem}; try again", AT_MOST.as_secs())]
    TooLong {
        /// What kept it last.
        problem: String,
    },
    /// All is given back, but the operator may start something before it is removed.
    #[error("everything is given back ({}), but the operator is not kept from starting something anew: {source}; run it again", told(.done))]
    NotKept {
        /// What was done, and what is left for a person.
        done: Vec<String>,
        /// Why the lease could not be written.
        source: CallError,
    },
    /// Somebody ended it, such as the drain of its node.
    #[error(
        "stopped by a signal before everything was given back ({}); what is done stays done: run it again",
        told(.done)
    )]
    Stopped {
        /// What was done before.
        done: Vec<String>,
    },
}

fn told(done: &[String]) -> String {
    if done.is_empty() {
        return "nothing was done".to_owned();
    }
    format!("done: {}", done.join("; "))
}

/// Gives everything back; returns what was done, and what is left for a person.
///
/// Once `stop` completes it ends as soon as the Lease is free again, with [`Error::Stopped`]. That is as safe as a kill: what
/// is left to do is decided anew when it runs again.
pub async fn release_all(
    client: &Client,
    settings: &Settings,
    clock: Clock,
    stop: impl Future<Output = ()>,
) -> Result<Vec<String>, Error> {
    let mut stop = pin!(stop);
    let mut done = Vec::new();
    let reach = tokio::select! {
        biased;
        () = &mut stop => return Err(Error::Stopped { done }),
        reach = first_look(client, settings, clock) => reach?,
    };
    let taken = Seat::take_unless(client, &settings.namespace, clock, stop.as_mut()).await?;
    let Some(seat) = taken else {
        return Err(Error::Stopped { done });
    };
    let work = async {
        seat.until_its_holder_has_stopped().await;
        give_back(client, settings, clock, reach.kinds, &mut done).await
    };
    let outcome = tokio::select! {
        biased;
        () = &mut stop => None,
        outcome = work => Some(outcome),
    };
    let is_given_back = outcome.as_ref().is_some_and(Result::is_ok);
    let freed = seat.leave(is_given_back, clock).await;
    // Why the operator must stay is more than that its Lease could not be given back: that runs out.
    let Some(outcome) = outcome else {
        return Err(Error::Stopped { done });
    };
    let left = outcome?;
    done.extend(left);
    done.extend(reach.unread);
    match freed {
        Ok(()) => Ok(done),
        Err(source) => Err(Error::NotKept { done, source }),
    }
}

/// Looks without taking the lease from an operator that has work to do.
async fn first_look(client: &Client, settings: &Settings, clock: Clock) -> Result<Reach, Error> {
    let reach = Reach::of(client, &settings.namespace).await?;
    let world = look(client, settings, reach.kinds).await?;
    removal(&world, settings, clock.now()).map_err(Error::Refused)?;
    Ok(reach)
}

/// What of the cluster can be looked at.
struct Reach {
    kinds: live::Kinds,
    /// Kinds that are not looked at, though there may be objects of ours: each with why, and what to do.
    unread: Vec<String>,
}

impl Reach {
    async fn of(client: &Client, namespace: &str) -> Result<Self, CallError> {
        let mut unread = Vec::new();
        let pools = ApiResource::erase::<MachineConfigPool>(&());
        let pools = Api::all_with(client.clone(), &pools);
        let pools = is_there_after_all("list MachineConfigPools", &pools).await?;
        if !pools {
            unread.push(UNREAD_POOLS.to_owned());
        }
        let runs = Api::namespaced_with(client.clone(), namespace, &task_run::resource());
        let task_runs = match live::is_there("list the TaskRuns of hooks", &runs).await {
            Ok(true) => live::TaskRuns::Asked,
            Ok(false) => live::TaskRuns::Absent,
            Err(error) => {
                let said = error.forbidden().ok_or(error)?;
                unread.push(unread_task_runs(namespace, &said));
                live::TaskRuns::Absent
            }
        };
        let kinds = live::Kinds { pools, task_runs };
        Ok(Self { kinds, unread })
    }
}

/// Whether the API server has the kind, or has it within a while.
async fn is_there_after_all(attempt: &str, api: &Api<DynamicObject>) -> Result<bool, CallError> {
    let deadline = Instant::now() + ABSENT;
    while !live::is_there(attempt, api).await? {
        if timeout_at(deadline, sleep(LOOK)).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

const UNREAD_POOLS: &str = "MachineConfigPools were not looked at, for the API server has no such kind. Has this cluster such pools, \
    the API server may be starting, and pools may stay paused: run this again once `oc get machineconfigpools` shows them";

fn unread_task_runs(namespace: &str, said: &str) -> String {
    format!(
        "TaskRuns were not looked at, for they may not be read ({said}). Is a hook a Tekton Task, its TaskRun may still have a \
         finalizer, and cannot be deleted then: run this again as a user who may read and patch TaskRuns in namespace {namespace}"
    )
}

/// Carries out what there is to do, and notes it in `done`; returns what is left for a person.
async fn give_back(
    client: &Client,
    settings: &Settings,
    clock: Clock,
    kinds: live::Kinds,
    done: &mut Vec<String>,
) -> Result<Vec<String>, Error> {
    let deadline = Instant::now() + AT_MOST;
    let mut problem = "none".to_owned();
    loop {
        let pass = pass(client, settings, clock, kinds, done);
        match timeout_at(deadline, pass).await {
            Err(_) => return Err(Error::TooLong { problem }),
            Ok(Ok(None)) => {}
            Ok(Ok(Some(left))) => return Ok(left),
            Ok(Err(Error::Call(error))) if error.is_conflict() => problem = error.to_string(),
            Ok(Err(error)) => return Err(error),
        }
        if timeout_at(deadline, sleep(LOOK)).await.is_err() {
            return Err(Error::TooLong { problem });
        }
    }
}

/// One look and what follows from it; what is left once there is nothing more to do.
async fn pass(
    client: &Client,
    settings: &Settings,
    clock: Clock,
    kinds: live::Kinds,
    done: &mut Vec<String>,
) -> Result<Option<Vec<String>>, Error> {
    let world = look(client, settings, kinds).await?;
    let now = clock.now();
    let tasks = removal(&world, settings, now).map_err(Error::Refused)?;
    if tasks.is_empty() {
        return Ok(Some(lifecycle::left_paused(&world, &settings.namespace)));
    }
    for task in &tasks {
        carry_out(client, settings, &world, task).await?;
        let said = describe(task);
        if !done.contains(&said) {
            done.push(said);
        }
    }
    Ok(None)
}

async fn look(client: &Client, settings: &Settings, kinds: live::Kinds) -> Result<World, CallError> {
    live::refresh(client, &settings.namespace, World::default(), kinds).await
}

async fn carry_out(
    client: &Client,
    settings: &Settings,
    world: &World,
    task: &Task,
) -> Result<(), CallError> {
    match task {
        Task::GiveBack { job, decision } => {
            let Some(job) = world.job(job).cloned() else {
                return Ok(());
            };
            let has_news = job.status.as_ref() != Some(&decision.status);
            let mut effects = Effects { client, world, job };
            if has_news {
                effects.write_status(&decision.status).await?;
            }
            for action in &decision.actions {
                effects.carry_out(action).await?;
            }
            Ok(())
        }
        Task::ReleaseHookRun(run) => release_hook_run(client, &settings.namespace, world, run).await,
        Task::DisownPool(name) => match world.pool(name) {
            Some(pool) => machine_config_pool::disown(client, pool).await,
            None => Ok(()),
        },
        Task::Unlock => {
            let Some(cluster) = &world.cluster_version else {
                return Ok(());
            };
            super::effects::unlock(client, cluster).await
        }
    }
}

fn describe(task: &Task) -> String {
    match task {
        Task::GiveBack { job, decision } => {
            let is_end = decision.actions.contains(&Action::Unprotect);
            let what = if is_end {
                "let go"
            } else {
                "gives back what it holds"
            };
            format!("UpgradeJob {job}: {what}")
        }
        Task::ReleaseHookRun(run) => format!("{run}: let go"),
        Task::DisownPool(pool) => format!("MachineConfigPool {pool}: the name of a job was removed"),
        Task::Unlock => "ClusterVersion: the lock of a job was removed".to_owned(),
    }
}

/// The lease, in our hands.
struct Seat {
    api: Api<Lease>,
    lease: Lease,
    /// Whether somebody held it who may still be writing.
    is_taken_away: bool,
}

impl Seat {
    /// Takes it from whoever has it.
    async fn take(client: &Client, namespace: &str, clock: Clock) -> Result<Self, CallError> {
        let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
        loop {
            let before = found(format!("read Lease {LEASE}"), api.get(LEASE)).await?;
            let record = before.as_ref().map(Record::from).unwrap_or_default();
            let mut lease = before.unwrap_or_default();
            lease.metadata.name = Some(LEASE.to_owned());
            lease.spec = Some(taken(&record, clock.now()).to_spec());
            match Self::write(&api, &lease).await {
                Ok(lease) => {
                    return Ok(Self {
                        api,
                        lease,
                        is_taken_away: record.holder.is_some(),
                    });
                }
                // Its holder has renewed it meanwhile.
                Err(error) if error.is_conflict() || error.is_already_exists() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes it, unless `stop` completes first. Then `None`, and the lease is free again if the API server answers soon, else
    /// it runs out.
    async fn take_unless(
        client: &Client,
        namespace: &str,
        clock: Clock,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<Self>, CallError> {
        let mut taking = pin!(Self::take(client, namespace, clock));
        tokio::select! {
            biased;
            () = stop => {}
            taken = &mut taking => return taken.map(Some),
        }
        // The write may be under way, and then nobody would give back what it takes.
        if let Ok(Ok(seat)) = timeout(LAST_WRITE, taking).await
            && let Err(error) = seat.leave(false, clock).await
        {
            tracing::warn!(%error, "the Lease stays taken until it runs out");
        }
        Ok(None)
    }

    /// Its former holder writes nothing from then on.
    async fn until_its_holder_has_stopped(&self) {
        if self.is_taken_away {
            sleep(DURATION).await;
        }
    }

    async fn write(api: &Api<Lease>, lease: &Lease) -> Result<Lease, CallError> {
        let params = PostParams {
            field_manager: params().field_manager,
            ..PostParams::default()
        };
        let attempt = format!("take Lease {LEASE} from the operator");
        match lease.resource_version() {
            Some(_) => call(attempt, api.replace(LEASE, &params, lease)).await,
            None => call(attempt, api.create(&params, lease)).await,
        }
    }

    /// Keeps it from the operator for a while, or has it go on at once.
    async fn leave(mut self, is_kept: bool, clock: Clock) -> Result<(), CallError> {
        let mut record = Record::from(&self.lease);
        record.holder = record.holder.filter(|_| is_kept);
        record.seconds = i32::try_from(KEPT.as_secs()).ok();
        record.renewed = Some(clock.now());
        self.lease.spec = Some(record.to_spec());
        Self::write(&self.api, &self.lease).await.map(drop)
    }
}

fn taken(before: &Record, now: Timestamp) -> Record {
    Record {
        holder: Some("upgrade-operator release".to_owned()),
        seconds: i32::try_from(TAKEN.as_secs()).ok(),
        acquired: Some(now),
        renewed: Some(now),
        transitions: before.transitions.saturating_add(1),
    }
}
