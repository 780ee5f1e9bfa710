//! Random worlds: from one number a cluster is drawn, what people write for it, and what goes wrong in some weeks. It is
//! played in simulated time, and what must always hold is checked by what our operator did.
//!
//! | variable | |
//! |---|---|
//! | `WORLDS=10000` | how many worlds |
//! | `WORLD_FIRST=201` | the seed of the first |
//! | `WORLD_SEED=123` | only this one, with its story |
//! | `WORLD_WITHOUT=hooks,faults` | leaves parts out, see [`draw::PARTS`] |
//!
//! What is drawn, what must hold and how long it takes: `docs/simulation.md`, "Random worlds".

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod by_hand;
mod calendar;
mod draw;
mod invariants;
mod play;
mod report;
mod rng;
mod state;

mod tamper;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{IsTerminal, Write},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use draw::{PARTS, World};
use play::History;

/// Worlds of an ordinary run: a minute at most, in a build for tests on two cores.
const WORLDS: u64 = 40;
/// After so many that broke an invariant it is clear enough.
const ENOUGH: usize = 8;

fn without() -> BTreeSet<String> {
    let text = std::env::var("WORLD_WITHOUT").unwrap_or_default();
    let parts: BTreeSet<String> = text
        .split(',')
        .filter(|p| !p.is_empty())
        .map(str::to_owned)
        .collect();
    for part in &parts {
        assert!(
            PARTS.contains(&part.as_str()),
            "WORLD_WITHOUT: there is no part {part}; parts are {PARTS:?}"
        );
    }
    parts
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")),
    )
}

#[test]
fn random_worlds_keep_the_promises() {
    play::watch_for_panics();
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
    let without = without();
    if let Some(seed) = number("WORLD_SEED") {
        return tell(seed, &without);
    }
    let first = number("WORLD_FIRST").unwrap_or(1);
    let count = number("WORLDS").unwrap_or(WORLDS);
    let (next, done) = (AtomicU64::new(first), AtomicU64::new(0));
    let failures: Mutex<Vec<String>> = Mutex::default();
    let totals: Mutex<Totals> = Mutex::default();
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failures.lock().unwrap().len() >= ENOUGH {
                        return;
                    }
                    let world_began = Instant::now();
                    let history = play::play(World::of(seed, &without), false);
                    let took = world_began.elapsed();
                    let violations = invariants::violations(&history);
                    totals.lock().unwrap().add(&history, took);
                    if !violations.is_empty() {
                        let left_out: Vec<&str> = without.iter().map(String::as_str).collect();
                        let text = report::failure(&history, &violations, &left_out.join(","));
                        // At once: who waits for ten thousand worlds wants to know.
                        println!("{text}");
                        failures.lock().unwrap().push(text);
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, count);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    println!(
        "{} worlds in {:.0} s; {}",
        done.into_inner(),
        began.elapsed().as_secs_f64(),
        totals.into_inner().unwrap()
    );
    assert!(
        failures.is_empty(),
        "{} worlds broke a promise, see above",
        failures.len()
    );
}

/// What was in all worlds together: worlds in which nothing happens prove nothing.
#[derive(Default)]
struct Totals {
    /// Jobs by the reason of their outcome.
    outcomes: BTreeMap<String, u64>,
    days: i64,
    /// The most requests and writes in an hour.
    busiest: (u64, u64),
    /// The world that took longest.
    longest: (Duration, u64),
}

impl Totals {
    fn add(&mut self, history: &History, took: Duration) {
        for reason in invariants::outcomes(history) {
            *self.outcomes.entry(reason).or_default() += 1;
        }
        let world = &history.world;
        self.days += world.end.duration_since(world.start).as_hours() / 24;
        let hour = invariants::busiest_hour(history);
        self.busiest = (hour.0.max(self.busiest.0), hour.1.max(self.busiest.1));
        self.longest = self.longest.max((took, world.seed));
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (requests, writes) = self.busiest;
        let (took, seed) = self.longest;
        let years = self.days / 365;
        writeln!(
            f,
            "{years} simulated years, the longest took {took:.1?} (world {seed}); in the busiest hour {requests} requests, \
             {writes} writes; jobs ended as"
        )?;
        for (reason, count) in &self.outcomes {
            writeln!(f, "  {count:6} {reason}")?;
        }
        Ok(())
    }
}

/// How far it is: on a terminal all the time, else now and then.
fn progress(done: u64, count: u64) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r{done}/{count} worlds ");
        let _ = out.flush();
    } else if done.is_multiple_of(100) {
        let _ = writeln!(out, "{done}/{count} worlds");
    }
}

/// One world and its story.
fn tell(seed: u64, without: &BTreeSet<String>) {
    let world = World::of(seed, without);
    println!("scenario: {}", world.scenario);
    for object in &world.objects {
        println!("object: {object}");
    }
    println!("deeds: {:?}\napi faults: {:?}", world.deeds, world.api_faults);
    let began = Instant::now();
    let history = play::play(world, false);
    let played = began.elapsed();
    for line in history.journal.iter().filter_map(report::line) {
        println!("{line}");
    }
    let judging = Instant::now();
    let violations = invariants::violations(&history);
    println!(
        "world {seed}: played in {played:.2?}, judged in {:.2?}, {} changes, in the busiest hour {:?} requests and writes",
        judging.elapsed(),
        history.journal.len(),
        invariants::busiest_hour(&history)
    );
    let left_out: Vec<&str> = without.iter().map(String::as_str).collect();
    assert!(
        violations.is_empty(),
        "\n{}",
        report::failure(&history, &violations, &left_out.join(","))
    );
}

/// The same seed gives the same world, byte for byte: every request of everybody with its time, body and code, every
/// version of every object that came of it, and what is there at the end. (Answers are those objects.)
#[test]
fn a_seed_is_a_world() {
    let told = |seed| {
        let history = play::play(World::of(seed, &without()), true);
        let log = history.log.iter().map(|l| format!("{l:?}"));
        let journal = history.journal.iter().map(|e| format!("{e:?}"));
        let end = history
            .dump
            .iter()
            .map(|(name, object)| format!("{name}: {object}"));
        let lines: Vec<String> = log.chain(journal).chain(end).chain(history.problems).collect();
        assert!(!history.dump.is_empty() && lines.iter().any(|l| l.contains("PATCH")));
        lines
    };
    let has_kills = |world: &World| !world.restarts().is_empty() && !world.api_faults.is_empty();
    let seeds = (1..).filter(|seed| has_kills(&World::of(*seed, &without())));
    for seed in seeds.take(2).chain([1]) {
        let (first, second) = (told(seed), told(seed));
        let differs = first.iter().zip(&second).find(|(a, b)| a != b);
        assert_eq!(differs, None, "world {seed}");
        assert_eq!(first.len(), second.len(), "world {seed}");
    }
    assert_ne!(told(1), told(2), "worlds differ at all");
}
