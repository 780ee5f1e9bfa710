//! How long things take, drawn by a seed: without state, so that the same seed, object and release always give the same.

use jiff::SignedDuration;
use sha2::{Digest, Sha256};

/// A duration, or a range of which one is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The shortest.
    pub min: SignedDuration,
    /// The longest; not less than `min`.
    pub max: SignedDuration,
}

impl From<SignedDuration> for Range {
    fn from(duration: SignedDuration) -> Self {
        Self::exactly(duration)
    }
}

impl Range {
    /// Always this long.
    pub const fn exactly(duration: SignedDuration) -> Self {
        Self {
            min: duration,
            max: duration,
        }
    }

    /// Both ends times `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let scale =
            |d: SignedDuration| SignedDuration::try_from_secs_f64(d.as_secs_f64() * factor).unwrap_or(d);
        Self {
            min: scale(self.min),
            max: scale(self.max),
        }
    }

    /// The duration of what `about` names; every duration of the range is as likely. Whole seconds are added to `min`
    /// where the range is longer than a minute, so that times read well.
    pub fn draw(self, seed: u64, about: &[&str]) -> SignedDuration {
        let width = self.max.saturating_sub(self.min);
        if !width.is_positive() {
            return self.min;
        }
        let nanos = i64::try_from(width.as_nanos()).unwrap_or(i64::MAX);
        let drawn = below(nanos, seed, about);
        let step = if width > SignedDuration::from_mins(1) {
            1_000_000_000
        } else {
            1
        };
        self.min + SignedDuration::from_nanos(drawn / step * step)
    }
}

/// A number from 0 to `limit`, which follows from the seed and what it is about.
pub fn below(limit: i64, seed: u64, about: &[&str]) -> i64 {
    let mut digest = Sha256::new();
    digest.update(seed.to_be_bytes());
    for part in about {
        digest.update(part.as_bytes());
        // So that ["a", "bc"] and ["ab", "c"] differ.
        digest.update([0]);
    }
    let number = digest
        .finalize()
        .iter()
        .take(8)
        .fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
    let scaled = (i128::from(number) * (i128::from(limit.max(0)) + 1)) >> 64;
    i64::try_from(scaled).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn minutes(min: i64, max: i64) -> Range {
        Range {
            min: SignedDuration::from_mins(min),
            max: SignedDuration::from_mins(max),
        }
    }

    #[test]
    fn the_same_seed_and_name_give_the_same_and_others_something_else() {
        let drawn = |seed, about: &[&str]| minutes(60, 120).draw(seed, about);
        assert_eq!(drawn(1, &["a", "b"]), drawn(1, &["a", "b"]));
        let others = [
            drawn(1, &["a", "b"]),
            drawn(2, &["a", "b"]),
            drawn(1, &["ab", ""]),
            drawn(1, &["a", "c"]),
        ];
        assert_eq!(others.into_iter().collect::<BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn draws_fill_the_range_and_do_not_leave_it() {
        let range = minutes(5, 10);
        let all: Vec<_> = (0..1000).map(|seed| range.draw(seed, &["node"])).collect();
        assert!(
            all.iter()
                .all(|d| *d >= range.min && *d <= range.max && d.subsec_nanos() == 0)
        );
        let least = all.iter().min().unwrap().as_secs();
        let most = all.iter().max().unwrap().as_secs();
        assert!(least < 303 && most > 597, "{least} {most}");
        let sum: i64 = all.iter().map(SignedDuration::as_secs).sum();
        assert!((440..460).contains(&(sum / 1000)), "mean {}", sum / 1000);
    }

    #[test]
    fn a_single_duration_is_exact_and_a_short_range_is_fine_grained() {
        let exact = SignedDuration::from_millis(1500);
        assert_eq!(Range::exactly(exact).draw(7, &["x"]), exact);
        let short = Range {
            min: SignedDuration::ZERO,
            max: SignedDuration::from_secs(1),
        };
        assert_ne!(short.draw(7, &["x"]).subsec_nanos(), 0);
    }
}
