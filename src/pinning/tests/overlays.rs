use super::*;
use crate::api::{annotations, cluster_version::ClusterVersion as ManagedClusterVersion};

/// Stable-4.19 from this instant on.
fn overlay(from: &str) -> ManagedClusterVersion {
    serde_json::from_value(json!({
        "metadata": {"name": "version", "namespace": "ns"},
        "spec": {"template": {"spec": {"channel": "stable-4.18"}},
            "overlays": [{"from": from, "overlay": {"spec": {"channel": "stable-4.19"}}}]},
    }))
    .unwrap()
}

fn channel_changed(world: &mut World, t: &str) {
    let cluster = world.cluster_version.as_mut().unwrap();
    cluster.metadata.annotations = Some([(annotations::CHANNEL_CHANGED_AT.to_owned(), t.to_owned())].into());
}

#[rstest]
#[case::between("2026-11-24T19:00:00Z", true)]
#[case::at_the_pin(PIN, false)]
#[case::before_the_pin("2026-11-24T16:00:00Z", false)]
#[case::at_the_run(RUN, true)]
#[case::after_the_run("2026-11-24T21:00:01Z", false)]
fn a_channel_change_between_pin_and_run_is_announced(#[case] from: &str, #[case] announced: bool) {
    let (mut config, mut world) = (config(), world());
    world.managed_versions.push(overlay(from));
    let decision = step(&mut config, &mut world, at("2026-11-24T10:00:00Z"));
    let first = decision.status.next_possible_schedules[0].clone();
    assert_eq!(first.verdict.as_deref(), Some("WillRun"));
    let reason = first.reason.unwrap_or_default();
    assert_eq!(
        reason.contains("changes the channel from stable-4.18 to stable-4.19 at"),
        announced,
        "{reason}"
    );
    let second = decision.status.next_possible_schedules[1].reason.as_deref();
    assert_eq!(second, None, "only the run that it concerns");
    let told = |d: &ConfigDecision| d.notices.iter().filter(|n| n.reason == "OverlayDue").count();
    assert_eq!(told(&decision), usize::from(announced));
    let expected = if announced {
        ("True", "OverlayDue")
    } else {
        ("", "")
    };
    assert_eq!(condition(&decision, types::CHANNEL_CHANGE_AHEAD), expected);
    if at(from) <= at(PIN) {
        world.cluster_version.as_mut().unwrap().spec.channel = Some("stable-4.19".to_owned());
    }
    // The pinned job is named as well, and nothing is said twice.
    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!(told(&decision), 0);
    let decision = step(&mut config, &mut world, at("2026-11-24T17:00:01Z"));
    let reason = decision.status.next_possible_schedules[0].reason.clone().unwrap();
    assert!(reason.starts_with("UpgradeJob c-"), "{reason}");
    assert_eq!(reason.contains("changes the channel"), announced, "{reason}");
    let decision = step(&mut config, &mut world, at(RUN));
    let expected = if announced {
        ("False", "NoChannelChange")
    } else {
        ("", "")
    };
    assert_eq!(condition(&decision, types::CHANNEL_CHANGE_AHEAD), expected);
}

#[test]
fn after_our_own_channel_change_the_updates_are_unknown_until_they_are_answered() {
    let (mut config, mut world) = (config(), world());
    // An overlay at the pin was applied just before the pin, by an operator that was killed since.
    channel_changed(&mut world, PIN);
    let decision = step(&mut config, &mut world, at("2026-11-24T17:00:02Z"));
    assert_eq!(decision.create, None);
    assert_eq!(
        condition(&decision, types::SCHEDULED),
        ("False", "UpdatesUnknown")
    );
    assert!(message(&decision, types::SCHEDULED).contains("the channel was changed a moment ago"));
    assert!(decision.wake_at.unwrap() <= at("2026-11-24T17:01:02Z"));
    let mut answered = world.clone();
    let status = answered
        .cluster_version
        .as_mut()
        .unwrap()
        .status
        .as_mut()
        .unwrap();
    status.conditions[0].last_transition_time = Some(Time(at("2026-11-24T17:00:01Z")));
    assert!(
        decide_at(&config, &answered, "2026-11-24T17:00:02Z")
            .create
            .is_some()
    );
    assert!(
        step(&mut config, &mut world, at("2026-11-24T17:04:59Z"))
            .create
            .is_none()
    );
    assert!(
        step(&mut config, &mut world, at("2026-11-24T17:05:00Z"))
            .create
            .is_some()
    );
}

#[test]
fn a_run_is_not_pinned_in_the_old_channel_because_the_overlay_is_a_moment_late() {
    let (mut config, mut world) = (config(), world());
    world.managed_versions.push(overlay(PIN));
    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!(decision.create, None);
    assert_eq!(
        condition(&decision, types::SCHEDULED),
        ("False", "UpdatesUnknown")
    );
    assert!(message(&decision, types::SCHEDULED).contains("the channel is being changed to stable-4.19"));
    let mut applied = world.clone();
    applied.cluster_version.as_mut().unwrap().spec.channel = Some("stable-4.19".to_owned());
    assert!(
        decide_at(&config, &applied, "2026-11-24T17:00:01Z")
            .create
            .is_some()
    );
    // One that is refused, or held back, does not cost the run.
    assert!(
        step(&mut config, &mut world, at("2026-11-24T17:05:00Z"))
            .create
            .is_some()
    );
}
