//! How this process stands, for `/metrics`: what it is, whether it may write, and what keeps it from acting.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::{clocks::Clocks, gate::Gate, peer};
use crate::{
    api::conditions::reasons,
    metrics::{Family, Series},
    outside::Outside,
    schedule::time_zone::tzdata_version,
};

/// What is known beside the cluster's objects.
#[derive(Clone)]
pub struct Surroundings {
    /// How far our clock is off.
    pub clocks: Clocks,
    /// Whether the peer is at work.
    pub peer: watch::Receiver<peer::News>,
}

impl Surroundings {
    /// At this moment.
    pub fn outside(&self) -> Outside {
        Outside {
            clock_ahead: self.clocks.ahead(),
            peer: match &*self.peer.borrow() {
                peer::News::Known(peer) => peer.clone(),
                peer::News::NotYet(_) => None,
            },
        }
    }

    /// What is not known yet, and must be before decisions can be made.
    pub fn not_ready(&self) -> Option<String> {
        match &*self.peer.borrow() {
            peer::News::Known(_) => None,
            peer::News::NotYet(what) => Some(what.clone()),
        }
    }
}

/// How this process stands; empty before it runs.
#[derive(Clone, Default)]
pub struct Standing(Arc<OnceLock<(Gate, Surroundings)>>);

impl Standing {
    /// It runs.
    pub fn runs(&self, gate: Gate, surroundings: Surroundings) {
        // A second run of the same process stands as the first.
        self.0.get_or_init(|| (gate, surroundings));
    }

    /// As metrics; `is_missing`: whether a copy is missing that decisions need.
    pub fn metrics(&self, is_missing: bool) -> Vec<Family> {
        let known = self.0.get();
        let is_leader = known.is_some_and(|(gate, _)| gate.is_open());
        let is_ready = !is_missing && known.is_some_and(|(_, s)| s.not_ready().is_none());
        let outside = known.map(|(_, s)| s.outside()).unwrap_or_default();
        told(is_leader, is_ready, &outside)
    }
}

fn told(is_leader: bool, is_ready: bool, outside: &Outside) -> Vec<Family> {
    let one = |value: bool| [Series::new(Vec::new(), value)];
    let info = |label, value: &str| [Series::new(vec![(label, value.to_owned())], true)];
    // Whoever follows starts nothing anyway, so nothing keeps it from that.
    let held = [
        (reasons::CLOCK_SKEW, is_leader && outside.clock_skew().is_some()),
        (
            reasons::PEER_AT_WORK,
            is_leader && outside.peer_at_work().is_some(),
        ),
    ];
    vec![
        Family::gauge(
            "openshift_upgrade_controller_build_info",
            "The version of the operator, always 1.",
            info("version", env!("CARGO_PKG_VERSION")),
        ),
        Family::gauge(
            "openshift_upgrade_controller_tzdata_info",
            "The version of the time zone data that is built in, which counts without --tzdata-dir, always 1.",
            info("version", tzdata_version()),
        ),
        Family::gauge(
            "openshift_upgrade_controller_leader",
            "Whether this process holds the Lease and so may write: 1 or 0; always 1 without leader election.",
            one(is_leader),
        ),
        Family::gauge(
            "openshift_upgrade_controller_ready",
            "Whether this process knows all that it needs to decide, as /readyz says: 1 or 0.",
            one(is_ready),
        ),
        Family::gauge(
            "openshift_upgrade_controller_held",
            "Whether something outside of the cluster's objects keeps the leader from starting anything, by the reason of the condition Held: 1 or 0; always 0 of a process that does not lead.",
            held.map(|(reason, is_held)| Series::new(vec![("reason", reason.to_owned())], is_held)),
        ),
        Family::gauge(
            "openshift_upgrade_controller_clock_ahead_seconds",
            "How far the clock of the operator's node is ahead of that of the API server; negative where it is behind.",
            [Series::new(Vec::new(), outside.clock_ahead)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;
    use crate::{metrics, outside::Peer};

    #[test]
    fn before_it_runs_it_is_no_leader_and_not_ready() {
        let lines = metrics::told(&Standing::default().metrics(false));
        assert_eq!(
            lines[2..],
            [
                "leader  0",
                "ready  0",
                "held ClockSkew 0",
                "held PeerAtWork 0",
                "clock_ahead_seconds  0"
            ]
        );
    }

    #[rstest]
    #[case::of_the_leader(true, ["leader  1", "ready  1", "held ClockSkew 1", "held PeerAtWork 1", "clock_ahead_seconds  -90"])]
    #[case::of_one_that_follows(false, ["leader  0", "ready  1", "held ClockSkew 0", "held PeerAtWork 0", "clock_ahead_seconds  -90"])]
    fn what_holds_everything_is_told(#[case] is_leader: bool, #[case] expected: [&str; 5]) {
        let peer = Peer {
            namespace: "a".to_owned(),
            holder: "them".to_owned(),
        };
        let outside = Outside {
            clock_ahead: SignedDuration::from_secs(-90),
            peer: Some(peer),
        };
        let lines = metrics::told(&told(is_leader, true, &outside));
        assert_eq!(lines[2..], expected);
    }
}
