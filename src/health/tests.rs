use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    Findings, Look, Moment,
    answers::{Answer, Answers, COUNTS_FOR, Sample, Vector},
    check,
    prometheus::{ALERTS_SINCE, CRITICAL_ALERTS},
};
use crate::{api::health_check::HealthChecks, world::World};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn checks(yaml: &str) -> HealthChecks {
    serde_yaml::from_str(yaml).unwrap()
}

fn condition(type_: &str, status: &str, since: i64) -> Value {
    json!({"type": type_, "status": status, "message": format!("why {type_}"), "lastTransitionTime": at(since).to_string()})
}

fn world(cluster: &[Value], operators: &[(&str, Value)]) -> World {
    let cluster_version = json!({
        "metadata": {"name": "version"}, "spec": {"clusterID": "x"},
        "status": {"conditions": cluster, "history": [{"state": "Completed", "startedTime": at(-9000).to_string(),
            "completionTime": at(-8000).to_string(), "version": "4.18.3", "image": "i"}]},
    });
    let operators = operators.iter().map(|(name, degraded)| {
        let conditions = [condition("Available", "True", -9000), degraded.clone()];
        json!({"metadata": {"name": name}, "spec": {}, "status": {"conditions": conditions}})
    });
    World {
        cluster_version: serde_json::from_value(cluster_version).unwrap(),
        operators: operators.map(|o| serde_json::from_value(o).unwrap()).collect(),
        ..World::default()
    }
}

fn healthy() -> World {
    world(&[], &[("etcd", condition("Degraded", "False", -9000))])
}

fn sample(labels: &[(&str, &str)], value: &str) -> Sample {
    Sample {
        labels: labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        value: value.to_owned(),
    }
}

/// A firing alert, such as `KubePodCrashLooping namespace=shop pod=cart`.
fn alert(text: &str) -> Sample {
    let mut words = text.split(' ');
    let mut labels = vec![
        ("__name__", "ALERTS"),
        ("alertname", words.next().unwrap()),
        ("alertstate", "firing"),
        ("severity", "critical"),
    ];
    labels.extend(words.map(|w| w.split_once('=').unwrap()));
    sample(&labels, "1")
}

#[allow(clippy::unnecessary_wraps)] // It stands beside answers that are errors.
fn said(samples: Vec<Sample>) -> Result<Vector, String> {
    Ok(Vector {
        samples,
        ..Vector::default()
    })
}

/// Answers of this instant.
fn answers<const N: usize>(all: [(&str, Result<Vector, String>); N]) -> Answers {
    let answer = |said| Answer { at: at(0), said };
    Answers::Known(all.map(|(query, said)| (query.to_owned(), answer(said))).into())
}

fn alerts(samples: Vec<Sample>) -> Answers {
    answers([(CRITICAL_ALERTS, said(samples)), (ALERTS_SINCE, said(vec![]))])
}

fn look_at(world: &World, checks: &HealthChecks, answers: &Answers, now: Timestamp) -> Findings {
    let look = Look {
        world,
        answers,
        target: None,
        moment: Moment::BeforeUpgrade,
        now,
    };
    check(checks, &look)
}

/// What the check says of a healthy cluster with these answers.
fn described(yaml: &str, answers: &Answers) -> String {
    look_at(&healthy(), &checks(yaml), answers, at(1)).describe()
}

#[rstest]
#[case::in_a_pod("A namespace=shop pod=cart node=w-1", "critical alert A in shop/cart")]
#[case::in_a_namespace(
    "A namespace=shop deployment=cart job=ksm",
    "critical alert A in shop (deployment cart)"
)]
#[case::of_the_cluster(
    "ClusterOperatorDown name=etcd",
    "critical alert ClusterOperatorDown (name etcd)"
)]
#[case::about_nothing("A", "critical alert A")]
fn an_alert_is_named_with_its_place(#[case] text: &str, #[case] expected: &str) {
    let got = described("{checkCriticalAlerts: true}", &alerts(vec![alert(text)]));
    assert_eq!(got, format!("not healthy: {expected}"));
}

#[rstest]
#[case::by_name("excludeAlerts: [{alertname: A}]", true)]
#[case::by_all_labels("excludeAlerts: [{alertname: A, pod: cart}]", true)]
#[case::by_any_entry("excludeAlerts: [{alertname: B}, {pod: cart}]", true)]
#[case::one_label_differs("excludeAlerts: [{alertname: A, pod: other}]", false)]
#[case::one_label_is_missing("excludeAlerts: [{alertname: A, node: w-1}]", false)]
#[case::an_absent_label_is_empty("excludeAlerts: [{alertname: A, node: ''}]", true)]
#[case::a_pattern_is_none("excludeAlerts: [{alertname: 'A.*'}]", false)]
#[case::without_labels("excludeAlerts: [{}]", false)]
#[case::by_namespace("excludeNamespaces: [shop]", true)]
#[case::by_another_namespace("excludeNamespaces: [shop-2, '']", false)]
#[case::operators_are_no_alerts("excludeOperators: [shop, A]", false)]
fn alerts_are_excluded_by_labels_and_namespace(#[case] exclude: &str, #[case] excluded: bool) {
    let firing = alerts(vec![alert("A namespace=shop pod=cart")]);
    let got = described(&format!("{{checkCriticalAlerts: true, {exclude}}}"), &firing);
    assert_eq!(got == "healthy", excluded, "{got}");
}

#[test]
fn our_own_alerts_hold_nothing() {
    let own = alert("UpgradeJobOverdue component=openshift-upgrade-operator");
    assert_eq!(
        described("{checkCriticalAlerts: true}", &alerts(vec![own])),
        "healthy"
    );
}

#[rstest]
#[case::asked_for("{checkCriticalAlerts: true}", "not healthy: critical alert A")]
#[case::not_asked_for("{}", "healthy; critical alert A")]
#[case::off("{checkCriticalAlerts: false}", "healthy")]
#[case::asked_for_to_be_shown(
    "{checkCriticalAlerts: true, severity: {criticalAlerts: Warn}}",
    "healthy; critical alert A"
)]
fn an_alert_blocks_or_warns(#[case] yaml: &str, #[case] expected: &str) {
    assert_eq!(described(yaml, &alerts(vec![alert("A")])), expected);
}

#[test]
fn the_longest_standing_offender_comes_first_and_the_list_is_bounded() {
    let active = |name: &str, since: i64| {
        let labels = [
            ("__name__", "ALERTS_FOR_STATE"),
            ("alertname", name),
            ("severity", "critical"),
        ];
        sample(&labels, &at(since).as_second().to_string())
    };
    let firing = (0..9)
        .map(|n| alert(&format!("N{n}")))
        .chain([alert("Old"), alert("New")]);
    let known = answers([
        (CRITICAL_ALERTS, said(firing.collect())),
        (
            ALERTS_SINCE,
            said(vec![active("New", -100), active("Old", -3000)]),
        ),
    ]);
    let world = world(&[], &[("etcd", condition("Degraded", "True", -1000))]);
    let got = look_at(&world, &checks("{checkCriticalAlerts: true}"), &known, at(1)).describe();
    assert_eq!(
        got,
        "not healthy: critical alert Old; operator etcd is Degraded: why Degraded; critical alert New; critical alert N0; \
         critical alert N1; critical alert N2; critical alert N3; critical alert N4; and 4 more"
    );
}

#[test]
fn alerts_that_read_the_same_are_said_once_and_those_not_kept_are_counted() {
    let twice = ["a", "b"].map(|replica| alert(&format!("A prometheus_replica={replica}")));
    let firing = Vector {
        samples: twice.to_vec(),
        more: 7,
        warnings: vec![],
    };
    let known = answers([(CRITICAL_ALERTS, Ok(firing)), (ALERTS_SINCE, said(vec![]))]);
    assert_eq!(
        described("{checkCriticalAlerts: true}", &known),
        "not healthy: critical alert A; 7 more critical alerts that were not looked at"
    );
}

const QUERIES: &str =
    "{checkCriticalAlerts: false, customQueries: [{query: 'up == 0'}, {query: q, severity: Warn}]}";

#[rstest]
#[case::empty(vec![], vec![], "healthy")]
#[case::one(
    vec![sample(&[("job", "argocd"), ("namespace", "syn")], "0")], vec![],
    "not healthy: query up == 0 finds 1 result: {job=\"argocd\", namespace=\"syn\"} = 0"
)]
#[case::many(
    vec![sample(&[("n", "1")], "0"), sample(&[("n", "2")], "0"), sample(&[("n", "3")], "0"), sample(&[("n", "4")], "0")], vec![],
    "not healthy: query up == 0 finds 4 results: {n=\"1\"} = 0, {n=\"2\"} = 0, {n=\"3\"} = 0, …"
)]
#[case::shown_only(vec![], vec![sample(&[], "3")], "healthy; query q finds 1 result: {} = 3")]
fn a_query_is_healthy_when_its_result_is_empty(
    #[case] up: Vec<Sample>,
    #[case] q: Vec<Sample>,
    #[case] expected: &str,
) {
    assert_eq!(
        described(QUERIES, &answers([("up == 0", said(up)), ("q", said(q))])),
        expected
    );
}

#[test]
fn warnings_of_prometheus_are_shown() {
    let partial = Vector {
        warnings: vec!["no store\nmatched".to_owned()],
        ..Vector::default()
    };
    assert_eq!(
        described(QUERIES, &answers([("up == 0", Ok(partial)), ("q", said(vec![]))])),
        "healthy; Prometheus warns: no store matched"
    );
}

#[rstest]
#[case::blocks(
    "{checkCriticalAlerts: true, customQueries: [{query: q}]}",
    "not healthy: cannot tell about critical alerts and query q: it is away"
)]
#[case::warns("{}", "healthy; not checked: critical alerts (it is away)")]
#[case::both(
    "{customQueries: [{query: q}]}",
    "not healthy: cannot tell about query q: it is away"
)]
fn what_prometheus_does_not_say_is_never_healthy(#[case] yaml: &str, #[case] expected: &str) {
    let away = || Err("it is away".to_owned());
    let known = answers([(CRITICAL_ALERTS, away()), (ALERTS_SINCE, away()), ("q", away())]);
    assert_eq!(described(yaml, &known), expected);
}

#[rstest]
#[case::not_asked_for("{}", "healthy")]
#[case::asked_for(
    "{checkCriticalAlerts: true, customQueries: [{query: a}, {query: b}]}",
    "not healthy: cannot tell about critical alerts, query a and query b: the operator has no Prometheus to ask: give it \
     --prometheus-url, or take the check out"
)]
#[case::to_be_shown(
    "{customQueries: [{query: q, severity: Warn}]}",
    "healthy; not checked: query q (no --prometheus-url)"
)]
fn without_a_prometheus_only_what_nobody_asked_for_passes(#[case] yaml: &str, #[case] expected: &str) {
    assert_eq!(described(yaml, &Answers::NobodyToAsk), expected);
}

#[test]
fn an_answer_counts_for_a_while_and_is_then_asked_for_again() {
    let (world, checks, known) = (healthy(), checks("{customQueries: [{query: q}]}"), alerts(vec![]));
    let until = at(0).checked_add(COUNTS_FOR).unwrap();
    let just_before = until.checked_sub(jiff::SignedDuration::from_millis(1)).unwrap();

    let findings = look_at(&world, &checks, &known, just_before);
    assert_eq!(findings.asks.iter().collect::<Vec<_>>(), ["q"]);
    assert_eq!(findings.look_again, Some(until));

    let findings = look_at(&world, &checks, &known, until);
    let all: Vec<_> = findings.asks.iter().map(String::as_str).collect();
    assert_eq!(all, [ALERTS_SINCE, CRITICAL_ALERTS, "q"]);
    assert_eq!(
        findings.look_again, None,
        "there is nothing to wait for: it is asked now"
    );
    assert!(!findings.is_healthy(), "even what only warns is asked first");
    assert_eq!(findings.describe(), "asking Prometheus");
}

#[rstest]
#[case::just_now(-60, true)]
#[case::almost(-119, true)]
#[case::two_minutes(-120, false)]
fn failing_holds_at_once_and_counts_after_two_minutes(#[case] since: i64, #[case] young: bool) {
    let world = World {
        operators: healthy().operators,
        ..world(&[condition("Failing", "True", since)], &[])
    };
    let off = checks("{checkCriticalAlerts: false}");
    let findings = look_at(&world, &off, &Answers::NobodyToAsk, at(0));
    assert_eq!(
        findings.describe(),
        "not healthy: ClusterVersion is Failing: why Failing"
    );
    assert_eq!(findings.is_only_young(), young);
    assert_eq!(findings.look_again, young.then(|| at(since + 120)));
}
