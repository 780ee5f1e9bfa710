//! Jobs, hooks and plans for tests.

use serde_json::{Value, json};

use crate::{
    api::{UpgradeJob, UpgradeJobHook, job_config::WorkflowConfig},
    engine::{
        RunContext, Templates,
        native::{Lookup, NO_TEMPLATES, TemplateKey, TemplateKind},
    },
    openshift::machine_config_pool::MachineConfigPool,
    plan::{Plan, build},
};

/// A job, as the API server returns it.
pub fn job(spec: &Value) -> UpgradeJob {
    let mut all = json!({"startAfter": "2026-11-24T21:00:00Z", "startBefore": "2026-11-24T22:00:00Z"});
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJob",
        "metadata": {
            "name": "cluster-upgrade-1795554000-ef11c47",
            "namespace": "upgrades",
            "uid": "0a1b2c3d-0000-4000-8000-000000000001",
        },
        "spec": all,
    }))
    .unwrap()
}

/// A job that upgrades to 4.18.5 and holds no pool.
pub fn upgrade() -> UpgradeJob {
    holding(&[])
}

/// A job that upgrades to 4.18.5 and holds these pools, each by an entry of its own.
fn holding(pools: &[&str]) -> UpgradeJob {
    let entries: Vec<Value> = pools
        .iter()
        .map(|p| json!({"matchLabels": {"pool": p}, "delayUpgrade": {"delayMin": "1h"}}))
        .collect();
    job(&json!({
        "desiredVersion": {"version": "4.18.5", "image": "quay.io/release@sha256:5"},
        "config": {"machineConfigPools": entries},
    }))
}

fn pool(name: &&str) -> MachineConfigPool {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": name, "labels": {"pool": name}},
        "spec": {},
    }))
    .unwrap()
}

/// A hook of all events.
fn hook() -> UpgradeJobHook {
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJobHook",
        "metadata": {"name": "notify", "namespace": "upgrades"},
        "spec": {"events": [
            "Create", "Start", "UpgradeComplete", "MachineConfigPoolUnpause", "Success", "Failure", "Finish",
        ]},
    }))
    .unwrap()
}

/// A hook of these events that runs a template of WorkflowTemplate `t`.
pub fn native_hook(name: &str, events: &[&str], reference: &Value) -> UpgradeJobHook {
    let mut template_ref = json!({"name": "t"});
    template_ref
        .as_object_mut()
        .unwrap()
        .extend(reference.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": "upgrades"},
        "spec": {"events": events, "templateRef": template_ref},
    }))
    .unwrap()
}

/// WorkflowTemplate `t` of this spec.
pub fn templates(spec: &Value) -> Templates {
    let key = TemplateKey {
        kind: TemplateKind::WorkflowTemplate,
        name: "t".to_owned(),
    };
    Templates([(key, Lookup::Found(spec.clone()))].into())
}

/// An upgrade with these hooks that holds one pool.
pub fn with_hooks(hooks: &[UpgradeJobHook]) -> (UpgradeJob, Plan) {
    let job = holding(&["infra"]);
    let plan = build::main_plan(&job, hooks, &[pool(&"infra")], 1);
    (job, plan)
}

/// What the operator passes to `render`.
pub fn context(job: &UpgradeJob) -> RunContext<'_> {
    RunContext {
        job,
        name: "cluster-upgrade-1795554000-ef11c47-run-1".to_owned(),
        config: WorkflowConfig::default(),
        template: None,
        default_service_account: None,
        active_deadline_seconds: 648_000,
        hooks: &[],
        templates: &NO_TEMPLATES,
    }
}

/// An upgrade that holds no pool.
pub fn no_pools() -> Plan {
    build::main_plan(&upgrade(), &[], &[], 1)
}

/// An upgrade that holds one pool.
pub fn one_pool() -> Plan {
    build::main_plan(&holding(&["infra"]), &[], &[pool(&"infra")], 1)
}

/// An upgrade that holds two groups of pools, with a hook at every event, second attempt.
pub fn everything() -> Plan {
    let pools = ["infra", "worker"];
    build::main_plan(&holding(&pools), &[hook()], &pools.each_ref().map(pool), 2)
}

/// A run without upgrade.
pub fn maintenance() -> Plan {
    build::main_plan(&job(&json!({})), &[], &[], 1)
}

/// Create hooks between pin and start.
pub fn create() -> Plan {
    build::create_plan(&upgrade(), &[hook()], 1).unwrap()
}
