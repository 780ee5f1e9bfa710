//! What holds in every world, whatever happens in it, judged by what our operator did to the cluster.

mod cluster;
mod jobs;
mod runs;
mod traffic;

use jiff::Timestamp;

use crate::{
    play::History,
    state::{Clocks, State, replay},
};

/// All of them. The first eight are those that were asked for; `tamper.rs` shows of each that it can be broken.
pub const ALL: [&str; 18] = [
    "at most one job runs",
    "desiredUpdate changes in a job's time only",
    "no foreign pause is touched",
    "a pool of ours is unpaused in [delayMin, delayMax]",
    "every job comes to its ending in time",
    "every run is accounted for",
    "nothing is left behind",
    "no reconcile loop",
    "a job without an ending says what it waits for",
    "an outcome never changes",
    "an ended job gives everything back",
    "jobs start in their window",
    "a hook runs once",
    "the lock is taken from nobody",
    "pools are paused by running jobs only",
    "conditions have a reason and a message",
    "Events have a reason and a note",
    "nothing breaks",
];

/// Something that must not be.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which invariant.
    pub invariant: &'static str,
    pub at: Timestamp,
    pub what: String,
}

/// What is checked, and what was found.
pub struct Judge<'a> {
    pub history: &'a History,
    pub clocks: Clocks,
    pub end: State,
    pub found: Vec<Violation>,
}

impl Judge<'_> {
    fn find(&mut self, invariant: &'static str, at: Timestamp, what: impl Into<String>) {
        assert!(ALL.contains(&invariant), "{invariant:?} is missing in the list");
        self.found.push(Violation {
            invariant,
            at,
            what: what.into(),
        });
    }
}

/// All that is wrong with a history, in order of time.
pub fn violations(history: &History) -> Vec<Violation> {
    let mut judge = Judge {
        clocks: Clocks::of(&history.world),
        end: replay(history, |_, _| ()),
        history,
        found: Vec::new(),
    };
    for problem in &history.problems {
        judge.find("nothing breaks", history.world.end, problem);
    }
    jobs::check(&mut judge);
    cluster::check(&mut judge);
    runs::check(&mut judge);
    traffic::check(&mut judge);
    judge.found.sort_by_key(|v| v.at);
    judge.found
}

pub use jobs::reasons_of_outcomes as outcomes;
pub use traffic::busiest_hour;
