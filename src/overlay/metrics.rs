//! The values of the metrics that the seed names ("The controller should export metrics for the ClusterVersion
//! object"), with the labels of the peer.

use serde_json::Value;

use super::spec;
use crate::{
    api::cluster_version::{ClusterVersion as ManagedClusterVersion, UpstreamSpec},
    openshift::cluster_version::NAME,
};
use kube::ResourceExt;

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name of the metric.
    pub name: &'static str,
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

/// The gauges of our ClusterVersion, from its status; of an object that is not served there are none.
pub fn metrics(managed: &ManagedClusterVersion) -> Vec<Sample> {
    let Some(status) = managed.status.as_ref().filter(|_| managed.name_any() == NAME) else {
        return Vec::new();
    };
    let mut samples = Vec::new();
    if let Some(current) = &status.current {
        samples.push(Sample {
            name: "openshift_upgrade_controller_cluster_version_info",
            labels: labels(managed, current),
            value: 1.0,
        });
    }
    for overlay in &status.overlays {
        let mut labels = labels(managed, &overlay.preview.spec);
        labels.push(("from", overlay.from.0.to_string()));
        // Exact for any date: f64 has 53 bits.
        #[allow(clippy::cast_precision_loss)]
        let value = overlay.from.0.as_second() as f64;
        samples.push(Sample {
            name: "openshift_upgrade_controller_cluster_version_overlay_timestamp_seconds",
            labels,
            value,
        });
    }
    samples
}

fn labels(managed: &ManagedClusterVersion, of: &UpstreamSpec) -> Vec<(&'static str, String)> {
    let capabilities = of.get("capabilities").and_then(Value::as_object);
    let baseline = capabilities.map(|c| spec::text(c, "baselineCapabilitySet"));
    vec![
        ("cluster_version", managed.name_any()),
        ("baseline_capability_set", baseline.unwrap_or_default().to_owned()),
        ("channel", spec::text(of, "channel").to_owned()),
        ("cluster_id", spec::text(of, spec::CLUSTER_ID).to_owned()),
        ("upstream", spec::text(of, "upstream").to_owned()),
    ]
}
