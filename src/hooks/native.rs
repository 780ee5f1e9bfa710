//! What a workflow engine needs to run a hook: the environment of Jobs, as data of ConfigMaps.

use super::environment::{self, Event};
use crate::{
    api::UpgradeJob,
    engine::native::{Start, StartedRun},
};

/// Most bytes of one environment. A ConfigMap takes 1 MiB; names stand in its `managedFields` once more.
const MAX_ENVIRONMENT: usize = 512 * 1024;
/// Longest key of a ConfigMap.
const MAX_KEY: usize = 253;
/// Most bytes of a document that goes through the workflow itself, which is one object with all its nodes: the environment has
/// it whole.
const MAX_PARAMETER: usize = 16 * 1024;

/// What starts a hook at `event`, once per tracking key.
pub fn start(event: &Event, keys: &[String], job: &UpgradeJob, matches_disruptive: bool) -> Start {
    let runs = keys
        .iter()
        .map(|key| {
            let event = Event {
                pool: (!key.is_empty()).then(|| key.clone()),
                ..event.clone()
            };
            StartedRun {
                key: key.clone(),
                variables: variables(&event, job, matches_disruptive),
            }
        })
        .collect();
    let (event_document, job_document) = environment::documents(event, job, MAX_PARAMETER);
    Start {
        message: format!("{}: the workflow runs the hook", event.name.as_str()),
        event: event_document,
        job: job_document,
        runs,
    }
}

fn variables(
    event: &Event,
    job: &UpgradeJob,
    matches_disruptive: bool,
) -> std::collections::BTreeMap<String, String> {
    let mut max_job = environment::MAX_JOB;
    loop {
        let (mut values, _) = environment::values_within(event, job, matches_disruptive, max_job);
        values.retain(|name, _| name.len() <= MAX_KEY);
        let size: usize = values
            .iter()
            .map(|(name, value)| 2 * name.len() + value.len())
            .sum();
        if size <= MAX_ENVIRONMENT || max_job <= 1024 {
            return values;
        }
        max_job /= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::{
        api::upgrade_job_hook::HookEvent,
        hooks::fixtures::{event, upgrade_job},
    };

    fn keys(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|k| (*k).to_owned()).collect()
    }

    #[test]
    fn a_process_sees_what_it_would_see_in_a_job() {
        let start = start(&event(HookEvent::Start), &keys(&[""]), &upgrade_job(), true);
        let seen = &start.runs[0].variables;
        let vars = environment::variables(&event(HookEvent::Start), &upgrade_job(), true).vars;
        // The kubelet turns the doubled `$` of a Job's variables back into one; it leaves those of a ConfigMap alone.
        let in_job: BTreeMap<String, String> = vars
            .into_iter()
            .map(|v| (v.name, v.value.unwrap().replace("$$", "$")))
            .collect();
        assert_eq!(*seen, in_job);
        assert_eq!(seen["EVENT_NAME"], r#""Start""#);
        assert_eq!(seen["META_matchesDisruptiveHooks"], "true");
    }

    #[test]
    fn every_pool_has_an_environment_of_its_own() {
        let start = start(
            &event(HookEvent::MachineConfigPoolUnpause),
            &keys(&["infra", "worker"]),
            &upgrade_job(),
            false,
        );
        let pools: Vec<&str> = start
            .runs
            .iter()
            .map(|r| r.variables["EVENT_pool"].as_str())
            .collect();
        assert_eq!(pools, [r#""infra""#, r#""worker""#]);
        assert!(!start.event.contains("pool"), "{}", start.event);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_the_documents_stay_documents() {
        let mut job = upgrade_job();
        let notes = (0..3_000).map(|i| (format!("note-{i}"), "$x {{y}}".to_owned()));
        job.metadata.annotations = Some(notes.chain([("k".repeat(300), "v".to_owned())]).collect());
        let start = start(&event(HookEvent::Start), &keys(&[""]), &job, false);
        let variables = &start.runs[0].variables;
        let size: usize = variables.iter().map(|(k, v)| k.len() + v.len()).sum();
        assert!(size < MAX_ENVIRONMENT, "{size}");
        assert!(variables.keys().all(|k| k.len() <= MAX_KEY));
        assert!(start.job.len() <= MAX_PARAMETER);
        let document: Value = serde_json::from_str(&start.job).unwrap();
        assert_eq!(document["metadata"]["name"], "cluster-upgrade-1609531200-ef11c47");
    }
}
