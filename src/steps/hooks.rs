//! `hook-…` and `hooks-…`: hooks as Jobs and TaskRuns, one per hook, event and (for held pools) pool.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::{Action, Scene, Tick, Verdict, hold};
use crate::{
    api::{
        UpgradeJob, UpgradeJobHook,
        conditions::{self, reasons, types},
        upgrade_job::EngineChoice,
        upgrade_job_hook::HookEvent,
    },
    engine::native::Start,
    hooks::{
        environment::Event,
        hook_run::NewRun,
        native,
        run::{self, HooksVerdict, Tekton},
        select,
    },
    openshift::machine_config_pool::MachineConfigPool,
    pools,
};

/// One hook at one event. A hook that was deleted meanwhile is skipped.
pub(super) fn one(scene: &Scene<'_>, event: HookEvent, hook: &str, group: Option<usize>) -> Tick {
    let Some(found) = hook_of(scene, event, hook) else {
        return Tick::done(format!("hook {hook} was deleted or no longer matches; skipped"));
    };
    run(scene, event, &[found], group)
}

/// All hooks of an event as they are now: those with a node of their own are tracked already, later ones run here.
pub(super) fn join(scene: &Scene<'_>, event: HookEvent, group: Option<usize>) -> Tick {
    hooks_of(scene, event, group)
}

/// Runs all hooks of an event.
pub fn hooks_of(scene: &Scene<'_>, event: HookEvent, group: Option<usize>) -> Tick {
    let matching = select::matching(&scene.world.hooks, scene.job, event);
    run(scene, event, &matching, group)
}

/// The hook of a step, if it still is there and matches.
pub fn hook_of<'a>(scene: &Scene<'a>, event: HookEvent, hook: &str) -> Option<&'a UpgradeJobHook> {
    select::matching(&scene.world.hooks, scene.job, event)
        .into_iter()
        .find(|h| h.name_any() == hook)
}

/// What tells the runs of one event apart: the pools of the group, or one empty text.
pub fn keys_of(scene: &Scene<'_>, group: Option<usize>) -> Vec<String> {
    hook_keys(scene.job, group, &scene.world.pools)
}

/// The same, of a job that is not being decided on.
pub fn hook_keys(job: &UpgradeJob, group: Option<usize>, pools: &[MachineConfigPool]) -> Vec<String> {
    match group {
        None => vec![String::new()],
        Some(index) => pools::members(job, index, pools)
            .iter()
            .map(|p| p.name_any())
            .collect(),
    }
}

/// What a workflow engine needs to run a hook for these keys.
pub fn start(scene: &Scene<'_>, event: HookEvent, group: Option<usize>, keys: &[String]) -> Start {
    let disruptive = select::matches_disruptive(&scene.world.hooks, scene.job);
    native::start(
        &event_at(scene, event, group),
        keys,
        &job_as_of(scene),
        disruptive,
    )
}

fn event_at(scene: &Scene<'_>, event: HookEvent, group: Option<usize>) -> Event {
    Event {
        name: event,
        time: scene.began,
        reason: reason_of(scene, event, group),
        message: message_of(scene, event),
        pool: None,
    }
}

/// Hooks see the job as it is becoming: the outcome is in its conditions when the exit hooks run.
fn job_as_of(scene: &Scene<'_>) -> UpgradeJob {
    let mut job = scene.job.clone();
    job.status = Some(scene.status.clone());
    job
}

fn run(scene: &Scene<'_>, event: HookEvent, hooks: &[&UpgradeJobHook], group: Option<usize>) -> Tick {
    let keys = keys_of(scene, group);
    let event = event_at(scene, event, group);
    let job = job_as_of(scene);
    let settings = run::Settings {
        matches_disruptive: select::matches_disruptive(&scene.world.hooks, scene.job),
        default_deadline: scene.settings.default_hook_deadline,
        tekton: tekton(scene),
    };
    let tracker = &scene.status.hook_tracker;
    let run::HooksTick {
        create,
        problems,
        warnings,
        verdict,
    } = run::tick(hooks, &event, &keys, tracker, &job, &settings);
    let actions = create
        .into_iter()
        .map(|new| match new {
            NewRun::Job(job) => Action::CreateHookJob(job),
            NewRun::TaskRun(run) => Action::CreateHookTaskRun(run),
        })
        .collect();
    let verdict = match verdict {
        HooksVerdict::Running { message } => Verdict::Running {
            message,
            wake_at: None,
        },
        HooksVerdict::Done { message } => Verdict::Done { message },
        HooksVerdict::Failed { message } => Verdict::Failed {
            reason: reasons::HOOK_FAILED,
            message,
        },
    };
    Tick {
        actions,
        tracked: problems,
        warnings: warnings.into_iter().map(|w| ("Hook", w)).collect(),
        asks: BTreeSet::new(),
        looks: BTreeSet::new(),
        blocked: Vec::new(),
        verdict,
    }
}

/// What TaskRuns need, where Tekton runs the job.
fn tekton(scene: &Scene<'_>) -> Option<Tekton> {
    if scene.engine != Some(EngineChoice::Tekton) {
        return None;
    }
    let config = scene.job.spec.config.workflow.clone().unwrap_or_default();
    let account = config.service_account(scene.settings.workflow_service_account.as_ref());
    Some(Tekton {
        account: account.cloned(),
    })
}

/// `EVENT_reason`: the peer's reasons, and `Expired` for a job that was not started in time.
fn reason_of(scene: &Scene<'_>, event: HookEvent, group: Option<usize>) -> String {
    match event {
        HookEvent::Create => String::new(),
        HookEvent::Start => reasons::STARTED.to_owned(),
        HookEvent::UpgradeComplete => reasons::COMPLETED.to_owned(),
        HookEvent::MachineConfigPoolUnpause => {
            let nothing = group.is_some_and(|g| hold::is_nothing_pending(scene, g));
            if nothing {
                reasons::COMPLETED
            } else {
                reasons::DELAY_REACHED
            }
            .to_owned()
        }
        HookEvent::Success | HookEvent::Failure | HookEvent::Finish => {
            if conditions::is_true(&scene.status.conditions, types::EXPIRED) {
                return reasons::EXPIRED.to_owned();
            }
            exit_event(scene.status)
                .map(|(_, c)| c.reason.clone())
                .unwrap_or_default()
        }
    }
}

fn message_of(scene: &Scene<'_>, event: HookEvent) -> String {
    match event {
        HookEvent::Success | HookEvent::Failure | HookEvent::Finish => exit_event(scene.status)
            .map(|(_, c)| c.message.clone())
            .unwrap_or_default(),
        HookEvent::Create
        | HookEvent::Start
        | HookEvent::UpgradeComplete
        | HookEvent::MachineConfigPoolUnpause => scene.status.message.clone().unwrap_or_default(),
    }
}

/// The event that belongs to the outcome, and the condition that tells it; `None` while there is no outcome.
pub fn exit_event(
    status: &crate::api::upgrade_job::UpgradeJobStatus,
) -> Option<(
    HookEvent,
    &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition,
)> {
    let of = |type_| conditions::get(&status.conditions, type_).filter(|c| c.status == "True");
    of(types::SUCCEEDED)
        .map(|c| (HookEvent::Success, c))
        .or_else(|| of(types::FAILED).map(|c| (HookEvent::Failure, c)))
}
