//! Which bytes of one block were written, exactly.
//!
//! If they are lost, a program has to write these bytes again, and no others: it cannot know in which blocks they lie.
//! Mostly they are consecutive; only a block that was written with gaps takes memory for each byte.

use std::ops::Range;

use holdfast_base::units::BLOCK_SIZE;

const WORDS: usize = BLOCK_SIZE / 64;

/// See the head of this file.
#[derive(Clone, Debug)]
pub(crate) enum Wrote {
    /// These bytes.
    Run(u16, u16),
    /// Each byte whose bit is set.
    Bits(Box<[u64; WORDS]>),
}

impl Wrote {
    /// No byte.
    pub(crate) const NOTHING: Wrote = Wrote::Run(0, 0);
    /// Each byte.
    pub(crate) const ALL: Wrote = Wrote::Run(0, BLOCK_SIZE as u16);

    /// Adds these bytes.
    pub(crate) fn add(&mut self, bytes: Range<usize>) {
        let (start, end) = (bytes.start as u16, bytes.end as u16);
        match self {
            _ if bytes.is_empty() => {}
            Wrote::Run(from, to) if from == to => (*from, *to) = (start, end),
            Wrote::Run(from, to) if start <= *to && *from <= end => {
                (*from, *to) = (start.min(*from), end.max(*to));
            }
            Wrote::Run(from, to) => {
                let mut bits = Box::new([0; WORDS]);
                set(&mut bits, usize::from(*from)..usize::from(*to));
                set(&mut bits, bytes);
                *self = Wrote::Bits(bits);
            }
            Wrote::Bits(bits) => set(bits, bytes),
        }
    }

    /// Adds the bytes of `other`.
    pub(crate) fn merge(&mut self, other: &Wrote) {
        other.runs().for_each(|run| self.add(run));
    }

    /// The bytes, as ranges that do not touch, upwards.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let run = match self {
                Wrote::Run(from, to) => {
                    let run = usize::from(*from)..usize::from(*to);
                    if at == 0 { run } else { 0..0 }
                }
                Wrote::Bits(bits) => {
                    let start = next(bits, at, true);
                    start..next(bits, start, false)
                }
            };
            at = run.end;
            (!run.is_empty()).then_some(run)
        })
    }
}

fn set(bits: &mut [u64; WORDS], bytes: Range<usize>) {
    let words = bytes.start / 64..bytes.end.div_ceil(64);
    for (word, at) in bits[words.clone()].iter_mut().zip(words) {
        let from = bytes.start.saturating_sub(at * 64);
        let to = (bytes.end - at * 64).min(64);
        *word |= (u64::MAX >> (64 - (to - from))) << from;
    }
}

/// The first byte from `at` on whose bit is `is_set`.
fn next(bits: &[u64; WORDS], at: usize, is_set: bool) -> usize {
    for (number, word) in bits.iter().enumerate().skip(at / 64) {
        let wanted = if is_set { *word } else { !*word };
        let before = at.saturating_sub(number * 64);
        let left = wanted >> before << before;
        if left != 0 {
            return number * 64 + left.trailing_zeros() as usize;
        }
    }
    BLOCK_SIZE
}

#[cfg(test)]
mod tests {
    use holdfast_base::prng::{Prng, entropy};

    use super::*;

    #[test]
    fn random_writes_agree_with_a_flag_for_each_byte() {
        let seed = entropy();
        println!("seed {seed}");
        let mut random = Prng::seeded(seed);
        for _ in 0..200 {
            let mut wrote = [Wrote::NOTHING, Wrote::NOTHING];
            let mut model = [[false; BLOCK_SIZE]; 2];
            for _ in 0..random.below(12) {
                let which = random.below(2) as usize;
                let start = random.below(BLOCK_SIZE as u64) as usize;
                let most = if random.one_in(8) { BLOCK_SIZE } else { 200 };
                let end = (start + random.below(most as u64) as usize).min(BLOCK_SIZE);
                wrote[which].add(start..end);
                model[which][start..end].fill(true);
            }
            if random.one_in(2) {
                let [one, other] = &mut wrote;
                one.merge(other);
                let other = model[1];
                model[0].iter_mut().zip(other).for_each(|(one, other)| *one |= other);
            }
            for (wrote, model) in wrote.iter().zip(&model) {
                let mut found = [false; BLOCK_SIZE];
                let mut behind = None;
                for run in wrote.runs() {
                    assert!(behind.is_none_or(|behind| run.start > behind), "they touch");
                    behind = Some(run.end);
                    found[run].fill(true);
                }
                assert!(found == *model, "seed {seed}");
            }
        }
        assert!(Wrote::ALL.runs().eq(std::iter::once(0..BLOCK_SIZE)));
        assert_eq!(Wrote::NOTHING.runs().count(), 0);
    }
}
