//! What extents of the log had before the log: their births, and where in files their blocks lay.
//!
//! A snapshot is older than the log. So what the log takes no snapshot has; of all else the trees say how old it is, and not
//! the log. What batches cut and join keeps the birth that the trees give it.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{Epoch, InodeNo};
use holdfast_format::Key;
use holdfast_format::item::Extent;

/// Blocks from `start` to `end` that a tree had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) birth: Epoch,
    place: FilePlace,
}

/// Where blocks lie in a file: the same for all of an extent, and for what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FilePlace {
    inode: InodeNo,
    /// The byte of the file at which block 0 of the device would lie, if the extent went so far.
    of_first_block: i128,
}

impl FilePlace {
    /// That of blocks of which `start` lies at a key.
    pub(super) fn of(key: &Key, start: u64) -> FilePlace {
        let before = i128::from(start) * i128::from(BLOCK_BYTES);
        FilePlace { inode: key.inode, of_first_block: i128::from(key.offset) - before }
    }
}

/// What a key of a branch holds of what trees had, for each key that the log has changed.
#[derive(Debug, Default)]
pub(super) struct Origins(BTreeMap<(u64, Key), Vec<Origin>>);

impl Origins {
    /// What a key holds by the log, if that has changed it.
    pub(super) fn get(&self, branch: u64, key: &Key) -> Option<&[Origin]> {
        self.0.get(&(branch, *key)).map(Vec::as_slice)
    }

    /// From now on a key holds this.
    pub(super) fn set(&mut self, branch: u64, key: Key, origins: Vec<Origin>) {
        self.0.insert((branch, key), origins);
    }

    /// What later batches made.
    pub(super) fn absorb(&mut self, later: Origins) {
        self.0.extend(later.0);
    }
}

/// What the keys that a batch changes in one branch hold before it, upwards. None has a block of another.
#[derive(Debug, Default)]
pub(super) struct Before(Vec<Origin>);

impl Before {
    /// All of them; of those that lie over one another, as in a damaged tree, the first has the blocks, in the order that
    /// FORMAT.md says.
    pub(super) fn of(mut all: Vec<Origin>) -> Before {
        all.sort_by_key(|of| (of.start, of.end, of.place, of.birth));
        let mut end = 0;
        all.retain_mut(|origin| {
            origin.start = origin.start.max(end);
            end = end.max(origin.end);
            origin.start < origin.end
        });
        Before(all)
    }

    /// The one that has a block.
    fn at(&self, block: u64) -> Option<&Origin> {
        let origin = self.0.get(self.0.partition_point(|origin| origin.end <= block))?;
        (origin.start <= block).then_some(origin)
    }

    /// What is younger than a parent of this epoch; all of it without one.
    pub(super) fn younger(&self, parent: Option<Epoch>) -> Vec<(u64, u64)> {
        let is_own = |of: &&Origin| parent.is_none_or(|parent| of.birth > parent);
        self.0.iter().filter(is_own).map(|of| (of.start, of.end)).collect()
    }

    /// The end of the one that has a block, if it is as old, and lies there.
    pub(super) fn same(&self, block: u64, birth: Epoch, place: FilePlace) -> Option<u64> {
        self.at(block).filter(|of| (of.birth, of.place) == (birth, place)).map(|of| of.end)
    }

    /// What extents keep of it that a batch puts: each block is kept by the first that claims it, in the order of their blocks,
    /// ends and keys.
    pub(super) fn kept(&self, mut extents: Vec<(Key, Extent)>) -> Vec<(Key, Vec<Origin>)> {
        extents.sort_by_key(|(key, of)| {
            (of.blocks.start, of.blocks.start.0.saturating_add(of.blocks.count), *key)
        });
        let mut done = 0;
        let mut kept = Vec::with_capacity(extents.len());
        for (key, extent) in extents {
            let (start, end) = extent.blocks.ends();
            let place = FilePlace::of(&key, start);
            let from = self.0.partition_point(|origin| origin.end <= start.max(done));
            let among = self.0.iter().skip(from).take_while(|origin| origin.start < end);
            let parts = among.filter(|origin| origin.place == place).map(|origin| Origin {
                start: origin.start.max(start).max(done),
                end: origin.end.min(end),
                ..*origin
            });
            kept.push((key, parts.filter(|part| part.start < part.end).collect()));
            done = done.max(end);
        }
        kept
    }
}

/// The blocks of an extent that a tree has at a key.
pub(super) fn origin(key: &Key, extent: &Extent) -> Origin {
    let (start, end) = extent.blocks.ends();
    Origin { start, end, birth: extent.birth, place: FilePlace::of(key, start) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::{BlockNo, BlockRange};
    use holdfast_format::ItemKind;

    fn key(block: u64) -> Key {
        Key::new(InodeNo(9), ItemKind::Extent, block * BLOCK_BYTES)
    }

    fn extent(start: u64, count: u64, birth: u64) -> Extent {
        let blocks = BlockRange::new(BlockNo(start), count);
        Extent { birth: Epoch(birth), ..Extent::new(blocks, Vec::new()) }
    }

    /// Whatever birth an extent claims that a batch puts, what it keeps is as old as it was, where it was.
    #[test]
    fn a_birth_is_that_of_the_tree() {
        let of_tree = [(key(0), extent(100, 10, 3)), (key(10), extent(110, 10, 6))];
        let all = of_tree.iter().map(|(key, extent)| origin(key, extent)).collect();
        let before = Before::of(all);
        // The middle of both, the last block moved elsewhere, and blocks that no key had.
        let put = vec![
            (key(8), extent(108, 6, 99)),
            (key(50), extent(119, 1, 99)),
            (key(70), extent(500, 9, 99)),
        ];
        let kept = before.kept(put);
        let counts: Vec<usize> = kept.iter().map(|(_, parts)| parts.len()).collect();
        assert_eq!(counts, [2, 0, 0]);
        let after = Before::of(kept[0].1.clone());
        let births: Vec<_> = (107..115).map(|block| after.at(block).map(|of| of.birth.0)).collect();
        assert_eq!(births, [None, Some(3), Some(3), Some(6), Some(6), Some(6), Some(6), None]);
        assert_eq!(after.younger(Some(Epoch(5))), [(110, 114)]);
        assert_eq!(after.younger(Some(Epoch(6))), []);
        assert_eq!(after.younger(None), [(108, 110), (110, 114)]);
        let place = FilePlace::of(&key(9), 109);
        assert_eq!(after.same(109, Epoch(3), place), Some(110));
        assert_eq!(after.same(109, Epoch(4), place), None);
        assert_eq!(after.same(109, Epoch(3), FilePlace::of(&key(8), 109)), None);
    }

    #[test]
    fn a_block_is_kept_once() {
        let one = [extent(10, 20, 3), extent(15, 10, 4)].map(|of| origin(&key(0), &of));
        let before = Before::of(one.to_vec());
        assert_eq!((before.0.len(), before.at(20).map(|of| of.birth)), (1, Some(Epoch(3))));
        let put = (0..50).map(|_| (key(0), extent(10, 20, 1))).collect();
        let kept = before.kept(put);
        assert_eq!(kept.iter().map(|(_, parts)| parts.len()).sum::<usize>(), 1);
    }
}
