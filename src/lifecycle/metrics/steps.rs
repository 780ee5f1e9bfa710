//! The steps of jobs: which are under way and since when, how far they are, and how long they took.
//!
//! Series are bounded by what exists: the jobs under way, and of each config the one that ended last.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    api::{
        UpgradeJob,
        upgrade_job::{StepPhase, StepStatus},
    },
    metrics::{Family, Labels, Series},
    pinning::unresolved::config_of,
    plan::Plan,
    steps::progress,
    world::World,
};

/// Of the jobs whose steps are told.
pub(super) fn metrics(world: &World, now: Timestamp) -> Vec<Family> {
    let jobs = told(world);
    let steps = || {
        jobs.iter()
            .flat_map(|job| steps_of(job).map(move |step| (*job, step)))
    };
    let running = || steps().filter(|(_, step)| step.phase == StepPhase::Running);
    let current = running().filter_map(|(job, step)| {
        let since = step.started_at.as_ref()?.0;
        Some(Series::new(labels(job, step), now.duration_since(since)))
    });
    let plans: BTreeMap<String, Plan> = jobs
        .iter()
        .filter_map(|job| Some((job.name_any(), plan(job)?)))
        .collect();
    let progress = running().filter_map(|(job, step)| {
        let planned = plans.get(&job.name_any())?.step(&step.name)?;
        let fraction = progress::fraction(&planned.action, job, world)?;
        Some(Series::new(labels(job, step), fraction))
    });
    let duration = steps().filter_map(|(job, step)| {
        let (began, ended) = (step.started_at.as_ref()?.0, step.finished_at.as_ref()?.0);
        Some(Series::new(labels(job, step), ended.duration_since(began)))
    });
    vec![
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_current_step_seconds",
            "The steps that are under way, and for how long; several where pools are updated beside each other.",
            current,
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_step_progress_ratio",
            "How far a step under way is that waits for the control plane or for pools, from 0 to 1.",
            progress,
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_step_duration_seconds",
            "How long a step took that has ended, of UpgradeJobs under way and of the one of each UpgradeConfig that ended last.",
            duration,
        ),
    ]
}

/// The jobs under way, and of each config the one that ran last.
fn told(world: &World) -> Vec<&UpgradeJob> {
    let mut last: BTreeMap<String, &UpgradeJob> = BTreeMap::new();
    let mut told = Vec::new();
    for job in world.jobs.iter().filter(|j| j.is_started()) {
        if !job.is_finished() {
            told.push(job);
            continue;
        }
        let newest = last.entry(config_of(job, &world.configs)).or_insert(job);
        if newest.spec.start_after.0 < job.spec.start_after.0 {
            *newest = job;
        }
    }
    told.extend(last.into_values());
    told
}

fn steps_of(job: &UpgradeJob) -> impl Iterator<Item = &StepStatus> {
    job.status.iter().flat_map(|status| &status.steps)
}

fn plan(job: &UpgradeJob) -> Option<Plan> {
    // A plan that cannot be read is told by the job itself.
    Plan::from_value(job.status.as_ref()?.plan.as_ref()?).ok()
}

fn labels(job: &UpgradeJob, step: &StepStatus) -> Labels {
    vec![
        ("upgradejob", job.name_any()),
        ("step", step.name.clone()),
        ("kind", step.kind.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        lifecycle::metrics::fixtures::{conditions, job},
        metrics::told as lines,
        plan::build,
    };

    fn step(name: &str, kind: &str, from: &str, until: Option<&str>) -> Value {
        let at = |t: &str| format!("2026-01-01T{t}:00Z");
        json!({
            "name": name, "kind": kind, "startedAt": at(from), "finishedAt": until.map(at),
            "phase": if until.is_some() { "Succeeded" } else { "Running" },
        })
    }

    fn pool(name: &str, updated: i64, all: i64) -> Value {
        json!({"metadata": {"name": name}, "spec": {}, "status": {"machineCount": all, "updatedMachineCount": updated}})
    }

    fn world(jobs: Vec<UpgradeJob>) -> World {
        let pools = json!([pool("master", 3, 3), pool("worker", 1, 5)]);
        let cluster = json!({"metadata": {"name": "version"}, "spec": {}, "status": {"conditions": [{
            "type": "Progressing", "status": "True", "message": "Working towards 4.18.5: 500 of 800 done (62% complete), waiting on etcd",
        }]}});
        World {
            pools: serde_json::from_value(pools).unwrap(),
            cluster_version: Some(serde_json::from_value(cluster).unwrap()),
            jobs,
            ..World::default()
        }
    }

    fn under_way(steps: &Value) -> UpgradeJob {
        let mut job = job("j", &json!({"startedAt": "2026-01-01T00:00:00Z", "steps": steps}));
        let plan = build::main_plan(&job, &[], &world(Vec::new()).pools, 1);
        job.status.as_mut().unwrap().plan = Some(plan.to_value().unwrap());
        job
    }

    #[test]
    fn a_job_under_way_tells_what_it_does_and_how_far_it_is() {
        let job = under_way(&json!([
            step("pre-health-check", "PreHealthCheck", "00:00", Some("00:02")),
            step("await-control-plane", "AwaitControlPlane", "00:05", None),
            step("await-pools", "AwaitPools", "00:10", None),
            {"name": "post-health-check", "kind": "PostHealthCheck", "phase": "Pending"},
        ]));
        let told = lines(&metrics(
            &world(vec![job]),
            "2026-01-01T00:30:00Z".parse().unwrap(),
        ));
        assert_eq!(
            told,
            [
                "upgradejob_current_step_seconds j,await-control-plane,AwaitControlPlane 1500",
                "upgradejob_current_step_seconds j,await-pools,AwaitPools 1200",
                "upgradejob_step_progress_ratio j,await-control-plane,AwaitControlPlane 0.62",
                "upgradejob_step_progress_ratio j,await-pools,AwaitPools 0.5",
                "upgradejob_step_duration_seconds j,pre-health-check,PreHealthCheck 120",
            ]
        );
    }

    #[test]
    fn of_what_has_ended_only_the_last_is_told() {
        let ended = |name: &str, day: &str, reason: &str| {
            let steps = [step("pre-health-check", "PreHealthCheck", "00:00", Some("00:02"))];
            let status =
                json!({"conditions": conditions(&[("Started", "Started"), (reason, "x")]), "steps": steps});
            let mut job = job(name, &status);
            job.spec.start_after = serde_json::from_value(json!(format!("{day}T00:00:00Z"))).unwrap();
            job
        };
        let world = world(vec![
            ended("newest", "2026-01-03", "Failed"),
            ended("old", "2026-01-01", "Succeeded"),
            ended("older", "2026-01-02", "Succeeded"),
        ]);
        let told = lines(&metrics(&world, "2026-02-01T00:00:00Z".parse().unwrap()));
        assert_eq!(
            told,
            ["upgradejob_step_duration_seconds newest,pre-health-check,PreHealthCheck 120"]
        );
    }
}
