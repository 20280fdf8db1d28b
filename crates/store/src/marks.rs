//! Blocks of a volume, one bit each: 32 KiB for each GiB of which any block is marked.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::limits::GROUP_BLOCKS;

const WORDS: usize = (GROUP_BLOCKS / 64) as usize;

/// Blocks, one bit each; of most groups of a large volume none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(BTreeMap<u64, Box<[u64; WORDS]>>);

impl Marks {
    /// Marks blocks, which lie in the data zone, or takes the marks away.
    pub(crate) fn set(&mut self, range: BlockRange, value: bool) {
        let end = range.start.0.saturating_add(range.count);
        let mut at = range.start.0;
        while at < end {
            let index = at / GROUP_BLOCKS;
            let group = match value {
                true => Some(self.0.entry(index).or_insert_with(|| Box::new([0; WORDS]))),
                false => self.0.get_mut(&index),
            };
            let (word, bit) = ((at % GROUP_BLOCKS / 64) as usize, at % 64);
            let count = end.saturating_sub(at).min(64_u64.saturating_sub(bit));
            let mask = (u64::MAX >> 64_u64.saturating_sub(count)) << bit;
            if let Some(word) = group.and_then(|group| group.get_mut(word)) {
                *word = if value { *word | mask } else { *word & !mask };
            }
            at = at.saturating_add(count);
        }
    }

    /// The groups that have any marks, upwards, and the marks of each.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (u64, &[u64; WORDS])> {
        self.0.iter().map(|(group, words)| (*group, &**words))
    }

    /// The marks of a group.
    pub(crate) fn group(&self, group: u64) -> Option<&[u64; WORDS]> {
        self.0.get(&group).map(|words| &**words)
    }

    /// Whether a block is marked.
    pub(crate) fn has(&self, block: BlockNo) -> bool {
        let word = self.0.get(&(block.0 / GROUP_BLOCKS));
        let word = word.and_then(|words| words.get((block.0 % GROUP_BLOCKS / 64) as usize));
        word.is_some_and(|word| word >> (block.0 % 64) & 1 == 1)
    }

    /// The marks of the 64 blocks around one, the lowest first.
    pub(crate) fn word(&self, block: BlockNo) -> u64 {
        let at = (block.0 % GROUP_BLOCKS / 64) as usize;
        self.group(block.0 / GROUP_BLOCKS).and_then(|words| words.get(at)).copied().unwrap_or(0)
    }

    /// The first block of `from..to` that is marked, or is not.
    pub(crate) fn first(&self, from: u64, to: u64, is_marked: bool) -> Option<u64> {
        let mut at = from;
        while at < to {
            let group = at / GROUP_BLOCKS;
            let Some(words) = self.group(group) else {
                if !is_marked {
                    return Some(at);
                }
                let (next, _) = self.0.range(group..).next()?;
                at = next.saturating_mul(GROUP_BLOCKS);
                continue;
            };
            let end = group.saturating_add(1).saturating_mul(GROUP_BLOCKS).min(to);
            while at < end {
                let word = words.get((at % GROUP_BLOCKS / 64) as usize).copied().unwrap_or(0);
                let rest = if is_marked { word } else { !word } >> (at % 64);
                if rest != 0 {
                    let found = at.saturating_add(u64::from(rest.trailing_zeros()));
                    return (found < to).then_some(found);
                }
                at = (at / 64).saturating_add(1).saturating_mul(64);
            }
        }
        None
    }

    /// The runs of blocks in `from..to` of which each is marked, or none is: their starts and ends.
    pub(crate) fn runs(
        &self,
        from: u64,
        to: u64,
        is_marked: bool,
    ) -> impl Iterator<Item = (u64, u64)> {
        let mut at = from;
        std::iter::from_fn(move || {
            let start = self.first(at, to, is_marked)?;
            at = self.first(start, to, !is_marked).unwrap_or(to);
            Some((start, at))
        })
    }

    /// The lowest block from which on all up to `end` are marked: `end` itself if that before it is not.
    pub(crate) fn start_of_run(&self, end: u64) -> u64 {
        let mut at = end;
        while let Some(last) = at.checked_sub(1) {
            let inside = last % 64;
            let marked = (self.word(BlockNo(last)) << 63_u64.saturating_sub(inside)).leading_ones();
            at = at.saturating_sub(marked.into());
            if u64::from(marked) <= inside {
                break;
            }
        }
        at
    }

    /// Whether a block of a range is marked.
    pub(crate) fn touches(&self, range: BlockRange) -> bool {
        (range.start.0..range.start.0.saturating_add(range.count))
            .any(|block| self.has(BlockNo(block)))
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        let words = self.0.values().flat_map(|words| words.iter());
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    /// Appends all of them as bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for (group, words) in &self.0 {
            out.extend(group.to_le_bytes());
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
    }

    /// What [`Marks::write`] has written, of a volume with so many blocks; `None` if it makes no sense.
    pub(crate) fn read(bytes: &[u8], blocks: u64) -> Option<Marks> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let mut marks = Marks::default();
        for group in numbers.chunks(1_usize.checked_add(WORDS)?) {
            let (index, words) = group.split_first()?;
            let index = u64::from_le_bytes(*index);
            let first = index.checked_mul(GROUP_BLOCKS)?;
            if first >= blocks || words.len() != WORDS {
                return None;
            }
            let mut of_group = Box::new([0; WORDS]);
            for (into, word) in of_group.iter_mut().zip(words) {
                *into = u64::from_le_bytes(*word);
            }
            marks.0.insert(index, of_group);
        }
        rest.is_empty().then_some(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted() {
        let mut marks = Marks::default();
        marks.set(BlockRange::new(BlockNo(GROUP_BLOCKS - 2), 5), true);
        marks.set(BlockRange::new(BlockNo(GROUP_BLOCKS), 1), false);
        assert_eq!(marks.count(), 4);
        assert_eq!(marks.groups().map(|(group, _)| group).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(marks.group(1).unwrap()[0], 0b110);
    }

    #[test]
    fn runs_go_over_the_borders_of_words_and_groups() {
        let mut marks = Marks::default();
        let set = [(3, 2), (60, 10), (GROUP_BLOCKS - 2, 5), (3 * GROUP_BLOCKS, 64)];
        set.iter().for_each(|(at, count)| marks.set(BlockRange::new(BlockNo(*at), *count), true));
        let runs = |from, to, value| marks.runs(from, to, value).collect::<Vec<_>>();
        let border = (GROUP_BLOCKS - 2, GROUP_BLOCKS + 3);
        assert_eq!(runs(4, 2 * GROUP_BLOCKS, true), [(4, 5), (60, 70), border]);
        assert_eq!(runs(0, 62, false), [(0, 3), (5, 60)]);
        let last = (3 * GROUP_BLOCKS + 64, 9 * GROUP_BLOCKS);
        assert_eq!(
            runs(100, 9 * GROUP_BLOCKS, false),
            [(100, border.0), (border.1, 3 * GROUP_BLOCKS), last]
        );
        assert_eq!(runs(border.0, border.0 + 1, true), [(border.0, border.0 + 1)]);
        assert_eq!(marks.word(BlockNo(GROUP_BLOCKS + 9)), 0b111);
        let starts = [70, 66, 60, 59, GROUP_BLOCKS + 3, 3 * GROUP_BLOCKS + 64, 5, 1, 0];
        let starts = starts.map(|end| marks.start_of_run(end));
        assert_eq!(starts, [60, 60, 60, 59, border.0, 3 * GROUP_BLOCKS, 3, 1, 0]);
    }

    #[test]
    fn marks_are_read_as_they_were_written_and_nonsense_is_refused() {
        let mut marks = Marks::default();
        marks.set(BlockRange::new(BlockNo(GROUP_BLOCKS - 2), 5), true);
        let mut bytes = Vec::new();
        marks.write(&mut bytes);
        let read = Marks::read(&bytes, 2 * GROUP_BLOCKS).unwrap();
        assert_eq!(read.count(), 5);
        let has = |block| read.has(BlockNo(GROUP_BLOCKS + block));
        assert_eq!((has(2), has(3), read.has(BlockNo(u64::MAX))), (true, false, false));
        assert!(Marks::read(&bytes, GROUP_BLOCKS).is_none(), "the volume has no such group");
        assert!(Marks::read(&bytes[1..], 2 * GROUP_BLOCKS).is_none());
        assert!(Marks::read(&bytes[8..], 2 * GROUP_BLOCKS).is_none());
        assert_eq!(Marks::read(&[], 9).unwrap().count(), 0);
    }
}
