use kube::api::DynamicObject;
use rstest::rstest;

use super::*;
use crate::{
    api::{UpgradeJob, upgrade_job::HookTracker},
    engine::{Engine, argo::Argo, argo::fixtures, native::StartedRun},
};

const EVERY: [&str; 3] = ["Start", "MachineConfigPoolUnpause", "Finish"];

fn spec() -> Value {
    json!({
        "entrypoint": "flow",
        "serviceAccountName": "hooks",
        "arguments": {"parameters": [{"name": "url", "value": "https://example.com"}]},
        "templates": [
            {"name": "flow", "inputs": {"parameters": [{"name": "event"}, {"name": "job"}, {"name": "channel"}]},
             "dag": {"tasks": [
                {"name": "send", "template": "send", "arguments": {"parameters": [{"name": "text", "value": "{{inputs.parameters.channel}}: {{inputs.parameters.event}}"}]}},
                {"name": "approve", "template": "approve", "depends": "send"}]}},
            {"name": "send", "inputs": {"parameters": [{"name": "text"}]},
             "script": {"image": "i", "command": ["sh"], "source": "echo \"$EVENT_NAME\" {{workflow.parameters.url}}"}},
            {"name": "approve", "suspend": {}},
        ],
    })
}

fn rendered(
    hooks: &[UpgradeJobHook],
    job: Option<UpgradeJob>,
    template: Option<&str>,
) -> Result<DynamicObject, RenderError> {
    let (usual, plan) = fixtures::with_hooks(hooks);
    let job = job.unwrap_or(usual);
    let templates = fixtures::templates(&spec());
    let mut context = fixtures::context(&job);
    context.hooks = hooks;
    context.templates = &templates;
    context.template = template.map(str::to_owned);
    Argo.render(&plan, &context)
}

fn notify() -> UpgradeJobHook {
    let hostile = "#ops\" {{workflow.name}}\n- x: {{=1+1}}";
    fixtures::native_hook(
        "notify",
        &EVERY,
        &json!({"arguments": [{"name": "channel", "value": hostile}]}),
    )
}

fn tasks<'a>(workflow: &'a DynamicObject, dag: &str) -> &'a Vec<Value> {
    let templates = workflow.data["spec"]["templates"].as_array().unwrap();
    let dag = templates.iter().find(|t| t["name"] == dag).unwrap();
    dag["dag"]["tasks"].as_array().unwrap()
}

fn task<'a>(workflow: &'a DynamicObject, dag: &str, name: &str) -> &'a Value {
    tasks(workflow, dag)
        .iter()
        .find(|t| t["name"] == name)
        .unwrap_or_else(|| panic!("no task {name}"))
}

#[test]
fn hooks_of_templates_render_as_recorded() {
    let job_hook: UpgradeJobHook = serde_json::from_value(json!({
        "metadata": {"name": "as-a-job", "namespace": "upgrades"},
        "spec": {"events": ["Start"], "template": {}},
    }))
    .unwrap();
    let workflow = rendered(&[job_hook, notify()], None, None).unwrap();
    insta::with_settings!({
        snapshot_path => "../../../../tests/golden/argo",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_binary_snapshot!("hook-templates.yaml", serde_yaml::to_string(&workflow).unwrap().into_bytes());
    });
}

#[test]
fn the_task_runs_after_its_step_and_only_if_told_to() {
    let workflow = rendered(&[notify()], None, None).unwrap();
    let run = task(&workflow, "main", "run-hook-start-notify");
    assert_eq!(run["depends"], "hook-start-notify.Succeeded");
    assert_eq!(
        run["when"],
        "{{tasks.hook-start-notify.outputs.parameters.go}} == true"
    );
    assert_eq!(run["template"], "hook-start-notify-flow");
    assert_eq!(
        run["arguments"]["parameters"],
        json!([
            {"name": ENVIRONMENT, "value": "cluster-upgrade-1795554000-ef11c47-run-1.hook-start-notify"},
            {"name": "event", "value": "{ {{tasks.hook-start-notify.outputs.parameters.event}}}"},
            {"name": "job", "value": "{{tasks.hook-start-notify.outputs.parameters.job}}"},
            {"name": "channel", "value": "#ops\" { {workflow.name}}\n- x: { {=1+1}}"},
        ])
    );
    let join = task(&workflow, "main", "hooks-start");
    assert_eq!(
        join["depends"],
        "hook-start-notify && (run-hook-start-notify.Succeeded || run-hook-start-notify.Failed || \
         run-hook-start-notify.Errored || run-hook-start-notify.Skipped || run-hook-start-notify.Omitted)"
    );
}

#[test]
fn a_group_of_pools_runs_it_once_per_pool() {
    let workflow = rendered(&[notify()], None, None).unwrap();
    let run = task(&workflow, "main", "run-hook-unpause-infra-notify");
    assert_eq!(
        run["withParam"],
        "{{tasks.hook-unpause-infra-notify.outputs.parameters.pools}}"
    );
    assert_eq!(run.get("when"), None);
    let parameters = &run["arguments"]["parameters"];
    assert_eq!(
        parameters[0]["value"],
        "cluster-upgrade-1795554000-ef11c47-run-1.hook-unpause-infra-notify.{{item}}"
    );
    assert_eq!(
        parameters[1]["value"],
        "{\"pool\":\"{{item}}\", {{tasks.hook-unpause-infra-notify.outputs.parameters.event}}}"
    );
}

#[test]
fn an_exit_hook_is_in_the_exit_part() {
    let workflow = rendered(&[notify()], None, None).unwrap();
    task(&workflow, "exit", "run-hook-finish-notify");
    let join = task(&workflow, "exit", "hooks-finish")["depends"]
        .as_str()
        .unwrap();
    assert!(join.contains("run-hook-finish-notify.Omitted"), "{join}");
}

#[test]
fn what_cannot_run_is_noted_and_the_rest_is_rendered() {
    let missing = fixtures::native_hook("bad", &["Start"], &json!({"name": "gone"}));
    let workflow = rendered(&[missing, notify()], None, None).unwrap();
    let noted = &workflow.metadata.annotations.as_ref().unwrap()[annotations::HOOKS_NOT_RUN];
    let noted: Value = serde_json::from_str(noted).unwrap();
    assert_eq!(
        noted,
        json!({"hook-start-bad": "there is no WorkflowTemplate gone in namespace upgrades: create it, or correct spec.templateRef.name"})
    );
    assert!(
        tasks(&workflow, "main")
            .iter()
            .all(|t| t["name"] != "run-hook-start-bad")
    );
    task(&workflow, "main", "run-hook-start-notify");
    let (_, plan) = fixtures::with_hooks(&[fixtures::native_hook("bad", &["Start"], &json!({})), notify()]);
    let run = Argo.observe(&workflow.into(), &plan);
    assert!(run.native["hook-start-bad"].problem.is_some());
    assert_eq!(run.native["hook-start-notify"], crate::engine::Native::default());
}

#[test]
fn a_hook_that_has_ended_is_left_out_of_a_later_workflow() {
    let (mut job, _) = fixtures::with_hooks(&[]);
    let ended: HookTracker =
        serde_json::from_value(json!({"hookEvent": "Start", "upgradeJobHook": "notify", "status": "failed"}))
            .unwrap();
    job.status = Some(crate::api::upgrade_job::UpgradeJobStatus {
        hook_tracker: vec![ended],
        ..Default::default()
    });
    let workflow = rendered(&[notify()], Some(job), None).unwrap();
    assert!(
        tasks(&workflow, "main")
            .iter()
            .all(|t| t["name"] != "run-hook-start-notify")
    );
    task(&workflow, "main", "run-hook-unpause-infra-notify");
    task(&workflow, "exit", "run-hook-finish-notify");
}

#[test]
fn two_hooks_with_one_template_do_not_meet() {
    let one = |name: &str| {
        fixtures::native_hook(
            name,
            &["Start"],
            &json!({"arguments": [{"name": "channel", "value": name}]}),
        )
    };
    // The second one's copies would have the names of the first one's.
    let workflow = rendered(&[one("a"), one("a-flow")], None, None).unwrap();
    let templates = workflow.data["spec"]["templates"].as_array().unwrap();
    let mut names: Vec<&str> = templates.iter().map(|t| t["name"].as_str().unwrap()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert_ne!(
        task(&workflow, "main", "run-hook-start-a")["template"],
        task(&workflow, "main", "run-hook-start-a-flow")["template"]
    );
    let parameters: Vec<&Value> = workflow.data["spec"]["arguments"]["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    assert_eq!(parameters.len(), 2);
    assert_ne!(parameters[0]["name"], parameters[1]["name"]);
}

#[test]
fn a_template_of_the_users_gets_the_hooks_too() {
    let own = super::super::TEMPLATE.replace(
        "            template: {{json name}}\n",
        "            template: {{json name}}\n            continueOn: {}\n",
    );
    let workflow = rendered(&[notify()], None, Some(&own)).unwrap();
    task(&workflow, "main", "run-hook-start-notify");
}

#[test]
fn a_task_of_the_users_with_our_name_is_refused() {
    let own = super::super::TEMPLATE.replacen(
        "        tasks:\n",
        "        tasks:\n          - {name: run-hook-start-notify, template: hooks-start}\n",
        1,
    );
    let refusal = rendered(&[notify()], None, Some(&own)).unwrap_err().to_string();
    assert!(
        refusal.contains("it has a task run-hook-start-notify"),
        "{refusal}"
    );
}

#[rstest]
#[case("{}", "")]
#[case(
    r#"{"message":"{{x}} \\{{","name":"Start"}"#,
    r#""message":"\u007b\u007bx}} \\\u007b\u007b","name":"Start""#
)]
fn an_event_has_no_variables_and_no_braces_around_it(#[case] event: &str, #[case] expected: &str) {
    let start = Start {
        message: String::new(),
        event: event.to_owned(),
        job: event.to_owned(),
        runs: vec![
            StartedRun {
                key: "infra".to_owned(),
                variables: BTreeMap::new(),
            },
            StartedRun {
                key: "worker".to_owned(),
                variables: BTreeMap::new(),
            },
        ],
    };
    let outputs = outputs(&start);
    assert_eq!(outputs[EVENT], expected);
    assert_eq!(outputs[GO], "true");
    assert_eq!(outputs[POOLS], r#"["infra","worker"]"#);
    let document: Value = serde_json::from_str(&outputs[JOB]).unwrap();
    assert_eq!(document, serde_json::from_str::<Value>(event).unwrap());
}
