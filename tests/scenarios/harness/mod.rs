//! What every scenario stands on: a lane of the test cluster, the simulated OpenShift and the operator as processes of
//! their own, a stand-in kubelet, and waiting on conditions.

pub mod audit;
#[allow(dead_code, reason = "the tests on the whole cluster look at more of it")]
#[path = "../../support/audit_log.rs"]
mod audit_log;
mod clock;
pub mod database;
#[path = "../../support/https.rs"]
pub mod https;
pub mod kubelet;
pub mod lane;
mod look;
pub mod monitoring;
pub mod objects;
mod operator;
pub mod process;
pub mod timeline;

use std::{
    fmt::Debug,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap, events::v1::Event};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt, watcher},
};
use openshift_upgrade_operator::{
    api::{UpgradeJob, finalizers, upgrade_job::StepPhase},
    engine::{Engine, Run, Workflow, argo::Argo},
    openshift::{
        cluster_operator::ClusterOperator,
        cluster_version::{ClusterVersion, NAME as VERSION},
        machine_config_pool::MachineConfigPool,
    },
    plan::Plan,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use self::{audit::Request, lane::Lane, process::Process};
pub use self::{lane::ArgoVersion, look::*};

/// The namespace that the operator serves.
pub const NAMESPACE: &str = "openshift-upgrade";
/// The pool that scenarios hold.
pub const NIGHT: &str = "x-app-night";
/// How long anything may take that needs no time of its own, a whole upgrade among it; the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(420);
/// How often a condition is looked at.
const EVERY: Duration = Duration::from_millis(100);

/// The simulated cluster: as fast as it can be told apart.
const SIMULATOR: [&str; 6] = [
    "--duration",
    "retrieve=300ms,control-plane=4s,node=800ms,evict-retry=200ms,pod-stop=100ms",
    "--nodes",
    "master=3,worker=2,x-app-night=2",
    "--offer",
    "4.18.4,4.18.5",
];

/// A running scenario. Dropping it ends its processes and takes its lane down; after a panic it tells what was going on.
pub struct Scenario {
    operator: Option<Process>,
    simulator: Process,
    kubelet: JoinHandle<()>,
    operator_arguments: Vec<String>,
    folder: TempDir,
    /// The administrator's access.
    pub client: Client,
    /// The control plane.
    pub lane: Lane,
    /// The engine whose workflows the scenario looks at.
    pub engine: &'static dyn Engine,
}

/// Runs a scenario on a lane of its own, with flags for the operator.
pub async fn scenario(operator: &[&str], test: impl AsyncFnOnce(&mut Scenario)) {
    scenario_on(&Argo, operator, test).await;
}

/// The same where this engine is installed, and no other.
pub async fn scenario_on(
    engine: &'static dyn Engine,
    operator: &[&str],
    test: impl AsyncFnOnce(&mut Scenario),
) {
    scenario_with(engine.kind().as_str(), engine, ArgoVersion::V4_1, operator, test).await;
}

/// The same where Argo Workflows is installed in this version.
pub async fn scenario_on_argo(
    version: ArgoVersion,
    operator: &[&str],
    test: impl AsyncFnOnce(&mut Scenario),
) {
    scenario_with(Argo.kind().as_str(), &Argo, version, operator, test).await;
}

/// The same where all engines are installed; it looks at Argo's workflows first.
pub async fn scenario_on_all_engines(operator: &[&str], test: impl AsyncFnOnce(&mut Scenario)) {
    scenario_with("argo,tekton", &Argo, ArgoVersion::V4_1, operator, test).await;
}

async fn scenario_with(
    installed: &'static str,
    engine: &'static dyn Engine,
    argo: ArgoVersion,
    operator: &[&str],
    test: impl AsyncFnOnce(&mut Scenario),
) {
    let mut running = Scenario::start(installed, engine, argo, operator).await;
    test(&mut running).await;
    running.finish();
}

impl Scenario {
    async fn start(
        installed: &'static str,
        engine: &'static dyn Engine,
        argo: ArgoVersion,
        operator: &[&str],
    ) -> Self {
        // An error says that another test has installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let lane = Lane::take(installed, argo).await;
        let folder = tempfile::tempdir().expect("making a folder for logs");
        let client = client(lane.variable("KUBECONFIG")).await;

        let kubeconfig = lane.variable("TESTBED_SIMULATOR_KUBECONFIG");
        let mut arguments = strings(&["simulate-openshift", "--kubeconfig", kubeconfig]);
        arguments.extend(strings(&SIMULATOR));
        let simulator = Process::start("the simulator", &arguments, &folder.path().join("simulator.log"));

        let listen = format!("127.0.0.1:{}", lane.free_port(0));
        let kubeconfig = lane.variable("TESTBED_OPERATOR_KUBECONFIG");
        let mut operator_arguments = strings(&[
            "run",
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            kubeconfig,
            "--listen",
            &listen,
            "--live-message-interval",
            "1s",
            "--workflow-service-account",
            "upgrade-workflow",
        ]);
        operator_arguments.extend(strings(operator));
        let kubelet = tokio::spawn(kubelet::run(client.clone()));
        let mut scenario = Self {
            operator: None,
            simulator,
            kubelet,
            operator_arguments,
            folder,
            client,
            lane,
            engine,
        };
        until("the simulated cluster is ready", async || {
            scenario
                .simulator
                .output()
                .contains("simulated cluster is ready")
                .then_some(())
        })
        .await;
        scenario.start_operator();
        scenario.until_ready().await;
        scenario
    }

    /// The series of a metric that the operator exposes, as lines.
    pub fn series(&self, metric: &str) -> Vec<String> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.lane.free_port(0)));
        let answer = get(address, "/metrics").expect("scraping the operator");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let start = format!("{metric}{{");
        let lines = answer.lines().filter(|line| line.starts_with(&start));
        lines.map(str::to_owned).collect()
    }

    /// What must be true of every scenario: nothing was forbidden to the operator, and it still runs.
    fn finish(&mut self) {
        let log = self.lane.audit_log();
        audit_log::keep(&log);
        let (_, forbidden) = audit::read(&log);
        let forbidden: Vec<_> = forbidden
            .into_iter()
            .filter(|f| f.starts_with(audit::OPERATOR))
            .collect();
        assert!(
            forbidden.is_empty(),
            "the operator's role lacks rights: {forbidden:#?}"
        );
        let operator = self.operator.as_mut().expect("the operator does not run");
        assert!(!operator.has_ended(), "the operator has ended by itself");
        assert!(
            !operator.output().contains("panicked at"),
            "the operator panicked"
        );
    }

    /// All writes so far that went through and were the operator's.
    pub fn operators_writes(&self) -> Vec<Request> {
        self.writes().into_iter().filter(Request::is_operators).collect()
    }

    /// All requests to write so far, whosever.
    pub fn writes(&self) -> Vec<Request> {
        audit::read(&self.lane.audit_log()).0
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Any object by kind, in the operator's namespace.
    pub fn dynamic(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    /// Creates an object as a person would; the API server's refusal is the error.
    pub async fn try_create(&self, object: &Value) -> Result<DynamicObject, String> {
        let api = self.dynamic(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
        );
        let parsed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        api.create(&PostParams::default(), &parsed)
            .await
            .map_err(|e| e.to_string())
    }

    /// The same, where it must not be refused.
    pub async fn create(&self, object: &Value) -> DynamicObject {
        let name = object["metadata"]["name"].clone();
        self.try_create(object)
            .await
            .unwrap_or_else(|e| panic!("creating {} {name}: {e}", object["kind"]))
    }

    /// The UpgradeJob of this name.
    pub async fn job(&self, name: &str) -> UpgradeJob {
        self.api()
            .get(name)
            .await
            .unwrap_or_else(|e| panic!("reading UpgradeJob {name}: {e}"))
    }

    /// Edits an UpgradeJob as a person would.
    pub async fn edit_job(&self, name: &str, patch: Value) {
        let api: Api<UpgradeJob> = self.api();
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("editing an UpgradeJob");
    }

    /// Deletes an UpgradeJob; the call returns at once.
    pub async fn delete_job(&self, name: &str) {
        let api: Api<UpgradeJob> = self.api();
        api.delete(name, &DeleteParams::default())
            .await
            .expect("deleting an UpgradeJob");
    }

    /// Waits until the UpgradeJob is gone.
    pub async fn until_gone(&self, name: &str) {
        let api: Api<UpgradeJob> = self.api();
        until(&format!("UpgradeJob {name} is gone"), async || {
            api.get_opt(name)
                .await
                .is_ok_and(|found| found.is_none())
                .then_some(())
        })
        .await;
    }

    /// Waits until the UpgradeJob is as wanted.
    pub async fn until_job(&self, name: &str, what: &str, is: impl Fn(&UpgradeJob) -> bool) -> UpgradeJob {
        let api: Api<UpgradeJob> = self.api();
        until(&format!("UpgradeJob {name}: {what}"), async || {
            api.get(name).await.ok().filter(|j| is(j))
        })
        .await
    }

    /// Waits until a step of the job runs.
    pub async fn until_step_runs(&self, job: &str, step: &str) -> UpgradeJob {
        self.until_job(job, &format!("{step} runs"), |j| {
            status(j)
                .steps
                .iter()
                .any(|s| s.name == step && s.phase == StepPhase::Running)
        })
        .await
    }

    /// Waits until the job has its outcome, has given everything back and has run its last hooks. Nothing that it took is left
    /// then but the pools that it says it left paused.
    pub async fn until_over(&self, name: &str) -> UpgradeJob {
        let over = |j: &UpgradeJob| {
            has(j, "Succeeded").or_else(|| has(j, "Failed")).is_some()
                && !j.finalizers().iter().any(|f| f == finalizers::UPGRADE_JOB)
                && status(j)
                    .steps
                    .iter()
                    .all(|s| s.phase.is_finished() || s.phase == StepPhase::Pending)
                && status(j)
                    .steps
                    .iter()
                    .filter(|s| s.name.starts_with("hooks-finish"))
                    .all(|s| s.phase.is_finished())
        };
        let done = self.until_job(name, "is over", over).await;
        until(&format!("UpgradeJob {name} holds nothing any more"), async || {
            self.is_released(name).await
        })
        .await;
        done
    }

    /// Whether all that a job took was given back. `None` while that is not so, or cannot be seen.
    async fn is_released(&self, name: &str) -> Option<()> {
        // One that is not kept has nothing to leave to a later one.
        let job = self.api::<UpgradeJob>().get_opt(name).await.ok()?;
        let cluster = Api::all(self.client.clone()).get(VERSION).await.ok()?;
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        let pools = pools.list(&ListParams::default()).await.ok()?.items;
        let left = job.map(|j| status(&j).paused_pools).unwrap_or_default();
        let left: Vec<&str> = left.iter().map(|p| p.name.as_str()).collect();
        let holder = format!("{NAMESPACE}/{name}");
        held_by(&holder, &left, &cluster, &pools).is_empty().then_some(())
    }

    /// The ClusterVersion.
    pub async fn cluster_version(&self) -> ClusterVersion {
        Api::all(self.client.clone())
            .get(VERSION)
            .await
            .expect("reading the ClusterVersion")
    }

    /// Waits until the ClusterVersion is as wanted.
    pub async fn until_cluster_version(
        &self,
        what: &str,
        is: impl Fn(&ClusterVersion) -> bool,
    ) -> ClusterVersion {
        let api: Api<ClusterVersion> = Api::all(self.client.clone());
        until(&format!("ClusterVersion: {what}"), async || {
            api.get(VERSION).await.ok().filter(|c| is(c))
        })
        .await
    }

    /// A pool.
    pub async fn pool(&self, name: &str) -> MachineConfigPool {
        Api::all(self.client.clone())
            .get(name)
            .await
            .expect("reading a MachineConfigPool")
    }

    /// Waits until a pool is as wanted.
    pub async fn until_pool(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&MachineConfigPool) -> bool,
    ) -> MachineConfigPool {
        let api: Api<MachineConfigPool> = Api::all(self.client.clone());
        until(&format!("MachineConfigPool {name}: {what}"), async || {
            api.get(name).await.ok().filter(|p| is(p))
        })
        .await
    }

    /// The ClusterOperators.
    pub fn cluster_operators(&self) -> Api<ClusterOperator> {
        Api::all(self.client.clone())
    }

    /// The engine's workflows.
    pub fn workflow_api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, &self.engine.resource())
    }

    /// What the workflow of this name shows of a plan, with the objects of its steps.
    pub async fn run(&self, name: &str, plan: &Plan) -> Run {
        let object = self.workflow_api().get(name).await.expect("reading a workflow");
        let steps = match (self.engine.step_resource(), self.engine.step_label()) {
            (Some(kind), Some(label)) => {
                let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &kind);
                let of_run = ListParams::default().labels(&format!("{label}={name}"));
                api.list(&of_run).await.expect("listing its steps").items
            }
            _ => Vec::new(),
        };
        self.engine.observe(&Workflow { object, steps }, plan)
    }

    /// All workflows.
    pub async fn workflows(&self) -> Vec<DynamicObject> {
        let api = self.workflow_api();
        api.list(&ListParams::default())
            .await
            .expect("listing workflows")
            .items
    }

    /// Waits until the workflow of this name is as wanted.
    pub async fn until_workflow(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&DynamicObject) -> bool,
    ) -> DynamicObject {
        let api = self.workflow_api();
        until(&format!("workflow {name}: {what}"), async || {
            api.get(name).await.ok().filter(|w| is(w))
        })
        .await
    }

    /// Merge-patches a workflow as a person would.
    pub async fn edit_workflow(&self, name: &str, patch: Value) {
        let api = self.workflow_api();
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("editing a workflow");
    }

    /// The Jobs of hooks that are there.
    pub async fn hook_jobs(&self) -> Vec<Job> {
        self.api::<Job>()
            .list(&ListParams::default())
            .await
            .expect("listing Jobs")
            .items
    }

    /// Events about an object.
    pub async fn events_about(&self, name: &str) -> Vec<Event> {
        let all = self
            .api::<Event>()
            .list(&ListParams::default())
            .await
            .expect("listing Events")
            .items;
        let about = |e: &Event| e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name);
        all.into_iter().filter(about).collect()
    }

    /// Switches a fault of the simulator on, or off with an empty text.
    pub async fn fault(&self, name: &str, text: &str) {
        let api: Api<ConfigMap> = self.api();
        let patch = json!({"data": {name: if text.is_empty() { Value::Null } else { json!(text) }}});
        api.patch(
            "simulated-openshift",
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .expect("switching a fault");
    }

    /// Waits until the simulator has looked at everything as it is now: it shows a mark that is new.
    pub async fn until_simulator_has_looked(&self) {
        let mark = format!("Mark{}", jiff::Timestamp::now().as_millisecond());
        self.fault("not-upgradeable", &mark).await;
        self.until_cluster_version("the simulator has seen a mark", |c| {
            c.conditions()
                .iter()
                .any(|x| x.type_ == "Upgradeable" && x.reason.as_deref() == Some(&mark))
        })
        .await;
        self.fault("not-upgradeable", "").await;
        self.until_cluster_version("the simulator has seen the mark gone", |c| {
            !c.conditions().iter().any(|x| x.type_ == "Upgradeable")
        })
        .await;
    }

    /// Kills the operator at the first event of this kind that is as wanted, as soon as the watch tells it.
    pub async fn kill_operator_at<K>(&mut self, api: Api<K>, is: impl Fn(&K) -> bool)
    where
        K: kube::Resource + Clone + Debug + Send + serde::de::DeserializeOwned + 'static,
    {
        let stream = watcher(api, watcher::Config::default()).applied_objects();
        let found = stream
            .map_err(|e| e.to_string())
            .try_filter(|o| std::future::ready(is(o)));
        let mut found = std::pin::pin!(found);
        match tokio::time::timeout(PATIENCE, found.next()).await {
            Ok(Some(Ok(_))) => self.kill_operator(),
            other => panic!("gave up waiting for the moment to kill the operator: {other:?}"),
        }
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        self.kubelet.abort();
        if std::thread::panicking() {
            self.tell();
        }
    }
}

impl Scenario {
    /// What was going on, for whoever reads the failure.
    fn tell(&self) {
        let part = |name: &str, text: &str| eprintln!("--- {name}\n{}", text.trim_end());
        if let Some(operator) = &self.operator {
            part("end of the operator's log", &operator.tail());
        }
        part("end of the simulator's log", &self.simulator.tail());
        let jobs = "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{range .status.conditions[*]}  {.type}={.status} {.reason}: {.message}{\"\\n\"}{end}{range .status.steps[*]}  {.name} {.phase}: {.message}{\"\\n\"}{end}  {.status.phase} {.status.message} {.status.hookTracker}{\"\\n\"}{end}";
        part(
            "UpgradeJobs",
            &self.lane.kubectl(&["get", "upgradejobs", "-o", jobs]),
        );
        part("workflows", &self.lane.kubectl(&["get", "workflows", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.status.message}{\"\\n\"}{range .status.nodes.*}  {.displayName} {.type} {.phase}: {.message}{\"\\n\"}{end}{end}"]));
        part(
            "custom runs",
            &self.lane.kubectl(&["get", "pipelineruns,customruns"]),
        );
        part(
            "ClusterVersion and pools",
            &self
                .lane
                .kubectl(&["get", "clusterversion,mcp,jobs.batch,pods", "-o", "wide"]),
        );
    }
}

/// Looks until there is something, and gives up after [`PATIENCE`].
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A call to an API server that is away may hang.
        if let Ok(Some(found)) = tokio::time::timeout(Duration::from_secs(10), look()).await {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "gave up after {} s waiting for: {what}",
            PATIENCE.as_secs()
        );
        tokio::time::sleep(EVERY).await;
    }
}

/// The operator's answer to a GET: its head and its body.
fn get(operator: SocketAddr, path: &str) -> std::io::Result<String> {
    let patience = Duration::from_secs(10);
    let mut stream = TcpStream::connect_timeout(&operator, patience)?;
    stream.set_read_timeout(Some(patience))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

async fn client(kubeconfig: &str) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).expect("reading a kubeconfig");
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .expect("a kubeconfig");
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Client::try_from(config).expect("making a client")
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|s| (*s).to_owned()).collect()
}
