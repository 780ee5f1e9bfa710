//! What will become of a coming run, and why: for the status of an UpgradeConfig and for the command line.

use std::collections::BTreeMap;

use jiff::{Timestamp, tz::TimeZone};
use kube::ResourceExt;

use super::suspension::{self, Subject};
use crate::api::{UpgradeConfig, UpgradeSuspensionWindow, labels, names};

/// What will become of a run, unless something is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It makes a job, which starts.
    WillRun,
    /// A suspension window keeps its job from being made, or from starting.
    Suspended,
    /// `schedule.suspend` is set.
    ScheduleSuspended,
    /// It was decided that it makes no job.
    Missed,
}

impl Verdict {
    /// As written in the status and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WillRun => "WillRun",
            Self::Suspended => "Suspended",
            Self::ScheduleSuspended => "ScheduleSuspended",
            Self::Missed => "Missed",
        }
    }
}

/// A verdict with its reason; the reason of `WillRun` is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in one sentence without a full stop.
    pub reason: String,
}

/// What will become of the run at `run`. `zone` is for the times in the reason.
pub fn forecast(
    config: &UpgradeConfig,
    windows: &[UpgradeSuspensionWindow],
    run: Timestamp,
    zone: &TimeZone,
) -> Forecast {
    if config.spec.schedule.suspend {
        return Forecast {
            verdict: Verdict::ScheduleSuspended,
            reason: "spec.schedule.suspend is true".to_owned(),
        };
    }
    let of_config = suspension::window_matching_config(windows, subject(config), run);
    let job_labels = job_labels(config, run);
    let job = Subject {
        labels: &job_labels,
        ..subject(config)
    };
    match of_config.or_else(|| suspension::window_matching_job(windows, job, run)) {
        Some(window) => Forecast {
            verdict: Verdict::Suspended,
            reason: suspension::describe(window, zone),
        },
        None => Forecast {
            verdict: Verdict::WillRun,
            reason: String::new(),
        },
    }
}

/// An UpgradeConfig as suspension windows see it: by its own labels.
pub fn subject(config: &UpgradeConfig) -> Subject<'_> {
    Subject {
        namespace: config.metadata.namespace.as_deref(),
        labels: config.labels(),
    }
}

/// Labels of the job of a run: those of the template, and ours that say which run it is.
pub fn job_labels(config: &UpgradeConfig, run: Timestamp) -> BTreeMap<String, String> {
    let mut all = config.spec.job_template.metadata.labels.clone();
    all.insert(
        labels::UPGRADE_CONFIG.to_owned(),
        names::label_value(&config.name_any()),
    );
    all.insert(labels::START.to_owned(), run.as_second().to_string());
    all
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::nothing_in_the_way(false, Value::Null, Value::Null, "WillRun", "")]
    #[case::by_config(false, json!({"matchLabels": {"on": "config"}}), Value::Null, "Suspended",
        "UpgradeSuspensionWindow holidays (end of year) until Mon 2027-01-04 00:00 UTC")]
    #[case::by_job(false, Value::Null, json!({"matchLabels": {"on": "job"}}), "Suspended",
        "UpgradeSuspensionWindow holidays (end of year) until Mon 2027-01-04 00:00 UTC")]
    #[case::by_our_label_of_the_job(false, Value::Null,
        json!({"matchLabels": {"managedupgrade.appuio.io/upgrade-config": "c"}}), "Suspended",
        "UpgradeSuspensionWindow holidays (end of year) until Mon 2027-01-04 00:00 UTC")]
    #[case::config_selector_reads_the_config(false, json!({"matchLabels": {"on": "job"}}), Value::Null, "WillRun", "")]
    #[case::job_selector_reads_the_job(false, Value::Null, json!({"matchLabels": {"on": "config"}}), "WillRun", "")]
    #[case::switch_first(true, json!({}), json!({}), "ScheduleSuspended", "spec.schedule.suspend is true")]
    fn a_forecast_says_what_and_why(
        #[case] suspend: bool,
        #[case] by_config: Value,
        #[case] by_job: Value,
        #[case] verdict: &str,
        #[case] reason: &str,
    ) {
        let config: UpgradeConfig = serde_json::from_value(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
            "metadata": {"name": "c", "namespace": "ns", "labels": {"on": "config"}},
            "spec": {"schedule": {"cron": "0 22 * * 2", "suspend": suspend},
                "jobTemplate": {"metadata": {"labels": {"on": "job"}}, "spec": {}}},
        }))
        .unwrap();
        let window: UpgradeSuspensionWindow = serde_json::from_value(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
            "metadata": {"name": "holidays", "namespace": "ns"},
            "spec": {"start": "2026-12-24T00:00:00Z", "end": "2027-01-04T00:00:00Z", "reason": "end of year",
                "configSelector": by_config, "jobSelector": by_job},
        }))
        .unwrap();
        let run = "2026-12-29T21:00:00Z".parse().unwrap();
        let got = forecast(&config, &[window], run, &TimeZone::UTC);
        assert_eq!((got.verdict.as_str(), got.reason.as_str()), (verdict, reason));
    }
}
