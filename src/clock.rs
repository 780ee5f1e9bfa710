//! The only clock of the operator and of the simulator.
//!
//! Decisions get `now` as an argument; whoever calls them asks here. Under virtual time everything rests on tokio's clock,
//! so that a test or a rehearsal that pauses it has one clock and not two.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where `now` comes from.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A base date plus what tokio's clock, which a simulation pauses and advances, has counted since.
    Virtual {
        /// The date at `start`.
        base: Timestamp,
        /// When the simulation began.
        start: Instant,
    },
}

impl Clock {
    /// A virtual clock that shows `base` now. Only inside of a tokio runtime: elsewhere its time stands still.
    pub fn starting_at(base: Timestamp) -> Self {
        Self::Virtual {
            base,
            start: Instant::now(),
        }
    }

    /// The same clock, `offset` fast (or slow, if negative): the clock of a machine that is wrong. The machine's own clock is
    /// what it is.
    #[must_use]
    pub fn shifted(self, offset: SignedDuration) -> Self {
        match self {
            Self::System => Self::System,
            Self::Virtual { base, start } => Self::Virtual {
                base: saturating_add(base, offset),
                start,
            },
        }
    }

    /// Now.
    pub fn now(self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Virtual { base, start } => {
                let elapsed = SignedDuration::try_from(start.elapsed()).unwrap_or(SignedDuration::MAX);
                saturating_add(base, elapsed)
            }
        }
    }

    /// Whether this is simulated time.
    pub fn is_virtual(self) -> bool {
        match self {
            Self::System => false,
            Self::Virtual { .. } => true,
        }
    }
}

fn saturating_add(t: Timestamp, d: SignedDuration) -> Timestamp {
    t.checked_add(d).unwrap_or(if d.is_negative() {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn virtual_time_is_tokios() {
        let base: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(base);
        assert_eq!(clock.now(), base);
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(clock.now().to_string(), "2026-11-21T01:00:00Z");
        let fast = clock.shifted(SignedDuration::from_hours(1));
        assert_eq!(fast.now().to_string(), "2026-11-21T02:00:00Z");
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_overflow() {
        let clock = Clock::starting_at(Timestamp::MAX);
        assert_eq!(clock.shifted(SignedDuration::MAX).now(), Timestamp::MAX);
        assert_eq!(clock.shifted(SignedDuration::MIN).now(), Timestamp::MIN);
    }
}
