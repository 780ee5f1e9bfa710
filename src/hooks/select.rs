//! Which hooks run for a job.

use kube::{Resource, ResourceExt};

use crate::api::{
    UpgradeJob, UpgradeJobHook,
    upgrade_job::JobPhase,
    upgrade_job_hook::{ClaimReference, HookEvent, RunPolicy},
};

/// The hooks that run at `event` for `job`, sorted by name.
///
/// A hook matches if it lists the event, selects the job's labels, and, with `run: Next`, nobody else has claimed it.
/// A skipped job claims nothing, so an unclaimed Next hook waits for the job after it. A hook that was created after the
/// job's end is not run for it. Hooks without anything to run match, too: [`super::run::tick`] reports them, because an
/// Abort hook that is not run must not look like one that passed.
pub fn matching<'a>(
    hooks: &'a [UpgradeJobHook],
    job: &UpgradeJob,
    event: HookEvent,
) -> Vec<&'a UpgradeJobHook> {
    sorted(hooks.iter().filter(|h| {
        h.spec.events.contains(&event) && is_for(h, job) && !(is_exit(event) && created_after_end(h, job))
    }))
}

/// The `run: Next` hooks that `job` has to claim when it starts, sorted by name; see [`claim_by`].
pub fn claims<'a>(hooks: &'a [UpgradeJobHook], job: &UpgradeJob) -> Vec<&'a UpgradeJobHook> {
    sorted(
        hooks
            .iter()
            .filter(|h| h.spec.run() == RunPolicy::Next && h.claimed_by().is_none() && is_for(h, job)),
    )
}

/// What `status.claimedBy` of a hook says once `job` has claimed it.
pub fn claim_by(job: &UpgradeJob) -> ClaimReference {
    ClaimReference {
        api_version: UpgradeJob::api_version(&()).into_owned(),
        kind: UpgradeJob::kind(&()).into_owned(),
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
    }
}

/// Whether a hook for `job`, at any event, says that it is disruptive.
pub fn matches_disruptive(hooks: &[UpgradeJobHook], job: &UpgradeJob) -> bool {
    hooks.iter().any(|h| h.spec.disruptive && is_for(h, job))
}

fn is_for(hook: &UpgradeJobHook, job: &UpgradeJob) -> bool {
    let skipped = job.status.as_ref().and_then(|s| s.phase) == Some(JobPhase::Skipped);
    let open = match hook.spec.run() {
        RunPolicy::Next if skipped => hook
            .claimed_by()
            .is_some_and(|c| Some(&c.uid) == job.meta().uid.as_ref()),
        RunPolicy::Next | RunPolicy::All => hook.is_open_to(&job.uid().unwrap_or_default()),
    };
    open && hook.selects(job.labels())
}

fn is_exit(event: HookEvent) -> bool {
    match event {
        HookEvent::Success | HookEvent::Failure | HookEvent::Finish => true,
        HookEvent::Create
        | HookEvent::Start
        | HookEvent::UpgradeComplete
        | HookEvent::MachineConfigPoolUnpause => false,
    }
}

fn created_after_end(hook: &UpgradeJobHook, job: &UpgradeJob) -> bool {
    let end = job.status.as_ref().and_then(|s| s.finished_at.as_ref());
    let created = hook.meta().creation_timestamp.as_ref();
    end.zip(created).is_some_and(|(end, created)| created.0 > end.0)
}

fn sorted<'a>(hooks: impl Iterator<Item = &'a UpgradeJobHook>) -> Vec<&'a UpgradeJobHook> {
    let mut hooks: Vec<_> = hooks.collect();
    hooks.sort_by_key(|h| h.name_any());
    hooks
}
