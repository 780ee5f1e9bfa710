//! One table of requests and expected answers, held against the API server in memory and against a real one.
//!
//! A case is a sequence of requests with what the server must answer (`cases/*.yaml`, one file a theme, see [`case`] for how
//! they are written). The expectation is written once and both servers must meet it: so the simulated API server does what
//! the real one does, wherever a case says so.
//!
//! On a real API server with a controller-manager, our CRDs and OpenShift's:
//! `tests/cluster/lane up 6; eval "$(tests/cluster/lane env 6)"; cargo test --test api_conformance -- --ignored`.

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod case;
mod expect;
mod run;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use futures::StreamExt;
use jiff::Timestamp;
use kube::Client;
use openshift_upgrade_operator::{
    clock::Clock,
    simulator::{
        api::{ApiServer, Identity, Kinds},
        simulation,
    },
};
use rstest::rstest;

use case::Case;
use run::Failure;

/// So many cases at once on the real server: most of a case is waiting.
const AT_ONCE: usize = 8;

/// A theme's cases; with `CASE` in the environment only those whose name contains it.
fn cases(theme: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(theme).unwrap();
    let cases: Vec<Case> = serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", theme.display()));
    let wanted = std::env::var("CASE").unwrap_or_default();
    cases.into_iter().filter(|c| c.case.contains(&wanted)).collect()
}

/// Runs one case on a server in memory of its own.
fn in_memory(case: &Case, namespace: &str) -> Result<(), Failure> {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        simulation::run(async {
            let start: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
            let server = ApiServer::new(Clock::starting_at(start), Kinds::ours());
            server.panic_at_the_unknown();
            run::run(&server.client(Identity::Admin), case, namespace).await
        })
        .unwrap()
    }));
    ran.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Err(Failure::of_case(format!("the server panicked: {said}")))
    })
}

/// Namespace of a case; the names of two runs on one server must differ.
fn namespace(theme: &str, index: usize, run: &str) -> String {
    format!("{theme}-{index}{run}").replace('_', "-")
}

fn theme_of(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

#[rstest]
fn the_server_in_memory_answers_as_expected(
    #[files("tests/api_conformance/cases/*.yaml")] theme: std::path::PathBuf,
) {
    let name = theme_of(&theme);
    let mut failures = Vec::new();
    for (index, case) in cases(&theme).iter().enumerate() {
        if let Err(failure) = in_memory(case, &namespace(&name, index, "")) {
            failures.push(format!("{name}: {}: in memory\n{failure}", case.case));
        }
    }
    assert!(
        failures.is_empty(),
        "{} cases failed\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[rstest]
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn the_real_server_answers_as_expected(
    #[files("tests/api_conformance/cases/*.yaml")] theme: std::path::PathBuf,
) {
    // An error says that another test has installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = kube::Config::infer().await.unwrap();
    // A refusal is an answer, not a reason to ask again.
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let name = theme_of(&theme);
    let suffix = format!("-{}", Timestamp::now().as_millisecond());
    let all = cases(&theme);
    let ran = futures::stream::iter(all.iter().enumerate().map(|(index, case)| {
        let (client, namespace) = (client.clone(), namespace(&name, index, &suffix));
        async move {
            let result = run::run(&client, case, &namespace).await;
            result.err().map(|failure| (case, namespace, failure))
        }
    }));
    let failed: Vec<_> = ran
        .buffered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    // What the other server answers to a case that failed: on a thread of its own, for it has a runtime of its own.
    let failures: Vec<String> = failed
        .into_iter()
        .map(|(case, namespace, failure)| {
            let other = std::thread::scope(|s| s.spawn(|| in_memory(case, &namespace)).join().unwrap());
            let other = other
                .err()
                .map_or("    as expected\n".to_owned(), |failure| failure.to_string());
            format!("{name}: {}: really\n{failure}  in memory\n{other}", case.case)
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} cases failed\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// A test that asks for something that the server in memory does not do must not go on as if it had.
#[rstest]
#[should_panic(expected = "not simulated: GET /api")]
#[case::subresource("/api/v1/namespaces/ns/pods/p/log")]
#[should_panic(expected = "not simulated: GET /api")]
#[case::parameter("/api/v1/nodes?pretty=true")]
#[should_panic(expected = "not simulated: GET /apis")]
#[case::discovery("/apis")]
fn what_is_not_simulated_panics(#[case] path: &str) {
    simulation::run(async {
        let server = ApiServer::new(Clock::System, Kinds::ours());
        server.panic_at_the_unknown();
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        server.client(Identity::Admin).request_text(request).await
    })
    .unwrap()
    .unwrap();
}
