//! The stand-in of Argo's workflow controller against recordings of the real one, which `tests/argo_cluster.rs` makes.

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "support/argo_plays.rs"]
mod argo_plays;

use openshift_upgrade_operator::{
    clock::Clock,
    simulator::simulation::{self, Simulation},
};

#[test]
fn the_stand_in_records_what_the_real_controller_does() {
    let mut wrong = Vec::new();
    for play in argo_plays::all() {
        let recorded = simulation::run(async {
            let begin = "2026-11-24T21:00:00Z".parse().unwrap();
            let simulation = Simulation::with_argo(Clock::starting_at(begin));
            play.record(simulation.admin()).await
        })
        .unwrap();
        let file = play.golden_file();
        let real = std::fs::read_to_string(&file).unwrap_or_default();
        if recorded != real {
            let theirs = std::env::temp_dir().join(file.file_name().unwrap());
            std::fs::write(&theirs, recorded).unwrap();
            wrong.push(format!("{} differs from {}", theirs.display(), file.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "the stand-in records something else:\n{}",
        wrong.join("\n")
    );
}
