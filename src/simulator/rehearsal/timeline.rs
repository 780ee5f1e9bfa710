//! A rehearsal for people: run after run, in the zone of its config.
//!
//! A run is one line, and long rows of the same are cut. Step by step are told, of each config: the first upgrade that
//! succeeded, for it shows what the others consist of, and the first that failed for a certain reason.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::{
    config::Config,
    job::Job,
    story::{Skipped, Story, Totals, took},
};
use crate::{
    api::upgrade_job::{JobPhase, StepPhase, StepStatus},
    text,
};

/// Rows of runs that went alike are cut where they are longer than this ...
const ROW: usize = 60;
/// ... to this.
const SHOWN: usize = 20;
/// Longest message of a step or a run, in characters.
const MESSAGE: usize = 300;

/// How it is told.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether the terminal shows colours.
    pub colours: Colours,
    /// How much is told.
    pub detail: Detail,
    /// The seed, which makes the rehearsal repeatable.
    pub seed: u64,
}

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Plain text.
    Off,
    /// ANSI escape sequences.
    On,
}

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What is eventful.
    Eventful,
    /// Every step of every run.
    All,
}

#[derive(Clone, Copy)]
enum Colour {
    Bold,
    Green,
    Yellow,
    Red,
}

/// The whole text, with a line break at its end.
pub fn timeline(story: &Story<'_>, warnings: &[String], style: Style) -> String {
    let mut page = Page {
        lines: Vec::new(),
        style,
    };
    page.head(story);
    for (uid, config) in story.configs() {
        page.config(story, uid, config);
    }
    page.by_hand(story);
    page.totals(story);
    page.left_out(story);
    page.warnings(warnings);
    page.lines.join("\n") + "\n"
}

/// One run.
#[derive(Clone, Copy)]
enum Run<'a> {
    Job(&'a Job),
    None(&'a Skipped),
}

impl<'a> Run<'a> {
    fn time(self) -> Timestamp {
        match self {
            Self::Job(job) => job.start_after,
            Self::None(skipped) => skipped.run,
        }
    }

    /// What it has in common with its like: the outcome, and the reason.
    fn like(self) -> (&'static str, &'a str) {
        match self {
            Self::Job(job) => match job.phase {
                JobPhase::Succeeded => ("succeeded", ""),
                JobPhase::Failed => ("failed", job.reason.as_deref().unwrap_or_default()),
                JobPhase::Skipped => ("skipped", job.message.as_deref().unwrap_or_default()),
                JobPhase::Pending | JobPhase::Running | JobPhase::Paused => ("not over", ""),
            },
            Self::None(skipped) => ("without UpgradeJob", &skipped.reason),
        }
    }
}

/// What of a config was told step by step so far: one upgrade that succeeded, and one for each reason to fail.
#[derive(Default)]
struct StepByStep<'a>(BTreeSet<&'a str>);

impl<'a> StepByStep<'a> {
    /// Whether the next job is told step by step.
    fn takes(&mut self, job: &'a Job) -> bool {
        match job.phase {
            JobPhase::Succeeded | JobPhase::Failed => {
                self.0.insert(job.reason.as_deref().unwrap_or_default())
            }
            JobPhase::Running | JobPhase::Paused => true,
            JobPhase::Skipped | JobPhase::Pending => false,
        }
    }
}

struct Page {
    lines: Vec<String>,
    style: Style,
}

impl Page {
    fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into().trim_end().to_owned());
    }

    fn colour(&self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Bold => "1",
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Red => "31",
        };
        match self.style.colours {
            Colours::On => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Colours::Off => text.to_owned(),
        }
    }

    fn head(&mut self, story: &Story<'_>) {
        let recording = story.recording;
        let zone = recording.zones.default_zone();
        let (from, end) = (text::time(recording.from, zone), text::time(recording.end, zone));
        let length = days(recording.end.duration_since(recording.from));
        self.line(format!(
            "Rehearsed from {from} to {end}: {length}, seed {}",
            self.style.seed
        ));
    }

    fn config(&mut self, story: &Story<'_>, uid: &str, config: &Config) {
        let zone = config.zone(&story.recording.zones);
        let schedule = &config.object.spec.schedule;
        let week = schedule
            .iso_week()
            .map_or_else(String::new, |w| format!(", weeks {w}"));
        let name = zone.iana_name().unwrap_or("a zone without name");
        let title = format!("UpgradeConfig {}: {}{week}, {name}", config.name(), schedule.cron);
        self.line("");
        self.line(self.colour(Colour::Bold, &title));
        let jobs = story.jobs_of(uid).map(Run::Job);
        let mut runs: Vec<Run<'_>> = jobs.chain(story.skipped_of(uid).map(Run::None)).collect();
        runs.sort_by_key(|run| run.time());
        if runs.is_empty() {
            self.line("  no runs");
        }
        self.runs(&runs, &zone);
    }

    fn by_hand(&mut self, story: &Story<'_>) {
        let of_none = story.jobs.iter().filter(|told| told.uid.is_none());
        let runs: Vec<Run<'_>> = of_none.map(|told| Run::Job(told.job)).collect();
        if !runs.is_empty() {
            self.line("");
            self.line(self.colour(Colour::Bold, "UpgradeJobs without an UpgradeConfig"));
            self.runs(&runs, story.recording.zones.default_zone());
        }
    }

    fn runs(&mut self, runs: &[Run<'_>], zone: &TimeZone) {
        let mut told = StepByStep::default();
        for row in runs.chunk_by(|a, b| a.like() == b.like()) {
            let shown = match self.style.detail {
                Detail::Eventful if row.len() > ROW => SHOWN,
                Detail::Eventful | Detail::All => row.len(),
            };
            for run in row.iter().take(shown) {
                match run {
                    Run::None(skipped) => self.skipped(skipped, zone),
                    Run::Job(job) => {
                        self.job(job, zone);
                        if self.style.detail == Detail::All || told.takes(job) {
                            self.steps(job, zone);
                        }
                    }
                }
            }
            if let Some(last) = row.get(shown..).and_then(<[_]>::last) {
                let (n, (how, _)) = (row.len() - shown, last.like());
                let last = text::time(last.time(), zone);
                self.line(format!(
                    "  … {n} more {how}, the last of {last}; --verbose shows all"
                ));
            }
        }
    }

    fn skipped(&mut self, skipped: &Skipped, zone: &TimeZone) {
        let (time, reason) = (text::time(skipped.run, zone), short(&skipped.reason));
        let outcome = self.colour(Colour::Yellow, "no UpgradeJob");
        self.line(format!("  {time}  {outcome}: {reason}"));
    }

    fn job(&mut self, job: &Job, zone: &TimeZone) {
        let time = text::time(job.start_after, zone);
        let version = match (&job.installed, &job.version) {
            (Some(from), Some(to)) => format!("{from} to {to}"),
            (None, Some(to)) => format!("to {to}"),
            (_, None) => "no update".to_owned(),
        };
        let took = took(job).map(text::duration);
        let message = short(job.message.as_deref().unwrap_or("no message"));
        let (colour, outcome) = match job.phase {
            JobPhase::Succeeded => (Colour::Green, "Succeeded"),
            JobPhase::Failed => (Colour::Red, "Failed"),
            JobPhase::Skipped => (Colour::Yellow, "Skipped"),
            JobPhase::Pending => (Colour::Yellow, "Pending"),
            JobPhase::Running => (Colour::Yellow, "Running"),
            JobPhase::Paused => (Colour::Yellow, "Paused"),
        };
        let outcome = self.colour(colour, outcome);
        let rest = match job.phase {
            JobPhase::Succeeded => took.map_or_else(String::new, |took| format!(" in {took}")),
            JobPhase::Failed => {
                let after = took.map_or_else(String::new, |took| format!(" after {took}"));
                let reason = job.reason.as_deref().unwrap_or_default();
                format!("{after}: {reason}: {message}")
            }
            JobPhase::Skipped => format!(": {message}"),
            JobPhase::Pending | JobPhase::Running | JobPhase::Paused => {
                format!(" when the rehearsal ended: {message}")
            }
        };
        self.line(format!("  {time}  {version}  {outcome}{rest}"));
    }

    fn steps(&mut self, job: &Job, zone: &TimeZone) {
        let shown = job.steps.iter().filter(|step| self.shows(step));
        let (reached, not_reached): (Vec<_>, Vec<_>) = shown.partition(|step| step.started_at.is_some());
        let width = reached.iter().map(|step| step.name.chars().count()).max();
        for step in &reached {
            self.step(step, width.unwrap_or_default(), zone);
        }
        if !not_reached.is_empty() {
            let names: Vec<&str> = not_reached.iter().map(|step| step.name.as_str()).collect();
            self.line(format!("      not reached: {}", names.join(", ")));
        }
        if job.finished_at.is_some() && !job.paused_pools.is_empty() {
            let pools = job.paused_pools.join(", ");
            let left = self.colour(Colour::Red, "left paused");
            self.line(format!("      {left}: {pools}"));
        }
    }

    /// Whether a step says something: hooks that were not due, and what waits for all hooks of an event, do not.
    fn shows(&self, step: &StepStatus) -> bool {
        let of_hooks = ["Hook", "HooksJoin"].contains(&step.kind.as_str());
        match (self.style.detail, step.phase) {
            (Detail::All, _)
            | (Detail::Eventful, StepPhase::Failed | StepPhase::Running | StepPhase::Overridden) => true,
            (Detail::Eventful, StepPhase::Pending | StepPhase::Skipped) => !of_hooks,
            (Detail::Eventful, StepPhase::Succeeded) => step.kind != "HooksJoin",
        }
    }

    fn step(&mut self, step: &StepStatus, width: usize, zone: &TimeZone) {
        let Some(started) = step.started_at.as_ref().map(|t| t.0) else {
            return;
        };
        let local = started.to_zoned(zone.clone()).strftime("%a %H:%M:%S").to_string();
        let took = step.finished_at.as_ref().map(|t| t.0.duration_since(started));
        let took = took.map_or_else(|| "…".to_owned(), text::duration);
        let message = short(step.message.as_deref().unwrap_or_default());
        let phase = match step.phase {
            StepPhase::Succeeded => String::new(),
            StepPhase::Failed => format!("{}: ", self.colour(Colour::Red, "Failed")),
            StepPhase::Running => format!("{}: ", self.colour(Colour::Yellow, "Running")),
            StepPhase::Pending => "Pending: ".to_owned(),
            StepPhase::Skipped => "Skipped: ".to_owned(),
            StepPhase::Overridden => "Overridden: ".to_owned(),
        };
        let name = &step.name;
        self.line(format!(
            "      {local} {took:>8}  {name:<width$}  {phase}{message}"
        ));
    }

    fn totals(&mut self, story: &Story<'_>) {
        let Totals {
            runs,
            succeeded,
            failed,
            skipped,
            unfinished,
        } = story.totals();
        let one_or_more = if runs == 1 { "run" } else { "runs" };
        let count = |page: &Self, n: usize, what: &str, colour: Colour| {
            let text = format!("{n} {what}");
            if n == 0 { text } else { page.colour(colour, &text) }
        };
        let mut parts = vec![
            count(self, succeeded, "succeeded", Colour::Green),
            count(self, failed, "failed", Colour::Red),
            count(self, skipped, "skipped", Colour::Yellow),
        ];
        if unfinished > 0 {
            parts.push(format!("{unfinished} not over at the end"));
        }
        self.line("");
        self.line(format!("{runs} {one_or_more}: {}", parts.join(", ")));
        if let Some((job, took)) = story.longest() {
            let start = text::time(job.start_after, story.recording.zones.default_zone());
            self.line(format!(
                "The longest took {}, that of {start}.",
                text::duration(took)
            ));
            let outside = story.recording.time_outside_windows();
            self.line(if outside > SignedDuration::ZERO {
                format!(
                    "Outside of the windows (from startAfter until upgradeTimeout is over) the cluster was on the move for {}.",
                    text::duration(outside)
                )
            } else {
                "The cluster was never on the move outside of a window (from startAfter until upgradeTimeout is over)."
                    .to_owned()
            });
        }
    }

    fn left_out(&mut self, story: &Story<'_>) {
        let kinds = story.recording.kinds_left_out();
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            self.line(format!(
                "Left out, as they have nothing to do with upgrades: {}.",
                kinds.join(", ")
            ));
        }
    }

    fn warnings(&mut self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        self.line("");
        self.line(self.colour(Colour::Yellow, "Warnings"));
        for warning in warnings {
            self.line(format!("  - {}", one_line(warning)));
        }
    }
}

/// `90 days`, or hours where it is no whole day.
fn days(length: SignedDuration) -> String {
    let day = 24 * 60 * 60;
    match (length.as_secs() / day, length.as_secs() % day) {
        (1, 0) => "1 day".to_owned(),
        (days, 0) => format!("{days} days"),
        (_, _) => text::duration(length),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// In one line, and not too long for a terminal.
fn short(text: &str) -> String {
    let text = one_line(text);
    if text.chars().count() <= MESSAGE {
        return text;
    }
    text.chars().take(MESSAGE - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
