//! The steps of jobs: which are under way and since when, how far they are, and how long they took.
//!
//! Series are bounded by what exists: the jobs under way, and of each config the one that ended last.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    api::{
        UpgradeJob,
        upgrade_job::{HookState, HookTracker, StepPhase, StepStatus},
    },
    hooks::{hook_run::HookRun, tracker},
    metrics::{Family, Labels, Series},
    pinning::unresolved::config_of,
    plan::{Plan, StepAction},
    steps::{self, progress},
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
    let runs = world.hook_runs(now);
    let deadlines = running().filter_map(|(job, step)| {
        let planned = plans.get(&job.name_any())?.step(&step.name)?;
        Some(Series::new(
            labels(job, step),
            ends_by(&planned.action, job, world, &runs)?,
        ))
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
            "openshift_upgrade_controller_upgradejob_step_deadline_timestamp_seconds",
            "When a step under way ends at the latest, since all hooks that it waits for have a deadline of their own, in seconds since 1970.",
            deadlines,
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_step_duration_seconds",
            "How long a step took that has ended, of UpgradeJobs under way and of the one of each UpgradeConfig that ended last.",
            duration,
        ),
    ]
}

/// When the last of the hooks has ended that a step waits for, by their own deadlines; `None` where one has none.
fn ends_by(action: &StepAction, job: &UpgradeJob, world: &World, runs: &[HookRun<'_>]) -> Option<Timestamp> {
    let (event, hook, group) = match action {
        StepAction::Hook { event, hook, group } => (*event, Some(hook), *group),
        StepAction::HooksJoin { event, group } => (*event, None, *group),
        StepAction::PreHealthCheck
        | StepAction::PausePools
        | StepAction::SetDesiredUpdate
        | StepAction::AwaitControlPlane
        | StepAction::AwaitPools
        | StepAction::PostHealthCheck
        | StepAction::FinalHealthCheck
        | StepAction::Hold { .. }
        | StepAction::Unpause { .. }
        | StepAction::AwaitGroup { .. }
        | StepAction::Release => return None,
    };
    let keys = steps::hook_keys(job, group, &world.pools);
    let waited_for = |entry: &&HookTracker| {
        entry.status == HookState::Active
            && entry.hook_event == event
            && hook.is_none_or(|hook| *hook == entry.upgrade_job_hook)
            && keys.contains(&entry.tracking_key)
    };
    let tracker = &job.status.as_ref()?.hook_tracker;
    let ends = tracker.iter().filter(waited_for);
    let ends: Option<Vec<Timestamp>> = ends.map(|entry| tracker::ends_by(job, entry, runs)).collect();
    ends?.into_iter().max()
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
    use rstest::rstest;
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

    /// A Job of the hook for this job, with this deadline in seconds, begun five minutes past midnight.
    fn hook_job(hook: &str, deadline: Option<i64>) -> Value {
        let label = |name: &str| format!("upgradejobs.managedupgrade.appuio.io/{name}");
        json!({
            "metadata": {"name": hook, "namespace": "ns",
                "labels": {label("upgradejobhook"): hook, label("upgradejobk"): "j", label("event"): "Start"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "UpgradeJob", "name": "j", "uid": "j", "controller": true}]},
            "spec": {"activeDeadlineSeconds": deadline, "template": {}}, "status": {"startTime": "2026-01-01T00:05:00Z"},
        })
    }

    #[rstest]
    #[case::of_the_last(&[("ask", Some(14_400)), ("tell", Some(300))], &["Active", "Active"], Some("2026-01-01T04:05:00Z"))]
    #[case::one_has_none(&[("ask", Some(14_400)), ("tell", None)], &["Active", "Active"], None)]
    #[case::that_one_is_over(&[("ask", Some(14_400)), ("tell", None)], &["Active", "Complete"], Some("2026-01-01T04:05:00Z"))]
    #[case::nobody_knows(&[], &["Active", "Active"], None)]
    fn a_step_that_waits_for_hooks_has_their_deadline(
        #[case] hook_jobs: &[(&str, Option<i64>)],
        #[case] states: &[&str],
        #[case] expected: Option<&str>,
    ) {
        let mut job = under_way(&json!([step("hooks-start", "HooksJoin", "00:05", None)]));
        let entry = |(hook, state): (&str, &&str)| json!({"hookEvent": "Start", "upgradeJobHook": hook, "status": state.to_lowercase()});
        let tracker: Vec<Value> = ["ask", "tell"].into_iter().zip(states).map(entry).collect();
        job.status.as_mut().unwrap().hook_tracker = serde_json::from_value(json!(tracker)).unwrap();
        let mut world = world(vec![job]);
        let hook_jobs: Vec<Value> = hook_jobs
            .iter()
            .map(|(name, deadline)| hook_job(name, *deadline))
            .collect();
        world.hook_jobs = serde_json::from_value(json!(hook_jobs)).unwrap();
        let told = lines(&metrics(&world, "2026-01-01T00:30:00Z".parse().unwrap()));
        let told: Vec<_> = told.iter().filter(|l| l.contains("_deadline_")).collect();
        let expected = expected.map(|t| {
            let seconds = t.parse::<Timestamp>().unwrap().as_second();
            format!("upgradejob_step_deadline_timestamp_seconds j,hooks-start,HooksJoin {seconds}")
        });
        assert_eq!(told, expected.iter().collect::<Vec<_>>());
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
