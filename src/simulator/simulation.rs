//! A whole cluster in simulated time: API server, OpenShift, the Jobs of hooks, our operator, and what a scenario lets
//! happen to them.
//!
//! Everything runs in one paused tokio runtime, see [`run`]. Whatever waits, waits on that clock, so a year takes seconds.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, TypeMeta},
};
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{
    api::{ApiServer, Identity, Kinds},
    argo, batch,
    driver::{self, News},
    openshift::faults,
    operator::{self, Machine, Order},
    prometheus::service,
    scenario::{Timeline, events::Reference, stranded::Stranded, timeline::Happening},
};
use crate::{api::labels, clock::Clock, controller::prometheus::Asker, settings::Settings};

/// Nothing in a simulation waits longer than this without looking again.
const IDLE: Duration = Duration::from_secs(86_400);
/// How long the cluster may take to be there.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// How long a killed operator is away: a pod that is started again.
const RESTART: Duration = Duration::from_secs(30);

/// A cluster in simulated time.
pub struct Simulation {
    /// Its API server.
    pub server: ApiServer,
    /// Its clock.
    pub clock: Clock,
    /// What its cluster is, once it is started.
    timeline: Option<Arc<Timeline>>,
    /// To the operators.
    orders: Vec<mpsc::UnboundedSender<Order>>,
    problems: Problems,
    tasks: JoinSet<()>,
}

/// What of the scenario could not be done.
type Problems = Arc<Mutex<Vec<String>>>;

/// A simulation cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runtime could not be made.
    #[error("cannot start the runtime of the simulation: {0}")]
    Runtime(#[from] std::io::Error),
    /// The cluster did not come up.
    #[error("the simulated cluster was not ready after {} s", PATIENCE.as_secs())]
    NotReady,
    /// The simulated API server does not have this kind.
    #[error("the simulated cluster has no kind {kind} of {api_version}")]
    UnknownKind {
        /// Kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// The simulated API server refused what it must not.
    #[error("cannot {attempt} in the simulated cluster: {source}")]
    Call {
        /// What was attempted.
        attempt: String,
        /// Why not.
        source: Box<kube::Error>,
    },
}

impl Error {
    /// Whether the simulated API server refused for this reason.
    fn is(&self, reason: &str) -> bool {
        match self {
            Self::Call { source, .. } => {
                matches!(source.as_ref(), kube::Error::Api(status) if status.reason == reason)
            }
            Self::Runtime(_) | Self::NotReady | Self::UnknownKind { .. } => false,
        }
    }
}

/// Runs something in simulated time, on a runtime of its own whose clock only moves when nothing else can.
pub fn run<T>(future: impl Future<Output = T>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(future))
}

/// How our operator differs from one on a real cluster: watches are renewed, and everything is looked at, so seldom that a
/// simulated year takes seconds. Whatever it waits for must therefore wake it, or have a time.
#[must_use]
pub fn in_simulated_time(settings: Settings) -> Settings {
    Settings {
        watch_timeout: SignedDuration::from_secs(driver::SIMULATED_WATCH_SECONDS.into()),
        heartbeat: SignedDuration::from_hours(24),
        absent_kind_poll: SignedDuration::from_hours(24),
        ..settings
    }
}

impl Simulation {
    /// An empty API server. Inside of [`run`], as all that follows.
    pub fn new(clock: Clock) -> Self {
        Self::with_kinds(clock, Kinds::ours())
    }

    /// The same, with Argo Workflows installed: its kind, and the stand-in of its controller.
    pub fn with_argo(clock: Clock) -> Self {
        let mut simulation = Self::with_idle_argo(clock);
        let client = simulation.server.client(Identity::Cluster);
        simulation.tasks.spawn(argo::run(client, clock));
        simulation
    }

    /// The same, and nothing runs that looks at workflows.
    pub fn with_idle_argo(clock: Clock) -> Self {
        Self::with_kinds(clock, Kinds::ours().and(&argo::crd()))
    }

    pub(super) fn with_kinds(clock: Clock, kinds: Kinds) -> Self {
        Self {
            server: ApiServer::new(clock, kinds),
            clock,
            timeline: None,
            orders: Vec::new(),
            problems: Problems::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Starts the cluster of a scenario, and waits until it is there. What is there already is taken as it is.
    pub async fn start_cluster(&mut self, timeline: &Arc<Timeline>) -> Result<(), Error> {
        self.timeline = Some(Arc::clone(timeline));
        let (server, clock) = (&self.server, self.clock);
        let cluster = driver::Simulation {
            initial: timeline.initial(true),
            settings: timeline.settings(),
            with_pods: false,
            clock,
            idle: IDLE,
        };
        let client = server.client(Identity::Cluster);
        let (tell, mut ready) = mpsc::unbounded_channel();
        let api_server = server.clone();
        self.tasks.spawn(async move {
            let on_news = |news| match news {
                // The receiver is gone once the cluster was ready.
                News::Ready => drop(tell.send(())),
                News::ApiServerAway(until) => api_server.set_away_until(until),
            };
            driver::run(client, &cluster, on_news).await;
        });
        let client = server.client(Identity::Cluster);
        let jobs = Arc::clone(timeline);
        self.tasks.spawn(async move {
            let outcome = move |job: &_| outcome(&jobs, job);
            batch::run(client, clock, IDLE, &outcome).await;
        });
        let ready = tokio::time::timeout(PATIENCE, ready.recv()).await;
        ready.map_err(|_| Error::NotReady)?;
        Ok(())
    }

    /// From now on the events of the scenario happen.
    pub fn play(&mut self, timeline: &Arc<Timeline>) {
        let player = Player {
            server: self.server.clone(),
            client: self.server.client(Identity::Admin),
            clock: self.clock,
            timeline: Arc::clone(timeline),
            orders: self.orders.clone(),
            problems: Arc::clone(&self.problems),
        };
        self.tasks.spawn(player.play());
    }

    /// Starts our operator; a killed one is started again. It asks the Prometheus of the cluster, if that was started.
    pub fn start_operator(&mut self, settings: &Settings) {
        self.start_operator_with(settings, SignedDuration::ZERO);
    }

    /// The same, on a machine whose clock is so far ahead. Each operator is on a machine of its own, numbered from 0.
    pub fn start_operator_with(&mut self, settings: &Settings, clock_offset: SignedDuration) -> Machine {
        let (give, orders) = mpsc::unbounded_channel();
        let machine = Machine {
            number: u32::try_from(self.orders.len()).unwrap_or(u32::MAX),
            clock_offset,
        };
        self.orders.push(give);
        let (server, clock) = (self.server.clone(), self.clock);
        let settings = in_simulated_time(settings.clone());
        let timeline = self.timeline.clone();
        let prometheus = move |clock: Clock| match timeline.clone() {
            Some(timeline) => service::asker(clock, move || timeline.prometheus(clock.now())),
            None => Asker::nobody(),
        };
        self.tasks.spawn(async move {
            operator::keep_running(&server, clock, machine, &settings, prometheus, RESTART, orders).await;
        });
        machine
    }

    /// What of the scenario could not be done so far, for people.
    pub fn problems(&self) -> Vec<String> {
        self.problems
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A client that is never disturbed.
    pub fn admin(&self) -> Client {
        self.server.client(Identity::Admin)
    }

    /// Lets time pass until then.
    pub async fn until(&self, t: Timestamp) {
        let left = Duration::try_from(t.duration_since(self.clock.now())).unwrap_or_default();
        tokio::time::sleep_until(Instant::now() + left).await;
    }
}

/// How the Job of a hook goes.
fn outcome(timeline: &Timeline, job: &k8s_openapi::api::batch::v1::Job) -> batch::Outcome {
    let hook = job.labels().get(labels::HOOK).map_or("", String::as_str);
    let created = job.metadata.creation_timestamp.as_ref();
    let at = created.map_or(Timestamp::MIN, |t| t.0);
    timeline.hook_job(hook, &job.name_any(), at)
}

/// Lets the events of a scenario happen.
struct Player {
    server: ApiServer,
    client: Client,
    clock: Clock,
    timeline: Arc<Timeline>,
    orders: Vec<mpsc::UnboundedSender<Order>>,
    problems: Problems,
}

impl Player {
    async fn play(self) {
        let mut after = Timestamp::MIN;
        while let Some(next) = self.timeline.next_due(after) {
            let left = Duration::try_from(next.duration_since(self.clock.now())).unwrap_or_default();
            tokio::time::sleep(left).await;
            for due in self.timeline.due(after, next) {
                if let Err(error) = self.happen(due.at, &due.happening).await {
                    let problem = format!("an event of the scenario at {} did not happen: {error}", due.at);
                    tracing::warn!("{problem}");
                    self.problems
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(problem);
                }
            }
            after = next;
        }
        // The orders must stay open: the operator ends with them.
        std::future::pending::<()>().await;
    }

    async fn happen(&self, at: Timestamp, happening: &Happening) -> Result<(), Error> {
        match happening {
            Happening::Controls => self.write_controls(at).await,
            Happening::ApiServerAway(until) => {
                self.server.set_away_until(*until);
                Ok(())
            }
            // Asked for when a query comes.
            Happening::Prometheus => Ok(()),
            Happening::Apply(object) => apply(&self.server, &self.client, object).await,
            Happening::Patch(reference, merge) => self.patch(reference, merge).await,
            Happening::Delete(reference) => self.delete(reference).await,
            Happening::Strand(pod) => self.strand(pod).await,
            Happening::Free(pod) => self.free(pod).await,
            Happening::RestartOperator(restart) => {
                let order = Order::Restart {
                    down: Duration::try_from(restart.down.0).unwrap_or_default(),
                    clock_offset: restart.clock_offset.0,
                };
                // No operator, nothing to restart.
                for orders in &self.orders {
                    let _ = orders.send(order);
                }
                Ok(())
            }
        }
    }

    /// Two faults may be about the same pod: it is there already.
    async fn strand(&self, pod: &Stranded) -> Result<(), Error> {
        for object in pod.objects() {
            let object: Result<DynamicObject, _> = serde_json::from_value(object);
            let Ok(object) = object else { continue };
            let types = object.types.clone().unwrap_or_default();
            let api = api(&self.server, &self.client, &types, object.namespace().as_deref())?;
            let attempt = format!("create {} {}", types.kind, object.name_any());
            match call(attempt, api.create(&PostParams::default(), &object)).await {
                Err(error) if error.is("AlreadyExists") => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// It may be gone already: people delete pods.
    async fn free(&self, pod: &Stranded) -> Result<(), Error> {
        for reference in pod.references() {
            match self.delete(&reference).await {
                Err(error) if error.is("NotFound") => {}
                result => result?,
            }
        }
        Ok(())
    }

    async fn write_controls(&self, at: Timestamp) -> Result<(), Error> {
        let data = self.timeline.controls(at);
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), faults::NAMESPACE);
        let change = async {
            let mut map = api.get(faults::NAME).await?;
            map.data = Some(data);
            api.replace(faults::NAME, &PostParams::default(), &map).await
        };
        call("write the faults of the scenario", change).await
    }

    fn api(&self, reference: &Reference) -> Result<Api<DynamicObject>, Error> {
        let types = TypeMeta {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
        };
        api(&self.server, &self.client, &types, reference.namespace.as_deref())
    }

    async fn patch(&self, reference: &Reference, merge: &Value) -> Result<(), Error> {
        let (name, params) = (&reference.name, PatchParams::default());
        let attempt = format!("change {} {name}", reference.kind);
        let api = self.api(reference)?;
        call(attempt, api.patch(name, &params, &Patch::Merge(merge))).await
    }

    async fn delete(&self, reference: &Reference) -> Result<(), Error> {
        let name = &reference.name;
        let attempt = format!("delete {} {name}", reference.kind);
        let api = self.api(reference)?;
        call(attempt, api.delete(name, &DeleteParams::default())).await
    }
}

/// Creates the object, or merges it into the one that is there, as `kubectl apply` does; its status is not taken.
pub async fn apply(server: &ApiServer, client: &Client, object: &DynamicObject) -> Result<(), Error> {
    let types = object.types.clone().unwrap_or_default();
    let name = object.name_any();
    let api = api(server, client, &types, object.namespace().as_deref())?;
    let attempt = format!("apply {} {name}", types.kind);
    let write = async {
        match api.create(&PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                let merge = Patch::Merge(object);
                api.patch(&name, &PatchParams::default(), &merge).await
            }
            result => result,
        }
    };
    call(attempt, write).await
}

/// The objects of this kind.
fn api(
    server: &ApiServer,
    client: &Client,
    types: &TypeMeta,
    namespace: Option<&str>,
) -> Result<Api<DynamicObject>, Error> {
    let (resource, is_namespaced) = server.resource(types).ok_or_else(|| Error::UnknownKind {
        kind: types.kind.clone(),
        api_version: types.api_version.clone(),
    })?;
    Ok(if is_namespaced {
        Api::namespaced_with(client.clone(), namespace.unwrap_or("default"), &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    })
}

async fn call<T>(
    attempt: impl Into<String>,
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<(), Error> {
    future.await.map(drop).map_err(|source| Error::Call {
        attempt: attempt.into(),
        source: Box::new(source),
    })
}
