//! `upgrade-operator rehearse`: what somebody's own manifests will do, in simulated time.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    manifests::{Manifest, Manifests, Problem},
    terminal::{self, Progress},
};
use crate::{
    api::{UpgradeConfig, UpgradeJob, conditions::whole_seconds, duration},
    schedule::{ZoneError, Zones},
    settings::Settings,
    simulator::{
        rehearsal::{
            Recording, Story,
            report::Report,
            run::{self, Setup},
            timeline::{Colours, Detail, Style, timeline},
            warnings::{Input, Monitoring, warnings},
        },
        scenario::{
            self, Scenario,
            events::{Event, Fault, What},
        },
    },
};

/// What is rehearsed where nobody names files: its name is for messages.
const EXAMPLE: (&str, &str) = (
    "docs/examples/cluster-upgrade.yaml",
    include_str!("../../docs/examples/cluster-upgrade.yaml"),
);
/// The cluster that the shipped example is made for: with the pool that it holds back.
const EXAMPLE_CLUSTER: (&str, &str) = (
    "the cluster of the example",
    "cluster: {pools: [{name: master, machines: 3}, {name: worker, machines: 3}, {name: x-app-night, machines: 2}]}",
);
/// The namespace of the shipped example, and of manifests without one.
const NAMESPACE: &str = "openshift-upgrade";
/// Longest rehearsal.
const MAX_YEARS: i64 = 20;

/// Show what manifests will do: their upgrades on a simulated cluster, in simulated time.
///
/// Needs no cluster. Prints which runs happen and when, which do not and why, and how long each step takes. Exits with 0
/// even if upgrades failed, unless --fail-on says otherwise; with 2 if the input is wrong.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  \
    upgrade-operator rehearse\n  \
    upgrade-operator rehearse clusters/prod/ --from 2026-12-01T00:00:00Z --for 1y\n  \
    upgrade-operator rehearse clusters/prod/ --scenario slow-night.yaml --fail-on failed -o json")]
pub struct Args {
    /// Files or folders with UpgradeConfigs, hooks, suspension windows, MachineConfigPools. Default: the shipped example.
    #[arg(value_name = "FILES")]
    pub files: Vec<PathBuf>,
    /// The same.
    #[arg(short = 'f', long = "files", value_name = "FILES", num_args = 1..)]
    pub more_files: Vec<PathBuf>,
    /// When the rehearsal begins (RFC 3339). Default: now.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Timestamp>,
    /// How long it lasts: a Go duration that may have days (d) and years (y).
    #[arg(long = "for", value_name = "DURATION", default_value = "90d", value_parser = length)]
    pub length: SignedDuration,
    /// File that says what the cluster is like, and what happens to it. Default: a healthy cluster with an update to go to.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// What is random follows from this number: the same seed gives the same rehearsal.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Exit with 1 if an upgrade failed; with `skipped` also if a run was skipped; with `warning` also if there is a warning.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// Format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Time zone of schedules without a location (IANA name).
    #[arg(long, env = "DEFAULT_LOCATION", default_value = "UTC", value_name = "ZONE")]
    pub default_location: String,
    /// Namespace that is served. Default: that of the first UpgradeConfig or UpgradeJob in the files.
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Tell every step of every run.
    #[arg(short, long)]
    pub verbose: bool,
}

/// What the exit code 1 is for; each counts what stands before it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum FailOn {
    /// An upgrade failed.
    Failed,
    /// A run was skipped, or made no UpgradeJob.
    Skipped,
    /// There is a warning.
    Warning,
}

/// Format of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// A timeline for people.
    Text,
    /// One document.
    Json,
}

/// There is no rehearsal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The default zone is wrong.
    #[error("cannot use --default-location: {0}")]
    DefaultLocation(#[from] ZoneError),
    /// The files cannot be read.
    #[error("{0}")]
    Manifests(#[from] Problem),
    /// The scenario cannot be used.
    #[error("{0}")]
    Scenario(#[from] scenario::Error),
    /// There is nothing in them to rehearse.
    #[error("there is no UpgradeConfig and no UpgradeJob in the files; give files or folders that hold one")]
    Nothing,
    /// The end is beyond the calendar.
    #[error("cannot rehearse {0} from {1}: that is beyond the end of the calendar; give a shorter --for")]
    TooLong(String, Timestamp),
    /// The simulation broke.
    #[error("cannot rehearse: {0}")]
    Simulation(#[from] run::Error),
    /// Standard output is gone.
    #[error("cannot write the rehearsal: {0}")]
    Print(#[from] io::Error),
}

/// What is to be rehearsed.
#[derive(Debug)]
pub struct Request {
    /// The user's objects.
    pub objects: Vec<Manifest>,
    /// Not one of these; to be told as warnings.
    pub passed_over: Vec<Problem>,
    /// The cluster, and what happens to it.
    pub scenario: Scenario,
    /// Begin.
    pub from: Timestamp,
    /// Length; begin plus length is a time of the calendar.
    pub length: SignedDuration,
    /// For everything random.
    pub seed: u64,
    /// The operator's settings.
    pub settings: Settings,
}

impl Request {
    /// Reads the files. `now` is for a rehearsal that begins now.
    fn read(args: &Args, now: Timestamp) -> Result<Self, Error> {
        let zones = Zones::bundled(&args.default_location)?;
        let paths: Vec<PathBuf> = args.files.iter().chain(&args.more_files).cloned().collect();
        let Manifests { objects, problems } = if paths.is_empty() {
            let mut example = Manifests::default();
            example.add(Path::new(EXAMPLE.0), EXAMPLE.1);
            example
        } else {
            Manifests::load(&paths)
        };
        let scenario = match &args.scenario {
            Some(file) => Scenario::load(file)?,
            None if paths.is_empty() => Scenario::parse(Path::new(EXAMPLE_CLUSTER.0), EXAMPLE_CLUSTER.1)?,
            None => Scenario::default(),
        };
        let mut passed_over = Vec::new();
        for problem in problems {
            match problem {
                // Folders also hold values for templates and the like.
                Problem::NotAnObject { .. } => passed_over.push(problem),
                Problem::Read { .. }
                | Problem::Empty { .. }
                | Problem::Yaml { .. }
                | Problem::Invalid { .. } => return Err(problem.into()),
            }
        }
        let ours = |m: &&Manifest| m.is::<UpgradeConfig>() || m.is::<UpgradeJob>();
        let first = objects.iter().find(ours).ok_or(Error::Nothing)?;
        let namespace = args.namespace.clone().or(first.object.metadata.namespace.clone());
        let from = whole_seconds(args.from.unwrap_or_else(|| whole_minutes(now)));
        if from.checked_add(args.length).is_err() {
            return Err(Error::TooLong(duration::format(args.length), from));
        }
        Ok(Self {
            settings: settings(namespace.unwrap_or_else(|| NAMESPACE.to_owned()), zones),
            objects,
            passed_over,
            scenario,
            from,
            length: args.length,
            seed: args.seed,
        })
    }
}

/// How often a text that says how far a step is may be written. Nobody watches, only the last one is shown; so each is
/// written when something else is, and a rehearsal takes little more than half the time.
const LIVE_MESSAGE_INTERVAL: SignedDuration = SignedDuration::from_hours(6);

/// The defaults of `upgrade-operator run`, but for what only makes a rehearsal slow.
fn settings(namespace: String, zones: Zones) -> Settings {
    Settings {
        live_message_interval: LIVE_MESSAGE_INTERVAL,
        ..Settings::new(namespace, zones)
    }
}

fn whole_minutes(t: Timestamp) -> Timestamp {
    let second = t.as_second();
    Timestamp::from_second(second - second.rem_euclid(60)).unwrap_or(t)
}

/// Reads `--for`.
fn length(text: &str) -> Result<SignedDuration, String> {
    let length = duration::with_days(text).map_err(|e| e.to_string())?;
    if !length.is_positive() {
        return Err("a rehearsal takes some time; write for example 90d".to_owned());
    }
    if length > SignedDuration::from_hours(MAX_YEARS * 365 * 24) {
        return Err(format!("longer than {MAX_YEARS} years; write for example 1y"));
    }
    Ok(length)
}

/// Where the answer goes.
struct Streams<'a, W> {
    out: &'a mut W,
    colours: Colours,
}

/// Rehearses, and answers on standard output.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let colours = if terminal::shows_colours() {
        Colours::On
    } else {
        Colours::Off
    };
    let mut out = terminal::stdout();
    let streams = Streams {
        out: &mut out,
        colours,
    };
    let simulate = |request: &Request| {
        let objects = request.objects.iter();
        let setup = Setup {
            objects: objects
                .map(|m| (m.location.to_string(), m.object.clone()))
                .collect(),
            scenario: request.scenario.clone(),
            from: request.from,
            length: request.length,
            seed: request.seed,
            settings: request.settings.clone(),
        };
        let end = request
            .from
            .saturating_add(request.length)
            .unwrap_or(Timestamp::MAX);
        let mut progress = Progress::on_stderr(request.from, end);
        run::run(setup, |now| progress.tell(now))
    };
    answer(args, Timestamp::now(), simulate, streams)
}

fn answer<W: Write>(
    args: &Args,
    now: Timestamp,
    simulate: impl FnOnce(&Request) -> Result<Recording, run::Error>,
    streams: Streams<'_, W>,
) -> Result<ExitCode, Error> {
    let request = Request::read(args, now)?;
    let recording = simulate(&request)?;
    let story = Story::of(&recording);
    let mut all: Vec<String> = request.passed_over.iter().map(ToString::to_string).collect();
    let input = Input {
        manifests: &request.objects,
        namespace: &request.settings.namespace,
        monitoring: monitoring(&request.scenario),
    };
    all.extend(warnings(&story, input));
    let Streams { out, colours } = streams;
    match args.output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut *out, &Report::new(&story, &all)).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Output::Text => {
            let style = Style {
                colours,
                detail: if args.verbose {
                    Detail::All
                } else {
                    Detail::Eventful
                },
                seed: args.seed,
            };
            out.write_all(timeline(&story, &all, style).as_bytes())?;
        }
    }
    out.flush()?;
    Ok(match args.fail_on.filter(|limit| is_no(&story, &all, *limit)) {
        Some(_) => ExitCode::from(1),
        None => ExitCode::SUCCESS,
    })
}

/// Whether the scenario says anything of alerts and queries.
fn monitoring(scenario: &Scenario) -> Monitoring {
    let mut events = scenario.events.iter().filter_map(Event::what);
    let says = events.any(|what| {
        matches!(
            what,
            What::Alert(_) | What::Query(_) | What::Fault(Fault::PrometheusAway(_))
        )
    });
    if says || !scenario.queries.is_empty() {
        Monitoring::Simulated
    } else {
        Monitoring::Absent
    }
}

/// Whether the answer is no.
fn is_no(story: &Story<'_>, warnings: &[String], limit: FailOn) -> bool {
    let totals = story.totals();
    let found = [
        (FailOn::Failed, totals.failed > 0),
        (FailOn::Skipped, totals.skipped > 0),
        (FailOn::Warning, !warnings.is_empty()),
    ];
    found.iter().any(|(what, is)| *is && *what <= limit)
}

#[cfg(test)]
mod tests;
