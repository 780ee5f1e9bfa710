//! Releases that appear by themselves: a new z-stream of every minor every week or so, a new minor every few months.
//!
//! Nothing is kept: which releases there are follows from seed and time.

use jiff::{SignedDuration, Timestamp};
use semver::Version;

use crate::simulator::openshift::durations::below;

/// How many z-streams of a minor the update service offers: the newest ones.
const OFFERED: u64 = 3;
/// How long a minor gets z-streams: OpenShift's life cycle is 18 months.
const LIFE: SignedDuration = SignedDuration::from_hours(548 * 24);

/// A train of releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Train {
    pub(super) seed: u64,
    pub(super) start: Timestamp,
    /// Installed at the start.
    pub(super) installed: Version,
    /// Between two z-streams.
    pub(super) every: SignedDuration,
    /// Between two minors.
    pub(super) minor_every: SignedDuration,
}

impl Train {
    /// The newest releases of each minor that has appeared by `now`.
    pub(super) fn releases(&self, now: Timestamp) -> Vec<Version> {
        let of_minor = |minor: u64| {
            // A z-stream moves by less than the time between two: looking one further than the average is enough.
            let age = now.duration_since(self.birth(minor)).min(LIFE);
            let last = periods(age, self.every) + 1;
            let out = (0..=last).rev().filter(move |z| self.appears(minor, *z) <= now);
            out.take(usize::try_from(OFFERED).unwrap_or(1))
                .map(move |z| self.version(minor, z))
        };
        let mut all: Vec<Version> = self.minors(now).flat_map(of_minor).collect();
        all.sort();
        all
    }

    /// When the list changes, until `end`.
    pub(super) fn changes(&self, end: Timestamp) -> Vec<Timestamp> {
        let of_minor = |minor: u64| {
            let last = periods(LIFE, self.every) + 1;
            (0..=last)
                .map(move |z| self.appears(minor, z))
                .take_while(move |at| *at <= end)
        };
        let all = self.minors(end).flat_map(of_minor);
        let mut all: Vec<Timestamp> = all.filter(|at| *at > self.start).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The minors that have appeared by `now`, counted from the installed one.
    fn minors(&self, now: Timestamp) -> impl Iterator<Item = u64> {
        // The end of time stands for whatever comes later.
        let appeared = move |n: &u64| self.birth(*n) <= now && self.birth(*n) < Timestamp::MAX;
        (0_u64..).take_while(appeared)
    }

    /// When a minor's first z-stream appears, on average; the installed minor's next one is there from the start.
    fn birth(&self, minor: u64) -> Timestamp {
        if minor == 0 {
            return self.start;
        }
        // The installed minor has an age; the next one comes when that is over.
        let offset = below(nanos(self.minor_every), self.seed, &["first minor"]);
        let periods = i32::try_from(minor - 1).unwrap_or(i32::MAX);
        let wait =
            SignedDuration::from_nanos(offset).saturating_add(self.minor_every.saturating_mul(periods));
        self.start.checked_add(wait).unwrap_or(Timestamp::MAX)
    }

    fn appears(&self, minor: u64, z: u64) -> Timestamp {
        let born = self.birth(minor);
        if z == 0 {
            return born;
        }
        let about = [minor.to_string(), z.to_string()];
        let about: Vec<&str> = about.iter().map(String::as_str).collect();
        let most = self.every / 7;
        let moved = SignedDuration::from_nanos(below(2 * nanos(most), self.seed, &about)) - most;
        // To the minute: releases of some odd nanosecond help nobody.
        let wait = self
            .every
            .saturating_mul(i32::try_from(z).unwrap_or(i32::MAX))
            .saturating_add(moved);
        let wait = SignedDuration::from_mins(wait.as_mins());
        born.checked_add(wait).unwrap_or(Timestamp::MAX)
    }

    fn version(&self, minor: u64, z: u64) -> Version {
        let Version {
            major,
            minor: installed,
            patch,
            ..
        } = self.installed;
        if minor == 0 {
            Version::new(major, installed, patch + 1 + z)
        } else {
            // A minor becomes available in stable channels some z-streams after its first release.
            Version::new(major, installed + minor, z + 1)
        }
    }
}

/// How many times `every` fits into `time`.
fn periods(time: SignedDuration, every: SignedDuration) -> u64 {
    let count = time.as_nanos() / every.as_nanos().max(1);
    u64::try_from(count).unwrap_or(0)
}

fn nanos(duration: SignedDuration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(seed: u64) -> Train {
        Train {
            seed,
            start: "2026-11-24T00:00:00Z".parse().unwrap(),
            installed: Version::new(4, 18, 3),
            every: SignedDuration::from_hours(7 * 24),
            minor_every: SignedDuration::from_hours(120 * 24),
        }
    }

    fn day(train: &Train, day: i64) -> Timestamp {
        train.start + SignedDuration::from_hours(24 * day)
    }

    #[test]
    fn an_update_is_there_from_the_start_and_a_new_one_comes_every_week_or_so() {
        for seed in 0..20 {
            let train = train(seed);
            let newest = |at| {
                let all = train.releases(at);
                all.into_iter().rfind(|v| v.minor == 18).unwrap().patch
            };
            assert_eq!(newest(train.start), 4);
            // 10 weeks; the last z-stream may be a day late.
            assert!((13..=14).contains(&newest(day(&train, 70))), "seed {seed}");
            let gaps: Vec<i64> = train
                .changes(day(&train, 700))
                .windows(2)
                .map(|w| w[1].duration_since(w[0]).as_secs())
                .collect();
            assert!(gaps.iter().all(|gap| *gap >= 0), "seed {seed}");
        }
    }

    #[test]
    fn three_minors_come_in_a_year_and_only_the_newest_of_each_are_offered() {
        let train = train(7);
        let all = train.releases(day(&train, 365));
        let minors: std::collections::BTreeSet<u64> = all.iter().map(|v| v.minor).collect();
        assert!((3..=5).contains(&minors.len()), "{minors:?}");
        assert!(all.len() <= minors.len() * 3);
        assert!(train.releases(day(&train, 3650)).len() < 120);
    }

    #[test]
    fn the_list_changes_exactly_when_it_is_said_to() {
        let train = train(3);
        let end = day(&train, 20);
        let changes = train.changes(end);
        let mut now = train.start;
        let mut seen = Vec::new();
        let mut list = train.releases(now);
        while now < end {
            now += SignedDuration::from_mins(1);
            let next = train.releases(now);
            if next != list {
                seen.push(now);
                list = next;
            }
        }
        // Walked in whole minutes, told to the nanosecond.
        assert_eq!(seen.len(), changes.len());
        for (seen, told) in seen.iter().zip(&changes) {
            let late = seen.duration_since(*told);
            assert!(!late.is_negative() && late <= SignedDuration::from_mins(1));
        }
    }

    #[test]
    fn another_seed_gives_other_times() {
        assert_ne!(
            train(1).changes(day(&train(1), 90)),
            train(2).changes(day(&train(1), 90))
        );
    }
}
