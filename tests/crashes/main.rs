//! Every write that the operator makes in an upgrade goes wrong once, in every way, in simulated time: the operator is killed
//! before it or after it, or the write fails, or its answer is lost. Whatever happens, the upgrade ends as if nothing had.
//!
//! How to play one case again, and what is played by default: `docs/architecture.md`, "Crash tests".

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod play;
mod seen;
#[path = "../support/simulated.rs"]
mod simulated;
mod state;
mod story;
mod sweep;
mod verdict;

use openshift_upgrade_operator::{api::upgrade_job::EngineChoice, simulator::api::Fault};
use play::{Case, play};
use rstest::rstest;
use story::Story;
use sweep::{Sweep, describe};

/// Faults after which the same operator goes on.
const LIVES: [Fault; 5] = [
    Fault::Conflict,
    Fault::InternalError,
    Fault::Unavailable,
    Fault::AnswerLost,
    Fault::RequestLost,
];
/// Faults after which another one goes on.
const DIES: [Fault; 2] = [Fault::KillBefore, Fault::KillAfter];
/// In a run with many faults there is one at every so many writes: the last is over by then.
const APART: u64 = 10;

/// How much is played, by the environment variable `CRASHES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    /// By default: every write meets a fault that kills and one that does not; in the first story of all it meets every
    /// fault. Many faults a run, and a few runs with one fault or two.
    Sample,
    /// `many`: every write meets every fault, in every story; many faults a run, and some runs with one or two.
    Many,
    /// `all`: besides, every fault alone, and every fault with a kill while its recovery is under way. Takes an hour.
    All,
}

impl Effort {
    fn asked_for() -> Self {
        match std::env::var("CRASHES").as_deref() {
            Ok("all") => Self::All,
            Ok("many") => Self::Many,
            Ok(other) => panic!("CRASHES={other} is neither many nor all"),
            Err(_) => Self::Sample,
        }
    }

    /// The cases of a story; `is_first`: of the one that is played most.
    fn cases(self, writes: u64, is_first: bool) -> Vec<Vec<(u64, Fault)>> {
        let every = |step: usize| singles(writes).into_iter().chain(pairs(writes)).step_by(step);
        let combined = |all| combined(writes, all).into_iter();
        match (self, is_first) {
            (Self::Sample, true) => combined(true).chain(every(101)).collect(),
            (Self::Sample, false) => combined(false).collect(),
            (Self::Many, _) => combined(true).chain(every(40)).collect(),
            (Self::All, _) => combined(true).chain(every(1)).collect(),
        }
    }
}

/// One fault, at each write.
fn singles(writes: u64) -> Vec<Vec<(u64, Fault)>> {
    let each = (1..=writes).flat_map(|write| Fault::ALL.map(|fault| vec![(write, fault)]));
    each.collect()
}

/// The same with many faults in a run. Those that kill are apart from the others: a new operator looks at everything anew,
/// and would mend what the old one left undone. Without `all`, each write meets one of either.
fn combined(writes: u64, all: bool) -> Vec<Vec<(u64, Fault)>> {
    let groups = [LIVES.as_slice(), DIES.as_slice()];
    let runs = groups.into_iter().flat_map(|faults| {
        (0..APART).flat_map(move |first| {
            let turns = (0..faults.len()).map(move |turn| turn + usize::try_from(first).unwrap());
            turns.take(if all { faults.len() } else { 1 }).map(move |turn| {
                let at = (0..).map(|i| first + 1 + i * APART).take_while(|w| *w <= writes);
                let faults = faults.iter().cycle().skip(turn);
                at.zip(faults.copied()).collect::<Vec<_>>()
            })
        })
    });
    runs.filter(|faults| !faults.is_empty()).collect()
}

/// A fault, and a kill while its recovery is under way.
fn pairs(writes: u64) -> Vec<Vec<(u64, Fault)>> {
    let after =
        |write: u64, fault: Fault, gap: u64| DIES.map(|kill| vec![(write, fault), (write + gap, kill)]);
    let each = (1..=writes).flat_map(|write| {
        let gaps = Fault::ALL.into_iter().zip([1, 2, 3, 1, 2, 3, 4]);
        gaps.flat_map(move |(fault, gap)| after(write, fault, gap))
    });
    each.collect()
}

#[rstest]
fn an_upgrade_ends_the_same_whatever_happens_to_a_write(
    #[values(Story::Succeeds, Story::Rejected, Story::Aborted, Story::TimedOut)] story: Story,
    #[values(EngineChoice::Embedded, EngineChoice::Argo)] engine: EngineChoice,
) {
    let sweep = Sweep::new(story, engine);
    let is_first = (story, engine) == (Story::Succeeds, EngineChoice::Embedded);
    let cases = Effort::asked_for().cases(sweep.writes(), is_first);
    sweep.play(cases);
}

/// The case in `CRASH`, with everything that the operator wrote.
#[test]
fn replay() {
    let Ok(text) = std::env::var("CRASH") else { return };
    let case: Case = text.parse().unwrap();
    let sweep = Sweep::new(case.story, case.engine);
    let outcome = play(&case, true);
    for logged in outcome.log.iter().filter(|l| l.write.is_some()) {
        let write = logged.write.unwrap();
        let fault = case.faults.iter().find(|(w, _)| *w == write).map(|(_, f)| f);
        let fault = fault.map_or_else(String::new, |f| format!(" <== {f:?}"));
        println!(
            "{} {:?} {write:4} {} {}{fault}",
            logged.at,
            logged.identity,
            describe(logged),
            logged.code
        );
    }
    let wrong = verdict::compared(case.story, &sweep.undisturbed, &outcome);
    assert!(wrong.is_empty(), "{}", sweep.report(&case));
}
