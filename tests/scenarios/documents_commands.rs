//! The commands of the documents for `oc` and `kubectl`, in blocks and in running text, as they stand there: against an upgrade
//! that failed and left a pool paused. What they write is only tried (`--dry-run=server`).
//!
//! The fields that they ask for are checked in `documents_paths.rs`. Those of `upgrade-operator` are parsed by
//! `src/cli_reference.rs`, and those of the quick start are followed by `tests/cluster_upgrade/quick_start.rs`.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    documents::{blocks, documents, objects},
    harness::{NAMESPACE, NIGHT, Scenario},
};

/// Commands that are not run here, by a part of their text, each with the reason.
const NOT_HERE: [(&str, &str); 14] = [
    ("oc adm ", "kubectl has no such command"),
    ("oc debug ", "the same"),
    ("port-forward", "a lane has no kubelet"),
    (
        "openshift-machine-config-operator logs",
        "its controller is simulated",
    ),
    ("logs deployment/workflow-controller", "it is a process here"),
    (
        "logs deployment/tekton-pipelines-controller",
        "this lane has no Tekton",
    ),
    ("get pipelineruns,customruns", "the same"),
    ("oc get customruns", "the same"),
    (
        "patch argocd openshift-gitops",
        "no lane has Argo CD's kinds; tests/argocd.rs reads the file",
    ),
    (
        "create namespace openshift-upgrade",
        "it is there; tests/cluster_upgrade/quick_start.rs makes it",
    ),
    (
        "get clusterversions.managedupgrade.appuio.io version",
        "it would change the channel; tests/scenarios/overlays.rs has one",
    ),
    (
        "scale deployment --all",
        "the peer is not installed; tests/scenarios/held.rs plays it",
    ),
    ("`oc get --show-managed-fields`", "a flag, and no whole command"),
    (
        "logs job/JOB",
        "a hook's Job that has failed may be gone; pods of a lane have no log",
    ),
];

/// What stands for a name of the reader's; the value for one page only comes before that for all.
fn names(job: &str, pod: &str, node: &str) -> Vec<(&'static str, &'static str, String)> {
    [
        ("docs/hook-library.md", "JOB", job),
        ("", "NAME", job),
        ("", "CONFIG", job),
        ("", "NAMESPACE", NAMESPACE),
        ("", "POD", pod),
        ("", "NODE", node),
        ("", "POOL", NIGHT),
        ("", "VERSION", "4.18.5"),
        ("", "KIND", "upgradeconfigs"),
    ]
    .map(|(page, name, value)| (page, name, value.to_owned()))
    .into()
}

/// One command, with all its lines.
pub struct Shown {
    /// Path of the file, and line.
    pub place: String,
    /// As it stands there.
    pub text: String,
}

/// Takes a script apart into commands.
fn commands(script: &str) -> Vec<String> {
    let (mut all, mut lines) = (Vec::new(), script.lines());
    while let Some(line) = lines.next() {
        let mut command = line.to_owned();
        while command.ends_with(['\\', '|']) || is_quote_open(&command) {
            let Some(next) = lines.next() else { break };
            command = command + "\n" + next;
        }
        if let Some((_, end)) = line.rsplit_once("<<") {
            for next in lines.by_ref() {
                command = command + "\n" + next;
                if next.trim() == end.trim() {
                    break;
                }
            }
        }
        all.push(command);
    }
    all
}

fn is_quote_open(command: &str) -> bool {
    command.matches('\'').count() % 2 == 1
}

fn calls_kubectl(text: &str) -> bool {
    let is_it = |word: &str| ["oc", "kubectl", "$(oc", "$(kubectl"].contains(&word);
    text.split_whitespace().any(is_it)
}

/// Code in running text that is a command.
fn in_text(file: &str, text: &str) -> Vec<Shown> {
    let mut is_block = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            let spans = line.split('`').skip(1).step_by(2);
            let is_command = |s: &&str| s.starts_with("oc ") || s.starts_with("kubectl ");
            found.extend(spans.filter(is_command).map(|span| Shown {
                place: format!("{file}:{number}"),
                text: format!("`{span}`"),
            }));
        }
    }
    found
}

/// Scripts of one or more commands that belong together.
pub fn scripts() -> Vec<Vec<Shown>> {
    let is_elsewhere = |place: &str| place.starts_with("docs/quick-start.md");
    let blocks = blocks().into_iter().filter(|b| b.info == "sh");
    let blocks = blocks.map(|b| {
        let shown = |text| Shown {
            place: b.place.clone(),
            text,
        };
        commands(&b.text).into_iter().map(shown).collect::<Vec<_>>()
    });
    let spans = documents()
        .into_iter()
        .flat_map(|(file, text)| in_text(&file, &text));
    let all = blocks.chain(spans.map(|shown| vec![shown]));
    all.filter(|script| script.iter().any(|c| calls_kubectl(c.text.trim_matches('`'))))
        .filter(|script| !is_elsewhere(&script[0].place))
        .collect()
}

/// Puts names in the place of what stands for them.
fn with_names(place: &str, text: &str, names: &[(&str, &str, String)]) -> String {
    let page = place.split(':').next().unwrap_or_default();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_part) {
        let (before, word) = rest.split_at(at);
        let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        let value = names
            .iter()
            .find(|(of, name, _)| (of.is_empty() || *of == page) && *name == word);
        result = result + before + value.map_or(word, |(_, _, value)| value);
        rest = after;
    }
    result + rest
}

/// A folder with the repository, in which a reader may write files, `oc` and `kubectl` that only try to write, and a `grep` that
/// may find nothing: pods of a lane have no log.
struct Folder(TempDir);

const GREP: &str = r#"#!/usr/bin/env bash
PATH=$REAL_PATH grep "$@"
code=$?
((code != 1)) || code=0
exit "$code"
"#;

/// Notes each call, and each that fails with what it said.
const SHIM: &str = r#"#!/usr/bin/env bash
verb='' before=''
for argument; do
    case $before:$argument in
        -n:* | --namespace:*) ;;
        *:-*) ;;
        *) verb=$argument && break ;;
    esac
    before=$argument
done
more=()
case $verb in
    annotate | apply | create | delete | label | patch) more=(--dry-run=server) ;;
    # A lane's pods have no log.
    logs) more=(--ignore-errors) ;;
esac
run=(env PATH="$REAL_PATH" kubectl "$@" "${more[@]}")
if [[ " $* " == *' --watch '* ]]; then
    # It goes on for ever: until it has shown a head and a line below it.
    exec {shown}< <(exec "${run[@]}" 2> >(tee "$RECORD.said" >&2))
    watch=$!
    code=0
    for line in 'a head' 'an object'; do
        read -r -t 60 -u "$shown" && continue
        code=1
        echo "the watch has not shown $line" | tee -a "$RECORD.said" >&2
        break
    done
    kill "$watch"
else
    "${run[@]}" 2> >(tee "$RECORD.said" >&2)
    code=$?
fi
echo "$*" >>"$RECORD.calls"
if ((code)); then
    wait
    { echo "$*"; cat "$RECORD.said"; } >>"$RECORD.failed"
fi
exit $code
"#;

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for part in ["charts", "crds", "deploy", "docs", "workflow-templates"] {
            std::os::unix::fs::symlink(root.join(part), folder.path().join(part)).unwrap();
        }
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for (name, program) in [("oc", SHIM), ("kubectl", SHIM), ("grep", GREP)] {
            fs::write(bin.join(name), program).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    /// Runs a script until a command of it fails, be it before a pipe; what was called, and what failed.
    fn run(&self, s: &Scenario, script: &str) -> (usize, String) {
        let record = self.0.path().join("record");
        let path = s.lane.variable("PATH");
        let bin = self.0.path().join("bin");
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(self.0.path())
            .env("KUBECONFIG", s.lane.variable("KUBECONFIG"))
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("REAL_PATH", path)
            .env("RECORD", &record)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let take = |what: &str| {
            let file = record.with_extension(what);
            let text = fs::read_to_string(&file).unwrap_or_default();
            // Not there: nothing was noted.
            let _ = fs::remove_file(file);
            text
        };
        let calls = take("calls").lines().count();
        let mut failed = take("failed");
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            failed = format!("{failed}{}: {said}", output.status);
        }
        (calls, failed)
    }
}

/// What a cluster has that a lane has not, as far as the commands name it.
async fn fixtures(s: &Scenario, job: &str) {
    for arguments in [
        "create namespace openshift-config",
        "create configmap admin-acks -n openshift-config",
        "create namespace argocd",
        "create configmap argocd-cm -n argocd",
        "create namespace openshift-gitops",
        "create namespace openshift-machine-api",
        "create namespace openshift-monitoring",
        // Made by what is applied with it, but not where that is only tried.
        "create namespace openshift-upgrade-backup",
    ] {
        s.lane.must(&arguments.split(' ').collect::<Vec<_>>());
    }
    let base = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/deploy/kustomize/operator.yaml"
    ))
    .unwrap();
    let is_deployment = |o: &Value| o["kind"] == "Deployment";
    let mut deployment = objects("the base", &base)
        .into_iter()
        .find(is_deployment)
        .unwrap();
    // A process is the operator here.
    deployment["spec"]["replicas"] = json!(0);
    // As kubectl would, or it would find the fields to be somebody else's.
    let applied = s
        .dynamic("apps/v1", "Deployment")
        .patch(
            "upgrade-operator",
            &PatchParams::apply("kubectl"),
            &Patch::Apply(&deployment),
        )
        .await;
    applied.unwrap();
    let file = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/examples/first-upgrade.yaml"
    ))
    .unwrap();
    let mut config = objects("the example", &file).remove(0);
    config["metadata"]["name"] = json!(job);
    config["spec"]["schedule"]["suspend"] = json!(true);
    s.create(&config).await;
    let window = json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
        "metadata": {"name": "end-of-year", "namespace": NAMESPACE},
        "spec": {"start": "2020-12-20T00:00:00Z", "end": "2021-01-04T00:00:00Z"},
    });
    s.create(&window).await;
}

/// Runs all commands of the documents; `job` has failed.
pub async fn all_are_understood(s: &Scenario, job: &str) {
    fixtures(s, job).await;
    let pods: Api<Pod> = Api::namespaced(s.client.clone(), NAMESPACE);
    let pod = pods.list(&ListParams::default()).await.unwrap().items[0].name_any();
    let names = names(job, &pod, "worker-0");
    let folder = Folder::new();
    let (mut ran, mut failures, mut left_out) = (0, Vec::new(), BTreeSet::new());
    for script in scripts() {
        let mut text = String::new();
        for shown in &script {
            let reason = NOT_HERE.iter().find(|(part, _)| shown.text.contains(part));
            left_out.extend(reason.map(|(part, _)| *part));
            let command = shown.text.trim_matches('`');
            let is_ours = calls_kubectl(command) || command.contains("=20");
            if reason.is_none() && is_ours {
                text = text + &with_names(&shown.place, command, &names) + "\n";
            }
        }
        if !calls_kubectl(&text) {
            continue;
        }
        let (calls, failed) = folder.run(s, &text);
        let place = &script[0].place;
        assert!(calls > 0, "{place}: nothing was called:\n{text}");
        ran += calls;
        if !failed.is_empty() {
            failures.push(format!("--- {place}\n{failed}\n"));
        }
    }
    assert!(
        failures.is_empty(),
        "commands of the documents that fail:
{}",
        failures.concat()
    );
    let listed: BTreeSet<&str> = NOT_HERE.iter().map(|(part, _)| *part).collect();
    assert_eq!(left_out, listed, "commands that are not run here");
    println!("{ran} commands of the documents were understood");
    assert!(ran >= 70, "only {ran} commands are left");
}
