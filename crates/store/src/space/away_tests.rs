//! Space whose bitmaps come and go gives away the same blocks as one that has them all.

use std::collections::BTreeMap;

use holdfast_base::prng::Prng;
use holdfast_base::switch::Accounting;
use holdfast_base::{BlockNo, BlockRange, TreeId};
use holdfast_format::limits::BITMAPS_PER_GROUP;
use holdfast_format::{Geometry, Stored};

use super::alloc::Space;
use super::groups::{Pieces, Wants};
use super::promise::{Floor, Wanted};
use super::record::Step;
use super::slots::NodeSlots;
use super::unbacked::Next;

/// A space, and the pieces of bitmaps that its tree has.
struct TestedSpace {
    space: Space,
    tree: BTreeMap<(u64, u64), Vec<u8>>,
    loads: u64,
}

impl TestedSpace {
    fn new(geometry: Geometry, bitmaps: usize) -> TestedSpace {
        let mut space = Space::new(geometry);
        space.groups.keep_at_most(bitmaps);
        TestedSpace { space, tree: BTreeMap::new(), loads: 0 }
    }

    fn load(&mut self, index: u64) {
        let mut pieces = Pieces::default();
        for (piece, bytes) in (0..BITMAPS_PER_GROUP).zip(&mut pieces) {
            *bytes = self.tree.get(&(index, piece)).map(|bytes| &bytes[..]);
        }
        assert!(self.space.groups.is_away(index), "nobody wants what is here");
        self.space.load(index, &pieces).unwrap();
        self.loads += 1;
    }

    fn with<R>(&mut self, mut work: impl FnMut(&mut Space) -> Result<R, Wants>) -> R {
        loop {
            match work(&mut self.space) {
                Ok(result) => return result,
                Err(Wants(index)) => self.load(index),
            }
        }
    }

    /// A commit and a checkpoint, after which everything may leave memory.
    fn carry(&mut self) {
        while let Some(index) = self.space.groups.next_dirty() {
            if self.space.groups.is_away(index) {
                self.load(index);
            }
            if self.space.groups.is_lost(index) {
                self.space.groups.take_dirty();
                continue;
            }
            let step = self.space.step(index, Accounting::default());
            let group = self.space.group(index);
            if step != Step::Skip {
                group.record.begin();
                group.record.finish(step);
            }
            for (piece, bytes) in group.take_dirty() {
                match bytes {
                    Some(bytes) => self.tree.insert((index, piece), bytes.to_vec()),
                    None => self.tree.remove(&(index, piece)),
                };
            }
            self.space.groups.take_dirty();
        }
        self.space.freed.freeze();
        self.space.freed.seal();
        for freed in [self.space.freed.thaw(), self.space.freed.unseal()] {
            self.space.give_away(&freed);
        }
        self.space.groups.evict();
    }

    fn counts(&self) -> (u64, [u64; 2], u64, u64) {
        let room = self.space.room();
        let slots = [room.places, room.pairs];
        (room.blocks, slots, self.space.used_blocks(), self.space.nodes())
    }
}

fn alike<R: PartialEq + std::fmt::Debug>(
    sides: &mut [TestedSpace; 2],
    work: impl FnMut(&mut TestedSpace) -> R,
) -> R {
    let [first, second] = sides.each_mut().map(work);
    assert_eq!(first, second);
    first
}

fn compare(geometry: Geometry, seed: u64) {
    let mut prng = Prng::seeded(seed);
    let mut sides = [
        TestedSpace::new(geometry, usize::MAX),
        TestedSpace::new(geometry, prng.below(3) as usize),
    ];
    let (mut data, mut nodes): (Vec<BlockRange>, Vec<(BlockNo, Stored)>) = (Vec::new(), Vec::new());
    for _ in 0..2000 {
        match prng.below(16) {
            0..6 => {
                let want = 1 + prng.below(3000);
                let goal = prng.one_in(2).then(|| BlockNo(prng.below(geometry.volume_blocks)));
                data.extend(alike(&mut sides, |side| {
                    let wanted = Wanted { blocks: want, ..Wanted::default() };
                    if !side.space.promise(wanted, Floor::HalfCheckpoint) {
                        return None;
                    }
                    let taken = side.with(|space| space.take_data(want, goal))?;
                    side.space.publish(taken);
                    side.space.promises.forget(NodeSlots::none(), want - taken.count);
                    Some(taken)
                }));
            }
            6..9 => {
                let stored = geometry.stored(TreeId::Files, prng.below(2) as u8);
                let node = alike(&mut sides, |side| {
                    side.with(|space| space.expect_slots(NodeSlots::of(stored, 1)));
                    side.space.take_node(stored)
                });
                nodes.push((node, stored));
            }
            9..12 if !data.is_empty() => {
                let range = data.swap_remove(prng.below(data.len() as u64) as usize);
                alike(&mut sides, |side| {
                    let away = side.space.expect_bitmaps([range]).err().unwrap_or_default();
                    away.into_iter().for_each(|Wants(index)| side.load(index));
                    assert!(side.space.is_used(range) && side.space.can_be_data(&[range]));
                    side.space.free_data(range);
                });
            }
            12..14 if !nodes.is_empty() => {
                let (node, stored) = nodes.swap_remove(prng.below(nodes.len() as u64) as usize);
                alike(&mut sides, |side| {
                    assert!(side.space.is_node(node, stored));
                    side.space.free_node(node, stored);
                });
            }
            _ => alike(&mut sides, TestedSpace::carry),
        }
        alike(&mut sides, |side| side.counts());
    }
    alike(&mut sides, TestedSpace::carry);
    assert!(sides[0].loads == 0 && sides[1].loads > 50, "{} loads", sides[1].loads);
}

#[test]
fn bitmaps_that_come_and_go_give_the_same_blocks() {
    for seed in 0..12 {
        let plain = Geometry::for_device(1 << 30, [4096, 16384][seed as usize % 2]).unwrap();
        let geometry = match seed / 2 % 3 {
            0 => plain,
            1 => plain.with_root_copies().unwrap(),
            _ => plain.with_copies().unwrap(),
        };
        compare(geometry, seed);
    }
}

/// Of a damaged bitmap nothing is free, and what is freed there stays in use.
#[test]
fn a_lost_group_is_full_and_takes_nothing_back() {
    let geometry = Geometry::for_device(1 << 30, 4096).unwrap();
    let mut side = TestedSpace::new(geometry, 0);
    let node = side.space.take_node(Stored::Once);
    assert!(side.space.promise(Wanted { blocks: 9, ..Wanted::default() }, Floor::HalfCheckpoint));
    let data = side.with(|space| space.take_data(9, Some(BlockNo(40_000)))).unwrap();
    side.space.publish(data);
    side.carry();
    let (groups, before) = ([node.0, data.start.0].map(|block| block / (1 << 15)), side.counts());
    assert!(groups[0] != groups[1] && groups.iter().all(|index| side.space.groups.is_away(*index)));
    side.space.free_node(node, Stored::Once);
    assert_eq!(side.space.nodes(), before.3 - 1);
    for index in groups {
        assert!(side.space.load(index, &Pieces::default()).is_err(), "its bitmap is gone");
        assert!(side.space.groups.is_lost(index));
    }
    side.space.free_data(data);
    side.carry();
    let after = side.counts();
    assert_eq!((after.2, after.3), (before.2, before.3), "what is there stays in use");
    let of_groups = groups.map(|index| geometry.group_blocks(index).count).iter().sum::<u64>();
    assert_eq!(after.0, geometry.data_blocks() - of_groups);
    assert!(!side.space.claim(BlockRange::new(BlockNo(data.start.0 + 100), 1)));
    side.with(|space| space.expect_slots(NodeSlots::of(Stored::Once, 1)));
    assert!(!groups.contains(&(side.space.take_node(Stored::Once).0 / (1 << 15))));
}

/// A volume whose last group is lost becomes larger: nothing more of that group is unbacked, as none of it ever comes.
#[test]
fn a_lost_last_group_that_grows_hides_nothing() {
    let small = Geometry::for_device(200 << 20, 4096).unwrap();
    for larger in [210u64 << 20, 500 << 20] {
        let mut side = TestedSpace::new(small, 0);
        let wanted = Wanted { blocks: 9, ..Wanted::default() };
        assert!(side.space.promise(wanted, Floor::HalfCheckpoint));
        let data = side.with(|space| space.take_data(9, Some(BlockNo(40_000)))).unwrap();
        side.space.publish(data);
        side.carry();
        assert!(side.space.load(1, &Pieces::default()).is_err() && side.space.groups.is_lost(1));
        let geometry = Geometry { volume_blocks: larger >> 12, ..small };
        side.space.extend(geometry, true);
        let new = (2..geometry.group_count()).map(|index| geometry.group_blocks(index).count);
        assert_eq!(side.space.unbacked_blocks(), new.sum::<u64>(), "{larger}");
        while let Next::Ask(range) = side.space.next_unbacked(false) {
            assert!(range.start.0 >= 2 << 15, "nothing of the lost group is asked for: {range:?}");
            side.space.answered(range, Some(&[range]));
        }
        assert_eq!(side.space.unbacked_blocks(), 0, "{larger}");
    }
}
