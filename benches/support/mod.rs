//! What the benchmarks on a lane of the test cluster stand on: the simulated OpenShift and the operator as processes.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use kube::{Api, Client, api::PostParams};
use openshift_upgrade_operator::{
    api::UpgradeJob,
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The namespace that the operator serves.
pub const NAMESPACE: &str = "openshift-upgrade";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(900);

/// Runs a benchmark to its end, on one thread.
pub fn block_on(benchmark: impl Future<Output = ()>) {
    // An error says that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(benchmark);
}

/// A lane that is up, as `tests/cluster/lane env` names it in the environment.
pub struct Lane {
    /// The administrator's access.
    pub client: Client,
    logs: TempDir,
    operator: String,
}

impl Lane {
    /// The lane of the environment; the operator is that of this build, or `OPERATOR=<path>`.
    pub async fn of_environment() -> Self {
        let built = || env!("CARGO_BIN_EXE_upgrade-operator").to_owned();
        Self {
            client: Client::try_default().await.expect("the kubeconfig of a lane"),
            logs: tempfile::tempdir().unwrap(),
            operator: std::env::var("OPERATOR").unwrap_or_else(|_| built()),
        }
    }

    /// The size of the operator's binary in KiB.
    pub fn binary_size(&self) -> u64 {
        fs::metadata(&self.operator).unwrap().len() / 1024
    }

    fn log(&self, name: &str) -> String {
        self.logs.path().join(name).to_str().unwrap().to_owned()
    }

    /// The simulated cluster, once `workers` of its nodes are ready.
    pub async fn simulator(&self, workers: usize, durations: &str) -> Running {
        let of_pools = format!("master=3,worker={workers}");
        let kubeconfig = variable("TESTBED_SIMULATOR_KUBECONFIG");
        let arguments = [
            "simulate-openshift",
            "--kubeconfig",
            &kubeconfig,
            "--reset",
            "--nodes",
            &of_pools,
            "--duration",
            durations,
        ];
        let program = env!("CARGO_BIN_EXE_upgrade-operator");
        let simulator = Running::start(program, &arguments, &self.log("simulator"));
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        until("the nodes are there", async || {
            let worker = pools.get_opt("worker").await.ok()??;
            (worker.state().ready_machine_count == i64::try_from(workers).ok()?).then_some(())
        })
        .await;
        simulator
    }

    /// The operator, once it is ready.
    pub async fn operator(&self, flags: &[&str]) -> Operator {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let kubeconfig = variable("TESTBED_OPERATOR_KUBECONFIG");
        let listen = format!("127.0.0.1:{port}");
        let mut arguments = vec!["run", "--namespace", NAMESPACE, "--kubeconfig", &kubeconfig];
        arguments.extend(["--listen", &listen]);
        arguments.extend(flags);
        let log = self.log("operator");
        let began = Instant::now();
        let process = Running::start(&self.operator, &arguments, &log);
        while !get(port, "/readyz")
            .await
            .is_some_and(|answer| answer.contains(" 200 "))
        {
            let said = || fs::read_to_string(&log).unwrap();
            assert!(
                began.elapsed() < PATIENCE,
                "the operator is not ready: {}",
                said()
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Operator {
            process,
            port,
            start_up: began.elapsed(),
        }
    }

    /// Creates a job that is due, with the newest version that is offered.
    pub async fn create_job(&self, name: &str) {
        let versions: Api<ClusterVersion> = Api::all(self.client.clone());
        let offered = until("4.18.5 is offered", async || {
            let offers = versions.get("version").await.ok()?.status?.available_updates?;
            offers.into_iter().find(|r| r.version == "4.18.5")
        })
        .await;
        let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
        let job = object(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "startAfter": now, "startBefore": now + jiff::SignedDuration::from_hours(1),
                "desiredVersion": {"version": offered.version, "image": offered.image}, "config": {},
            },
        }));
        self.jobs().create(&PostParams::default(), &job).await.unwrap();
    }

    /// Our jobs.
    pub fn jobs(&self) -> Api<UpgradeJob> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}

/// The operator.
pub struct Operator {
    /// Its process.
    pub process: Running,
    /// How long it took from its start until it was ready.
    pub start_up: Duration,
    port: u16,
}

impl Operator {
    /// Its metrics, as text.
    pub async fn metrics(&self) -> String {
        get(self.port, "/metrics").await.expect("an answer to /metrics")
    }
}

/// A child that does not outlive us.
pub struct Running(Child);

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
    pub fn memory(&self, line: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let value = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        value
            .trim_matches([':', ' ', '\t'])
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let done = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(done.is_ok_and(|s| s.success()), "sending {name}");
    }

    /// Asks it to end, and waits until it has.
    pub fn end(mut self) {
        self.signal("TERM");
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks until there is something; says how long it took, where that is long.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            if began.elapsed() > Duration::from_secs(1) {
                eprintln!("{what}: after {:.1} s", began.elapsed().as_secs_f64());
            }
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "gave up waiting until {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// An object of JSON.
pub fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The audit log of the lane's API server.
pub fn audit_log() -> PathBuf {
    PathBuf::from(variable("TESTBED_LOGS")).join("audit.log")
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(tests/cluster/lane env 5)\""))
}

/// The answer to a GET, with its head.
async fn get(port: u16, path: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let mut answer = String::new();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}
