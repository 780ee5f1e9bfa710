//! What is wrong with an outcome.

use std::collections::BTreeMap;

use openshift_upgrade_operator::api::{
    UpgradeJob, annotations,
    conditions::types,
    upgrade_job::{HookState, UpgradeJobStatus},
};
use serde_json::Value;

use crate::{play::Outcome, seen::Seen, state, story::Story};

/// Differences that are shown of one case.
const MOST: usize = 8;

/// What is wrong with an outcome whatever went on, undisturbed ones included.
pub fn wrong(story: Story, outcome: &Outcome) -> Vec<String> {
    let mut wrong = Vec::new();
    for request in &outcome.unknown {
        wrong.push(format!("the simulated API server does not know {request}"));
    }
    twice(&outcome.seen, &mut wrong);
    let Some((key, job)) = the_job(outcome) else {
        wrong.push("there is not one UpgradeJob".to_owned());
        return wrong;
    };
    let status = job.status.clone().unwrap_or_default();
    ending(story, &status, &mut wrong);
    if let Some(finalizers) = job.metadata.finalizers.filter(|f| !f.is_empty()) {
        wrong.push(format!("{key} has finalizers {finalizers:?}"));
    }
    leftovers(outcome, &status, &mut wrong);
    wrong
}

/// What happened twice that may happen once.
fn twice(seen: &Seen, wrong: &mut Vec<String>) {
    for (run, uids) in &seen.hook_jobs {
        if uids.len() > 1 {
            wrong.push(format!("{run:?} has {} Jobs", uids.len()));
        }
    }
    for (name, uids) in &seen.workflows {
        if uids.len() > 1 {
            wrong.push(format!("workflow {name} was made {} times", uids.len()));
        }
    }
    let values = seen.desired_updates.iter().filter(|v| !v.is_null());
    let mut values: Vec<&Value> = values.collect();
    values.dedup();
    if values.len() > 1 {
        wrong.push(format!("desiredUpdate was set more than once: {values:?}"));
    }
}

fn the_job(outcome: &Outcome) -> Option<(&String, UpgradeJob)> {
    let mut jobs = outcome
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with("upgradejobs/"));
    let (key, job) = jobs.next()?;
    let job = serde_json::from_value(job.clone()).ok()?;
    jobs.next().is_none().then_some((key, job))
}

fn ending(story: Story, status: &UpgradeJobStatus, wrong: &mut Vec<String>) {
    let failed = status
        .conditions
        .iter()
        .find(|c| c.type_ == types::FAILED && c.status == "True");
    let is = (status.phase, failed.map(|c| c.reason.as_str()));
    let (phase, reason) = story.ending();
    if is != (Some(phase), reason) {
        wrong.push(format!(
            "the job ended as {is:?}, not as {:?}: {:?}",
            (phase, reason),
            status.message
        ));
    }
    for hook in status
        .hook_tracker
        .iter()
        .filter(|h| h.status == HookState::Active)
    {
        wrong.push(format!(
            "hook {} at {:?} never ended",
            hook.upgrade_job_hook, hook.hook_event
        ));
    }
}

/// What of ours is left, beyond what the status lists.
fn leftovers(outcome: &Outcome, status: &UpgradeJobStatus, wrong: &mut Vec<String>) {
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let ours = "/metadata/annotations/".to_owned() + &annotations::UPGRADE_JOB.replace('/', "~1");
    for (key, object) in &outcome.objects {
        let kind = key.split('/').next().unwrap_or_default();
        let owner = text(object, &ours);
        match kind {
            // OpenShift's; ours has a namespace.
            "clusterversions" if object["apiVersion"] == "config.openshift.io/v1" => {
                if let Some(owner) = owner {
                    wrong.push(format!("the lock is still held by {owner}"));
                }
            }
            "machineconfigpools" => {
                let name = text(object, "/metadata/name").unwrap_or_default();
                let paused = object["spec"]["paused"] == true;
                let listed = status.paused_pools.iter().any(|p| p.name == name);
                if (paused, owner.is_some()) != (listed, listed) {
                    wrong.push(format!(
                        "pool {name}: paused {paused}, owner {owner:?}, listed in the status {listed}"
                    ));
                }
            }
            "jobs" => {
                if let Some(finalizers) = object["metadata"]["finalizers"]
                    .as_array()
                    .filter(|f| !f.is_empty())
                {
                    wrong.push(format!("{key} has finalizers {finalizers:?}"));
                }
            }
            "workflows" => {
                let phase = text(object, "/status/phase").unwrap_or_default();
                if !["Succeeded", "Failed", "Error"].contains(&phase.as_str()) {
                    wrong.push(format!("{key} has not ended: phase {phase:?}"));
                }
            }
            _ => {}
        }
    }
    let jobs = outcome
        .objects
        .keys()
        .filter(|key| key.starts_with("jobs/"))
        .count();
    if jobs != status.hook_tracker.len() {
        wrong.push(format!(
            "{jobs} Jobs of hooks, {} in the tracker",
            status.hook_tracker.len()
        ));
    }
}

/// What is wrong with the outcome of a disturbed run: itself, or that it is not what the undisturbed one was.
pub fn compared(story: Story, undisturbed: &Undisturbed, outcome: &Outcome) -> Vec<String> {
    let mut all = wrong(story, outcome);
    let actual = state::comparable(&outcome.objects);
    all.extend(state::differences(&undisturbed.state, &actual, MOST));
    if outcome.seen.desired_updates != undisturbed.seen.desired_updates {
        all.push(format!("desiredUpdate was {:?}", outcome.seen.desired_updates));
    }
    if outcome.seen.pauses != undisturbed.seen.pauses {
        all.push(format!(
            "pools were paused and unpaused as {:?}",
            outcome.seen.pauses
        ));
    }
    let runs = |seen: &Seen| seen.hook_jobs.keys().cloned().collect::<Vec<_>>();
    if runs(&outcome.seen) != runs(&undisturbed.seen) {
        all.push(format!("hooks ran as {:?}", runs(&outcome.seen)));
    }
    all
}

/// What a story comes to when nothing disturbs it.
pub struct Undisturbed {
    pub state: BTreeMap<String, Value>,
    pub seen: Seen,
    /// What each write of the operator is, for people; the first is number 1.
    pub writes: Vec<String>,
}
