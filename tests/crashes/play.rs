//! One upgrade from its pin to long after its end, with or without a fault.

use std::collections::BTreeMap;

use openshift_upgrade_operator::{
    api::upgrade_job::EngineChoice,
    clock::Clock,
    simulator::{
        api::{Fault, Logged},
        simulation::{self, Simulation},
    },
};
use serde_json::Value;

use crate::{
    seen::Seen,
    simulated,
    story::{self, Story},
};

/// One upgrade, and what is to happen to which writes of the operator.
#[derive(Clone, Debug)]
pub struct Case {
    pub story: Story,
    pub engine: EngineChoice,
    /// Number of the write, counted from 1.
    pub faults: Vec<(u64, Fault)>,
}

/// What became of it.
pub struct Outcome {
    /// Every object at the end, by `<plural>/<namespace>/<name>`.
    pub objects: BTreeMap<String, Value>,
    /// What was seen on the way there.
    pub seen: Seen,
    /// Writes of the operator.
    pub writes: u64,
    /// Faults that struck.
    pub struck: u64,
    /// Requests that the API server does not know.
    pub unknown: Vec<String>,
    /// The requests, if they were to be kept.
    pub log: Vec<Logged>,
}

pub fn play(case: &Case, keep_log: bool) -> Outcome {
    simulation::run(upgrade(case, keep_log)).unwrap()
}

async fn upgrade(case: &Case, keep_log: bool) -> Outcome {
    let timeline = case.story.timeline();
    let clock = Clock::starting_at(story::time(story::BEGIN));
    let with_argo = case.engine == EngineChoice::Argo;
    let mut simulation = if with_argo {
        Simulation::with_argo(clock)
    } else {
        Simulation::new(clock)
    };
    simulation.start_cluster(&timeline).await.unwrap();
    let admin = simulation.admin();
    for object in story::manifests() {
        simulation::apply(&simulation.server, &admin, &object)
            .await
            .unwrap();
    }
    simulation.server.keep_journal();
    if keep_log {
        simulation.server.keep_log();
    }
    for (write, fault) in &case.faults {
        simulation.server.plan(*write, *fault);
    }
    simulation.start_operator(&simulated::settings(case.engine));
    simulation.play(&timeline);
    simulation.until(story::time(story::END)).await;
    assert_eq!(simulation.problems(), Vec::<String>::new());
    let server = &simulation.server;
    Outcome {
        objects: server.dump(),
        seen: Seen::of(&server.take_journal()),
        writes: server.writes(),
        struck: server.struck(),
        unknown: server.unknown_requests(),
        log: server.log(),
    }
}
