//! The operator end to end: a real API server, real Argo Workflows and Tekton, simulated OpenShift.
//!
//! Every scenario has a lane of the test cluster of its own (`tests/cluster/README.md`):
//! `cargo test --test scenarios -- --ignored --test-threads=2`.

// Tests may; the exceptions of clippy.toml reach functions with #[test] only, and these are their helpers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod argo;
mod bad_input;
mod crashes;
#[path = "../support/documents.rs"]
mod documents;
mod documents_applied;
mod documents_commands;
mod documents_paths;
mod drains;
mod engine_chosen;
mod engine_faults;
mod engine_killed;
mod failures;
mod fuzz;
mod gitops;
mod harness;
mod health;
mod held;
mod hook_pods;
mod hook_templates;
mod interventions;
mod leader;
mod outages;
mod overlays;
mod own_templates;
mod schedules;
mod tasks;
mod tekton;
mod upgrade;
mod windows;
