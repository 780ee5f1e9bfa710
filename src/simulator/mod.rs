//! A cluster that is not there: OpenShift's operators, simulated against any Kubernetes API.
//!
//! [`openshift`] decides (pure: objects and the time in, writes out), [`prepare`] and [`driver`] talk to the API.
//! [`scenario`] says which cluster it is and what happens to it, [`prometheus`] what its monitoring answers; both are pure
//! as well. [`argo`] stands in for the controller of Argo Workflows. A [`rehearsal`] tells what became of somebody's manifests on it.

pub mod api;
pub mod argo;
pub mod batch;
#[cfg(test)]
mod drains;
pub mod driver;
pub mod openshift;
pub mod operator;
pub mod prepare;
pub mod prometheus;
pub mod rehearsal;
pub mod scenario;
pub mod simulation;
#[cfg(test)]
mod two_operators;
#[cfg(test)]
mod unreadable;
mod writer;
