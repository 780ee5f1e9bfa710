//! The library of hook templates, each run by the real Argo in real pods under its own rights, and some as Tasks by the real
//! Tekton, as the operator would have them run, against what it talks to: Alertmanager, etcd, Argo's server, an API server with the kinds of Argo CD and of
//! OpenShift, and a webhook that records.
//!
//! They need the cluster of `tests/cluster/up`, and disturb neither it nor each other:
//! `eval "$(tests/cluster/env)"; cargo test --test hook_library -- --ignored`. `tests/run` does all of it.
//! Those in `templates` and `tasks` need no cluster.

// The configuration of clippy allows these inside test functions only, and this whole crate is tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod alerts;
mod api_server;
mod approval;
mod argocd;
mod backup;
mod capacity;
mod cluster;
mod document;
mod hook;
mod outside;
mod task_pods;
mod tasks;
mod templates;
mod upgrade;
#[path = "../support/wait.rs"]
mod wait;
mod webhook;
