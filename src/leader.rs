//! Who may write: pure. Two operators that run by accident must never both act, so the one that holds a Lease acts, and the
//! other one waits.
//!
//! The rules are those of client-go's `tools/leaderelection`, with three differences, each to be safer:
//! - a lease is ours by the instant at which we took it, not by our name alone: a second process of the same name, or an
//!   earlier life of ours, is a stranger whose lease must run out;
//! - the leader stops by itself ([`FENCE`] after it *asked* for the last renewal that went through), before anybody else may
//!   take the lease ([`DURATION`] after that renewal was *seen*);
//! - who has lost the lease does not end: an API server that is away for minutes is normal while it is upgraded, and a process
//!   that ended each time would be held back by the kubelet for longer and longer. It follows, with its watches warm.
//!
//! Clocks of different machines are never compared. `Instant` is our own monotonic clock; times in a lease are for people.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use tokio::time::Instant;

/// Name of our Lease, in the operator's namespace.
pub const LEASE: &str = "upgrade-operator";
/// How long a lease is valid after it was seen to be renewed (client-go: `LeaseDuration`).
pub const DURATION: Duration = Duration::from_secs(15);
/// How long a leader may write after it asked for the last renewal that went through (client-go: `RenewDeadline`). The rest
/// of [`DURATION`] is for what it sent last and is still on its way.
pub const FENCE: Duration = Duration::from_secs(10);
/// How often a leader renews, and the others look (client-go: `RetryPeriod`).
pub const RETRY: Duration = Duration::from_secs(2);
/// A lease that claims to be valid for longer is not believed: nobody could ever take it.
const LONGEST: Duration = Duration::from_secs(600);

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; `None` = nobody.
    pub holder: Option<String>,
    /// How long it is valid without renewal, in seconds.
    pub seconds: Option<i32>,
    /// When the holder took it, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// When the holder renewed it last, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// How often the holder has changed.
    pub transitions: i32,
}

impl From<&Lease> for Record {
    fn from(lease: &Lease) -> Self {
        let LeaseSpec {
            acquire_time,
            holder_identity,
            lease_duration_seconds,
            lease_transitions,
            renew_time,
            preferred_holder: _,
            strategy: _,
        } = lease.spec.clone().unwrap_or_default();
        Self {
            holder: holder_identity.filter(|h| !h.is_empty()),
            seconds: lease_duration_seconds,
            acquired: acquire_time.map(|t| t.0),
            renewed: renew_time.map(|t| t.0),
            transitions: lease_transitions.unwrap_or_default(),
        }
    }
}

impl Record {
    /// How long it is valid without renewal: at least as long as ours, whatever it says, and not for ever.
    fn duration(&self) -> Duration {
        let seconds = self
            .seconds
            .and_then(|s| u64::try_from(s).ok())
            .unwrap_or_default();
        Duration::from_secs(seconds).clamp(DURATION, LONGEST)
    }

    /// The same as a spec, for the API server.
    pub fn to_spec(&self) -> LeaseSpec {
        LeaseSpec {
            acquire_time: self.acquired.map(MicroTime),
            // Empty rather than absent, as client-go leaves a lease that it gives back.
            holder_identity: Some(self.holder.clone().unwrap_or_default()),
            lease_duration_seconds: self.seconds,
            lease_transitions: Some(self.transitions),
            renew_time: self.renewed.map(MicroTime),
            ..LeaseSpec::default()
        }
    }
}

/// A lease as it was read, and since when it has been so by our own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What it says.
    pub record: Record,
    /// When we first read it with this content.
    pub since: Instant,
}

impl Observation {
    /// What is known after a read at `now`: a lease that has not changed keeps its age.
    #[must_use]
    pub fn after(before: Option<&Self>, record: Record, now: Instant) -> Self {
        let since = before.filter(|b| b.record == record).map_or(now, |b| b.since);
        Self { record, since }
    }

    /// From when on somebody else may take it; `None` = nobody holds it.
    pub fn expires(&self) -> Option<Instant> {
        self.record.holder.as_ref()?;
        Some(self.since + self.record.duration())
    }
}

/// A lease of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// When we took it, by our wall clock in microseconds: what tells this term from all others.
    pub acquired: Timestamp,
    /// The moment *before* we sent the last renewal that went through.
    pub asked: Instant,
}

impl Term {
    /// From then on nothing more may be written.
    pub fn fence(&self) -> Instant {
        self.asked + FENCE
    }
}

/// Us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Our name, different for each process.
    pub identity: String,
    /// When we last tried to take the lease. An answer may have been lost, so that it is ours without our knowing.
    pub attempted: Option<Timestamp>,
    /// What we hold.
    pub term: Option<Term>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take the lease.
    Acquire,
    /// Renew it.
    Renew,
    /// Somebody else holds it: look again then.
    Wait(Instant),
    /// We do not hold it any more: stop writing. Then ask again.
    StepDown,
}

/// Decides, with the lease as it was read last (`None` = there is none).
pub fn decide(us: &Candidate, lease: Option<&Observation>, now: Instant) -> Verdict {
    let is_ours = lease.is_none_or(|l| us.holds(&l.record));
    match us.term {
        Some(term) if now >= term.fence() || !is_ours => Verdict::StepDown,
        Some(_) => Verdict::Renew,
        None => match lease.and_then(Observation::expires) {
            Some(expires) if !is_ours && now < expires => Verdict::Wait(expires.min(now + RETRY)),
            Some(_) | None => Verdict::Acquire,
        },
    }
}

impl Candidate {
    /// Whether the lease is the one that this process took.
    fn holds(&self, record: &Record) -> bool {
        record.holder.as_ref() == Some(&self.identity)
            && record.acquired.is_some()
            && record.acquired == self.attempted
    }

    /// The lease as it shall be once we have taken or renewed it at `wall`.
    pub fn claim(&self, before: Option<&Record>, wall: Timestamp) -> Record {
        let wall = whole_microseconds(wall);
        let kept = before.filter(|r| self.holds(r));
        let transitions = before.map_or(0, |r| r.transitions);
        Record {
            holder: Some(self.identity.clone()),
            seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquired: kept.map_or(Some(wall), |r| r.acquired),
            renewed: Some(wall),
            transitions: match (before, kept) {
                (Some(_), None) => transitions.saturating_add(1),
                (None, _) | (_, Some(_)) => transitions,
            },
        }
    }

    /// The lease as it shall be once we have given it back; `None` if it is not ours.
    pub fn release(&self, before: &Record, wall: Timestamp) -> Option<Record> {
        self.holds(before).then(|| Record {
            holder: None,
            seconds: Some(1),
            acquired: None,
            renewed: Some(whole_microseconds(wall)),
            transitions: before.transitions,
        })
    }
}

/// Times in a lease have microseconds; anything finer would not come back as it was sent.
fn whole_microseconds(t: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(t.as_microsecond()).unwrap_or(t)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn held_by(holder: &str, acquired: i64) -> Record {
        Record {
            holder: Some(holder.to_owned()),
            seconds: Some(15),
            acquired: Some(wall(acquired)),
            renewed: Some(wall(acquired + 100)),
            transitions: 3,
        }
    }

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn us(attempted: Option<i64>, term: Option<Term>) -> Candidate {
        Candidate {
            identity: "us".to_owned(),
            attempted: attempted.map(wall),
            term,
        }
    }

    /// The others can take the lease only when the leader has stopped, with time left for what is on its way.
    #[test]
    fn the_leader_stops_before_another_may_start() {
        const { assert!(FENCE.as_secs() + 2 * RETRY.as_secs() < DURATION.as_secs()) };
        let asked = Instant::now();
        let term = Term {
            acquired: wall(0),
            asked,
        };
        // At the earliest the other one reads the renewal the moment that it was sent.
        let seen = Observation::after(None, held_by("us", 0), asked);
        assert!(term.fence() + seconds(5) <= seen.expires().unwrap());
    }

    #[rstest]
    #[case::there_is_no_lease(None, 0, Verdict::Acquire)]
    #[case::nobody_holds_it(Some(Record { holder: None, ..held_by("", 0) }), 0, Verdict::Acquire)]
    #[case::held_and_renewed(Some(held_by("them", 0)), 0, Verdict::Wait(Instant::now()))]
    #[case::nearly_expired(Some(held_by("them", 0)), 14, Verdict::Wait(Instant::now()))]
    #[case::expired(Some(held_by("them", 0)), 15, Verdict::Acquire)]
    #[case::ours_the_answer_was_lost(Some(held_by("us", 7)), 0, Verdict::Acquire)]
    #[case::ours_from_an_earlier_life(Some(held_by("us", 6)), 14, Verdict::Wait(Instant::now()))]
    #[case::ours_from_an_earlier_life_expired(Some(held_by("us", 6)), 15, Verdict::Acquire)]
    #[case::another_process_of_our_name_without_a_time(
        Some(Record { acquired: None, ..held_by("us", 0) }), 0, Verdict::Wait(Instant::now()))]
    #[case::duration_of_nothing(Some(Record { seconds: Some(0), ..held_by("them", 0) }), 14, Verdict::Wait(Instant::now()))]
    #[case::duration_below_nothing(
        Some(Record { seconds: Some(-9), ..held_by("them", 0) }), 14, Verdict::Wait(Instant::now()))]
    #[case::no_duration(Some(Record { seconds: None, ..held_by("them", 0) }), 15, Verdict::Acquire)]
    #[case::longer_duration(Some(Record { seconds: Some(60), ..held_by("them", 0) }), 59, Verdict::Wait(Instant::now()))]
    #[case::longer_duration_expired(Some(Record { seconds: Some(60), ..held_by("them", 0) }), 60, Verdict::Acquire)]
    #[case::for_ever(Some(Record { seconds: Some(i32::MAX), ..held_by("them", 0) }), 600, Verdict::Acquire)]
    fn a_follower(#[case] record: Option<Record>, #[case] age: u64, #[case] expected: Verdict) {
        let since = Instant::now();
        let lease = record.map(|r| Observation::after(None, r, since));
        let now = since + seconds(age);
        match (decide(&us(Some(7), None), lease.as_ref(), now), expected) {
            (Verdict::Wait(until), Verdict::Wait(_)) => {
                let expires = lease.unwrap().expires().unwrap();
                assert_eq!(
                    until,
                    expires.min(now + RETRY),
                    "soon, and no later than it may be taken"
                );
            }
            (verdict, expected) => assert_eq!(verdict, expected),
        }
    }

    #[rstest]
    #[case::renewed_a_moment_ago(2, Some(held_by("us", 7)), Verdict::Renew)]
    #[case::just_in_time(9, Some(held_by("us", 7)), Verdict::Renew)]
    #[case::deleted(2, None, Verdict::Renew)]
    #[case::too_late(10, Some(held_by("us", 7)), Verdict::StepDown)]
    #[case::woken_an_hour_later(3_600, Some(held_by("us", 7)), Verdict::StepDown)]
    #[case::taken_by_another(2, Some(held_by("them", 8)), Verdict::StepDown)]
    #[case::taken_by_another_of_our_name(2, Some(held_by("us", 8)), Verdict::StepDown)]
    #[case::emptied_by_somebody(2, Some(Record { holder: None, ..held_by("", 7) }), Verdict::StepDown)]
    fn a_leader(#[case] after: u64, #[case] record: Option<Record>, #[case] expected: Verdict) {
        let asked = Instant::now();
        let term = Term {
            acquired: wall(7),
            asked,
        };
        let lease = record.map(|r| Observation::after(None, r, asked));
        let verdict = decide(&us(Some(7), Some(term)), lease.as_ref(), asked + seconds(after));
        assert_eq!(verdict, expected);
    }

    /// Their clock may show what it likes: what counts is that the lease changes, and for how long it has not.
    #[rstest]
    #[case::an_hour_ahead(3_600)]
    #[case::an_hour_behind(-3_600)]
    #[case::it_jumps_back(-1)]
    fn the_clock_of_the_other_does_not_matter(#[case] their_clock: i64) {
        let start = Instant::now();
        let mut theirs = held_by("them", 0);
        let mut lease = Observation::after(None, theirs.clone(), start);
        for n in 1..20 {
            let now = start + seconds(10 * n);
            theirs.renewed = Some(wall(their_clock * i64::try_from(n).unwrap()));
            lease = Observation::after(Some(&lease), theirs.clone(), now);
            assert_eq!(
                decide(&us(None, None), Some(&lease), now),
                Verdict::Wait(now + RETRY)
            );
        }
        let now = lease.since + seconds(15);
        lease = Observation::after(Some(&lease), theirs, now);
        assert_eq!(decide(&us(None, None), Some(&lease), now), Verdict::Acquire);
    }

    #[test]
    fn taking_and_renewing_and_giving_back() {
        let mut us = us(None, None);
        let fresh = us.claim(None, wall(1));
        assert_eq!(
            (fresh.transitions, fresh.acquired, fresh.renewed),
            (0, Some(wall(1)), Some(wall(1)))
        );
        us.attempted = fresh.acquired;
        let renewed = us.claim(Some(&fresh), wall(3));
        assert_eq!(
            (renewed.transitions, renewed.acquired, renewed.renewed),
            (0, Some(wall(1)), Some(wall(3)))
        );
        let taken = us.claim(Some(&held_by("them", 0)), wall(200));
        assert_eq!((taken.transitions, taken.acquired), (4, Some(wall(200))));
        assert_eq!(us.release(&held_by("them", 0), wall(5)), None, "it is not ours");
        let free = us.release(&renewed, wall(5)).unwrap();
        assert_eq!(free.holder, None);
        assert_eq!(free.to_spec().holder_identity.as_deref(), Some(""));
    }

    #[test]
    fn a_lease_survives_the_wire_unchanged() {
        let wall: Timestamp = "2026-11-21T00:00:00.123456789Z".parse().unwrap();
        let mut us = us(None, None);
        let record = us.claim(None, wall);
        us.attempted = record.acquired;
        let lease = Lease {
            spec: Some(record.to_spec()),
            ..Lease::default()
        };
        let text = serde_json::to_string(&lease).unwrap();
        let read = Record::from(&serde_json::from_str::<Lease>(&text).unwrap());
        assert_eq!(read, record);
        assert!(us.holds(&read));
    }
}
