//! The values of the metrics that the seed names ("The controller should export metrics for the ClusterVersion
//! object"), with the labels of the peer.

use kube::ResourceExt;
use serde_json::Value;

use super::spec;
use crate::{
    api::cluster_version::{ClusterVersion as ManagedClusterVersion, OverlayPreview, UpstreamSpec},
    metrics::{Family, Labels, Series},
    openshift::cluster_version::NAME,
};

/// The gauges of our ClusterVersions, from their status; of an object that is not served there are none.
pub fn metrics(all: &[ManagedClusterVersion]) -> Vec<Family> {
    let (mut info, mut overlays) = (Vec::new(), Vec::new());
    for managed in all.iter().filter(|managed| managed.name_any() == NAME) {
        let Some(status) = &managed.status else { continue };
        let current = status.current.iter();
        info.extend(current.map(|current| Series::new(labels(managed, current), true)));
        overlays.extend(status.overlays.iter().map(|overlay| series(managed, overlay)));
    }
    vec![
        Family::gauge(
            "openshift_upgrade_controller_cluster_version_info",
            "The spec of the cluster's ClusterVersion as it is applied now, always 1.",
            info,
        ),
        Family::gauge(
            "openshift_upgrade_controller_cluster_version_overlay_timestamp_seconds",
            "When an overlay is due, in seconds since 1970; the other labels say what is applied then.",
            overlays,
        ),
    ]
}

fn series(managed: &ManagedClusterVersion, overlay: &OverlayPreview) -> Series {
    let mut labels = labels(managed, &overlay.preview.spec);
    labels.push(("from", overlay.from.0.to_string()));
    Series::new(labels, overlay.from.0)
}

fn labels(managed: &ManagedClusterVersion, of: &UpstreamSpec) -> Labels {
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
