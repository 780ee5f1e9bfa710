//! `upgrade-operator release`: what is to be done before the operator is removed.

use std::{io::Write, path::PathBuf, process::ExitCode};

use kube::Client;

use super::{run, terminal};
use crate::{
    clock::Clock,
    controller::removal::{self, release_all},
    schedule::Zones,
    settings::Settings,
};

/// Give back what the operator holds on the cluster, before it is removed: finalizers, the lock on the ClusterVersion, pauses
/// of pools that have nothing pending. Refuses (exit code 1) while an UpgradeJob runs.
///
/// An operator that still runs is kept from writing meanwhile, and for half a minute afterwards. One that runs with
/// --leader-election=false is not: stop it first. SIGTERM and SIGINT end it at any time (exit code 2); run it again then.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  upgrade-operator release --all --namespace openshift-upgrade")]
pub struct Args {
    /// Of all jobs. There is no other way yet, so it must be said.
    #[arg(long, required = true)]
    all: bool,
    /// Namespace that was served. Default: that of the pod, else `openshift-upgrade`.
    #[arg(long, env = "NAMESPACE")]
    namespace: Option<String>,
    /// Kubeconfig. Default: the pod's own access, else the current context.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
}

/// It is not known whether the operator may be removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No access to the API server.
    #[error(transparent)]
    Access(#[from] run::Error),
    /// The client cannot be made.
    #[error("cannot make a client for the API server: {0}")]
    Client(#[from] kube::Error),
    /// A bug: UTC is always there.
    #[error("cannot use UTC: {0}")]
    Zone(#[from] crate::schedule::ZoneError),
    /// It was not done.
    #[error(transparent)]
    Removal(#[from] removal::Error),
    /// No signal handler.
    #[error("cannot listen for signals: {0}")]
    Signal(std::io::Error),
    /// Standard output is gone.
    #[error("cannot write to standard output: {0}")]
    Print(std::io::Error),
}

/// Runs `upgrade-operator release`. Exit code 1: the operator must not be removed now.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    // First of all, since the first process of a container has no other answer to a signal.
    let stop = super::termination().map_err(Error::Signal)?;
    let config = run::client_config(args.kubeconfig.as_deref()).await?;
    let namespace = run::namespace(args.namespace, &config);
    let client = Client::try_from(config)?;
    let settings = Settings::new(namespace, Zones::bundled("UTC")?);
    let done = match release_all(&client, &settings, Clock::System, stop).await {
        Err(refused @ removal::Error::Refused(_)) => {
            eprintln!("error: {refused}");
            return Ok(ExitCode::FAILURE);
        }
        done => done?,
    };
    let mut out = terminal::stdout();
    for line in done {
        writeln!(out, "{line}").map_err(Error::Print)?;
    }
    let namespace = &settings.namespace;
    writeln!(
        out,
        "namespace {namespace}: nothing is held any more, the operator can be removed"
    )
    .map_err(Error::Print)?;
    Ok(ExitCode::SUCCESS)
}
