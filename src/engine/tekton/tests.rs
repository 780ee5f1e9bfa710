use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    TEMPLATE, Tekton, fixtures,
    fixtures::{condition, recorded},
};
use crate::{
    engine::{Engine, Node, NodePhase, Place, RenderError, Report, Run, StopRequest, Workflow, Write},
    plan::Plan,
};

fn now() -> Timestamp {
    "2026-11-24T22:00:00.123Z".parse().unwrap()
}

fn render(plan: &Plan, template: Option<&str>) -> Result<DynamicObject, RenderError> {
    let job = fixtures::upgrade();
    let mut context = fixtures::context(&job);
    context.template = template.map(str::to_owned);
    Tekton.render(plan, &context)
}

fn task<'a>(run: &'a DynamicObject, part: &str, name: &str) -> &'a Value {
    let tasks = run.data["spec"]["pipelineSpec"][part].as_array().unwrap();
    tasks.iter().find(|t| t["name"] == name).unwrap()
}

mod rendering {
    use super::*;

    #[rstest]
    #[case("no-pools", fixtures::no_pools(), fixtures::upgrade())]
    #[case("one-pool", fixtures::one_pool(), fixtures::upgrade())]
    #[case("everything", fixtures::everything(), fixtures::upgrade())]
    #[case("maintenance", fixtures::maintenance(), fixtures::job(&json!({})))]
    #[case("create", fixtures::create(), fixtures::upgrade())]
    fn plans_render_as_recorded(#[case] name: &str, #[case] plan: Plan, #[case] job: crate::api::UpgradeJob) {
        let run = Tekton.render(&plan, &fixtures::context(&job)).unwrap();
        insta::with_settings!({
            snapshot_path => "../../../tests/golden/tekton",
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_binary_snapshot!(&format!("{name}.yaml"), serde_yaml::to_string(&run).unwrap().into_bytes());
        });
    }

    #[test]
    fn every_step_is_a_task_of_its_part_after_those_before_it() {
        let plan = fixtures::one_pool();
        let run = render(&plan, None).unwrap();
        let unpause = task(&run, "tasks", "unpause-infra");
        assert_eq!(
            unpause["runAfter"],
            json!(plan.step("unpause-infra").unwrap().after)
        );
        assert_eq!(unpause["taskRef"]["kind"], "UpgradeStep");
        let failure = task(&run, "finally", "hooks-failure");
        assert_eq!(failure["when"][0]["operator"], "notin");
        assert_eq!(failure["runAfter"], Value::Null, "Tekton refuses it in `finally`");
    }

    #[test]
    fn tekton_has_no_deadline_and_the_service_account_comes_from_the_context() {
        let job = fixtures::upgrade();
        let mut context = fixtures::context(&job);
        context.default_service_account = Some("hooks".to_owned());
        let spec = Tekton.render(&fixtures::no_pools(), &context).unwrap().data["spec"].clone();
        assert_eq!(spec["timeouts"], json!({"pipeline": "0"}));
        assert_eq!(spec["taskRunTemplate"]["serviceAccountName"], "hooks");
        context.config.service_account_name = Some("own".to_owned());
        let spec = Tekton.render(&fixtures::no_pools(), &context).unwrap().data["spec"].clone();
        assert_eq!(spec["taskRunTemplate"]["serviceAccountName"], "own");
    }

    #[test]
    fn it_belongs_to_the_job() {
        let run = render(&fixtures::no_pools(), None).unwrap();
        assert_eq!(run.owner_references()[0].kind, "UpgradeJob");
        assert_eq!(
            run.labels()["managedupgrade.appuio.io/upgrade-job-uid"],
            run.owner_references()[0].uid
        );
    }

    #[test]
    fn a_name_that_is_no_label_value_is_refused_at_once() {
        let job = fixtures::upgrade();
        let mut context = fixtures::context(&job);
        context.name = "x".repeat(64);
        let message = Tekton
            .render(&fixtures::no_pools(), &context)
            .unwrap_err()
            .to_string();
        assert!(message.contains("longer than 63 characters"), "{message}");
    }

    proptest! {
        #[test]
        fn no_text_of_a_user_becomes_a_variable(version in r"([$()]|\PC){1,30}") {
            let job = fixtures::job(&json!({"desiredVersion": {"version": version}}));
            let run = Tekton.render(&fixtures::no_pools(), &fixtures::context(&job)).unwrap();
            let text = serde_json::to_string(&run).unwrap();
            prop_assert_eq!(text.matches("$(").count(), text.matches("$(tasks.status)").count());
        }
    }

    #[rstest]
    #[case::no_timeout("  timeouts:\n    pipeline: \"0\"\n", "", "spec.timeouts.pipeline")]
    #[case::a_timeout("    pipeline: \"0\"\n", "    pipeline: 2h\n", "spec.timeouts.pipeline")]
    #[case::a_timeout_of_the_main_part(
        "    pipeline: \"0\"\n",
        "    pipeline: \"0\"\n    tasks: 1h\n",
        "no timeouts.tasks"
    )]
    #[case::another_kind("kind: PipelineRun", "kind: TaskRun", "kind PipelineRun")]
    #[case::another_task("kind: UpgradeStep", "kind: Other", "leaves out step hooks-start")]
    #[case::no_exit_part("    finally:\n", "    atLast:\n", "leaves out step release")]
    #[case::no_order("        runAfter: {{json after}}\n", "", "its runAfter must name")]
    #[case::timeout(
        "        displayName: {{json title}}\n",
        "        timeout: 1h\n",
        "would end the step by itself"
    )]
    #[case::retries(
        "        displayName: {{json title}}\n",
        "        retries: 2\n",
        "remove retries"
    )]
    fn a_template_that_would_lead_astray_is_refused(
        #[case] from: &str,
        #[case] to: &str,
        #[case] part: &str,
    ) {
        assert!(TEMPLATE.contains(from));
        let message = render(&fixtures::no_pools(), Some(&TEMPLATE.replace(from, to)))
            .unwrap_err()
            .to_string();
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn a_template_may_add_tasks_of_its_own() {
        let own = "    tasks:\n      - name: mine\n        taskRef: {name: mine}\n";
        let run = render(
            &fixtures::no_pools(),
            Some(&TEMPLATE.replacen("    tasks:\n", own, 1)),
        )
        .unwrap();
        assert_eq!(task(&run, "tasks", "mine")["taskRef"]["name"], "mine");
    }
}

mod observing {
    use super::*;

    fn observe(workflow: &Workflow) -> Run {
        Tekton.observe(workflow, &fixtures::one_pool())
    }

    fn ended(status: &str, reason: &str) -> Value {
        json!({"status": {"conditions": [{"type": "Succeeded", "status": status, "reason": reason, "message": "said"}]}})
    }

    #[test]
    fn a_new_run_is_not_picked_up() {
        let run = observe(&recorded(&json!({"status": null}), &[]));
        assert!(!run.picked_up && !run.finished && !run.suspended);
        assert_eq!(
            (run.phase.as_str(), run.nodes.len(), run.unsupported),
            ("", 0, None)
        );
    }

    #[test]
    fn steps_are_told_by_their_custom_runs_in_the_order_of_the_plan() {
        let skipped = json!({"status": {"skippedTasks": [
            {"name": "hooks-failure", "reason": "When Expressions evaluated to false"}, {"name": "mine", "reason": "x"},
            {"name": "await-pools", "reason": "PipelineRun was stopping"},
        ]}});
        let steps = [
            ("release", json!({})),
            ("pre-health-check", condition("False", "etcd Degraded")),
            ("hooks-start", condition("True", "done")),
            ("pause-pools", condition("Unknown", "pausing")),
        ];
        let run = observe(&recorded(&skipped, &steps));
        assert!(run.picked_up && !run.finished);
        let seen: Vec<_> = run
            .nodes
            .iter()
            .map(|n| (n.step.as_str(), n.phase, n.message.as_deref().unwrap_or("")))
            .collect();
        assert_eq!(
            seen,
            [
                ("hooks-start", NodePhase::Succeeded, "done"),
                ("pre-health-check", NodePhase::Failed, "etcd Degraded"),
                ("pause-pools", NodePhase::Running, "pausing"),
                ("await-pools", NodePhase::LeftOut, "PipelineRun was stopping"),
                ("release", NodePhase::Running, ""),
                (
                    "hooks-failure",
                    NodePhase::Skipped,
                    "When Expressions evaluated to false"
                ),
            ]
        );
        assert_eq!(
            run.nodes[4],
            Node {
                step: "release".to_owned(),
                phase: NodePhase::Running,
                message: None,
                started_at: Some("2026-11-24T21:00:05Z".parse().unwrap()),
                finished_at: None,
                ended_by: None,
                broken: None,
            },
            "one that nobody has written to yet began when it was made"
        );
    }

    #[rstest]
    #[case::of_another_run(json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "other"}]}}))]
    #[case::of_a_task_that_is_not_ours(json!({"spec": {"customRef": {"kind": "Wait"}}}))]
    #[case::of_no_step(json!({"metadata": {"labels": {"tekton.dev/pipelineTask": "mine"}}}))]
    #[case::without_label(json!({"metadata": {"labels": null}}))]
    fn what_is_not_a_step_of_this_run_is_passed_over(#[case] fields: Value) {
        let workflow = recorded(&json!({}), &[("hooks-start", fields)]);
        assert_eq!(observe(&workflow).nodes, []);
        let reports = [("hooks-start".to_owned(), Report::Succeeded("done".to_owned()))];
        assert_eq!(
            Tekton.report(&workflow, &fixtures::one_pool(), &reports, now()),
            []
        );
    }

    #[rstest]
    #[case::succeeded(ended("True", "Completed"), true, "Completed")]
    #[case::failed(ended("False", "Failed"), true, "Failed")]
    #[case::timed_out(ended("False", "PipelineRunTimeout"), true, "PipelineRunTimeout")]
    #[case::going(json!({}), false, "Running")]
    fn its_condition_is_its_phase(#[case] fields: Value, #[case] finished: bool, #[case] phase: &str) {
        let run = observe(&recorded(&fields, &[]));
        assert_eq!(
            (run.finished, run.phase.as_str(), run.stop),
            (finished, phase, None)
        );
    }

    #[rstest]
    #[case("Cancelled", Some(StopRequest::Terminate), false)]
    #[case("CancelledRunFinally", Some(StopRequest::Stop), false)]
    #[case("StoppedRunFinally", Some(StopRequest::Stop), false)]
    #[case("SomethingNew", Some(StopRequest::Stop), false)]
    #[case("PipelineRunPending", None, true)]
    #[case("", None, false)]
    fn a_person_may_stop_it(
        #[case] status: &str,
        #[case] stop: Option<StopRequest>,
        #[case] suspended: bool,
    ) {
        let run = observe(&recorded(&json!({"spec": {"status": status}}), &[]));
        assert_eq!((run.stop, run.suspended), (stop, suspended));
    }

    #[test]
    fn who_cancels_a_step_stops_the_run() {
        let cancelled = json!({"spec": {"status": "RunCancelled"}});
        let stop = |fields: &Value, step: &str, of_step: &Value| {
            observe(&recorded(fields, &[(step, of_step.clone())])).stop
        };
        assert_eq!(
            stop(&json!({}), "await-pools", &cancelled),
            Some(StopRequest::Stop)
        );
        let mut done = condition("False", "cancelled");
        json_patch::merge(&mut done, &cancelled);
        assert_eq!(stop(&json!({}), "await-pools", &done), None, "it has ended");
        assert_eq!(
            stop(&json!({}), "release", &cancelled),
            None,
            "the main part is over"
        );
        let timed_out = ended("False", "PipelineRunTimeout");
        assert_eq!(
            stop(&timed_out, "await-pools", &cancelled),
            None,
            "Tekton did that, at the end of the run"
        );
    }

    #[test]
    fn a_step_that_tekton_times_out_is_its_own_doing() {
        let message = "CustomRun cancelled as the PipelineRun it belongs to has timed out.";
        let step = json!({"spec": {"status": "RunCancelled", "statusMessage": message}});
        let run = observe(&recorded(&json!({}), &[("await-pools", step)]));
        assert_eq!(run.stop, None, "nobody has asked for that");
        assert_eq!(run.nodes[0].broken.as_deref(), Some(message));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let run = observe(&recorded(&json!({"status": {"conditions": 7}}), &[]));
        let message = run.unsupported.unwrap();
        assert!(message.contains("cannot read status of run"), "{message}");
        let run = observe(&recorded(&json!({}), &[("hooks-start", json!({"status": "x"}))]));
        let message = run.unsupported.unwrap();
        assert!(message.contains("status of run-hooks-start"), "{message}");
    }
}

mod reporting {
    use super::*;

    fn report(step: &Value, report: Report) -> Option<Value> {
        let workflow = recorded(&json!({}), &[("hooks-start", step.clone())]);
        let reports = [("hooks-start".to_owned(), report)];
        let mut writes = Tekton.report(&workflow, &fixtures::one_pool(), &reports, now());
        assert!(writes.len() < 2);
        let Write {
            resource,
            name,
            place,
            patch,
        } = writes.pop()?;
        assert_eq!(
            (resource.kind.as_str(), name.as_str(), place),
            ("CustomRun", "run-hooks-start", Place::Status)
        );
        Some(patch)
    }

    fn message(text: &str) -> Report {
        Report::Message(text.to_owned())
    }

    #[test]
    fn a_message_starts_it_and_keeps_since_when() {
        let condition_of = |since: &str| json!({"type": "Succeeded", "status": "Unknown", "reason": "Running", "message": "at work", "lastTransitionTime": since});
        assert_eq!(
            report(&json!({}), message("at work")).unwrap(),
            json!({
                "metadata": {"resourceVersion": "12"},
                "status": {"startTime": "2026-11-24T22:00:00Z", "conditions": [condition_of("2026-11-24T22:00:00Z")]},
            })
        );
        assert_eq!(
            report(&condition("Unknown", "waiting"), message("at work")).unwrap(),
            json!({
                "metadata": {"resourceVersion": "12"},
                "status": {"startTime": "2026-11-24T21:00:06Z", "conditions": [condition_of("2026-11-24T21:00:06Z")]},
            })
        );
        assert_eq!(report(&condition("Unknown", "at work"), message("at work")), None);
    }

    #[rstest]
    #[case::well(json!({}), Report::Succeeded("done".to_owned()), "True", "Succeeded")]
    #[case::badly(json!({}), Report::Failed("done".to_owned()), "False", "Failed")]
    #[case::cancelled(json!({"spec": {"status": "RunCancelled"}}), Report::Failed("done".to_owned()), "False", "CustomRunCancelled")]
    fn an_end_has_a_time_and_a_result(
        #[case] step: Value,
        #[case] verdict: Report,
        #[case] status: &str,
        #[case] reason: &str,
    ) {
        let patch = report(&step, verdict).unwrap();
        assert_eq!(
            patch["status"],
            json!({
                "startTime": "2026-11-24T22:00:00Z", "completionTime": "2026-11-24T22:00:00Z",
                "conditions": [{"type": "Succeeded", "status": status, "reason": reason, "message": "done", "lastTransitionTime": "2026-11-24T22:00:00Z"}],
                "results": [{"name": "result", "value": "done"}],
            })
        );
    }

    #[rstest]
    #[case("True")]
    #[case("False")]
    fn what_has_ended_stays(#[case] status: &str) {
        for verdict in [
            message("x"),
            Report::Succeeded("x".to_owned()),
            Report::Failed("x".to_owned()),
        ] {
            assert_eq!(report(&condition(status, "over"), verdict), None);
        }
    }

    #[test]
    fn what_was_cancelled_with_its_run_is_ended_after_it() {
        let over = json!({"spec": {"status": "Cancelled"}, "status": {"conditions": [{"type": "Succeeded", "status": "False", "reason": "Cancelled"}]}});
        let step = json!({"spec": {"status": "RunCancelled"}});
        let workflow = recorded(&over, &[("hooks-start", step)]);
        let reports = [(
            "hooks-start".to_owned(),
            Report::Failed("the job has failed".to_owned()),
        )];
        let writes = Tekton.report(&workflow, &fixtures::one_pool(), &reports, now());
        assert_eq!(
            writes[0].patch["status"]["conditions"][0]["reason"],
            "CustomRunCancelled"
        );
    }

    #[test]
    fn the_steps_of_a_run_that_is_left_are_ended() {
        let steps = [
            ("hooks-start", condition("True", "done")),
            ("pre-health-check", json!({"spec": {"status": "RunCancelled"}})),
            ("mine", json!({"spec": {"customRef": {"kind": "Wait"}}})),
        ];
        let writes = Tekton.end_steps(&recorded(&json!({}), &steps), now());
        let names: Vec<_> = writes.iter().map(|w| w.name.as_str()).collect();
        assert_eq!(names, ["run-pre-health-check"]);
        assert_eq!(
            writes[0].patch["status"]["conditions"][0]["reason"],
            "CustomRunCancelled"
        );
    }

    #[test]
    fn a_message_is_short_and_has_no_variables() {
        let patch = report(&json!({}), message(&"$(tasks.x.status) ".repeat(100))).unwrap();
        let text = patch["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(text.len() <= 1024 && !text.contains("$("), "{text}");
    }

    #[test]
    fn it_is_stopped_while_it_runs() {
        let stop = Tekton.stop(&recorded(&json!({}), &[])).unwrap();
        assert_eq!(
            (stop.place, stop.patch),
            (
                Place::Object,
                json!({"metadata": {"resourceVersion": "4711"}, "spec": {"status": "Cancelled"}})
            )
        );
        let end = Tekton.end_main_part(&recorded(&json!({}), &[])).unwrap();
        assert_eq!(end.patch["spec"]["status"], "CancelledRunFinally");
        let over = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
        assert_eq!(Tekton.stop(&recorded(&over, &[])), None);
    }
}
