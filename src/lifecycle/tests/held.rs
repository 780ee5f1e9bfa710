//! What outside of the cluster's objects holds a job: clocks that disagree, and the peer.

use jiff::SignedDuration;
use rstest::rstest;
use serde_json::json;

use super::{
    bench::Bench,
    fixtures::{at, held, hook, job},
};
use crate::{
    api::{
        conditions::{self, types},
        upgrade_job::JobPhase,
    },
    outside::{Outside, Peer},
};

fn ahead(seconds: i64) -> Outside {
    Outside {
        clock_ahead: SignedDuration::from_secs(seconds),
        peer: None,
    }
}

fn peer() -> Outside {
    Outside {
        clock_ahead: SignedDuration::ZERO,
        peer: Some(Peer {
            namespace: "theirs".to_owned(),
            holder: "them".to_owned(),
        }),
    }
}

fn bench(outside: Outside) -> Bench {
    let mut bench = Bench::new(job("j", held()));
    bench.world.hooks = vec![hook("create", "Create", "Abort"), hook("start", "Start", "Abort")];
    bench.world.outside = outside;
    bench
}

#[rstest]
#[case::our_clock_is_ahead(ahead(61), 10, "ClockSkew")]
#[case::time_by_both_clocks(ahead(1_800), 1_810, "ClockSkew")]
#[case::our_clock_is_behind(ahead(-3_600), 10, "ClockSkew")]
#[case::the_peer(peer(), 10, "PeerAtWork")]
#[case::the_peer_before_the_start(peer(), -600, "PeerAtWork")]
#[case::clocks_before_the_start(ahead(-3_600), -600, "ClockSkew")]
fn nothing_is_started(#[case] outside: Outside, #[case] now: i64, #[case] reason: &str) {
    let message = outside.hindrance().unwrap().message;
    let mut bench = bench(outside);
    bench.settle_at(now);
    assert_eq!(bench.acted, []);
    assert_eq!(bench.is_true(types::STARTED), None);
    assert_eq!(bench.is_true(types::HELD).as_deref(), Some(reason));
    assert!(bench.message().starts_with(&message), "{}", bench.message());
    assert!(bench.reasons.contains(&reason.to_owned()), "{:?}", bench.reasons);
    let wake = bench.decide().wake_at;
    assert!(
        wake.is_none_or(|t| t > at(now)),
        "it would be looked at all the time: {wake:?}"
    );

    bench.world.outside = Outside::default();
    bench.settle_at(now.max(20));
    let all = bench.status().conditions;
    assert_eq!(conditions::get(&all, types::HELD).unwrap().status, "False");
    assert_ne!(bench.acted, [], "it goes on by itself");
}

/// By the clock that is wrong the window is over long before it is.
#[test]
fn a_job_expires_by_both_clocks_and_says_why() {
    let mut bench = bench(ahead(3_600));
    bench.settle_at(3_700);
    assert_eq!(bench.status().phase, Some(JobPhase::Pending));
    bench.settle_at(7_200);
    assert_eq!(bench.status().phase, Some(JobPhase::Skipped));
    assert_eq!(bench.is_true(types::EXPIRED).as_deref(), Some("ClockSkew"));
}

#[test]
fn a_job_that_the_peer_held_until_it_was_too_late_says_so() {
    let mut bench = bench(peer());
    bench.settle_at(10);
    bench.settle_at(3_700);
    assert_eq!(bench.status().phase, None, "nothing is written but what holds it");
    bench.world.outside = Outside::default();
    bench.settle();
    assert_eq!(bench.is_true(types::EXPIRED).as_deref(), Some("PeerAtWork"));
}

/// Pool `night` is held until minute 30; our clock runs half an hour ahead from minute 10 on.
#[test]
fn a_started_job_goes_on_by_the_earlier_clock() {
    let mut bench = Bench::new(job("j", held())).accepted();
    bench.complete();
    bench.world.outside = ahead(1_800);
    bench.settle_at(2_400);
    assert_eq!(
        bench.paused(),
        ["night"],
        "40 minutes by our clock, 10 by the API server's"
    );
    assert_eq!(bench.is_true(types::HELD).as_deref(), Some("ClockSkew"));
    bench.settle_at(3_600 + 30);
    assert_eq!(bench.paused(), Vec::<&str>::new(), "30 minutes by both");
}

#[test]
fn the_peer_stops_a_started_job_where_it_is() {
    let mut bench = Bench::new(job("j", held())).accepted();
    let (acted, before) = (bench.acted.len(), bench.status());
    bench.complete();
    bench.world.outside = peer();
    bench.settle_at(100_000);
    assert_eq!(bench.acted.len(), acted);
    let mut after = bench.status();
    after.conditions.retain(|c| c.type_ != types::HELD);
    after.message.clone_from(&before.message);
    assert_eq!(after, before, "only the condition and the message");
    assert!(
        bench.message().contains("theirs/9fced507.appuio.io"),
        "{}",
        bench.message()
    );
}

#[test]
fn what_has_ended_is_left_alone() {
    let over = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "the upgrade is done",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let mut bench = Bench::new(job("j", over));
    bench.world.outside = peer();
    let before = bench.status();
    bench.settle_at(10);
    assert_eq!(bench.status(), before);
}
