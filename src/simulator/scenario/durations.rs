//! How long things take. Defaults are what OpenShift's book "Understanding OpenShift updates" (4.17) says.

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{Length, Span};
use crate::simulator::openshift::durations::Range;

/// How long things take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Durations {
    /// Retrieving and verifying a release. The books give no figure; this is our own estimate.
    pub retrieve: Span,
    /// All ClusterOperators together, without the wait for the nodes of the control plane. The book, 1.4.2.1 (Cluster
    /// Version Operator target update payload deployment): "This process might take 60 to 120 minutes."
    pub control_plane: Span,
    /// Drain and reboot of one node; a quarter of it at least goes into the drain. The book, 1.4.2.2 (Machine Config
    /// Operator node updates): "This process might take 5 or more minutes to complete per node"; the canary example of
    /// "Updating clusters" (3.4.1) counts with 8 minutes at most. Reboots take 1 to 2 minutes in a cloud, and more than
    /// 15 minutes on bare metal (1.4.3): set it there.
    pub node: Span,
    /// Between two attempts to evict the pods of a node (the machine-config operator's own interval).
    pub evict_retry: Length,
    /// How long a pod takes to end, unless its own grace period is shorter. Our own estimate.
    pub pod_stop: Length,
    /// A drain that takes longer makes the node, and its pool, Degraded (the machine-config operator's own limit).
    pub drain_timeout: Length,
    /// An operator that is updating for longer than this is slow: Failing=Unknown with reason SlowClusterOperator (the
    /// cluster-version operator's own limit).
    pub slow_operator: Length,
    /// The same for `machine-config`, which waits for nodes.
    pub slow_machine_config: Length,
    /// An update that waits for a degraded operator longer than this is Failing=True (the cluster-version operator's own
    /// limit).
    pub failing_after: Length,
}

const fn minutes(min: i64, max: i64) -> Span {
    Span(Range {
        min: SignedDuration::from_mins(min),
        max: SignedDuration::from_mins(max),
    })
}

impl Default for Durations {
    fn default() -> Self {
        let length = |minutes| Length(SignedDuration::from_mins(minutes));
        Self {
            retrieve: minutes(1, 3),
            control_plane: minutes(60, 120),
            node: minutes(5, 10),
            evict_retry: length(1),
            pod_stop: Length(SignedDuration::from_secs(10)),
            drain_timeout: length(60),
            slow_operator: length(30),
            slow_machine_config: length(90),
            failing_after: length(40),
        }
    }
}
