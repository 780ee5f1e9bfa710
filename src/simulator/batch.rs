//! Kubernetes' Job controller, its scheduler and the kubelet, as far as Jobs of hooks need them: a Job runs for a while, then
//! it is Complete or Failed. There are no pods.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::batch::v1::{Job, JobCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions, PropagationPolicy},
    runtime::watcher,
};

use super::{
    driver::{self, CALL},
    openshift::write::{self, Write},
    writer::Writer,
};
use crate::clock::Clock;

/// How a Job goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// From its creation to its end.
    pub runs: SignedDuration,
    /// How it ends.
    pub end: End,
}

/// How a Job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All went well.
    Complete,
    /// Its pods failed once too often.
    Failed,
    /// It does not, but for its deadline.
    Never,
}

/// What to do about the Jobs now.
#[derive(Debug, Default)]
pub struct Step {
    /// New status of Jobs.
    pub writes: Vec<Write>,
    /// Jobs whose time to live is over.
    pub expired: Vec<Job>,
    /// When time alone changes something.
    pub wake_at: Option<Timestamp>,
}

/// Decides what becomes of the Jobs.
pub fn next(jobs: &[Job], now: Timestamp, outcome: &dyn Fn(&Job) -> Outcome) -> Step {
    let mut step = Step::default();
    for job in jobs.iter().filter(|j| j.metadata.deletion_timestamp.is_none()) {
        let due = match ended_at(job) {
            Some(at) => time_to_live(job).map(|ttl| later(at, ttl)),
            None => Some(advance(job, now, &outcome(job), &mut step)),
        };
        match due {
            Some(at) if at > now => step.wake_at = Some(step.wake_at.map_or(at, |w| w.min(at))),
            Some(_) if ended_at(job).is_some() => step.expired.push(job.clone()),
            Some(_) | None => {}
        }
    }
    step
}

/// Starts or ends the Job where it is time; returns when to look again.
fn advance(job: &Job, now: Timestamp, outcome: &Outcome, step: &mut Step) -> Timestamp {
    let created = job.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
    let deadline = job
        .spec
        .as_ref()
        .and_then(|s| s.active_deadline_seconds)
        .map_or(Timestamp::MAX, |s| later(created, SignedDuration::from_secs(s)));
    let end = match outcome.end {
        End::Complete | End::Failed => later(created, outcome.runs),
        End::Never => Timestamp::MAX,
    };
    let over = end.min(deadline);
    let mut changed = job.clone();
    let status = changed.status.get_or_insert_default();
    if now < over {
        status.start_time.get_or_insert(Time(created));
        status.active = Some(1);
        status.ready = Some(1);
    } else {
        status.start_time.get_or_insert(Time(created));
        status.active = None;
        status.ready = None;
        let (type_, reason, message) = if deadline < end {
            (
                "Failed",
                "DeadlineExceeded",
                "Job was active longer than specified deadline",
            )
        } else {
            match outcome.end {
                End::Failed => {
                    status.failed = Some(1);
                    (
                        "Failed",
                        "BackoffLimitExceeded",
                        "Job has reached the specified backoff limit",
                    )
                }
                End::Complete | End::Never => {
                    status.succeeded = Some(1);
                    status.completion_time = Some(Time(now));
                    (
                        "Complete",
                        "CompletionsReached",
                        "Reached expected number of succeeded pods",
                    )
                }
            }
        };
        status.conditions.get_or_insert_default().push(JobCondition {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(Time(now)),
            last_probe_time: Some(Time(now)),
        });
    }
    step.writes.extend(write::update(job, &changed));
    over
}

fn ended_at(job: &Job) -> Option<Timestamp> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let ended = conditions
        .iter()
        .find(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")?;
    ended.last_transition_time.as_ref().map(|t| t.0)
}

fn time_to_live(job: &Job) -> Option<SignedDuration> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    Some(SignedDuration::from_secs(seconds.into()))
}

fn later(t: Timestamp, d: SignedDuration) -> Timestamp {
    t.saturating_add(d).unwrap_or(Timestamp::MAX)
}

/// Runs the Jobs of all namespaces until dropped.
pub async fn run(client: Client, clock: Clock, idle: Duration, outcome: &(dyn Fn(&Job) -> Outcome + Sync)) {
    let mut changes = Vec::new();
    let store = driver::watch(
        Api::<Job>::all(client.clone()),
        driver::watch_config(watcher::Config::default(), clock),
        &mut changes,
    );
    let mut changes = futures::stream::select_all(changes);
    let mut writer = Writer::new(client.clone());
    loop {
        let now = clock.now();
        let step = next(&driver::sorted(&store), now, outcome);
        let mut wait = idle;
        if let Some(at) = step.wake_at {
            wait = wait.min(at.duration_since(now).try_into().unwrap_or_default());
        }
        for job in &step.expired {
            delete(&client, job).await;
        }
        if !step.writes.is_empty() || !step.expired.is_empty() {
            wait = wait.min(driver::AFTER_A_WRITE);
        }
        if !writer.apply(step.writes).await {
            tokio::time::sleep(driver::AFTER_A_FAILURE).await;
        }
        driver::pause(wait, &mut changes).await;
    }
}

/// As the TTL controller does it; what fails is tried again at the next look.
async fn delete(client: &Client, job: &Job) {
    let namespace = job.namespace().unwrap_or_default();
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        preconditions: Some(Preconditions {
            uid: job.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let api = Api::<Job>::namespaced(client.clone(), &namespace);
    let name = job.name_any();
    match tokio::time::timeout(CALL, api.delete(&name, &params)).await {
        Ok(Ok(_)) => tracing::info!("delete Job {namespace}/{name}: its time to live is over"),
        Ok(Err(error)) => tracing::debug!("could not delete Job {namespace}/{name}: {error}"),
        Err(_) => tracing::debug!("could not delete Job {namespace}/{name}: no answer"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn job(spec: &serde_json::Value) -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1", "creationTimestamp": at(0)},
            "spec": spec,
        }))
        .unwrap()
    }

    fn outcome(end: End) -> impl Fn(&Job) -> Outcome {
        move |_| Outcome {
            runs: SignedDuration::from_secs(60),
            end,
        }
    }

    /// The status that is written.
    fn written(step: &Step) -> String {
        match step.writes.as_slice() {
            [] => String::new(),
            [
                Write::Patch {
                    status: true, patch, ..
                },
            ] => serde_json::to_string(patch).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[rstest]
    #[case::runs(json!({}), End::Complete, 59, "\"active\"", Some(60))]
    #[case::ends(json!({}), End::Complete, 60, "\"Complete\"", None)]
    #[case::fails(json!({}), End::Failed, 60, "BackoffLimitExceeded", None)]
    #[case::never(json!({}), End::Never, 9_000, "\"active\"", Some(i64::MAX))]
    #[case::deadline(json!({"activeDeadlineSeconds": 30}), End::Complete, 30, "DeadlineExceeded", None)]
    #[case::deadline_of_an_endless_one(json!({"activeDeadlineSeconds": 30}), End::Never, 31, "DeadlineExceeded", None)]
    fn a_job_runs_and_ends(
        #[case] spec: serde_json::Value,
        #[case] end: End,
        #[case] now: i64,
        #[case] expected: &str,
        #[case] wake: Option<i64>,
    ) {
        let step = next(&[job(&spec)], at(now), &outcome(end));
        assert!(written(&step).contains(expected), "{}", written(&step));
        let wake = wake.map(|s| if s == i64::MAX { Timestamp::MAX } else { at(s) });
        assert_eq!(step.wake_at, wake);
    }

    #[test]
    fn a_finished_job_goes_when_its_time_to_live_is_over() {
        let mut finished = job(&json!({"ttlSecondsAfterFinished": 10}));
        let condition = json!([{"type": "Complete", "status": "True", "lastTransitionTime": at(60)}]);
        finished.status = Some(serde_json::from_value(json!({"conditions": condition})).unwrap());
        let jobs = [finished];
        let early = next(&jobs, at(69), &outcome(End::Complete));
        assert_eq!((early.wake_at, early.expired.len()), (Some(at(70)), 0));
        let late = next(&jobs, at(70), &outcome(End::Complete));
        assert_eq!((late.writes.len(), late.expired.len()), (0, 1));
    }
}
