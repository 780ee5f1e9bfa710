//! `upgrade-operator release --all`: gives back what the operator holds, so that it can be removed. The rules are in
//! [`crate::lifecycle::removal`].
//!
//! It must not work against an operator that still runs, so it takes the Lease from it: by force, since that one would renew
//! it for ever. The operator loses the lease at its next renewal, and stops writing when its term is over at the latest; that
//! is waited for. Then the lease is kept for a while, so that the operator starts nothing while it is being removed.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    calls::{CallError, call, found},
    effects::{Effects, params, release_hook_run},
    live, machine_config_pool,
};
use crate::{
    clock::Clock,
    leader::{DURATION, LEASE, Record},
    lifecycle::{self, Task, removal},
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
}

/// Gives everything back; returns what was done, and what is left for a person.
pub async fn release_all(client: &Client, settings: &Settings, clock: Clock) -> Result<Vec<String>, Error> {
    // First without taking the lease from an operator that has work to do.
    let world = look(client, settings).await?;
    removal(&world, settings, clock.now()).map_err(Error::Refused)?;
    let lease = Seat::take(client, &settings.namespace, clock).await?;
    let outcome = give_back(client, settings, clock).await;
    let left = lease.leave(outcome.is_ok(), clock).await;
    // Why the operator must stay is more than that its Lease could not be given back: that runs out.
    let done = outcome?;
    left?;
    Ok(done)
}

async fn give_back(client: &Client, settings: &Settings, clock: Clock) -> Result<Vec<String>, Error> {
    let deadline = Instant::now() + AT_MOST;
    let mut done = Vec::new();
    let mut problem = "none".to_owned();
    loop {
        let pass = pass(client, settings, clock, &mut done);
        match timeout_at(deadline, pass).await {
            Err(_) => return Err(Error::TooLong { problem }),
            Ok(Ok(None)) => {}
            Ok(Ok(Some(left))) => {
                done.extend(left);
                return Ok(done);
            }
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
    done: &mut Vec<String>,
) -> Result<Option<Vec<String>>, Error> {
    let world = look(client, settings).await?;
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

async fn look(client: &Client, settings: &Settings) -> Result<World, CallError> {
    let refresh = |has_tekton| live::refresh(client, &settings.namespace, World::default(), has_tekton);
    match refresh(true).await {
        // Without Tekton, or the right to it, there are no TaskRuns of ours. Anything else is told by the second look.
        Err(error) if error.is_no_such_kind() || error.forbidden().is_some() => refresh(false).await,
        world => world,
    }
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
}

impl Seat {
    /// Takes it from whoever has it, and waits until that one has stopped.
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
                    if record.holder.is_some() {
                        sleep(DURATION).await;
                    }
                    return Ok(Self { api, lease });
                }
                // Its holder has renewed it meanwhile.
                Err(error) if error.is_conflict() || error.is_already_exists() => {}
                Err(error) => return Err(error),
            }
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
