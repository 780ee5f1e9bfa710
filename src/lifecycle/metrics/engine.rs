//! Whether the workflow engine of a job does its part.

use kube::ResourceExt;

use crate::{
    api::{
        UpgradeJob,
        conditions::{self, types},
    },
    metrics::{Family, Series},
};

/// Of each job that is under way. An engine that was left still does not do its part.
pub(super) fn metrics(jobs: &[UpgradeJob]) -> Vec<Family> {
    let under_way = jobs.iter().filter(|j| !j.is_finished());
    let series = under_way.filter_map(|job| {
        let status = job.status.as_ref()?;
        status.workflow.as_ref()?;
        let stalled = conditions::is_true(&status.conditions, types::ENGINE_STALLED);
        Some(Series::new(vec![("upgradejob", job.name_any())], stalled))
    });
    vec![Family::gauge(
        "openshift_upgrade_controller_engine_stalled",
        "Whether the workflow engine of the UpgradeJob under way does not do its part, as the condition EngineStalled says: 1 or 0.",
        series,
    )]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(name: &str, status: &Value) -> UpgradeJob {
        serde_json::from_value(json!({
            "metadata": {"name": name}, "status": status,
            "spec": {"startAfter": "2026-01-01T00:00:00Z", "startBefore": "2026-01-01T01:00:00Z", "config": {}},
        }))
        .unwrap()
    }

    #[test]
    fn jobs_under_way_have_a_series() {
        let stalled = json!([{"type": "EngineStalled", "status": "True", "reason": "Silent", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let workflow = json!({"engine": "argo", "name": "w"});
        let all = metrics(&[
            job("pinned", &json!({})),
            job("good", &json!({"workflow": workflow})),
            job("bad", &json!({"workflow": workflow, "conditions": stalled})),
            job(
                "over",
                &json!({"workflow": workflow, "conditions": stalled, "finishedAt": "2026-01-01T00:00:00Z"}),
            ),
        ]);
        let series: Vec<_> = all[0]
            .series
            .iter()
            .map(|s| (s.labels[0].1.as_str(), s.value.clone()))
            .collect();
        assert_eq!(series, [("good", false.into()), ("bad", true.into())]);
    }
}
