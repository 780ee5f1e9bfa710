//! Drains that take long: since when, which pods are left, and why they are. Pure; read by `controller::drains`.
//!
//! How the machine-config operator drains (its pkg/controller/drain): the daemon of a node asks by an annotation, the
//! controller cordons the node and evicts its pods, again and again, until none is left but those of DaemonSets, mirror pods
//! and pods that are over.

mod budget;
mod cause;
mod explain;
mod metrics;
mod observed;
mod pod;

#[cfg(test)]
mod tests;

pub use budget::Budget;
pub use cause::{Eviction, Namespace, diagnose, unexplained};
pub use explain::{Explained, Finding, MAX_BLOCKERS, explain, merged};
pub use metrics::metrics;
pub use observed::{Drains, Look, Sight};
pub use pod::{BlockingPod, Pod, Reference, is_exempt, is_left, is_over};
