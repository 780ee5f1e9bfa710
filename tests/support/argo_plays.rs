//! Workflows that are played on a workflow controller, the real one or our stand-in, and what each then records.
//!
//! A play is a plan, and moves: what is written to the workflow, and how it looks once the controller has dealt with that.
//! The recording has everything that the controller writes but times: phases, messages, and all nodes with their types,
//! templates, children, inputs and outputs. Both controllers must give the same, `tests/golden/argo-stand-in/`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::{
    api::{UpgradeJob, UpgradeJobHook, job_config::WorkflowConfig},
    engine::{Engine, NodePhase, Report, RunContext, Write, argo::Argo, native::NO_TEMPLATES},
    openshift::machine_config_pool::MachineConfigPool,
    plan::{Plan, build},
};
use serde_json::{Map, Value, json};

pub const NAMESPACE: &str = "default";
/// Polls without a change after which a workflow is taken down: the controller is done with it. It begins a second after a change,
/// and later on a busy machine; nothing tells whether it has.
const QUIET: u32 = 30;
const POLL: Duration = Duration::from_millis(100);
/// Polls without a change after which the controller has no look at the workflow under way (it waits for a second at most),
/// and is woken, as the operator does with one that was stopped: see `wake` of the engine.
const FORGOTTEN: u32 = 100;

/// What is done to a workflow.
#[derive(Clone, Debug)]
pub enum Move {
    /// The operator reports on steps, as it does.
    Report(Vec<(String, Report)>),
    /// The operator stops the workflow, as it does.
    Stop,
    /// The operator wakes the controller, as it does.
    Wake,
    /// Somebody changes the spec.
    Spec(Value),
}

/// A move, and the steps that wait for the operator then; `None` once the workflow has ended.
#[derive(Clone, Debug)]
pub struct Turn {
    doing: Move,
    waiting: Option<Vec<&'static str>>,
}

/// A workflow and what happens to it.
pub struct Play {
    /// Its name: that of the workflow and of the golden file.
    pub name: &'static str,
    plan: Plan,
    job: UpgradeJob,
    /// The steps that wait first.
    first: Vec<&'static str>,
    turns: Vec<Turn>,
}

fn ok(steps: &[&str]) -> Move {
    let report = |s: &&str| ((*s).to_owned(), Report::Succeeded(format!("{s} is done")));
    Move::Report(steps.iter().map(report).collect())
}

fn fails(step: &str) -> Move {
    Move::Report(vec![(
        step.to_owned(),
        Report::Failed(format!("{step} has failed")),
    )])
}

fn says(step: &str, text: &str) -> Move {
    Move::Report(vec![(step.to_owned(), Report::Message(text.to_owned()))])
}

fn turn(doing: Move, waiting: &[&'static str]) -> Turn {
    Turn {
        doing,
        waiting: Some(waiting.to_vec()),
    }
}

fn ends(doing: Move) -> Turn {
    Turn { doing, waiting: None }
}

/// To the point where a branch waits for the night.
fn until_held() -> Vec<Turn> {
    vec![
        turn(ok(&["hook-start-a"]), &["hook-start-b"]),
        turn(ok(&["hook-start-b"]), &["hooks-start"]),
        turn(ok(&["hooks-start"]), &["pre-health-check"]),
        turn(
            says("pre-health-check", "operator etcd is degraded"),
            &["pre-health-check"],
        ),
        turn(ok(&["pre-health-check"]), &["pause-pools"]),
        turn(ok(&["pause-pools"]), &["set-desired-update"]),
        turn(ok(&["set-desired-update"]), &["await-control-plane"]),
        turn(ok(&["await-control-plane"]), &["await-pools", "hold-infra"]),
    ]
}

/// After the main part has succeeded.
fn exit_of_a_success() -> Vec<Turn> {
    vec![
        turn(ok(&["release"]), &["hook-finish-b", "hook-success-a"]),
        turn(ok(&["hook-success-a"]), &["hook-finish-b", "hooks-success"]),
        turn(ok(&["hooks-success", "hook-finish-b"]), &["hooks-finish"]),
        ends(ok(&["hooks-finish"])),
    ]
}

/// After the main part has failed.
fn exit_of_a_failure() -> Vec<Turn> {
    vec![
        turn(ok(&["release"]), &["hook-finish-b", "hooks-failure"]),
        turn(ok(&["hooks-failure"]), &["hook-finish-b"]),
        turn(ok(&["hook-finish-b"]), &["hooks-finish"]),
        ends(ok(&["hooks-finish"])),
    ]
}

fn success() -> Vec<Turn> {
    let held = vec![
        turn(ok(&["await-pools"]), &["hold-infra", "post-health-check"]),
        turn(
            says("hold-infra", "until 23:00"),
            &["hold-infra", "post-health-check"],
        ),
        turn(
            ok(&["post-health-check", "hold-infra"]),
            &["hooks-unpause-infra", "hooks-upgrade-complete"],
        ),
        turn(
            ok(&["hooks-unpause-infra"]),
            &["hooks-upgrade-complete", "unpause-infra"],
        ),
        turn(ok(&["hooks-upgrade-complete"]), &["unpause-infra"]),
        turn(ok(&["unpause-infra"]), &["await-infra"]),
        turn(ok(&["await-infra"]), &["final-health-check"]),
        turn(ok(&["final-health-check"]), &["release"]),
    ];
    [until_held(), held, exit_of_a_success()].concat()
}

fn early_failure() -> Vec<Turn> {
    let main = vec![
        turn(ok(&["hook-start-a", "hook-start-b"]), &["hooks-start"]),
        turn(ok(&["hooks-start"]), &["pre-health-check"]),
        turn(fails("pre-health-check"), &["release"]),
    ];
    [main, exit_of_a_failure()].concat()
}

fn branch_failure() -> Vec<Turn> {
    let main = vec![
        turn(fails("await-pools"), &["hold-infra"]),
        turn(fails("hold-infra"), &["release"]),
    ];
    [until_held(), main, exit_of_a_failure()].concat()
}

fn exit_failure() -> Vec<Turn> {
    vec![
        turn(fails("hook-start-a"), &["hook-start-b"]),
        turn(ok(&["hook-start-b"]), &["release"]),
        turn(fails("release"), &["hook-finish-b", "hooks-failure"]),
        turn(ok(&["hooks-failure", "hook-finish-b"]), &["hooks-finish"]),
        ends(fails("hooks-finish")),
    ]
}

/// Release fails after a success.
fn failed_release() -> Vec<Turn> {
    vec![
        turn(ok(&["hook-start-a", "hook-start-b"]), &["hooks-start"]),
        turn(ok(&["hooks-start"]), &["pre-health-check"]),
        turn(ok(&["pre-health-check"]), &["pause-pools"]),
        turn(ok(&["pause-pools"]), &["await-pools"]),
        turn(ok(&["await-pools"]), &["post-health-check"]),
        turn(ok(&["post-health-check"]), &["hooks-upgrade-complete"]),
        turn(ok(&["hooks-upgrade-complete"]), &["release"]),
        turn(fails("release"), &["hook-finish-b", "hook-success-a"]),
        turn(
            ok(&["hook-success-a", "hook-finish-b"]),
            &["hooks-finish", "hooks-success"],
        ),
        ends(ok(&["hooks-success", "hooks-finish"])),
    ]
}

fn stopped() -> Vec<Turn> {
    let main = vec![turn(Move::Spec(json!({"shutdown": "Stop"})), &["release"])];
    [main, exit_of_a_failure()].concat()
}

fn terminated_in_exit() -> Vec<Turn> {
    vec![
        turn(fails("hook-start-a"), &["hook-start-b"]),
        turn(fails("hook-start-b"), &["release"]),
        ends(Move::Stop),
    ]
}

fn paused() -> Vec<Turn> {
    vec![
        turn(
            Move::Spec(json!({"suspend": true})),
            &["hook-start-a", "hook-start-b"],
        ),
        turn(ok(&["hook-start-a", "hook-start-b"]), &[]),
        turn(Move::Spec(json!({"suspend": null})), &["hooks-start"]),
        ends(Move::Stop),
    ]
}

fn paused_and_terminated() -> Vec<Turn> {
    vec![
        turn(
            Move::Spec(json!({"suspend": true})),
            &["hook-start-a", "hook-start-b"],
        ),
        // The nodes end, the workflow does not: it is paused.
        turn(Move::Spec(json!({"shutdown": "Terminate"})), &[]),
        ends(Move::Stop),
    ]
}

fn create() -> Vec<Turn> {
    vec![
        turn(ok(&["hook-create-a"]), &["hooks-create"]),
        ends(ok(&["hooks-create"])),
    ]
}

/// All plays.
pub fn all() -> Vec<Play> {
    let both = ["hook-start-a", "hook-start-b"];
    let main = |name, turns| Play::new(name, main_plan, &both, turns);
    let create_play = |name, turns| Play::new(name, create_plan, &["hook-create-a"], turns);
    vec![
        main("success", success()),
        main("early-failure", early_failure()),
        main("branch-failure", branch_failure()),
        main("exit-failure", exit_failure()),
        main("stopped", stopped()),
        main("terminated", vec![ends(Move::Stop)]),
        main("terminated-in-exit", terminated_in_exit()),
        main("paused", paused()),
        main("paused-and-terminated", paused_and_terminated()),
        Play::new("failed-release", maintenance_plan, &both, failed_release()),
        create_play("create", create()),
        create_play("create-failure", vec![ends(fails("hook-create-a"))]),
    ]
}

fn hook(name: &str, events: &[&str]) -> UpgradeJobHook {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"events": events, "template": {"spec": {"template": {"spec": pod}}}},
    }))
    .unwrap()
}

fn hooks() -> [UpgradeJobHook; 2] {
    [
        hook("a", &["Create", "Start", "Success"]),
        hook("b", &["Start", "Finish"]),
    ]
}

fn main_plan(job: &UpgradeJob) -> Plan {
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "infra", "labels": {"pool": "infra"}}, "spec": {},
    }))
    .unwrap();
    build::main_plan(job, &hooks(), &[pool], 1)
}

/// Without version, and without pools that are held.
fn maintenance_plan(job: &UpgradeJob) -> Plan {
    let mut job = job.clone();
    job.spec.desired_version = None;
    job.spec.config.machine_config_pools.clear();
    build::main_plan(&job, &hooks(), &[], 1)
}

fn create_plan(job: &UpgradeJob) -> Plan {
    build::create_plan(job, &hooks(), 1).unwrap()
}

impl Play {
    fn new(
        name: &'static str,
        plan: fn(&UpgradeJob) -> Plan,
        first: &[&'static str],
        turns: Vec<Turn>,
    ) -> Self {
        let job: UpgradeJob = serde_json::from_value(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "startAfter": "2026-11-24T21:00:00Z", "startBefore": "2026-11-24T22:00:00Z",
                "desiredVersion": {"version": "4.18.5"},
                "config": {"machineConfigPools": [{"matchLabels": {"pool": "infra"}, "delayUpgrade": {"delayMin": "1h"}}]},
            },
        }))
        .unwrap();
        let plan = plan(&job);
        Self {
            name,
            plan,
            job,
            first: first.to_vec(),
            turns,
        }
    }

    /// Where its recording is.
    pub fn golden_file(&self) -> PathBuf {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/argo-stand-in");
        folder.join(format!("{}.json", self.name))
    }

    /// Plays it, and returns what the controller recorded after each move.
    pub async fn record(&self, client: Client) -> String {
        let api: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &Argo.resource());
        let stage = Stage { api, play: self };
        stage.create().await;
        let mut recording = Recording::default();
        recording.add("begin", stage.settled(Some(&self.first)).await);
        for turn in &self.turns {
            stage.make(&turn.doing).await;
            let workflow = stage.settled(turn.waiting.as_ref()).await;
            recording.add(&format!("{:?}", turn.doing), workflow);
        }
        serde_json::to_string_pretty(&recording.turns).unwrap() + "\n"
    }
}

/// The workflow after each turn, with the nodes that are new or different.
#[derive(Default)]
struct Recording {
    turns: Vec<Value>,
    nodes: BTreeMap<String, Value>,
}

impl Recording {
    fn add(&mut self, at: &str, (mut workflow, nodes): (Value, BTreeMap<String, Value>)) {
        let new = nodes
            .iter()
            .filter(|(name, node)| self.nodes.get(*name) != Some(node));
        workflow["nodes"] = new.map(|(_, node)| node.clone()).collect();
        workflow["at"] = json!(at);
        self.turns.push(workflow);
        self.nodes = nodes;
    }
}

/// A play on a controller.
struct Stage<'a> {
    api: Api<DynamicObject>,
    play: &'a Play,
}

impl Stage<'_> {
    fn workflow(&self) -> String {
        format!("play-{}", self.play.name)
    }

    async fn get(&self) -> DynamicObject {
        self.api.get(&self.workflow()).await.unwrap()
    }

    async fn create(&self) {
        let name = self.workflow();
        while self.api.get_opt(&name).await.unwrap().is_some() {
            // Of an earlier recording; a refusal says that it is gone by now.
            let _ = self.api.delete(&name, &DeleteParams::default()).await;
            tokio::time::sleep(POLL).await;
        }
        let context = RunContext {
            job: &self.play.job,
            name,
            config: WorkflowConfig::default(),
            template: None,
            default_service_account: None,
            active_deadline_seconds: 3_600,
            hooks: &[],
            templates: &NO_TEMPLATES,
        };
        let workflow = Argo.render(&self.play.plan, &context).unwrap();
        self.api.create(&PostParams::default(), &workflow).await.unwrap();
    }

    /// Writes until the API server takes it; a conflict is a re-read.
    async fn make(&self, doing: &Move) {
        for _ in 0..50 {
            let object = self.get().await;
            let write = |write: Option<Write>| write.expect("nothing to report").patch;
            let patch = match doing {
                Move::Report(reports) => write(
                    Argo.report(&object.into(), &self.play.plan, reports, Timestamp::now())
                        .pop(),
                ),
                Move::Stop => write(Argo.stop(&object.into())),
                Move::Wake => write(Argo.wake(&object.into(), Timestamp::now())),
                Move::Spec(spec) => {
                    json!({"metadata": {"resourceVersion": object.metadata.resource_version}, "spec": spec})
                }
            };
            let params = PatchParams::default();
            match self
                .api
                .patch(&self.workflow(), &params, &Patch::Merge(patch))
                .await
            {
                Ok(_) => return,
                Err(kube::Error::Api(e)) if e.code == 409 => {}
                Err(other) => panic!("{other}"),
            }
        }
        panic!("50 conflicts in a row");
    }

    /// The workflow once these steps wait, or once it has ended, and the controller no longer writes to it.
    async fn settled(&self, waiting: Option<&Vec<&'static str>>) -> (Value, BTreeMap<String, Value>) {
        let (mut version, mut quiet) = (None, 0);
        for _ in 0..3_000 {
            let object = self.get().await;
            let run = Argo.observe(&object.clone().into(), &self.play.plan);
            let running = run.nodes.iter().filter(|n| n.phase == NodePhase::Running);
            let mut running: Vec<&str> = running.map(|n| n.step.as_str()).collect();
            running.sort_unstable();
            let is_there = match waiting {
                Some(steps) => !run.finished && run.picked_up && running == *steps,
                None => run.finished,
            };
            quiet = if version == object.metadata.resource_version {
                quiet + 1
            } else {
                0
            };
            version.clone_from(&object.metadata.resource_version);
            if is_there && quiet >= QUIET {
                return recorded(&object);
            }
            if quiet == FORGOTTEN {
                self.make(&Move::Wake).await;
            }
            tokio::time::sleep(POLL).await;
        }
        let object = self.get().await;
        panic!(
            "{}: not at {waiting:?}: {:#}",
            self.play.name, object.data["status"]
        );
    }
}

/// What of a node the operator and people go by. Not: times, and what Argo computes for its display (progress, estimates).
const FIELDS: [&str; 11] = [
    "id",
    "name",
    "displayName",
    "type",
    "templateName",
    "phase",
    "message",
    "boundaryID",
    "inputs",
    "outputs",
    "outboundNodes",
];

/// What the controller wrote, without times.
fn recorded(object: &DynamicObject) -> (Value, BTreeMap<String, Value>) {
    let status = &object.data["status"];
    let nodes = status["nodes"].as_object().into_iter().flatten();
    let nodes = nodes.map(|(_, node)| {
        (
            node["name"].as_str().unwrap_or_default().to_owned(),
            without_times(node),
        )
    });
    let labels = object.metadata.labels.clone().unwrap_or_default();
    let labels: Map<String, Value> = labels
        .into_iter()
        .filter(|(key, _)| key.starts_with("workflows.argoproj.io/"))
        .map(|(key, value)| (key, json!(value)))
        .collect();
    let workflow = json!({
        "labels": labels,
        "phase": status["phase"],
        "message": status["message"],
        "hasFinished": status["finishedAt"].is_string(),
    });
    (workflow, nodes.collect())
}

fn without_times(node: &Value) -> Value {
    let known = |field: &&str| Some(((*field).to_owned(), node.get(*field)?.clone()));
    let mut fields: Map<String, Value> = FIELDS.iter().filter_map(known).collect();
    fields.insert("hasFinished".to_owned(), json!(node["finishedAt"].is_string()));
    // Their order is that of a map of Go: another one each time.
    for field in ["children", "outboundNodes"] {
        let mut ids: Vec<&str> = node[field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        ids.sort_unstable();
        fields.insert(field.to_owned(), json!(ids));
    }
    Value::Object(fields)
}
