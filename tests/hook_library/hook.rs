//! A template of the library, run by Argo as the operator would have it run: inlined, with the environment of hooks, and
//! again when its pod was killed.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, LogParams, PostParams},
};
use openshift_upgrade_operator::{
    api::{UpgradeJob, upgrade_job_hook::HookEvent},
    hooks::environment::{self, Event},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, wait_for};

/// A hook may take as long on a busy machine; at ease they take seconds.
pub const SOON: Duration = Duration::from_secs(300);

/// Where the library is.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("workflow-templates/hooks/argo")
}

/// The documents of a file of the library.
pub fn documents(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder().join(file)).unwrap();
    serde_yaml::Deserializer::from_str(&text)
        .map(|d| Value::deserialize(d).unwrap())
        .collect()
}

/// The templates of a WorkflowTemplate.
pub fn templates(name: &str) -> Vec<Value> {
    let documents = documents(&format!("{name}.yaml"));
    let found = documents
        .iter()
        .find(|d| d["kind"] == "WorkflowTemplate")
        .unwrap();
    found["spec"]["templates"].as_array().unwrap().clone()
}

/// A hook of an UpgradeJob.
pub struct Hook {
    template: &'static str,
    event: Event,
    job: UpgradeJob,
    arguments: BTreeMap<&'static str, String>,
    /// Variables that the cluster would set.
    variables: BTreeMap<&'static str, String>,
}

impl Hook {
    /// For this event of the job with this UID.
    pub fn new(template: &'static str, event: HookEvent, uid: &str) -> Self {
        let ended = matches!(event, HookEvent::Success | HookEvent::Failure | HookEvent::Finish);
        let time = "2026-11-24T21:00:00Z";
        let condition = |type_| json!({"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": time});
        let mut conditions = vec![condition("Started")];
        if ended {
            conditions.push(condition("Succeeded"));
        }
        let job = serde_json::from_value(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1",
            "kind": "UpgradeJob",
            "metadata": {"name": format!("cluster-upgrade-{uid}"), "namespace": NAMESPACE, "uid": uid},
            "spec": {
                "startAfter": time,
                "startBefore": "2026-11-24T22:00:00Z",
                "desiredVersion": {"version": "4.18.5", "image": "quay.io/ocp@sha256:1234"},
            },
            "status": {"conditions": conditions},
        }))
        .unwrap();
        let event = Event {
            name: event,
            time: time.parse::<Timestamp>().unwrap(),
            reason: "Reason".to_owned(),
            // What a shell, JSON, Slack and the kubelet could stumble over.
            message: NASTY.to_owned(),
            pool: (event == HookEvent::MachineConfigPoolUnpause).then(|| "worker".to_owned()),
        };
        Self {
            template,
            event,
            job,
            arguments: BTreeMap::new(),
            variables: BTreeMap::new(),
        }
    }

    /// With an argument.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.arguments.insert(name, value.into());
        self
    }

    /// With another value of a variable that the cluster sets.
    pub fn with_variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    /// The event, and the job.
    pub fn happened(&self) -> (&Event, &UpgradeJob) {
        (&self.event, &self.job)
    }

    /// The workflow that the operator would make of it: the template's own text, and our wrapper for its arguments.
    fn workflow(&self) -> Value {
        let variables = environment::variables(&self.event, &self.job, false).vars;
        let mut templates = templates(self.template);
        for container in templates.iter_mut().filter_map(|t| t.get_mut("container")) {
            let list = container["env"].as_array_mut().unwrap();
            list.extend(variables.iter().map(|v| serde_json::to_value(v).unwrap()));
            let others = self.variables.iter();
            list.extend(others.map(|(name, value)| json!({"name": name, "value": value})));
        }
        for leaf in templates.iter_mut().filter(|t| t.get("container").is_some()) {
            leaf["retryStrategy"] = json!({
                "limit": 3,
                "retryPolicy": "Always",
                "expression": "lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [137, 143]",
            });
        }
        let mut arguments = self.arguments.clone();
        arguments
            .entry("image")
            .or_insert_with(|| "localhost/openshift-tools:test".to_owned());
        let parameters: Vec<Value> = arguments
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        templates.push(json!({"name": "run", "dag": {"tasks": [
            {"name": "hook", "template": self.template, "arguments": {"parameters": parameters}},
        ]}}));
        json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"generateName": format!("{}-", self.template), "namespace": NAMESPACE},
            "spec": {"entrypoint": "run", "serviceAccountName": "upgrade-workflow", "templates": templates},
        })
    }

    /// Starts it.
    pub async fn start<'a>(&self, cluster: &'a Cluster) -> Run<'a> {
        let workflow: DynamicObject = serde_json::from_value(self.workflow()).unwrap();
        let made = cluster
            .workflows()
            .create(&PostParams::default(), &workflow)
            .await
            .unwrap();
        Run {
            cluster,
            name: made.name_any(),
            killed: None,
        }
    }

    /// Runs it to its end.
    pub async fn run(&self, cluster: &Cluster) -> Ended {
        self.start(cluster).await.end().await
    }
}

/// A message with what a shell, JSON, Slack and the kubelet could stumble over.
pub const NASTY: &str = "it's \"quoted\" & <b>, $HOME $(EVENT) `id` \\n {x}";

/// A hook that was started.
pub struct Run<'a> {
    cluster: &'a Cluster,
    pub name: String,
    /// The pod that was killed.
    killed: Option<String>,
}

/// How a hook ended.
#[derive(Debug)]
pub struct Ended {
    /// The phase of the workflow.
    pub phase: String,
    /// What Argo shows at the nodes of pods and approvals: display name, phase, message.
    pub nodes: Vec<(String, String, String)>,
    /// What all pods wrote.
    pub log: String,
    /// Whether a pod was killed, and another one did it.
    was_done_by_another: bool,
}

impl Run<'_> {
    async fn status(&self) -> Value {
        let workflow = self.cluster.workflows().get(&self.name).await.unwrap();
        workflow.data["status"].clone()
    }

    /// Pods that are not on their way out.
    async fn pods(&self) -> Vec<Pod> {
        let ours = ListParams::default().labels(&format!("workflows.argoproj.io/workflow={}", self.name));
        self.cluster.pods(NAMESPACE).list(&ours).await.unwrap().items
    }

    /// The log of the main containers that are there.
    pub async fn log(&self) -> String {
        let mut all = String::new();
        for pod in self.pods().await {
            let main = LogParams {
                container: Some("main".to_owned()),
                ..LogParams::default()
            };
            // A container that has not begun has none.
            all += &self
                .cluster
                .pods(NAMESPACE)
                .logs(&pod.name_any(), &main)
                .await
                .unwrap_or_default();
        }
        all
    }

    /// Waits until it has said this.
    pub async fn says(&self, text: &str) {
        wait_for(&format!("{} says '{text}'", self.name), SOON, async || {
            self.log().await.contains(text).then_some(())
        })
        .await;
    }

    /// Deletes its pod, as a drain does.
    pub async fn kill(&mut self) {
        let api = self.cluster.pods(NAMESPACE);
        let running = |p: &Pod| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        let pod = wait_for(&format!("{} is at work", self.name), SOON, async || {
            self.pods().await.into_iter().find(running)
        })
        .await;
        println!("killing {}", pod.name_any());
        self.killed = pod.uid();
        api.delete(&pod.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Waits until a node waits for an answer.
    pub async fn asks(&self) {
        wait_for(&format!("{} asks", self.name), SOON, async || {
            let status = self.status().await;
            let mut nodes = status["nodes"].as_object()?.values();
            nodes
                .any(|n| n["type"] == "Suspend" && n["phase"] == "Running")
                .then_some(())
        })
        .await;
    }

    /// Waits for its end.
    pub async fn end(&self) -> Ended {
        let status = wait_for(&format!("{} ends", self.name), SOON, async || {
            let status = self.status().await;
            matches!(status["phase"].as_str(), Some("Succeeded" | "Failed" | "Error")).then_some(status)
        })
        .await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let nodes = status["nodes"]
            .as_object()
            .unwrap()
            .values()
            .filter(|n| n["type"] == "Pod" || n["type"] == "Suspend")
            .map(|n| (text(&n["displayName"]), text(&n["phase"]), text(&n["message"])))
            .collect();
        let last = self.pods().await.into_iter().find(|p| p.uid() != self.killed);
        let ended = Ended {
            was_done_by_another: self.killed.is_some() && last.is_some(),
            phase: text(&status["phase"]),
            nodes,
            log: self.log().await,
        };
        println!("{}: {ended:#?}", self.name);
        ended
    }
}

impl Ended {
    pub fn succeeded(&self) -> &Self {
        assert_eq!(self.phase, "Succeeded", "{self:#?}");
        self
    }

    /// It succeeded, by another pod than the one that was killed. Argo shows the killed one as a try of its own, or, if it
    /// was younger than 10 s, makes it again without a word.
    pub fn was_killed_once(&self) -> &Self {
        self.succeeded();
        assert!(self.was_done_by_another, "{self:#?}");
        let mut phases: Vec<_> = self.nodes.iter().map(|n| n.1.as_str()).collect();
        phases.sort_unstable();
        assert!(
            matches!(phases[..], ["Error" | "Failed", "Succeeded"] | ["Succeeded"]),
            "one pod was killed, and one succeeded: {:?}",
            self.nodes
        );
        self
    }

    /// It failed once, with this exit code and a message with all of these at the node.
    pub fn failed(&self, code: u8, texts: &[&str]) -> &Self {
        let bad: Vec<_> = self.nodes.iter().filter(|n| n.1 == "Failed").collect();
        assert_eq!(bad.len(), 1, "one try: {self:#?}");
        let message = &bad[0].2;
        assert!(
            message.contains(&format!("(exit code {code})")),
            "exit code {code}: {message}"
        );
        for text in texts {
            assert!(message.contains(text), "'{text}' is not in: {message}");
        }
        self
    }

    pub fn said(&self, text: &str) -> &Self {
        assert!(
            self.log.contains(text),
            "'{text}' is not in the log:\n{}",
            self.log
        );
        self
    }
}
