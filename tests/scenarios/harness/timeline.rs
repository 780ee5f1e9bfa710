//! What a job's status said over time, one entry for every status the operator wrote.

use jiff::Timestamp;
use openshift_upgrade_operator::api::upgrade_job::{StepPhase, UpgradeJobStatus};

use super::audit::Request;

/// Every status of a job that was written, in order.
pub struct Timeline(Vec<(Timestamp, UpgradeJobStatus)>);

impl Timeline {
    /// Of the job of this name.
    pub fn of(writes: &[Request], job: &str) -> Self {
        let of_job = writes
            .iter()
            .filter(|w| w.resource == "upgradejobs/status" && w.name == job);
        let statuses = of_job.filter_map(|w| {
            let status = w.body.as_array()?.iter().find(|op| op["path"] == "/status")?;
            Some((
                w.at,
                serde_json::from_value(status["value"].clone()).expect("a status that the operator wrote"),
            ))
        });
        Self(statuses.collect())
    }

    /// `status/reason` of a condition in the order in which it had them, without repetitions.
    pub fn condition(&self, type_: &str) -> Vec<String> {
        let all = self
            .0
            .iter()
            .flat_map(|(_, s)| s.conditions.iter().filter(|c| c.type_ == type_));
        let mut seen: Vec<String> = all.map(|c| format!("{}/{}", c.status, c.reason)).collect();
        seen.dedup();
        seen
    }

    /// The steps in the order in which they ended. Those that ended in one write are in the order of the plan.
    pub fn ended(&self) -> Vec<String> {
        let mut ended: Vec<String> = Vec::new();
        for step in self.0.iter().flat_map(|(_, s)| &s.steps) {
            if step.phase.is_finished() && step.phase != StepPhase::Skipped && !ended.contains(&step.name) {
                ended.push(step.name.clone());
            }
        }
        ended
    }

    /// The phases in the order in which the job had them.
    pub fn phases(&self) -> Vec<String> {
        let mut all: Vec<String> = self
            .0
            .iter()
            .filter_map(|(_, s)| Some(format!("{:?}", s.phase?)))
            .collect();
        all.dedup();
        all
    }
}
