//! Which inodes were met: a bit for each. They are handed out one after the other, so that they lie close together; where they
//! do not, as in a volume that was made to waste memory, one takes about a hundred bytes, less than its item.

use std::collections::BTreeMap;

/// Numbers in one entry.
const BITS: u64 = 512;

#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeMap<u64, [u64; (BITS / 64) as usize]>);

impl Seen {
    /// Remembers a number. Whether it is new.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = place(number);
        let words = self.0.entry(number / BITS).or_default();
        let is_new = words[word] & bit == 0;
        words[word] |= bit;
        is_new
    }

    pub(crate) fn remove(&mut self, number: u64) {
        let (word, bit) = place(number);
        if let Some(words) = self.0.get_mut(&(number / BITS)) {
            words[word] &= !bit;
        }
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.0.get(&(number / BITS)).is_some_and(|words| words[word] & bit != 0)
    }
}

fn place(number: u64) -> (usize, u64) {
    let within = number % BITS;
    ((within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_met_is_remembered() {
        let mut seen = Seen::default();
        for number in [0, 63, 64, 511, 512, u64::MAX] {
            assert!(!seen.has(number) && seen.insert(number));
            assert!(seen.has(number) && !seen.insert(number));
        }
        seen.remove(64);
        assert!(!seen.has(64) && seen.has(63) && !seen.has(65));
    }
}
