//! The only effects: watches, one reconciler a kind, writes.
//!
//! One loop decides for all objects: it wakes at every change that a watch reports and at the earliest instant that a
//! decision named, takes a snapshot, and passes over configs and jobs one after the other. There are few of them, a pass
//! without changes costs microseconds, and two passes can never work against each other.

mod calls;
mod clocks;
mod cluster_version;
mod drains;
mod effects;
mod events;
mod gate;
mod hook_pods;
mod journal;
mod leader;
mod live;
mod live_texts;
mod machine_config_pool;
mod mirror;
mod node_force_drain;
mod others;
mod peer;
pub mod pod_selector;
pub mod prometheus;
pub mod removal;
mod requests;
mod standing;
mod stores;
mod unreadable;
mod upgrade_config;
mod upgrade_job;
mod upgrade_job_hook;
mod upgrade_suspension_window;
mod workflows;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::{Client, ResourceExt};
use tokio::{
    sync::{Notify, oneshot, watch},
    task::JoinSet,
    time::Instant,
};

use calls::CallError;
use clocks::Clocks;
use gate::Gate;
use live_texts::LiveTexts;
use prometheus::Asker;
use standing::Surroundings;
pub use stores::Stores;

use crate::{clock::Clock, outside::Outside, overlay, settings::Settings, world::World};

/// What every reconciler has.
pub struct Context {
    /// The client; without retries of its own.
    pub client: Client,
    /// The copies.
    pub stores: Stores,
    /// The operator's settings.
    pub settings: Settings,
    /// The clock.
    pub clock: Clock,
    surroundings: Surroundings,
}

impl Context {
    /// Now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What is known at this moment beside the cluster's objects.
    fn outside(&self) -> Outside {
        self.surroundings.outside()
    }

    /// A snapshot made from the copies.
    fn world(&self) -> World {
        World {
            outside: self.outside(),
            ..self.stores.world()
        }
    }

    /// A snapshot with everything read again that writes rest on.
    async fn fresh(&self, world: &World) -> Result<World, CallError> {
        let kinds = live::Kinds {
            pools: self.stores.may_have_pools(),
            task_runs: if self.stores.has_task_runs() {
                live::TaskRuns::AskedOrCopied
            } else {
                live::TaskRuns::Absent
            },
        };
        let fresh = live::refresh(&self.client, &self.settings.namespace, world.clone(), kinds).await;
        if fresh.as_ref().is_err_and(CallError::is_no_such_kind) {
            // The only kind of these that may be removed. Its watch may not tell that for minutes.
            self.stores.task_runs_not_found();
        }
        let fresh = fresh?;
        Ok(World {
            outside: self.outside(),
            ..fresh
        })
    }

    /// What is missing before decisions can be made.
    fn not_ready(&self) -> Option<String> {
        self.stores.not_ready().or_else(|| self.surroundings.not_ready())
    }
}

/// The clocks are compared at least this often (design: "Clocks"), where anything is looked at that often.
const COMPARE_CLOCKS: Duration = Duration::from_secs(60);
/// Changes that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(50);

/// Watches and reconciles until `shutdown` completes. `stores` are filled, for others to look at as well; `ready` is told what
/// is missing, or `None` once nothing is.
///
/// With leader election it writes only while it holds the lease, and otherwise keeps its watches warm. A pass that is under
/// way when the lease is lost is dropped where it is, as if the process had been killed.
pub async fn run(
    client: Client,
    settings: Settings,
    clock: Clock,
    prometheus: Asker,
    stores: Stores,
    ready: impl Fn(Option<String>),
    shutdown: impl Future<Output = ()>,
) {
    let mut tasks = JoinSet::new();
    let changed = Arc::new(Notify::new());
    let clocks = Clocks::new(clock, &changed);
    let client = clocks.watch(&stores.requests.watch(&client));
    let (warm, is_warm) = watch::channel(false);
    let (stop, election) = Election::start(&client, &settings, clock, is_warm);
    let client = election.gate.guard(&client);
    stores.start(&client, &settings, &changed, &mut tasks);
    let (tell, peer) = watch::channel(peer::unknown());
    let watch_config = stores::watch_config(&settings).watch;
    tasks.spawn(peer::watch(
        client.clone(),
        watch_config,
        tell,
        Arc::clone(&changed),
    ));
    let every = Duration::try_from(settings.heartbeat).unwrap_or_default();
    tasks.spawn(
        clocks
            .clone()
            .keep_measured(client.clone(), every.max(COMPARE_CLOCKS)),
    );
    let surroundings = Surroundings { clocks, peer };
    stores.standing.runs(election.gate.clone(), surroundings.clone());
    let ctx = Context {
        client,
        stores,
        settings,
        clock,
        surroundings,
    };
    let mut watching = Watching {
        ctx: &ctx,
        changed: &changed,
        ready,
        warm,
        prometheus,
    };
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let term = tokio::select! {
            biased;
            () = &mut shutdown => break,
            term = watching.follow(&election.gate) => term,
        };
        tokio::select! {
            biased;
            () = election.gate.closed(term) => {
                tracing::warn!(
                    "the lease was not renewed in time, or another process has it: this one writes nothing until it holds it again"
                );
            }
            () = watching.lead(&mut shutdown) => break,
        }
    }
    tasks.shutdown().await;
    // Nothing is written any more, so the next one may.
    drop(stop);
    election.ended().await;
}

/// The election that runs beside the loop.
struct Election {
    gate: Gate,
    task: JoinSet<()>,
}

impl Election {
    /// Dropping what comes first ends it. `warm`: whether everything is listed.
    fn start(
        client: &Client,
        settings: &Settings,
        clock: Clock,
        warm: watch::Receiver<bool>,
    ) -> (oneshot::Sender<()>, Self) {
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        let gate = match &settings.identity {
            None => Gate::OPEN,
            Some(identity) => {
                let (elector, leadership) =
                    leader::Elector::new(client.clone(), &settings.namespace, identity, clock, warm);
                task.spawn(elector.run(async { drop(stopped.await) }));
                Gate::new(leadership)
            }
        };
        (stop, Self { gate, task })
    }

    async fn ended(mut self) {
        while self.task.join_next().await.is_some() {}
    }
}

/// What there is with and without the lease: watches that are warm, and somebody who wants to know that.
struct Watching<'a, R> {
    ctx: &'a Context,
    changed: &'a Notify,
    ready: R,
    /// Told whether everything is listed: before that, others lead better.
    warm: watch::Sender<bool>,
    prometheus: Asker,
}

impl<R: Fn(Option<String>)> Watching<'_, R> {
    /// Writes nothing until it may; returns the term in which it may.
    async fn follow(&self, gate: &Gate) -> u64 {
        let mut opened = std::pin::pin!(gate.opened());
        loop {
            tokio::select! {
                biased;
                term = &mut opened => return term,
                () = self.changed.notified() => {
                    (self.ready)(self.ctx.not_ready());
                    if self.ctx.stores.not_listed().is_none() {
                        self.warm.send_replace(true);
                    }
                }
            }
        }
    }

    /// Passes over everything until `shutdown` completes. A pass that has begun is finished first.
    async fn lead(&mut self, shutdown: &mut (impl Future<Output = ()> + Unpin)) {
        let ctx = self.ctx;
        let heartbeat = Duration::try_from(ctx.settings.heartbeat).unwrap_or_default();
        // What was remembered in an earlier term may be wrong by now.
        let mut controller = Loop {
            ctx,
            retries: Retries::default(),
            texts: LiveTexts::default(),
            managed_version: overlay::Memory::default(),
            unreadable: unreadable::Seen::default(),
            prometheus: &mut self.prometheus,
            drains: drains::Looker::default(),
            hook_pods: hook_pods::PodLooker::default(),
            force_drains: node_force_drain::Memory::default(),
        };
        loop {
            let missing = ctx.not_ready();
            (self.ready)(missing.clone());
            let wake = if missing.is_none() {
                Box::pin(controller.pass()).await
            } else {
                None
            };
            let pause = wake.map_or(heartbeat, |t| until(t, ctx.now())).min(heartbeat);
            tokio::select! {
                biased;
                () = &mut *shutdown => break,
                () = self.changed.notified() => tokio::time::sleep(SETTLE).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

fn until(t: Timestamp, now: Timestamp) -> Duration {
    // One millisecond late rather than early: at the instant itself everything due at it must be due.
    Duration::try_from(t.duration_since(now)).unwrap_or_default() + Duration::from_millis(1)
}

struct Loop<'a> {
    ctx: &'a Context,
    retries: Retries,
    texts: LiveTexts,
    managed_version: overlay::Memory,
    unreadable: unreadable::Seen,
    prometheus: &'a mut Asker,
    drains: drains::Looker,
    hook_pods: hook_pods::PodLooker,
    force_drains: node_force_drain::Memory,
}

impl Loop<'_> {
    /// One pass over everything; returns when to look again.
    async fn pass(&mut self) -> Option<Timestamp> {
        let mut wakes: Vec<Timestamp> = Vec::new();
        let world = self.ctx.world();
        let is_held = world.outside.peer.is_some();
        if !is_held {
            wakes.extend(self.pass_over_the_rest(&world).await);
        }
        for config in &world.configs {
            let key = format!("UpgradeConfig {}", config.name_any());
            let work = async || Box::pin(upgrade_config::reconcile(self.ctx, &world, config)).await;
            wakes.extend(self.retries.attempt(self.ctx, &key, work).await);
        }
        self.drains.see(&world, world.outside.careful(self.ctx.now()));
        // Jobs that were just created are seen by the next pass: their watch wakes the loop.
        for job in &world.jobs {
            let key = format!("UpgradeJob {}", job.name_any());
            let mut memory = upgrade_job::Memory {
                texts: &mut self.texts,
                prometheus: &mut *self.prometheus,
                drains: &mut self.drains,
                hook_pods: &mut self.hook_pods,
            };
            let work = async || Box::pin(upgrade_job::reconcile(self.ctx, &mut memory, &world, job)).await;
            wakes.extend(self.retries.attempt(self.ctx, &key, work).await);
        }
        if !is_held {
            wakes.extend(self.abandoned_hook_runs(&world).await);
        }
        wakes.into_iter().min()
    }

    /// One pass over everything but configs and jobs; returns when to look again.
    async fn pass_over_the_rest(&mut self, world: &World) -> Vec<Timestamp> {
        let mut wakes = Vec::new();
        for object in &world.unreadable {
            let key = format!("{:?} {}", object.kind, object.name());
            let seen = &mut self.unreadable;
            let work = async || unreadable::reconcile(self.ctx, seen, object).await.map(|()| None);
            wakes.extend(self.retries.attempt(self.ctx, &key, work).await);
        }
        // Before the configs: a version is chosen in the channel of its time.
        for managed in &world.managed_versions {
            let key = format!("ClusterVersion {}", managed.name_any());
            let memory = &mut self.managed_version;
            let work = async || cluster_version::reconcile(self.ctx, memory, world, managed).await;
            wakes.extend(self.retries.attempt(self.ctx, &key, work).await);
        }
        for window in &world.windows {
            let key = format!("UpgradeSuspensionWindow {}", window.name_any());
            let work = async || {
                let done = upgrade_suspension_window::reconcile(self.ctx, world, window).await;
                done.map(|()| None)
            };
            wakes.extend(self.retries.attempt(self.ctx, &key, work).await);
        }
        for hook in &world.hooks {
            let key = format!("UpgradeJobHook {}", hook.name_any());
            let work = async || upgrade_job_hook::reconcile(self.ctx, hook).await.map(|()| None);
            wakes.extend(self.retries.attempt(self.ctx, &key, work).await);
        }
        for force_drain in self.ctx.stores.force_drains() {
            let key = format!("NodeForceDrain {}", force_drain.name_any());
            let (memory, nodes) = (&mut self.force_drains, &world.nodes);
            let work =
                async || Box::pin(node_force_drain::reconcile(self.ctx, memory, nodes, &force_drain)).await;
            wakes.extend(self.retries.attempt(self.ctx, &key, work).await);
        }
        for pool in &world.pools {
            let key = format!("MachineConfigPool {}", pool.name_any());
            let work = async || machine_config_pool::reconcile(self.ctx, world, pool).await;
            wakes.extend(self.retries.attempt(self.ctx, &key, work).await);
        }
        wakes
    }

    /// Jobs and TaskRuns of hooks whose UpgradeJob is gone: nobody will read their end, so they may go.
    async fn abandoned_hook_runs(&mut self, world: &World) -> Vec<Timestamp> {
        let ctx = self.ctx;
        let mut wakes = Vec::new();
        for run in crate::hooks::tracker::abandoned(&world.job_metadata(), &world.hook_runs(ctx.now())) {
            let work = async || {
                let done = effects::release_hook_run(&ctx.client, &ctx.settings.namespace, world, &run);
                done.await.map(|()| None)
            };
            wakes.extend(self.retries.attempt(ctx, &run.to_string(), work).await);
        }
        wakes
    }
}

fn in_future(now: Timestamp, delay: Duration) -> Timestamp {
    SignedDuration::try_from(delay)
        .ok()
        .and_then(|d| now.checked_add(d).ok())
        .unwrap_or(Timestamp::MAX)
}

/// When objects that failed are tried again: 0.2 s doubling to 15 s, so that an API server that is back finds us soon.
#[derive(Default)]
struct Retries(BTreeMap<String, (u32, Instant)>);

/// An error of a reconciler.
trait Failure: std::fmt::Display {
    /// Somebody else wrote first: nothing is wrong.
    fn is_conflict(&self) -> bool;
}

impl Failure for CallError {
    fn is_conflict(&self) -> bool {
        Self::is_conflict(self)
    }
}

impl Failure for upgrade_job::Error {
    fn is_conflict(&self) -> bool {
        Self::is_conflict(self)
    }
}

impl Retries {
    /// Does `work` on the object `key`, unless it failed a moment ago; returns when to look again.
    async fn attempt<E: Failure>(
        &mut self,
        ctx: &Context,
        key: &str,
        work: impl AsyncFnOnce() -> Result<Option<Timestamp>, E>,
    ) -> Option<Timestamp> {
        if let Some(later) = self.not_before(key) {
            return Some(in_future(ctx.now(), later));
        }
        let error = match Box::pin(work()).await {
            Ok(wake) => {
                self.succeeded(key);
                return wake;
            }
            Err(error) => error,
        };
        if error.is_conflict() {
            tracing::debug!(object = key, %error, "somebody else wrote first; deciding again");
        } else {
            tracing::warn!(object = key, %error, "trying again");
        }
        Some(in_future(ctx.now(), self.failed(key)))
    }

    fn not_before(&self, key: &str) -> Option<Duration> {
        let (_, at) = self.0.get(key)?;
        at.checked_duration_since(Instant::now()).filter(|d| !d.is_zero())
    }

    fn succeeded(&mut self, key: &str) {
        self.0.remove(key);
    }

    fn failed(&mut self, key: &str) -> Duration {
        let count = self.0.get(key).map_or(0, |(n, _)| *n);
        let delay = Duration::from_millis(200 << count.min(8)).min(Duration::from_secs(15));
        self.0.insert(key.to_owned(), (count + 1, Instant::now() + delay));
        delay
    }
}
