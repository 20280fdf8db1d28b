//! A copy of a volume's metadata, to look for a mistake: superblocks and the nodes that they lead to. Data of files stays
//! behind, and so does content inside nodes, unless it is asked for.
//!
//! Sound nodes get new checksums over what is left of them. Of a damaged node nothing is known, so without content nothing of it is
//! copied: it is as damaged in the copy. Journal and log hold changes of nodes and data of files in one; without content they stay
//! behind as well, and the copy is in the state of its superblocks. Names are replaced if that is asked for ([`crate::scramble`]).

use std::collections::HashSet;
use std::io;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, TreeId};
use holdfast_check::reading::{NodePlace, Rings, VolumeReading};
use holdfast_device::Device;
use holdfast_format::geometry::{GUARD, SIGNPOST, SUPERBLOCK_SLOTS, far_copy};
use holdfast_format::superblock::MAGIC;
use holdfast_format::{NodeView, Signpost, Stored, Superblock};

use crate::error::SalvageError;
use crate::progress::Progress;
use crate::redact::redact;
use crate::scan::Scan;
use crate::scramble::{Gathering, Scrambled};
use crate::state::{Choice, volume};
use crate::tolerant::Tolerant;

/// Bytes of one copy of rings.
const STEP: usize = 1 << 20;

/// Takes whole blocks, and the number of the first.
pub type WriteBlocks<'w> = dyn FnMut(u64, &[u8]) -> io::Result<()> + 'w;

/// How much of a volume goes into a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowMuch {
    /// All that stands in blocks of metadata, content of small files included.
    Content,
    /// Names, but no content.
    Names,
    /// Neither: other names of the same length, and no sums of data.
    Shape,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imaged {
    /// Bytes that the copy is long: as long as the volume, or the device that ends before it.
    pub len: u64,
    /// Nodes that were copied.
    pub nodes: u64,
    /// Nodes that are damaged or do not read.
    pub damaged: u64,
}

/// Copies the metadata of the volume that `scan` has found, and as much of what of files lies there as `kept` says. Journal, log and
/// damaged nodes are copied with content only.
///
/// # Errors
/// No superblock is valid, no other names can be found for those of a directory, or `write` fails.
pub fn image(
    device: &Tolerant<'_>,
    scan: &Scan,
    choice: &Choice,
    kept: HowMuch,
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
    let names = match kept {
        HowMuch::Shape => Some(gather(device, &superblocks, progress)?),
        HowMuch::Content | HowMuch::Names => None,
    };
    let len = newest.geometry.volume_blocks.saturating_mul(BLOCK_BYTES).min(device.len());
    let imaged = Imaged { len, ..Imaged::default() };
    let content = kept == HowMuch::Content;
    let mut imaging = Imaging { device, content, names, write, imaged };
    imaging.superblocks(newest, device.len() / BLOCK_BYTES)?;
    let mut walk = Walk { step: "copy", progress, met: HashSet::new() };
    for superblock in superblocks {
        if content {
            imaging.rings(superblock)?;
        }
        walk.trees(device, superblock, &mut |reading, at, node| imaging.node(reading, at, node))?;
    }
    Ok(imaging.imaged)
}

/// Finds other names for all that the trees of these superblocks hold.
fn gather(
    device: &Tolerant<'_>,
    superblocks: &[&Superblock],
    progress: &dyn Fn(Progress),
) -> Result<Scrambled, SalvageError> {
    let Some(newest) = superblocks.first() else { return Err(SalvageError::NoSuperblock) };
    let mut gathering = Gathering::new(newest);
    let mut walk = Walk { step: "read names", progress, met: HashSet::new() };
    for superblock in superblocks {
        walk.trees(device, superblock, &mut |_, _, node| {
            if let Some(node) = node {
                gathering.node(&NodeView::trusted(node));
            }
            Ok(())
        })?;
    }
    progress(Progress { step: "find names", done: 0, total: 0 });
    gathering.solve()
}

/// First block of a node, and how often it is stored.
type At = (u64, Stored);

/// Takes where a node is, and its bytes if it is sound.
type EachNode<'f> =
    dyn FnMut(&VolumeReading<'_>, At, Option<&mut Vec<u8>>) -> Result<(), SalvageError> + 'f;

/// Goes through trees, once through what they share.
struct Walk<'a> {
    step: &'static str,
    progress: &'a dyn Fn(Progress),
    /// First blocks and epochs of nodes that were met.
    met: HashSet<(u64, u64)>,
}

impl Walk<'_> {
    /// The trees of a superblock.
    fn trees(
        &mut self,
        device: &Tolerant<'_>,
        superblock: &Superblock,
        each: &mut EachNode<'_>,
    ) -> Result<(), SalvageError> {
        let reading = VolumeReading::with_superblock(device, superblock.clone(), Rings::Ignored)?;
        let space = NodePlace::root(superblock.space, superblock.space_level);
        self.descend(&reading, TreeId::Space, space, each)?;
        for tree in reading.trees() {
            self.descend(&reading, TreeId::Files, tree.place(), each)?;
        }
        Ok(())
    }

    /// Recursion ends at level 0.
    fn descend(
        &mut self,
        reading: &VolumeReading<'_>,
        tree: TreeId,
        at: NodePlace,
        each: &mut EachNode<'_>,
    ) -> Result<(), SalvageError> {
        let block = at.pointer.block.0;
        if !self.met.insert((block, at.pointer.epoch.0)) {
            return Ok(());
        }
        (self.progress)(Progress { step: self.step, done: self.met.len() as u64, total: 0 });
        let stored = reading.superblock().geometry.stored(tree, at.level);
        let mut buffer = Vec::new();
        if reading.node(tree, &at, None, &mut buffer).is_err() {
            return each(reading, (block, stored), None);
        }
        let node = NodeView::trusted(&buffer);
        let children = if at.level > 0 { at.children(&node) } else { Vec::new() };
        each(reading, (block, stored), Some(&mut buffer))?;
        for child in children {
            self.descend(reading, tree, child, each)?;
        }
        Ok(())
    }
}

struct Imaging<'a, 'd, 'w> {
    device: &'a Tolerant<'d>,
    content: bool,
    /// What takes the place of names.
    names: Option<Scrambled>,
    write: &'a mut WriteBlocks<'w>,
    imaged: Imaged,
}

impl Imaging<'_, '_, '_> {
    /// Both slots, the guard, the signpost and the far copy. What stands there and is none may be anything.
    fn superblocks(&mut self, newest: &Superblock, blocks: u64) -> io::Result<()> {
        let far = [newest.geometry.far_copy(), far_copy(blocks)];
        for place in SUPERBLOCK_SLOTS.into_iter().chain([GUARD, SIGNPOST]).chain(far) {
            let mut bytes = [0; BLOCK_SIZE];
            self.device.fill(place.0.saturating_mul(BLOCK_BYTES), &mut bytes);
            let is_signpost = place == SIGNPOST && Signpost::decode(&bytes).is_ok();
            let is_known =
                bytes.starts_with(&MAGIC) || is_signpost || place == GUARD && self.content;
            if is_known && place.0 < newest.geometry.volume_blocks {
                if !self.content && !is_signpost {
                    bytes = without_rings(&bytes, place, self.names.as_ref());
                }
                (self.write)(place.0, &bytes)?;
            }
        }
        Ok(())
    }

    /// Journal and log, and the blocks that a replay reads or verifies: without these it would end early.
    fn rings(&mut self, superblock: &Superblock) -> Result<(), SalvageError> {
        for ring in superblock.geometry.rings() {
            self.raw(ring.start.0, ring.count)?;
        }
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

    fn node(
        &mut self,
        reading: &VolumeReading<'_>,
        (block, stored): At,
        node: Option<&mut Vec<u8>>,
    ) -> Result<(), SalvageError> {
        let geometry = &reading.superblock().geometry;
        let places = geometry.places_of_node(BlockNo(block), stored);
        let Some(bytes) = node else {
            self.imaged.damaged += 1;
            if self.content && geometry.holds_node(BlockNo(block), stored) {
                for place in places {
                    self.raw(place.start.0, place.count)?;
                }
            }
            return Ok(());
        };
        // What stands in the other place is not what is here: it is as bad in the copy.
        let (good, bad): (Vec<BlockRange>, Vec<BlockRange>) =
            places.partition(|place| self.holds(*place, bytes));
        if !self.content {
            redact(bytes, self.names.as_ref());
        }
        self.imaged.nodes += 1;
        for place in good {
            (self.write)(place.start.0, bytes)?;
        }
        for place in bad {
            if self.content {
                self.raw(place.start.0, place.count)?;
            }
        }
        Ok(())
    }

    fn holds(&self, place: BlockRange, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        self.device.fill(place.start.0.saturating_mul(BLOCK_BYTES), &mut found);
        found == bytes
    }
}

/// A superblock whose marks name nothing that must lie in the rings, which stay behind; where names are replaced, with another label, the
/// seed of the copy, and no words about damage. One that is not valid may hold anything: it stays one that is not valid.
fn without_rings(
    bytes: &[u8; BLOCK_SIZE],
    at: BlockNo,
    names: Option<&Scrambled>,
) -> [u8; BLOCK_SIZE] {
    // Spaces are left, to be read as a sentence that is not there.
    let without =
        |text: &str| text.bytes().map(|byte| if byte == b' ' { ' ' } else { 'x' }).collect();
    match (Superblock::decode(bytes, at), names) {
        (Ok(mut superblock), names) => {
            (superblock.journal.sum, superblock.log.sum) = (0, 0);
            if let Some(names) = names {
                superblock.label = without(&superblock.label);
                if let Some(fault) = &mut superblock.fault {
                    fault.reason = without(&fault.reason);
                }
                superblock.hash_seed = names.seed(superblock.hash_seed);
                superblock.rest.clear();
            }
            *superblock.encode(at)
        }
        (Err(_), None) => *bytes,
        (Err(_), Some(_)) => {
            let mut nothing = [0; BLOCK_SIZE];
            nothing[..MAGIC.len()].copy_from_slice(&MAGIC);
            nothing
        }
    }
}
