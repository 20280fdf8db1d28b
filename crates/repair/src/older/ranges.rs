//! Ranges of keys from which parts are taken.

use std::collections::BTreeMap;

use holdfast_base::InodeNo;
use holdfast_format::Key;

/// Keys from the first on, up to the second if there is one.
pub(crate) type Range = (Key, Option<Key>);

/// Ranges that do not meet, by their first keys.
#[derive(Clone, Debug)]
pub(crate) struct Ranges(BTreeMap<Key, Option<Key>>);

impl Ranges {
    pub(crate) fn of(range: Range) -> Ranges {
        Ranges(BTreeMap::from([range]))
    }

    /// Takes what of a range is there.
    pub(crate) fn take(&mut self, (low, high): Range) -> Vec<Range> {
        let begins_before = |key: &Key| high.is_none_or(|high| *key < high);
        let first = self.0.range(..=low).next_back().map_or(low, |(key, _)| *key);
        let meets = |(from, end): &(&Key, &Option<Key>)| {
            begins_before(from) && end.is_none_or(|end| low < end)
        };
        let met: Vec<Range> = { self.0.range(first..) }
            .take_while(|(from, _)| begins_before(from))
            .filter(meets)
            .map(|(from, end)| (*from, *end))
            .collect();
        let mut taken = Vec::new();
        for (from, end) in met {
            self.0.remove(&from);
            if from < low {
                self.0.insert(from, Some(low));
            }
            let stop = match (end, high) {
                (Some(end), Some(high)) => Some(end.min(high)),
                (end, high) => end.or(high),
            };
            if let Some(high) = high.filter(|high| end.is_none_or(|end| *high < end)) {
                self.0.insert(high, end);
            }
            taken.push((from.max(low), stop));
        }
        taken
    }

    /// What is left, upwards.
    pub(crate) fn left(self) -> Vec<Range> {
        self.0.into_iter().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The next key; `None` behind the last one.
pub(crate) fn after(key: &Key) -> Option<Key> {
    match key.offset.checked_add(1) {
        Some(offset) => Some(Key { offset, ..*key }),
        // Nothing has a greater offset: what comes behind it is of another kind, or of another inode. One of those kinds may be passed over.
        None => key.inode.0.checked_add(1).map(|inode| Key::inode(InodeNo(inode))),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::prng::Prng;
    use holdfast_format::ItemKind;

    use super::*;

    /// What is taken and what is left agree with a set of single keys.
    #[test]
    fn ranges_agree_with_single_keys() {
        let key = |offset| Key::new(InodeNo(3), ItemKind::Extent, offset);
        for seed in 0..500 {
            let mut prng = Prng::seeded(seed);
            let mut ranges = Ranges::of((key(10), Some(key(90))));
            let mut single: std::collections::BTreeSet<u64> = (10..90).collect();
            for _ in 0..12 {
                let low = prng.below(100);
                let high = low + 1 + prng.below(20);
                let taken: Vec<u64> = ranges
                    .take((key(low), Some(key(high))))
                    .into_iter()
                    .flat_map(|(low, high)| low.offset..high.expect("all end").offset)
                    .collect();
                let expected: Vec<u64> = single.range(low..high).copied().collect();
                assert_eq!(taken, expected, "seed {seed}");
                single.retain(|one| !taken.contains(one));
            }
            let left: Vec<u64> = { ranges.left().into_iter() }
                .flat_map(|(low, high)| low.offset..high.expect("all end").offset)
                .collect();
            assert_eq!(left, single.into_iter().collect::<Vec<_>>(), "seed {seed}");
        }
    }
}
