//! Tekton's webhook is not on the test cluster. What it would say of the objects that Tekton gets from us, says
//! `tekton-validate` of the test cluster, which is made of Tekton's own API packages.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use openshift_upgrade_operator::{
    api::{UpgradeJob, UpgradeJobHook, upgrade_job_hook::HookEvent},
    hooks::{environment::Event, run::Settings, task_run},
};
use serde_json::{Value, json};

use crate::cluster::object;

/// Whether Tekton takes all objects of these files, and what it says.
fn validate(files: &[PathBuf]) -> (bool, String) {
    let output = Command::new("tekton-validate").args(files).output();
    let output = output.expect("tekton-validate, which is in PATH by tests/cluster/lane env");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("reading {}: {e}", folder.display()));
    let files = entries.map(|e| e.unwrap().path());
    files
        .filter(|f| f.extension().is_some_and(|e| e == "yaml"))
        .collect()
}

/// The TaskRun of a hook with this `taskRef`, as the operator makes it.
fn task_run_of(name: &str, task: &Value) -> String {
    let job: UpgradeJob = object(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
        "metadata": {"name": "cluster-upgrade", "namespace": "upgrades", "uid": "u"},
        "spec": {
            "startAfter": "2026-11-24T21:00:00Z", "startBefore": "2026-11-24T22:00:00Z",
            "desiredVersion": {"version": "4.18.5 $(params.none)"},
        },
    }));
    let hook: UpgradeJobHook = object(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": "upgrades"},
        "spec": {"events": ["Start"], "taskRef": task},
    }));
    let event = Event {
        name: HookEvent::Start,
        time: "2026-11-24T21:00:00Z".parse().unwrap(),
        reason: "Started".to_owned(),
        message: "the time has come".to_owned(),
        pool: None,
    };
    let task = hook.spec.task_ref.as_ref().unwrap();
    let run = task_run::build(&hook, task, &event, &job, "", &Settings::default(), Some("hooks"));
    serde_yaml::to_string(&run.unwrap()).unwrap()
}

/// The texts as files of a folder that goes away with what is returned first.
fn written(texts: &[(&str, String)]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let files = texts.iter().map(|(name, text)| {
        let file = folder.path().join(format!("{name}.yaml"));
        fs::write(&file, text).unwrap();
        file
    });
    let files = files.collect();
    (folder, files)
}

#[test]
#[ignore = "needs tekton-validate of the test cluster"]
fn tekton_takes_every_pipeline_run_task_run_and_task_of_ours() {
    let here = json!({"name": "notify", "retries": 2, "timeout": "90m", "serviceAccountName": "mine",
        "arguments": [{"name": "channel", "value": "#ops $(x)"}, {"name": "empty", "value": ""}]});
    let runs = [
        ("here", &here),
        ("elsewhere", &json!({"name": "notify", "namespace": "ops"})),
    ];
    let (_folder, mut files) = written(&runs.map(|(name, task)| (name, task_run_of(name, task))));
    files.extend(yaml_files("tests/golden/tekton"));
    files.extend(yaml_files("workflow-templates/hooks/tekton"));
    let (valid, said) = validate(&files);
    assert!(valid, "{said}");
    for file in &files {
        // A folder of the library also says which files it has, for kustomize.
        let is_told = said.contains(&format!("{}: ", file.display()));
        assert_eq!(
            is_told,
            !file.ends_with("kustomization.yaml"),
            "{}: {said}",
            file.display()
        );
    }
    for kind in [
        "PipelineRun cluster-upgrade-",
        "TaskRun cluster-upgrade-",
        "Task etcd-backup",
    ] {
        assert!(said.contains(&format!(": {kind}")), "{kind}: {said}");
    }
}

/// Else the test above could pass over anything.
#[test]
#[ignore = "needs tekton-validate of the test cluster"]
fn tekton_refuses_what_is_wrong_and_names_the_field() {
    let run = task_run_of("here", &json!({"name": "notify", "timeout": "90m"}));
    let mut twice: Value = serde_yaml::from_str(&run).unwrap();
    twice["spec"]["params"] = json!([{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]);
    let (_folder, files) = written(&[
        ("unknown", run.replace("taskRef:", "taskReference:")),
        ("negative", run.replace("1h30m", "-1h30m")),
        ("twice", twice.to_string()),
        ("broken", "kind: [".to_owned()),
    ]);
    for (file, expected) in
        files
            .iter()
            .zip(["\"taskReference\"", "spec.timeout", "spec.params[a].name", "yaml"])
    {
        let (valid, said) = validate(std::slice::from_ref(file));
        assert!(!valid, "{said}");
        let told = said.starts_with(&format!("{}: ", file.display())) && said.contains(expected);
        assert!(told, "{expected}: {said}");
    }
    assert!(!validate(&[PathBuf::from("nowhere.yaml")]).0);
}
