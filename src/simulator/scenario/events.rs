//! What happens in the course of time.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_yaml::with::singleton_map;

use super::values::{Length, Moment, Offset, Word};
use crate::simulator::prometheus::Sample;

/// Something that happens at a time. Exactly one of `fault`, `alert`, `query`, `clear` and `do`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Event {
    /// When.
    pub at: Moment,
    /// When a fault, alert or query answer ends. Default: at `for`, or when it is cleared, or never.
    #[serde(default)]
    pub until: Option<Moment>,
    /// How long a fault, alert or query answer lasts, instead of `until`.
    #[serde(default, rename = "for")]
    pub lasts: Option<Length>,
    /// A name, by which a later event can `clear` it.
    #[serde(default)]
    pub name: Option<Word>,
    /// A fault of the cluster.
    #[serde(default, with = "singleton_map")]
    #[schemars(with = "Option<Fault>")]
    pub fault: Option<Fault>,
    /// An alert that fires.
    #[serde(default)]
    pub alert: Option<Alert>,
    /// An answer of Prometheus to one query.
    #[serde(default)]
    pub query: Option<QueryAnswer>,
    /// The name of an event that ends now.
    #[serde(default)]
    pub clear: Option<Word>,
    /// Something that is done once.
    #[serde(default, rename = "do", with = "singleton_map")]
    #[schemars(with = "Option<Action>")]
    pub action: Option<Action>,
}

/// What an event is about: the one field that is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What<'a> {
    /// A fault begins.
    Fault(&'a Fault),
    /// An alert fires.
    Alert(&'a Alert),
    /// A query gets this answer.
    Query(&'a QueryAnswer),
    /// The event of this name ends.
    Clear(&'a Word),
    /// Something is done.
    Do(&'a Action),
}

impl Event {
    /// All that is set; a valid event has exactly one.
    pub(super) fn all(&self) -> Vec<What<'_>> {
        let fault = self.fault.as_ref().map(What::Fault);
        let alert = self.alert.as_ref().map(What::Alert);
        let query = self.query.as_ref().map(What::Query);
        let clear = self.clear.as_ref().map(What::Clear);
        let action = self.action.as_ref().map(What::Do);
        [fault, alert, query, clear, action]
            .into_iter()
            .flatten()
            .collect()
    }

    /// What the event is about; `None` in an event that is not valid.
    pub fn what(&self) -> Option<What<'_>> {
        match self.all().as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }
}

impl What<'_> {
    /// Whether it goes on until it ends, instead of being done once.
    pub fn lasts(self) -> bool {
        match self {
            Self::Fault(_) | Self::Alert(_) | Self::Query(_) => true,
            Self::Clear(_) | Self::Do(_) => false,
        }
    }
}

/// A fault of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// A release is refused: ReleaseAccepted=False.
    ReleaseRejected(Rejected),
    /// A ClusterOperator takes longer for its update.
    SlowOperator(Slow),
    /// A ClusterOperator does not end its update, without saying why.
    StuckOperator(Operator),
    /// The control plane stops at a percentage.
    StalledAt(Stalled),
    /// The cluster is Failing.
    Failing(Failing),
    /// A ClusterOperator is Degraded; an update waits for it.
    DegradedOperator(Operator),
    /// A ClusterOperator is not Available; an update waits for it.
    UnavailableOperator(Operator),
    /// A pool's configuration cannot be rendered: RenderDegraded and Degraded, and the pool stays where it is.
    DegradedPool(Pool),
    /// The update of a node fails as long as this lasts: the node and its pool are Degraded.
    DegradedNode(Node),
    /// A node is not ready.
    NotReadyNode(Node),
    /// A node does not come back from its next reboot as long as this lasts.
    LostNode(Node),
    /// A PodDisruptionBudget that allows nothing keeps a node from being drained.
    StuckDrain(StuckDrain),
    /// The update service does not answer: RetrievedUpdates=False, the available updates are not known.
    UpdateServiceAway(Reason),
    /// Upgradeable=False: no update to the next minor.
    NotUpgradeable(Reason),
    /// The API server does not answer. Must have an end.
    ApiServerAway(Nothing),
    /// Prometheus does not answer.
    PrometheusAway(Nothing),
}

/// No fields: write `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Why, in the condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reason {
    /// One word. Default: RemoteFailed for the update service, else SimulatedFault.
    pub reason: Option<Word>,
    /// For people. Default: that it is simulated.
    pub message: String,
}

/// A release that is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rejected {
    /// Its version. Default: every one.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub version: Option<semver::Version>,
    /// The step that fails.
    #[serde(default)]
    pub reason: Rejection,
    /// For people. Default: that it is simulated.
    #[serde(default)]
    pub message: String,
}

/// The steps of loading a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Rejection {
    /// The image cannot be had, or its signature is wrong.
    RetrievePayload,
    /// The image cannot be read.
    LoadPayload,
    /// The image is of another version.
    VerifyPayloadVersion,
    /// A precondition is not met.
    #[default]
    PreconditionChecks,
}

impl Rejection {
    /// As condition ReleaseAccepted says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetrievePayload => "RetrievePayload",
            Self::LoadPayload => "LoadPayload",
            Self::VerifyPayloadVersion => "VerifyPayloadVersion",
            Self::PreconditionChecks => "PreconditionChecks",
        }
    }
}

/// A slow ClusterOperator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Slow {
    /// Its name.
    pub operator: Word,
    /// How much longer it takes.
    pub by: Length,
}

/// A ClusterOperator in trouble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Operator {
    /// Its name.
    pub operator: Word,
    /// One word, the reason of the condition. Default: SimulatedFault.
    #[serde(default)]
    pub reason: Option<Word>,
    /// For people. Default: that it is simulated.
    #[serde(default)]
    pub message: String,
}

/// A control plane that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stalled {
    /// At this percentage, 0 to 99, as condition Progressing tells it.
    pub percent: u8,
}

/// A cluster that is Failing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Failing {
    /// One word. SlowClusterOperator gives Failing=Unknown. Default: MultipleErrors.
    pub reason: Option<Word>,
    /// For people. Default: that it is simulated.
    pub message: String,
    /// The condition comes and goes: True for the first half of each such period (counted from 1970), False for the
    /// second. Default: True all the time.
    pub flapping: Option<Length>,
}

/// A pool in trouble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "DegradedPool")]
pub struct Pool {
    /// Its name.
    pub pool: Word,
    /// One word. Default: SimulatedFault.
    #[serde(default)]
    pub reason: Option<Word>,
    /// For people. Default: that it is simulated.
    #[serde(default)]
    pub message: String,
}

/// A node in trouble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// Its name, such as `worker-0`.
    pub node: Word,
    /// One word. Default: SimulatedFault.
    #[serde(default)]
    pub reason: Option<Word>,
    /// For people. Default: that it is simulated.
    #[serde(default)]
    pub message: String,
}

/// A drain that does not end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StuckDrain {
    /// The node, such as `worker-0`.
    pub node: Word,
    /// The pod that cannot be evicted, `<namespace>/<name>`; it is made, with a budget of the same name, and
    /// goes with the fault. Default: `simulated-workload/stuck-on-<node>`.
    #[serde(default)]
    pub pod: Option<Word>,
}

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Alert {
    /// Label `alertname`.
    pub alertname: Word,
    /// Label `severity`.
    #[serde(default = "critical")]
    pub severity: String,
    /// Label `alertstate`.
    #[serde(default)]
    pub state: AlertState,
    /// Further labels, such as `namespace`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn critical() -> String {
    "critical".to_owned()
}

/// Whether an alert fires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AlertState {
    /// It fires.
    #[default]
    Firing,
    /// Its condition is met, but not for long enough.
    Pending,
}

/// What Prometheus answers to one query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueryAnswer {
    /// The query, as the health check has it; blanks at the ends and line breaks do not matter.
    pub query: String,
    /// The vector. Default: empty.
    #[serde(default)]
    pub result: Vec<Sample>,
    /// Warnings of Prometheus.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The query fails with this error instead (HTTP 422, `execution`).
    #[serde(default)]
    pub error: Option<String>,
}

/// Something that is done once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Action {
    /// Create this object, or replace what it says of an existing one (as `kubectl apply` does).
    Apply(Value),
    /// Change an object by a JSON merge patch.
    Patch(Patch),
    /// Delete an object.
    Delete(Reference),
    /// Acknowledge an admin gate: ConfigMap `openshift-config/admin-acks` gets this key with value "true".
    Acknowledge(Word),
    /// Stop our operator, and start it again.
    RestartOperator(Restart),
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reference {
    /// API version, such as `managedupgrade.appuio.io/v1beta1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; leave it out for kinds without.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Patch {
    /// API version, such as `managedupgrade.appuio.io/v1beta1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; leave it out for kinds without.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// The JSON merge patch (RFC 7386), such as `{spec: {paused: true}}`.
    pub merge: Value,
}

/// A restart of our operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Restart {
    /// How long it is away.
    pub down: Length,
    /// How far the clock of the machine where it then runs is ahead (`2m`) or behind (`-2m`).
    pub clock_offset: Offset,
}
