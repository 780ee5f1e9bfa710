//! The Helm chart: that every flag of the operator can be set by it, that what it renders is what the operator takes, that its
//! values and its rights are documented and checked, and that what is generated from it is up to date.
//!
//! Those that are ignored need helm: `tests/cluster/build helm; eval "$(tests/cluster/env)"; cargo test --test chart -- --ignored`.
//! `tests/run` does that. Installing, upgrading and removing it is tested in `tests/cluster_upgrade/chart.rs`.

// The configuration of clippy allows these inside test functions only, and this whole crate is tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod commands;
#[path = "../support/documents.rs"]
mod documents;
mod flags;
mod rendering;
mod rights;
mod values;

use std::{fs, path::PathBuf};

/// A file of the repository.
fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Where the chart is.
const CHART: &str = "charts/openshift-upgrade-operator";
