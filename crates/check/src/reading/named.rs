//! What stands in the rings, whether it counts or not: the numbers that what comes next must be above, and the blocks that
//! a replay reads or verifies.

use std::ops::ControlFlow;

use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_base::{BlockRange, TreeId};
use holdfast_device::Device;
use holdfast_format::Superblock;
use holdfast_format::journal::commit::Commit;
use holdfast_format::journal::frame::FrameHeader;
use holdfast_format::journal::{Base, SEARCH_BLOCKS_MAX};
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::log::{Content, Decoder, LogHeader, Record, UNIT};

use crate::changes::NO_CHANGES;
use crate::journal::{self, NextCommit, Ring as Journal};
use crate::lineage::Lineage;
use crate::log::Ring as Log;
use crate::met_nodes::MetNodes;
use crate::recovered::Recovered;
use crate::volume::Volume;
use crate::walk::{Step, WalkPart};

/// What the rings hold.
#[derive(Clone, Debug, Default)]
pub struct RingContents {
    /// The largest number of a commit that a frame of the volume has.
    pub commit: u64,
    /// The largest epoch of such a frame.
    pub epoch: u64,
    /// The largest number of a batch of the volume.
    pub batch: u64,
    /// Blocks that a replay from the present superblock reads or verifies, as starts and ends, in no order: until another
    /// superblock is durable nothing may be written there.
    pub needed: Vec<(u64, u64)>,
    /// Blocks of the rings that the device does not read.
    pub unreadable: Vec<u64>,
}

/// Bytes read at once.
const STEP: u64 = 1 << 20;

pub(super) fn read(device: &dyn Device, mark: &Superblock, recovered: &Recovered) -> RingContents {
    let mut rings = RingContents {
        commit: recovered.log.superblock.journal.commit.0.max(mark.journal.commit.0),
        epoch: recovered.log.superblock.epoch.0.max(mark.epoch.0),
        batch: recovered.log.superblock.log.batch.0.max(mark.log.batch.0),
        needed: Vec::new(),
        unreadable: Vec::new(),
    };
    largest(device, mark, &mut rings);
    commits(device, mark, &mut rings);
    batches(device, recovered, &mut rings);
    bases(device, mark, &mut rings);
    rings
}

/// Looks at each place where a frame or a batch may begin. A header with the volume's tag is believed as it is, without its
/// sum: a number that is too large does no harm, as long as no counter comes near its end.
fn largest(device: &dyn Device, mark: &Superblock, rings: &mut RingContents) {
    let believed = |number: u64| if number < COUNTER_MAX / 4 { number } else { 0 };
    let zones = [(false, mark.geometry.journal()), (true, mark.geometry.log())];
    let places = mark.geometry.ring_places();
    let zones = places.flat_map(|distance| zones.map(|(is_log, zone)| (is_log, zone, distance)));
    for (is_log, zone, distance) in zones {
        let first = zone.start.0.saturating_add(distance).saturating_mul(BLOCK_BYTES);
        let len = zone.count.min(SEARCH_BLOCKS_MAX).saturating_mul(BLOCK_BYTES);
        let mut buffer = vec![0; len.min(STEP) as usize];
        let mut done = 0;
        while done < len {
            let part = &mut buffer[..(len - done).min(STEP) as usize];
            if device.read(first + done, part).is_err() {
                // What can be read of it is read, block by block.
                for (at, bytes) in
                    (first + done..).step_by(BLOCK_SIZE).zip(part.chunks_mut(BLOCK_SIZE))
                {
                    if device.read(at, bytes).is_err() {
                        bytes.fill(0);
                        rings.unreadable.push(at / BLOCK_BYTES);
                    }
                }
            }
            rings.look(part, is_log, mark, believed);
            done += STEP;
        }
    }
}

/// Nodes that commits copy, and data that they made durable.
fn commits(device: &dyn Device, mark: &Superblock, rings: &mut RingContents) {
    let ring = Journal::new(device, mark);
    let mut place = ring.start();
    while let Ok(NextCommit::Whole(whole)) = ring.commit(&place) {
        place = whole.after;
        let Ok(commit) = Commit::decode(&whole.payload, whole.epoch, &mark.geometry) else {
            break;
        };
        for change in &commit.nodes {
            if let Base::Copied(from) = change.base {
                rings.need_places(mark.geometry.places_of_some_node(from.block));
            }
        }
        for extent in &commit.extents {
            rings.need(extent.block, extent.count);
        }
    }
}

/// Blocks that batches take, and those over which data in them lies.
fn batches(device: &dyn Device, recovered: &Recovered, rings: &mut RingContents) {
    let before = &recovered.journal.superblock;
    let ring = Log::new(device, before);
    let mut place = ring.start();
    while let Ok(Ok(whole)) = ring.batch(&place) {
        let decoder =
            Decoder::new(&whole.records, whole.header.records, &before.geometry, before.carried());
        for record in decoder {
            let Ok(Record::Take(blocks, content)) = record else { continue };
            rings.need(blocks.start.0, blocks.count);
            if let Content::Inside(patches) = content {
                let bases = patches.iter().filter_map(|patch| patch.base);
                bases.for_each(|base| rings.need(base.0, 1));
            }
        }
        if whole.overlaps {
            break;
        }
        place = whole.after;
    }
    rings.needed.extend(recovered.log.later.needed.iter());
}

/// Nodes of the trees that the superblock itself leads to: commits build on them, and they are what is left when a commit
/// cannot be read.
fn bases(device: &dyn Device, mark: &Superblock, rings: &mut RingContents) {
    let alone = journal::Replay::none(mark);
    let volume = Volume::before_log(device, &alone);
    let mut walk = |volume: &Volume<'_>, tree, way, seen: &mut MetNodes| {
        let _ = volume.walk_unseen(tree, way, seen, &mut |step| {
            if let Step::Node { pointer, node, .. } = step {
                let stored = mark.geometry.stored(tree, node.level());
                rings.need_places(mark.geometry.places_of_node(pointer.block, stored));
            }
            ControlFlow::Continue(())
        });
    };
    walk(&volume, TreeId::Space, WalkPart::default(), &mut MetNodes::default());
    let mut seen = MetNodes::default();
    for tree in Lineage::read(&volume).trees(&volume, &|_| None) {
        let way = WalkPart { of: tree.id, cursor: tree.cursor, ..WalkPart::default() };
        walk(
            &volume.with_files((tree.root, tree.level), &NO_CHANGES),
            TreeId::Files,
            way,
            &mut seen,
        );
    }
}

impl RingContents {
    /// Looks at each place where a frame or a batch may begin.
    fn look(&mut self, part: &[u8], is_log: bool, mark: &Superblock, believed: fn(u64) -> u64) {
        for bytes in part.chunks(if is_log { UNIT as usize } else { BLOCK_SIZE }) {
            if is_log {
                let Ok(header) = LogHeader::decode(bytes) else { continue };
                if header.volume == mark.ring_tag {
                    self.batch = self.batch.max(believed(header.number));
                }
            } else {
                let Ok(header) = FrameHeader::decode(bytes) else { continue };
                if header.volume == mark.ring_tag {
                    self.commit = self.commit.max(believed(header.commit));
                    self.epoch = self.epoch.max(believed(header.epoch));
                }
            }
        }
    }

    fn need_places(&mut self, places: impl Iterator<Item = BlockRange>) {
        places.for_each(|place| self.need(place.start.0, place.count));
    }

    fn need(&mut self, start: u64, count: u64) {
        self.needed.push((start, start.saturating_add(count)));
    }
}
