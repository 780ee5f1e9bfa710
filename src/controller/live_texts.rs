//! How often a job's texts are written: what changes every few seconds, such as `63% done`, must not write to the engine, to the
//! status and to Events all the time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{
        UpgradeJob,
        upgrade_job::{HookState, UpgradeJobStatus},
    },
    engine::Report,
    lifecycle::Decision,
};

/// When what was said last of each job, by its UID.
#[derive(Default)]
pub struct LiveTexts {
    /// When its workflow was written to.
    reported: BTreeMap<String, Timestamp>,
    /// The same for its status.
    recorded: BTreeMap<String, Timestamp>,
    /// The last failure that was told of.
    failures: BTreeMap<String, String>,
}

impl LiveTexts {
    /// The workflow of the job was written to.
    pub fn reported(&mut self, job: &UpgradeJob, now: Timestamp) {
        self.reported.insert(uid(job), now);
    }

    /// The status of the job was written.
    pub fn recorded(&mut self, job: &UpgradeJob, now: Timestamp) {
        self.recorded.insert(uid(job), now);
    }

    /// Whether this failure is another one than the last of the job; from now on it is the last.
    pub fn is_new_failure(&mut self, job: &UpgradeJob, note: &str) -> bool {
        self.failures.insert(uid(job), note.to_owned()).as_deref() != Some(note)
    }

    /// Takes out of the decision what is only text and was written less than `interval` ago; it is decided again then.
    pub fn limit(&self, job: &UpgradeJob, decision: &mut Decision, interval: SignedDuration, now: Timestamp) {
        let waits = |last: Option<&Timestamp>| {
            let next = last?.saturating_add(interval).unwrap_or(Timestamp::MAX);
            (now < next).then_some(next)
        };
        if are_messages(&decision.reports)
            && !decision.reports.is_empty()
            && let Some(next) = waits(self.reported.get(&uid(job)))
        {
            decision.reports.clear();
            wake(decision, next);
        }
        if let Some(stored) = &job.status
            && is_text_only(stored, decision)
            && let Some(next) = waits(self.recorded.get(&uid(job)))
        {
            decision.status.clone_from(stored);
            wake(decision, next);
        }
    }
}

fn uid(job: &UpgradeJob) -> String {
    job.metadata.uid.clone().unwrap_or_default()
}

fn wake(decision: &mut Decision, at: Timestamp) {
    decision.wake_at = Some(decision.wake_at.map_or(at, |wake| wake.min(at)));
}

/// Whether the decision changes messages of the status and nothing else; with an ending a message goes along for free.
fn is_text_only(stored: &UpgradeJobStatus, decision: &Decision) -> bool {
    decision.reports.is_empty() && stored != &decision.status && says_only(stored, decision)
}

/// Whether the decision, if it changes anything, changes only what people read: messages of the status and of the workflow.
pub fn says_only(stored: &UpgradeJobStatus, decision: &Decision) -> bool {
    let Decision {
        status,
        actions,
        reports,
        notices,
        asks: _,
        looks: _,
        hook_pods: _,
        blocked: _,
        lacks: _,
        wake_at: _,
    } = decision;
    let is_quiet = actions.is_empty() && are_messages(reports) && notices.is_empty();
    is_quiet && without_messages(stored) == without_messages(status)
}

fn are_messages(reports: &[(String, Report)]) -> bool {
    reports.iter().all(|(_, r)| matches!(r, Report::Message(_)))
}

fn without_messages(status: &UpgradeJobStatus) -> UpgradeJobStatus {
    let mut status = status.clone();
    status.message = None;
    for step in &mut status.steps {
        step.message = None;
    }
    for blocker in &mut status.blockers {
        blocker.message.clear();
    }
    for condition in &mut status.conditions {
        condition.message.clear();
    }
    for entry in status
        .hook_tracker
        .iter_mut()
        .filter(|e| e.status == HookState::Active)
    {
        entry.message.clear();
    }
    status
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::steps::Action;

    fn status(change: &Value) -> UpgradeJobStatus {
        let mut status = json!({
            "phase": "Running", "message": "62% done", "progress": "3/9",
            "steps": [{"name": "a", "kind": "K", "phase": "Running", "message": "62% done"}],
            "conditions": [{"type": "UpgradeCompleted", "status": "False", "reason": "InProgress", "message": "62% done",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        });
        json_patch::merge(&mut status, change);
        serde_json::from_value(status).unwrap()
    }

    #[rstest]
    #[case::the_same(json!({}), false)]
    #[case::message(json!({"message": "63% done"}), true)]
    #[case::message_of_a_step(json!({"steps": [{"name": "a", "kind": "K", "phase": "Running", "message": "63% done"}]}), true)]
    #[case::phase(json!({"message": "x", "phase": "Paused"}), false)]
    #[case::phase_of_a_step(json!({"steps": [{"name": "a", "kind": "K", "phase": "Succeeded"}]}), false)]
    #[case::progress(json!({"message": "x", "progress": "4/9"}), false)]
    #[case::condition(json!({"conditions": []}), false)]
    fn only_text_may_wait(#[case] change: Value, #[case] waits: bool) {
        let decision = to_write(status(&change));
        assert_eq!(is_text_only(&status(&json!({})), &decision), waits);
    }

    fn to_write(status: UpgradeJobStatus) -> Decision {
        Decision {
            status,
            actions: Vec::new(),
            reports: Vec::new(),
            notices: Vec::new(),
            asks: BTreeSet::default(),
            looks: BTreeSet::default(),
            hook_pods: BTreeSet::default(),
            blocked: Vec::new(),
            lacks: BTreeSet::default(),
            wake_at: None,
        }
    }

    fn message() -> Report {
        Report::Message("63% done".to_owned())
    }

    #[rstest]
    #[case::message(json!({"message": "63% done"}), vec![], true)]
    #[case::message_of_the_workflow(json!({}), vec![message()], true)]
    #[case::both(json!({"message": "63% done"}), vec![message()], true)]
    #[case::phase(json!({"phase": "Paused"}), vec![], false)]
    #[case::phase_and_message(json!({"phase": "Paused"}), vec![message()], false)]
    #[case::end_of_a_step(json!({}), vec![message(), Report::Succeeded(String::new())], false)]
    fn texts_are_told_from_what_matters(
        #[case] change: Value,
        #[case] reports: Vec<Report>,
        #[case] expected: bool,
    ) {
        let reports = reports.into_iter().map(|r| ("a".to_owned(), r)).collect();
        let decision = Decision {
            reports,
            ..to_write(status(&change))
        };
        assert_eq!(says_only(&status(&json!({})), &decision), expected);
    }

    #[test]
    fn what_is_done_is_no_text() {
        let decision = Decision {
            actions: vec![Action::TakeLock],
            ..to_write(status(&json!({})))
        };
        assert!(!says_only(&status(&json!({})), &decision));
    }

    #[rstest]
    #[case::a_moment_later(5, "62% done", Some(10))]
    #[case::in_time(10, "63% done", None)]
    fn a_message_is_written_once_in_the_interval(
        #[case] seconds: i64,
        #[case] written: &str,
        #[case] wake: Option<i64>,
    ) {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut job: UpgradeJob = serde_json::from_value(json!({"metadata": {"name": "j", "uid": "u"},
            "spec": {"startAfter": "2026-01-01T00:00:00Z", "startBefore": "2026-01-01T01:00:00Z", "config": {}}}))
        .unwrap();
        job.status = Some(status(&json!({})));
        let mut texts = LiveTexts::default();
        texts.recorded(&job, at(0));
        let mut decision = to_write(status(&json!({"message": "63% done"})));
        texts.limit(&job, &mut decision, SignedDuration::from_secs(10), at(seconds));
        assert_eq!(decision.status.message.as_deref(), Some(written));
        assert_eq!(decision.wake_at, wake.map(at));
    }

    #[test]
    fn a_failure_is_told_once_until_there_is_another() {
        let job = |uid: &str| -> UpgradeJob {
            serde_json::from_value(json!({"metadata": {"name": "j", "uid": uid},
                "spec": {"startAfter": "2026-01-01T00:00:00Z", "startBefore": "2026-01-01T01:00:00Z", "config": {}}}))
            .unwrap()
        };
        let mut texts = LiveTexts::default();
        let told = [("a", "x"), ("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")];
        let told = told.map(|(uid, note)| texts.is_new_failure(&job(uid), note));
        assert_eq!(told, [true, false, true, true, true]);
    }
}
