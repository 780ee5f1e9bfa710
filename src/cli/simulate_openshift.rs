//! `upgrade-operator simulate-openshift`: OpenShift's operators for a cluster that has only an API server.

use std::{io::Write, path::PathBuf};

use clap::Args;
use jiff::SignedDuration;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use semver::Version;
use tokio::signal::unix::{SignalKind, signal};

use super::terminal;
use crate::{
    api::duration::GoDuration,
    clock::Clock,
    simulator::{
        driver::{self, News, Simulation},
        openshift::{
            Settings,
            initial::{self, Initial, Pool},
        },
        prepare,
    },
};

const EXAMPLE: &str = "Example:
  upgrade-operator simulate-openshift --kubeconfig cluster.yaml --reset --speed 2 \\
    --from-version 4.18.3 --offer 4.18.4,4.18.5 --nodes master=3,worker=3,x-app-night=2";

/// Acts as OpenShift's cluster-version operator and machine-config operator, and as the kubelets of fake nodes, on
/// any Kubernetes API server that has OpenShift's CRDs. For tests: it refuses a real OpenShift cluster.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLE)]
pub struct SimulateOpenshift {
    /// Kubeconfig of the cluster; without it KUBECONFIG, the default file, or the pod's own account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// All simulated durations are divided by this.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    pub speed: f64,
    /// How long something takes before --speed: retrieve, control-plane (all operators), node (drain and reboot),
    /// evict-retry, pod-stop. For example control-plane=15s,node=5s.
    #[arg(long, value_name = "WHAT=DURATION", value_delimiter = ',', value_parser = duration)]
    pub duration: Vec<(String, SignedDuration)>,
    /// Delete the simulated cluster and make it anew.
    #[arg(long)]
    pub reset: bool,
    /// The installed release of a new cluster.
    #[arg(long, value_name = "VERSION", default_value = "4.18.3", value_parser = version)]
    pub from_version: String,
    /// The releases that the update service offers to a new cluster.
    #[arg(long, value_name = "VERSION", value_delimiter = ',', default_value = "4.18.4,4.18.5", value_parser = version)]
    pub offer: Vec<String>,
    /// Pools and their number of nodes. A pool other than master and worker gets the label name=<pool>-maintenance.
    #[arg(long, value_name = "POOL=COUNT", value_delimiter = ',', default_value = "master=3,worker=3,x-app-night=2", value_parser = nodes)]
    pub nodes: Vec<(String, u32)>,
    /// Run a workload with a PodDisruptionBudget on the fake nodes, so that there is something to drain. Needs a
    /// controller-manager.
    #[arg(long)]
    pub with_pods: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let is_usable = factor.is_finite() && (0.001..=1000.0).contains(&factor);
    is_usable
        .then_some(factor)
        .ok_or_else(|| "must be from 0.001 to 1000".to_owned())
}

fn version(text: &str) -> Result<String, String> {
    Version::parse(text)
        .map(|v| v.to_string())
        .map_err(|e| format!("not a version: {e}"))
}

fn nodes(text: &str) -> Result<(String, u32), String> {
    let wanted = "write a pool and a number, for example worker=3";
    let (pool, count) = text.split_once('=').ok_or(wanted)?;
    let count = count.parse().map_err(|_| wanted)?;
    if pool.is_empty() {
        return Err(wanted.to_owned());
    }
    Ok((pool.to_owned(), count))
}

const DURATIONS: [&str; 5] = ["retrieve", "control-plane", "node", "evict-retry", "pod-stop"];

fn duration(text: &str) -> Result<(String, SignedDuration), String> {
    let (what, length) = text.split_once('=').ok_or("write for example node=5s")?;
    if !DURATIONS.contains(&what) {
        return Err(format!("{what:?} is none of {}", DURATIONS.join(", ")));
    }
    let length = GoDuration(length.to_owned()).get().map_err(|e| e.to_string())?;
    Ok((what.to_owned(), length))
}

/// Why the command ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No usable kubeconfig.
    #[error("could not read the kubeconfig: {0}")]
    Kubeconfig(String),
    /// No client.
    #[error("could not set up a client for the API server: {0}")]
    Client(#[source] kube::Error),
    /// No signal handler.
    #[error("could not listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    /// The simulator refuses.
    #[error(transparent)]
    Prepare(#[from] prepare::Error),
}

impl SimulateOpenshift {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        for (what, length) in &self.duration {
            match what.as_str() {
                "retrieve" => settings.retrieve = (*length).into(),
                "control-plane" => settings.control_plane = (*length).into(),
                "node" => settings.node = (*length).into(),
                "evict-retry" => settings.evict_retry = *length,
                "pod-stop" => settings.pod_stop = *length,
                _ => {}
            }
        }
        settings.faster(self.speed)
    }

    async fn client(&self) -> Result<Client, Error> {
        let bad = |e: &dyn std::error::Error| Error::Kubeconfig(e.to_string());
        let mut config = match &self.kubeconfig {
            None => Config::infer().await.map_err(|e| bad(&e))?,
            Some(file) => {
                let kubeconfig = Kubeconfig::read_from(file).map_err(|e| bad(&e))?;
                let options = KubeConfigOptions::default();
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(|e| bad(&e))?
            }
        };
        // Decided anew instead of repeated; an eviction that a budget forbids would block for 30 s.
        config.default_retry = false;
        Client::try_from(config).map_err(Error::Client)
    }
}

/// Simulates until SIGTERM or SIGINT; prints `simulated cluster is ready` once it is.
pub async fn run(args: SimulateOpenshift) -> Result<(), Error> {
    let mut term = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let client = args.client().await?;
    tokio::select! {
        biased;
        _ = term.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        result = simulate(&args, client) => result,
    }
}

async fn simulate(args: &SimulateOpenshift, client: Client) -> Result<(), Error> {
    let with_infrastructure = prepare::check_kinds(&client).await?;
    prepare::refuse_real_cluster(&client).await?;
    if args.reset {
        prepare::reset(&client, with_infrastructure).await?;
    }
    let initial = Initial {
        from_version: args.from_version.clone(),
        channel: None,
        controls: [("offers".to_owned(), args.offer.join(","))].into(),
        pools: args.nodes.iter().map(|(pool, n)| Pool::of(pool, *n)).collect(),
        operators: initial::operators(),
        topology: with_infrastructure.then(|| "HighlyAvailable".to_owned()),
    };
    let simulation = Simulation {
        initial,
        settings: args.settings(),
        with_pods: args.with_pods,
        clock: Clock::System,
        idle: Simulation::IDLE,
    };
    let tell = |news| match news {
        // Who does not read it does not wait for it.
        News::Ready => drop(writeln!(terminal::stdout(), "simulated cluster is ready")),
        // A real API server cannot be told to go.
        News::ApiServerAway(_) => {}
    };
    driver::run(client, &simulation, tell).await;
    Ok(())
}
