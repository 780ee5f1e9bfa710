//! What is not in the cluster's objects and keeps the operator from acting all the same: clocks that disagree, and the peer
//! (appuio's openshift-upgrade-controller) at work on the same cluster. Pure; measured by `controller`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::{
    api::conditions::reasons,
    leader::{Observation, Record},
    text,
};

/// Name of the Lease that the peer's leader holds (`LeaderElectionID` in its `main.go`), in whatever namespace it runs.
pub const PEER_LEASE: &str = "9fced507.appuio.io";

/// What is known of the world outside of the cluster's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// How far our clock is ahead of the API server's; negative for behind.
    pub clock_ahead: SignedDuration,
    /// The peer, while it renews its lease.
    pub peer: Option<Peer>,
}

/// Where the peer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Namespace of its lease.
    pub namespace: String,
    /// Who holds the lease.
    pub holder: String,
}

/// Why nothing is started, whatever is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hindrance {
    /// One word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Outside {
    /// Clocks may differ by so much (design: "Clocks").
    pub const MOST_SKEW: SignedDuration = SignedDuration::from_secs(60);

    /// How far our clock is off, if that is too far.
    fn skew(&self) -> Option<SignedDuration> {
        let is_too_far = self.clock_ahead.unsigned_abs() > Self::MOST_SKEW.unsigned_abs();
        is_too_far.then_some(self.clock_ahead)
    }

    /// Whatever happens at a time: not before *both* clocks show it, if they disagree.
    #[must_use]
    pub fn careful(&self, now: Timestamp) -> Timestamp {
        now.saturating_sub(self.lag()).unwrap_or(Timestamp::MIN)
    }

    /// When our clock shows what the careful one will show at `t`.
    #[must_use]
    pub fn by_our_clock(&self, t: Timestamp) -> Timestamp {
        t.saturating_add(self.lag()).unwrap_or(Timestamp::MAX)
    }

    /// How far the careful clock is behind ours.
    fn lag(&self) -> SignedDuration {
        self.skew().unwrap_or_default().max(SignedDuration::ZERO)
    }

    /// What keeps everything from being started.
    pub fn hindrance(&self) -> Option<Hindrance> {
        self.peer_at_work().or_else(|| self.clock_skew())
    }

    /// The peer is at work: nothing at all is done.
    pub fn peer_at_work(&self) -> Option<Hindrance> {
        let Peer { namespace, holder } = self.peer.as_ref()?;
        let message = format!(
            "openshift-upgrade-controller is at work on this cluster ({holder} renews Lease {namespace}/{PEER_LEASE}), so this \
             operator does nothing: remove one of the two"
        );
        Some(Hindrance {
            reason: reasons::PEER_AT_WORK,
            message,
        })
    }

    /// The clocks disagree: nothing is started.
    pub fn clock_skew(&self) -> Option<Hindrance> {
        let skew = self.skew()?;
        let side = if skew.is_negative() { "behind" } else { "ahead of" };
        let message = format!(
            "the clock of the operator's node is {} {side} that of the API server, more than {}, so nothing is started: set the \
             clocks of the nodes right (chronyd)",
            text::duration(skew.abs()),
            text::duration(Self::MOST_SKEW),
        );
        Some(Hindrance {
            reason: reasons::CLOCK_SKEW,
            message,
        })
    }
}

/// Answers are dated in whole seconds, and clocks drift: a difference that changed by less is the same one.
const SAME_SKEW: SignedDuration = SignedDuration::from_secs(3);

/// How far our clock is ahead, by an answer that the API server dated `date` and that came between two instants of ours.
/// What cannot be told apart is no difference: an answer that took long says little.
pub fn clock_ahead(date: Timestamp, sent: Timestamp, came: Timestamp) -> SignedDuration {
    // The date is cut to whole seconds.
    let at_least = sent.duration_since(date) - SignedDuration::from_secs(1);
    let at_most = came.duration_since(date);
    if at_least.is_positive() {
        at_least
    } else if at_most.is_negative() {
        at_most
    } else {
        SignedDuration::ZERO
    }
}

/// The difference to go on with, so that texts about it do not change all the time.
pub fn settled(known: SignedDuration, measured: SignedDuration) -> SignedDuration {
    let change = (known - measured).unsigned_abs();
    if change < SAME_SKEW.unsigned_abs() {
        known
    } else {
        measured
    }
}

/// Whether the peer is at work, by its leases as they were read.
#[derive(Clone, Debug, Default)]
pub struct Peers(BTreeMap<String, Seen>);

#[derive(Clone, Debug)]
struct Seen {
    observation: Observation,
    /// Whether it was renewed before our eyes; before that it may have been left long ago.
    renewed: bool,
}

/// What is known of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is not at work.
    Absent,
    /// Not known before then.
    Unknown(Instant),
    /// It is at work, at least until then.
    AtWork(Peer, Instant),
}

impl Peers {
    /// All its leases, by namespace, as they were listed at `now`.
    pub fn listed(&mut self, leases: impl IntoIterator<Item = (String, Record)>, now: Instant) {
        let before = std::mem::take(&mut self.0);
        for (namespace, record) in leases {
            let seen = before.get(&namespace);
            self.0.insert(namespace, Self::after(seen, record, now));
        }
    }

    /// One of its leases, as it was read at `now`.
    pub fn see(&mut self, namespace: &str, record: Record, now: Instant) {
        let seen = Self::after(self.0.get(namespace), record, now);
        self.0.insert(namespace.to_owned(), seen);
    }

    /// One of its leases is gone.
    pub fn forget(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }

    fn after(before: Option<&Seen>, record: Record, now: Instant) -> Seen {
        let renewed = before.is_some_and(|b| b.renewed || b.observation.record != record);
        let observation = Observation::after(before.map(|b| &b.observation), record, now);
        Seen { observation, renewed }
    }

    /// Whether the peer is at work.
    pub fn presence(&self, now: Instant) -> Presence {
        let mut presence = Presence::Absent;
        for (namespace, seen) in &self.0 {
            let (Some(holder), Some(expires)) = (&seen.observation.record.holder, seen.observation.expires())
            else {
                continue;
            };
            if now >= expires {
                continue;
            }
            if seen.renewed {
                let peer = Peer {
                    namespace: namespace.clone(),
                    holder: holder.clone(),
                };
                return Presence::AtWork(peer, expires);
            }
            presence = match presence {
                Presence::Unknown(t) => Presence::Unknown(t.max(expires)),
                Presence::Absent | Presence::AtWork(..) => Presence::Unknown(expires),
            };
        }
        presence
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-21T{text}Z").parse().unwrap()
    }

    #[rstest]
    #[case::the_same("12:00:00.2", "12:00:00.3", 0)]
    #[case::within_the_second("12:00:00.9", "12:00:00.99", 0)]
    #[case::ahead("13:00:01", "13:00:01.1", 3_600)]
    #[case::behind("11:00:00", "11:00:00.5", -3_599)]
    #[case::an_answer_that_took_minutes("11:58:00", "12:03:00", 0)]
    fn a_difference_is_what_cannot_be_explained(
        #[case] sent: &str,
        #[case] came: &str,
        #[case] seconds: i64,
    ) {
        let measured = clock_ahead(at("12:00:00"), at(sent), at(came));
        assert_eq!(measured.as_secs(), seconds);
    }

    #[rstest]
    #[case(0, 1, 0)]
    #[case(3_600, 3_598, 3_600)]
    #[case(3_600, 0, 0)]
    #[case(0, -90, -90)]
    fn small_changes_are_none(#[case] known: i64, #[case] measured: i64, #[case] expected: i64) {
        let s = SignedDuration::from_secs;
        assert_eq!(settled(s(known), s(measured)), s(expected));
    }

    #[rstest]
    #[case::a_minute(60, None, 0)]
    #[case::more(61, Some("1m1s ahead of"), 61)]
    #[case::an_hour(3_600, Some("1h ahead of"), 3_600)]
    #[case::behind(-3_600, Some("1h behind"), 0)]
    fn clocks_that_disagree(#[case] ahead: i64, #[case] says: Option<&str>, #[case] lag: i64) {
        let outside = Outside {
            clock_ahead: SignedDuration::from_secs(ahead),
            peer: None,
        };
        let hindrance = outside.hindrance();
        assert_eq!(hindrance.is_some(), says.is_some());
        if let (Some(hindrance), Some(says)) = (hindrance, says) {
            assert!(hindrance.message.contains(says), "{}", hindrance.message);
            assert_eq!(hindrance.reason, reasons::CLOCK_SKEW);
        }
        let now = at("12:00:00");
        let careful = outside.careful(now);
        assert_eq!(
            now.duration_since(careful).as_secs(),
            lag,
            "the earlier of both clocks"
        );
        assert_eq!(outside.by_our_clock(careful), now);
    }

    fn record(holder: &str, renewed: i64) -> Record {
        Record {
            holder: Some(holder.to_owned()).filter(|h| !h.is_empty()),
            seconds: Some(15),
            renewed: Timestamp::from_second(renewed).ok(),
            ..Record::default()
        }
    }

    #[test]
    fn the_peer_is_at_work_while_it_renews() {
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        let mut peers = Peers::default();
        assert_eq!(peers.presence(start), Presence::Absent);
        peers.listed([("a".to_owned(), record("them", 1))], start);
        assert_eq!(
            peers.presence(after(14)),
            Presence::Unknown(after(15)),
            "it may have been left"
        );
        assert_eq!(peers.presence(after(15)), Presence::Absent, "it was left");
        peers.see("a", record("them", 2), after(20));
        let peer = Peer {
            namespace: "a".to_owned(),
            holder: "them".to_owned(),
        };
        assert_eq!(
            peers.presence(after(30)),
            Presence::AtWork(peer.clone(), after(35))
        );
        peers.listed([("a".to_owned(), record("them", 2))], after(34));
        assert_eq!(
            peers.presence(after(34)),
            Presence::AtWork(peer, after(35)),
            "a look is no renewal"
        );
        assert_eq!(peers.presence(after(35)), Presence::Absent);
    }

    #[test]
    fn a_peer_that_gave_its_lease_back_is_not_at_work() {
        let now = Instant::now();
        let mut peers = Peers::default();
        peers.see("a", record("them", 1), now);
        peers.see("a", record("them", 2), now);
        peers.see("a", record("", 3), now);
        assert_eq!(peers.presence(now), Presence::Absent);
        peers.see("b", record("them", 1), now);
        peers.forget("b");
        peers.see("c", record("them", 1), now);
        peers.listed([], now);
        assert_eq!(peers.presence(now), Presence::Absent);
    }
}
