use jiff::SignedDuration;

use super::*;

fn change(channel: &str, by_hand: bool) -> Change {
    Change {
        fields: vec![FieldChange {
            field: "channel".to_owned(),
            before: None,
            after: Some(json!(channel)),
        }],
        by_hand: by_hand.then(|| "somebody".to_owned()),
    }
}

/// Seconds from noon until the change may be tried again.
fn pause(memory: &Memory, change: &Change, now: Timestamp) -> Option<i64> {
    memory.not_before(change).map(|t| t.duration_since(now).as_secs())
}

#[test]
fn a_refused_change_is_tried_again_with_a_pause_that_grows_and_is_bounded() {
    let (mut memory, mut now) = (Memory::default(), at(NOON));
    let (bad, other) = (change("a", false), change("b", false));
    assert_eq!(pause(&memory, &bad, now), None);
    let mut pauses = Vec::new();
    for _ in 0..40 {
        memory.refused(&bad, "no".to_owned(), now);
        let next = pause(&memory, &bad, now).unwrap();
        pauses.push(next);
        now = now.saturating_add(SignedDuration::from_secs(next)).unwrap();
    }
    assert_eq!(pauses[..9], [5, 10, 20, 40, 80, 160, 320, 600, 600]);
    assert_eq!(pauses.last(), Some(&600));
    assert_eq!(
        pause(&memory, &other, now),
        None,
        "another change is tried at once"
    );
    let world = World::default();
    assert_eq!(
        memory.outcome(&managed(), &world, now).refused,
        Some((bad.fields.clone(), "no".to_owned()))
    );
    memory.refused(&other, "neither".to_owned(), now);
    assert_eq!(pause(&memory, &other, now), Some(5));
    memory.applied(&other, now);
    assert_eq!(memory.outcome(&managed(), &world, now).refused, None);
}

#[test]
fn the_first_change_by_hand_is_set_back_at_once_and_who_insists_waits_longer_and_longer() {
    let (mut memory, mut now) = (Memory::default(), at(NOON));
    let (by_hand, wanted) = (change("a", true), change("a", false));
    memory.applied(&wanted, now);
    assert_eq!(pause(&memory, &by_hand, now), None);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        memory.applied(&by_hand, now);
        let next = pause(&memory, &by_hand, now);
        pauses.push(next.unwrap_or_default());
        let postponed = memory.outcome(&managed(), &World::default(), now).postponed;
        assert_eq!(postponed.is_some(), next.is_some());
        now = now
            .saturating_add(SignedDuration::from_secs(next.unwrap_or_default()))
            .unwrap();
    }
    assert_eq!(pauses, [0, 5, 10, 20, 40, 80, 160, 320, 600]);
    assert_eq!(
        memory.outcome(&managed(), &World::default(), now).postponed,
        None,
        "its time has come"
    );
    assert_eq!(
        pause(&memory, &wanted, now),
        None,
        "what we want anew is not held up"
    );
    now = now.saturating_add(SignedDuration::from_mins(31)).unwrap();
    memory.applied(&by_hand, now);
    assert_eq!(
        pause(&memory, &by_hand, now),
        None,
        "after a time of peace at once again"
    );
}

#[test]
fn the_api_server_is_asked_again_when_the_object_or_the_cluster_has_changed() {
    let mut memory = Memory::default();
    let (mut managed, mut world) = (managed(), world(&managed(), &in_line()));
    let knows = |memory: &Memory, managed: &ManagedClusterVersion, world: &World| {
        memory.outcome(managed, world, at(NOON)).rehearsed.is_some()
    };
    assert!(!knows(&memory, &managed, &world));
    memory.rehearsed(&managed, &world, Vec::new());
    assert!(knows(&memory, &managed, &world));
    let newest = &mut world
        .cluster_version
        .as_mut()
        .unwrap()
        .status
        .as_mut()
        .unwrap()
        .history[0];
    newest.version = "4.19.0".to_owned();
    assert!(
        !knows(&memory, &managed, &world),
        "a newer API server may take more"
    );
    memory.rehearsed(&managed, &world, Vec::new());
    managed.metadata.generation = Some(2);
    assert!(!knows(&memory, &managed, &world));
}
