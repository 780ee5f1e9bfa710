//! Runs [`super::openshift`] against an API server: watches, decides, writes.
//!
//! A write that fails is not repeated as such: the next decision is made from what is there then.

use std::{fmt::Debug, time::Duration};

use futures::{
    Stream, StreamExt, TryStreamExt,
    stream::{BoxStream, select_all},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        utils::Backoff,
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tracing::{debug, warn};

use super::{
    openshift::{
        self, Cluster, SIMULATED, Settings, faults,
        initial::{self, Initial},
        write::{Target, Write},
    },
    writer::Writer,
};
use crate::{
    clock::Clock,
    openshift::{
        cluster_operator::ClusterOperator,
        cluster_version::{self, ClusterVersion},
        infrastructure::Infrastructure,
        machine_config::MachineConfig,
        machine_config_pool::MachineConfigPool,
    },
};

/// How long to wait for the watches to show what was just written.
pub(super) const AFTER_A_WRITE: Duration = Duration::from_millis(100);
/// How long to wait after the API server did not answer, or refused something.
pub(super) const AFTER_A_FAILURE: Duration = Duration::from_secs(1);
/// A call that takes longer is given up.
pub(super) const CALL: Duration = Duration::from_secs(5);

/// How long a watch stays open in simulated time.
pub(super) const SIMULATED_WATCH_SECONDS: u32 = 86_413;

/// What the watches have seen.
struct Stores {
    cluster_versions: Store<ClusterVersion>,
    operators: Store<ClusterOperator>,
    pools: Store<MachineConfigPool>,
    machine_configs: Store<MachineConfig>,
    nodes: Store<Node>,
    pods: Store<Pod>,
    infrastructures: Option<Store<Infrastructure>>,
    controls: Store<ConfigMap>,
    admin_acks: Store<ConfigMap>,
}

pub(super) type Changes = BoxStream<'static, ()>;

impl Stores {
    fn watch(client: &Client, with_infrastructure: bool, clock: Clock) -> (Self, Changes) {
        let mut changes = Vec::new();
        let all = watch_config(watcher::Config::default(), clock);
        let controls = Api::<ConfigMap>::namespaced(client.clone(), faults::NAMESPACE);
        let acks = Api::<ConfigMap>::namespaced(client.clone(), openshift::CONFIG_NAMESPACE);
        let named = |name: &str| all.clone().fields(&format!("metadata.name={name}"));
        let stores = Self {
            cluster_versions: watch(Api::all(client.clone()), all.clone(), &mut changes),
            operators: watch(Api::all(client.clone()), all.clone(), &mut changes),
            pools: watch(Api::all(client.clone()), all.clone(), &mut changes),
            machine_configs: watch(Api::all(client.clone()), all.clone(), &mut changes),
            nodes: watch(
                Api::all(client.clone()),
                all.clone().labels(SIMULATED),
                &mut changes,
            ),
            pods: watch(Api::all(client.clone()), all.clone(), &mut changes),
            infrastructures: with_infrastructure
                .then(|| watch(Api::all(client.clone()), all.clone(), &mut changes)),
            controls: watch(controls, named(faults::NAME), &mut changes),
            admin_acks: watch(acks, named(openshift::ADMIN_ACKS), &mut changes),
        };
        (stores, select_all(changes).boxed())
    }

    fn are_ready(&self) -> bool {
        fn is_ready<K>(store: &Store<K>) -> bool
        where
            K: reflector::Lookup<DynamicType = ()> + Clone + 'static,
        {
            futures::FutureExt::now_or_never(store.wait_until_ready()).is_some_and(|r| r.is_ok())
        }
        is_ready(&self.cluster_versions)
            && is_ready(&self.operators)
            && is_ready(&self.pools)
            && is_ready(&self.machine_configs)
            && is_ready(&self.nodes)
            && is_ready(&self.pods)
            && self.infrastructures.as_ref().is_none_or(is_ready)
            && is_ready(&self.controls)
            && is_ready(&self.admin_acks)
    }

    fn snapshot(&self) -> Cluster {
        Cluster {
            cluster_version: find(&self.cluster_versions, cluster_version::NAME),
            operators: sorted(&self.operators),
            pools: sorted(&self.pools),
            machine_configs: sorted(&self.machine_configs),
            nodes: sorted(&self.nodes),
            pods: sorted(&self.pods),
            infrastructure: self
                .infrastructures
                .as_ref()
                .and_then(|s| find(s, crate::openshift::infrastructure::NAME)),
            controls: find(&self.controls, faults::NAME),
            admin_acks: find(&self.admin_acks, openshift::ADMIN_ACKS),
        }
    }
}

/// A watch that broke is opened again every second: OpenShift's operators are back soon after their API server, and a
/// test must not wait half a minute for them.
pub(super) struct Steady;

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(AFTER_A_FAILURE)
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}

pub(super) fn watch<K>(api: Api<K>, config: watcher::Config, changes: &mut Vec<Changes>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let writer = reflector::store::Writer::<K>::default();
    let store = writer.as_reader();
    let events = watcher(api, config)
        .backoff(Steady)
        .reflect(writer)
        .inspect_err(|error| debug!("watch of {}: {error}", K::plural(&())))
        .map(drop);
    changes.push(events.boxed());
    store
}

pub(super) fn sorted<K>(store: &Store<K>) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let mut all = store.state();
    // By reference: this is done at each change of the cluster, and there are many configurations after some years.
    all.sort_by(|a, b| {
        let (a, b) = (a.meta(), b.meta());
        (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name))
    });
    all.iter().map(|o| (**o).clone()).collect()
}

fn find<K>(store: &Store<K>, name: &str) -> Option<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.find(|o| o.name_any() == name).map(|o| (*o).clone())
}

/// What is simulated, and on which clock.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// What the cluster is like in the beginning.
    pub initial: Initial,
    /// How it behaves.
    pub settings: Settings,
    /// Whether there are pods to be drained.
    pub with_pods: bool,
    /// The clock.
    pub clock: Clock,
    /// How long to wait for anything, at most.
    pub idle: Duration,
}

impl Simulation {
    /// `idle` against a real API server: what a lost event may cost.
    pub const IDLE: Duration = Duration::from_secs(5);
}

/// What who simulates is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The initial cluster is there. Told once.
    Ready,
    /// The API server is being updated, and should answer nobody until then. Against a real one this has no meaning.
    ApiServerAway(Timestamp),
}

/// Simulates until dropped.
pub async fn run(client: Client, simulation: &Simulation, mut on_news: impl FnMut(News)) {
    let Simulation {
        initial,
        settings,
        with_pods,
        clock,
        idle,
    } = simulation;
    let (stores, mut changes) = Stores::watch(&client, initial.topology.is_some(), *clock);
    let mut writer = Writer::new(client.clone());
    let mut problems = Vec::new();
    let mut is_ready = false;
    let mut workload = if *with_pods {
        initial::workload(initial)
    } else {
        Vec::new()
    };
    loop {
        let mut wait = *idle;
        if !workload.is_empty() {
            wait = AFTER_A_FAILURE;
            if writer.create_all(&workload).await {
                workload.clear();
            }
        }
        if stores.are_ready() {
            let (cluster, now) = (stores.snapshot(), clock.now());
            let step = openshift::next(&cluster, now, settings);
            if step.problems != problems {
                problems = step.problems;
                for problem in &problems {
                    warn!("{problem}");
                }
            }
            let mut due = step.writes;
            if !is_ready {
                if initial::is_ready(&cluster, initial, now) && due.is_empty() {
                    is_ready = true;
                    on_news(News::Ready);
                } else {
                    due = merge(initial::ensure(&cluster, initial, now), due);
                }
            }
            if let Some(until) = step.api_server_back_at {
                on_news(News::ApiServerAway(until));
            }
            if let Some(at) = step.wake_at {
                wait = wait.min(at.duration_since(now).try_into().unwrap_or_default());
            }
            if !due.is_empty() {
                wait = wait.min(AFTER_A_WRITE);
            }
            let (all_answered, has_changed) = while_watching(writer.apply(due), &mut changes).await;
            if !all_answered {
                tokio::time::sleep(AFTER_A_FAILURE).await;
            }
            if has_changed {
                continue;
            }
        }
        pause(wait, &mut changes).await;
    }
}

/// Takes changes along while something is done, and whether there were any: else the copies of many objects would be as old as
/// the oldest of many writes.
async fn while_watching<T>(
    work: impl Future<Output = T>,
    changes: &mut (impl Stream<Item = ()> + Unpin),
) -> (T, bool) {
    let mut work = std::pin::pin!(work);
    let mut has_changed = false;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return (done, has_changed),
            Some(()) = changes.next() => has_changed = true,
        }
    }
}

/// Time passes or something changes; whatever else has changed by then is taken along.
pub(super) async fn pause(wait: Duration, changes: &mut (impl Stream<Item = ()> + Unpin)) {
    if let Ok(Some(())) = tokio::time::timeout(wait, changes.next()).await {
        while let Some(Some(())) = futures::FutureExt::now_or_never(changes.next()) {}
    }
}

/// In simulated time a watch lasts a day: each renewal costs as much as a write. An odd length, so that it does not coincide
/// with what happens on the hour.
pub(super) fn watch_config(config: watcher::Config, clock: Clock) -> watcher::Config {
    match clock {
        Clock::System => config,
        Clock::Virtual { .. } => config.timeout(SIMULATED_WATCH_SECONDS),
    }
}

/// One write an object: what the initial cluster needs goes first.
fn merge(mut first: Vec<Write>, second: Vec<Write>) -> Vec<Write> {
    let taken: Vec<Target> = first.iter().filter_map(|w| target(w).cloned()).collect();
    first.extend(
        second
            .into_iter()
            .filter(|w| target(w).is_none_or(|t| !taken.contains(t))),
    );
    first
}

fn target(write: &Write) -> Option<&Target> {
    match write {
        Write::Patch { target, .. } => Some(target),
        Write::Create(..) | Write::Evict(_) | Write::Bind(..) | Write::FinishDeletion(_) => None,
    }
}
