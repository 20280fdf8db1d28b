//! Which groups have something free: found without a look at those that have not, however many there are.

/// A set of small numbers, with a summary above each 64 of them, and so on up to one word.
#[derive(Debug)]
pub(super) struct Having {
    /// The lowest level has a bit for each number; each above it a bit for each word that is not zero.
    levels: Vec<Vec<u64>>,
}

/// A way round all numbers that are in a set, from one of them on, which comes once more at the end.
#[derive(Debug)]
pub(super) struct Round {
    first: u64,
    next: u64,
    /// It has come to the end, and goes on from 0.
    pub(super) has_wrapped: bool,
}

impl Round {
    pub(super) fn from(first: u64) -> Round {
        Round { first, next: first, has_wrapped: false }
    }
}

const BITS: u64 = u64::BITS as u64;

impl Having {
    /// The set of nothing, for numbers below `count`.
    pub(super) fn none_of(count: u64) -> Having {
        let mut levels = Vec::new();
        let mut words = count;
        while levels.is_empty() || words > 1 {
            words = words.div_ceil(BITS).max(1);
            levels.push(vec![0; words as usize]);
        }
        Having { levels }
    }

    /// A number is in it from now on, or not.
    pub(super) fn set(&mut self, number: u64, is_in: bool) {
        let (mut at, mut is_in) = (number, is_in);
        for level in &mut self.levels {
            let word = &mut level[(at / BITS) as usize];
            let was_zero = *word == 0;
            let bit = 1 << (at % BITS);
            *word = if is_in { *word | bit } else { *word & !bit };
            if was_zero == (*word == 0) {
                return;
            }
            is_in = *word != 0;
            at /= BITS;
        }
    }

    /// The first number that is in it, from `from` on.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        let (mut level, mut at) = (0, from);
        // Up to a word that has one behind the place, then down to the first below that.
        let found = loop {
            let words = self.levels.get(level)?;
            let rest = words.get((at / BITS) as usize).map_or(0, |word| word >> (at % BITS));
            if rest != 0 {
                break at + u64::from(rest.trailing_zeros());
            }
            (level, at) = (level + 1, at / BITS + 1);
        };
        let below = self.levels[..level].iter().rev();
        Some(
            below.fold(found, |at, words| {
                at * BITS + u64::from(words[at as usize].trailing_zeros())
            }),
        )
    }

    /// The next number of a way round.
    pub(super) fn next_in(&self, round: &mut Round) -> Option<u64> {
        let mut found = self.next(round.next);
        if found.is_none() && !round.has_wrapped {
            round.has_wrapped = true;
            found = self.next(0);
        }
        let found = found.filter(|number| !round.has_wrapped || *number <= round.first)?;
        round.next = found + 1;
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdfast_base::prng::Prng;

    use super::*;

    #[test]
    fn it_has_what_a_plain_set_has() {
        let mut prng = Prng::seeded(7);
        for count in [1, 2, 63, 64, 65, 4096, 4097, 300_000] {
            let (mut having, mut plain) = (Having::none_of(count), BTreeSet::new());
            for _ in 0..2000 {
                let number = prng.below(count);
                let is_in = prng.below(3) == 0;
                having.set(number, is_in);
                if is_in {
                    plain.insert(number)
                } else {
                    plain.remove(&number)
                };
                let from = prng.below(count + 70);
                assert_eq!(having.next(from), plain.range(from..).next().copied());
            }
            let mut round = Round::from(count / 2);
            let way: Vec<u64> = std::iter::from_fn(|| having.next_in(&mut round)).collect();
            let around = plain.range(count / 2..).chain(plain.range(..=count / 2));
            assert_eq!(way, around.copied().collect::<Vec<_>>());
        }
    }
}
