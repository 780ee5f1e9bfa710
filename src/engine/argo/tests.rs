use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Argo, TEMPLATE, fixtures, fixtures::recorded};
use crate::{
    api::GoDuration,
    engine::{Engine, Node, NodePhase, Place, RenderError, Report, Run, StopRequest, Write},
    plan::{Part, Plan},
};

fn now() -> Timestamp {
    "2026-11-24T22:00:00.123Z".parse().unwrap()
}

fn render(plan: &Plan, template: Option<&str>) -> Result<DynamicObject, RenderError> {
    let job = fixtures::upgrade();
    let mut context = fixtures::context(&job);
    context.template = template.map(str::to_owned);
    Argo.render(plan, &context)
}

fn observe(object: &DynamicObject, plan: &Plan) -> Run {
    Argo.observe(&object.clone().into(), plan)
}

/// The one patch of these reports.
fn reported(
    object: &DynamicObject,
    plan: &Plan,
    reports: &[(String, Report)],
    now: Timestamp,
) -> Option<Value> {
    let mut writes = Argo.report(&object.clone().into(), plan, reports, now);
    assert!(writes.len() < 2, "{writes:?}");
    let Write { place, patch, .. } = writes.pop()?;
    assert_eq!(place, Place::Object, "a Workflow has no status subresource");
    Some(patch)
}

fn task<'a>(workflow: &'a DynamicObject, template: &str, name: &str) -> &'a Value {
    let templates = workflow.data["spec"]["templates"].as_array().unwrap();
    let dag = templates.iter().find(|t| t["name"] == template).unwrap();
    dag["dag"]["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["name"] == name)
        .unwrap()
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
        let workflow = Argo.render(&plan, &fixtures::context(&job)).unwrap();
        insta::with_settings!({
            snapshot_path => "../../../tests/golden/argo",
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            // Binary, because that leaves a plain YAML file which `kubectl create` takes.
            insta::assert_binary_snapshot!(&format!("{name}.yaml"), serde_yaml::to_string(&workflow).unwrap().into_bytes());
        });
    }

    #[test]
    fn the_deadline_service_account_and_ttl_come_from_the_context() {
        let job = fixtures::upgrade();
        let mut context = fixtures::context(&job);
        context.default_service_account = Some("hooks".to_owned());
        let spec = Argo.render(&fixtures::no_pools(), &context).unwrap().data["spec"].clone();
        assert_eq!(spec["activeDeadlineSeconds"], 648_000);
        assert_eq!(spec["serviceAccountName"], "hooks");
        assert_eq!(spec["ttlStrategy"], Value::Null);

        context.config.service_account_name = Some("own".to_owned());
        context.config.ttl = Some(GoDuration("72h".to_owned()));
        let spec = Argo.render(&fixtures::no_pools(), &context).unwrap().data["spec"].clone();
        assert_eq!(spec["serviceAccountName"], "own");
        assert_eq!(spec["ttlStrategy"], json!({"secondsAfterCompletion": 259_200}));

        context.config.ttl = Some(GoDuration("0".to_owned()));
        let spec = Argo.render(&fixtures::no_pools(), &context).unwrap().data["spec"].clone();
        assert_eq!(spec["ttlStrategy"], json!({"secondsAfterCompletion": 0}));

        context.config.ttl = Some(GoDuration("3 days".to_owned()));
        let message = Argo
            .render(&fixtures::no_pools(), &context)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("config.workflow.ttl") && message.contains("3 days"),
            "{message}"
        );
    }

    #[test]
    fn a_long_job_name_fits_into_its_label() {
        let mut job = fixtures::upgrade();
        job.metadata.name = Some("x".repeat(100));
        let workflow = Argo
            .render(&fixtures::no_pools(), &fixtures::context(&job))
            .unwrap();
        assert_eq!(
            workflow.labels()["managedupgrade.appuio.io/upgrade-job"].len(),
            63
        );
        assert_eq!(workflow.owner_references()[0].name, "x".repeat(100));
    }

    #[test]
    fn a_name_that_argo_refuses_is_refused_at_once() {
        let job = fixtures::upgrade();
        let mut context = fixtures::context(&job);
        context.name = "x".repeat(64);
        let message = Argo
            .render(&fixtures::no_pools(), &context)
            .unwrap_err()
            .to_string();
        assert!(message.contains("longer than 63 characters"), "{message}");
    }

    #[test]
    fn exit_steps_run_whatever_became_of_the_ones_before_and_know_the_outcome() {
        let mut plan = fixtures::no_pools();
        let finish = plan.steps.iter_mut().find(|s| s.name == "hooks-finish").unwrap();
        finish.after = vec!["hooks-success".to_owned(), "hooks-failure".to_owned()];
        let workflow = render(&plan, None).unwrap();
        let finish = task(&workflow, "exit", "hooks-finish");
        assert_eq!(
            finish["depends"],
            "(hooks-success.Succeeded || hooks-success.Failed || hooks-success.Errored || hooks-success.Skipped || \
             hooks-success.Omitted) && (hooks-failure.Succeeded || hooks-failure.Failed || hooks-failure.Errored || \
             hooks-failure.Skipped || hooks-failure.Omitted)"
        );
        assert_eq!(finish["when"], Value::Null);
        assert_eq!(
            task(&workflow, "exit", "hooks-success")["when"],
            "{{workflow.status}} == Succeeded"
        );
        assert_eq!(
            task(&workflow, "exit", "hooks-failure")["when"],
            "{{workflow.status}} != Succeeded"
        );
    }

    #[test]
    fn a_run_without_exit_part_has_no_exit_handler() {
        let spec = render(&fixtures::create(), None).unwrap().data["spec"].clone();
        assert_eq!(spec["onExit"], Value::Null);
    }

    /// Texts that users can write into a job or hook.
    fn hostile() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("{{workflow.name}}".to_owned()),
            Just("{{=sprig.env('HOME')}}".to_owned()),
            Just("\"\n  suspend: {duration: \"1\"}\n#".to_owned()),
            Just("'\n---\nkind: Secret\n...\n&a *a !!binary |\n".to_owned()),
            Just("\\\" {{{json name}}} {{{{raw}}}} {{/each}}".to_owned()),
            r"([{}=:#'\x22\\\n\t\[\]&*!|>%@`-]|\PC|\p{C}){0,60}",
        ]
    }

    proptest! {
        #[test]
        fn no_text_of_a_user_changes_the_workflow(text in hostile()) {
            let plain = render(&fixtures::one_pool(), None).unwrap();
            let mut plan = fixtures::one_pool();
            for step in &mut plan.steps {
                step.title.clone_from(&text);
            }
            let mut job = fixtures::upgrade();
            job.spec.desired_version = Some(serde_json::from_value(json!({"version": text.clone()})).unwrap());
            let mut context = fixtures::context(&job);
            context.config.service_account_name = Some(format!("{text}x"));
            let mut workflow = Argo.render(&plan, &context).unwrap();

            let written = serde_json::to_string(&workflow.data).unwrap().replace("{{workflow.status}}", "");
            prop_assert!(!written.contains("{{"), "Argo would substitute: {}", written);
            for value in workflow.annotations().values() {
                prop_assert!(!value.contains("{{"));
            }
            // But for the places where a text belongs, nothing differs.
            workflow.metadata.annotations.clone_from(&plain.metadata.annotations);
            let spec = workflow.data["spec"].as_object_mut().unwrap();
            prop_assert!(spec.remove("serviceAccountName").is_some());
            let same = plain.data["spec"]["templates"].as_array().unwrap();
            for (template, same) in spec["templates"].as_array_mut().unwrap().iter_mut().zip(same) {
                if let Some(about) = same.pointer("/inputs/parameters/0/value") {
                    *template.pointer_mut("/inputs/parameters/0/value").unwrap() = about.clone();
                }
            }
            prop_assert_eq!(workflow, plain);
        }
    }

    #[test]
    fn a_title_keeps_its_words_when_variables_are_taken_apart() {
        let mut plan = fixtures::no_pools();
        plan.steps[1].title = "Say \"{{workflow.name}}\"\nplease".to_owned();
        let workflow = render(&plan, None).unwrap();
        let templates = workflow.data["spec"]["templates"].as_array().unwrap();
        let step = templates
            .iter()
            .find(|t| t["name"] == "pre-health-check")
            .unwrap();
        assert_eq!(
            step["inputs"]["parameters"][0]["value"],
            "Say \"{ {workflow.name}}\"\nplease"
        );
        let description = &workflow.annotations()["workflows.argoproj.io/description"];
        assert!(
            description.contains("2. `pre-health-check` Say \"\\{\\{workflow.name\\}\\}\" please\n"),
            "{description}"
        );
    }
}

mod own_templates {
    use super::*;

    #[test]
    fn every_step_must_be_in_them() {
        let plan = fixtures::one_pool();
        for step in &plan.steps {
            let skip = format!("{{{{#each {{}}}}}}{{{{#if (ne name \"{}\")}}}}", step.name);
            for list in ["mainSteps", "exitSteps", "steps"] {
                let template = TEMPLATE
                    .replace(&format!("{{{{#each {list}}}}}"), &skip.replace("{}", list))
                    .replace(
                        "{{/each}}",
                        &format!("{{{{#if {}}}}}{{{{/if}}}}{{{{/each}}}}", "true"),
                    );
                // Only the list that is cut down gets the closing `if`.
                let template = close_if(&template, list);
                match render(&plan, Some(&template)) {
                    Err(RenderError::StepMissing { step: missing }) => {
                        assert_eq!(missing, step.name, "{list}");
                    }
                    Ok(_) => assert!(
                        (list == "mainSteps" && step.part == Part::Exit)
                            || (list == "exitSteps" && step.part == Part::Main),
                        "{list} without {} was accepted",
                        step.name
                    ),
                    Err(other) => panic!("{list} without {}: {other}", step.name),
                }
            }
        }
    }

    fn close_if(template: &str, list: &str) -> String {
        let noop = "{{#if true}}{{/if}}{{/each}}";
        let start = template
            .find(&format!("{{{{#each {list}}}}}{{{{#if (ne"))
            .unwrap();
        let (head, tail) = template.split_at(start);
        format!("{head}{}", tail.replacen(noop, "{{/if}}{{/each}}", 1)).replace(noop, "{{/each}}")
    }

    #[rstest]
    #[case::another_kind("kind: Workflow\n", "kind: CronWorkflow\n", "kind Workflow")]
    #[case::duration("suspend: {}", "suspend: {duration: 5m}", "suspend.duration")]
    #[case::resumable("supplied: {}", "supplied: {}\n              default: ok", "without default")]
    #[case::no_result("- name: result", "- name: outcome", "`result`")]
    #[case::unknown_value("{{json title}}", "{{json heading}}", "heading")]
    #[case::unquoted("{{json description}}", "{{description}}", "not YAML")]
    #[case::unclosed("{{/if}}", "", "template")]
    #[case::number_as_annotation("{{json title}}", "4.20", "string")]
    #[case::template_twice("- name: exit\n", "- name: main\n", "two templates named \"main\"")]
    #[case::not_a_dag("entrypoint: main", "entrypoint: start", "leaves out step hooks-start")]
    fn what_is_wrong_is_said(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
        let template = TEMPLATE.replacen("{{!--", "{{!-- x", 1);
        let body = template.find("--}}").unwrap();
        let (comment, rest) = template.split_at(body);
        assert!(rest.contains(from));
        let message = render(
            &fixtures::no_pools(),
            Some(&format!("{comment}{}", rest.replace(from, to))),
        )
        .unwrap_err()
        .to_string();
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }

    #[test]
    fn identity_owner_and_our_labels_are_ours_and_the_rest_is_theirs() {
        let template = TEMPLATE.replacen(
            "metadata:\n",
            "metadata:\n  namespace: kube-system\n  generateName: x-\n  finalizers: [a/b]\n  ownerReferences: []\n  labels:\n    \
             team: platform\n    managedupgrade.appuio.io/upgrade-job: other\n    managedupgrade.appuio.io/upgrade-job-uid: other\n",
            1,
        );
        let template = template.replace("  entrypoint: main\n", "  entrypoint: main\n  priority: 7\n")
            + "status: {phase: Succeeded}\n";
        let template = template.replace(
            "  name: {{json name}}\n  annotations",
            "  name: mine\n  annotations",
        );
        let own = render(&fixtures::no_pools(), Some(&template)).unwrap();
        let mut expected = render(&fixtures::no_pools(), None).unwrap();
        expected
            .labels_mut()
            .insert("team".to_owned(), "platform".to_owned());
        expected.data["spec"]["priority"] = json!(7);
        assert_eq!(own, expected);
    }

    #[test]
    fn a_job_from_a_file_has_no_owner() {
        let mut job = fixtures::upgrade();
        job.metadata.uid = None;
        let workflow = Argo
            .render(&fixtures::no_pools(), &fixtures::context(&job))
            .unwrap();
        assert_eq!(workflow.owner_references(), []);
        assert_eq!(workflow.labels().len(), 1);
    }
}

mod observing {
    use super::*;

    fn running(step: &str) -> Node {
        Node {
            step: step.to_owned(),
            phase: NodePhase::Running,
            message: None,
            started_at: Some("2026-11-24T21:00:05Z".parse().unwrap()),
            finished_at: None,
            ended_by: None,
            broken: None,
        }
    }

    #[rstest]
    #[case("", 2_166_136_261)]
    #[case("a", 0xe40c_292c)]
    #[case("foobar", 0xbf9c_f968)]
    // Seen on Argo 4.1.4.
    #[case("resume-1795232165139.hooks-start", 3_344_272_656)]
    #[case("exit-1795232151377.onExit.release", 2_336_101_351)]
    fn ids_of_nodes_are_those_of_argo(#[case] name: &str, #[case] hash: u32) {
        assert_eq!(fixtures::node_id("wf", name), format!("wf-{hash}"));
    }

    #[test]
    fn a_new_workflow_is_not_picked_up() {
        let plan = fixtures::no_pools();
        let run = observe(&render(&plan, None).unwrap(), &plan);
        assert!(!run.picked_up && !run.finished && !run.suspended);
        assert_eq!(
            (run.phase.as_str(), run.nodes.len(), run.unsupported),
            ("", 0, None)
        );
    }

    #[test]
    fn nodes_are_told_by_part_and_come_in_the_order_of_the_plan() {
        let plan = fixtures::no_pools();
        let done = json!({"phase": "Succeeded", "message": "green", "finishedAt": "2026-11-24T21:10:00Z"});
        let object = recorded(
            &plan,
            &json!({}),
            &[
                ("release", json!({})),
                (
                    "hooks-success",
                    json!({"type": "Skipped", "phase": "Skipped", "message": "when 'Failed == Succeeded' evaluated false"}),
                ),
                (
                    "pre-health-check",
                    json!({"phase": "Failed", "message": "etcd Degraded"}),
                ),
                ("hooks-start", done),
                (
                    "pause-pools",
                    json!({"type": "Skipped", "phase": "Omitted", "message": "omitted: depends condition not met"}),
                ),
            ],
        );
        let run = observe(&object, &plan);
        assert!(run.picked_up && !run.finished);
        assert_eq!(
            run.nodes[0],
            Node {
                phase: NodePhase::Succeeded,
                message: Some("green".to_owned()),
                finished_at: Some("2026-11-24T21:10:00Z".parse().unwrap()),
                ..running("hooks-start")
            }
        );
        let seen: Vec<_> = run.nodes.iter().map(|n| (n.step.as_str(), n.phase)).collect();
        assert_eq!(
            seen,
            [
                ("hooks-start", NodePhase::Succeeded),
                ("pre-health-check", NodePhase::Failed),
                ("pause-pools", NodePhase::LeftOut),
                ("release", NodePhase::Running),
                ("hooks-success", NodePhase::Skipped),
            ]
        );
    }

    #[test]
    fn a_step_of_the_exit_part_is_not_found_in_the_main_part() {
        let plan = fixtures::no_pools();
        let mut object = recorded(&plan, &json!({}), &[("release", json!({}))]);
        let nodes = object.data["status"]["nodes"].as_object_mut().unwrap();
        for node in nodes.values_mut() {
            let name = node["name"].as_str().unwrap().replace(".onExit", "");
            node["name"] = json!(name);
        }
        assert_eq!(observe(&object, &plan).nodes, []);
    }

    #[rstest]
    #[case("Succeeded", true)]
    #[case("Failed", true)]
    #[case("Error", true)]
    #[case("Running", false)]
    #[case("Pending", false)]
    fn a_workflow_has_ended_when_argo_says_so(#[case] phase: &str, #[case] finished: bool) {
        let plan = fixtures::no_pools();
        let run = observe(
            &recorded(&plan, &json!({"phase": phase, "message": "because"}), &[]),
            &plan,
        );
        assert_eq!(
            (run.finished, run.picked_up, run.message.as_deref()),
            (finished, true, Some("because"))
        );
    }

    #[rstest]
    #[case("Resumed by: map[User:admin]", Some("admin"))]
    #[case("62% done; Resumed by: map[User:admin]", Some("admin"))]
    #[case(
        "Resumed by: map[Email:anna@example.com User:9f2c-17]",
        Some("anna@example.com")
    )]
    #[case(
        "Resumed by: map[Email:anna@example.com PreferredUsername:Anna Muster User:9f2c-17]",
        Some("Anna Muster")
    )]
    #[case("Resumed by: map[]", Some(""))]
    #[case("62% done", None)]
    fn who_resumed_a_step_is_named(#[case] message: &str, #[case] person: Option<&str>) {
        let plan = fixtures::no_pools();
        let node = json!({"phase": "Succeeded", "message": message});
        let run = observe(&recorded(&plan, &json!({}), &[("pre-health-check", node)]), &plan);
        assert_eq!(run.nodes[0].ended_by.as_deref(), person);
    }

    #[test]
    fn a_wake_is_seen_and_changes_nothing_else() {
        let plan = fixtures::no_pools();
        let mut object = recorded(&plan, &json!({}), &[]);
        object.metadata.resource_version = Some("7".to_owned());
        let before = observe(&object, &plan);
        let now: Timestamp = "2026-11-24T22:00:00Z".parse().unwrap();
        let write = Argo.wake(&object.clone().into(), now).unwrap();
        assert_eq!(
            write.patch["metadata"]["resourceVersion"],
            json!("7"),
            "a write that somebody else was quicker than is not needed"
        );
        let annotations = write.patch["metadata"]["annotations"].clone();
        assert!(write.patch.get("spec").is_none() && write.patch.get("status").is_none());
        object.annotations_mut().extend(
            serde_json::from_value::<std::collections::BTreeMap<String, String>>(annotations).unwrap(),
        );
        let expected = Run {
            woken_at: Some(now),
            ..before
        };
        assert_eq!(observe(&object, &plan), expected);
    }

    #[test]
    fn stop_and_pause_of_a_person_are_seen() {
        let plan = fixtures::no_pools();
        let mut object = recorded(&plan, &json!({}), &[]);
        for (shutdown, expected) in [("Stop", StopRequest::Stop), ("Terminate", StopRequest::Terminate)] {
            object.data["spec"]["shutdown"] = json!(shutdown);
            let run = observe(&object, &plan);
            assert_eq!((run.stop, run.stopped_by), (Some(expected), None));
        }
        object.data["spec"]["suspend"] = json!(true);
        object.labels_mut().extend([
            ("workflows.argoproj.io/action".to_owned(), "Stop".to_owned()),
            ("workflows.argoproj.io/actor".to_owned(), "1234".to_owned()),
            (
                "workflows.argoproj.io/actor-preferred-username".to_owned(),
                "anna".to_owned(),
            ),
        ]);
        let run = observe(&object, &plan);
        assert!(run.suspended);
        assert_eq!(run.stopped_by.as_deref(), Some("anna"));

        // The last action was another one.
        object
            .labels_mut()
            .insert("workflows.argoproj.io/action".to_owned(), "Resume".to_owned());
        assert_eq!(observe(&object, &plan).stopped_by, None);
    }

    #[rstest]
    #[case(json!({"compressedNodes": "H4sIAAAA", "nodes": null}), "compressed")]
    #[case(json!({"offloadNodeStatusVersion": "fnv:784127654", "nodes": null}), "database")]
    #[case(json!({"phase": "Error", "message": "workflows must use workflowTemplateRef to be executed when the controller is in reference mode"}), "templateReferencing")]
    #[case(json!({"nodes": "what"}), "cannot read workflow wf")]
    fn what_cannot_be_led_is_said_and_left_alone(#[case] status: Value, #[case] expected: &str) {
        let plan = fixtures::no_pools();
        let object = recorded(&plan, &status, &[]);
        let message = observe(&object, &plan).unsupported.unwrap();
        assert!(message.contains(expected), "{message}");
        assert_eq!(
            reported(
                &object,
                &plan,
                &[("hooks-start".to_owned(), Report::Failed("x".to_owned()))],
                now()
            ),
            None
        );
    }

    #[test]
    fn of_several_attempts_the_newest_counts() {
        let plan = fixtures::no_pools();
        let mut object = recorded(&plan, &json!({}), &[("hooks-start", json!({"type": "Retry"}))]);
        let nodes = object.data["status"]["nodes"].as_object_mut().unwrap();
        for (attempt, phase) in [(2, "Failed"), (10, "Running"), (9, "Failed")] {
            let name = format!("wf(0).hooks-start({attempt})");
            nodes.insert(
                fixtures::node_id("wf", &name),
                json!({"name": name, "type": "Suspend", "phase": phase}),
            );
        }
        assert_eq!(observe(&object, &plan).nodes[0].phase, NodePhase::Running);
        let patch = reported(
            &object,
            &plan,
            &[("hooks-start".to_owned(), Report::Message("x".to_owned()))],
            now(),
        );
        let id = fixtures::node_id("wf", "wf(0).hooks-start(10)");
        assert_eq!(patch.unwrap()["status"]["nodes"], json!({id: {"message": "x"}}));
    }

    #[test]
    fn a_pod_has_ended_when_its_result_has_arrived() {
        let plan = fixtures::no_pools();
        for (synced, phase) in [
            (json!(false), NodePhase::Running),
            (json!(true), NodePhase::Failed),
            (json!(null), NodePhase::Failed),
        ] {
            let node = json!({"type": "Pod", "phase": "Error", "taskResultSynced": synced});
            let run = observe(&recorded(&plan, &json!({}), &[("hooks-start", node)]), &plan);
            assert_eq!(run.nodes[0].phase, phase);
        }
    }
}

mod reporting {
    use super::*;

    fn reports(report: Report) -> Vec<(String, Report)> {
        vec![("pre-health-check".to_owned(), report)]
    }

    fn id(node: &str) -> String {
        fixtures::node_id("wf", node)
    }

    #[rstest]
    #[case(Report::Succeeded("green".to_owned()), "Succeeded")]
    #[case(Report::Failed("green".to_owned()), "Failed")]
    fn an_ending_supplies_the_result(#[case] report: Report, #[case] phase: &str) {
        let plan = fixtures::no_pools();
        let object = recorded(
            &plan,
            &json!({}),
            &[("pre-health-check", json!({"message": "green"}))],
        );
        assert_eq!(
            reported(&object, &plan, &reports(report), now()).unwrap(),
            json!({
                "metadata": {"resourceVersion": "4711"},
                "status": {"nodes": {id("wf.pre-health-check"): {
                    "phase": phase,
                    "message": "green",
                    "finishedAt": "2026-11-24T22:00:00Z",
                    "outputs": {"parameters": [{"name": "result", "value": "green"}]},
                }}},
            })
        );
    }

    #[test]
    fn outputs_of_an_own_template_are_kept() {
        let plan = fixtures::no_pools();
        let own = json!({"name": "ticket", "valueFrom": {"supplied": {}, "default": "none"}});
        let result = json!({"name": "result", "valueFrom": {"supplied": {}}});
        let node = json!({"outputs": {"parameters": [own, result]}});
        let object = recorded(&plan, &json!({}), &[("pre-health-check", node)]);
        let patch = reported(
            &object,
            &plan,
            &reports(Report::Succeeded("ok".to_owned())),
            now(),
        )
        .unwrap();
        assert_eq!(
            patch["status"]["nodes"][id("wf.pre-health-check")]["outputs"]["parameters"],
            json!([{"name": "result", "value": "ok"}, own])
        );
    }

    #[test]
    fn live_text_is_written_only_when_it_changed() {
        let plan = fixtures::no_pools();
        let object = recorded(
            &plan,
            &json!({}),
            &[("pre-health-check", json!({"message": "{ {62% done"}))],
        );
        assert_eq!(
            reported(
                &object,
                &plan,
                &reports(Report::Message("{{62% done".to_owned())),
                now()
            ),
            None
        );
        let patch = reported(
            &object,
            &plan,
            &reports(Report::Message("63% done".to_owned())),
            now(),
        );
        assert_eq!(
            patch.unwrap(),
            json!({
                "metadata": {"resourceVersion": "4711"},
                "status": {"nodes": {id("wf.pre-health-check"): {"message": "63% done"}}},
            })
        );
    }

    #[rstest]
    #[case::ended(json!({}), json!({"phase": "Succeeded"}))]
    #[case::skipped(json!({}), json!({"type": "Skipped", "phase": "Skipped"}))]
    #[case::not_yet_suspended(json!({}), json!({"phase": "Pending"}))]
    #[case::a_pod(json!({}), json!({"type": "Pod"}))]
    #[case::workflow_ended(json!({"phase": "Failed"}), json!({}))]
    fn only_a_step_that_waits_is_reported_on(#[case] status: Value, #[case] node: Value) {
        let plan = fixtures::no_pools();
        let object = recorded(&plan, &status, &[("pre-health-check", node)]);
        for report in [
            Report::Failed("no".to_owned()),
            Report::Succeeded("yes".to_owned()),
            Report::Message("hm".to_owned()),
        ] {
            assert_eq!(reported(&object, &plan, &reports(report), now()), None);
        }
    }

    #[test]
    fn steps_without_node_and_unknown_steps_are_passed_over() {
        let plan = fixtures::no_pools();
        let object = recorded(&plan, &json!({}), &[("release", json!({}))]);
        let all: Vec<_> = ["pause-pools", "nothing", "release"]
            .map(|s| (s.to_owned(), Report::Succeeded("ok".to_owned())))
            .into();
        let patch = reported(&object, &plan, &all, now()).unwrap();
        let nodes = patch["status"]["nodes"].as_object().unwrap();
        assert_eq!(nodes.keys().collect::<Vec<_>>(), [&id("wf.onExit.release")]);
    }

    #[test]
    fn no_patch_goes_out_unguarded() {
        let plan = fixtures::no_pools();
        let mut object = recorded(&plan, &json!({}), &[("pre-health-check", json!({}))]);
        object.metadata.resource_version = None;
        assert_eq!(
            reported(&object, &plan, &reports(Report::Failed("no".to_owned())), now()),
            None
        );
    }

    #[test]
    fn a_seal_suspends_and_is_guarded() {
        let object = recorded(&fixtures::no_pools(), &json!({}), &[]);
        assert_eq!(
            Argo.seal(&object.into(), Timestamp::UNIX_EPOCH).unwrap().patch,
            json!({
                "metadata": {
                    "resourceVersion": "4711",
                    "annotations": {"managedupgrade.appuio.io/sealed-at": "1970-01-01T00:00:00Z"},
                },
                "spec": {"suspend": true},
            })
        );
    }

    #[test]
    fn a_stop_skips_the_exit_part_and_is_guarded() {
        let object = recorded(&fixtures::no_pools(), &json!({}), &[]);
        assert_eq!(
            Argo.stop(&object.into()).unwrap().patch,
            json!({"metadata": {"resourceVersion": "4711"}, "spec": {"shutdown": "Terminate", "suspend": null}})
        );
    }
}
