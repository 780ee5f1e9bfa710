//! Why a due job does not run at all: suspended, rescheduled, superseded.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::draft::Draft;
use crate::{
    api::{UpgradeConfig, UpgradeSuspensionWindow},
    pinning,
    schedule::{Schedule, suspension},
    target::Target,
    text,
};

/// Why the job is not to run at all.
pub(super) fn why(draft: &Draft<'_>) -> Option<String> {
    let zone = draft.input.settings.zone();
    // A run in a window stays one, however late we are; and nothing starts in a window, however late the job is.
    let times = [draft.input.job.spec.start_after.0, draft.now()];
    if let Some(window) = times.into_iter().find_map(|t| window_at(draft, t)) {
        return Some(format!(
            "Upgrade job skipped by {}",
            suspension::describe(window, zone)
        ));
    }
    if let Some(config) = config_of(draft) {
        if config.spec.schedule.suspend {
            return Some(format!(
                "UpgradeConfig {:?} is suspended (spec.schedule.suspend)",
                config.name_any()
            ));
        }
        if let Some(why) = rescheduled(draft, config) {
            return Some(why);
        }
    }
    superseded(draft)
}

/// The window that keeps the job, or runs of its config, from starting at `t`.
fn window_at<'a>(draft: &Draft<'a>, t: Timestamp) -> Option<&'a UpgradeSuspensionWindow> {
    let windows = &draft.input.world.windows;
    let of_job = subject(&draft.input.job.metadata);
    suspension::window_matching_job(windows, of_job, t)
        .or_else(|| suspension::window_matching_config(windows, subject(&config_of(draft)?.metadata), t))
}

fn subject(metadata: &ObjectMeta) -> suspension::Subject<'_> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    suspension::Subject {
        namespace: metadata.namespace.as_deref(),
        labels: metadata.labels.as_ref().unwrap_or(&NONE),
    }
}

/// The config that made the job.
pub(super) fn config_of<'a>(draft: &Draft<'a>) -> Option<&'a UpgradeConfig> {
    let configs = &draft.input.world.configs;
    configs
        .iter()
        .find(|config| pinning::job::is_of(draft.input.job, &config.metadata))
}

/// The schedule was edited after the pin, and this instant is no run any more.
fn rescheduled(draft: &Draft<'_>, config: &UpgradeConfig) -> Option<String> {
    let parsed = Schedule::parse(&config.spec.schedule, &draft.input.settings.zones).ok()?;
    let start = draft.input.job.spec.start_after.0;
    if parsed.schedule.contains(start) {
        return None;
    }
    let when = text::time(start, draft.input.settings.zone());
    Some(format!(
        "Rescheduled: {when} is no run of UpgradeConfig {:?} any more",
        config.name_any()
    ))
}

/// A newer version is already there.
pub(super) fn superseded(draft: &Draft<'_>) -> Option<String> {
    let cluster = draft.input.world.cluster_version.as_ref()?;
    let newest = cluster.newest().filter(|h| h.is_completed())?;
    let wanted = Target::of(draft.input.job, cluster)?;
    let parse = |v: &str| semver::Version::parse(v).ok();
    let (installed, wanted_version) = (parse(&newest.version)?, parse(&wanted.version)?);
    if wanted_version < installed && !draft.input.job.spec.allow_downgrade() {
        return Some(format!(
            "Superseded: the cluster is at {}, newer than {}",
            newest.version, wanted.version
        ));
    }
    None
}
