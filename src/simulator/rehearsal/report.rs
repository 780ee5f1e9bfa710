//! A rehearsal for programs: one JSON document. Its fields are a contract (`docs/rehearse.md`).

use jiff::Timestamp;
use serde::Serialize;

use super::{
    job::Job,
    story::{Skipped, Story},
};
use crate::api::{
    conditions::whole_seconds,
    upgrade_job::{JobPhase, StepPhase, StepStatus},
};

/// The document. Absent values are null, times RFC 3339 in UTC.
#[derive(Debug, Serialize)]
pub struct Report {
    jobs: Vec<JobReport>,
    skipped: Vec<SkippedReport>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JobReport {
    name: String,
    config: Option<String>,
    version: Option<String>,
    start_after: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    phase: JobPhase,
    reason: Option<String>,
    message: Option<String>,
    steps: Vec<StepReport>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StepReport {
    name: String,
    phase: StepPhase,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    message: Option<String>,
}

#[derive(Debug, Serialize)]
struct SkippedReport {
    config: String,
    run: Timestamp,
    reason: String,
}

impl Report {
    /// The document of a rehearsal.
    pub fn new(story: &Story<'_>, warnings: &[String]) -> Self {
        let jobs = story.jobs.iter();
        Self {
            jobs: jobs
                .map(|told| JobReport::new(told.job, told.config.as_ref()))
                .collect(),
            skipped: story.skipped.iter().map(SkippedReport::new).collect(),
            warnings: warnings.to_vec(),
        }
    }
}

impl JobReport {
    fn new(job: &Job, config: Option<&String>) -> Self {
        Self {
            name: job.name.clone(),
            config: config.cloned(),
            version: job.version.clone(),
            start_after: whole_seconds(job.start_after),
            started_at: job.started_at.map(whole_seconds),
            finished_at: job.finished_at.map(whole_seconds),
            phase: job.phase,
            reason: job.reason.clone(),
            message: job.message.clone(),
            steps: job.steps.iter().map(StepReport::new).collect(),
        }
    }
}

impl StepReport {
    fn new(step: &StepStatus) -> Self {
        Self {
            name: step.name.clone(),
            phase: step.phase,
            started_at: step.started_at.as_ref().map(|t| whole_seconds(t.0)),
            finished_at: step.finished_at.as_ref().map(|t| whole_seconds(t.0)),
            message: step.message.clone(),
        }
    }
}

impl SkippedReport {
    fn new(skipped: &Skipped) -> Self {
        Self {
            config: skipped.config.clone(),
            run: skipped.run,
            reason: skipped.reason.clone(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::simulator::rehearsal::{Recording, fixtures::*};

    /// A recording with everything that a document can have.
    fn everything() -> Recording {
        let mut recording = recording();
        let config = config("c", &json!({"schedule": {"cron": "0 22 1,8,15 12 *"}}));
        let status = json!({"nextPossibleSchedules": [
            {"time": "2026-12-15T21:00:00Z", "verdict": "Suspended", "reason": "UpgradeSuspensionWindow w"}]});
        recording.see_config(&with_status(&config, status), at(FROM));
        let run = "2026-12-01T21:00:00Z";
        let late = failed(
            "2026-12-01T21:00:00.25Z",
            "2026-12-02T01:00:00Z",
            "TimedOut",
            "not done",
        );
        recording.see_job(&job(&config, run, late), at(run));
        let mut bare = job(&config, "2026-12-08T21:00:00Z", json!({}));
        bare.metadata.labels = None;
        bare.metadata.owner_references = None;
        bare.spec.desired_version = None;
        recording.see_job(&bare, at(run));
        recording
    }

    /// Its document.
    pub(crate) fn example() -> Value {
        let recording = everything();
        serde_json::to_value(Report::new(&Story::of(&recording), &["careful".to_owned()])).unwrap()
    }

    #[test]
    fn the_document_has_these_fields_and_null_where_there_is_nothing() {
        let run = "2026-12-01T21:00:00Z";
        let recording = everything();
        let story = Story::of(&recording);
        let names = [&story.jobs[0].job.name, &story.jobs[1].job.name];
        let expected = json!({
            "jobs": [
                {"name": names[0], "config": "c", "version": "4.18.5", "startAfter": run, "startedAt": run,
                    "finishedAt": "2026-12-02T01:00:00Z", "phase": "Failed", "reason": "TimedOut", "message": "not done",
                    "steps": [
                        {"name": "await-control-plane", "phase": "Failed", "startedAt": run,
                            "finishedAt": "2026-12-02T01:00:00Z", "message": "62% done,\n waiting on etcd"},
                        {"name": "await-pools", "phase": "Pending", "startedAt": null, "finishedAt": null,
                            "message": null},
                    ]},
                {"name": names[1], "config": null, "version": null, "startAfter": "2026-12-08T21:00:00Z",
                    "startedAt": null, "finishedAt": null, "phase": "Pending", "reason": null, "message": null,
                    "steps": []},
            ],
            "skipped": [
                {"config": "c", "run": "2026-12-08T21:00:00Z", "reason": "nothing was said about it"},
                {"config": "c", "run": "2026-12-15T21:00:00Z", "reason": "UpgradeSuspensionWindow w"},
            ],
            "warnings": ["careful"],
        });
        assert_eq!(example(), expected);
    }
}
