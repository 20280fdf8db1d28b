//! Threads ask a host, search what it gave, discard, take and free: the steps of all of them in any order, each under the lock of the space.

use std::collections::BTreeSet;

use holdfast_base::prng::Prng;
use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::Geometry;
use holdfast_format::limits::GROUP_BLOCKS;

use super::alloc::Space;
use super::discard::{DiscardRule, Discarding, Scope};
use super::promise::{Floor, Wanted};
use super::unbacked::Next;

/// A host, which has given these blocks and has room for so many more.
#[derive(Default)]
struct Host {
    given: BTreeSet<u64>,
    left: u64,
}

impl Host {
    fn has(&self, range: BlockRange) -> bool {
        blocks(range).all(|block| self.given.contains(&block))
    }

    /// One that refuses may keep the first blocks that it had. Says whether it did.
    fn gives(&mut self, range: BlockRange, keeps_part: bool) -> (bool, bool) {
        let lacks: Vec<u64> = blocks(range).filter(|block| !self.given.contains(block)).collect();
        let done = lacks.len() as u64 <= self.left;
        let most = if done || keeps_part { self.left as usize } else { 0 };
        let taken = lacks.len().min(most);
        self.given.extend(&lacks[..taken]);
        self.left -= taken as u64;
        (done, taken > 0)
    }

    fn takes_back(&mut self, range: BlockRange) {
        let gone = blocks(range).filter(|block| self.given.remove(block)).count();
        self.left += gone as u64;
    }
}

fn blocks(range: BlockRange) -> std::ops::Range<u64> {
    range.start.0..range.start.0 + range.count
}

struct World {
    space: Space,
    geometry: Geometry,
    host: Host,
    prng: Prng,
    asked: Vec<(BlockRange, bool)>,
    discarding: Option<Discarding>,
    taken: Vec<BlockRange>,
    /// Searches that came to their end, and blocks that were shown.
    ends: u64,
    shown: u64,
}

impl World {
    fn new(geometry: Geometry, seed: u64) -> World {
        let mut space = Space::new(geometry);
        space.hide();
        let mut world = World {
            space,
            geometry,
            host: Host::default(),
            prng: Prng::seeded(seed),
            asked: Vec::new(),
            discarding: None,
            taken: Vec::new(),
            ends: 0,
            shown: 0,
        };
        for place in world.places() {
            if world.prng.one_in(8) {
                world.host.given.extend(blocks(place));
            }
        }
        world
    }

    /// All whole places of the data zone.
    fn places(&self) -> Vec<BlockRange> {
        let (len, end) = (self.geometry.node_blocks(), self.geometry.far_copy().0);
        let first = self.geometry.first_data_block().0.next_multiple_of(len);
        let starts = (first..end + 1 - len).step_by(len as usize);
        starts.map(|start| BlockRange::new(BlockNo(start), len)).collect()
    }

    fn step(&mut self) {
        match self.prng.below(10) {
            0..4 => self.ask(),
            4..6 => self.answer(),
            6 => self.take(),
            7 if !self.taken.is_empty() => {
                let at = self.prng.below(self.taken.len() as u64) as usize;
                self.space.release(self.taken.swap_remove(at));
            }
            8 => self.discard(),
            _ => self.host.left = if self.prng.one_in(4) { self.prng.below(3000) } else { 0 },
        }
        let taken: u64 = self.taken.iter().map(|range| range.count).sum();
        let rest = self.space.unbacked_blocks() + self.space.room().blocks + taken;
        assert_eq!(
            rest,
            self.geometry.data_blocks(),
            "a block is neither unbacked, free nor taken"
        );
    }

    fn ask(&mut self) {
        let is_search = self.prng.one_in(2);
        match self.space.next_unbacked(is_search) {
            Next::Ask(piece) => {
                assert!(
                    self.asked.iter().all(|(asked, _)| *asked != piece),
                    "two ask for {piece:?}"
                );
                self.asked.push((piece, is_search));
            }
            Next::Wait(_) => assert!(!self.asked.is_empty() || self.discarding.is_some()),
            Next::Nothing if is_search => {
                assert!(self.asked.is_empty() && self.discarding.is_none());
                self.all_is_found();
            }
            Next::Nothing => {}
            Next::Load(group) => panic!("group {group} is in memory"),
        }
    }

    fn answer(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let at = self.prng.below(self.asked.len() as u64) as usize;
        let (piece, is_search) = self.asked.swap_remove(at);
        let keeps_part = self.prng.one_in(4);
        if self.prng.one_in(20) {
            self.host.gives(piece, keeps_part);
            self.space.answered(piece, None);
            return;
        }
        let (done, is_in_part) = self.host.gives(piece, keeps_part && !is_search);
        let mut given = if done { vec![piece] } else { Vec::new() };
        if !done && is_search {
            for part in self.space.unbacked_parts(piece) {
                let starts = blocks(part).step_by(self.geometry.node_blocks() as usize);
                let place = |at| BlockRange::new(BlockNo(at), self.geometry.node_blocks());
                given.extend(starts.map(place).filter(|place| self.host.gives(*place, false).0));
            }
        }
        let unbacked = self.space.unbacked_blocks();
        let shown = self.space.answered(piece, Some(&given));
        assert_eq!(unbacked - self.space.unbacked_blocks(), shown);
        self.shown += shown;
        if !done && is_in_part {
            self.space.search_again(&[piece]);
        }
    }

    fn take(&mut self) {
        let want = 1 + self.prng.below(40);
        let wanted = Wanted { blocks: want, ..Wanted::default() };
        if self.space.promise(wanted, Floor::HalfCheckpoint) {
            let taken = self.space.take_data(want, None).unwrap().expect("it was promised");
            assert!(self.host.has(taken), "{taken:?} was promised, and the host has not given it");
            self.space.promises.forget(Default::default(), want - taken.count);
            self.taken.push(taken);
        }
    }

    /// Begins a discard, or ends it. What the device does to it is done at one of the two.
    fn discard(&mut self) {
        let fails = self.prng.one_in(4);
        if let Some(discarding) = self.discarding.take() {
            if !fails {
                discarding.blocks().iter().for_each(|range| self.host.takes_back(*range));
            }
            return self.space.end_discard(discarding, fails);
        }
        let least = if self.prng.one_in(2) { 1 } else { 16 };
        let rule = DiscardRule { unit: 1, least, to_host: true, spare: 0 };
        let group = self.prng.below(self.geometry.group_count());
        let due = self.space.due_pieces(group, Scope::All, &rule);
        self.discarding = self.space.begin_discard(group, due, GROUP_BLOCKS, &rule);
        if let Some(discarding) = &self.discarding
            && self.prng.one_in(2)
        {
            discarding.blocks().iter().for_each(|range| self.host.takes_back(*range));
        }
    }

    /// A search has said that there is nothing: no place that the image has is unbacked.
    fn all_is_found(&mut self) {
        self.ends += 1;
        for place in self.places() {
            let index = place.start.0 / GROUP_BLOCKS;
            let piece = BlockRange::new(place.start, place.count);
            let is_idle = self.space.unbacked_parts(piece_of(&self.geometry, piece));
            let is_unbacked = is_idle.iter().any(|part| {
                part.start <= place.start && place.end().unwrap() <= part.end().unwrap()
            }) && !self.space.group(index).all_free(place);
            assert!(!is_unbacked || !self.host.has(place), "{place:?} was given, and is not found");
        }
    }

    /// What is free is the volume's: it may be promised.
    fn free_is_given(&mut self) {
        for place in self.places() {
            let is_free = self.space.group(place.start.0 / GROUP_BLOCKS).all_free(place);
            assert!(!is_free || self.host.has(place), "{place:?} is free, and was not given");
        }
    }
}

fn piece_of(geometry: &Geometry, range: BlockRange) -> BlockRange {
    let start = range.start.0 / super::unbacked::PIECE_BLOCKS * super::unbacked::PIECE_BLOCKS;
    let end = (start + super::unbacked::PIECE_BLOCKS).min(geometry.far_copy().0);
    let start = start.max(geometry.first_data_block().0);
    BlockRange::new(BlockNo(start), end - start)
}

#[test]
fn what_is_free_was_given_and_a_search_finds_all_of_it() {
    let geometry = Geometry::for_device(24 << 20, 16384).unwrap();
    for geometry in [geometry, geometry.with_root_copies().unwrap()] {
        let (mut ends, mut shown) = (0, 0);
        for seed in 0..40 {
            let mut world = World::new(geometry, seed);
            for _ in 0..400 {
                world.step();
            }
            world.free_is_given();
            (ends, shown) = (ends + world.ends, shown + world.shown);
        }
        println!("{ends} searches ended, {shown} blocks were shown");
        assert!(ends > 20 && shown > 10_000, "{ends} searches ended, {shown} blocks were shown");
    }
}
