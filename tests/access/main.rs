//! Whether the rights of our ServiceAccounts are enough and no more: what the API server granted, against what it was asked
//! for while the tests ran, by its audit log.
//!
//! Run last, on a cluster that came up with `TESTBED_AUDIT=ours`, as `tests/run` does:
//! `eval "$(tests/cluster/env)"; cargo test --test access -- --ignored --nocapture`. What the scenarios on lanes asked for under
//! the same rights is in the folder that `TESTBED_KEEP_REQUESTS` named for both; without it, rights that only they use are
//! reported.

// The configuration of clippy allows these inside test functions only, and this whole crate is tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[allow(dead_code, reason = "other tests look at more of it")]
#[path = "../support/audit_log.rs"]
mod audit_log;
mod exceptions;
mod judge;
mod rights;
#[allow(dead_code, reason = "other tests look at more of it")]
#[path = "../support/writers.rs"]
mod writers;

use std::fs;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{Api, Client, api::ListParams};

use crate::{audit_log::Line, exceptions::EXCEPTIONS, rights::Access};

const NAMESPACE: &str = "openshift-upgrade";
/// The operator, and the pods of its workflows.
const ACCOUNTS: [&str; 2] = ["upgrade-operator", "upgrade-workflow"];

async fn access() -> Access {
    // Two TLS back ends are in the graph; an error means that one was chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::try_default()
        .await
        .expect("KUBECONFIG is not that of the test cluster: eval \"$(tests/cluster/env)\"");
    let all = ListParams::default();
    Access {
        roles: Api::<Role>::all(client.clone()).list(&all).await.unwrap().items,
        role_bindings: Api::<RoleBinding>::all(client.clone())
            .list(&all)
            .await
            .unwrap()
            .items,
        cluster_roles: Api::<ClusterRole>::all(client.clone())
            .list(&all)
            .await
            .unwrap()
            .items,
        cluster_role_bindings: Api::<ClusterRoleBinding>::all(client)
            .list(&all)
            .await
            .unwrap()
            .items,
    }
}

/// What was asked for on lanes; each scenario sees for itself that nothing was forbidden there.
fn on_lanes() -> Vec<Line> {
    let Some(folder) = audit_log::kept_folder() else {
        return Vec::new();
    };
    let logs = fs::read_dir(&folder).unwrap_or_else(|e| panic!("reading {}: {e}", folder.display()));
    let lines = logs.flat_map(|log| audit_log::read(&log.unwrap().path()));
    lines.filter(|line| line.code() != 403).collect()
}

#[tokio::test]
#[ignore = "needs the test cluster, after its tests: tests/run"]
async fn our_service_accounts_have_the_rights_that_they_need_and_no_others() {
    let (rights, dangling) = access().await.of(NAMESPACE, &ACCOUNTS);
    let mut log = audit_log::read(&audit_log::of_cluster());
    log.extend(on_lanes());
    let requests = judge::requests(&log, NAMESPACE);
    println!(
        "{} rights, {} different requests",
        rights.len(),
        requests.0.len() + requests.1.len()
    );
    let findings = judge::judge(&ACCOUNTS, &rights, &dangling, &requests, EXCEPTIONS);
    let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "\n{}", told.join("\n"));
}

#[test]
#[ignore = "needs the test cluster, after its tests: tests/run"]
fn never_did_two_operators_write_at_once_in_all_the_tests() {
    let writes = writers::writes(&audit_log::read(&audit_log::of_cluster()));
    println!("{} writes of the operator", writes.len());
    assert!(
        writes.iter().any(|w| w.lease.is_none()),
        "the operator wrote nothing: is the log that of the tests?"
    );
    let strangers = writers::strangers(&writes);
    assert!(strangers.is_empty(), "\n{}", strangers.join("\n"));
}
