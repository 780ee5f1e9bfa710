//! The rules that all templates keep, and that docs/hook-library.md says what they are. Needs no cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use openshift_upgrade_operator::engine::{
    Engine, Templates,
    argo::Argo,
    native::{Lookup, TemplateKey},
};

use crate::{
    document,
    hook::{documents, folder, templates},
};

const IMAGE: &str = "image-registry.openshift-image-registry.svc:5000/openshift/tools:latest";

/// Names of the templates: all files of the folder but the one that is none.
pub fn names() -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap().map(|f| f.unwrap().path());
    let names: BTreeSet<String> = files
        .map(|f| f.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|n| n != "kustomization")
        .collect();
    assert!(names.len() >= 9, "{names:?}");
    names
}

/// Parameters of the template that a hook names, with their defaults.
pub fn parameters(name: &str) -> BTreeMap<String, Option<String>> {
    let all = templates(name);
    let entry = all.iter().find(|t| t["name"] == name).unwrap();
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let parameters = entry["inputs"]["parameters"].as_array().unwrap();
    parameters
        .iter()
        .map(|p| (text(&p["name"]).unwrap(), text(&p["value"])))
        .collect()
}

/// The templates that are a pod, of all files: file and template.
fn pods() -> Vec<(String, Value)> {
    let of = |name: String| {
        let pods = templates(&name)
            .into_iter()
            .filter(|t| t.get("container").is_some());
        pods.map(|t| (name.clone(), t)).collect::<Vec<_>>()
    };
    names().into_iter().flat_map(of).collect()
}

#[test]
fn all_of_them_are_applied_together() {
    let resources: BTreeSet<String> = documents("kustomization.yaml")[0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r.as_str().unwrap().trim_end_matches(".yaml").to_owned())
        .collect();
    let mut expected = names();
    expected.insert("../library".to_owned());
    assert_eq!(resources, expected);
}

#[test]
fn each_file_is_one_template_of_its_name_and_says_what_one_must_know() {
    for name in names() {
        let all = documents(&format!("{name}.yaml"));
        let found: Vec<&Value> = all.iter().filter(|d| d["kind"] == "WorkflowTemplate").collect();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(found[0]["metadata"]["name"], json!(name));
        assert_eq!(found[0]["spec"]["entrypoint"], json!(name));
        assert_eq!(parameters(&name)["image"].as_deref(), Some(IMAGE), "{name}");
        for document in &all {
            let kind = document["kind"].as_str().unwrap();
            let of_cluster = kind.starts_with("Cluster") || kind == "Namespace";
            assert_eq!(
                document["metadata"]["namespace"].is_string(),
                !of_cluster,
                "{name}: a {kind} has its namespace"
            );
        }

        let text = fs::read_to_string(folder().join(format!("{name}.yaml"))).unwrap();
        let head: String = text.lines().take_while(|l| l.starts_with('#')).collect();
        for part in ["When: ", "Parameters:", "Rights: ", "Twice: "] {
            assert!(head.contains(part), "{name} does not say '{part}'");
        }
        for parameter in parameters(&name).keys() {
            assert!(
                head.contains(parameter.as_str()),
                "{name} does not say what {parameter} is"
            );
        }
    }
}

#[test]
fn each_pod_is_restricted_bounded_and_has_an_account_of_its_own() {
    for (file, pod) in pods() {
        let place = format!("{file}, template {}", pod["name"]);
        let container = &pod["container"];
        assert_eq!(
            container["securityContext"],
            json!({
                "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
            "{place}"
        );
        for request in ["cpu", "memory"] {
            assert!(container["resources"]["requests"][request].is_string(), "{place}");
        }
        assert!(
            pod["activeDeadlineSeconds"].as_i64().is_some_and(|s| s > 0),
            "{place}"
        );
        assert!(
            pod.get("retryStrategy").is_none(),
            "{place}: the operator adds it"
        );
        assert_eq!(container["image"], "{{inputs.parameters.image}}", "{place}");
        assert_eq!(
            container["command"],
            json!(["bash", "-eu", "-o", "pipefail", "-c"]),
            "{place}"
        );

        let account = json!(format!("hook-{file}"));
        assert_eq!(pod["serviceAccountName"], account, "{place}");
        let all = documents(&format!("{file}.yaml"));
        assert!(
            all.iter()
                .any(|d| d["kind"] == "ServiceAccount" && d["metadata"]["name"] == account),
            "{place}"
        );
        let executor = |d: &&Value| d["kind"] == "RoleBinding" && d["roleRef"]["name"] == "upgrade-workflow";
        let bound = all
            .iter()
            .find(executor)
            .unwrap_or_else(|| panic!("{place}: Argo's executor may do nothing"));
        assert_eq!(bound["subjects"][0]["name"], account, "{place}");
    }
}

#[test]
fn values_reach_the_scripts_as_environment_only() {
    for (file, pod) in pods() {
        let script = pod["container"]["args"][0].as_str().unwrap();
        assert!(!script.contains("{{"), "{file}: Argo would write into the script");
        // The kubelet makes one of it.
        assert!(!script.contains("$$"), "{file}");
        for variable in pod["container"]["env"].as_array().unwrap() {
            let name = variable["name"].as_str().unwrap();
            for taken in ["EVENT", "JOB", "META"] {
                assert!(!name.starts_with(taken), "{file}: {name} is the operator's");
            }
            // `$(NAME)` in a script would be replaced by the kubelet.
            assert!(!script.contains(&format!("$({name})")), "{file}: $({name})");
        }
    }
}

#[test]
fn every_script_parses() {
    let mut scripts: Vec<(String, String)> = Vec::new();
    for (file, pod) in pods() {
        scripts.push((
            file.clone(),
            pod["container"]["args"][0].as_str().unwrap().to_owned(),
        ));
        let variables = pod["container"]["env"].as_array().unwrap().clone();
        let on_node = variables.into_iter().find(|v| v["name"] == "ON_NODE");
        scripts.extend(on_node.map(|v| (file, v["value"].as_str().unwrap().to_owned())));
    }
    let library = &documents("../library/library.yaml")[0]["data"];
    for (name, script) in library.as_object().unwrap() {
        scripts.push((name.clone(), script.as_str().unwrap().to_owned()));
    }
    for (name, script) in scripts {
        let mut bash = Command::new("bash")
            .arg("-n")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(bash.wait().unwrap().success(), "{name}");
    }
}

#[test]
fn each_template_is_documented_with_all_its_parameters() {
    let sections = document::sections();
    assert_eq!(sections.keys().cloned().collect::<BTreeSet<_>>(), names());
    for (name, text) in &sections {
        assert!(
            document::TEXT.contains(&format!("| [`{name}`](#{name}) |")),
            "{name} is not in the table"
        );
        let documented: BTreeSet<&str> = text
            .lines()
            .filter_map(|l| l.strip_prefix("| `")?.split_once('`'))
            .map(|(parameter, _)| parameter)
            .collect();
        let parameters = parameters(name);
        let expected: BTreeSet<&str> = parameters
            .keys()
            .map(String::as_str)
            .filter(|p| *p != "image")
            .collect();
        assert_eq!(documented, expected, "parameters of {name}");
        for part in ["Rights: ", "In Argo: ", "It fails "] {
            assert!(text.contains(part), "{name} does not say '{part}'");
        }
    }
}

#[test]
fn each_example_is_a_hook_that_argo_can_run() {
    for (name, example) in document::examples() {
        let of = TemplateKey::of(example.spec.template_ref.as_ref().unwrap());
        assert_eq!(of.to_string(), format!("WorkflowTemplate {name}"));
        let file = documents(&format!("{name}.yaml"));
        let template = file.iter().find(|d| d["kind"] == "WorkflowTemplate").unwrap();
        let templates = Templates([(of, Lookup::Found(template["spec"].clone()))].into());
        assert_eq!(Argo.problem_of(&example, &templates), None, "{name}");
    }
}
