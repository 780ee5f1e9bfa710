//! Suspension windows as metrics. Names and labels are the peer's (its `upgrade_information_collector.go`).

use kube::ResourceExt;

use crate::{
    api::UpgradeSuspensionWindow,
    metrics::{Family, Series},
};

/// All metrics of windows. Configs are those of the status: the first hundred that are selected.
pub fn metrics(windows: &[UpgradeSuspensionWindow]) -> Vec<Family> {
    let name = |window: &UpgradeSuspensionWindow| vec![("upgradesuspensionwindow", window.name_any())];
    let info = windows.iter().map(|window| {
        let mut labels = name(window);
        labels.push(("reason", window.spec.reason.clone()));
        Series::new(labels, true)
    });
    let matching = windows.iter().flat_map(|window| {
        let configs = window.status.iter().flat_map(|s| &s.matching_configs);
        configs.map(move |config| {
            let mut labels = name(window);
            labels.push(("config", config.name.clone()));
            Series::new(labels, true)
        })
    });
    vec![
        Family::gauge(
            "openshift_upgrade_controller_upgradesuspensionwindow_info",
            "The UpgradeSuspensionWindows and why there are no upgrades then, always 1.",
            info,
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradesuspensionwindow_start_timestamp_seconds",
            "When the UpgradeSuspensionWindow begins, in seconds since 1970.",
            windows.iter().map(|w| Series::new(name(w), w.spec.start.0)),
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradesuspensionwindow_end_timestamp_seconds",
            "When the UpgradeSuspensionWindow ends, in seconds since 1970.",
            windows.iter().map(|w| Series::new(name(w), w.spec.end.0)),
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradesuspensionwindow_matching_config",
            "The UpgradeConfigs that the UpgradeSuspensionWindow selects, always 1; at most 100 a window.",
            matching,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::metrics::told;

    #[test]
    fn a_window_tells_its_time_and_what_it_selects() {
        let windows: Vec<UpgradeSuspensionWindow> = serde_json::from_value(json!([{
            "metadata": {"name": "w"},
            "spec": {"start": "2026-12-24T00:00:00Z", "end": "2027-01-04T00:00:00Z", "reason": "End of year"},
            "status": {"matchingConfigs": [{"name": "weekly"}, {"name": "minor"}]},
        }]))
        .unwrap();
        assert_eq!(
            told(&metrics(&windows)),
            [
                "upgradesuspensionwindow_info w,End of year 1",
                "upgradesuspensionwindow_start_timestamp_seconds w 1798070400",
                "upgradesuspensionwindow_end_timestamp_seconds w 1799020800",
                "upgradesuspensionwindow_matching_config w,weekly 1",
                "upgradesuspensionwindow_matching_config w,minor 1",
            ]
        );
        assert!(told(&metrics(&[])).is_empty());
    }
}
