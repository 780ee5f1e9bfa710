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

/// The hooks for `job`, at any event, sorted by name.
pub fn of_job<'a>(hooks: &'a [UpgradeJobHook], job: &UpgradeJob) -> Vec<&'a UpgradeJobHook> {
    sorted(hooks.iter().filter(|h| is_for(h, job)))
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::hooks::fixtures::{hook, upgrade_job};

    fn names(hooks: &[&UpgradeJobHook]) -> Vec<String> {
        hooks.iter().map(|h| h.name_any()).collect()
    }

    fn with_status(mut hook: UpgradeJobHook, claimed_by: &Value) -> UpgradeJobHook {
        hook.status = serde_json::from_value(json!({"claimedBy": claimed_by})).unwrap();
        hook
    }

    fn next(claimed_by: &Value) -> UpgradeJobHook {
        with_status(hook("next", &json!({"run": "Next"})), claimed_by)
    }

    fn skipped() -> UpgradeJob {
        let mut job = upgrade_job();
        job.status.as_mut().unwrap().phase = Some(JobPhase::Skipped);
        job
    }

    #[rstest]
    #[case(json!({}), true)]
    #[case(json!({"events": ["Finish", "Start"]}), true)]
    #[case(json!({"events": ["Finish"]}), false)]
    #[case(json!({"events": []}), false)]
    #[case(json!({"selector": {"matchLabels": {"upgrade-config": "cluster-upgrade"}}}), true)]
    #[case(json!({"selector": {"matchLabels": {"upgrade-config": "other"}}}), false)]
    #[case(json!({"selector": {"matchExpressions": [{"key": "my-var.io/info", "operator": "Exists"}]}}), true)]
    #[case(json!({"selector": {"matchExpressions": [{"key": "absent", "operator": "Exists"}]}}), false)]
    #[case(json!({"template": null}), true)]
    #[case(json!({"template": null, "templateRef": {"name": "x"}}), true)]
    fn a_hook_matches_by_event_and_selector(#[case] spec: Value, #[case] expected: bool) {
        let hooks = [hook("notify", &spec)];
        assert_eq!(
            !matching(&hooks, &upgrade_job(), HookEvent::Start).is_empty(),
            expected
        );
    }

    const NOBODY: fn() -> Value = || json!({"apiVersion": "", "kind": "", "name": "", "uid": ""});
    const SELF: fn() -> Value = || json!({"name": "cluster-upgrade-1609531200-ef11c47", "uid": "job-uid"});
    const PREDECESSOR: fn() -> Value =
        || json!({"name": "cluster-upgrade-1609531200-ef11c47", "uid": "older"});

    #[rstest]
    #[case::unclaimed(Value::Null, true, true)]
    #[case::unclaimed_as_the_peer_writes_it(NOBODY(), true, true)]
    #[case::own(SELF(), true, false)]
    #[case::of_an_earlier_job_of_the_same_name(PREDECESSOR(), false, false)]
    fn a_next_hook_is_for_its_claimant_only(
        #[case] claimed_by: Value,
        #[case] runs: bool,
        #[case] to_claim: bool,
    ) {
        let hooks = [next(&claimed_by)];
        assert_eq!(
            !matching(&hooks, &upgrade_job(), HookEvent::Start).is_empty(),
            runs
        );
        assert_eq!(!claims(&hooks, &upgrade_job()).is_empty(), to_claim);
    }

    #[test]
    fn a_claim_makes_the_hook_this_jobs_own() {
        let mut hooks = [next(&Value::Null)];
        let claim = serde_json::to_value(claim_by(&upgrade_job())).unwrap();
        assert_eq!(
            claim,
            json!({
                "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
                "name": "cluster-upgrade-1609531200-ef11c47", "uid": "job-uid",
            })
        );
        hooks[0] = with_status(hooks[0].clone(), &claim);
        let mut other = upgrade_job();
        other.metadata.uid = Some("other".to_owned());
        assert_eq!(matching(&hooks, &upgrade_job(), HookEvent::Start).len(), 1);
        assert_eq!(matching(&hooks, &other, HookEvent::Start).len(), 0);
        assert_eq!(claims(&hooks, &upgrade_job()).len(), 0);
    }

    #[test]
    fn a_skipped_job_neither_claims_nor_uses_up_a_next_hook() {
        let hooks = [next(&Value::Null)];
        assert_eq!(matching(&hooks, &skipped(), HookEvent::Start).len(), 0);
        assert_eq!(claims(&hooks, &skipped()).len(), 0);
        let all = [hook("all", &json!({}))];
        assert_eq!(matching(&all, &skipped(), HookEvent::Start).len(), 1);
    }

    #[test]
    fn only_next_hooks_of_the_job_are_claimed_whatever_their_event() {
        let hooks = [
            hook("z-next", &json!({"run": "Next", "events": ["Failure"]})),
            hook("all", &json!({"run": "All"})),
            hook("default", &json!({})),
            hook("a-next", &json!({"run": "Next"})),
            hook(
                "foreign",
                &json!({"run": "Next", "selector": {"matchLabels": {"a": "b"}}}),
            ),
        ];
        assert_eq!(names(&claims(&hooks, &upgrade_job())), ["a-next", "z-next"]);
    }

    #[test]
    fn hooks_come_sorted_by_name() {
        let hooks = ["b", "c", "a"].map(|n| hook(n, &json!({})));
        assert_eq!(
            names(&matching(&hooks, &upgrade_job(), HookEvent::Start)),
            ["a", "b", "c"]
        );
    }

    #[rstest]
    #[case(HookEvent::Finish, "2021-01-01T23:00:00Z", true)]
    #[case(HookEvent::Finish, "2021-01-02T00:00:00Z", true)]
    #[case(HookEvent::Finish, "2021-01-02T00:00:01Z", false)]
    #[case(HookEvent::Start, "2021-01-02T00:00:01Z", true)]
    fn a_hook_made_after_the_end_is_not_run_at_the_end(
        #[case] event: HookEvent,
        #[case] created: &str,
        #[case] runs: bool,
    ) {
        let mut job = upgrade_job();
        job.status.as_mut().unwrap().finished_at =
            Some(serde_json::from_value(json!("2021-01-02T00:00:00Z")).unwrap());
        let mut late = hook("late", &json!({"events": ["Start", "Finish"]}));
        late.metadata.creation_timestamp = Some(serde_json::from_value(json!(created)).unwrap());
        assert_eq!(!matching(&[late], &job, event).is_empty(), runs);
    }

    #[rstest]
    #[case(json!({"disruptive": true, "events": ["Finish"]}), true)]
    #[case(json!({"disruptive": false}), false)]
    #[case(json!({"disruptive": true, "selector": {"matchLabels": {"a": "b"}}}), false)]
    fn disruption_counts_if_the_hook_is_for_the_job(#[case] spec: Value, #[case] expected: bool) {
        assert_eq!(
            matches_disruptive(&[hook("notify", &spec)], &upgrade_job()),
            expected
        );
    }
}
