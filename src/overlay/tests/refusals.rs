use super::*;

fn refusal(from: &str, why: &str) -> Refusal {
    Refusal {
        from: at(from),
        why: why.to_owned(),
    }
}

#[rstest]
#[case::another_name("elsewhere", json!({"channel": "c"}), json!([]), "NotServed", "\"elsewhere\" is not served")]
#[case::empty("version", json!({}), json!([]), "Invalid", "it is empty")]
#[case::two_at_once("version", json!({"channel": "c"}),
    json!([{"from": OVERLAY, "overlay": {}}, {"from": OVERLAY, "overlay": {}}]), "Invalid", "only one can apply")]
#[case::another_cluster("version", json!({"clusterID": "c2", "channel": "c"}), json!([]), "Invalid",
    "spec.template.spec.clusterID: c2 is another cluster, this one is c1")]
#[case::an_overlay_for_another_cluster("version", json!({"channel": "c"}),
    json!([{"from": OVERLAY, "overlay": {"spec": {"clusterID": "c2"}}}]), "Invalid",
    "spec.overlays[0].overlay.spec.clusterID: c2 is another cluster")]
fn a_bad_object_is_marked_and_nothing_of_it_is_applied(
    #[case] name: &str,
    #[case] template: Value,
    #[case] overlays: Value,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let mut managed = managed_with(&template, &overlays);
    managed.metadata.name = Some(name.to_owned());
    let world = world(&managed, &in_line());
    let decision = decide_at(&managed, &world, AFTER, &Outcome::default());
    assert_eq!((&decision.change, &decision.rehearse), (&None, &vec![]));
    let (value, text) = said(&decision.status, types::VALID);
    assert_eq!(value, format!("False/{reason}"));
    assert!(text.contains(message), "{text}");
    assert_eq!(
        said(&decision.status, types::APPLIED).0,
        format!("False/{reason}")
    );
    assert_eq!(told(&decision), [reason]);
    assert_eq!(decision.status.observed_generation, Some(1));
    managed.status = Some(decision.status.clone());
    let again = decide_at(&managed, &world, AFTER, &Outcome::default());
    assert_eq!(
        (told(&again), &again.status),
        (vec![], &decision.status),
        "said once"
    );
    assert_eq!(
        channel_change(&world, at(NOON), at(AFTER)),
        None,
        "what is not applied is not announced"
    );
}

#[test]
fn the_same_cluster_id_in_capitals_is_the_same_cluster() {
    let mut managed = managed_with(&json!({"clusterID": "C1", "channel": "c"}), &json!([]));
    let mut world = world(&managed, &in_line());
    step(&mut managed, &mut world, NOON);
    assert_eq!(spec_of(&world)["clusterID"], "c1");
}

#[test]
fn a_mended_object_is_valid_again() {
    let mut managed = managed_with(&json!({}), &json!([]));
    let mut world = world(&managed, &in_line());
    step(&mut managed, &mut world, NOON);
    managed
        .spec
        .template
        .spec
        .insert("channel".to_owned(), json!("stable-4.18"));
    managed.metadata.generation = Some(2);
    let (change, decision) = step(&mut managed, &mut world, NOON);
    assert_eq!(change.unwrap().describe(), "overrides removed");
    assert_eq!(said(&decision.status, types::VALID).0, "True/Valid");
}

#[test]
fn the_api_server_is_asked_about_overlays_to_come() {
    let overlays = json!([
        {"from": "2026-12-03T00:00:00Z", "overlay": {"spec": {"capabilities": {"baselineCapabilitySet": "v9"}}}},
        {"from": OVERLAY, "overlay": {"spec": {"channel": "stable-4.19"}}},
        {"from": "2026-12-04T00:00:00Z", "overlay": {}},
        {"from": "2026-11-01T00:00:00Z", "overlay": {"spec": {"channel": "past"}}},
    ]);
    let managed = managed_with(
        &json!({"channel": "stable-4.18", "overrides": [an_override()]}),
        &overlays,
    );
    let world = world(&managed, &in_line());
    let decision = decide_at(&managed, &world, NOON, &Outcome::default());
    let asked: Vec<_> = decision
        .rehearse
        .iter()
        .map(|(from, c)| (*from, c.describe()))
        .collect();
    // One that changes nothing needs no question.
    assert_eq!(
        asked,
        [
            (at(OVERLAY), "channel stable-4.18 → stable-4.19".to_owned()),
            (at("2026-12-03T00:00:00Z"), "capabilities added".to_owned())
        ]
    );
    let outcome = Outcome {
        rehearsed: Some(vec![refusal("2026-12-03T00:00:00Z", "Unsupported value: \"v9\"")]),
        ..Outcome::default()
    };
    let refused = decide_at(&managed, &world, NOON, &outcome);
    let (value, message) = said(&refused.status, types::VALID);
    assert_eq!(
        (value.as_str(), told(&refused)),
        ("False/Refused", vec!["Refused"])
    );
    assert_eq!(
        message,
        "the API server would refuse the overlay from Thu 2026-12-03 00:00 UTC: Unsupported value: \"v9\""
    );
    assert!(
        refused.change.is_some(),
        "what is due now is applied all the same"
    );
}

#[test]
fn a_refusal_is_a_condition_with_its_text_until_the_object_or_the_cluster_changes() {
    let mut managed = managed();
    let mut world = world(&managed, &in_line());
    step(&mut managed, &mut world, NOON);
    let change = decide_at(&managed, &world, AFTER, &no_objection())
        .change
        .unwrap();
    let outcome = Outcome {
        refused: Some((change.fields.clone(), "spec.channel: no".to_owned())),
        ..no_objection()
    };
    let decision = decide_at(&managed, &world, AFTER, &outcome);
    assert_eq!(
        decision.change,
        Some(change),
        "it is tried again, when the caller sees fit"
    );
    let (value, message) = said(&decision.status, types::APPLIED);
    assert_eq!(value, "False/Refused");
    assert_eq!(
        message,
        "the API server refuses the overlay from Wed 2026-12-02 14:00 UTC (channel stable-4.18 → stable-4.19), so nothing \
         is changed: spec.channel: no"
    );
    assert_eq!(said(&decision.status, types::VALID).0, "False/Refused");
    assert_eq!(told(&decision), ["Refused"]);
    managed.status = Some(decision.status.clone());
    let again = decide_at(&managed, &world, AFTER, &outcome);
    assert_eq!(
        (told(&again), &again.status),
        (vec![], &decision.status),
        "said once"
    );

    // Another change is no refused one.
    managed.spec.overlays[0]
        .overlay
        .spec
        .insert("channel".to_owned(), json!("eus-4.20"));
    managed.metadata.generation = Some(2);
    let edited = decide_at(&managed, &world, AFTER, &outcome);
    assert_eq!(edited.change.unwrap().fields[0].after, Some(json!("eus-4.20")));
    assert_eq!(said(&edited.status, types::VALID).0, "True/Valid");
    let (_, applied) = step(&mut managed, &mut world, AFTER);
    assert_eq!(told(&applied), ["Applied"]);
}

#[test]
fn without_a_cluster_version_nothing_is_done_and_said_why() {
    let managed = managed();
    let decision = decide_at(&managed, &World::default(), NOON, &Outcome::default());
    assert_eq!((decision.change, decision.rehearse), (None, vec![]));
    assert_eq!(
        said(&decision.status, types::APPLIED).0,
        "False/ClusterVersionMissing"
    );
}

#[test]
fn somebody_who_insists_is_told_and_set_back_later() {
    let mut managed = managed();
    let mut world = world(&managed, &in_line());
    step(&mut managed, &mut world, NOON);
    world.cluster_version.as_mut().unwrap().spec.channel = Some("fast-4.18".to_owned());
    let outcome = Outcome {
        postponed: Some(at("2026-12-01T12:05:00Z")),
        ..no_objection()
    };
    let decision = decide_at(&managed, &world, NOON, &outcome);
    let by_hand = decision.change.clone().unwrap().by_hand;
    assert_eq!(by_hand.as_deref(), Some("somebody"), "the caller waits with it");
    let (value, message) = said(&decision.status, types::APPLIED);
    assert_eq!(
        (value.as_str(), told(&decision)),
        ("False/SetBack", vec!["SetBack"])
    );
    assert!(
        message.contains("again and again") && message.contains("set back at Tue 2026-12-01 12:05 UTC"),
        "{message}"
    );
    managed.status = Some(decision.status.clone());
    let again = decide_at(&managed, &world, NOON, &outcome);
    assert_eq!((told(&again), &again.status), (vec![], &decision.status));
    let (change, decision) = step(&mut managed, &mut world, "2026-12-01T12:05:00Z");
    assert_eq!(
        (change.unwrap().by_hand.as_deref(), told(&decision)),
        (Some("somebody"), vec!["SetBack"])
    );
    // What is new is not held up by it.
    managed.metadata.generation = Some(2);
    managed
        .spec
        .template
        .spec
        .insert("upstream".to_owned(), json!("https://u"));
    assert_eq!(
        decide_at(&managed, &world, NOON, &outcome)
            .change
            .unwrap()
            .by_hand,
        None
    );
}
