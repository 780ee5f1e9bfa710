//! A rehearsal: somebody's own manifests against simulated time, and what is told of it.
//!
//! - [`recording`]: what was seen while it ran; [`config`] and [`job`] are its parts
//! - [`story`]: what became of every run
//! - [`warnings`]: what an administrator should change or know
//! - [`report`] for programs, [`timeline`] for people
//!
//! All of it is pure: it is told what was seen, and when.

pub mod config;
pub mod job;
pub mod recording;
pub mod report;
pub mod run;
pub mod story;
pub mod timeline;
pub mod warnings;

#[cfg(test)]
mod fixtures;

pub use recording::Recording;
pub use story::Story;
