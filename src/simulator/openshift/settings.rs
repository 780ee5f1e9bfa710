//! How long things take.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::durations::Range;

/// How long things take. Of a range, each release, node and so on gets a duration of its own, which follows from `seed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the durations of the ranges follow from.
    pub seed: u64,
    /// Retrieving and verifying a release.
    pub retrieve: Range,
    /// All ClusterOperators together, without the wait for the required pools.
    pub control_plane: Range,
    /// One node: a quarter at least for the drain, the rest for the reboot.
    pub node: Range,
    /// The same for the nodes of some pools, by the pool's name.
    pub node_of_pool: BTreeMap<String, Range>,
    /// Between two attempts to evict the pods of a node.
    pub evict_retry: SignedDuration,
    /// A pod's end, unless its own grace period is shorter.
    pub pod_stop: SignedDuration,
    /// Between two heartbeats of a node, at most (half of it at least); `None` = nodes never renew it (for virtual time).
    pub heartbeat: Option<SignedDuration>,
    /// When waiting becomes a fault; `None` = never, for clusters that upgrade in seconds.
    pub patience: Option<Patience>,
    /// How long the API server is away in the middle of its own update.
    pub api_server_away: SignedDuration,
}

/// How long OpenShift's operators wait before they call it a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A drain; then the node is Degraded, and the drain goes on.
    pub drain: SignedDuration,
    /// A ClusterOperator that updates; then Failing=Unknown with reason SlowClusterOperator.
    pub operator: SignedDuration,
    /// The same for machine-config, which waits for nodes.
    pub machine_config: SignedDuration,
    /// A degraded ClusterOperator that an update waits for; then Failing=True.
    pub degraded: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            retrieve: SignedDuration::from_secs(2).into(),
            control_plane: SignedDuration::from_secs(15).into(),
            node: SignedDuration::from_secs(5).into(),
            node_of_pool: BTreeMap::new(),
            evict_retry: SignedDuration::from_secs(1),
            pod_stop: SignedDuration::from_millis(500),
            // As a kubelet's `nodeStatusReportFrequency`.
            heartbeat: Some(SignedDuration::from_mins(5)),
            patience: None,
            api_server_away: SignedDuration::ZERO,
        }
    }
}

impl Settings {
    /// All durations divided by `speed`, but for the heartbeat, which real controllers watch in real time.
    #[must_use]
    pub fn faster(&self, speed: f64) -> Self {
        let scale = |d: SignedDuration| Range::exactly(d).scaled(1.0 / speed).min;
        let nodes = self.node_of_pool.iter();
        Self {
            seed: self.seed,
            retrieve: self.retrieve.scaled(1.0 / speed),
            control_plane: self.control_plane.scaled(1.0 / speed),
            node: self.node.scaled(1.0 / speed),
            node_of_pool: nodes
                .map(|(pool, range)| (pool.clone(), range.scaled(1.0 / speed)))
                .collect(),
            evict_retry: scale(self.evict_retry),
            pod_stop: scale(self.pod_stop),
            heartbeat: self.heartbeat,
            patience: self.patience.map(|p| Patience {
                drain: scale(p.drain),
                operator: scale(p.operator),
                machine_config: scale(p.machine_config),
                degraded: scale(p.degraded),
            }),
            api_server_away: scale(self.api_server_away),
        }
    }
}
