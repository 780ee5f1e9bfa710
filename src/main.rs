//! `upgrade-operator`: arguments and dispatch only.

#[cfg(test)]
mod cli_reference;

use std::{io::IsTerminal, process::ExitCode};

use clap::{Parser, Subcommand};
use openshift_upgrade_operator::cli;
use tracing_subscriber::{EnvFilter, fmt};

/// Upgrades OpenShift 4 clusters in their maintenance windows, with nobody awake.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log format.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value = "text", global = true)]
    log_format: LogFormat,
    /// What is logged: `error`, `warn`, `info`, `debug`, or for one part alone, as in `info,kube=debug`; else that of RUST_LOG.
    #[arg(long, env = "LOG_LEVEL", global = true, value_parser = filter_of)]
    log_level: Option<String>,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator.
    Run(Box<cli::run::Args>),
    /// Give back what the operator holds on the cluster, before it is removed.
    Release(cli::release::Args),
    /// Print the CustomResourceDefinitions.
    Crds(cli::crds::Args),
    /// Print the workflow that an UpgradeJob would run as.
    Render(cli::render::Args),
    /// Print the next runs of a schedule, or of the configs in files.
    NextRuns(cli::next_runs::Args),
    /// Show what manifests will do, in simulated time: no cluster is needed.
    Rehearse(cli::rehearse::Args),
    /// Evaluate a podJQSelector: the operator starts this by itself.
    #[command(hide = true)]
    SelectPods,
    /// Act as OpenShift's operators on a test cluster.
    SimulateOpenshift(cli::simulate_openshift::SimulateOpenshift),
}

fn main() -> ExitCode {
    let Cli {
        command,
        log_format,
        log_level,
    } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    start_logs(log_format, log_level, &command);
    // Two TLS back ends can be in the graph; rustls wants to be told. An error means that it was told already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match dispatch(command) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// Wrong arguments are one plain line, as every error is; help and version are printed as they are.
fn explain(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand as NoCommand;
    if !error.use_stderr() || error.kind() == NoCommand {
        error.exit();
    }
    let text = error.render().to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let line: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    eprintln!("{} (see --help)", line.join(" "));
    ExitCode::from(2)
}

fn dispatch(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::Run(args) => block_on(cli::run::run(*args))?.map_err(|e| e.to_string())?,
        Command::SimulateOpenshift(args) => {
            block_on(cli::simulate_openshift::run(args))?.map_err(|e| e.to_string())?;
        }
        Command::Release(args) => return block_on(cli::release::run(args))?.map_err(|e| e.to_string()),
        Command::Crds(args) => cli::crds::run(&args).map_err(|e| e.to_string())?,
        Command::NextRuns(args) => cli::next_runs::run(&args).map_err(|e| e.to_string())?,
        Command::Rehearse(args) => return cli::rehearse::run(&args).map_err(|e| e.to_string()),
        Command::SelectPods => cli::select_pods::run().map_err(|e| e.to_string())?,
        Command::Render(args) => cli::render::run(&args).map_err(|e| e.to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// One thread is enough for a handful of objects, and costs the least memory.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map(|r| r.block_on(future))
        .map_err(|e| format!("cannot start the runtime: {e}"))
}

/// A text that says what is logged, as it is.
fn filter_of(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text)
        .map(|_| text.to_owned())
        .map_err(|e| format!("{e}; write for instance info, or info,kube=debug"))
}

fn start_logs(format: LogFormat, wanted: Option<String>, command: &Command) {
    let level = match command {
        Command::Run(_) | Command::SimulateOpenshift(_) => "info",
        // What the simulated operator logs is no answer.
        Command::Rehearse(_) => "off",
        Command::Release(_)
        | Command::Crds(_)
        | Command::NextRuns(_)
        | Command::Render(_)
        | Command::SelectPods => "warn",
    };
    let filter = wanted.map_or_else(
        || EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level)),
        EnvFilter::new,
    );
    let colours = std::io::stderr().is_terminal();
    let builder = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    match format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
}
