use rstest::rstest;

use super::*;

fn reference(value: Value) -> TemplateRef {
    serde_json::from_value(value).unwrap()
}

fn inlined_of(spec: &Value, reference_: Value) -> Result<Inlined, InlineError> {
    let place = Place {
        step: "hook-start-a",
        number: 3,
        namespace: "upgrades",
    };
    let mut taken = BTreeSet::from(["hook-start-a".to_owned(), "hook-start-a-taken".to_owned()]);
    inline(
        &reference(reference_),
        Some(&Lookup::Found(spec.clone())),
        &place,
        &mut taken,
    )
}

fn inlined(spec: &Value) -> Inlined {
    inlined_of(spec, json!({"name": "t"})).unwrap()
}

fn refusal(spec: &Value, reference: Value) -> String {
    inlined_of(spec, reference).unwrap_err().to_string()
}

fn template<'a>(inlined: &'a Inlined, name: &str) -> &'a Value {
    let found = inlined.templates.iter().find(|t| t["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {:#?}", inlined.templates))
}

fn container() -> Value {
    json!({"entrypoint": "main", "templates": [{"name": "main", "container": {"image": "i", "command": ["c"]}}]})
}

/// A spec of one container with these fields.
fn with(fields: &Value) -> Value {
    let mut spec = container();
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    spec
}

const OURS: &str = "{{inputs.parameters.upgrade-hook-environment}}";

#[test]
fn a_container_gets_environment_and_retries_under_a_name_of_ours() {
    let inlined = inlined(&container());
    assert_eq!(inlined.entry, "hook-start-a-main");
    let [template] = inlined.templates.as_slice() else {
        panic!("one template")
    };
    assert_eq!(
        template["container"],
        json!({"image": "i", "command": ["c"], "envFrom": [{"configMapRef": {"name": OURS}}]})
    );
    assert_eq!(template["inputs"]["parameters"], json!([{"name": ENVIRONMENT}]));
    let retry = &template["retryStrategy"];
    assert_eq!(
        (&retry["limit"], &retry["retryPolicy"]),
        (&json!("10"), &json!("Always"))
    );
    assert!(
        retry["expression"]
            .as_str()
            .unwrap()
            .contains("asInt(lastRetry.exitCode) in [137, 143]")
    );
    assert!(!inlined.takes_event && !inlined.takes_job && inlined.arguments.is_empty());
}

#[test]
fn every_container_of_every_kind_gets_the_environment_and_ours_wins() {
    let env = json!([{"name": "MINE", "value": "1"}, {"name": "EVENT_NAME", "value": "forged"}, {"name": "JOB_MINE", "value": "2"}]);
    let one = |name: &str| json!({"name": name, "env": env, "envFrom": [{"secretRef": {"name": "s"}}]});
    let spec = json!({"entrypoint": "a", "templates": [{
        "name": "a",
        "containerSet": {"containers": [one("x"), one("y")]},
        "initContainers": [one("i")],
        "sidecars": [one("s")],
    }]});
    let inlined = inlined(&spec);
    let template = template(&inlined, "hook-start-a-a");
    let all = [
        &template["containerSet"]["containers"][0],
        &template["containerSet"]["containers"][1],
        &template["initContainers"][0],
        &template["sidecars"][0],
    ];
    for container in all {
        assert_eq!(
            container["env"],
            json!([{"name": "MINE", "value": "1"}, {"name": "JOB_MINE", "value": "2"}])
        );
        assert_eq!(
            container["envFrom"],
            json!([{"secretRef": {"name": "s"}}, {"configMapRef": {"name": OURS}}])
        );
    }
}

#[rstest]
#[case::script(json!({"script": {"image": "i", "source": "echo"}}), true)]
#[case::resource(json!({"resource": {"action": "get"}}), true)]
#[case::data(json!({"data": {}}), true)]
#[case::http(json!({"http": {"url": "https://example.com"}}), false)]
#[case::plugin(json!({"plugin": {"x": {}}}), false)]
#[case::approval(json!({"suspend": {}}), false)]
#[case::steps(json!({"steps": []}), false)]
fn only_what_is_a_pod_is_tried_again(#[case] mut body: Value, #[case] retried: bool) {
    body["name"] = json!("main");
    let inlined = inlined(&json!({"entrypoint": "main", "templates": [body]}));
    assert_eq!(
        template(&inlined, "hook-start-a-main")
            .get("retryStrategy")
            .is_some(),
        retried
    );
}

#[test]
fn a_rule_of_its_own_stays() {
    let mut spec = container();
    spec["templates"][0]["retryStrategy"] = json!({"limit": 2});
    assert_eq!(inlined(&spec).templates[0]["retryStrategy"], json!({"limit": 2}));
    let of_all = with(&json!({"retryStrategy": {"limit": 1}}));
    assert_eq!(
        inlined(&of_all).templates[0]["retryStrategy"],
        json!({"limit": 1})
    );
}

/// Steps, a DAG, handlers, loops, a template of another WorkflowTemplate, one of the same, one within a call.
fn several() -> Value {
    json!({"entrypoint": "flow", "templates": [
        {"name": "flow", "steps": [
            [{"name": "one", "template": "work", "withItems": [1, 2], "arguments": {"parameters": [{"name": "n", "value": "{{item}}"}]}}],
            [{"name": "two", "templateRef": {"name": "other", "template": "x"}},
             {"name": "three", "templateRef": {"name": "t", "template": "graph"}}],
            [{"name": "four", "inline": {"script": {"image": "i", "source": "s"}}}],
        ]},
        {"name": "graph", "dag": {"tasks": [
            {"name": "a", "template": "work", "onExit": "clean",
             "hooks": {"exit": {"template": "clean"}, "failed": {"template": "taken", "expression": "true"}}},
        ]}},
        {"name": "work", "inputs": {"parameters": [{"name": "n", "default": "0"}]}, "container": {"image": "i"}},
        {"name": "clean", "container": {"image": "i"}},
        {"name": "taken", "container": {"image": "i"}},
        {"name": "unused", "container": {"image": "i"}},
    ]})
}

#[test]
fn all_templates_that_are_called_come_along_under_names_that_are_free() {
    let inlined = inlined(&several());
    let mut names: Vec<&str> = inlined
        .templates
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "hook-start-a-clean",
            "hook-start-a-flow",
            "hook-start-a-graph",
            "hook-start-a-taken-2",
            "hook-start-a-work"
        ]
    );
    let ours = json!({"name": ENVIRONMENT, "value": OURS});
    let flow = template(&inlined, "hook-start-a-flow");
    assert_eq!(flow["steps"][0][0]["template"], "hook-start-a-work");
    assert_eq!(
        flow["steps"][0][0]["arguments"]["parameters"],
        json!([{"name": "n", "value": "{{item}}"}, ours])
    );
    assert_eq!(
        flow["steps"][1][0],
        json!({"name": "two", "templateRef": {"name": "other", "template": "x"}})
    );
    assert_eq!(
        flow["steps"][1][1],
        json!({"name": "three", "template": "hook-start-a-graph", "arguments": {"parameters": [ours]}})
    );
    let within = &flow["steps"][2][0]["inline"];
    assert_eq!(
        within["script"]["envFrom"],
        json!([{"configMapRef": {"name": OURS}}])
    );
    assert_eq!(within["retryStrategy"]["retryPolicy"], "Always");
    assert_eq!(within.get("inputs"), None);

    let task = &template(&inlined, "hook-start-a-graph")["dag"]["tasks"][0];
    assert_eq!(task["onExit"], "hook-start-a-clean");
    // It gets the arguments of the task.
    assert_eq!(task["hooks"]["exit"], json!({"template": "hook-start-a-clean"}));
    assert_eq!(
        task["hooks"]["failed"],
        json!({"template": "hook-start-a-taken-2", "expression": "true", "arguments": {"parameters": [ours]}})
    );
}

#[test]
fn another_entry_brings_only_what_it_needs() {
    let inlined = inlined_of(&several(), json!({"name": "t", "template": "work"})).unwrap();
    assert_eq!(
        (inlined.entry.as_str(), inlined.templates.len()),
        ("hook-start-a-work", 1)
    );
}

#[test]
fn what_the_spec_says_for_all_pods_is_on_the_templates() {
    let spec = with(&json!({
        "serviceAccountName": "all", "nodeSelector": {"a": "b"}, "activeDeadlineSeconds": 600,
        "podPriorityClassName": "high", "tolerations": [{"key": "k"}], "securityContext": {"runAsUser": 1},
        "podMetadata": {"labels": {"all": "1", "mine": "no"}},
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "own", "emptyDir": {}}],
        "archiveLogs": true, "synchronization": {"mutexes": [{"name": "m"}]},
        "imagePullSecrets": [{"name": "s"}], "podGC": {"strategy": "OnPodCompletion"},
    }));
    let mut spec = spec;
    spec["templates"][0]["volumes"] = json!([{"name": "own", "secret": {}}]);
    spec["templates"][0]["metadata"] = json!({"labels": {"mine": "yes"}});
    spec["templates"][0]["serviceAccountName"] = json!("own");
    let template = inlined(&spec).templates.remove(0);
    assert_eq!(template["serviceAccountName"], "own");
    assert_eq!(template["nodeSelector"], json!({"a": "b"}));
    assert_eq!(template["activeDeadlineSeconds"], 600);
    assert_eq!(template["priorityClassName"], "high");
    assert_eq!(template["tolerations"], json!([{"key": "k"}]));
    assert_eq!(template["securityContext"], json!({"runAsUser": 1}));
    assert_eq!(template["metadata"]["labels"], json!({"all": "1", "mine": "yes"}));
    assert_eq!(
        template["volumes"],
        json!([{"name": "own", "secret": {}}, {"name": "v", "emptyDir": {}}])
    );
    assert_eq!(template["archiveLocation"], json!({"archiveLogs": true}));
    assert_eq!(template["synchronization"], json!({"mutexes": [{"name": "m"}]}));
    assert_eq!(template["podSpecPatch"], r#"{"imagePullSecrets":[{"name":"s"}]}"#);
    assert_eq!(template.get("podGC"), None);
}

#[rstest]
#[case(json!({"templateDefaults": {"timeout": "1m"}}), "WorkflowTemplate t has spec.templateDefaults, which a hook cannot take over: write them on the templates")]
#[case(json!({"onExit": "main"}), "write onExit on the steps or tasks of the template")]
#[case(json!({"hooks": {"exit": {}}}), "write them on the steps or tasks")]
#[case(json!({"volumeClaimTemplates": [{}]}), "make a PersistentVolumeClaim")]
#[case(json!({"workflowTemplateRef": {"name": "x"}}), "name that WorkflowTemplate in spec.templateRef")]
#[case(json!({"somethingNew": 1}), "spec.somethingNew, which a hook cannot take over: this operator does not know it")]
#[case(json!({"podSpecPatch": "{}", "hostNetwork": true}), "template main of WorkflowTemplate t has a podSpecPatch, and so has the spec by hostNetwork, podSpecPatch")]
fn what_cannot_be_taken_over_is_refused(#[case] fields: Value, #[case] message: &str) {
    let refusal = refusal(&with(&fields), json!({"name": "t"}));
    assert!(refusal.contains(message), "{refusal}");
}

/// Fields that say nothing refuse nothing.
#[rstest]
#[case(json!({"templateDefaults": {}, "onExit": "", "hooks": null, "volumeClaimTemplates": []}))]
fn empty_fields_are_none(#[case] fields: Value) {
    inlined(&with(&fields));
}

fn with_inputs(inputs: &Value, arguments: &Value) -> Value {
    json!({"entrypoint": "main", "arguments": {"parameters": arguments}, "templates": [{
        "name": "main", "inputs": {"parameters": inputs},
        "container": {"image": "i", "args": ["{{inputs.parameters.x}} {{workflow.parameters.url}} {{=workflow.parameters['my-key']}}"]},
    }]})
}

#[test]
fn arguments_go_where_they_are_declared() {
    let spec = with_inputs(
        &json!([{"name": "x"}, {"name": "y", "value": "d"}, {"name": "event"}, {"name": "job"}]),
        &json!([{"name": "url", "value": "https://default"}, {"name": "my-key", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, {"name": "idle"}]),
    );
    let hostile = "a\"\n- b: {{workflow.name}} {{=1+1}}";
    let reference = json!({"name": "t", "arguments": [{"name": "x", "value": hostile}, {"name": "url", "value": "https://mine"}]});
    let inlined = inlined_of(&spec, reference).unwrap();
    assert_eq!(
        inlined.arguments,
        [json!({"name": "x", "value": "a\"\n- b: { {workflow.name}} { {=1+1}}"})]
    );
    assert!(inlined.takes_event && inlined.takes_job);
    assert_eq!(
        inlined.workflow_parameters,
        [
            json!({"name": "hook3_url", "value": "https://mine"}),
            json!({"name": "hook3_my-key", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}),
        ]
    );
    assert_eq!(
        inlined.templates[0]["container"]["args"][0],
        "{{inputs.parameters.x}} {{workflow.parameters.hook3_url}} {{=workflow.parameters['hook3_my-key']}}"
    );
}

#[test]
fn an_event_that_the_hook_gives_itself_is_its_own() {
    let spec = json!({"entrypoint": "main", "templates": [{
        "name": "main", "inputs": {"parameters": [{"name": "event"}]}, "suspend": {}}]});
    let inlined = inlined_of(
        &spec,
        json!({"name": "t", "arguments": [{"name": "event", "value": "mine"}]}),
    )
    .unwrap();
    assert!(!inlined.takes_event);
    assert_eq!(inlined.arguments, [json!({"name": "event", "value": "mine"})]);
}

#[rstest]
#[case::unknown(json!([{"name": "z", "value": ""}, {"name": "x", "value": ""}]), "spec.templateRef.arguments gives z, but template main of WorkflowTemplate t takes my-key, url, x: remove it, or declare it there")]
#[case::twice(json!([{"name": "x", "value": ""}, {"name": "x", "value": ""}]), "gives x twice")]
#[case::missing(json!([]), "WorkflowTemplate t needs a value for url")]
#[case::missing_input(json!([{"name": "url", "value": ""}, {"name": "my-key", "value": ""}]), "WorkflowTemplate t needs a value for x")]
fn arguments_have_to_fit(#[case] arguments: Value, #[case] message: &str) {
    let spec = with_inputs(
        &json!([{"name": "x"}]),
        &json!([{"name": "url"}, {"name": "my-key"}]),
    );
    let refusal = refusal(&spec, json!({"name": "t", "arguments": arguments}));
    assert!(refusal.contains(message), "{refusal}");
}

#[rstest]
#[case::no_template(container(), json!({"name": "t", "template": "x"}), "WorkflowTemplate t has no template x, only main")]
#[case::cluster(container(), json!({"name": "t", "template": "x", "clusterScope": true}), "ClusterWorkflowTemplate t has no template x")]
#[case::no_entrypoint(json!({"templates": []}), json!({"name": "t"}), "WorkflowTemplate t has no entrypoint: name one of its templates in spec.templateRef.template")]
#[case::dangling(json!({"entrypoint": "main", "templates": [{"name": "main", "steps": [[{"name": "a", "template": "gone"}]]}]}), json!({"name": "t"}), "template main of WorkflowTemplate t refers to template gone, which is not in it")]
#[case::undeclared(with_inputs(&json!([{"name": "x", "value": ""}]), &json!([{"name": "url", "value": ""}])), json!({"name": "t"}), "refers to workflow.parameters.my-key, which its spec.arguments does not declare")]
#[case::reserved(json!({"entrypoint": "main", "templates": [{"name": "main", "suspend": {}, "inputs": {"parameters": [{"name": "upgrade-hook-environment"}]}}]}), json!({"name": "t"}), "has an input upgrade-hook-environment, which is the operator's")]
#[case::artifact(json!({"entrypoint": "main", "templates": [{"name": "main", "suspend": {}, "inputs": {"artifacts": [{"name": "a", "path": "/a"}]}}]}), json!({"name": "t"}), "needs the artifact a")]
#[case::shape(json!({"entrypoint": "main", "templates": [{"name": "main", "suspend": {}, "inputs": []}]}), json!({"name": "t"}), "cannot be read: inputs has the wrong type")]
#[case::null(Value::Null, json!({"name": "t"}), "WorkflowTemplate t has no spec")]
fn a_template_that_cannot_be_copied_says_why(
    #[case] spec: Value,
    #[case] reference: Value,
    #[case] message: &str,
) {
    let refusal = refusal(&spec, reference);
    assert!(refusal.contains(message), "{refusal}");
}

#[rstest]
#[case(
    false,
    Lookup::Absent,
    "there is no WorkflowTemplate t in namespace upgrades: create it, or correct spec.templateRef.name"
)]
#[case(
    true,
    Lookup::Absent,
    "there is no ClusterWorkflowTemplate t: create it, or correct spec.templateRef.name"
)]
#[case(
    true,
    Lookup::KindAbsent,
    "the API server has no kind ClusterWorkflowTemplate of argoproj.io: install that CustomResourceDefinition of Argo Workflows"
)]
#[case(true, Lookup::Forbidden("no".into()), "the operator may not read ClusterWorkflowTemplate t: give its ServiceAccount the verb get on it, as the chart does (no)")]
#[case(false, Lookup::Refused("no".into()), "the API server refused a workflow with the templates of its hooks, WorkflowTemplate t among them: correct what it says (no)")]
fn a_template_that_was_not_read_says_why(
    #[case] cluster_scope: bool,
    #[case] lookup: Lookup,
    #[case] message: &str,
) {
    let place = Place {
        step: "s",
        number: 1,
        namespace: "upgrades",
    };
    let reference = reference(json!({"name": "t", "clusterScope": cluster_scope}));
    let refusal = inline(&reference, Some(&lookup), &place, &mut BTreeSet::new()).unwrap_err();
    assert_eq!(refusal.to_string(), message);
}

#[test]
fn too_much_for_a_workflow_is_refused() {
    let spec = with(&json!({"nodeSelector": {"a": "x".repeat(200 * 1024)}}));
    let refusal = refusal(&spec, json!({"name": "t"}));
    assert!(refusal.contains("and a hook may bring 128"), "{refusal}");
}

#[test]
fn artifacts_between_steps_stay_and_their_repository_comes_along() {
    let mut spec = with(&json!({"artifactRepositoryRef": {"configMap": "c", "key": "k"}}));
    spec["templates"][0]["outputs"] = json!({"artifacts": [{"name": "a", "path": "/a"}]});
    let inlined = inlined(&spec);
    assert_eq!(
        inlined.artifact_repository,
        Some(json!({"configMap": "c", "key": "k"}))
    );
    assert_eq!(
        inlined.templates[0]["outputs"]["artifacts"],
        json!([{"name": "a", "path": "/a"}])
    );
}

/// The library of hook templates can be used as it is, but for arguments that have to be given.
#[test]
fn the_library_of_hook_templates_can_be_copied() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("workflow-templates/hooks/argo");
    let mut copied = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for document in serde_yaml::Deserializer::from_str(&text) {
            let object: Value = serde::Deserialize::deserialize(document).unwrap();
            if object["kind"] != "WorkflowTemplate" {
                continue;
            }
            let name = &object["metadata"]["name"];
            match inlined_of(&object["spec"], json!({"name": name})) {
                Ok(_) | Err(InlineError::MissingArgument { .. }) => copied += 1,
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }
    assert!(copied > 0, "there are templates");
}
