//! What outside of the cluster's objects keeps runs from being pinned.

use super::*;
use crate::outside::{Outside, Peer};

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

/// By our clock it is time; by both it is an hour later, or never.
#[rstest]
#[case::clocks_agree(ahead(59), "2026-11-24T17:00:30Z", true)]
#[case::ahead(ahead(3_600), "2026-11-24T17:00:30Z", false)]
#[case::ahead_and_time_by_both_clocks(ahead(3_600), "2026-11-24T18:00:30Z", false)]
#[case::behind(ahead(-3_600), "2026-11-24T17:00:30Z", false)]
#[case::the_peer(peer(), "2026-11-24T17:00:30Z", false)]
fn nothing_is_pinned_while_held(#[case] outside: Outside, #[case] now: &str, #[case] creates: bool) {
    let held = outside.hindrance();
    let world = World { outside, ..world() };
    let decision = decide_at(&config(), &world, now);
    assert_eq!(decision.create.is_some(), creates);
    match held {
        None => assert_eq!(condition(&decision, types::HELD), ("", "")),
        Some(held) => {
            assert_eq!(condition(&decision, types::HELD), ("True", held.reason));
            let told: Vec<&str> = decision.notices.iter().map(|n| n.note.as_str()).collect();
            assert!(told.contains(&held.message.as_str()), "{told:?}");
        }
    }
    let wake = decision.wake_at;
    assert!(
        wake.is_none_or(|t| t > at(now)),
        "it would be looked at all the time: {wake:?}"
    );
}

#[rstest]
#[case::clocks(ahead(-3_600))]
#[case::the_peer(peer())]
fn it_is_said_once_and_taken_back(#[case] outside: Outside) {
    let (mut config, mut world) = (config(), World { outside, ..world() });
    step(&mut config, &mut world, at(PIN));
    let again = step(&mut config, &mut world, at(PIN));
    assert_eq!((again.notices.len(), again.create.is_some()), (0, false));
    assert_eq!(condition(&again, types::HELD).0, "True");
    world.outside = Outside::default();
    let after = step(&mut config, &mut world, at(PIN));
    assert_eq!(condition(&after, types::HELD).0, "False");
    assert!(after.create.is_some());
}

/// A run that waited for the clocks to agree is made up for until it begins, and is missed only by both clocks.
#[test]
fn a_run_waits_for_the_clocks_to_agree() {
    let (mut config, mut world) = (
        config(),
        World {
            outside: ahead(7_200),
            ..world()
        },
    );
    for now in [
        "2026-11-24T19:00:30Z",
        "2026-11-24T21:00:30Z",
        "2026-11-24T22:59:00Z",
    ] {
        let decision = step(&mut config, &mut world, at(now));
        assert_eq!(
            (decision.create.is_some(), last(&decision)),
            (false, None),
            "{now}"
        );
    }
    // Set right, an hour before the run.
    world.outside = Outside::default();
    let decision = step(&mut config, &mut world, at("2026-11-24T20:00:00Z"));
    assert!(decision.create.is_some(), "{:#?}", decision.status.conditions);
}

#[test]
fn the_peer_keeps_the_rest_of_the_status_as_it_is() {
    let mut config = config();
    let before = step(&mut config, &mut world(), at(RUN)).status;
    config.metadata.generation = Some(99);
    let world = World {
        outside: peer(),
        ..world()
    };
    let mut held = decide_at(&config, &world, NEXT_RUN);
    held.status.conditions.retain(|c| c.type_ != types::HELD);
    assert_eq!(held.status, before);
    assert_eq!((held.create, held.delete_jobs), (None, vec![]));
}
