//! Jobs, plans and Workflows for tests.

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use super::object::node_name;
use crate::{
    api::{UpgradeJob, upgrade_job::WorkflowConfig, upgrade_job_hook::HookEvent},
    engine::RunContext,
    plan::{Part, Plan, PlanStep, RunKind, StepAction, VERSION},
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

/// A job that upgrades to 4.18.5.
pub fn upgrade() -> UpgradeJob {
    job(&json!({"desiredVersion": {"version": "4.18.5", "image": "quay.io/release@sha256:5"}}))
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
    }
}

fn step(name: &str, title: &str, action: StepAction, after: &[&str], part: Part) -> PlanStep {
    PlanStep {
        name: name.to_owned(),
        title: title.to_owned(),
        action,
        after: after.iter().map(|&a| a.to_owned()).collect(),
        part,
    }
}

fn main(name: &str, title: &str, action: StepAction, after: &[&str]) -> PlanStep {
    step(name, title, action, after, Part::Main)
}

fn join(event: HookEvent, name: &str, after: &[&str], part: Part, group: Option<usize>) -> PlanStep {
    let title = format!("Hooks of {} are done", event.as_str());
    step(name, &title, StepAction::HooksJoin { event, group }, after, part)
}

fn hook(event: HookEvent, hook: &str, name: &str, after: &[&str], part: Part) -> PlanStep {
    let title = format!("Hook {hook} ({})", event.as_str());
    step(
        name,
        &title,
        StepAction::Hook {
            event,
            hook: hook.to_owned(),
            group: None,
        },
        after,
        part,
    )
}

fn exit() -> [PlanStep; 4] {
    [
        step(
            "release",
            "Give back pauses and lock",
            StepAction::Release,
            &[],
            Part::Exit,
        ),
        join(
            HookEvent::Success,
            "hooks-success",
            &["release"],
            Part::Exit,
            None,
        ),
        join(
            HookEvent::Failure,
            "hooks-failure",
            &["release"],
            Part::Exit,
            None,
        ),
        join(
            HookEvent::Finish,
            "hooks-finish",
            &["hooks-success", "hooks-failure"],
            Part::Exit,
            None,
        ),
    ]
}

fn plan(run: RunKind, steps: Vec<PlanStep>) -> Plan {
    Plan {
        version: VERSION,
        run,
        steps,
    }
}

fn upgrade_steps() -> Vec<PlanStep> {
    vec![
        join(HookEvent::Start, "hooks-start", &[], Part::Main, None),
        main(
            "pre-health-check",
            "Check health before the upgrade",
            StepAction::PreHealthCheck,
            &["hooks-start"],
        ),
        main(
            "pause-pools",
            "Pause held pools",
            StepAction::PausePools,
            &["pre-health-check"],
        ),
        main(
            "set-desired-update",
            "Start the upgrade to 4.18.5",
            StepAction::SetDesiredUpdate,
            &["pause-pools"],
        ),
        main(
            "await-control-plane",
            "Wait for the control plane to reach 4.18.5",
            StepAction::AwaitControlPlane,
            &["set-desired-update"],
        ),
        main(
            "await-pools",
            "Wait for the pools that are not held",
            StepAction::AwaitPools,
            &["await-control-plane"],
        ),
        main(
            "post-health-check",
            "Check health after the upgrade",
            StepAction::PostHealthCheck,
            &["await-pools"],
        ),
        join(
            HookEvent::UpgradeComplete,
            "hooks-upgrade-complete",
            &["post-health-check"],
            Part::Main,
            None,
        ),
    ]
}

fn group(index: usize, pool: &str) -> Vec<PlanStep> {
    let names = ["hold", "hooks-unpause", "unpause", "await"].map(|n| format!("{n}-{pool}"));
    let [hold, hooks, unpause, wait] = names.each_ref().map(String::as_str);
    vec![
        main(
            hold,
            &format!("Hold {pool} until its time"),
            StepAction::Hold { group: index },
            &["await-control-plane"],
        ),
        join(
            HookEvent::MachineConfigPoolUnpause,
            hooks,
            &[hold],
            Part::Main,
            Some(index),
        ),
        main(
            unpause,
            &format!("Unpause {pool}"),
            StepAction::Unpause { group: index },
            &[hooks],
        ),
        main(
            wait,
            &format!("Wait for {pool}"),
            StepAction::AwaitGroup { group: index },
            &[unpause],
        ),
    ]
}

fn last(after: &[&str]) -> PlanStep {
    main(
        "final-health-check",
        "Check health after the last pool",
        StepAction::FinalHealthCheck,
        after,
    )
}

/// An upgrade that holds no pool.
pub fn no_pools() -> Plan {
    plan(
        RunKind::Main { attempt: 1 },
        upgrade_steps().into_iter().chain(exit()).collect(),
    )
}

/// An upgrade that holds one pool.
pub fn one_pool() -> Plan {
    let steps = upgrade_steps().into_iter().chain(group(0, "infra"));
    let steps = steps.chain([last(&["hooks-upgrade-complete", "await-infra"])]);
    plan(RunKind::Main { attempt: 1 }, steps.chain(exit()).collect())
}

/// An upgrade that holds two groups of pools, with a hook at every event, second attempt.
pub fn everything() -> Plan {
    use HookEvent::{Failure, Finish, MachineConfigPoolUnpause, Start, Success, UpgradeComplete};
    let mut steps = vec![hook(Start, "notify", "hook-start-notify", &[], Part::Main)];
    for mut step in upgrade_steps()
        .into_iter()
        .chain(group(0, "infra"))
        .chain(group(1, "worker"))
    {
        match step.name.as_str() {
            "hooks-start" => step.after = vec!["hook-start-notify".to_owned()],
            "hooks-upgrade-complete" => {
                let name = "hook-upgrade-complete-notify";
                steps.push(hook(
                    UpgradeComplete,
                    "notify",
                    name,
                    &["post-health-check"],
                    Part::Main,
                ));
                step.after = vec![name.to_owned()];
            }
            "hooks-unpause-infra" => {
                let name = "hook-unpause-infra-notify";
                steps.push(hook(
                    MachineConfigPoolUnpause,
                    "notify",
                    name,
                    &["hold-infra"],
                    Part::Main,
                ));
                step.after = vec![name.to_owned()];
            }
            _ => {}
        }
        steps.push(step);
    }
    steps.push(last(&["hooks-upgrade-complete", "await-infra", "await-worker"]));
    let [release, mut success, mut failure, mut finish] = exit();
    success.after = vec!["hook-success-notify".to_owned()];
    failure.after = vec!["hook-failure-notify".to_owned()];
    finish.after = vec!["hook-finish-notify".to_owned()];
    steps.extend([
        release,
        hook(Success, "notify", "hook-success-notify", &["release"], Part::Exit),
        success,
        hook(Failure, "notify", "hook-failure-notify", &["release"], Part::Exit),
        failure,
        hook(
            Finish,
            "notify",
            "hook-finish-notify",
            &["hooks-success", "hooks-failure"],
            Part::Exit,
        ),
        finish,
    ]);
    plan(RunKind::Main { attempt: 2 }, steps)
}

/// A run without upgrade.
pub fn maintenance() -> Plan {
    let mut steps: Vec<PlanStep> = upgrade_steps();
    steps.retain(|s| {
        !matches!(
            s.action,
            StepAction::SetDesiredUpdate | StepAction::AwaitControlPlane
        )
    });
    for step in &mut steps {
        if step.name == "await-pools" {
            step.after = vec!["pause-pools".to_owned()];
        }
    }
    plan(
        RunKind::Main { attempt: 1 },
        steps.into_iter().chain(exit()).collect(),
    )
}

/// Create hooks between pin and start.
pub fn create() -> Plan {
    let steps = vec![
        hook(HookEvent::Create, "notify", "hook-create-notify", &[], Part::Main),
        join(
            HookEvent::Create,
            "hooks-create",
            &["hook-create-notify"],
            Part::Main,
            None,
        ),
    ];
    plan(RunKind::Create { number: 1 }, steps)
}

/// ID of a node as Argo computes it: FNV-1a of 32 bits over its name, in decimal.
pub fn node_id(workflow: &str, node: &str) -> String {
    let hash = node.bytes().fold(2_166_136_261_u32, |hash, b| {
        (hash ^ u32::from(b)).wrapping_mul(16_777_619)
    });
    format!("{workflow}-{hash}")
}

/// A Workflow `wf` as Argo's controller writes it: `status` and `nodes` (step, fields) over a running one.
pub fn recorded(plan: &Plan, status: &Value, nodes: &[(&str, Value)]) -> DynamicObject {
    let mut all = Map::new();
    all.insert(
        "wf".to_owned(),
        json!({"id": "wf", "name": "wf", "displayName": "wf", "type": "DAG", "phase": "Running"}),
    );
    for (name, fields) in nodes {
        let step = plan.step(name).unwrap();
        let full_name = node_name("wf", step);
        let id = node_id("wf", &full_name);
        let mut node = json!({
            "id": id, "name": full_name, "displayName": name, "type": "Suspend", "templateName": name,
            "templateScope": "local/wf", "phase": "Running", "boundaryID": "wf", "startedAt": "2026-11-24T21:00:05Z",
            "finishedAt": null, "progress": "0/1",
            "inputs": {"parameters": [{"name": "about", "value": step.title}]},
            "outputs": {"parameters": [{"name": "result", "valueFrom": {"supplied": {}}}]},
        });
        node.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        all.insert(id, node);
    }
    let mut full =
        json!({"phase": "Running", "startedAt": "2026-11-24T21:00:04Z", "progress": "0/1", "nodes": all});
    full.as_object_mut()
        .unwrap()
        .extend(status.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "wf", "namespace": "upgrades", "resourceVersion": "4711"},
        "spec": {"entrypoint": "main"},
        "status": full,
    }))
    .unwrap()
}
