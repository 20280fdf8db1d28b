//! A seeded generator whose numbers never change, so that a seed in an old bug report still works.
//!
//! It is SplitMix64: a counter through a bijective scrambler. The crate has its
//! own so that file patterns and scripts do not depend on the version of any
//! other crate.

/// Scrambles `word`: a bijection of 64-bit words in which every input bit touches every output bit.
pub(crate) const fn scramble(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The step of the counter.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generator.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// The same numbers for the same `seed`, for ever.
    pub fn seeded(seed: u64) -> Prng {
        Prng(scramble(seed.wrapping_add(STEP)))
    }

    /// Any 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        scramble(self.0)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The bias of a 128-bit product is far below anything a test can notice.
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, each as often as it weighs; `None` if nothing weighs anything.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> Option<T> {
        let total: u32 = choices.iter().map(|(weight, _)| weight).sum();
        let mut ticket = self.below(total.into()) as u32;
        choices.iter().find_map(|&(weight, choice)| {
            let hit = ticket < weight;
            ticket = ticket.wrapping_sub(weight);
            hit.then_some(choice)
        })
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_mean_the_same_for_ever() {
        let mut prng = Prng::seeded(1);
        assert_eq!(prng.next_u64(), 0x5e41_ab08_7439_611e);
        assert!((0..1000).all(|_| prng.below(7) < 7));
    }
}
