//! Upgrades that do not fit: into their own time, or beside those of another config.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::{Input, count};
use crate::{
    api::conditions::reasons,
    simulator::rehearsal::{Story, config::Config, job::Job},
    text,
};

/// From this part of `upgradeTimeout` on, a slower night may be too slow.
const CLOSE: f64 = 0.9;

pub(super) fn warnings(story: &Story<'_>, input: Input<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for (uid, config) in story.configs() {
        let jobs: Vec<&Job> = story.jobs_of(uid).collect();
        let found = too_short(story, config, &jobs);
        let found = found.or_else(|| close(config, &jobs)).into_iter();
        let found = found.chain(unpausing(&jobs)).chain(not_started(config, &jobs));
        let place = input.place(config);
        all.extend(found.map(|warning| format!("{place}: {warning}")));
    }
    all.extend(overlaps(story));
    all
}

/// `n of m upgrades`.
fn part(n: usize, jobs: &[&Job]) -> String {
    format!("{n} of {}", count(jobs.len(), "upgrade"))
}

/// Jobs that were not done by `upgradeTimeout`, and how long the cluster took in the end.
fn too_short(story: &Story<'_>, config: &Config, jobs: &[&Job]) -> Option<String> {
    let late: Vec<&Job> = ended_by(jobs, reasons::TIMED_OUT).collect();
    let moves = story.recording.moves();
    let settled = |job: &Job| {
        let end = job.finished_at?;
        let (_, settled) = moves
            .iter()
            .find(|(start, until)| *start <= end && end <= *until)?;
        Some(settled.duration_since(job.start_after))
    };
    let n = late.len();
    let longest = late.iter().filter_map(|job| settled(job)).max();
    let took = longest.map_or_else(String::new, |took| {
        let took = text::duration(took);
        format!("; the cluster, left alone, came to rest {took} after startAfter at the latest")
    });
    (n > 0).then(|| {
        let timeout = text::duration(timeout(config));
        let part = part(n, jobs);
        format!(
            "{part} timed out: upgradeTimeout ({timeout} from startAfter) is too short for what was simulated{took}"
        )
    })
}

/// Nothing timed out, but not by much.
fn close(config: &Config, jobs: &[&Job]) -> Option<String> {
    let longest = jobs
        .iter()
        .filter(|job| job.started_at.is_some())
        .filter_map(|job| Some(job.finished_at?.duration_since(job.start_after)))
        .max()?;
    let timeout = timeout(config);
    (longest.as_secs_f64() > timeout.as_secs_f64() * CLOSE).then(|| {
        format!(
            "the longest upgrade took {} of upgradeTimeout {}: a slower night fails",
            text::duration(longest),
            text::duration(timeout)
        )
    })
}

fn timeout(config: &Config) -> SignedDuration {
    config.object.spec.job_template.spec.config.upgrade_timeout()
}

fn unpausing(jobs: &[&Job]) -> Option<String> {
    let mut late = ended_by(jobs, reasons::UNPAUSING_POOLS_EXPIRED);
    let first = late.next()?;
    let part = part(late.count() + 1, jobs);
    let why = first.message.as_deref().unwrap_or("no message");
    Some(format!("{part} could not unpause held pools by delayMax: {why}"))
}

fn not_started(config: &Config, jobs: &[&Job]) -> Option<String> {
    let mut late = jobs.iter().filter(|job| job.expired.is_some());
    let first = late.next()?;
    let part = part(late.count() + 1, jobs);
    let delay = text::duration(config.object.spec.max_upgrade_start_delay());
    let why = first.message.as_deref().unwrap_or("no message");
    Some(format!(
        "{part} could not start within maxUpgradeStartDelay ({delay}): {why}"
    ))
}

fn ended_by<'a>(jobs: &'a [&'a Job], reason: &'static str) -> impl Iterator<Item = &'a Job> {
    let jobs = jobs.iter().copied();
    jobs.filter(move |job| job.reason.as_deref() == Some(reason))
}

/// One config, its runs and how long the window of a run is open.
struct Windows<'a> {
    config: &'a Config,
    runs: BTreeSet<Timestamp>,
    open: SignedDuration,
}

impl Windows<'_> {
    /// The runs that begin in a window of `other`; of two at the same instant, both do.
    fn begin_in(&self, other: &Self) -> impl Iterator<Item = Timestamp> {
        self.runs.iter().copied().filter(|run| {
            let before = other.runs.range(..=*run).next_back();
            before.is_some_and(|before| run.duration_since(*before) < other.open)
        })
    }
}

/// Pairs of configs whose windows overlap. A window is open from the run to the end of `upgradeTimeout`.
fn overlaps(story: &Story<'_>) -> Vec<String> {
    let all: Vec<Windows<'_>> = story
        .configs()
        .into_iter()
        .map(|(uid, config)| Windows {
            config,
            // A run that makes no job is in nobody's way.
            runs: story.jobs_of(uid).map(|job| job.start_after).collect(),
            open: timeout(config),
        })
        .collect();
    let pairs = all
        .iter()
        .enumerate()
        .flat_map(|(i, a)| all.iter().skip(i + 1).map(move |b| (a, b)));
    pairs.filter_map(|(a, b)| overlap(story, a, b)).collect()
}

fn overlap(story: &Story<'_>, a: &Windows<'_>, b: &Windows<'_>) -> Option<String> {
    let runs: BTreeSet<Timestamp> = a.begin_in(b).chain(b.begin_in(a)).collect();
    let first = text::time(*runs.first()?, &a.config.zone(&story.recording.zones));
    let begin = if runs.len() == 1 { "begins" } else { "begin" };
    Some(format!(
        "UpgradeConfigs {} and {} overlap: {} {begin} while a window of the other (upgradeTimeout {} and {}) is open, the \
         first at {first}; one upgrade runs at a time, so the later one waits, and is skipped after its \
         maxUpgradeStartDelay",
        a.config.name(),
        b.config.name(),
        count(runs.len(), "run"),
        text::duration(a.open),
        text::duration(b.open),
    ))
}
