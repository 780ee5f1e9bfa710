//! Upgrades OpenShift 4 clusters in their maintenance windows, with nobody awake.
//!
//! Deciding is pure (`schedule`, `pinning`, `plan`, `steps`, `health`, `lifecycle`): a [`world::World`] and the time
//! in, a verdict and actions out. Only `controller` and the commands in `cli` talk to an API server.

pub mod api;
pub mod cli;
pub mod clock;
pub mod controller;
#[cfg(test)]
mod documentation;
pub mod drain;
pub mod engine;
pub mod force_drain;
pub mod health;
pub mod hooks;
pub mod http;
pub mod leader;
pub mod lifecycle;
pub mod metrics;
pub mod openshift;
pub mod outside;
pub mod overlay;
pub mod pinning;
pub mod plan;
pub mod pools;
pub mod schedule;
pub mod settings;
pub mod simulator;
pub mod steps;
pub mod target;
pub mod text;
pub mod unreadable;
pub mod world;
