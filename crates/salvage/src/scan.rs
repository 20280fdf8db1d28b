//! One pass over a device, in large reads, for all that proves itself: superblocks and nodes, by their checksums and the
//! block number that they carry, whichever volume they are of and however old they are.
//!
//! Memory: about 90 bytes for each node found, and a superblock for each superblock found.

use std::collections::{BTreeMap, HashMap};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, Epoch, TreeId};
use holdfast_check::reading::NodePlace;
use holdfast_check::sweep::{Claim, sweep};
use holdfast_device::Device;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::InodeItem;
use holdfast_format::limits::NODE_SIZES;
use holdfast_format::superblock::{MAGIC, VERSION, newer_program, other_version, version_of};
use holdfast_format::{Carried, ItemKind, Key, NodePointer, NodeView, Superblock};

use crate::point::Point;
use crate::progress::Progress;
use crate::tolerant::Tolerant;

/// Superblocks that are kept. A volume has three, and a copy of an older size; more are data that looks like them.
const SUPERBLOCKS_MAX: usize = 1 << 12;

/// The tag that all nodes of a volume carry.
pub type Tag = [u8; 8];

/// A node of some volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundNode {
    pub(crate) block: u64,
    pub(crate) epoch: u64,
    /// Its first and its last key; the same place twice if it has none.
    pub(crate) first: Point,
    pub(crate) last: Point,
    /// Seconds: the newest change of an inode in it.
    pub(crate) changed: i64,
    /// Number of the volume in [`Scan::volumes`].
    pub(crate) volume: u32,
    pub(crate) count: u16,
    pub(crate) level: u8,
    pub(crate) tree: u8,
    /// Blocks of it.
    pub(crate) blocks: u8,
}

impl FoundNode {
    pub(crate) fn pointer(&self) -> NodePointer {
        NodePointer { block: BlockNo(self.block), epoch: Epoch(self.epoch) }
    }

    /// Where it stands, as far as it says so itself.
    pub(crate) fn place(&self) -> NodePlace {
        let low = self.first.key().unwrap_or(Key::MIN);
        NodePlace { low, ..NodePlace::root(self.pointer(), self.level) }
    }

    /// What a sound node says of itself.
    pub(crate) fn of(view: &NodeView<'_>, pointer: NodePointer, volume: u32) -> FoundNode {
        let count = view.count();
        let at = |index: usize| Point::of(&view.key(index));
        let (first, last) = match count {
            0 => (Point::MIN, Point::MIN),
            _ => (at(0), at(count - 1)),
        };
        let is_files = view.tree() == TreeId::Files as u8;
        let inodes = view.items_of(ItemKind::Inode).filter(|_| is_files);
        let changed = inodes.filter_map(|(_, value)| InodeItem::decode(value).ok());
        FoundNode {
            block: pointer.block.0,
            epoch: pointer.epoch.0,
            first,
            last,
            changed: changed.map(|inode| inode.ctime.secs).max().unwrap_or(i64::MIN),
            volume,
            count: count as u16,
            level: view.level(),
            tree: view.tree(),
            blocks: (view.bytes().len() / BLOCK_SIZE) as u8,
        }
    }
}

/// A superblock, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct FoundSuperblock {
    pub(crate) block: u64,
    pub(crate) superblock: Superblock,
}

/// Which nodes of a volume have copies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies {
    /// By what the blocks of a node and of its copy differ; 0: none has one.
    pub(crate) mask: u64,
    /// Leaves of files trees have them as well.
    pub(crate) of_leaves: bool,
}

/// All that a device holds of volumes.
#[derive(Debug, Default)]
pub struct Scan {
    /// Upwards by block; those of several volumes, and of several sizes, may overlap. One that is stored twice counts once, by the block
    /// that it says, whichever of its places is sound.
    pub(crate) nodes: Vec<FoundNode>,
    pub(crate) superblocks: Vec<FoundSuperblock>,
    /// The tags of the volumes, by their numbers in [`FoundNode`].
    pub(crate) volumes: Vec<Tag>,
    /// For each of the volumes: its newest superblock says so; without one, what was met most often.
    pub(crate) copies: Vec<Copies>,
    /// Whether a node of the volume is in its first place. Those of an image inside a file are not, and may look like copies.
    pub(crate) has_first: Vec<bool>,
    /// Superblocks that are intact and of no use to this program: their epochs, as far as those are known, and why.
    pub(crate) other_programs: Vec<(Epoch, String)>,
}

/// Looks at everything.
pub(crate) fn scan(device: &Tolerant<'_>, progress: &dyn Fn(Progress)) -> Scan {
    let total = device.len();
    let mut scan = Scanning::default();
    let mut read = |at, part: &mut [u8]| {
        progress(Progress { step: "scan", done: at, total });
        device.fill(at, part);
    };
    let mut look = |block, bytes: &[u8]| scan.look(block, bytes);
    sweep(device, 0..total / BLOCK_BYTES, &mut Vec::new(), &mut read, &mut look);
    scan.end()
}

#[derive(Default)]
struct Scanning {
    found: Scan,
    numbers: HashMap<Tag, u32>,
    /// The size that the nodes of a volume had so far.
    sizes: BTreeMap<u32, usize>,
    /// Nodes that are sound in their second place alone, with the distance to the first.
    second: Vec<(u64, FoundNode)>,
    /// How often which distance to a copy was met, by volume and distance, and how often that of a leaf of a files tree.
    distances: BTreeMap<(u32, u64), (u64, u64)>,
}

impl Scanning {
    /// Looks at a block; behind it is what a node that begins there may reach.
    fn look(&mut self, number: u64, bytes: &[u8]) {
        if let Some(claim) = Claim::read(number, bytes) {
            self.look_at_node(number, &claim, bytes);
        } else if bytes.starts_with(&MAGIC) {
            self.look_at_superblock(number, &bytes[..BLOCK_SIZE]);
        }
    }

    fn look_at_node(&mut self, block: u64, claim: &Claim, bytes: &[u8]) {
        let Claim { pointer, tag, distance, .. } = *claim;
        let known = self.numbers.get(&tag).copied();
        if distance != 0 && known.is_some_and(|number| self.has_met(number, pointer)) {
            self.met_at(known.unwrap_or_default(), claim);
            return;
        }
        let known = known.and_then(|number| self.sizes.get(&number));
        // The size stands in the superblock alone; the checksum decides.
        let usual = known.copied().unwrap_or(NODE_SIZES[1]);
        let others = NODE_SIZES.into_iter().filter(|size| *size != usual);
        for size in [usual].into_iter().chain(others) {
            let Some(view) = claim.prove(block, bytes, size, ANYTHING) else { continue };
            let number = self.number(tag);
            self.sizes.insert(number, size);
            let found = FoundNode::of(&view, pointer, number);
            if distance == 0 {
                self.found.nodes.push(found);
            } else {
                self.met_at(number, claim);
                self.second.push((distance, found));
            }
            return;
        }
    }

    /// Whether the node was found in its first place, where a newer one counts as well.
    fn has_met(&self, volume: u32, pointer: NodePointer) -> bool {
        let nodes = &self.found.nodes;
        let from = nodes.partition_point(|node| node.block < pointer.block.0);
        let there = nodes[from..].iter().take_while(|node| node.block == pointer.block.0);
        { there }.any(|node| node.volume == volume && node.epoch >= pointer.epoch.0)
    }

    fn met_at(&mut self, volume: u32, claim: &Claim) {
        let (all, leaves) = self.distances.entry((volume, claim.distance)).or_default();
        *all += 1;
        *leaves += u64::from(claim.level == 0 && claim.tree == TreeId::Files);
    }

    fn look_at_superblock(&mut self, number: u64, block: &[u8]) {
        let Ok(block) = <&[u8; BLOCK_SIZE]>::try_from(block) else { return };
        let address = BlockNo(number);
        match Superblock::decode(block, address) {
            Ok(superblock) if self.found.superblocks.len() < SUPERBLOCKS_MAX => {
                let volume = self.number(superblock.node_tag);
                self.sizes.insert(volume, superblock.geometry.node_size);
                self.found.superblocks.push(FoundSuperblock { block: number, superblock });
            }
            Ok(_) => {}
            Err(_) if self.found.other_programs.len() < SUPERBLOCKS_MAX => {
                // An older one does not say where it belongs: elsewhere it is data of a file.
                let is_slot = SUPERBLOCK_SLOTS.contains(&address);
                let older = || {
                    let version = version_of(block).filter(|it| is_slot && *it < VERSION)?;
                    Some((Epoch(0), other_version(version)?))
                };
                self.found.other_programs.extend(newer_program(block, address).or_else(older));
            }
            Err(_) => {}
        }
    }

    fn number(&mut self, tag: Tag) -> u32 {
        let volumes = &mut self.found.volumes;
        *self.numbers.entry(tag).or_insert_with(|| {
            volumes.push(tag);
            // There are fewer nodes than blocks, and fewer volumes than nodes.
            u32::try_from(volumes.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn end(mut self) -> Scan {
        let is_leaf = |node: &&FoundNode| node.level == 0 && node.tree == TreeId::Files as u8;
        let copies = |volume: u32| {
            let tag = self.found.volumes[volume as usize];
            let own = self.found.superblocks.iter().map(|found| &found.superblock);
            let own = own.filter(|superblock| superblock.node_tag == tag);
            if let Some(newest) = own.max_by_key(|superblock| superblock.epoch) {
                let of = &newest.geometry;
                return Copies { mask: of.copy_mask, of_leaves: of.leaf_copies };
            }
            let met = self.distances.range((volume, 0)..=(volume, u64::MAX));
            let most = met.max_by_key(|(_, (count, _))| *count);
            most.map_or(Copies::default(), |((_, mask), (_, leaves))| {
                let firsts = self.found.nodes.iter().filter(|node| node.volume == volume);
                let of_leaves = *leaves > 0 && leaves * 2 >= firsts.filter(is_leaf).count() as u64;
                Copies { mask: *mask, of_leaves }
            })
        };
        let copies: Vec<Copies> = (0..self.found.volumes.len() as u32).map(copies).collect();
        self.found.has_first = vec![false; copies.len()];
        for node in &self.found.nodes {
            self.found.has_first[node.volume as usize] = true;
        }
        let is_copy =
            |(distance, node): &(u64, FoundNode)| copies[node.volume as usize].mask == *distance;
        let mut second: Vec<FoundNode> =
            self.second.drain(..).filter(is_copy).map(|(_, node)| node).collect();
        self.found.copies = copies;
        if !second.is_empty() {
            let nodes = &mut self.found.nodes;
            nodes.append(&mut second);
            nodes.sort_by_key(|node| (node.block, node.volume, std::cmp::Reverse(node.epoch)));
            nodes.dedup_by_key(|node| (node.block, node.volume));
        }
        self.found.other_programs.sort();
        self.found.other_programs.dedup();
        self.found
    }
}

/// Which features a volume has is known to its superblock; until one is found, a node may hold what any may bring.
pub(crate) const ANYTHING: Carried = Carried { compat: true, ro_compat: true };
