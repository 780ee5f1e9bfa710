//! Selectors that select nothing, and checks that nobody makes in a rehearsal.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::{Input, Monitoring};
use crate::{
    api::{
        UpgradeJob, UpgradeJobHook, health_check::HealthChecks, upgrade_job::JobConfig,
        upgrade_job_hook::HookEvent,
    },
    openshift::machine_config_pool::MachineConfigPool,
    schedule::forecast::job_labels,
    simulator::rehearsal::{Story, config::Config},
};

pub(super) fn warnings(story: &Story<'_>, input: Input<'_>) -> Vec<String> {
    let mut all = hooks(story, input);
    for (_, config) in story.configs() {
        all.extend(pools(story, config).map(|warning| format!("{}: {warning}", input.place(config))));
    }
    all.extend(monitoring(story, input));
    all
}

/// Labels of every kind of job that there can be, with what each does to pools.
fn jobs(story: &Story<'_>, input: Input<'_>) -> Vec<(BTreeMap<String, String>, JobConfig)> {
    let made = story.configs().into_iter().map(|(_, config)| {
        let spec = &config.object.spec.job_template.spec.config;
        (job_labels(&config.object, story.recording.from), spec.clone())
    });
    let by_hand = input
        .of::<UpgradeJob>()
        .map(|(_, job)| (job.labels().clone(), job.spec.config));
    // Labels that the operator adds, such as the version, are only on the jobs themselves.
    let seen = story
        .jobs
        .iter()
        .map(|told| (told.job.labels.clone(), JobConfig::default()));
    made.chain(by_hand).chain(seen).collect()
}

fn hooks(story: &Story<'_>, input: Input<'_>) -> Vec<String> {
    let jobs = jobs(story, input);
    if jobs.is_empty() {
        return Vec::new();
    }
    let of_namespace = |hook: &UpgradeJobHook| hook.namespace().is_none_or(|n| n == input.namespace);
    let all = input
        .of::<UpgradeJobHook>()
        .filter(|(_, hook)| of_namespace(hook));
    let found = all.filter_map(|(manifest, hook)| {
        let mut matching = jobs.iter().filter(|(labels, _)| hook.selects(labels)).peekable();
        let why = if matching.peek().is_none() {
            "its selector matches no UpgradeJob; compare it with spec.jobTemplate.metadata.labels of the UpgradeConfigs"
        } else if hook.spec.events == [HookEvent::MachineConfigPoolUnpause]
            && !matching.any(|(_, config)| config.machine_config_pools.iter().any(|p| p.delay_min().is_some()))
        {
            "no UpgradeJob that it matches holds a pool (machineConfigPools[].delayUpgrade), so there is none to unpause"
        } else {
            return None;
        };
        Some(format!(
            "{}: UpgradeJobHook {} never runs: {why}",
            manifest.location,
            hook.name_any()
        ))
    });
    found.collect()
}

/// Selectors of pools that select none of the cluster's.
fn pools(story: &Story<'_>, config: &Config) -> impl Iterator<Item = String> {
    let pools: Vec<&MachineConfigPool> = story.recording.pools().collect();
    let names: Vec<String> = pools.iter().map(|p| p.name_any()).collect();
    let JobConfig {
        machine_config_pools,
        pause_machine_config_pools_on_failure: on_failure,
        ..
    } = &config.object.spec.job_template.spec.config;
    let entries = machine_config_pools
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.match_labels.is_some() && !pools.iter().any(|pool| entry.names(pool)));
    let entries = entries.map(|(index, _)| format!("machineConfigPools[{index}].matchLabels"));
    let on_failure = on_failure
        .iter()
        .filter(|p| p.enabled && !pools.iter().any(|pool| p.selects(pool)));
    let on_failure = on_failure.map(|_| "pauseMachineConfigPoolsOnFailure.selector".to_owned());
    let fields: Vec<String> = if pools.is_empty() {
        Vec::new()
    } else {
        entries.chain(on_failure).collect()
    };
    fields.into_iter().map(move |field| {
        format!(
            "{field} selects none of the pools of the rehearsal ({}); add the MachineConfigPool to the files, or the \
             pool to the scenario",
            names.join(", ")
        )
    })
}

/// Checks that nobody makes in a rehearsal: said once, whatever the number of configs.
fn monitoring(story: &Story<'_>, input: Input<'_>) -> Option<String> {
    match input.monitoring {
        Monitoring::Simulated => return None,
        Monitoring::Absent => {}
    }
    let configs = story.configs();
    let checks = || {
        configs.iter().flat_map(|(_, config)| {
            let spec = &config.object.spec.job_template.spec.config;
            [&spec.pre_upgrade_health_checks, &spec.post_upgrade_health_checks]
        })
    };
    // What nobody asked for is not missed.
    let alerts = checks().any(|c: &HealthChecks| c.check_critical_alerts == Some(true));
    let has_queries = checks().any(|c| !c.custom_queries.is_empty());
    let what = match (alerts, has_queries) {
        (false, false) => return None,
        (true, false) => "critical alerts",
        (false, true) => "customQueries",
        (true, true) => "critical alerts and customQueries",
    };
    Some(format!(
        "{what} of the health checks are not put to the test: nothing fires and every query is empty (healthy), unless a \
         scenario says otherwise"
    ))
}
