//! The UpgradeJob of a run: how it is made, and how the jobs of a config are recognised.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt};

use crate::{
    api::{
        UpgradeConfig, UpgradeJob, annotations, conditions, labels, names,
        upgrade_job::{DesiredVersion, HookState, UpgradeJobSpec},
    },
    schedule::forecast::job_labels,
};

/// The job of a run.
///
/// Its name does not depend on what may be edited: two operators that race for the same run want the same name, and
/// the second create is refused. The UID in it tells a config that was created again from the old one.
pub fn of_run(
    config: &UpgradeConfig,
    run: Timestamp,
    version: Option<&DesiredVersion>,
    why: Option<&str>,
) -> UpgradeJob {
    let template = &config.spec.job_template;
    let run = conditions::whole_seconds(run);
    let mut labels = job_labels(config, run);
    if let Some(version) = version.and_then(|v| v.version.as_deref()) {
        labels.insert(labels::TARGET_VERSION.to_owned(), version_label(version));
    }
    let mut annotations = template.metadata.annotations.clone();
    if let Some(why) = why {
        annotations.insert(annotations::VERSION_CHOICE.to_owned(), why.to_owned());
    }
    let start_before = run
        .saturating_add(config.spec.max_upgrade_start_delay())
        .unwrap_or(run);
    let spec = UpgradeJobSpec {
        start_after: Time(run),
        start_before: Time(conditions::whole_seconds(start_before)),
        desired_version: version.cloned(),
        desired_version_check_availability: None,
        allow_downgrade: None,
        config: template.spec.config.clone(),
    };
    UpgradeJob {
        metadata: ObjectMeta {
            name: Some(name(config, run)),
            namespace: config.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: config.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

fn name(config: &UpgradeConfig, run: Timestamp) -> String {
    let identity = [config.namespace(), Some(config.name_any()), config.uid()];
    let identity: Vec<String> = identity.into_iter().flatten().collect();
    let hash = names::hash(&identity.join("/"), 7);
    names::upgrade_job(&config.name_any(), run.as_second(), &hash)
}

/// A version as a label value, which may not hold a `+`.
fn version_label(version: &str) -> String {
    let plain = version.replace(
        |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')),
        "_",
    );
    names::label_value(&plain)
}

/// Whether a job was made by this config: it is owned by it, or (its owner reference is dropped when it starts) it
/// carries both labels of a run and nobody else owns it. The config's metadata will do: the rest may be unreadable.
///
/// A job that a person copied, and gave a start of its own, is nobody's: its label says another start.
pub fn is_of(job: &UpgradeJob, config: &ObjectMeta) -> bool {
    let label = label_start(job.labels());
    let is_copy = label.is_some_and(|start| start != job.spec.start_after.0.as_second());
    if is_copy || job.metadata.namespace != config.namespace {
        return false;
    }
    if let Some(owner) = job.owner_references().iter().find(|o| o.controller == Some(true)) {
        return Some(&owner.uid) == config.uid.as_ref();
    }
    let name = config.name.as_deref().map(names::label_value);
    label.is_some() && job.labels().get(labels::UPGRADE_CONFIG) == name.as_ref()
}

fn label_start(labels: &BTreeMap<String, String>) -> Option<i64> {
    labels.get(labels::START)?.parse().ok()
}

/// Whether this job of the config is that of the run.
pub fn is_of_run(job: &UpgradeJob, run: Timestamp) -> bool {
    job.spec.start_after.0.as_second() == run.as_second()
}

/// Whether nothing of the job is under way any more: it has an outcome, and its exit hooks have ended.
pub fn is_done(job: &UpgradeJob) -> bool {
    job.is_finished()
        && job
            .status
            .iter()
            .flat_map(|s| &s.hook_tracker)
            .all(|hook| hook.status != HookState::Active)
}
