//! `upgrade-operator next-runs`: when a schedule runs, and what becomes of each run.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use jiff::{Timestamp, tz::TimeZone};
use kube::{Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    manifests::{Location, Manifest, Manifests, Problem},
    review, terminal,
};
use crate::{
    api::{UpgradeConfig, UpgradeSuspensionWindow, upgrade_config, validation},
    schedule::{
        Parsed, Schedule, ScheduleError, ZoneError, Zones,
        forecast::{Verdict, forecast},
    },
    simulator::api::Review,
    text,
};

/// Print the next runs of a schedule, or of the UpgradeConfigs in files.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  \
    upgrade-operator next-runs --cron '0 22 * * 2' --iso-week @odd --location Europe/Zurich\n  \
    upgrade-operator next-runs -f clusters/prod/ --from 2026-12-01T00:00:00Z --count 5 -o json")]
#[command(group = clap::ArgGroup::new("what").required(true).args(["cron", "files"]))]
pub struct Args {
    /// Cron expression with five fields: minute, hour, day of month, month, day of week (0 = Sunday).
    #[arg(long, value_name = "EXPR")]
    pub cron: Option<String>,
    /// ISO weeks to run in: `@odd`, `@even` or a number. Default: every week.
    #[arg(long, value_name = "WEEK", requires = "cron")]
    pub iso_week: Option<String>,
    /// Time zone of the expression (IANA name). Default: that of --default-location.
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub location: Option<String>,
    /// Files or folders with UpgradeConfigs and UpgradeSuspensionWindows; `-` is standard input.
    #[arg(short, long, value_name = "FILES", num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// Time zone of schedules without a location (IANA name).
    #[arg(long, env = "DEFAULT_LOCATION", default_value = "UTC", value_name = "ZONE")]
    pub default_location: String,
    /// Runs after this instant (RFC 3339). Default: now.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Timestamp>,
    /// How many runs.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub count: u16,
    /// Format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Format of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// One line a run.
    Text,
    /// One document.
    Json,
}

/// The question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The default zone is wrong.
    #[error("cannot use --default-location: {0}")]
    DefaultLocation(#[from] ZoneError),
    /// The schedule on the command line is wrong.
    #[error("{0}")]
    Schedule(#[from] ScheduleError),
    /// The files cannot be read.
    #[error("{0}")]
    Manifests(#[from] Problem),
    /// The schedule of a config in a file is wrong.
    #[error("{location}: UpgradeConfig {name}: {problem}")]
    Config {
        /// Where it stands.
        location: Location,
        /// Name of the config.
        name: String,
        /// What is wrong.
        problem: Box<ScheduleError>,
    },
    /// The API server would refuse an object, or the operator would not serve it.
    #[error("{location}: {object} {problem}")]
    Object {
        /// Where it stands.
        location: Location,
        /// Kind and name.
        object: String,
        /// What is wrong.
        problem: String,
    },
    /// Nothing to look at.
    #[error("there is no UpgradeConfig in the files; give -f files or folders that hold one, or --cron")]
    NoConfig,
    /// Standard output is gone.
    #[error("cannot write the runs: {0}")]
    Print(#[from] io::Error),
}

/// The answer to `--cron`.
#[derive(Debug, Serialize)]
struct Runs {
    runs: Vec<Run>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The answer to `-f`.
#[derive(Debug, Serialize)]
struct Configs {
    configs: Vec<Config>,
}

#[derive(Debug, Serialize)]
struct Config {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(flatten)]
    runs: Runs,
}

impl Config {
    fn title(&self) -> String {
        let namespace = self.namespace.iter().map(|n| format!("{n}/"));
        namespace.chain([self.name.clone()]).collect()
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    time: Timestamp,
    /// With the offset, without the name of the zone.
    local: String,
    /// Of the instant, which after a gap can be another day than the expression's.
    iso_week: i8,
    verdict: &'static str,
    reason: String,
    #[serde(skip)]
    for_people: String,
}

/// Answers on standard output; warnings go to standard error.
pub fn run(args: &Args) -> Result<(), Error> {
    // A question about the future without a time means from now on; everything below is given its time.
    let from = args.from.unwrap_or_else(Timestamp::now);
    write(args, from, &mut terminal::stdout(), &mut io::stderr().lock())
}

fn write(args: &Args, from: Timestamp, out: &mut impl Write, warn: &mut impl Write) -> Result<(), Error> {
    let zones = Zones::bundled(&args.default_location)?;
    if let Some(cron) = &args.cron {
        let spec = upgrade_config::Schedule {
            cron: cron.clone(),
            iso_week: args.iso_week.clone(),
            location: args.location.clone(),
            suspend: false,
        };
        let parsed = Schedule::parse(&spec, &zones)?;
        let runs = upcoming(&parsed, from, usize::from(args.count), |_, _| {
            (Verdict::WillRun, String::new())
        });
        print(args.output, &runs, &[(String::new(), &runs)], out, warn)
    } else {
        let all = Configs {
            configs: of_files(args, &zones, from, warn)?,
        };
        let named: Vec<(String, &Runs)> = all.configs.iter().map(|c| (c.title(), &c.runs)).collect();
        print(args.output, &all, &named, out, warn)
    }
}

fn of_files(
    args: &Args,
    zones: &Zones,
    from: Timestamp,
    warn: &mut impl Write,
) -> Result<Vec<Config>, Error> {
    let Manifests { objects, problems } = Manifests::load(&args.files);
    for problem in problems {
        match problem {
            // Folders also hold values for templates and the like.
            Problem::NotAnObject { .. } => writeln!(warn, "warning: {problem}")?,
            Problem::Read { .. } | Problem::Empty { .. } | Problem::Yaml { .. } | Problem::Invalid { .. } => {
                return Err(problem.into());
            }
        }
    }
    let windows: Vec<(Location, UpgradeSuspensionWindow)> = served(&objects, warn)?;
    let configs: Vec<(Location, UpgradeConfig)> = served(&objects, warn)?;
    for (location, window) in &windows {
        refuse(location, window, &validation::upgrade_suspension_window(window))?;
    }
    let windows: Vec<UpgradeSuspensionWindow> = windows.into_iter().map(|(_, window)| window).collect();
    if configs.is_empty() {
        return Err(Error::NoConfig);
    }
    configs
        .iter()
        .map(|(location, config)| of_config(args, location, config, &windows, zones, from))
        .collect()
}

fn of_config(
    args: &Args,
    location: &Location,
    config: &UpgradeConfig,
    windows: &[UpgradeSuspensionWindow],
    zones: &Zones,
    from: Timestamp,
) -> Result<Config, Error> {
    let parsed = Schedule::parse(&config.spec.schedule, zones).map_err(|problem| Error::Config {
        location: location.clone(),
        name: config.name_any(),
        problem: Box::new(problem),
    })?;
    refuse(location, config, &validation::upgrade_config(config, &[], None))?;
    let runs = upcoming(&parsed, from, usize::from(args.count), |run, zone| {
        let expected = forecast(config, windows, run, zone);
        (expected.verdict, expected.reason)
    });
    Ok(Config {
        name: config.name_any(),
        namespace: config.namespace(),
        runs,
    })
}

/// The objects of a kind, if the API server takes them all.
fn served<K>(objects: &[Manifest], warn: &mut impl Write) -> Result<Vec<(Location, K)>, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let mut found = Vec::new();
    for manifest in objects.iter().filter(|m| m.is::<K>()) {
        let refused = |problem| Error::Object {
            location: manifest.location.clone(),
            object: format!("{} {}", K::kind(&()), manifest.object.name_any()),
            problem,
        };
        // What cannot even be read is told in fewer words than a schema has.
        let object = manifest.parse()?;
        match review::review(manifest) {
            Review::Taken { unknown_fields } => {
                if let Some(warning) = review::no_such_fields(manifest, &unknown_fields) {
                    writeln!(warn, "warning: {warning}")?;
                }
            }
            Review::UnknownKind => {
                let version = manifest.object.types.as_ref().map(|t| t.api_version.as_str());
                let (version, served) = (version.unwrap_or_default(), K::api_version(&()));
                let problem = format!("is of {version}, which is not served; write {served}");
                return Err(refused(problem));
            }
            Review::Refused(problems) => {
                return Err(refused(format!("is not valid: {}", problems.join("; "))));
            }
        }
        found.push((manifest.location.clone(), object));
    }
    Ok(found)
}

/// An object with problems would not be served.
fn refuse<K: Resource<DynamicType = ()>>(
    location: &Location,
    object: &K,
    problems: &[validation::Problem],
) -> Result<(), Error> {
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::Object {
        location: location.clone(),
        object: format!("{} {}", K::kind(&()), object.name_any()),
        problem: format!("is not valid: {}", validation::summary(problems)),
    })
}

fn upcoming(
    parsed: &Parsed,
    from: Timestamp,
    count: usize,
    verdict: impl Fn(Timestamp, &TimeZone) -> (Verdict, String),
) -> Runs {
    let Parsed { schedule, warnings } = parsed;
    let zone = schedule.zone();
    let runs: Vec<Run> = schedule
        .upcoming(from, count)
        .into_iter()
        .map(|time| {
            let (verdict, reason) = verdict(time, zone);
            let local = time.to_zoned(zone.clone());
            Run {
                time,
                local: local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
                iso_week: local.date().iso_week_date().week(),
                verdict: verdict.as_str(),
                reason,
                for_people: text::time(time, zone),
            }
        })
        .collect();
    let mut warnings = warnings.clone();
    if runs.is_empty() {
        warnings.extend(schedule.never(from));
    }
    Runs { runs, warnings }
}

fn print(
    output: Output,
    document: &impl Serialize,
    schedules: &[(String, &Runs)],
    out: &mut impl Write,
    warn: &mut impl Write,
) -> Result<(), Error> {
    for (name, Runs { warnings, .. }) in schedules {
        for warning in warnings {
            let of = if name.is_empty() {
                String::new()
            } else {
                format!("UpgradeConfig {name}: ")
            };
            writeln!(warn, "warning: {of}{warning}")?;
        }
    }
    match output {
        Output::Json => {
            serde_json::to_writer(&mut *out, document).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Output::Text => {
            for (name, Runs { runs, .. }) in schedules {
                if !name.is_empty() {
                    writeln!(out, "UpgradeConfig {name}")?;
                }
                for run in runs {
                    let line = format!(
                        "{}  week {:>2}  {}  {}",
                        run.for_people, run.iso_week, run.verdict, run.reason
                    );
                    writeln!(out, "{}", line.trim_end())?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
