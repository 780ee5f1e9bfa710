//! Every state that an object of ours passes through in a night, and the last one above all, as Argo CD shows it.

use openshift_upgrade_operator::api::{GROUP, conditions, conditions::types, upgrade_job::JobPhase};
use serde_json::Value;

use crate::{
    argocd::{Health, health},
    night::Morning,
};

fn is_ours(object: &Value) -> bool {
    object["apiVersion"]
        .as_str()
        .is_some_and(|version| version.starts_with(GROUP))
}

impl Morning {
    /// Argo CD can say something of each state; of the job that ended it says how.
    pub fn assert_argocd_tells(&self) {
        let passed = self.journal.iter().filter_map(|e| e.after.as_deref());
        for object in passed.filter(|o| is_ours(o)) {
            health(object);
        }
        let job = self.job();
        let all = &job.status.as_ref().unwrap().conditions;
        let is = |type_| conditions::get(all, type_).filter(|c| c.status == "True");
        let (found, told) = (health(&serde_json::to_value(&job).unwrap()), job.status.as_ref());
        let left = is(types::POOLS_LEFT_PAUSED);
        let (expected, message) = match (is(types::FAILED), is(types::EXPIRED), is(types::SUCCEEDED)) {
            (Some(failed), _, _) => ("Degraded", format!("{}: {}", failed.reason, failed.message)),
            (None, Some(expired), _) => (
                "Degraded",
                format!("not run, {}: {}", expired.reason, expired.message),
            ),
            (None, None, Some(done)) => {
                let is_for_people = left.is_some_and(|c| c.reason != "PendingChanges");
                let status = if is_for_people { "Degraded" } else { "Healthy" };
                (status, format!("{}: {}", done.reason, done.message))
            }
            (None, None, None) => panic!("{told:#?} is no ending"),
        };
        let left = left.map_or_else(String::new, |c| format!("; {}", c.message));
        let message = format!("{message}{left}");
        assert_eq!(
            found,
            Health {
                status: expected.to_owned(),
                message
            }
        );
        self.assert_config_tells(expected == "Degraded" && told.unwrap().phase != Some(JobPhase::Succeeded));
    }

    /// The config is what is in Git: Argo CD does not look at the job when it judges the application.
    fn assert_config_tells(&self, has_failed: bool) {
        let Some(config) = self.objects.values().find(|o| o["kind"] == "UpgradeConfig") else {
            return;
        };
        let found = health(config);
        let is_told =
            found.status == "Degraded" && found.message.starts_with("the last upgrade did not succeed, ");
        let is_worse =
            found.message.starts_with("Invalid: ") || found.message.starts_with("a run was missed, ");
        assert!(is_told == has_failed || is_worse, "{found:?}");
    }
}
