//! What is due when, and which pods are meant: as tables.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    jq::{Question, evaluate},
    *,
};
use crate::{
    api::NodeForceDrain,
    openshift::node::{Drain, NodeView},
};

fn minutes(n: i64) -> Timestamp {
    "2026-11-24T22:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_mins(n)
}

/// The peer's sample, with a patch.
fn force_drain(change: &Value) -> NodeForceDrain {
    let mut fd = json!({
        "metadata": {"name": "app", "uid": "f", "generation": 1},
        "spec": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/app": ""}},
            "nodeDrainGracePeriod": "15m", "podForceDeleteGracePeriod": "2m"},
    });
    json_patch::merge(&mut fd, change);
    serde_json::from_value(fd).unwrap()
}

fn node(name: &str, drain: Option<(&str, &str)>) -> NodeView {
    NodeView {
        name: name.to_owned(),
        labels: [("node-role.kubernetes.io/app".to_owned(), String::new())].into(),
        drain: drain.map(|(wanted, last_applied)| Drain {
            wanted: wanted.to_owned(),
            last_applied: last_applied.to_owned(),
        }),
        ..NodeView::default()
    }
}

fn due(survey: &Survey) -> Vec<&str> {
    survey.due.iter().map(|d| d.name.as_str()).collect()
}

#[test]
fn a_node_is_due_when_its_drain_was_seen_for_long_enough() {
    let nodes = [node("a-1", Some(("drain-2", "uncordon-1"))), node("a-2", None)];
    let mut fd = force_drain(&json!({}));
    let first = survey(&fd, &nodes, None, minutes(0));
    assert!(first.due.is_empty());
    assert_eq!(first.wake_at, Some(minutes(15)));
    let known = &first.status.last_observed_node_drain;
    assert_eq!(known.len(), 1);
    assert_eq!(
        (known[0].drain_id.as_str(), known[0].observed_time.0),
        ("uncordon-1", minutes(0))
    );
    fd.status = Some(first.status.clone());
    let again = survey(&fd, &nodes, None, minutes(14));
    assert_eq!(
        (again.status, again.due.len()),
        (first.status.clone(), 0),
        "nothing to write"
    );
    let late = survey(&fd, &nodes, None, minutes(15));
    assert_eq!(due(&late), ["a-1"]);
    assert_eq!(late.due[0].wanted, "drain-2");
    assert_eq!(late.wake_at, Some(minutes(16)), "it is looked at again");
    // Another drain of the same node begins anew, and a node that is gone is forgotten.
    let other = [node("a-1", Some(("drain-3", "uncordon-2")))];
    let anew = survey(&fd, &other, None, minutes(20));
    assert_eq!(
        anew.status.last_observed_node_drain[0].observed_time.0,
        minutes(20)
    );
    assert!(anew.due.is_empty());
    assert!(
        survey(&fd, &[node("a-2", None)], None, minutes(20))
            .status
            .last_observed_node_drain
            .is_empty()
    );
}

#[rstest]
#[case::of_another_role(json!({"spec": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/app": "no"}}}}), false, true)]
#[case::all_nodes(json!({"spec": {"nodeSelector": {"matchLabels": null}}}), true, true)]
#[case::never(json!({"spec": {"nodeDrainGracePeriod": "0s"}}), false, true)]
#[case::deleted(json!({"metadata": {"deletionTimestamp": "2026-11-24T22:00:00Z"}}), false, true)]
#[case::bad_selector(json!({"spec": {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}}), false, false)]
#[case::bad_namespaces(json!({"spec": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}), false, false)]
#[case::bad_duration(json!({"spec": {"nodeDrainGracePeriod": "soon"}}), false, false)]
fn which_nodes_are_due(#[case] change: Value, #[case] expected: bool, #[case] is_valid: bool) {
    let nodes = [node("a-1", Some(("drain-2", "uncordon-1")))];
    let mut fd = force_drain(&change);
    let seen = json!({"nodeName": "a-1", "drainID": "uncordon-1", "observedTime": minutes(0)});
    fd.status = serde_json::from_value(json!({"lastObservedNodeDrain": [seen]})).unwrap();
    let survey = survey(&fd, &nodes, None, minutes(60));
    assert_eq!(!survey.due.is_empty(), expected);
    assert_eq!(
        survey.status.conditions[0].status == "True",
        is_valid,
        "{:?}",
        survey.status.conditions
    );
}

#[test]
fn an_expression_that_is_none_makes_nothing_due() {
    let nodes = [node("a-1", Some(("drain-2", "uncordon-1")))];
    let fd = force_drain(&json!({}));
    let survey = survey(
        &fd,
        &nodes,
        Some("podJQSelector is no jq expression: x"),
        minutes(0),
    );
    assert_eq!((survey.due.len(), survey.wake_at), (0, None));
    let said = &survey.status.conditions[0].message;
    assert_eq!(
        said,
        "spec.podJQSelector is no jq expression: x; until then no pod is deleted"
    );
}

fn pod(change: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"namespace": "shop", "name": "db-0", "uid": "u", "resourceVersion": "7"},
        "status": {"phase": "Running"},
    });
    json_patch::merge(&mut pod, change);
    serde_json::from_value(pod).unwrap()
}

/// Deleted at 22:00, with a grace period of so many seconds.
fn ending(grace: i64) -> Value {
    let ends = minutes(0) + SignedDuration::from_secs(grace);
    json!({"metadata": {"deletionTimestamp": ends, "deletionGracePeriodSeconds": grace}})
}

#[rstest]
#[case::runs(json!({}), Some(Stage::Delete), None)]
#[case::is_over(json!({"status": {"phase": "Succeeded"}}), None, None)]
#[case::has_failed(json!({"status": {"phase": "Failed"}}), None, None)]
#[case::mirror(json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}), None, None)]
#[case::static_pod(json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]}}), None, None)]
#[case::daemon_set(json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]}}), None, None)]
#[case::of_nothing(json!({"metadata": {"ownerReferences": null}}), Some(Stage::Delete), None)]
#[case::ends_for_two_minutes(ending(3600), Some(Stage::Terminate), None)]
#[case::told_to_end_at_once(ending(1), None, None)]
#[case::held_by_a_finalizer(ending(0), None, None)]
fn which_pods_are_due(#[case] change: Value, #[case] stage: Option<Stage>, #[case] wake: Option<i64>) {
    let pod = pod(&change);
    let (found, next) = choose(&force_drain(&json!({})), &[&pod], minutes(2));
    let stages: Vec<_> = found.iter().map(|d| d.stage).collect();
    assert_eq!(stages, Vec::from_iter(stage));
    assert_eq!(next, wake.map(minutes));
    for deletion in found {
        assert_eq!((deletion.uid.as_str(), deletion.revision.as_str()), ("u", "7"));
    }
}

#[test]
fn a_pod_that_ends_is_left_alone_until_its_time() {
    let pod = pod(&ending(3600));
    let (found, wake) = choose(&force_drain(&json!({})), &[&pod], minutes(1));
    assert_eq!((found, wake), (Vec::new(), Some(minutes(2))));
    let never = force_drain(&json!({"spec": {"podForceDeleteGracePeriod": "0s"}}));
    assert_eq!(choose(&never, &[&pod], minutes(90)), (Vec::new(), None));
}

fn ask(program: &str, pod: &Value) -> Result<bool, String> {
    let question = Question {
        program: program.to_owned(),
        pods: vec![pod.clone()],
    };
    evaluate(&question)?.remove(0)
}

/// The first three are the examples in the peer's documentation, with what jq 1.7 says of them.
#[rstest]
#[case(r#".metadata.namespace | test("-dev$")"#, Ok(true))]
#[case(r#".spec.containers[] | .image | test("oktodrain")"#, Ok(true))]
#[case(r#"[.spec.containers[] | .image | test("oktodrain")] | all"#, Ok(false))]
#[case(r#".metadata.namespace | test("^dev-")"#, Ok(false))]
#[case(
    r#".metadata.labels["app"] == "web" and (.metadata.ownerReferences | not)"#,
    Ok(true)
)]
#[case("empty", Ok(false))]
#[case("1, \"true\", null, {}", Ok(false))]
#[case("1, true", Ok(true))]
#[case(".metadata.name | error", Err("db-0"))]
#[case("true, error(\"late\")", Err("late"))]
#[case(".spec.containers[] | .ports[] | true", Err("null"))]
#[case("range(20000) | false", Err("more than 10000 values"))]
#[case(".[", Err("podJQSelector is no jq expression"))]
#[case("no_such_function", Err("no_such_function"))]
fn what_an_expression_says(#[case] program: &str, #[case] expected: Result<bool, &str>) {
    let pod = json!({
        "metadata": {"namespace": "shop-dev", "name": "db-0", "labels": {"app": "web"}},
        "spec": {"containers": [{"image": "registry/oktodrain:1"}, {"image": "registry/other:1"}]},
    });
    match (ask(program, &pod), expected) {
        (Ok(found), Ok(wanted)) => assert_eq!(found, wanted),
        (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
        (found, wanted) => panic!("{found:?} is not {wanted:?}"),
    }
}
