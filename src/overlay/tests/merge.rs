use super::*;

#[rstest]
#[case::a_field_replaces(json!({"channel": "a"}), json!({"channel": "b"}), json!({"channel": "b"}))]
#[case::a_field_is_added(json!({"channel": "a"}), json!({"upstream": "u"}), json!({"channel": "a", "upstream": "u"}))]
#[case::nothing_changes_nothing(json!({"channel": "a"}), json!({}), json!({"channel": "a"}))]
#[case::null_never_overrides(json!({"channel": "a"}), json!({"channel": null}), json!({"channel": "a"}))]
#[case::an_empty_text_never_overrides(json!({"channel": "a"}), json!({"channel": ""}), json!({"channel": "a"}))]
#[case::an_empty_list_never_overrides(json!({"overrides": [1]}), json!({"overrides": []}), json!({"overrides": [1]}))]
#[case::an_empty_object_never_overrides(json!({"capabilities": {"a": "x"}}), json!({"capabilities": {}}),
    json!({"capabilities": {"a": "x"}}))]
#[case::an_object_of_nothing_never_overrides(json!({"capabilities": "x"}), json!({"capabilities": {"a": "", "b": []}}),
    json!({"capabilities": "x"}))]
#[case::false_and_zero_are_something(json!({"a": true, "b": 1}), json!({"a": false, "b": 0}), json!({"a": false, "b": 0}))]
#[case::lists_are_replaced(json!({"overrides": [1, 2]}), json!({"overrides": [3]}), json!({"overrides": [3]}))]
#[case::objects_are_merged(json!({"capabilities": {"a": "x", "l": [1, 2]}}),
    json!({"capabilities": {"b": "y", "l": [3]}}), json!({"capabilities": {"a": "x", "b": "y", "l": [3]}}))]
#[case::other_types_replace(json!({"x": "text"}), json!({"x": {"a": 1}}), json!({"x": {"a": 1}}))]
#[case::desired_update_is_ignored(json!({"desiredUpdate": {"version": "1"}, "channel": "a"}),
    json!({"desiredUpdate": {"force": true}}), json!({"channel": "a"}))]
#[case::empties_of_the_base_go(json!({"channel": "", "upstream": null, "overrides": [], "capabilities": {"l": []}}),
    json!({}), json!({}))]
#[case::an_override_of_a_core_kind_keeps_its_empty_group(json!({"overrides": [an_override()]}), json!({}),
    json!({"overrides": [an_override()]}))]
#[case::nulls_in_lists_go(json!({"overrides": [{"kind": "K", "group": null}]}), json!({}),
    json!({"overrides": [{"kind": "K"}]}))]
fn an_overlay_is_laid_over_the_template(
    #[case] base: Value,
    #[case] overlay: Value,
    #[case] expected: Value,
) {
    let merged = spec::merge(base.as_object().unwrap(), overlay.as_object().unwrap());
    assert_eq!(Value::Object(merged.clone()), expected);
    // What is written is what is compared: tidying again changes nothing.
    assert_eq!(spec::tidy(&merged), merged);
}

#[rstest]
#[case::before_any("2026-11-30T00:00:00Z", "base")]
#[case::just_before("2026-11-30T23:59:59.999Z", "base")]
#[case::at_its_instant("2026-12-01T00:00:00Z", "december")]
#[case::the_newest_counts("2027-01-01T00:00:00Z", "january")]
#[case::whatever_the_order("2027-06-01T00:00:00Z", "january")]
fn the_newest_overlay_whose_time_has_come_applies(#[case] t: &str, #[case] channel: &str) {
    let overlays = json!([
        {"from": "2027-01-01T01:00:00+01:00", "overlay": {"spec": {"channel": "january"}}},
        {"from": "2026-12-01T00:00:00Z", "overlay": {"spec": {"channel": "december", "upstream": "u"}}},
    ]);
    let mut managed = managed_with(&json!({"channel": "base"}), &overlays);
    let mut world = world(&managed, &json!({"clusterID": "c1"}));
    step(&mut managed, &mut world, t);
    assert_eq!(spec_of(&world)["channel"], channel);
    // Overlays do not accumulate.
    assert_eq!(spec_of(&world).get("upstream").is_some(), channel == "december");
}

#[test]
fn previews_show_the_whole_result_of_each_overlay_in_order_and_the_list_is_bounded() {
    let overlay = |day: usize| {
        let from =
            at("2026-01-01T00:00:00Z") + jiff::SignedDuration::from_hours(24 * i64::try_from(day).unwrap());
        json!({"from": from, "overlay": {"spec": {"channel": format!("day-{day}")}}})
    };
    let mut overlays: Vec<Value> = (0..300).map(overlay).collect();
    overlays.reverse();
    let mut managed = managed_with(&json!({"channel": "base", "upstream": "u"}), &json!(overlays));
    let mut world = world(&managed, &json!({"clusterID": "c1"}));
    let (_, decision) = step(&mut managed, &mut world, "2026-07-01T00:00:00Z");
    let shown = &decision.status.overlays;
    assert_eq!(shown.len(), MAX_PREVIEWS);
    // 181 days later: that one is applied, and the first that is shown.
    assert_eq!(decision.status.overlay_applied.as_ref(), Some(&shown[0].from));
    assert_eq!(
        Value::Object(shown[0].preview.spec.clone()),
        json!({"clusterID": "c1", "channel": "day-181", "upstream": "u"})
    );
    assert!(shown.is_sorted_by_key(|o| o.from.0));
}
