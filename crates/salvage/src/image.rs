//! A copy of a volume's metadata, for people who look for a mistake: superblocks and the nodes that they lead to. Data of files stays
//! behind, and so does content inside nodes, unless it is asked for.
//!
//! Sound nodes get new checksums over what is left of them. Of a damaged node nothing is known, so without content nothing of it is
//! copied: it is as damaged in the copy. Journal and log hold changes of nodes and data of files in one; without content they stay
//! behind as well, and the copy is in the state of its superblocks.

use std::collections::HashSet;
use std::io;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, TreeId};
use holdfast_check::reading::{NodePlace, Rings, VolumeReading};
use holdfast_device::Device;
use holdfast_format::geometry::{GUARD, SUPERBLOCK_SLOTS, far_copy};
use holdfast_format::item::Xattr;
use holdfast_format::item::xattr::XattrValue;
use holdfast_format::node::{self, SLOT_SIZE, SLOTS_AT};
use holdfast_format::superblock::MAGIC;
use holdfast_format::{ItemKind, Key, NodeView, Superblock};

use crate::error::SalvageError;
use crate::progress::Progress;
use crate::roots::place;
use crate::scan::Scan;
use crate::state::{Choice, volume};
use crate::tolerant::Tolerant;

/// Bytes of one copy of rings.
const STEP: usize = 1 << 20;

/// Takes whole blocks, and the number of the first.
pub type WriteBlocks<'w> = dyn FnMut(u64, &[u8]) -> io::Result<()> + 'w;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imaged {
    /// Bytes that the copy is long: as long as the volume.
    pub len: u64,
    /// Nodes that were copied.
    pub nodes: u64,
    /// Nodes that are damaged or do not read.
    pub damaged: u64,
}

/// Copies the metadata of the volume that `scan` has found. With `content` also what of files lies in nodes, journal, log and
/// damaged nodes.
///
/// # Errors
/// No superblock is valid, or `write` fails.
pub fn image(
    device: &Tolerant<'_>,
    scan: &Scan,
    choice: &Choice,
    content: bool,
    progress: &dyn Fn(Progress),
    write: &mut WriteBlocks<'_>,
) -> Result<Imaged, SalvageError> {
    let tag = scan.volumes.get(volume(scan, choice)? as usize).copied();
    let own = scan.superblocks.iter().map(|found| &found.superblock);
    let mut superblocks: Vec<&Superblock> =
        own.filter(|superblock| Some(superblock.node_tag) == tag).collect();
    superblocks.sort_by_key(|superblock| std::cmp::Reverse(superblock.epoch));
    superblocks.dedup_by_key(|superblock| superblock.epoch);
    let newest = superblocks.first().ok_or(SalvageError::NoSuperblock)?;
    let mut imaging = Imaging {
        device,
        content,
        progress,
        write,
        met: HashSet::new(),
        imaged: Imaged { len: newest.geometry.volume_blocks * BLOCK_BYTES, ..Imaged::default() },
    };
    imaging.superblocks(newest, device.len() / BLOCK_BYTES)?;
    for superblock in superblocks {
        if content {
            imaging.rings(superblock)?;
        }
        imaging.trees(superblock)?;
    }
    Ok(imaging.imaged)
}

struct Imaging<'a, 'd, 'w> {
    device: &'a Tolerant<'d>,
    content: bool,
    progress: &'a dyn Fn(Progress),
    write: &'a mut WriteBlocks<'w>,
    /// First blocks of nodes that were met, by the tree that they are of.
    met: HashSet<(u64, u64)>,
    imaged: Imaged,
}

impl Imaging<'_, '_, '_> {
    /// Both slots, the guard and the far copy. What stands there and is none may be anything.
    fn superblocks(&mut self, newest: &Superblock, blocks: u64) -> io::Result<()> {
        let far = [newest.geometry.far_copy(), far_copy(blocks)];
        for place in SUPERBLOCK_SLOTS.into_iter().chain([GUARD]).chain(far) {
            let mut bytes = [0; BLOCK_SIZE];
            self.device.fill(place.0.saturating_mul(BLOCK_BYTES), &mut bytes);
            let is_known = bytes.starts_with(&MAGIC) || place == GUARD && self.content;
            if is_known && place.0 < newest.geometry.volume_blocks {
                (self.write)(place.0, &bytes)?;
            }
        }
        Ok(())
    }

    /// Journal and log, and the blocks that a replay reads or verifies: without these it would end early.
    fn rings(&mut self, superblock: &Superblock) -> Result<(), SalvageError> {
        let rings = superblock.geometry.rings();
        self.raw(rings.start.0, rings.count)?;
        let reading =
            VolumeReading::with_superblock(self.device, superblock.clone(), Rings::Replayed)?;
        for (start, end) in reading.rings().needed {
            self.raw(start, end.saturating_sub(start))?;
        }
        Ok(())
    }

    /// Copies blocks as they are.
    fn raw(&mut self, start: u64, count: u64) -> io::Result<()> {
        let mut buffer = vec![0; STEP];
        let (mut at, end) = (start, start.saturating_add(count));
        while at < end {
            let len = ((end - at).saturating_mul(BLOCK_BYTES)).min(STEP as u64) as usize;
            self.device.fill(at.saturating_mul(BLOCK_BYTES), &mut buffer[..len]);
            if buffer[..len].iter().any(|byte| *byte != 0) {
                (self.write)(at, &buffer[..len])?;
            }
            at += (len / BLOCK_SIZE) as u64;
        }
        Ok(())
    }

    /// The trees of a superblock.
    fn trees(&mut self, superblock: &Superblock) -> Result<(), SalvageError> {
        let reading =
            VolumeReading::with_superblock(self.device, superblock.clone(), Rings::Ignored)?;
        let space = place(superblock.space, superblock.space_level);
        self.descend(&reading, TreeId::Space, space)?;
        for tree in reading.trees() {
            self.descend(&reading, TreeId::Files, tree.place())?;
        }
        Ok(())
    }

    /// Recursion ends at level 0. What trees share is copied once.
    fn descend(
        &mut self,
        reading: &VolumeReading<'_>,
        tree: TreeId,
        at: NodePlace,
    ) -> Result<(), SalvageError> {
        let block = at.pointer.block.0;
        if !self.met.insert((block, at.pointer.epoch.0)) {
            return Ok(());
        }
        (self.progress)(Progress { step: "copy", done: self.imaged.nodes, total: 0 });
        let mut buffer = Vec::new();
        if reading.node(tree, &at, None, &mut buffer).is_err() {
            self.imaged.damaged += 1;
            let geometry = &reading.superblock().geometry;
            if self.content && geometry.holds_node(BlockNo(block)) {
                for place in geometry.places_of_node(BlockNo(block)) {
                    self.raw(place.start.0, place.count)?;
                }
            }
            return Ok(());
        }
        let node = NodeView::trusted(&buffer);
        let child = |index: usize| {
            let next = (index + 1 < node.count()).then(|| node.key(index + 1));
            let (pointer, low) = (node.child(index), node.key(index));
            NodePlace { pointer, level: at.level - 1, low, high: next.or(at.high) }
        };
        let inner = if at.level > 0 { node.count() } else { 0 };
        let children: Vec<NodePlace> = (0..inner).map(child).collect();
        if !self.content {
            scrub(&mut buffer);
        }
        self.imaged.nodes += 1;
        for place in reading.superblock().geometry.places_of_node(BlockNo(block)) {
            (self.write)(place.start.0, &buffer)?;
        }
        for child in children {
            self.descend(reading, tree, child)?;
        }
        Ok(())
    }
}

/// Makes zeros of what a sound node holds of files: small content, targets of links, values of attributes, and what lies between its
/// records. Lengths stay.
fn scrub(bytes: &mut [u8]) {
    let node = NodeView::trusted(bytes);
    let mut kept = vec![false; bytes.len()];
    kept[..SLOTS_AT + node.count() * SLOT_SIZE].fill(true);
    for index in 0..node.count() {
        let (start, len) = node.record(index);
        let key = node.key(index);
        let is_leaf = node.level() == 0;
        let stays = match key.kind {
            ItemKind::Inline | ItemKind::XattrPiece if is_leaf => Key::SIZE,
            ItemKind::Xattr if is_leaf => match Xattr::decode(node.value(index)) {
                Ok(Xattr { value: XattrValue::Here(value), .. }) => len - value.len(),
                Ok(_) => len,
                Err(_) => Key::SIZE,
            },
            // What a feature brought may be anything.
            kind if is_leaf && kind.asks().is_some() => Key::SIZE,
            _ => len,
        };
        kept[start..start + stays].fill(true);
    }
    for (byte, is_kept) in bytes.iter_mut().zip(&kept) {
        if !is_kept {
            *byte = 0;
        }
    }
    node::seal(bytes);
}
