//! What happened on the way: what was made twice, or set and set back, is not to be seen at the end.

use std::collections::{BTreeMap, BTreeSet};

use openshift_upgrade_operator::{api::labels, simulator::api::Entry};
use serde_json::Value;

/// What happened to the objects that an upgrade is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// UIDs of the Jobs of each run of a hook: its UpgradeJob, hook, event and pool. More than one is a hook that ran twice.
    pub hook_jobs: BTreeMap<[String; 4], BTreeSet<String>>,
    /// The values that `spec.desiredUpdate` of the ClusterVersion took, one after the other.
    pub desired_updates: Vec<Value>,
    /// Each time that a pool was paused (true) or unpaused, by anybody.
    pub pauses: BTreeMap<String, Vec<bool>>,
    /// UIDs of the workflows of each name.
    pub workflows: BTreeMap<String, BTreeSet<String>>,
}

impl Seen {
    /// What a journal tells.
    pub fn of(journal: &[Entry]) -> Self {
        let mut seen = Self::default();
        for entry in journal {
            let Some(after) = &entry.after else { continue };
            let before = entry.before.as_deref().unwrap_or(&Value::Null);
            let uid = || after["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            match entry.kind.as_str() {
                "jobs.batch" => {
                    let label = |key: &str| {
                        after["metadata"]["labels"][key]
                            .as_str()
                            .unwrap_or_default()
                            .to_owned()
                    };
                    let keys = [
                        labels::HOOK_JOB,
                        labels::HOOK,
                        labels::HOOK_EVENT,
                        labels::HOOK_TRACKING_KEY,
                    ];
                    seen.hook_jobs.entry(keys.map(label)).or_default().insert(uid());
                }
                "clusterversions.config.openshift.io" => {
                    let value = |object: &Value| object["spec"]["desiredUpdate"].clone();
                    if value(before) != value(after) {
                        seen.desired_updates.push(value(after));
                    }
                }
                "machineconfigpools.machineconfiguration.openshift.io" => {
                    let paused = |object: &Value| object["spec"]["paused"] == true;
                    if paused(before) != paused(after) {
                        seen.pauses
                            .entry(entry.name.clone())
                            .or_default()
                            .push(paused(after));
                    }
                }
                "workflows.argoproj.io" => {
                    seen.workflows
                        .entry(entry.name.clone())
                        .or_default()
                        .insert(uid());
                }
                _ => {}
            }
        }
        seen
    }
}
