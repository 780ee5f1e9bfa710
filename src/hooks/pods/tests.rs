use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

fn at(second: i64) -> Timestamp {
    let start: Timestamp = "2026-11-24T21:00:00Z".parse().unwrap();
    start.saturating_add(SignedDuration::from_secs(second)).unwrap()
}

fn container(name: &str, code: Option<i32>, second: i64) -> Value {
    let state = match code {
        None => json!({"running": {}}),
        Some(code) => json!({"terminated": {"exitCode": code, "reason": "Said", "finishedAt": at(second)}}),
    };
    json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

#[allow(clippy::unnecessary_wraps)]
fn ended(second: Option<i64>, failure: Option<&str>) -> Option<PodEnd> {
    Some(PodEnd {
        at: second.map(at),
        failure: failure.map(str::to_owned),
    })
}

#[rstest]
#[case::at_work(false, "Running", vec![container("main", None, 0), container("wait", Some(0), 5)], None)]
#[case::not_at_work_yet(false, "Pending", vec![], None)]
#[case::well(false, "Succeeded", vec![container("main", Some(0), 5), container("wait", Some(0), 7)], ended(Some(7), None))]
#[case::badly(false, "Failed", vec![container("main", Some(3), 5), container("wait", Some(0), 7)],
    ended(Some(7), Some("main: Said (exit code 3)")))]
#[case::nobody_says_when(false, "Failed", vec![], ended(None, Some("The node was low on resource")))]
#[case::all_have_ended_and_the_kubelet_has_yet_to_say_so(false, "Running", vec![container("main", Some(0), 5)], ended(Some(5), None))]
#[case::steps_have_ended(true, "Running", vec![container("step-a", Some(0), 5), container("sidecar-b", None, 0)], ended(Some(5), None))]
#[case::a_step_failed(true, "Running", vec![container("step-a", Some(0), 5), container("step-b", Some(1), 6), container("sidecar-c", None, 0)],
    ended(Some(6), Some("step-b: Said (exit code 1)")))]
#[case::a_step_runs(true, "Running", vec![container("step-a", Some(0), 5), container("step-b", None, 0)], None)]
fn a_pod_says_how_it_ended(
    #[case] of_task_run: bool,
    #[case] phase: &str,
    #[case] containers: Vec<Value>,
    #[case] expected: Option<PodEnd>,
) {
    let labels = if of_task_run {
        json!({TASK_RUN: "r"})
    } else {
        json!({})
    };
    let pod = json!({
        "metadata": {"name": "p", "labels": labels, "annotations": {NODE_NAME: "wf.a"}, "creationTimestamp": at(1)},
        "status": {"phase": phase, "message": "The node was low on resource", "containerStatuses": containers},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let seen = HookPod {
        name: "p".to_owned(),
        node: Some("wf.a".to_owned()),
        made_at: Some(at(1)),
        end: expected,
    };
    assert_eq!(HookPod::from(&pod), seen);
}

fn owner() -> PodOwner {
    PodOwner::Workflow("wf".to_owned())
}

fn wait() -> PodWait {
    PodWait {
        owner: owner(),
        pods: Awaited::Node("wf.a".to_owned()),
        since: at(0),
        without: WithoutPod::Gone,
        is_all: true,
    }
}

fn pod(name: &str, node: &str, made: i64, end: Option<PodEnd>) -> HookPod {
    HookPod {
        name: name.to_owned(),
        node: Some(node.to_owned()),
        made_at: Some(at(made)),
        end,
    }
}

/// Looks at these seconds.
fn looks(all: Vec<(i64, Vec<HookPod>)>) -> HookPods {
    let mut pods = HookPods::default();
    for (second, said) in all {
        let (at, said) = (at(second), Ok(said));
        pods.keep(owner(), Look { at, said });
    }
    pods
}

fn silent(second: i64, after: After) -> Told {
    Told::Silent {
        since: at(second),
        after,
    }
}

fn end_of(pod: &str, failure: Option<&str>) -> After {
    After::End {
        pod: pod.to_owned(),
        failure: failure.map(str::to_owned),
    }
}

#[rstest]
#[case::nobody_looked(vec![], Told::Unknown)]
#[case::at_work(vec![(300, vec![pod("p", "wf.a", 0, None)])], Told::AtWork)]
#[case::ended(vec![(300, vec![pod("p", "wf.a", 0, ended(Some(20), None))])], silent(20, end_of("p", None)))]
#[case::below(vec![(300, vec![pod("p", "wf.a[0].x(1)", 0, ended(Some(20), None))])], silent(20, end_of("p", None)))]
#[case::of_another(vec![(300, vec![pod("p", "wf.ab", 0, None)])], silent(300, After::Gone))]
#[case::ended_without_a_time(vec![(300, vec![pod("p", "wf.a", 0, None)]), (360, vec![pod("p", "wf.a", 0, ended(None, None))])],
    silent(300, end_of("p", None)))]
#[case::its_node_has_a_clock_that_is_slow(
    vec![(300, vec![pod("p", "wf.a", 0, None)]), (360, vec![pod("p", "wf.a", 0, ended(Some(20), None))])],
    silent(300, end_of("p", None)))]
#[case::slow_by_far(vec![(300, vec![pod("p", "wf.a", 0, ended(Some(-9_000), None))])], silent(0, end_of("p", None)))]
#[case::its_node_has_a_clock_that_is_fast(
    vec![(300, vec![pod("p", "wf.a", 0, None)]), (360, vec![pod("p", "wf.a", 0, ended(Some(9_000), None))]),
        (420, vec![pod("p", "wf.a", 0, ended(Some(9_000), None))])],
    silent(360, end_of("p", None)))]
#[case::the_newest_counts(
    vec![(300, vec![pod("q", "wf.a(0)", 0, ended(Some(20), Some("no"))), pod("p", "wf.a(1)", 30, ended(Some(40), None))])],
    silent(40, end_of("p", None)))]
#[case::another_is_at_work(
    vec![(300, vec![pod("q", "wf.a(0)", 0, ended(Some(20), Some("no"))), pod("p", "wf.a(1)", 30, None)])], Told::AtWork)]
#[case::never_there(vec![(300, vec![]), (360, vec![])], silent(300, After::Gone))]
#[case::gone(vec![(300, vec![pod("p", "wf.a", 0, None)]), (360, vec![pod("p", "wf.a", 0, None)]), (420, vec![])],
    silent(360, After::Gone))]
fn pods_tell_of_their_engine(#[case] all: Vec<(i64, Vec<HookPod>)>, #[case] expected: Told) {
    assert_eq!(told(&wait(), &looks(all), PATIENCE, at(420)), expected);
}

/// Pod q failed, and Tekton has to make, or has made, another.
#[rstest]
#[case::has_yet_to_make_it(Awaited::Next, WithoutPod::EngineWaits, vec![], Told::Nothing)]
#[case::has_yet_to_name_it(Awaited::Next, WithoutPod::EngineWaits, vec![None], Told::AtWork)]
#[case::has_made_it(Awaited::Named("p".to_owned()), WithoutPod::Gone, vec![None], Told::AtWork)]
#[case::it_has_ended(Awaited::Named("p".to_owned()), WithoutPod::Gone, vec![ended(Some(40), None)], silent(40, end_of("p", None)))]
#[case::it_is_gone(Awaited::Named("p".to_owned()), WithoutPod::Gone, vec![], silent(300, After::Gone))]
#[case::has_not_begun(Awaited::Any, WithoutPod::NotBegun, vec![], silent(20, end_of("q", Some("no"))))]
fn of_a_task_run_only_the_pod_that_tekton_has_named_counts(
    #[case] pods: Awaited,
    #[case] without: WithoutPod,
    #[case] second: Vec<Option<PodEnd>>,
    #[case] expected: Told,
) {
    let made = |name: &str, at, end| HookPod {
        node: None,
        ..pod(name, "", at, end)
    };
    let first = made("q", 60, ended(Some(20), Some("no")));
    let all = second.into_iter().map(|end| made("p", 30, end)).chain([first]);
    let wait = PodWait {
        pods,
        without,
        ..wait()
    };
    let seen = looks(vec![(300, all.collect())]);
    assert_eq!(told(&wait, &seen, PATIENCE, at(420)), expected);
}

/// Another try began after the first look, and its pod is gone.
#[test]
fn what_is_gone_is_so_at_the_earliest_since_it_was_asked_for() {
    let again = PodWait {
        since: at(900),
        ..wait()
    };
    let pods = looks(vec![(300, vec![]), (800, vec![]), (1_250, vec![])]);
    assert_eq!(told(&again, &pods, PATIENCE, at(1_250)), silent(900, After::Gone));
}

#[rstest]
#[case::the_engine_waits(WithoutPod::EngineWaits, Ok(vec![]), Told::Nothing)]
#[case::not_begun(WithoutPod::NotBegun, Ok(vec![]), silent(0, After::NotBegun))]
#[case::not_begun_whatever_may_be_read(
    WithoutPod::NotBegun,
    Err(Unread::NoRight),
    silent(0, After::NotBegun)
)]
#[case::no_right(WithoutPod::Gone, Err(Unread::NoRight), Told::Nothing)]
#[case::too_many(WithoutPod::Gone, Err(Unread::TooMany), Told::Nothing)]
#[case::not_now(WithoutPod::Gone, Err(Unread::Failed), Told::Unknown)]
fn without_a_pod_it_depends(
    #[case] without: WithoutPod,
    #[case] said: Result<Vec<HookPod>, Unread>,
    #[case] expected: Told,
) {
    let mut pods = HookPods::default();
    pods.keep(owner(), Look { at: at(300), said });
    let wait = PodWait { without, ..wait() };
    assert_eq!(told(&wait, &pods, PATIENCE, at(300)), expected);
}

#[test]
fn pods_are_read_late_and_seldom() {
    let none = HookPods::default();
    assert_eq!(look_at(&wait(), &none, PATIENCE), at(300));
    assert_eq!(told(&wait(), &none, PATIENCE, at(299)), Told::Early);
    let once = looks(vec![(310, vec![])]);
    assert_eq!(look_at(&wait(), &once, PATIENCE), at(370));
    let soon = SignedDuration::from_secs(20);
    assert_eq!(look_at(&wait(), &once, soon), at(330));
}

#[test]
fn what_nobody_asks_for_is_forgotten() {
    let mut pods = looks(vec![(300, vec![])]);
    let other = PodOwner::TaskRun("r".to_owned());
    let look = |second| Look {
        at: at(second),
        said: Ok(vec![]),
    };
    pods.keep(other.clone(), look(899));
    assert_eq!(pods.0.len(), 2);
    pods.keep(other.clone(), look(900));
    assert_eq!(pods.0.keys().collect::<Vec<_>>(), [&other]);
}
