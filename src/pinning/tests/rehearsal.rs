//! Ten years of an operator's life, woken by its own decisions only: every run of the reference (a clock on the wall, see
//! [`crate::schedule::reference`]) makes one job or is recorded, exactly once.

use std::{collections::BTreeMap, ops::Range};

use super::*;
use crate::{
    pinning::runs::{Decided, Scene},
    schedule::reference::{self, ROWS, Row, ZONES},
};

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Job,
    Suspended,
    Missed,
}

/// Ten years of a config on a cluster where things happen.
struct Life {
    config: UpgradeConfig,
    world: World,
    settings: ConfigSettings,
    begin: Timestamp,
    end: Timestamp,
    outcomes: BTreeMap<Timestamp, Outcome>,
    passes: usize,
}

const DAY: i64 = 24 * 60;
/// Days of each year on which the update server is silent.
const UNKNOWN: Range<i64> = 200..202;
/// Days of every second year that a suspension window covers: some weeks around the spring's clock changes.
const WINDOW: Range<i64> = 70..100;
/// Days of each year on which `spec.schedule.suspend` is set.
const SWITCH: Range<i64> = 180..190;
/// Days of each year on which no operator runs.
const ABSENCE: Range<i64> = 271..291;
/// Nothing that happens longer ago than this concerns a run: the earliest is pinned 26 hours ahead.
const BEFORE: SignedDuration = SignedDuration::from_hours(28);
/// A job lasts 90 minutes, and may start an hour late.
const AFTER: SignedDuration = SignedDuration::from_hours(4);

impl Life {
    fn new(row: &Row, location: &str, year: i16, pin: &str) -> Self {
        let (begin, end) = (reference::new_year(year), reference::new_year(year + 10));
        let (mut config, mut world) = (config(), world());
        config.metadata.creation_timestamp = Some(Time(begin));
        config.spec.schedule.cron = row.cron.to_owned();
        config.spec.schedule.iso_week = Some(row.iso_week.to_owned());
        config.spec.schedule.location = Some(location.to_owned());
        config.spec.pin_version_window = Some(crate::api::GoDuration(pin.to_owned()));
        world.windows = (0..10)
            .step_by(2)
            .map(|n| {
                let day = |d: i64| {
                    begin
                        .checked_add(SignedDuration::from_mins((n * 365 + d) * DAY))
                        .unwrap()
                };
                window(&day(WINDOW.start).to_string(), &day(WINDOW.end).to_string())
            })
            .collect();
        Self {
            config,
            world,
            settings: settings(),
            begin,
            end,
            outcomes: BTreeMap::new(),
            passes: 0,
        }
    }

    fn day(&self, now: Timestamp) -> i64 {
        now.duration_since(self.begin).as_mins() / DAY % 365
    }

    /// Nobody is there for some weeks of each year.
    fn back_from_absence(&self, now: Timestamp) -> Timestamp {
        let day = self.day(now);
        if ABSENCE.contains(&day) {
            let since_midnight = now.duration_since(self.begin).as_mins() % DAY;
            let back = SignedDuration::from_mins((ABSENCE.end - day) * DAY - since_midnight + 7);
            return now.checked_add(back).unwrap();
        }
        now
    }

    /// What has to become of a run; `None` where something happens around it. `earlier` is the run before it.
    fn due(&self, run: Timestamp, earlier: Option<Timestamp>) -> Option<Outcome> {
        let around = [run - BEFORE, run, run + AFTER];
        let touches = |days: &Range<i64>| around.iter().any(|t| days.contains(&self.day(*t)));
        // The one before it may still be under way.
        let is_close = earlier.is_some_and(|earlier| run.duration_since(earlier) < AFTER);
        if is_close || [UNKNOWN, SWITCH, ABSENCE].iter().any(touches) || around[0] < self.begin {
            return None;
        }
        let in_window = |t: &Timestamp| {
            let year = t.duration_since(self.begin).as_mins() / DAY / 365;
            year % 2 == 0 && WINDOW.contains(&self.day(*t))
        };
        match around.iter().filter(|t| in_window(t)).count() {
            0 => Some(Outcome::Job),
            n if n == around.len() => Some(Outcome::Suspended),
            _ => None,
        }
    }

    fn happen(&mut self, now: Timestamp) {
        let day = self.day(now);
        self.config.spec.schedule.suspend = SWITCH.contains(&day);
        let retrieved = if UNKNOWN.contains(&day) { "False" } else { "True" };
        self.world.cluster_version = Some(cluster_version(&offered(), retrieved));
        for job in &mut self.world.jobs {
            let over = job
                .spec
                .start_after
                .0
                .checked_add(SignedDuration::from_mins(90))
                .unwrap();
            if now >= over && !job.is_finished() {
                finish(job, types::SUCCEEDED, "Succeeded");
            }
        }
    }

    /// One pass; the runs that it decides are noted.
    fn pass(&mut self, now: Timestamp) -> ConfigDecision {
        self.passes += 1;
        let schedule = Schedule::parse(&self.config.spec.schedule, &self.settings.zones)
            .unwrap()
            .schedule;
        let jobs: Vec<&UpgradeJob> = self.world.jobs.iter().collect();
        let scene = Scene {
            config: &self.config,
            world: &self.world,
            now,
            schedule: &schedule,
            jobs: &jobs,
        };
        for (run, how) in scene.walk().decided {
            let outcome = match how {
                Decided::Created(_) => Outcome::Job,
                Decided::Suspended(_) => Outcome::Suspended,
                Decided::Missed(_) => Outcome::Missed,
            };
            assert_eq!(
                self.outcomes.insert(run, outcome),
                None,
                "{run} was decided twice"
            );
        }
        let decision = decide(&self.config, &self.world, now, &self.settings);
        if let Some(mut job) = decision.create.clone() {
            job.metadata.uid = Some(format!("uid-of-{}", job.name_any()));
            assert!(
                self.world.jobs.iter().all(UpgradeJob::is_finished),
                "one unfinished job at a time"
            );
            self.world.jobs.push(job);
        }
        for (_, uid) in &decision.delete_jobs {
            self.world.jobs.retain(|j| j.metadata.uid.as_ref() != Some(uid));
        }
        self.config.status = Some(decision.status.clone());
        decision
    }

    fn live(&mut self) {
        let mut now = self.begin;
        while now < self.end {
            self.happen(now);
            let decision = self.pass(now);
            let unfinished = self.world.jobs.iter().filter(|j| !j.is_finished());
            let ends = unfinished.map(|j| {
                let start = j.spec.start_after.0;
                start.checked_add(SignedDuration::from_mins(90)).unwrap()
            });
            let next = if decision.create.is_some() {
                // Its watch wakes the operator.
                now.checked_add(SignedDuration::from_secs(1)).unwrap()
            } else {
                let wakes = decision.wake_at.into_iter().chain(ends.filter(|t| *t > now));
                wakes.min().unwrap_or(self.end)
            };
            assert!(next > now, "the clock stands still at {now}");
            now = self.back_from_absence(next);
        }
    }
}

fn rehearse(rows: &[usize], (location, year): (&str, i16)) -> BTreeMap<Outcome, usize> {
    let zones = Zones::bundled(location).unwrap();
    let (begin, end) = (reference::new_year(year), reference::new_year(year + 10));
    let of: Vec<&Row> = rows.iter().map(|n| &ROWS[*n]).collect();
    let expected = reference::runs(&of, zones.default_zone(), begin, end, false);
    let mut counts = BTreeMap::new();
    for ((n, row), expected) in rows.iter().zip(of).zip(expected) {
        let pin = ["4h", "0", "30m", "26h"][n % 4];
        let mut life = Life::new(row, location, year, pin);
        life.live();
        let what = format!(
            "{} {} in {location} from {year}, pinned {pin} ahead",
            row.cron, row.iso_week
        );
        let decided: Vec<Timestamp> = life.outcomes.keys().copied().filter(|t| *t <= end).collect();
        let settled = |t: &Timestamp| t.duration_since(end) < -SignedDuration::from_hours(24);
        let got: Vec<_> = decided.iter().filter(|t| settled(t)).collect();
        let wanted: Vec<_> = expected.iter().filter(|t| settled(t)).collect();
        assert_eq!(got, wanted, "{what}");
        // Runs at the very end may be open still.
        assert!(decided.iter().all(|t| expected.contains(t)), "{what}");
        let mut earlier = None;
        for run in got {
            if let Some(due) = life.due(*run, earlier) {
                assert_eq!(life.outcomes[run], due, "{run} of {what}");
            }
            earlier = Some(*run);
        }
        // A run is looked at when it is pinned, seen, begun and over; and every minute while updates are unknown.
        let polls = 10 * usize::try_from(DAY * (UNKNOWN.end - UNKNOWN.start)).unwrap();
        let bound = polls + 1_000 + expected.len() * 6;
        assert!(
            life.passes < bound,
            "{what}: {} passes for {} runs",
            life.passes,
            expected.len()
        );
        for outcome in life.outcomes.into_values() {
            *counts.entry(outcome).or_default() += 1;
        }
    }
    counts
}

/// One schedule for each third zone, none that runs daily: that takes longer.
#[test]
fn ten_years_account_for_each_run_exactly_once() {
    let mut counts: BTreeMap<Outcome, usize> = BTreeMap::new();
    for (n, zone) in ZONES.into_iter().enumerate().step_by(3) {
        for (outcome, count) in rehearse(&[6 + n * 7 % 34], zone) {
            *counts.entry(outcome).or_default() += count;
        }
    }
    for outcome in [Outcome::Job, Outcome::Suspended, Outcome::Missed] {
        assert!(counts[&outcome] > 10, "{counts:?}");
    }
}

#[test]
#[ignore = "takes minutes: TESTS_ALL_YEARS=1 tests/run, or cargo test --release --lib rehearsal::ten_years -- --ignored"]
fn ten_years_of_all_schedules_in_all_zones_account_for_each_run_exactly_once() {
    let all: Vec<usize> = (0..ROWS.len()).collect();
    let mut counts: BTreeMap<Outcome, usize> = BTreeMap::new();
    for zone in ZONES {
        for (outcome, count) in rehearse(&all, zone) {
            *counts.entry(outcome).or_default() += count;
        }
    }
    eprintln!("{counts:?}");
}
