//! The only source of randomness: a seeded generator for tests, simulation and sampling, and unpredictable
//! numbers for what a new volume draws.

use std::cell::RefCell;

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

thread_local! {
    /// What [`entropy`] draws from in this thread instead of the system.
    static PINNED: RefCell<Option<Prng>> = const { RefCell::new(None) };
}

/// An unpredictable number, different at each call, from the system; or the next one of what [`pin`]
/// made of it in this thread.
///
/// # Panics
///
/// If the system has no random numbers, which Linux always has once it runs programs.
pub fn entropy() -> u64 {
    let pinned = PINNED.with_borrow_mut(|pinned| pinned.as_mut().map(Prng::next_u64));
    pinned.unwrap_or_else(|| getrandom::u64().expect("the system has random numbers"))
}

/// Until the returned value is dropped, this thread's [`entropy`] repeats for the same `seed`: a simulation
/// then makes the same volume each time.
pub fn pin(seed: u64) -> Pinned {
    Pinned { before: PINNED.replace(Some(Prng::seeded(seed))) }
}

/// Keeps this thread's randomness pinned.
#[derive(Debug)]
#[must_use = "chance is back when this is dropped"]
pub struct Pinned {
    before: Option<Prng>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        PINNED.set(self.before.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_chance_repeats_and_ends() {
        let draw = || [entropy(), entropy()];
        let first = {
            let _pinned = pin(7);
            draw()
        };
        let second = {
            let _pinned = pin(7);
            let _ = {
                let _other = pin(8);
                draw()
            };
            draw()
        };
        assert_eq!(first, second);
        assert_ne!(first, draw());
    }
}
