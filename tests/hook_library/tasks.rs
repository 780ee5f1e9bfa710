//! The library as Tekton Tasks: the same hooks, the same scripts, the same rights. Needs no cluster.

use std::{collections::BTreeSet, fs, path::PathBuf};

use openshift_upgrade_operator::{
    api::upgrade_job_hook::TaskRef,
    engine::{
        Engine, Templates,
        native::{Lookup, TemplateKey},
        tekton::Tekton,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    document,
    hook::{documents, folder, templates},
    templates::{names, parameters},
};

/// Without Argo's `suspend` it waits for an annotation.
const OTHERWISE: &str = "wait-for-approval";

fn path(name: &str) -> PathBuf {
    folder()
        .parent()
        .unwrap()
        .join("tekton")
        .join(format!("{name}.yaml"))
}

fn objects(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(path(name)).unwrap();
    serde_yaml::Deserializer::from_str(&text)
        .map(|d| Value::deserialize(d).unwrap())
        .collect()
}

fn task(name: &str) -> Value {
    let mut tasks = objects(name);
    tasks.retain(|d| d["kind"] == "Task");
    let [task] = tasks.try_into().unwrap();
    task
}

fn step(name: &str) -> Value {
    let task = task(name);
    let [step] = task["spec"]["steps"].as_array().unwrap().as_slice() else {
        panic!("{name} has one step")
    };
    step.clone()
}

/// The template of Argo that is a pod.
fn pod(name: &str) -> Value {
    let all = templates(name);
    all.into_iter().find(|t| t.get("container").is_some()).unwrap()
}

/// The environment without what Tekton needs besides.
fn environment(step: &Value) -> Vec<Value> {
    let mut all = step["env"].as_array().unwrap().clone();
    all.retain(|v| v["name"] != "MESSAGE_FILE");
    all
}

#[test]
fn there_is_a_task_for_every_template() {
    let files = fs::read_dir(path("x").parent().unwrap()).unwrap();
    let files: BTreeSet<String> = files
        .map(|f| {
            f.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .filter(|n| n != "kustomization")
        .collect();
    assert_eq!(files, names());
    let listed: BTreeSet<String> = objects("kustomization")[0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r.as_str().unwrap().trim_end_matches(".yaml").to_owned())
        .collect();
    let mut expected = names();
    expected.insert("../library".to_owned());
    assert_eq!(listed, expected);
}

#[test]
fn each_runs_the_script_of_the_template_with_the_same_parameters() {
    for name in names() {
        let task = task(&name);
        assert_eq!(task["apiVersion"], "tekton.dev/v1");
        assert_eq!(task["metadata"]["name"], json!(name));
        let step = step(&name);
        assert_eq!(step["command"], pod(&name)["container"]["command"], "{name}");
        let known: Vec<(String, Option<String>)> = task["spec"]["params"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| {
                (
                    p["name"].as_str().unwrap().to_owned(),
                    p["default"].as_str().map(str::to_owned),
                )
            })
            .collect();
        for (parameter, default) in &known {
            assert_eq!(
                default.is_some(),
                !p_default_is_missing(&name, parameter),
                "{name}: {parameter}"
            );
            assert!(
                head(&name).contains(parameter.as_str()),
                "{name} does not say what {parameter} is"
            );
        }
        if name == OTHERWISE {
            continue;
        }
        assert_eq!(step["args"], pod(&name)["container"]["args"], "script of {name}");
        assert_eq!(
            known.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            parameters(&name),
            "{name}"
        );
        let of_argo: Vec<Value> = pod(&name)["container"]["env"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| {
                let text = v.to_string().replace("{{inputs.parameters.", "$(params.");
                serde_json::from_str(&text.replace("}}\"", ")\"")).unwrap()
            })
            .collect();
        assert_eq!(environment(&step), of_argo, "{name}");
    }
}

/// What has no default in Argo's template has none here; what only Tekton has needs one.
fn p_default_is_missing(name: &str, parameter: &str) -> bool {
    parameters(name).get(parameter).is_some_and(Option::is_none)
}

fn head(name: &str) -> String {
    let text = fs::read_to_string(path(name)).unwrap();
    text.lines().take_while(|l| l.starts_with('#')).collect()
}

#[test]
fn each_is_restricted_bounded_and_says_why_it_failed() {
    for name in names() {
        let (step, pod) = (step(&name), pod(&name));
        assert_eq!(
            step["securityContext"], pod["container"]["securityContext"],
            "{name}"
        );
        assert_eq!(step["computeResources"], pod["container"]["resources"], "{name}");
        assert_eq!(step["image"], "$(params.image)");
        assert_eq!(step["timeout"].is_string(), name != OTHERWISE, "{name}");
        let all = step["env"].as_array().unwrap();
        assert!(
            all.contains(&json!({"name": "MESSAGE_FILE", "value": "$(results.message.path)"})),
            "{name}"
        );
        let task = task(&name);
        assert_eq!(task["spec"]["results"][0]["name"], "message", "{name}");
        assert!(
            task["spec"]["workspaces"].is_null(),
            "{name}: hooks give no workspaces"
        );
        let script = step["args"][0].as_str().unwrap();
        for taken in ["$(params.", "$(context.", "$(results.", "$(workspaces.", "$$"] {
            assert!(!script.contains(taken), "{name}: {taken} would be replaced");
        }
    }
}

#[test]
fn each_has_the_rights_of_the_template() {
    // The name of the account is the hook's to give; that of Argo's executor is of no use here.
    let rights = |all: Vec<Value>, kinds: &str| -> Vec<Value> {
        all.into_iter()
            .filter(|d| d["kind"] != kinds && d["roleRef"]["name"] != "upgrade-workflow")
            .collect()
    };
    for name in names() {
        let here = rights(objects(&name), "Task");
        let account = format!("hook-{name}");
        assert!(
            here.iter()
                .any(|d| d["kind"] == "ServiceAccount" && d["metadata"]["name"] == json!(account)),
            "{name}"
        );
        assert!(
            head(&name).contains(&format!("serviceAccountName: {account}.")),
            "{name} does not say its account"
        );
        if name != OTHERWISE {
            let there = rights(documents(&format!("{name}.yaml")), "WorkflowTemplate");
            assert_eq!(here, there, "{name}");
        }
    }
}

#[test]
fn the_scripts_of_its_own_parse() {
    let script = step(OTHERWISE)["args"][0].as_str().unwrap().to_owned();
    let parsed = std::process::Command::new("bash")
        .args(["-n", "-c", &script])
        .status();
    assert!(parsed.unwrap().success());
}

/// With `taskRef` instead of `templateRef`, as the document says.
#[test]
fn each_example_is_a_hook_that_tekton_can_run() {
    for (name, mut example) in document::examples() {
        let reference = example.spec.template_ref.take().unwrap();
        let mut arguments = reference.arguments;
        if name == OTHERWISE {
            arguments.retain(|a| a.name != "approve");
        }
        let task_ref = TaskRef {
            name: reference.name,
            arguments,
            ..TaskRef::default()
        };
        let key = TemplateKey::of_task(&task_ref);
        example.spec.task_ref = Some(task_ref);
        let templates = Templates([(key, Lookup::Found(task(&name)["spec"].clone()))].into());
        assert_eq!(Tekton.problem_of(&example, &templates), None, "{name}");
    }
}

#[test]
fn the_document_shows_a_hook_of_a_task() {
    let example = document::TEXT
        .split("```yaml\n")
        .filter_map(|rest| rest.split("```").next())
        .find(|block| block.contains("taskRef:"))
        .expect("an example with taskRef");
    let hook: openshift_upgrade_operator::api::UpgradeJobHook = serde_yaml::from_str(example).unwrap();
    let reference = hook.spec.task_ref.as_ref().unwrap();
    assert_eq!(
        reference.service_account_name,
        Some(format!("hook-{}", reference.name))
    );
    assert!(reference.timeout.is_some(), "people copy it");
    let templates = Templates(
        [(
            TemplateKey::of_task(reference),
            Lookup::Found(task(&reference.name)["spec"].clone()),
        )]
        .into(),
    );
    assert_eq!(Tekton.problem_of(&hook, &templates), None);
    for parameter in task(OTHERWISE)["spec"]["params"].as_array().unwrap() {
        let name = parameter["name"].as_str().unwrap();
        let text = document::sections()[OTHERWISE];
        assert!(
            name == "image" || text.contains(&format!("`{name}`")),
            "{name} is not documented"
        );
    }
}
