//! The subcommands: their arguments, and what they do.

pub mod crds;
pub mod manifests;
pub mod next_runs;
pub mod rehearse;
pub mod release;
pub mod render;
pub mod review;
pub mod run;
pub mod select_pods;
pub mod simulate_openshift;
pub mod terminal;

use jiff::SignedDuration;

use crate::api::{GoDuration, upgrade_job::EngineChoice};

/// A workflow engine, as given on the command line.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum EngineArg {
    /// Argo Workflows, then Tekton, then embedded: the first that is there.
    Auto,
    /// Argo Workflows.
    Argo,
    /// Tekton Pipelines.
    Tekton,
    /// No workflow object.
    Embedded,
}

impl From<EngineArg> for EngineChoice {
    fn from(arg: EngineArg) -> Self {
        match arg {
            EngineArg::Auto => Self::Auto,
            EngineArg::Argo => Self::Argo,
            EngineArg::Tekton => Self::Tekton,
            EngineArg::Embedded => Self::Embedded,
        }
    }
}

/// Reads a Go duration from the command line.
pub fn duration(text: &str) -> Result<SignedDuration, String> {
    GoDuration(text.to_owned()).get().map_err(|e| e.to_string())
}

/// Completes at SIGTERM or SIGINT.
pub fn termination() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}
