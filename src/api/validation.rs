//! What a schema cannot catch: pure checks of stored objects, for the condition `Valid`.
//!
//! The API server refuses only what can never be right, so that resources of the peer apply unchanged; everything else
//! that an upgrade must not start with is found here. What the schema refuses is checked again: an object may be older
//! than the schema, or come from a file.

mod hooks;

use std::{collections::BTreeMap, fmt};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::ResourceExt;

use super::{
    GoDuration, NodeForceDrain, UpgradeConfig, UpgradeJob, UpgradeSuspensionWindow,
    cluster_version::ClusterVersion,
    health_check::HealthChecks,
    job_config::{DelayUpgrade, JobConfig, PoolConfig},
    label_selector::{Selector, label_selector_problem},
    names::is_dns_subdomain,
    upgrade_config::JobTemplateMetadata,
    upgrade_job::DesiredVersion,
};
use crate::openshift::{cluster_version, machine_config_pool::MachineConfigPool};

pub use hooks::upgrade_job_hook;

/// So many bytes of annotations may an object have, says the API server.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Something that an object must not be acted upon with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `spec.config.upgradeTimeout`.
    pub field: String,
    /// What is wrong with its value, and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All problems in one line, for the message of the condition `Valid`.
pub fn summary(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

/// Problems of an UpgradeJob. `pools` are those of the cluster; with none (not known yet) nothing is said about them.
pub fn upgrade_job(job: &UpgradeJob, pools: &[MachineConfigPool]) -> Vec<Problem> {
    let mut found = Found::default();
    let spec = &job.spec;
    found.order(
        ("spec.startAfter", &spec.start_after),
        ("spec.startBefore", &spec.start_before),
    );
    if let Some(version) = &spec.desired_version {
        found.desired_version(version);
    }
    found.job_config("spec.config", &spec.config, pools);
    found.0
}

/// Problems of an UpgradeConfig. `schedule_problem` is what [`crate::api::upgrade_config::Schedule`]'s reader says about
/// cron, ISO week and zone.
pub fn upgrade_config(
    config: &UpgradeConfig,
    pools: &[MachineConfigPool],
    schedule_problem: Option<String>,
) -> Vec<Problem> {
    let mut found = Found::default();
    let spec = &config.spec;
    if let Some(problem) = schedule_problem {
        found.add("spec.schedule", problem);
    }
    found.duration("spec.pinVersionWindow", spec.pin_version_window.as_ref());
    found.duration("spec.maxSchedulingDelay", spec.max_scheduling_delay.as_ref());
    // Times of a job have whole seconds: less than one would make a window of nothing, which the API server refuses.
    found.duration_of_at_least(
        SignedDuration::from_secs(1),
        "spec.maxUpgradeStartDelay",
        spec.max_upgrade_start_delay.as_ref(),
        "a job could never start; write how late it may start, for example 1h",
    );
    found.metadata("spec.jobTemplate.metadata", &spec.job_template.metadata);
    found.job_config(
        "spec.jobTemplate.spec.config",
        &spec.job_template.spec.config,
        pools,
    );
    found.0
}

/// Problems of an UpgradeSuspensionWindow.
pub fn upgrade_suspension_window(window: &UpgradeSuspensionWindow) -> Vec<Problem> {
    let mut found = Found::default();
    let spec = &window.spec;
    found.order(("spec.start", &spec.start), ("spec.end", &spec.end));
    found.selector("spec.configSelector", spec.config_selector.as_ref());
    found.selector("spec.jobSelector", spec.job_selector.as_ref());
    found.0
}

/// Problems of our ClusterVersion.
pub fn cluster_version(version: &ClusterVersion) -> Vec<Problem> {
    let mut found = Found::default();
    if version.name_any() != cluster_version::NAME {
        found.add(
            "metadata.name",
            format!(
                "{:?} is not served: the cluster has one ClusterVersion; name the object {:?}",
                version.name_any(),
                cluster_version::NAME
            ),
        );
    }
    let template = &version.spec.template.spec;
    if template
        .iter()
        .all(|(field, value)| field == "desiredUpdate" || value.is_null())
    {
        found.add(
            "spec.template.spec",
            "it is empty, and would take channel, overrides and all else from the ClusterVersion: write what the \
             cluster is to have, for example the channel",
        );
    }
    let overlays = &version.spec.overlays;
    for (index, overlay) in overlays.iter().enumerate() {
        if overlays.iter().take(index).any(|o| o.from == overlay.from) {
            found.add(
                format!("spec.overlays[{index}].from"),
                format!(
                    "{} is the start of an earlier overlay too, and only one can apply: merge the two, or move one",
                    overlay.from.0
                ),
            );
        }
    }
    found.0
}

/// Problems of a NodeForceDrain. `jq_problem` is what the jq compiler says about `podJQSelector`.
pub fn node_force_drain(drain: &NodeForceDrain, jq_problem: Option<String>) -> Vec<Problem> {
    let mut found = Found::default();
    let spec = &drain.spec;
    found.selector("spec.nodeSelector", Some(&spec.node_selector));
    found.selector("spec.namespaceSelector", Some(&spec.namespace_selector));
    if let Some(problem) = jq_problem {
        found.add("spec.podJQSelector", problem);
    }
    found.duration("spec.nodeDrainGracePeriod", Some(&spec.node_drain_grace_period));
    found.duration(
        "spec.podForceDeleteGracePeriod",
        Some(&spec.pod_force_delete_grace_period),
    );
    found.0
}

/// What was found so far.
#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem {
            field: field.into(),
            message: message.into(),
        });
    }

    /// Reads a duration, and says so if it is none.
    fn duration(&mut self, field: &str, duration: Option<&GoDuration>) -> Option<SignedDuration> {
        match duration?.get() {
            Ok(duration) => Some(duration),
            Err(bad) => {
                self.add(field, bad.to_string());
                None
            }
        }
    }

    fn duration_of_at_least(
        &mut self,
        least: SignedDuration,
        field: &str,
        duration: Option<&GoDuration>,
        otherwise: &str,
    ) {
        if let (Some(found), Some(text)) = (self.duration(field, duration), duration)
            && found < least
        {
            self.add(field, format!("with {text} {otherwise}"));
        }
    }

    fn order(&mut self, (first, start): (&str, &Time), (second, end): (&str, &Time)) {
        if end <= start {
            self.add(
                second,
                format!(
                    "{} is not later than {first} ({}): write a later time",
                    end.0, start.0
                ),
            );
        }
    }

    /// A name that no object can have would make every request for it fail.
    fn object_name(&mut self, field: &str, name: Option<&String>) {
        if let Some(name) = name.filter(|n| !is_dns_subdomain(n)) {
            let message = format!("{name:?} is not the name of anything: write a name, or leave it out");
            self.add(field, message);
        }
    }

    fn selector(&mut self, field: &str, selector: Option<&LabelSelector>) {
        if let Some(problem) = selector.and_then(label_selector_problem) {
            self.add(field, problem);
        }
    }

    /// Labels and annotations that the API server would refuse on the UpgradeJob that they are copied to.
    fn metadata(&mut self, field: &str, metadata: &JobTemplateMetadata) {
        let JobTemplateMetadata { labels, annotations } = metadata;
        let field_of_labels = format!("{field}.labels");
        for (key, value) in labels {
            self.key(&field_of_labels, key, key, "a label");
            if !is_label_text(value) {
                self.add(
                    &field_of_labels,
                    format!(
                        "{value:?} cannot be the value of label {key}: write at most 63 letters, digits, \
                         '-', '_' or '.', beginning and ending with a letter or digit"
                    ),
                );
            }
        }
        let field_of_annotations = format!("{field}.annotations");
        for key in annotations.keys() {
            // Unlike those of labels, the prefixes of annotations may have capitals.
            self.key(
                &field_of_annotations,
                key,
                &key.to_ascii_lowercase(),
                "an annotation",
            );
        }
        let size: usize = annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
        if size > MAX_ANNOTATIONS {
            let message =
                format!("they have {size} bytes, and at most {MAX_ANNOTATIONS} are stored: shorten them");
            self.add(field_of_annotations, message);
        }
    }

    /// A key as the API server reads it (`as_read`): `name` or `prefix/name`.
    fn key(&mut self, field: &str, key: &str, as_read: &str, what: &str) {
        let (prefix, name) = as_read
            .split_once('/')
            .map_or((None, as_read), |(p, n)| (Some(p), n));
        if name.is_empty() || !is_label_text(name) || !prefix.is_none_or(is_dns_subdomain) {
            let message =
                format!("{key:?} cannot be the name of {what}: write for example team or example.com/team");
            self.add(field, message);
        }
    }

    fn desired_version(&mut self, desired: &DesiredVersion) {
        let text = |of: &Option<String>| of.clone().filter(|t| !t.is_empty());
        let version = text(&desired.version);
        if version.is_none() && text(&desired.image).is_none() {
            self.add(
                "spec.desiredVersion",
                "neither version nor image is set: write a version such as 4.18.5, or leave desiredVersion out for a \
                 run of hooks and pools only",
            );
        }
        if let Some(version) = version
            && let Err(error) = semver::Version::parse(&version)
        {
            let message = format!("{version:?} is not a version ({error}): write for example 4.18.5");
            self.add("spec.desiredVersion.version", message);
        }
        if desired.force == Some(true) {
            self.add(
                "spec.desiredVersion.force",
                "force: true bypasses the check of the release's signature, so it is never set for you: leave it out, \
                 or upgrade by hand with `oc adm upgrade --force`",
            );
        }
        if let Some(architecture) = text(&desired.architecture) {
            self.add(
                "spec.desiredVersion.architecture",
                format!(
                    "a change of architecture (to {architecture}) is never made for you: leave it out, or change it by \
                     hand with `oc adm upgrade --to-multi-arch`"
                ),
            );
        }
    }

    fn job_config(&mut self, field: &str, config: &JobConfig, pools: &[MachineConfigPool]) {
        let timeout = format!("{field}.upgradeTimeout");
        self.duration_of_at_least(
            SignedDuration::from_nanos(1),
            &timeout,
            config.upgrade_timeout.as_ref(),
            "every job would fail at its start; write for example 12h",
        );
        self.health_checks(
            &format!("{field}.preUpgradeHealthChecks"),
            &config.pre_upgrade_health_checks,
        );
        self.health_checks(
            &format!("{field}.postUpgradeHealthChecks"),
            &config.post_upgrade_health_checks,
        );
        for (index, entry) in config.machine_config_pools.iter().enumerate() {
            let field = format!("{field}.machineConfigPools[{index}]");
            self.pool_config(&field, entry, pools);
            if let Some(delay) = &entry.delay_upgrade {
                self.delay(&format!("{field}.delayUpgrade"), delay, config.upgrade_timeout());
            }
        }
        if let Some(pause) = &config.pause_machine_config_pools_on_failure {
            let field = format!("{field}.pauseMachineConfigPoolsOnFailure.selector");
            self.selector(&field, pause.selector.as_ref());
        }
        if let Some(workflow) = &config.workflow {
            self.duration(&format!("{field}.workflow.ttl"), workflow.ttl.as_ref());
            let template = workflow.template.as_ref().map(|t| &t.name);
            self.object_name(&format!("{field}.workflow.template.name"), template);
            let account = workflow.service_account_name.as_ref();
            self.object_name(&format!("{field}.workflow.serviceAccountName"), account);
        }
    }

    fn health_checks(&mut self, field: &str, checks: &HealthChecks) {
        self.duration(&format!("{field}.timeout"), checks.timeout.as_ref());
        let check = checks.check_degraded_operators;
        if let (Some(check), Some(skip)) = (check, checks.skip_degraded_operators_check)
            && check == skip
        {
            self.add(
                format!("{field}.skipDegradedOperatorsCheck"),
                format!(
                    "{skip} contradicts checkDegradedOperators: {check}; keep checkDegradedOperators only"
                ),
            );
        }
        if checks.exclude_alerts.iter().any(BTreeMap::is_empty) {
            self.add(
                format!("{field}.excludeAlerts"),
                "an entry without labels excludes every alert: write its labels, or checkCriticalAlerts: false",
            );
        }
    }

    fn pool_config(&mut self, field: &str, entry: &PoolConfig, pools: &[MachineConfigPool]) {
        let field = format!("{field}.matchLabels");
        if let Some(problem) = entry.match_labels.as_ref().and_then(Selector::problem) {
            self.add(&field, problem);
        }
        let selected: Vec<&MachineConfigPool> = pools.iter().filter(|p| entry.names(p)).collect();
        let only_required = !selected.is_empty() && selected.iter().all(|p| p.is_required_for_upgrade());
        if entry.delay_min().is_some() && only_required {
            let names: Vec<String> = selected.iter().map(|p| p.name_any()).collect();
            self.add(
                field,
                format!(
                    "it selects only {}, which an upgrade of the control plane cannot do without and so is never held: \
                     select other pools, or leave the entry out",
                    names.join(", ")
                ),
            );
        }
    }

    fn delay(&mut self, field: &str, delay: &DelayUpgrade, upgrade_timeout: SignedDuration) {
        for (new, old, both) in [
            (
                "delayMin",
                "startAfter",
                delay.delay_min.is_some() && delay.start_after.is_some(),
            ),
            (
                "delayMax",
                "startBefore",
                delay.delay_max.is_some() && delay.start_before.is_some(),
            ),
        ] {
            if both {
                let message = format!("it is an older spelling of {new}, which is set too: keep {new} only");
                self.add(format!("{field}.{old}"), message);
            }
        }
        let spelled = |new: &Option<GoDuration>, name: &str, old: &str| {
            format!("{field}.{}", if new.is_some() { name } else { old })
        };
        let min_field = spelled(&delay.delay_min, "delayMin", "startAfter");
        let max_field = spelled(&delay.delay_max, "delayMax", "startBefore");
        self.duration(&min_field, delay.min_as_written());
        self.duration(&max_field, delay.max_as_written());
        let (Some(min), Some(written)) = (delay.min(), delay.min_as_written()) else {
            return;
        };
        if let (Some(max), Some(max_written)) = (delay.max(), delay.max_as_written())
            && min > max
        {
            self.add(
                &min_field,
                format!("{written} is longer than the maximum, {max_written}: write a shorter delay or a longer maximum"),
            );
        }
        if min >= upgrade_timeout {
            self.add(
                &min_field,
                format!(
                    "{written} is not shorter than upgradeTimeout, {}, and both count from startAfter, so the job would \
                     always time out: write a shorter delay or a longer upgradeTimeout",
                    super::duration::format(upgrade_timeout)
                ),
            );
        }
    }
}

/// Whether a text can be the value of a label, or the name in its key.
fn is_label_text(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= super::names::MAX
        && edge(text.chars().next())
        && edge(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests;
