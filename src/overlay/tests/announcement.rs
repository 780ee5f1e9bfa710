use super::*;

#[rstest]
#[case::between(NOON, "2026-12-02T20:00:00Z", true)]
#[case::at_the_run(NOON, OVERLAY, true)]
#[case::at_the_pin_the_choice_knows_it(OVERLAY, "2026-12-02T20:00:00Z", false)]
#[case::before_the_pin("2026-12-02T18:00:00Z", "2026-12-02T20:00:00Z", false)]
#[case::after_the_run(NOON, "2026-12-02T13:59:59Z", false)]
fn a_channel_change_between_pin_and_run_is_found(
    #[case] pinned: &str,
    #[case] run: &str,
    #[case] found: bool,
) {
    let world = world(&managed(), &in_line());
    let change = channel_change(&world, at(pinned), at(run));
    assert_eq!(change.is_some(), found);
    if let Some(change) = change {
        assert_eq!(
            change.describe(&jiff::tz::TimeZone::UTC, at(NOON)),
            "an overlay of ClusterVersion version changes the channel from stable-4.18 to stable-4.19 at Wed 2026-12-02 \
             14:00 UTC, after the version is chosen"
        );
        let past = change.describe(&jiff::tz::TimeZone::UTC, change.at);
        assert!(
            past.contains("version changed the channel from") && past.ends_with("was chosen"),
            "{past}"
        );
    }
}

#[rstest]
#[case::other_fields(json!({"upstream": "u"}))]
#[case::the_same_channel(json!({"channel": "stable-4.18"}))]
#[case::nothing(json!({}))]
fn an_overlay_without_another_channel_is_no_channel_change(#[case] overlay: Value) {
    let overlays = json!([{"from": OVERLAY, "overlay": {"spec": overlay}}]);
    let managed = managed_with(&json!({"channel": "stable-4.18"}), &overlays);
    assert_eq!(
        channel_change(&world(&managed, &in_line()), at(NOON), at(AFTER)),
        None
    );
}

#[test]
fn only_the_object_named_version_is_announced() {
    let mut managed = managed();
    managed.metadata.name = Some("other".to_owned());
    assert_eq!(
        channel_change(&world(&managed, &in_line()), at(NOON), at(AFTER)),
        None
    );
    assert_eq!(channel_change(&World::default(), at(NOON), at(AFTER)), None);
}
