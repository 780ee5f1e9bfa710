//! Hooks: which ones run at an event, the Jobs and TaskRuns they become, and what became of those. Pure.
//!
//! [`select`] picks the hooks, [`run`] decides what one event needs next, [`job`] and [`environment`] build a Job,
//! [`task_run`] builds a TaskRun of Tekton, [`native`] is what a workflow engine needs that runs them itself, and [`tracker`]
//! reads what runs ([`hook_run`]) back into `UpgradeJob.status.hookTracker`. [`pods`] tells an engine that died from a hook
//! that takes long.

pub mod environment;
pub mod hook_run;
pub mod job;
mod naming;
pub mod native;
pub mod pods;
pub mod run;
pub mod select;
pub mod task_run;
pub mod tracker;

#[cfg(test)]
mod documentation;
#[cfg(test)]
pub(crate) mod fixtures;
