//! The only door to chance: a seeded generator for tests, simulation and sampling.

/// A seeded pseudo-random generator. The same seed gives the same numbers for ever.
#[derive(Clone, Debug)]
pub struct Prng(fastrand::Rng);

impl Prng {
    /// A generator that repeats for the same `seed`.
    pub fn seeded(seed: u64) -> Prng {
        Prng(fastrand::Rng::with_seed(seed))
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(0..limit)
    }

    /// Any 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// True once in `n` calls on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.0.usize(0..choices.len())]
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
    }
}

/// A number that differs from call to call and run to run.
pub fn entropy() -> u64 {
    fastrand::Rng::new().u64(..)
}
