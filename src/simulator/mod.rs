//! A cluster that is not there: OpenShift's operators, simulated against any Kubernetes API.
//!
//! [`openshift`] decides (pure: objects and the time in, writes out), [`prepare`] and [`driver`] talk to the API. What the
//! cluster's monitoring answers is in [`prometheus`], pure as well.

pub mod api;
pub mod batch;
pub mod driver;
pub mod openshift;
pub mod operator;
pub mod prepare;
pub mod prometheus;
