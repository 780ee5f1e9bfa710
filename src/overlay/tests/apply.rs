use super::*;
use crate::unreadable::{Kind, Unreadable};

#[test]
fn the_whole_spec_is_replaced_but_desired_update_and_the_cluster_id() {
    let mut managed = managed_with(&json!({"channel": "stable-4.18"}), &json!([]));
    let before = json!({"clusterID": "c1", "channel": "fast-4.18", "upstream": "u", "overrides": [an_override()],
        "capabilities": {"baselineCapabilitySet": "None"}, "a/strange~field": {"x": 1},
        "desiredUpdate": {"version": "4.18.5", "image": "i5", "force": true, "acceptRisks": [{"name": "r"}]}});
    let mut world = world(&managed, &before);
    let (change, decision) = step(&mut managed, &mut world, NOON);
    assert_eq!(
        spec_of(&world),
        json!({"clusterID": "c1", "channel": "stable-4.18", "desiredUpdate": before["desiredUpdate"]})
    );
    let patch = change.unwrap().patch(&cluster(&before), at(NOON));
    assert!(!patch.to_string().contains("desiredUpdate"), "{patch}");
    assert_eq!(
        patch[0],
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"})
    );
    assert_eq!(
        Value::Object(decision.status.current.clone().unwrap()),
        json!({"clusterID": "c1", "channel": "stable-4.18"})
    );
    assert_eq!(said(&decision.status, types::APPLIED).0, "True/Applied");
    assert_eq!(decision.status.observed_generation, Some(1));
    assert_eq!(told(&decision), ["Applied"]);
    let note = &decision.notices[0].note;
    for part in [
        "the template applied",
        "channel fast-4.18 → stable-4.18",
        "overrides removed",
        "upstream removed",
    ] {
        assert!(note.contains(part), "{note}");
    }
}

#[rstest]
#[case::as_it_is(in_line())]
#[case::empty_values_are_no_difference(json!({"clusterID": "c1", "channel": "stable-4.18", "upstream": "",
    "overrides": [an_override()], "capabilities": {"additionalEnabledCapabilities": []}}))]
fn nothing_is_written_where_nothing_differs(#[case] spec: Value) {
    let mut managed = managed();
    let mut world = world(&managed, &spec);
    let (change, decision) = step(&mut managed, &mut world, NOON);
    assert_eq!(change, None);
    assert_eq!(told(&decision), ["Applied"], "said once");
    let (change, again) = step(&mut managed, &mut world, NOON);
    assert_eq!((change, told(&again)), (None, vec![]));
    assert_eq!(again.status, decision.status, "no hot loop");
}

#[test]
fn an_overlay_applies_at_its_instant_and_is_waited_for() {
    let mut managed = managed();
    let mut world = world(&managed, &in_line());
    let (_, before) = step(&mut managed, &mut world, NOON);
    assert_eq!(
        (before.wake_at, before.status.overlay_applied),
        (Some(at(OVERLAY)), None)
    );
    let message = said(managed.status.as_ref().unwrap(), types::APPLIED).1;
    assert!(
        message
            .contains("next overlay is due at Wed 2026-12-02 14:00 UTC: channel stable-4.18 → stable-4.19"),
        "{message}"
    );
    let (change, decision) = step(&mut managed, &mut world, OVERLAY);
    assert_eq!(change.unwrap().describe(), "channel stable-4.18 → stable-4.19");
    assert_eq!(decision.status.overlay_applied.clone().unwrap().0, at(OVERLAY));
    assert_eq!(decision.wake_at, None);
    assert_eq!(told(&decision), ["Applied"]);
    assert!(
        decision.notices[0]
            .note
            .starts_with("the overlay from Wed 2026-12-02 14:00 UTC applied")
    );
    assert_eq!(spec_of(&world)["channel"], "stable-4.19");
    // Taken back by an edit: the template applies again.
    managed.spec.overlays.clear();
    managed.metadata.generation = Some(2);
    let (_, decision) = step(&mut managed, &mut world, AFTER);
    assert_eq!(
        (
            spec_of(&world)["channel"].clone(),
            decision.status.overlay_applied.clone()
        ),
        (json!("stable-4.18"), None)
    );
    assert_eq!(told(&decision), ["Applied"], "our own change is nobody else's");
}

#[test]
fn the_channel_and_when_it_was_changed_are_one_write() {
    let (mut managed, mut no_annotations) = (managed(), world(&managed(), &in_line()));
    let mut others = no_annotations.clone();
    let lock = [(
        "managedupgrade.appuio.io/upgrade-job".to_owned(),
        "ns/j".to_owned(),
    )];
    others.cluster_version.as_mut().unwrap().metadata.annotations = Some(lock.into());
    step(&mut managed.clone(), &mut others, AFTER);
    step(&mut managed, &mut no_annotations, AFTER);
    for world in [&no_annotations, &others] {
        let cluster = world.cluster_version.as_ref().unwrap();
        assert_eq!(channel_changed_at(cluster, at(AFTER)), Some(at(AFTER)));
    }
    assert_eq!(
        others
            .cluster_version
            .unwrap()
            .metadata
            .annotations
            .unwrap()
            .len(),
        2
    );
}

#[rstest]
#[case::never(None, None)]
#[case::a_wrong_clock(Some("2026-12-01T12:05:00Z"), None)]
#[case::a_little_ahead(Some("2026-12-01T12:00:30Z"), Some("2026-12-01T12:00:30Z"))]
#[case::nonsense(Some("yesterday"), None)]
fn when_the_channel_was_changed_is_read_with_care(
    #[case] written: Option<&str>,
    #[case] expected: Option<&str>,
) {
    let mut cluster = cluster(&in_line());
    let annotation = written.map(|w| (annotations::CHANNEL_CHANGED_AT.to_owned(), w.to_owned()));
    cluster.metadata.annotations = annotation.map(|a| [a].into());
    assert_eq!(channel_changed_at(&cluster, at(NOON)), expected.map(at));
}

#[test]
fn a_change_without_channel_leaves_no_mark() {
    let mut managed = managed();
    let mut spec = in_line();
    spec["overrides"] = Value::Null;
    let mut world = world(&managed, &spec);
    let (change, _) = step(&mut managed, &mut world, NOON);
    assert_eq!(change.unwrap().describe(), "overrides added");
    assert_eq!(world.cluster_version.unwrap().metadata.annotations, None);
}

#[test]
fn a_change_by_hand_is_set_back_and_named_but_desired_update_is_not_looked_at() {
    let mut managed = managed();
    let mut world = world(&managed, &in_line());
    step(&mut managed, &mut world, NOON);
    let cluster = world.cluster_version.as_mut().unwrap();
    cluster.spec.desired_update = None;
    let (change, decision) = step(&mut managed, &mut world, NOON);
    assert_eq!((change, told(&decision)), (None, vec![]));

    let cluster = world.cluster_version.as_mut().unwrap();
    cluster.spec.channel = Some("candidate-4.20".to_owned());
    let managed_fields = json!([
        {"manager": "older", "time": "2026-11-30T00:00:00Z", "fieldsV1": {"f:spec": {"f:channel": {}}}},
        {"manager": "kubectl-edit", "time": "2026-12-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:channel": {}}}},
        {"manager": "cvo", "time": "2026-12-01T11:00:00Z", "fieldsV1": {"f:status": {}}},
    ]);
    cluster.metadata.managed_fields = serde_json::from_value(managed_fields).unwrap();
    let (_, decision) = step(&mut managed, &mut world, NOON);
    assert_eq!(spec_of(&world)["channel"], "stable-4.18");
    assert_eq!(
        (told(&decision), decision.notices[0].warning),
        (vec!["SetBack"], true)
    );
    let note = &decision.notices[0].note;
    for part in [
        "by kubectl-edit",
        "channel candidate-4.20 → stable-4.18",
        "Change ClusterVersion ns/version of managed",
    ] {
        assert!(note.contains(part), "{note}");
    }
}

#[test]
fn deleting_our_object_leaves_the_cluster_alone() {
    let mut managed = managed();
    managed.metadata.deletion_timestamp = Some(Time(at(NOON)));
    let world = world(&managed, &json!({"clusterID": "c1", "channel": "other"}));
    let decision = decide_at(&managed, &world, AFTER, &Outcome::default());
    assert_eq!(
        (decision.change, decision.rehearse, decision.wake_at),
        (None, vec![], None)
    );
    assert_eq!(decision.status, ClusterVersionStatus::default());
}

/// What a job shows of itself, and whether it holds an overlay back.
#[rstest]
#[case::pinned(json!({}), false)]
#[case::started(started(&json!([step_of("PreHealthCheck", "Running"), step_of("AwaitControlPlane", "Pending")])), true)]
#[case::updating(started(&json!([step_of("AwaitControlPlane", "Running")])), true)]
#[case::control_plane_done(started(&json!([step_of("AwaitControlPlane", "Succeeded")])), false)]
#[case::without_a_version(json!({"spec": {"desiredVersion": null}, "status": {"conditions": [condition("Started")]}}), false)]
#[case::of_the_peer_and_not_there(started(&json!([])), true)]
#[case::of_the_peer_and_there(json!({"spec": {"desiredVersion": {"version": "4.18.3", "image": "i3"}},
    "status": {"conditions": [condition("Started")]}}), false)]
#[case::failed(json!({"status": {"conditions": [condition("Started"), condition("Failed")],
    "steps": [step_of("AwaitControlPlane", "Running")]}}), false)]
fn an_overlay_is_held_back_while_a_jobs_control_plane_is_updating(#[case] patch: Value, #[case] held: bool) {
    let mut managed = managed();
    let mut world = world(&managed, &in_line());
    step(&mut managed, &mut world, NOON);
    world.jobs.push(job("j", &patch));
    let (change, decision) = step(&mut managed, &mut world, OVERLAY);
    assert_eq!(change.is_none(), held);
    if !held {
        return;
    }
    let (value, message) = said(&decision.status, types::APPLIED);
    assert_eq!((value.as_str(), told(&decision)), ("False/Held", vec!["Held"]));
    assert_eq!(
        message,
        "the overlay from Wed 2026-12-02 14:00 UTC is held back until the control plane of UpgradeJob j has been updated: \
         channel stable-4.18 → stable-4.19"
    );
    // What is applied is what the cluster has.
    assert_eq!(
        decision.status.current.as_ref().unwrap()["channel"],
        "stable-4.18"
    );
    assert_eq!(decision.status.overlay_applied, None);
    let (_, again) = step(&mut managed, &mut world, AFTER);
    assert_eq!(told(&again), [""; 0], "said once");
    world.jobs.clear();
    let (_, released) = step(&mut managed, &mut world, "2026-12-02T15:00:00Z");
    assert_eq!(said(&released.status, types::APPLIED).0, "True/Applied");
    assert_eq!(told(&released), ["Applied"]);
}

#[test]
fn a_job_that_cannot_be_read_but_has_the_lock_holds_back_too() {
    let managed = managed();
    let mut world = world(&managed, &in_line());
    let lock = [(annotations::UPGRADE_JOB.to_owned(), "ns/broken".to_owned())];
    world.cluster_version.as_mut().unwrap().metadata.annotations = Some(lock.into());
    let readable = decide_at(&managed, &world, AFTER, &no_objection());
    assert!(readable.change.is_some());
    world.unreadable = vec![Unreadable::named(Kind::UpgradeJob, "broken")];
    let decision = decide_at(&managed, &world, AFTER, &no_objection());
    assert_eq!(decision.change, None);
    assert!(
        said(&decision.status, types::APPLIED)
            .1
            .contains("UpgradeJob broken")
    );
}

fn condition(type_: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": NOON})
}

fn step_of(kind: &str, phase: &str) -> Value {
    json!({"name": kind, "kind": kind, "phase": phase})
}

fn started(steps: &Value) -> Value {
    json!({"status": {"conditions": [condition("Started")], "steps": steps}})
}
