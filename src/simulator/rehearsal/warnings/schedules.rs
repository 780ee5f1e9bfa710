//! Schedules that never run, always fall into a suspension, or run two weeks in a row.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{Input, count};
use crate::{
    api::UpgradeSuspensionWindow,
    schedule::{
        Parsed, Schedule,
        forecast::{Verdict, forecast},
        iso_week::IsoWeek,
    },
    simulator::rehearsal::{Story, config::Config},
    text,
};

pub(super) fn warnings(story: &Story<'_>, input: Input<'_>) -> Vec<String> {
    let windows: Vec<UpgradeSuspensionWindow> = input.of().map(|(_, window)| window).collect();
    let recording = story.recording;
    let mut all = Vec::new();
    for (_, config) in story.configs() {
        let place = input.place(config);
        let Ok(parsed) = Schedule::parse(&config.object.spec.schedule, &recording.zones) else {
            continue;
        };
        let runs = config.runs(recording.from, recording.end, &recording.zones);
        let found = parsed.warnings.iter().cloned();
        let found = found
            .chain(never(story, config, &parsed, &runs))
            .chain(always_suspended(config, &windows, &parsed, &runs))
            .chain(week_53(config, &parsed, &runs));
        all.extend(found.map(|warning| format!("{place}: {warning}")));
    }
    all
}

fn never(
    story: &Story<'_>,
    config: &Config,
    Parsed { schedule, .. }: &Parsed,
    runs: &BTreeSet<Timestamp>,
) -> Option<String> {
    if !runs.is_empty() || config.problem().is_some() {
        return None;
    }
    let end = story.recording.end;
    schedule.never(end).or_else(|| {
        let next = text::time(schedule.next_after(end)?, schedule.zone());
        Some(format!(
            "there is no run in the time of the rehearsal; the next one after it is at {next}"
        ))
    })
}

fn always_suspended(
    config: &Config,
    windows: &[UpgradeSuspensionWindow],
    Parsed { schedule, .. }: &Parsed,
    runs: &BTreeSet<Timestamp>,
) -> Option<String> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for run in runs {
        let expected = forecast(&config.object, windows, *run, schedule.zone());
        match expected.verdict {
            Verdict::Suspended | Verdict::ScheduleSuspended => {
                *reasons.entry(expected.reason).or_default() += 1;
            }
            Verdict::WillRun | Verdict::Missed => return None,
        }
    }
    let (most, _) = reasons.iter().max_by_key(|(_, n)| **n)?;
    let others = match reasons.len() {
        1 => String::new(),
        n => format!(" and {}", count(n - 1, "other window")),
    };
    let all = match runs.len() {
        1 => "the only run is".to_owned(),
        n => format!("all {n} runs are"),
    };
    Some(format!("{all} suspended: {most}{others}"))
}

/// `@odd` matches week 53 and, one week later, week 1.
fn week_53(config: &Config, Parsed { schedule, .. }: &Parsed, runs: &BTreeSet<Timestamp>) -> Option<String> {
    let iso_week = config.object.spec.schedule.iso_week().unwrap_or_default();
    if IsoWeek::parse(iso_week) != Ok(IsoWeek::Odd) {
        return None;
    }
    let week = |run: &Timestamp| run.to_zoned(schedule.zone().clone()).date().iso_week_date();
    let of_week = |year: i16, number: i8| {
        let mut of_week = runs.iter().filter(|run| {
            let week = week(run);
            (week.year(), week.week()) == (year, number)
        });
        of_week.next_back().copied()
    };
    let years: BTreeSet<i16> = runs.iter().map(|run| week(run).year()).collect();
    years.into_iter().find_map(|year| {
        let last = of_week(year, 53)?;
        let first = of_week(year + 1, 1)?;
        Some(format!(
            "isoWeek @odd runs two weeks in a row: in week 53 of {year}, at {}, and in week 1 of {}, at {}",
            text::time(last, schedule.zone()),
            year + 1,
            text::time(first, schedule.zone())
        ))
    })
}
