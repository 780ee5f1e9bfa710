//! `upgrade-operator next-runs`: when a schedule runs, and what becomes of each run.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use jiff::{Timestamp, tz::TimeZone};
use kube::ResourceExt;
use serde::Serialize;

use super::manifests::{Location, Manifest, Manifests, Problem};
use crate::{
    api::{UpgradeConfig, UpgradeSuspensionWindow, upgrade_config},
    schedule::{
        Parsed, Schedule, ScheduleError, ZoneError, Zones,
        forecast::{Verdict, forecast},
    },
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
    /// Files or folders with UpgradeConfigs and UpgradeSuspensionWindows.
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
    #[serde(flatten)]
    runs: Runs,
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
    write(args, from, &mut io::stdout().lock(), &mut io::stderr().lock())
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
        print(args.output, &runs, &[("", &runs)], out, warn)
    } else {
        let all = Configs {
            configs: of_files(args, &zones, from, warn)?,
        };
        let named: Vec<(&str, &Runs)> = all.configs.iter().map(|c| (c.name.as_str(), &c.runs)).collect();
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
    let windows = objects
        .iter()
        .filter(|m| m.is::<UpgradeSuspensionWindow>())
        .map(Manifest::parse);
    let windows: Vec<UpgradeSuspensionWindow> = windows.collect::<Result<_, Problem>>()?;
    let configs = objects.iter().filter(|m| m.is::<UpgradeConfig>());
    let configs: Vec<(Location, UpgradeConfig)> = configs
        .map(|m| Ok((m.location.clone(), m.parse()?)))
        .collect::<Result<_, Problem>>()?;
    if configs.is_empty() {
        return Err(Error::NoConfig);
    }
    configs
        .into_iter()
        .map(|(location, config)| {
            let name = config.name_any();
            let parsed = Schedule::parse(&config.spec.schedule, zones).map_err(|problem| Error::Config {
                location,
                name: name.clone(),
                problem: Box::new(problem),
            })?;
            let runs = upcoming(&parsed, from, usize::from(args.count), |run, zone| {
                let expected = forecast(&config, &windows, run, zone);
                (expected.verdict, expected.reason)
            });
            Ok(Config { name, runs })
        })
        .collect()
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
        warnings.push("the schedule never fires within 40 years; check day and month".to_owned());
    }
    Runs { runs, warnings }
}

fn print(
    output: Output,
    document: &impl Serialize,
    schedules: &[(&str, &Runs)],
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
mod tests {
    use clap::Parser;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    /// Standard output and standard error.
    fn answer(args: &[&str]) -> Result<(String, String), String> {
        let args = Cli::try_parse_from([&["next-runs", "--from", "2026-11-20T00:00:00Z"], args].concat())
            .map_err(|e| e.to_string())?
            .args;
        let (mut out, mut warn) = (Vec::new(), Vec::new());
        write(&args, args.from.unwrap(), &mut out, &mut warn).map_err(|e| e.to_string())?;
        Ok((String::from_utf8(out).unwrap(), String::from_utf8(warn).unwrap()))
    }

    fn json_of(args: &[&str]) -> Value {
        serde_json::from_str(&answer(&[args, &["-o", "json"]].concat()).unwrap().0).unwrap()
    }

    #[test]
    fn an_expression_is_answered_as_the_contract_says() {
        let got = json_of(&[
            "--cron",
            "0 22 * * 2",
            "--location",
            "Europe/Zurich",
            "--count",
            "1",
        ]);
        assert_eq!(
            got,
            json!({"runs": [{"time": "2026-11-24T21:00:00Z", "local": "2026-11-24T22:00:00+01:00", "isoWeek": 48,
                "verdict": "WillRun", "reason": ""}]})
        );
        let got = json_of(&["--cron", "0 22 * * 2", "--iso-week", "@odd", "--count", "1"]);
        assert_eq!(got["runs"][0]["local"], "2026-12-01T22:00:00+00:00");
    }

    #[test]
    fn an_expression_that_never_fires_is_an_empty_answer_with_a_warning() {
        let (out, warn) = answer(&["--cron", "30 2 31 2 *", "-o", "json"]).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["runs"], json!([]));
        assert!(warn.starts_with("warning: the schedule never fires"), "{warn}");
    }

    #[test]
    fn configs_in_files_are_answered_with_verdicts() {
        let dir = tempfile::tempdir().unwrap();
        let manifests = r#"
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeConfig
metadata: {name: a, labels: {team: a}}
spec:
  schedule: {cron: "0 22 * * 2", location: Europe/Zurich}
  jobTemplate: {metadata: {labels: {tier: prod}}, spec: {}}
---
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeConfig
metadata: {name: b}
spec:
  schedule: {cron: "0 22 * * 2", suspend: true}
  jobTemplate: {spec: {}}
---
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeSuspensionWindow
metadata: {name: freeze, namespace: other}
spec: {start: "2026-12-01T00:00:00Z", end: "2026-12-02T00:00:00Z", reason: release, jobSelector: {matchLabels: {tier: prod}}}
---
apiVersion: v1
kind: ConfigMap
"#;
        std::fs::write(dir.path().join("all.yaml"), manifests).unwrap();
        let dir = dir.path().to_str().unwrap();
        let got = json_of(&["-f", dir, "--count", "2"]);
        let verdicts: Vec<(&Value, Vec<&Value>)> = got["configs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| {
                (
                    &c["name"],
                    c["runs"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|r| &r["verdict"])
                        .collect(),
                )
            })
            .collect();
        assert_eq!(
            verdicts,
            [
                (&json!("a"), vec![&json!("WillRun"), &json!("Suspended")]),
                (
                    &json!("b"),
                    vec![&json!("ScheduleSuspended"), &json!("ScheduleSuspended")]
                ),
            ]
        );
        let reason = got["configs"][0]["runs"][1]["reason"].as_str().unwrap();
        assert!(reason.contains("freeze (release)"), "{reason}");
        let (text, _) = answer(&["-f", dir, "--count", "1"]).unwrap();
        assert!(
            text.starts_with("UpgradeConfig a\nTue 2026-11-24 22:00 (Europe/Zurich)"),
            "{text}"
        );
    }

    /// What the operator shows in `status.nextPossibleSchedules`, before anything was pinned.
    fn shown_by_the_operator(config: &Value, windows: &[Value]) -> Vec<(Value, Value, Value)> {
        let world = crate::world::World {
            pools: vec![serde_json::from_value(json!({"metadata": {"name": "worker"}, "spec": {}})).unwrap()],
            windows: windows
                .iter()
                .map(|w| serde_json::from_value(w.clone()).unwrap())
                .collect(),
            ..Default::default()
        };
        let settings = crate::pinning::ConfigSettings {
            zones: Zones::bundled("").unwrap(),
        };
        let config = serde_json::from_value(config.clone()).unwrap();
        let now = "2026-11-20T00:00:00Z".parse().unwrap();
        let status = crate::pinning::decide(&config, &world, now, &settings).status;
        let shown = status.next_possible_schedules.iter();
        shown
            .map(|n| {
                (
                    json!(n.time),
                    json!(n.verdict),
                    json!(n.reason.clone().unwrap_or_default()),
                )
            })
            .collect()
    }

    #[rstest]
    #[case::plain(json!({"cron": "0 22 * * 2"}))]
    #[case::odd_weeks_in_a_zone(json!({"cron": "0 22 * * 2", "isoWeek": "@odd", "location": "Europe/Zurich"}))]
    #[case::a_zone_in_the_expression(json!({"cron": "TZ=Asia/Tokyo 30 2 * * *"}))]
    #[case::suspended(json!({"cron": "0 22 * * 2", "suspend": true}))]
    #[case::rare(json!({"cron": "0 0 29 2 *"}))]
    #[case::never(json!({"cron": "30 2 31 2 *"}))]
    fn the_operator_shows_the_same_runs_and_verdicts(#[case] schedule: Value) {
        let config = json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
            "metadata": {"name": "c", "namespace": "ns", "labels": {"team": "a"},
                "creationTimestamp": "2026-11-01T00:00:00Z"},
            "spec": {"schedule": schedule, "jobTemplate": {"metadata": {"labels": {"tier": "prod"}}, "spec": {}}},
        });
        let window = |name: &str, start: &str, end: &str, selector: &str, labels: Value| {
            let mut window = json!({
                "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
                "metadata": {"name": name, "namespace": "ns"}, "spec": {"start": start, "end": end, "reason": name},
            });
            window["spec"][selector] = json!({"matchLabels": labels});
            window
        };
        let windows = [
            window(
                "by-config",
                "2026-12-01T00:00:00Z",
                "2026-12-09T00:00:00Z",
                "configSelector",
                json!({"team": "a"}),
            ),
            window(
                "by-job",
                "2026-12-20T00:00:00Z",
                "2027-01-06T00:00:00Z",
                "jobSelector",
                json!({"tier": "prod"}),
            ),
            window(
                "of-others",
                "2026-11-01T00:00:00Z",
                "2036-11-09T00:00:00Z",
                "configSelector",
                json!({"team": "b"}),
            ),
        ];
        let dir = tempfile::tempdir().unwrap();
        for (n, object) in std::iter::once(&config).chain(&windows).enumerate() {
            std::fs::write(dir.path().join(format!("{n}.json")), object.to_string()).unwrap();
        }
        let answer = json_of(&["-f", dir.path().to_str().unwrap()]);
        let runs = answer["configs"][0]["runs"].as_array().unwrap().iter();
        let runs: Vec<_> = runs
            .map(|r| (r["time"].clone(), r["verdict"].clone(), r["reason"].clone()))
            .collect();
        assert_eq!(runs, shown_by_the_operator(&config, &windows));
    }

    #[rstest]
    #[case(&["--cron", "0 22 * * 7"], "day of week")]
    #[case(&["--cron", "0 22 * * 2", "--location", "+02:00"], "is an offset")]
    #[case(&["--cron", "0 22 * * 2", "--default-location", "Nowhere"], "cannot use --default-location")]
    #[case(&["--cron", "0 22 * * 2", "--count", "0"], "--count")]
    #[case(&["--cron", "0 22 * * 2", "--from", "tomorrow"], "--from")]
    #[case(&["--cron", "0 22 * * 2", "-f", "x"], "cannot be used with")]
    #[case(&[], "required")]
    #[case(&["-f", "/does/not/exist"], "cannot read")]
    fn wrong_input_is_refused(#[case] args: &[&str], #[case] expected: &str) {
        let error = answer(args).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
