//! `status.workflow.url`: where a UI of the engine shows the workflow.

use serde_json::json;

use super::{bench::Bench, fixtures::job};
use crate::api::upgrade_job::EngineChoice;

/// The link of `status.workflow`.
fn link(bench: &Bench) -> Option<String> {
    bench.status().workflow.unwrap().url
}

#[test]
fn the_link_leads_to_the_workflow_that_is_followed_and_nowhere_after_a_hand_over() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.settings.workflow_url_template =
        Some("https://ui.example.com/{namespace}/runs/{name}?n={name}".into());
    bench = bench.accepted();
    let of_run = |n: u32| Some(format!("https://ui.example.com/ns/runs/j-run-{n}?n=j-run-{n}"));
    assert_eq!(link(&bench), of_run(1));
    bench.workflow = None;
    bench.settle();
    assert_eq!(link(&bench), of_run(2));
    bench.run_mut().unsupported = Some("Argo has compressed the steps".into());
    bench.settle();
    let followed = bench.status().workflow.unwrap();
    assert_eq!((followed.engine, followed.url), (EngineChoice::Embedded, None));
}

#[test]
fn without_a_template_there_is_no_link() {
    let bench = Bench::new(job("j", json!({}))).accepted();
    assert_eq!(link(&bench), None);
}
