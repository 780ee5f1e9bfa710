//! Memory of the operator, on the real API server of a lane with simulated nodes and many pods.
//!
//! ```sh
//! tests/cluster/lane up 5; eval "$(tests/cluster/lane env 5)"
//! cargo bench --bench memory -- 300 6000        # nodes, pods
//! tests/cluster/lane down 5
//! ```
//!
//! Nothing is asserted: see docs/performance.md. The operator is that of the same build, or `OPERATOR=<path>`.

// A benchmark ends where it cannot go on.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::{Api, Client, api::PostParams};
use openshift_upgrade_operator::{
    api::UpgradeJob,
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const NAMESPACE: &str = "openshift-upgrade";
const LOAD: &str = "load";
/// So many pods are created at once.
const AT_ONCE: usize = 64;
/// So many of them keep the first worker from being drained.
const BLOCKING: usize = 100;
/// How long is looked at a state: several reads of everything lie in it.
const LOOK: Duration = Duration::from_secs(45);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(900);

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let (nodes, pods) = match numbers.as_slice() {
        [] => (300, 6_000),
        [nodes, pods] => (*nodes, *pods),
        _ => panic!("give nodes and pods, or nothing"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(measure(nodes, pods));
}

/// A child that does not outlive us.
struct Running(Child);

impl Running {
    fn start(program: &str, arguments: &[&str], log: &str) -> Self {
        let log = fs::File::create(log).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Self(child.unwrap_or_else(|e| panic!("starting {program}: {e}")))
    }

    /// A line of /proc/<pid>/status in kB: VmRSS is now, VmHWM the most so far.
    fn memory(&self, line: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let value = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        value
            .trim_matches([':', ' ', '\t'])
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let done = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(done.is_ok_and(|s| s.success()), "sending {name}");
    }

    /// Prints the most that is seen while it is looked at: all of it, and what of that is no page of the binary.
    async fn report(&self, what: &str) {
        let began = Instant::now();
        let (mut all, mut own) = (0, 0);
        while began.elapsed() < LOOK {
            all = all.max(self.memory("VmRSS"));
            own = own.max(self.memory("RssAnon"));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("  {all:>7} {own:>7}  {what}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            eprintln!("{what}: after {:.0} s", began.elapsed().as_secs_f64());
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "gave up waiting until {what}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(tests/cluster/lane env 5)\""))
}

async fn measure(nodes: usize, pods: usize) {
    // An error says that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::try_default().await.expect("the kubeconfig of a lane");
    let program =
        std::env::var("OPERATOR").unwrap_or_else(|_| env!("CARGO_BIN_EXE_upgrade-operator").to_owned());
    let size = fs::metadata(&program).unwrap().len() / 1024;
    let folder = tempfile::tempdir().unwrap();
    let log = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();

    let of_pools = format!("master=3,worker={}", nodes - 3);
    let kubeconfig = variable("TESTBED_SIMULATOR_KUBECONFIG");
    let simulator = Running::start(
        env!("CARGO_BIN_EXE_upgrade-operator"),
        &[
            "simulate-openshift",
            "--kubeconfig",
            &kubeconfig,
            "--reset",
            "--nodes",
            &of_pools,
            "--duration",
            "retrieve=1s,control-plane=10s,node=1s,evict-retry=5s,pod-stop=1s",
        ],
        &log("simulator"),
    );
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    until("the nodes are there", async || {
        let worker = pools.get_opt("worker").await.ok()??;
        (worker.state().ready_machine_count == i64::try_from(nodes - 3).ok()?).then_some(())
    })
    .await;

    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let began = Instant::now();
    let kubeconfig = variable("TESTBED_OPERATOR_KUBECONFIG");
    let operator = Running::start(
        &program,
        &[
            "run",
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            &kubeconfig,
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--drain-report-after",
            "5s",
        ],
        &log("operator"),
    );
    while !is_ready(port).await {
        assert!(
            began.elapsed() < PATIENCE,
            "the operator is not ready: {}",
            fs::read_to_string(log("operator")).unwrap()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let start_up = began.elapsed();
    println!(
        "{nodes} nodes; binary {size} KiB; ready after {:.2} s",
        start_up.as_secs_f64()
    );
    println!("      RSS    heap  in kB");
    operator.report("idle, no pods").await;

    load(&client, 0..BLOCKING, |_| 0).await;
    stick(&client).await;
    operator
        .report(&format!("a drain that {BLOCKING} pods keep from its end"))
        .await;

    // It would look after all pods, and is not what is measured.
    simulator.signal("STOP");
    load(&client, BLOCKING..pods, |n| 1 + n % (nodes - 4)).await;
    operator
        .report(&format!("the same, with {pods} pods in the cluster"))
        .await;
    println!("  {:>7}          the most of all", operator.memory("VmHWM"));
}

async fn is_ready(port: u16) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else {
        return false;
    };
    let mut answer = String::new();
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.contains(" 200 ")
}

async fn prepare(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = object(json!({"metadata": {"name": LOAD}}));
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), LOAD);
    until("the namespace has its ServiceAccount", async || {
        accounts.get_opt("default").await.ok().flatten()
    })
    .await;
    let budgets = Api::namespaced(client.clone(), LOAD);
    let budget: k8s_openapi::api::policy::v1::PodDisruptionBudget = object(json!({
        "metadata": {"name": "all"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "load"}}},
    }));
    budgets.create(&PostParams::default(), &budget).await.unwrap();
}

/// Pods on the workers that `worker` says, of one budget that allows no disruption.
async fn load(client: &Client, pods: std::ops::Range<usize>, worker: impl Fn(usize) -> usize) {
    let count = pods.len();
    if pods.start == 0 {
        prepare(client).await;
    }
    let began = Instant::now();
    let api: Api<Pod> = Api::namespaced(client.clone(), LOAD);
    stream::iter(pods)
        .for_each_concurrent(AT_ONCE, async |n| {
            // With what the API server adds a pod of 5 kB, which is usual.
            let environment: Vec<Value> = (0..40)
                .map(|i| json!({"name": format!("VARIABLE_{i}"), "value": format!("a value of usual length {i}")}))
                .collect();
            let pod = object(json!({
                "metadata": {"name": format!("load-{n}"), "labels": {"app": "load"}},
                "spec": {
                    "nodeName": format!("worker-{}", worker(n)), "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": "localhost/load:1", "env": environment}],
                },
            }));
            api.create(&PostParams::default(), &pod).await.unwrap();
        })
        .await;
    eprintln!(
        "{count} pods are there: after {:.0} s",
        began.elapsed().as_secs_f64()
    );
}

/// An upgrade whose first worker cannot be drained.
async fn stick(client: &Client) {
    let versions: Api<ClusterVersion> = Api::all(client.clone());
    let offered = until("4.18.5 is offered", async || {
        let offers = versions.get("version").await.ok()?.status?.available_updates?;
        offers.into_iter().find(|r| r.version == "4.18.5")
    })
    .await;
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
    let jobs: Api<UpgradeJob> = Api::namespaced(client.clone(), NAMESPACE);
    let job = object(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
        "metadata": {"name": "memory", "namespace": NAMESPACE},
        "spec": {
            "startAfter": now, "startBefore": now + jiff::SignedDuration::from_hours(1),
            "desiredVersion": {"version": offered.version, "image": offered.image}, "config": {},
        },
    }));
    jobs.create(&PostParams::default(), &job).await.unwrap();
    until("the drain of a worker is stuck, and that is told", async || {
        let status = jobs.get("memory").await.ok()?.status?;
        (!status.blockers.is_empty()).then_some(())
    })
    .await;
}
