//! A cluster in memory: what a decision asks of it is done at once, and it goes on when it is told to.

use jiff::Timestamp;
use kube::ResourceExt;
use openshift_upgrade_operator::{
    api::{UpgradeJob, UpgradeJobHook, annotations, finalizers, labels},
    hooks::hook_run::{RunKind, RunName},
    openshift::machine_config_pool::MachineConfigPool,
    pools,
    steps::Action,
    world::World,
};
use serde_json::{Value, json};

/// What is installed.
const OLD: &str = "4.18.3";
/// What is offered.
pub const NEW: &str = "4.18.5";
/// What somebody else installs meanwhile.
pub const NEWER: &str = "4.18.6";

/// Reads a typed object.
pub fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The image of a release.
pub fn image(version: &str) -> String {
    format!("quay.io/openshift-release-dev/ocp-release@sha256:{version}")
}

/// A pool of two nodes, whose label `pool` is its name.
fn pool(name: &str) -> MachineConfigPool {
    let configuration = json!({"name": format!("rendered-{name}-1")});
    object(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "labels": {"pool": name}, "generation": 1, "resourceVersion": "1"},
        "spec": {"paused": false, "configuration": configuration},
        "status": {
            "observedGeneration": 1, "configuration": configuration,
            "machineCount": 2, "updatedMachineCount": 2, "readyMachineCount": 2,
            "conditions": [{"type": "Updated", "status": "True"}],
        },
    }))
}

/// One job, its hooks, and pools of these names, all well.
pub fn world(job: UpgradeJob, hooks: Vec<UpgradeJobHook>, pools: &[&str]) -> World {
    let release = json!({"version": OLD, "image": image(OLD)});
    let status = |type_: &str, status: &str| json!({"type": type_, "status": status});
    let cluster_version = object(json!({
        "metadata": {"name": "version", "generation": 1, "resourceVersion": "1"},
        "spec": {"clusterID": "x", "channel": "stable-4.18"},
        "status": {
            "desired": release, "observedGeneration": 1,
            "availableUpdates": [{"version": NEW, "image": image(NEW)}],
            "history": [{"state": "Completed", "startedTime": "2026-01-01T00:00:00Z",
                "completionTime": "2026-01-01T01:00:00Z", "version": OLD, "image": image(OLD)}],
            "conditions": [status("Available", "True"), status("Progressing", "False"), status("Failing", "False"),
                status("RetrievedUpdates", "True"), status("ReleaseAccepted", "True")],
        },
    }));
    let operator = |name: &str| {
        object(json!({
            "metadata": {"name": name}, "spec": {},
            "status": {
                "conditions": [status("Available", "True"), status("Degraded", "False")],
                "versions": [{"name": "operator", "version": OLD}],
            },
        }))
    };
    World {
        cluster_version: Some(cluster_version),
        operators: vec![operator("etcd"), operator("machine-config")],
        pools: pools.iter().map(|name| pool(name)).collect(),
        jobs: vec![job],
        hooks,
        control_plane_topology: Some("HighlyAvailable".into()),
        ..World::default()
    }
}

/// Puts the job's lock on the cluster.
pub fn lock(world: &mut World) {
    let owner = owner(world);
    let cluster = world.cluster_version.as_mut().unwrap();
    cluster.metadata.annotations.get_or_insert_default().extend(owner);
}

/// How a lock or a pause names the job.
fn owner(world: &World) -> [(String, String); 2] {
    let job = &world.jobs[0];
    let uid = job.metadata.uid.clone().unwrap();
    [
        (annotations::UPGRADE_JOB.to_owned(), pools::key(job)),
        (annotations::UPGRADE_JOB_UID.to_owned(), uid),
    ]
}

fn pool_of<'a>(world: &'a mut World, name: &str) -> &'a mut MachineConfigPool {
    world.pools.iter_mut().find(|p| p.name_any() == name).unwrap()
}

/// Does what a decision asks of the cluster; `false` if it asks that of the engine.
pub fn act(world: &mut World, action: &Action) -> bool {
    match action {
        Action::TakeLock => lock(world),
        Action::ReleaseLock => world.cluster_version.as_mut().unwrap().metadata.annotations = None,
        Action::SetDesiredUpdate(target) => {
            let update = json!({"version": target.version, "image": target.image});
            world.cluster_version.as_mut().unwrap().spec.desired_update = Some(object(update));
        }
        // Nobody takes a release back: the cluster accepts each at once.
        Action::WithdrawDesiredUpdate { .. } => {
            world.cluster_version.as_mut().unwrap().spec.desired_update = None;
        }
        Action::PausePool { pool, .. } => {
            let owner = owner(world);
            let pool = pool_of(world, pool);
            pool.spec.paused = true;
            pool.metadata.annotations.get_or_insert_default().extend(owner);
        }
        Action::UnpausePool { pool } => {
            let pool = pool_of(world, pool);
            pool.spec.paused = false;
            pool.metadata.annotations = None;
        }
        Action::CreateHookJob(job) => world.hook_jobs.push((**job).clone()),
        Action::ReleaseHookRun(RunName {
            kind: RunKind::Job,
            name,
        }) => {
            let mut jobs = world.hook_jobs.iter_mut();
            jobs.find(|j| j.name_any() == *name).unwrap().metadata.finalizers = None;
        }
        Action::Protect => world.jobs[0].metadata.finalizers = Some(vec![finalizers::UPGRADE_JOB.to_owned()]),
        Action::Unprotect => world.jobs[0].metadata.finalizers = None,
        Action::CreateWorkflow
        | Action::StopWorkflow
        | Action::WakeWorkflow
        | Action::ResumeWorkflow
        | Action::EndMainPart => return false,
        Action::ReleaseHookRun(_)
        | Action::CreateHookTaskRun(_)
        | Action::RepeatHookTaskRun(_)
        | Action::CancelHookTaskRun(_)
        | Action::ClaimHook { .. }
        | Action::StopOtherWorkflow { .. }
        | Action::SealWorkflow
        | Action::SealOtherWorkflow { .. }
        | Action::DeleteWorkflow
        | Action::DeleteOtherWorkflow { .. } => panic!("no play has what this is for: {action}"),
    }
    true
}

/// What the cluster may do next.
#[derive(Clone, Debug)]
pub enum Move {
    /// The Job of a hook ends.
    HookEnds(String),
    /// The cluster-version operator begins with the release.
    Begins,
    /// It is done with it.
    Installs,
    /// The nodes of a pool are updated.
    Rolls(String),
}

/// All that it may do next.
pub fn moves(world: &World) -> Vec<Move> {
    let running = world.hook_jobs.iter().filter(|j| j.status.is_none());
    let mut all: Vec<Move> = running.map(|j| Move::HookEnds(j.name_any())).collect();
    let cluster = world.cluster_version.as_ref().unwrap();
    let newest = cluster.newest().unwrap();
    let desired = cluster.spec.desired_update.as_ref();
    if desired.is_some_and(|d| d.version != newest.version) {
        all.push(Move::Begins);
    } else if !newest.is_completed() {
        all.push(Move::Installs);
    }
    let behind = |p: &&MachineConfigPool| {
        let status = p.status.as_ref().unwrap();
        !p.spec.paused && p.spec.configuration.name != status.configuration.name
    };
    all.extend(
        world
            .pools
            .iter()
            .filter(behind)
            .map(|p| Move::Rolls(p.name_any())),
    );
    all
}

/// What a play calls it: `backup@Start` for the Job of a hook, `Installs`, `Rolls worker`.
pub fn title(world: &World, next: &Move) -> String {
    match next {
        Move::HookEnds(name) => hook_of(world.hook_jobs.iter().find(|j| j.name_any() == *name).unwrap()),
        Move::Begins => "Begins".to_owned(),
        Move::Installs => "Installs".to_owned(),
        Move::Rolls(pool) => format!("Rolls {pool}"),
    }
}

/// Event and hook of a Job, `backup@Start`.
fn hook_of(job: &k8s_openapi::api::batch::v1::Job) -> String {
    format!(
        "{}@{}",
        job.labels()[labels::HOOK],
        job.labels()[labels::HOOK_EVENT]
    )
}

/// It does so; hooks end badly that are in `failing`, with this message.
pub fn make(world: &mut World, next: &Move, failing: impl Fn(&str) -> Option<String>) {
    match next {
        Move::HookEnds(name) => {
            let job = world
                .hook_jobs
                .iter_mut()
                .find(|j| j.name_any() == *name)
                .unwrap();
            let failed = failing(&hook_of(job));
            let (type_, message) = failed.map_or(("Complete", String::new()), |why| ("Failed", why));
            let condition = json!({"type": type_, "status": "True", "message": message});
            job.status = Some(object(json!({"conditions": [condition]})));
        }
        Move::Begins => begins_with(world, NEW, "Partial"),
        Move::Installs => installs(world),
        Move::Rolls(name) => {
            let pool = pool_of(world, name);
            let wanted = pool.spec.configuration.name.clone();
            let status = pool.status.as_mut().unwrap();
            status.configuration.name = wanted;
            status.updated_machine_count = status.machine_count;
        }
    }
}

/// It begins with a release, or has been upgraded to it.
pub fn begins_with(world: &mut World, version: &str, state: &str) {
    let status = world.cluster_version.as_mut().unwrap().status.as_mut().unwrap();
    let entry = json!({"state": state, "startedTime": "2026-11-24T21:00:00Z", "completionTime": null,
        "version": version, "image": image(version)});
    status.history.insert(0, object(entry));
    progressing(
        world,
        "True",
        "Working towards 4.18.5: 500 of 800 done (62% complete), waiting on etcd",
    );
}

fn progressing(world: &mut World, value: &str, message: &str) {
    let status = world.cluster_version.as_mut().unwrap().status.as_mut().unwrap();
    status.conditions.retain(|c| c.type_ != "Progressing");
    let condition = json!({"type": "Progressing", "status": value, "message": message, "reason": "R"});
    status.conditions.push(object(condition));
}

/// The control plane is done; every pool has its new configuration still before it.
fn installs(world: &mut World) {
    let status = world.cluster_version.as_mut().unwrap().status.as_mut().unwrap();
    status.history[0].state = "Completed".into();
    progressing(world, "False", "Cluster version is 4.18.5");
    for operator in &mut world.operators {
        operator.status.as_mut().unwrap().versions[0].version = NEW.into();
    }
    for pool in &mut world.pools {
        let rendered = format!("rendered-{}-2", pool.name_any());
        pool.spec.configuration.name.clone_from(&rendered);
        pool.status.as_mut().unwrap().updated_machine_count = 0;
        world.rendered.insert(rendered, NEW.into());
    }
}

/// Somebody has upgraded the cluster beyond what the job wants.
pub fn is_passed_by(world: &mut World) {
    begins_with(world, NEWER, "Completed");
    progressing(world, "False", "Cluster version is 4.18.6");
}

/// A time of the night of all plays.
pub fn at(time: &str) -> Timestamp {
    format!("2026-11-24T{time}:00Z").parse().unwrap()
}
