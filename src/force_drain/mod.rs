//! NodeForceDrain: which pods of a node that drains for too long are deleted, and how. Pure; carried out by
//! `controller::node_force_drain`.
//!
//! Semantics of the peer (its `node_force_drain_controller.go`): from `nodeDrainGracePeriod` of a drain on, pods are deleted past
//! their budgets; from `podForceDeleteGracePeriod` after a pod's deletion was asked for, it is deleted again with a grace of 1 s.

mod decision;
pub mod jq;
#[cfg(test)]
mod tests;

pub use decision::{Deletion, DueNode, Stage, Survey, choose, survey};
