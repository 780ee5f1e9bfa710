//! An engine that dies while it runs the pod of a hook: the job tells it, goes on without it, and the hook counts as its pod
//! ended.

use jiff::SignedDuration;
use rstest::rstest;
use serde_json::json;

use super::{
    bench::Bench,
    fixtures::{NEW, at, job, object},
};
use crate::{
    api::{
        UpgradeJobHook, conditions,
        upgrade_job::{EngineChoice, HookState, HookTracker},
    },
    engine::{
        NodePhase,
        native::{Lookup, TemplateKey},
    },
    hooks::{
        pods::{Awaited, HookPod, HookPods, PodEnd, PodOwner, PodWait, Unread, WithoutPod},
        task_run::TaskRun,
    },
    steps::Action,
};

const MINUTE: i64 = 60;
/// When the engine was given the hook.
const GIVEN: i64 = 10;
const NODE: &str = "j-run-1.run-hook-start-a";

#[derive(Clone, Copy, Debug, PartialEq)]
enum On {
    Argo,
    Tekton,
}

fn hook(on: On, events: &[&str], policy: &str) -> UpgradeJobHook {
    let reference = match on {
        On::Argo => json!({"templateRef": {"name": "t"}}),
        On::Tekton => json!({"taskRef": {"name": "t"}}),
    };
    let mut spec = json!({"events": events, "failurePolicy": policy});
    json_patch::merge(&mut spec, &reference);
    object(json!({"metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"}, "spec": spec}))
}

/// The engine has made a pod for a hook of Start, and dies.
fn dead(on: On, policy: &str) -> Bench {
    dead_at(on, "Start", policy, |bench| bench.settle_at(GIVEN))
}

fn dead_at(on: On, event: &str, policy: &str, until: impl Fn(&mut Bench)) -> Bench {
    let mut bench = Bench::new(job("j", json!({})));
    let hook = hook(on, &[event], policy);
    let (key, found) = match on {
        On::Argo => (
            TemplateKey::of(hook.spec.template_ref.as_ref().unwrap()),
            json!({"entrypoint": "main", "templates": [{"name": "main", "container": {"image": "i"}}]}),
        ),
        On::Tekton => {
            bench = bench.on_tekton();
            (
                TemplateKey::of_task(hook.spec.task_ref.as_ref().unwrap()),
                json!({"steps": [{"name": "main"}]}),
            )
        }
    };
    bench.templates.0.insert(key, Lookup::Found(found));
    bench.world.hooks = vec![hook];
    until(&mut bench);
    match on {
        On::Argo => waits(&mut bench, |_| {}),
        On::Tekton => task_run(&mut bench).has_pod("p"),
    }
    bench.is_engine_away = true;
    bench
}

/// Argo's hook waits for its pod, so or otherwise.
fn waits(bench: &mut Bench, change: impl Fn(&mut PodWait)) {
    let since = at(bench.now);
    let natives = bench.run_mut().native.values_mut();
    for run in natives.flat_map(|n| &mut n.runs) {
        let mut wait = PodWait {
            owner: PodOwner::Workflow("j-run-1".into()),
            pods: Awaited::Node(NODE.into()),
            since,
            without: WithoutPod::Gone,
            is_all: true,
        };
        change(&mut wait);
        run.wait = Some(wait);
    }
}

fn task_run(bench: &mut Bench) -> &mut TaskRun {
    bench.world.hook_task_runs.last_mut().unwrap()
}

fn owner(bench: &Bench, on: On) -> PodOwner {
    match on {
        On::Argo => PodOwner::Workflow("j-run-1".into()),
        On::Tekton => {
            let run = bench.world.hook_task_runs.last().unwrap();
            PodOwner::TaskRun(run.metadata.name.clone().unwrap())
        }
    }
}

/// The pod of the hook, and how it ended.
fn has_pod(bench: &mut Bench, on: On, end: Option<PodEnd>) {
    let owner = owner(bench, on);
    let pod = HookPod {
        name: "p".into(),
        node: Some(NODE.into()),
        made_at: Some(at(GIVEN)),
        end,
    };
    bench.pods = Ok(vec![(owner, pod)]);
}

#[allow(clippy::unnecessary_wraps)]
fn ended(second: i64, failure: Option<&str>) -> Option<PodEnd> {
    Some(PodEnd {
        at: Some(at(second)),
        failure: failure.map(str::to_owned),
    })
}

fn stalled(bench: &Bench) -> Option<String> {
    let status = bench.status();
    let found = conditions::get(&status.conditions, "EngineStalled")?;
    Some(format!("{}/{}", found.status, found.reason))
}

fn tracked(bench: &Bench) -> HookTracker {
    let [entry] = bench.status().hook_tracker.try_into().unwrap();
    entry
}

fn engine(bench: &Bench) -> EngineChoice {
    bench.status().workflow.unwrap().engine
}

/// Whenever the job asks to be looked at, and then.
fn pass_until(bench: &mut Bench, second: i64) {
    loop {
        let wake = bench.decide().wake_at;
        let next = wake
            .map(|t| t.duration_since(at(0)).as_secs())
            .filter(|t| *t < second);
        let Some(next) = next else { break };
        assert!(next > bench.now, "no time passes");
        bench.settle_at(next);
    }
    bench.settle_at(second);
}

#[track_caller]
fn assert_ran_once(bench: &Bench) {
    let made = bench.count(|a| matches!(a, Action::CreateHookTaskRun(_) | Action::CreateHookJob(_)));
    assert!(made <= 1, "made {made} times");
    assert_eq!(bench.count(|a| matches!(a, Action::RepeatHookTaskRun(_))), 0);
}

const SILENT: Option<&str> = Some("True/Silent");
const HANDED_OVER: Option<&str> = Some("True/HandedOver");

#[rstest]
fn a_hook_whose_pod_succeeded_is_done_and_the_job_goes_on_without_the_engine(
    #[values(On::Argo, On::Tekton)] on: On,
) {
    let mut bench = dead(on, "Abort");
    has_pod(&mut bench, on, None);
    pass_until(&mut bench, 400);
    has_pod(&mut bench, on, ended(400, None));
    pass_until(&mut bench, 400 + 5 * MINUTE - 1);
    assert_eq!(stalled(&bench), None);
    pass_until(&mut bench, 400 + 5 * MINUTE);
    assert_eq!(stalled(&bench).as_deref(), SILENT);
    let what = match on {
        On::Argo => {
            "the engine has not gone on with step hook-start-a of workflow j-run-1, whose pod p has succeeded, since"
        }
        On::Tekton => "of hook a, whose pod p has succeeded, since",
    };
    let message = bench.message();
    assert!(
        message.contains(what) && message.contains("goes on without it at"),
        "{message}"
    );
    pass_until(&mut bench, 400 + 15 * MINUTE - 1);
    assert_ne!(engine(&bench), EngineChoice::Embedded, "{}", bench.message());
    assert_eq!(tracked(&bench).status, HookState::Active);
    pass_until(&mut bench, 400 + 15 * MINUTE);
    assert_eq!(stalled(&bench).as_deref(), HANDED_OVER);
    assert_eq!(engine(&bench), EngineChoice::Embedded);
    assert_eq!(
        tracked(&bench).status,
        HookState::Complete,
        "{:?}",
        tracked(&bench)
    );
    assert_eq!(bench.desired().as_deref(), Some(NEW), "{}", bench.message());
    assert_ran_once(&bench);
    bench.accept();
    bench.settle();
    bench.complete();
    pass_until(&mut bench, 30 * MINUTE);
    bench.assert_succeeded();
    assert_eq!(tracked(&bench).status, HookState::Complete);
    assert_ran_once(&bench);
}

#[rstest]
fn a_hook_whose_pod_failed_counts_by_its_policy_and_is_not_run_again(
    #[values(On::Argo, On::Tekton)] on: On,
    #[values("Abort", "Ignore")] policy: &str,
) {
    let mut bench = dead(on, policy);
    has_pod(&mut bench, on, ended(30, Some("main: Error (exit code 143)")));
    pass_until(&mut bench, 30 + 15 * MINUTE);
    bench.settle_at(bench.now + 1);
    let entry = tracked(&bench);
    assert_eq!(entry.status, HookState::Failed);
    assert!(
        entry
            .message
            .contains("its pod p failed: main: Error (exit code 143)"),
        "{entry:?}"
    );
    let failed = (policy == "Abort").then_some("HookFailed");
    assert_eq!(bench.is_true("Failed").as_deref(), failed);
    assert_eq!(bench.desired().is_some(), failed.is_none(), "{}", bench.message());
    assert_ran_once(&bench);
}

#[rstest]
fn a_hook_whose_pod_is_gone_is_not_done(#[values(On::Argo, On::Tekton)] on: On) {
    let mut bench = dead(on, "Ignore");
    has_pod(&mut bench, on, None);
    pass_until(&mut bench, 400);
    bench.pods = Ok(vec![]);
    // It was there at the last look, at 370.
    pass_until(&mut bench, 370 + 5 * MINUTE - 1);
    assert_eq!(stalled(&bench), None);
    pass_until(&mut bench, 370 + 6 * MINUTE);
    assert_eq!(stalled(&bench).as_deref(), SILENT);
    assert!(
        bench.message().contains("whose pod is gone, since"),
        "{}",
        bench.message()
    );
    pass_until(&mut bench, 370 + 16 * MINUTE);
    bench.settle_at(bench.now + 1);
    assert_eq!(stalled(&bench).as_deref(), HANDED_OVER);
    let entry = tracked(&bench);
    assert_eq!(entry.status, HookState::Failed, "{entry:?}");
    assert_eq!(bench.desired().as_deref(), Some(NEW), "{}", bench.message());
    assert_ran_once(&bench);
}

/// Tekton has not looked at the TaskRun, whose name this is.
fn not_begun(bench: &mut Bench) -> String {
    let run = task_run(bench);
    let name = run.metadata.name.clone().unwrap();
    let object = kube::api::DynamicObject::new(&name, &crate::hooks::task_run::resource());
    let metadata = std::mem::take(&mut run.metadata);
    *run = TaskRun::from(object);
    run.metadata = metadata;
    name
}

#[test]
fn a_task_run_that_nobody_begins_is_told_and_given_up() {
    let mut bench = dead(On::Tekton, "Ignore");
    let name = not_begun(&mut bench);
    pass_until(&mut bench, GIVEN + 5 * MINUTE);
    assert_eq!(stalled(&bench).as_deref(), SILENT);
    let told = format!("the engine has not begun TaskRun {name} of hook a since");
    assert!(bench.message().contains(&told), "{}", bench.message());
    pass_until(&mut bench, GIVEN + 15 * MINUTE);
    bench.settle_at(bench.now + 1);
    assert_eq!(stalled(&bench).as_deref(), HANDED_OVER);
    let entry = tracked(&bench);
    assert_eq!(entry.status, HookState::Failed);
    assert!(entry.message.contains("was not begun by the engine"), "{entry:?}");
    assert!(!task_run(&mut bench).is_held(), "let go, which cancels it");
    // Whatever Tekton makes of it later.
    task_run(&mut bench).has_pod("late");
    bench.settle_at(bench.now + MINUTE);
    assert_eq!(tracked(&bench).status, HookState::Failed);
    assert_eq!(bench.desired().as_deref(), Some(NEW));
}

#[test]
fn what_may_not_be_all_of_a_hook_does_not_count_as_done() {
    let mut bench = dead(On::Argo, "Abort");
    waits(&mut bench, |wait| wait.is_all = false);
    has_pod(&mut bench, On::Argo, ended(30, None));
    pass_until(&mut bench, 30 + 15 * MINUTE);
    bench.settle_at(bench.now + 1);
    let entry = tracked(&bench);
    assert_eq!(entry.status, HookState::Failed);
    assert!(
        entry.message.contains("what comes after it was not run"),
        "{entry:?}"
    );
    assert_eq!(bench.is_true("Failed").as_deref(), Some("HookFailed"));
}

#[rstest]
fn a_hook_that_takes_long_is_no_silence_and_costs_a_look_a_minute(#[values(On::Argo, On::Tekton)] on: On) {
    let mut bench = dead(on, "Abort");
    bench.is_engine_away = false;
    has_pod(&mut bench, on, None);
    bench.settle_at(GIVEN + 5 * MINUTE - 1);
    assert_eq!(bench.looks_at_pods, 0, "most hooks are over by then");
    let wake = bench.decide().wake_at;
    assert_eq!(wake, Some(at(GIVEN + 5 * MINUTE)));
    for second in GIVEN + 5 * MINUTE..GIVEN + 65 * MINUTE {
        if second % 10 == 0 {
            bench.settle_at(second);
        }
    }
    assert_eq!(bench.looks_at_pods, 60);
    assert_eq!(stalled(&bench), None);
    assert_eq!(tracked(&bench).status, HookState::Active);
}

#[rstest]
#[case::no_right(Unread::NoRight)]
#[case::too_many(Unread::TooMany)]
#[case::for_now(Unread::Failed)]
fn what_cannot_be_read_says_nothing(#[values(On::Argo, On::Tekton)] on: On, #[case] why: Unread) {
    let mut bench = dead(on, "Abort");
    bench.pods = Err(why);
    pass_until(&mut bench, 60 * MINUTE);
    assert_eq!(stalled(&bench), None);
    assert_eq!(tracked(&bench).status, HookState::Active);
}

#[test]
fn an_engine_that_itself_waits_for_room_is_at_work() {
    let mut bench = dead(On::Argo, "Abort");
    waits(&mut bench, |wait| wait.without = WithoutPod::EngineWaits);
    pass_until(&mut bench, 60 * MINUTE);
    assert_eq!(stalled(&bench), None);
}

/// The hook that still runs would be lost with the workflow.
#[test]
fn a_workflow_with_another_pod_at_work_is_not_left() {
    let mut bench = dead(On::Argo, "Abort");
    has_pod(&mut bench, On::Argo, ended(30, None));
    let mut second = bench.world.hooks[0].clone();
    second.metadata.name = Some("b".into());
    let mut both = Bench::new(job("j", json!({})));
    both.world.hooks = vec![bench.world.hooks[0].clone(), second];
    both.templates = bench.templates.clone();
    both.settle_at(GIVEN);
    both.is_engine_away = true;
    for (step, node) in [
        ("hook-start-a", NODE),
        ("hook-start-b", "j-run-1.run-hook-start-b"),
    ] {
        let run = &mut both.run_mut().native.get_mut(step).unwrap().runs[0];
        run.wait = Some(PodWait {
            owner: PodOwner::Workflow("j-run-1".into()),
            pods: Awaited::Node(node.into()),
            since: at(GIVEN),
            without: WithoutPod::Gone,
            is_all: true,
        });
    }
    both.pods = bench.pods.clone();
    let going = HookPod {
        name: "q".into(),
        node: Some("j-run-1.run-hook-start-b(0)".into()),
        made_at: Some(at(GIVEN)),
        end: None,
    };
    let owner = PodOwner::Workflow("j-run-1".into());
    both.pods.as_mut().unwrap().push((owner, going));
    pass_until(&mut both, 60 * MINUTE);
    assert_eq!(stalled(&both), None, "{}", both.message());
    assert_eq!(engine(&both), EngineChoice::Argo);
    both.pods.as_mut().unwrap()[1].1.end = ended(3600, None);
    pass_until(&mut both, 62 * MINUTE);
    pass_until(&mut both, 80 * MINUTE);
    assert_eq!(stalled(&both).as_deref(), HANDED_OVER);
    let states: Vec<HookState> = both.status().hook_tracker.iter().map(|e| e.status).collect();
    assert_eq!(states, [HookState::Complete, HookState::Complete]);
}

#[rstest]
fn an_engine_that_is_back_in_time_goes_on_as_ever(#[values(On::Argo, On::Tekton)] on: On) {
    let mut bench = dead(on, "Abort");
    has_pod(&mut bench, on, ended(30, None));
    pass_until(&mut bench, 30 + 6 * MINUTE);
    assert_eq!(stalled(&bench).as_deref(), SILENT);
    bench.is_engine_away = false;
    match on {
        On::Argo => {
            bench.native("hook-start-a", "", NodePhase::Succeeded, "");
            bench.run_mut().native.get_mut("hook-start-a").unwrap().runs[0].wait = None;
        }
        On::Tekton => task_run(&mut bench).tell("True", "Succeeded", None),
    }
    bench.settle_at(30 + 7 * MINUTE);
    assert_eq!(stalled(&bench).as_deref(), Some("False/AtWork"));
    assert_eq!(tracked(&bench).status, HookState::Complete);
    assert_ne!(engine(&bench), EngineChoice::Embedded);
    assert_eq!(bench.desired().as_deref(), Some(NEW));
}

/// What it has seen is not on record; what it said is.
#[rstest]
#[case::ended(true)]
#[case::gone(false)]
fn an_operator_that_is_started_again_comes_to_the_same(
    #[values(On::Argo, On::Tekton)] on: On,
    #[case] has_ended: bool,
) {
    let mut bench = dead(on, "Ignore");
    if has_ended {
        has_pod(&mut bench, on, ended(30, None));
    }
    pass_until(&mut bench, 11 * MINUTE);
    assert_eq!(stalled(&bench).as_deref(), SILENT);
    bench.hook_pods = HookPods::default();
    bench.pods = Err(Unread::Failed);
    bench.settle_at(bench.now + 1);
    assert_eq!(
        stalled(&bench).as_deref(),
        SILENT,
        "what cannot be read takes nothing back"
    );
    bench.pods = Ok(vec![]);
    if has_ended {
        has_pod(&mut bench, on, ended(30, None));
    }
    pass_until(&mut bench, 28 * MINUTE);
    bench.settle_at(bench.now + 1);
    assert_eq!(stalled(&bench).as_deref(), HANDED_OVER);
    let expected = if has_ended {
        HookState::Complete
    } else {
        HookState::Failed
    };
    assert_eq!(tracked(&bench).status, expected);
    assert_eq!(bench.desired().as_deref(), Some(NEW), "{}", bench.message());
    assert_ran_once(&bench);
}

/// Killed after the hand-over was written, before a TaskRun was let go: Tekton still shows it as running.
#[test]
fn a_task_run_is_let_go_by_the_next_operator() {
    let mut bench = dead(On::Tekton, "Ignore");
    has_pod(&mut bench, On::Tekton, ended(30, Some("no")));
    pass_until(&mut bench, 30 + 15 * MINUTE);
    bench.settle_at(bench.now + 1);
    let held = vec![crate::api::finalizers::HOOK_JOB.to_owned()];
    task_run(&mut bench).metadata.finalizers = Some(held);
    bench.hook_pods = HookPods::default();
    bench.settle_at(bench.now + 1);
    assert_eq!(tracked(&bench).status, HookState::Failed);
    assert!(!task_run(&mut bench).is_held());
}

/// The outcome stands; what runs at the end must not hang for ever, nor run when the engine is back.
#[rstest]
#[case::succeeded(None, HookState::Complete)]
#[case::failed(Some("no"), HookState::Failed)]
fn a_hook_of_the_end_comes_to_its_end_too(
    #[values(On::Argo, On::Tekton)] on: On,
    #[case] failure: Option<&str>,
    #[case] expected: HookState,
) {
    let mut bench = dead_at(on, "Finish", "Ignore", |bench| {
        bench.settle_at(10);
        succeed(bench);
    });
    assert_eq!(tracked(&bench).status, HookState::Active);
    has_pod(&mut bench, on, ended(130, failure));
    pass_until(&mut bench, 130 + 15 * MINUTE - 1);
    assert_eq!(tracked(&bench).status, HookState::Active);
    pass_until(&mut bench, 130 + 16 * MINUTE);
    assert_eq!(tracked(&bench).status, expected, "{:?}", tracked(&bench));
    bench.assert_succeeded();
    let is_stopped = on == On::Argo && failure.is_some();
    assert_eq!(stops(&bench), usize::from(is_stopped));
    // Killed, or refused, before that was written.
    bench.run_mut().finished = false;
    bench.hook_pods = HookPods::default();
    bench.settle_at(bench.now + 1);
    assert_eq!(stops(&bench), 2 * usize::from(is_stopped));
    assert_eq!(tracked(&bench).status, expected);
}

fn succeed(bench: &mut Bench) {
    bench.accept();
    bench.settle_at(20);
    bench.complete();
    bench.settle_at(120);
    bench.assert_succeeded();
}

fn stops(bench: &Bench) -> usize {
    bench.count(|a| matches!(a, Action::StopWorkflow))
}

/// What failed stops the workflow, and with it whatever it still runs.
#[rstest]
#[case::gone(false)]
#[case::failed(true)]
fn a_hook_of_the_end_that_is_at_work_is_not_ended_with_another(#[case] has_ended: bool) {
    const OTHER: &str = "j-run-1.run-hook-finish-b";
    let mut bench = dead_at(On::Argo, "Finish", "Ignore", |bench| {
        let mut second = bench.world.hooks[0].clone();
        second.metadata.name = Some("b".into());
        bench.world.hooks.push(second);
        bench.settle_at(10);
        succeed(bench);
    });
    let other = &mut bench.run_mut().native.get_mut("hook-finish-b").unwrap().runs[0];
    other.wait.as_mut().unwrap().pods = Awaited::Node(OTHER.into());
    has_pod(&mut bench, On::Argo, ended(130, Some("no")));
    let all = bench.pods.as_mut().unwrap();
    if !has_ended {
        all.clear();
    }
    let going = HookPod {
        name: "q".into(),
        node: Some(OTHER.into()),
        made_at: Some(at(120)),
        end: None,
    };
    all.push((PodOwner::Workflow("j-run-1".into()), going));
    let states = |bench: &Bench| -> Vec<HookState> {
        let all = bench.status().hook_tracker;
        all.iter().map(|e| e.status).collect()
    };
    pass_until(&mut bench, 60 * MINUTE);
    assert_eq!(states(&bench), [HookState::Active, HookState::Active]);
    assert_eq!(stops(&bench), 0);
    bench.pods.as_mut().unwrap().last_mut().unwrap().1.end = ended(60 * MINUTE, None);
    pass_until(&mut bench, 77 * MINUTE);
    assert_eq!(states(&bench), [HookState::Failed, HookState::Complete]);
    assert_eq!(stops(&bench), 1);
}

/// It has seen nothing of the engine while it was away, which may be on its way back as well.
#[rstest]
fn an_operator_that_was_away_looks_for_a_while_before_it_ends_a_hook(#[values(On::Argo, On::Tekton)] on: On) {
    let mut bench = dead_at(on, "Finish", "Ignore", |bench| {
        bench.settle_at(10);
        succeed(bench);
    });
    has_pod(&mut bench, on, ended(130, None));
    bench.settle_at(60 * MINUTE);
    pass_until(&mut bench, 65 * MINUTE - 1);
    assert_eq!(tracked(&bench).status, HookState::Active);
    pass_until(&mut bench, 65 * MINUTE);
    assert_eq!(tracked(&bench).status, HookState::Complete);
}

#[test]
fn however_short_the_hand_over_is_tekton_has_time_to_begin() {
    let mut bench = dead(On::Tekton, "Ignore");
    bench.settings.engine_handover_after = Some(SignedDuration::from_mins(1));
    not_begun(&mut bench);
    pass_until(&mut bench, GIVEN + 5 * MINUTE - 1);
    assert_eq!(stalled(&bench).as_deref(), HANDED_OVER);
    assert_eq!(tracked(&bench).status, HookState::Active);
    pass_until(&mut bench, GIVEN + 5 * MINUTE);
    assert_eq!(tracked(&bench).status, HookState::Failed);
}

#[test]
fn without_a_hand_over_only_task_runs_are_given_up() {
    for on in [On::Argo, On::Tekton] {
        let mut bench = dead(on, "Ignore");
        bench.settings.engine_handover_after = None;
        has_pod(&mut bench, on, ended(30, None));
        pass_until(&mut bench, 60 * MINUTE);
        let expected = if on == On::Tekton {
            HookState::Complete
        } else {
            HookState::Active
        };
        assert_eq!(tracked(&bench).status, expected);
        assert_ne!(engine(&bench), EngineChoice::Embedded);
    }
}
