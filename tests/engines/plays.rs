//! The suite: plans, and what becomes of their steps.

use std::collections::BTreeSet;

use openshift_upgrade_operator::{
    api::{UpgradeJob, UpgradeJobHook},
    openshift::machine_config_pool::MachineConfigPool,
    plan::{Part, Plan, build},
};
use serde_json::{Value, json};

use crate::rng::Rng;

/// How many random plans there are.
const RANDOM: u64 = 12;

/// A plan, and what becomes of its steps.
#[derive(Clone)]
pub struct Play {
    /// Part of the workflow's name.
    pub name: String,
    /// What the workflow is rendered from.
    pub plan: Plan,
    /// Steps of the main part that fail; all others end well.
    pub failing: BTreeSet<String>,
    /// A person stops the workflow when it waits at this step.
    pub stop: Option<Stop>,
    /// Which of the steps that wait is ended next.
    pub seed: u64,
}

/// A person stops a workflow.
#[derive(Clone)]
pub struct Stop {
    /// When it waits at this step.
    pub at: String,
    /// Without the exit part.
    pub hard: bool,
}

impl Play {
    fn new(name: impl Into<String>, plan: Plan) -> Self {
        Self {
            name: name.into(),
            plan,
            failing: BTreeSet::new(),
            stop: None,
            seed: 0,
        }
    }

    fn failing(mut self, step: &str) -> Self {
        self.failing.insert(step.to_owned());
        self
    }

    fn stopped(mut self, at: &str, hard: bool) -> Self {
        self.stop = Some(Stop {
            at: at.to_owned(),
            hard,
        });
        self
    }

    /// Whether a step ends well, and its message.
    pub fn verdict(&self, step: &str) -> Result<String, String> {
        if self.failing.contains(step) {
            Err(format!("{step} has failed: etcd is Degraded"))
        } else {
            Ok(format!("{step} is done: 12 of 12 nodes, \"all\" well"))
        }
    }
}

/// A job with these parts of its spec.
pub fn job(name: &str, spec: &Value) -> UpgradeJob {
    let mut all =
        json!({"startAfter": "2026-11-24T21:00:00Z", "startBefore": "2026-11-24T22:00:00Z", "config": {}});
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
        "metadata": {"name": name, "namespace": "default"}, "spec": all,
    }))
    .unwrap()
}

fn upgrade(held: &[&str], hooks: &[UpgradeJobHook]) -> Plan {
    let entries: Vec<Value> = held
        .iter()
        .map(|p| json!({"matchLabels": {"pool": p}, "delayUpgrade": {"delayMin": "1h"}}))
        .collect();
    let spec = json!({"desiredVersion": {"version": "4.18.5"}, "config": {"machineConfigPools": entries}});
    let pools: Vec<MachineConfigPool> = held
        .iter()
        .map(|name| {
            serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": name, "labels": {"pool": name}}, "spec": {},
            }))
            .unwrap()
        })
        .collect();
    build::main_plan(&job("j", &spec), hooks, &pools, 1)
}

fn hook(name: &str) -> UpgradeJobHook {
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"events": [
            "Create", "Start", "UpgradeComplete", "MachineConfigPoolUnpause", "Success", "Failure", "Finish",
        ]},
    }))
    .unwrap()
}

/// A main part of any shape: each step comes after some of those before it.
fn random(seed: u64) -> Play {
    let mut rng = Rng::of(seed, "plan");
    let count = 3 + rng.below(7);
    let name = |n: u64| format!("step-{n}");
    let mut steps: Vec<Value> = Vec::new();
    for n in 0..count {
        let after: Vec<String> = (0..n).filter(|_| rng.chance(35)).map(name).collect();
        steps.push(json!({
            "name": name(n), "title": format!("Step {n}"), "action": {"kind": "pausePools"}, "after": after, "part": "main",
        }));
    }
    let exit = upgrade(&[], &[]);
    let exit = exit.part(Part::Exit).map(|s| serde_json::to_value(s).unwrap());
    steps.extend(exit);
    let stored = json!({"version": 1, "run": {"kind": "main", "attempt": 1}, "steps": steps});
    let mut play = Play::new(format!("random-{seed}"), Plan::from_value(&stored).unwrap());
    play.seed = seed;
    if rng.chance(50) {
        play.failing.insert(name(rng.below(count)));
    }
    play
}

/// All plays.
pub fn all() -> Vec<Play> {
    let hooks = [hook("backup"), hook("notify")];
    let one = || upgrade(&["infra"], &[]);
    let everything = || upgrade(&["infra", "worker"], &hooks);
    let mut all = vec![
        Play::new("no-pools", upgrade(&[], &[])),
        Play::new("one-pool", one()),
        Play::new("everything", everything()),
        Play::new(
            "maintenance",
            build::main_plan(&job("j", &json!({})), &[], &[], 1),
        ),
        Play::new(
            "create",
            build::create_plan(&job("j", &json!({})), &hooks, 1).unwrap(),
        ),
        Play::new("everything-hook-fails", everything()).failing("hook-start-notify"),
        Play::new("everything-pool-fails", everything()).failing("await-infra"),
        Play::new("stop-at-the-start", one()).stopped("hooks-start", false),
        Play::new("stop-in-branches", one()).stopped("hold-infra", false),
        Play::new("terminate-at-the-start", one()).stopped("hooks-start", true),
        Play::new("terminate-in-branches", one()).stopped("hold-infra", true),
    ];
    for step in one().part(Part::Main) {
        all.push(Play::new(format!("fails-{}", step.name), one()).failing(&step.name));
    }
    all.extend((1..=RANDOM).map(random));
    all
}
