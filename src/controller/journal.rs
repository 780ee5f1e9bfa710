//! What the log says of a job: one line for each step that another phase was decided for, and one for each notice.
//!
//! Fields are the same everywhere, so a log store can be asked for one job or one step: `job`, `step`, `verdict`.

use kube::ResourceExt;

use crate::{
    api::{
        UpgradeJob,
        upgrade_job::{StepPhase, StepStatus, UpgradeJobStatus},
    },
    lifecycle::Notice,
};

/// Writes what the job's new status decides about its steps.
pub fn steps(job: &UpgradeJob, status: &UpgradeJobStatus) {
    for step in changes(job.status.as_ref(), status) {
        let (job, verdict) = (job.name_any(), step.phase.as_str());
        let message = step.message.as_deref().unwrap_or_default();
        if step.phase == StepPhase::Failed {
            tracing::warn!(job, step = step.name, verdict, "{message}");
        } else {
            tracing::info!(job, step = step.name, verdict, "{message}");
        }
    }
}

/// Writes what people are told about a job, but not the steps of [`steps`] again.
pub fn notices(job: &UpgradeJob, notices: &[Notice]) {
    for Notice {
        warning,
        reason,
        note,
    } in notices
    {
        if reason == Notice::STEP_DONE {
            continue;
        }
        let (job, verdict) = (job.name_any(), reason);
        if *warning {
            tracing::warn!(job, verdict, "{note}");
        } else {
            tracing::info!(job, verdict, "{note}");
        }
    }
}

/// Steps whose phase is another one, in the order of the status. Those that nothing has happened to are none.
fn changes<'a>(before: Option<&UpgradeJobStatus>, after: &'a UpgradeJobStatus) -> Vec<&'a StepStatus> {
    let phase_before = |name: &str| {
        let steps = before.iter().flat_map(|status| &status.steps);
        steps
            .into_iter()
            .find(|s| s.name == name)
            .map_or(StepPhase::Pending, |s| s.phase)
    };
    let changed = |step: &&StepStatus| phase_before(&step.name) != step.phase;
    after.steps.iter().filter(changed).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(steps: &[(&str, &str)]) -> UpgradeJobStatus {
        let steps: Vec<_> = steps
            .iter()
            .map(|(name, phase)| json!({"name": name, "kind": "Hook", "phase": phase}))
            .collect();
        serde_json::from_value(json!({"steps": steps})).unwrap()
    }

    fn names(before: Option<&UpgradeJobStatus>, after: &UpgradeJobStatus) -> Vec<String> {
        changes(before, after).iter().map(|s| s.name.clone()).collect()
    }

    #[test]
    fn verdicts_are_the_words_of_the_status() {
        use StepPhase::{Failed, Overridden, Pending, Running, Skipped, Succeeded};
        for phase in [Pending, Running, Succeeded, Failed, Skipped, Overridden] {
            assert_eq!(json!(phase), json!(phase.as_str()));
        }
    }

    #[test]
    fn a_step_is_told_of_when_its_phase_changes_and_only_then() {
        let before = status(&[("a", "Running"), ("b", "Pending"), ("c", "Succeeded")]);
        let after = status(&[
            ("a", "Succeeded"),
            ("b", "Running"),
            ("c", "Succeeded"),
            ("d", "Pending"),
        ]);
        assert_eq!(names(Some(&before), &after), ["a", "b"]);
        assert_eq!(names(Some(&after), &after), [""; 0]);
        assert_eq!(names(None, &after), ["a", "b", "c"]);
    }
}
