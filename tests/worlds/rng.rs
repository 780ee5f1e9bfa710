//! Random numbers that follow from a seed alone, whatever the machine and the versions of crates.

/// A stream of random numbers: splitmix64.
pub struct Rng(u64);

impl Rng {
    /// The stream of one part of a world. Parts do not disturb each other: what is left out changes nothing of the rest.
    pub fn of(seed: u64, part: &str) -> Self {
        let mut state = Self(seed);
        for byte in part.bytes() {
            state.0 = state.next() ^ u64::from(byte);
        }
        state
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// From `least` to `most`, both included.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        least + self.below(most.abs_diff(least) + 1).cast_signed()
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        let index = usize::try_from(self.below(all.len() as u64)).unwrap();
        all[index].clone()
    }

    /// A duration of so many minutes, as it is written in a resource.
    pub fn minutes(&mut self, least: i64, most: i64) -> String {
        format!("{}m", self.between(least, most))
    }
}
