//! Hooks: which ones run at an event, the Jobs they become, and what became of those Jobs. Pure.
//!
//! [`select`] picks the hooks, [`run`] decides what one event needs next, [`job`] and [`environment`] build a Job, [`native`] is
//! what a workflow engine needs instead, and [`tracker`] reads the Jobs back into `UpgradeJob.status.hookTracker`.

pub mod environment;
pub mod job;
mod naming;
pub mod native;
pub mod run;
pub mod select;
pub mod tracker;

#[cfg(test)]
mod documentation;
#[cfg(test)]
pub(crate) mod fixtures;
