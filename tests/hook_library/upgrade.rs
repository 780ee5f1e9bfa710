//! The operator itself runs the library: the hooks of the document in one run.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use openshift_upgrade_operator::api::{
    UpgradeJob, UpgradeJobHook,
    upgrade_job::{HookState, JobPhase},
    upgrade_job_hook::{Argument, HookEvent},
};
use serde_json::{Value, json};

use crate::{
    alerts, argocd,
    backup::Node,
    capacity,
    cluster::{Cluster, NAMESPACE, command, unique, wait_for},
    document,
    outside::{ALERTMANAGER, Answer, Recorder, silences},
};

/// Starting, waiting for hooks, ending them: minutes on a busy machine.
const RUN: Duration = Duration::from_secs(600);

/// The hooks of the document for the job of this name, with these arguments besides their own.
fn hooks(job: &str, arguments: &BTreeMap<&str, Vec<(&str, String)>>) -> Vec<UpgradeJobHook> {
    let for_job = |(template, mut hook): (String, UpgradeJobHook)| {
        hook.metadata.name = Some(unique(&hook.name_any()));
        hook.spec.selector = serde_json::from_value(json!({"matchLabels": {"test": job}})).unwrap();
        let given = &mut hook.spec.template_ref.as_mut().unwrap().arguments;
        let image = [("image", "localhost/openshift-tools:test".to_owned())];
        let others = arguments.get(template.as_str()).cloned().unwrap_or_default();
        for (name, value) in others.into_iter().chain(image) {
            given.retain(|a| a.name != name);
            given.push(Argument {
                name: name.to_owned(),
                value,
            });
        }
        hook
    };
    document::examples().into_iter().map(for_job).collect()
}

/// A run without an update, due now: hooks, health checks and pools.
fn job(name: &str) -> UpgradeJob {
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    let end = now.checked_add(SignedDuration::from_hours(1)).unwrap();
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"test": name}},
        "spec": {
            "startAfter": now.to_string(), "startBefore": end.to_string(),
            "config": {"upgradeTimeout": "30m", "preUpgradeHealthChecks": {"timeout": "5m"}, "postUpgradeHealthChecks": {"timeout": "5m"}},
        },
    }))
    .unwrap()
}

/// The name of the workflow that waits for an approval.
async fn asking(cluster: &Cluster, job: &str) -> Option<String> {
    let name = format!("{job}-run-");
    let all = cluster
        .workflows()
        .list(&kube::api::ListParams::default())
        .await
        .unwrap();
    let asks = |node: &Value| {
        node["displayName"] == "approval" && node["type"] == "Suspend" && node["phase"] == "Running"
    };
    all.into_iter()
        .find(|w| {
            let mut nodes = w.data["status"]["nodes"].as_object().into_iter().flatten();
            w.name_any().starts_with(&name) && nodes.any(|(_, node)| asks(node))
        })
        .map(|w| w.name_any())
}

fn is_over(job: &UpgradeJob) -> bool {
    let Some(status) = &job.status else { return false };
    status.finished_at.is_some()
        && status.hook_tracker.iter().all(|h| h.status != HookState::Active)
        && matches!(
            status.workflow.as_ref().and_then(|w| w.phase.as_deref()),
            Some("Succeeded" | "Failed" | "Error")
        )
}

/// What the hooks are pointed at.
struct Targets {
    /// The job's name, which Application and MachineSet have as well.
    name: String,
    webhook: Recorder,
    node: Node,
}

impl Targets {
    async fn new(cluster: &Cluster) -> Self {
        let targets = Self {
            name: unique("library"),
            webhook: Recorder::start(&[Answer::Status(200)]).await,
            node: Node::new(),
        };
        let name = &targets.name;
        cluster.secret(name, &targets.webhook.url()).await;
        argocd::make(cluster, name, &[(name, json!({"automated": {"prune": true}}))]).await;
        capacity::make(cluster, name, 1, json!({})).await;
        targets
    }

    /// Arguments of the templates that are not for everywhere.
    fn arguments(&self) -> BTreeMap<&'static str, Vec<(&'static str, String)>> {
        let name = &self.name;
        let alertmanager = vec![
            ("url", ALERTMANAGER.to_owned()),
            ("ca-file", alerts::CA_FILE.to_owned()),
        ];
        let applications = ("selector", format!("test={name}"));
        let machine_set = vec![("machineset", name.clone())];
        BTreeMap::from([
            ("notify-webhook", vec![("secret", name.clone())]),
            ("silence-alerts", alertmanager.clone()),
            ("unsilence-alerts", alertmanager),
            (
                "etcd-backup",
                vec![("root", self.node.root()), ("node", "real-0".to_owned())],
            ),
            (
                "pause-argocd",
                vec![applications.clone(), ("settle", "1s".to_owned())],
            ),
            ("resume-argocd", vec![applications]),
            ("add-capacity", machine_set.clone()),
            ("remove-capacity", machine_set),
        ])
    }

    /// Everything was prepared; only the nodes are not there yet, and the approval.
    async fn are_prepared(&self, cluster: &Cluster, uid: &str) -> bool {
        argocd::state(cluster, &self.name).await[&self.name].0["automated"].is_null()
            && capacity::state(cluster, &self.name).await.0 == 2
            && silences(uid).len() == 1
    }

    async fn assert_given_back(&self, cluster: &Cluster, uid: &str) {
        assert_eq!(silences(uid), Vec::<Value>::new());
        let automated = (json!({"automated": {"prune": true}}), None);
        assert_eq!(argocd::state(cluster, &self.name).await[&self.name], automated);
        assert_eq!(capacity::state(cluster, &self.name).await, (1, None));
    }

    fn assert_told(&self) {
        let text = |body: &str| serde_json::from_str::<Value>(body).unwrap()["text"].clone();
        let told: Vec<Value> = self.webhook.seen().iter().map(|s| text(&s.body)).collect();
        assert_eq!(told.len(), 3, "Create, Start and Finish: {told:#?}");
        let last = told[2].as_str().unwrap();
        assert!(
            last.ends_with(": maintenance without upgrade succeeded"),
            "{told:#?}"
        );
    }
}

/// Each hook ran at its events, and none failed.
fn assert_all_ran(job: &UpgradeJob) {
    let status = job.status.as_ref().unwrap();
    let bad: Vec<_> = status
        .hook_tracker
        .iter()
        .filter(|h| h.status != HookState::Complete)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let count = |event| {
        status
            .hook_tracker
            .iter()
            .filter(|h| h.hook_event == event)
            .count()
    };
    let counts = [
        HookEvent::Create,
        HookEvent::Start,
        HookEvent::Failure,
        HookEvent::Finish,
    ]
    .map(count);
    assert_eq!(counts, [1, 6, 0, 4], "{:#?}", status.hook_tracker);
    assert_eq!(
        status.phase,
        Some(JobPhase::Succeeded),
        "{:#?}",
        status.conditions
    );
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn the_operator_runs_the_hooks_of_the_document() {
    let cluster = Cluster::ready().await;
    let targets = Targets::new(&cluster).await;
    let name = &targets.name;
    let hooks = hooks(name, &targets.arguments());
    let api: Api<UpgradeJobHook> = cluster.ours();
    for hook in &hooks {
        api.create(&PostParams::default(), hook).await.unwrap();
    }
    let jobs: Api<UpgradeJob> = cluster.ours();
    let made = jobs.create(&PostParams::default(), &job(name)).await.unwrap();
    let uid = made.uid().unwrap();

    let workflow = wait_for("the run asks for an approval", RUN, async || {
        asking(&cluster, name).await
    })
    .await;
    wait_for(
        "alerts are silent, Argo CD rests, a node is asked for",
        RUN,
        async || targets.are_prepared(&cluster, &uid).await.then_some(()),
    )
    .await;
    capacity::set_ready(&cluster, name, 2).await;
    let approval = ["--node-field-selector", "displayName=approval"];
    command(
        "argo",
        &[
            "--namespace",
            NAMESPACE,
            "resume",
            &workflow,
            approval[0],
            approval[1],
        ],
    );

    let job = wait_for("the run ends", RUN, async || {
        Some(jobs.get(name).await.unwrap()).filter(is_over)
    })
    .await;
    assert_all_ran(&job);
    targets.assert_given_back(&cluster, &uid).await;
    targets.assert_told();
    assert_eq!(targets.node.backups().len(), 1);
    for hook in &hooks {
        api.delete(&hook.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }
}
