//! Every ending of a job, on the real operator in simulated time: what it is called and what it says, which hooks ran, what is
//! left on the cluster, and that the next job can go on from there.
//!
//! A row is a night: a cluster, a job, and what happens to them. Most of it is `night.rs`; `ending.rs` has what must hold at every
//! ending. The same rules without an API server, and in more variants: `src/lifecycle/tests`.

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod any_step;
#[path = "../support/argocd.rs"]
mod argocd;
mod documented;
mod ending;
mod failed;
mod health;
mod next_hooks;
mod night;
mod peer;
mod pins;
#[path = "../support/simulated.rs"]
mod simulated;
mod skipped;
mod stopped;
mod takeover;
mod versions;

use ending::Left;
use night::Night;

/// Plays a night, and compares all of its ending.
#[track_caller]
fn assert_ends(night: &Night, as_: &str, message: &str, hooks: &str, left: Left) {
    let morning = night.play();
    let ending = morning.ending();
    let expected = ending::Ending {
        as_: as_.to_owned(),
        message: message.to_owned(),
        hooks: hooks.to_owned(),
        asks_for: left.asks_for.map(str::to_owned),
        has: left.has.to_owned(),
        paused: left.paused.iter().map(|p| (*p).to_owned()).collect(),
    };
    assert_eq!(ending, expected);
    morning.assert_all_is_given_back();
    morning.assert_argocd_tells();
    morning.assert_later_job_succeeds();
}
