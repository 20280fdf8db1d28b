//! A device whose volume is made up: nodes of the space tree are written when they are read. What is written stays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, TreeId};
use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::GroupItem;
use holdfast_format::item::group::bitmap_key;
use holdfast_format::limits::{BITMAP_BLOCKS, BITMAP_BYTES, BITMAPS_PER_GROUP, GROUP_BLOCKS};
use holdfast_format::node::{
    self, COUNT_AT, Expected, HEAP_START_AT, POINTER_SIZE, SLOT_SIZE, SLOTS_AT,
};
use holdfast_format::{Geometry, ItemKind, Key, NodePointer, NodeView, Superblock};
use holdfast_store::{CreateOptions, Store};

const NODE: usize = 16384;
const WORDS: usize = (GROUP_BLOCKS / 64) as usize;
/// Nodes are three quarters full.
const FULL: usize = (NODE - SLOTS_AT) / 4 * 3;
/// The group in which the nodes begin: behind the one with the end of the rings.
const FIRST: u64 = 2;

type Items = Vec<(Key, Vec<u8>)>;

fn fit(value: usize) -> u64 {
    (FULL / (SLOT_SIZE + Key::SIZE + value)) as u64
}

/// A space tree: leaves with records, leaves with bitmaps, one leaf of all else, and the nodes above them.
#[derive(Debug)]
struct Tree {
    superblock: Superblock,
    lineage: Items,
    /// Blocks of data in each group that has no nodes, from its first block on.
    data: u64,
    /// Pieces of the groups in front, in which more is marked than data.
    pieces: Vec<(u64, u64)>,
    /// The groups of these.
    special: u64,
    /// Nodes of each level.
    levels: Vec<u64>,
}

impl Tree {
    fn new(superblock: Superblock, lineage: Items, used_blocks: u64) -> Tree {
        let data = used_blocks / superblock.geometry.group_count();
        let (pieces, levels) = (Vec::new(), Vec::new());
        let mut tree = Tree { superblock, lineage, data, pieces, special: FIRST, levels };
        // Its own nodes have marks, which take nodes.
        for _ in 0..4 {
            tree.special = (FIRST * GROUP_BLOCKS + tree.nodes() * 4).div_ceil(GROUP_BLOCKS);
            let all =
                (0..tree.special).flat_map(|group| (0..BITMAPS_PER_GROUP).map(move |p| (group, p)));
            let is_marked = |of: &(u64, u64)| tree.bits(of.0, of.1).iter().any(|byte| *byte != 0);
            tree.pieces = all.filter(is_marked).collect();
            let mut levels = vec![
                tree.record_leaves() + tree.bitmaps().div_ceil(fit(BITMAP_BYTES)) + tree.others(),
            ];
            while levels.last().is_some_and(|nodes| *nodes > 1) {
                levels.push(levels.last().unwrap().div_ceil(fit(POINTER_SIZE)));
            }
            tree.levels = levels;
        }
        let root = tree.nodes() - 1;
        let used = (0..tree.groups()).map(|group| tree.counts(group).0).sum();
        let Superblock { space, space_level, used_blocks, .. } = &mut tree.superblock;
        (*space_level, *used_blocks) = (tree.levels.len() as u8 - 1, used);
        space.block = BlockNo(FIRST * GROUP_BLOCKS + root * 4);
        tree
    }

    fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    fn groups(&self) -> u64 {
        self.geometry().group_count()
    }

    fn nodes(&self) -> u64 {
        self.levels.iter().sum()
    }

    fn record_leaves(&self) -> u64 {
        self.groups().div_ceil(fit(GroupItem::SIZE))
    }

    /// Leaves of all else.
    fn others(&self) -> u64 {
        u64::from(!self.lineage.is_empty())
    }

    fn bitmaps(&self) -> u64 {
        self.pieces.len() as u64 + self.groups() - self.special
    }

    /// Blocks of a group that are in use.
    fn used(&self, group: u64) -> BlockRange {
        let start = group * GROUP_BLOCKS;
        if group < FIRST {
            let files = self.superblock.files.block;
            return BlockRange::new(files, if files.0 / GROUP_BLOCKS == group { 4 } else { 0 });
        }
        let end = (FIRST * GROUP_BLOCKS + self.nodes() * 4).min(start + GROUP_BLOCKS);
        match group < self.special {
            true => BlockRange::new(BlockNo(start), end.saturating_sub(start)),
            false => BlockRange::new(
                BlockNo(start),
                self.data.min(self.geometry().group_blocks(group).count),
            ),
        }
    }

    /// Blocks in use, and of nodes.
    fn counts(&self, group: u64) -> (u64, u64) {
        let used = self.used(group).count;
        (used, if group < self.special { used } else { 0 })
    }

    fn words(&self, group: u64) -> [u64; WORDS] {
        let (used, mut words) = (self.used(group), [0; WORDS]);
        for block in used.start.0..used.start.0 + used.count {
            words[(block % GROUP_BLOCKS / 64) as usize] |= 1 << (block % 64);
        }
        words
    }

    fn bits(&self, group: u64, piece: u64) -> Vec<u8> {
        let words = (BITMAP_BLOCKS / 64) as usize;
        let all = self.words(group);
        all[piece as usize * words..][..words].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn record(&self, group: u64) -> (Key, Vec<u8>) {
        let (used, nodes) = self.counts(group);
        let slots = self.geometry().free_slots_of_group(group, &self.words(group));
        (GroupItem::key(group), GroupItem::bounded(used, nodes, slots, None).encode())
    }

    fn bitmap(&self, number: u64) -> (Key, Vec<u8>) {
        let piece = self.pieces.get(number as usize).copied();
        let (group, piece) =
            piece.unwrap_or_else(|| (self.special + number - self.pieces.len() as u64, 0));
        (bitmap_key(group, piece), self.bits(group, piece))
    }

    /// A part of `all` numbers, as many as are in a node.
    fn part(number: u64, fit: u64, all: u64) -> std::ops::Range<u64> {
        number * fit..((number + 1) * fit).min(all)
    }

    fn leaf(&self, number: u64) -> Items {
        let of_records = self.record_leaves();
        if number < of_records {
            let part = Tree::part(number, fit(GroupItem::SIZE), self.groups());
            return part
                .filter(|group| self.counts(*group).0 > 0)
                .map(|group| self.record(group))
                .collect();
        }
        let part = Tree::part(number - of_records, fit(BITMAP_BYTES), self.bitmaps());
        match number + self.others() == self.levels[0] {
            true => self.lineage.clone(),
            false => part.map(|number| self.bitmap(number)).collect(),
        }
    }

    /// The first key of a node, without its items.
    fn low(&self, level: usize, number: u64) -> Key {
        let number = (0..level).fold(number, |number, _| number * fit(POINTER_SIZE));
        let of_records = self.record_leaves();
        match number {
            0 => Key::MIN,
            number if number < of_records => GroupItem::key(number * fit(GroupItem::SIZE)),
            number if number + self.others() == self.levels[0] => self.lineage[0].0,
            number => self.bitmap((number - of_records) * fit(BITMAP_BYTES)).0,
        }
    }

    fn pointer(&self, level: usize, number: u64) -> NodePointer {
        let before: u64 = self.levels[..level].iter().sum();
        let block = BlockNo(FIRST * GROUP_BLOCKS + (before + number) * 4);
        NodePointer { block, epoch: self.superblock.space.epoch }
    }

    /// The node at a block, if one begins there.
    fn node_at(&self, block: u64) -> Option<Vec<u8>> {
        let mut number = block.checked_sub(FIRST * GROUP_BLOCKS)? / 4;
        let level = self.levels.iter().position(|nodes| {
            let is_here = number < *nodes;
            number -= if is_here { 0 } else { *nodes };
            is_here
        })?;
        let items = match level.checked_sub(1) {
            None => self.leaf(number),
            Some(below) => Tree::part(number, fit(POINTER_SIZE), self.levels[below])
                .map(|child| (self.low(below, child), self.pointer(below, child).encode().to_vec()))
                .collect(),
        };
        let (pointer, volume) = (self.pointer(level, number), self.superblock.nodes());
        let expected = Expected { pointer, tree: TreeId::Space, level: level as u8, volume };
        Some(node_of(&items, &expected))
    }
}

fn node_of(items: &Items, expected: &Expected) -> Vec<u8> {
    let mut bytes = node::empty(NODE, expected);
    let mut heap = NODE;
    for (at, (key, value)) in items.iter().enumerate() {
        let len = Key::SIZE + value.len();
        heap -= len;
        bytes[heap..heap + Key::SIZE].copy_from_slice(&key.encode());
        bytes[heap + Key::SIZE..heap + len].copy_from_slice(value);
        let slot = SLOTS_AT + at * SLOT_SIZE;
        bytes[slot..slot + 2].copy_from_slice(&(heap as u16).to_le_bytes());
        bytes[slot + 2..slot + 4].copy_from_slice(&(len as u16).to_le_bytes());
    }
    bytes[COUNT_AT..COUNT_AT + 2].copy_from_slice(&(items.len() as u16).to_le_bytes());
    bytes[HEAP_START_AT..HEAP_START_AT + 4].copy_from_slice(&(heap as u32).to_le_bytes());
    node::seal(&mut bytes);
    bytes
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct MadeUp {
    below: MemoryDevice,
    len: u64,
    written: Mutex<BTreeMap<u64, Box<[u8]>>>,
    tree: OnceLock<Tree>,
    reads: AtomicU64,
    bytes: AtomicU64,
    made: AtomicU64,
    making_ns: AtomicU64,
}

impl MadeUp {
    /// A volume of so many bytes with about so many blocks in use.
    pub(crate) fn new(bytes: u64, used_blocks: u64) -> MadeUp {
        let device = Arc::new(MadeUp {
            below: MemoryDevice::new(1 << 20),
            len: bytes,
            written: Mutex::default(),
            tree: OnceLock::new(),
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            made: AtomicU64::new(0),
            making_ns: AtomicU64::new(0),
        });
        let options = CreateOptions {
            geometry: Geometry::for_device(bytes, NODE).unwrap(),
            uuid: uuid::Uuid::from_u128(5),
            label: "huge".into(),
            hash_seed: 1,
            node_tag: *b"of nodes",
            created: Default::default(),
        };
        Store::create(&(device.clone() as Arc<dyn Device>), &options).unwrap();
        let mut block = [0; BLOCK_SIZE];
        let found = SUPERBLOCK_SLOTS.map(|slot| {
            device.read(slot.byte_offset().unwrap(), &mut block).unwrap();
            (slot, Superblock::decode(&block, slot).unwrap())
        });
        let (slot, superblock) = found.into_iter().max_by_key(|of| of.1.epoch).unwrap();
        let mut bytes = vec![0; NODE];
        device.read(superblock.space.block.byte_offset().unwrap(), &mut bytes).unwrap();
        let view = NodeView::trusted(&bytes);
        let items = (0..view.count()).map(|at| (view.key(at), view.value(at).to_vec()));
        let is_lineage =
            |item: &(Key, Vec<u8>)| !matches!(item.0.kind, ItemKind::Group | ItemKind::Bitmap);
        let tree = Tree::new(superblock, items.filter(is_lineage).collect(), used_blocks);
        let sealed = tree.superblock.encode(slot);
        device.write(slot.byte_offset().unwrap(), &sealed[..]).unwrap();
        device.tree.set(tree).unwrap();
        Arc::into_inner(device).unwrap()
    }

    fn tree(&self) -> &Tree {
        self.tree.get().unwrap()
    }

    pub(crate) fn record_leaves(&self) -> u64 {
        self.tree().record_leaves()
    }

    pub(crate) fn used_blocks(&self) -> u64 {
        self.tree().superblock.used_blocks
    }

    /// Whether any of these blocks was in use when the volume was made up.
    pub(crate) fn is_used(&self, blocks: BlockRange) -> bool {
        let used = self.tree().used(blocks.start.0 / GROUP_BLOCKS);
        blocks.start < used.end().unwrap() && used.start < blocks.end().unwrap()
    }

    /// Reads, and their bytes, since the last call.
    pub(crate) fn take_reads(&self) -> (u64, u64) {
        (self.reads.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }

    /// Nodes that were made up so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// How long that took, on all threads.
    pub(crate) fn making(&self) -> Duration {
        Duration::from_nanos(self.making_ns.load(Ordering::Relaxed))
    }

    fn make_up(&self, first: u64, into: &mut [u8]) {
        let Some(tree) = self.tree.get() else { return };
        let time = Stopwatch::start();
        let end = first + (into.len() / BLOCK_SIZE) as u64;
        for node in (first / 4 * 4..end).step_by(4) {
            let Some(bytes) = tree.node_at(node) else { continue };
            self.made.fetch_add(1, Ordering::Relaxed);
            for (block, bytes) in (node..).zip(bytes.chunks(BLOCK_SIZE)) {
                if (first..end).contains(&block) {
                    let at = (block - first) as usize * BLOCK_SIZE;
                    into[at..at + BLOCK_SIZE].copy_from_slice(bytes);
                }
            }
        }
        self.making_ns.fetch_add(time.nanos(), Ordering::Relaxed);
    }
}

impl Device for MadeUp {
    forward!(below: flush, discard, room, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        let (first, last) =
            (at / BLOCK_SIZE as u64, (at + into.len() as u64 - 1) / BLOCK_SIZE as u64);
        let mut blocks = vec![0; (last - first + 1) as usize * BLOCK_SIZE];
        self.make_up(first, &mut blocks);
        for (block, bytes) in self.written.lock().unwrap().range(first..=last) {
            blocks[(block - first) as usize * BLOCK_SIZE..][..BLOCK_SIZE].copy_from_slice(bytes);
        }
        into.copy_from_slice(&blocks[(at % BLOCK_SIZE as u64) as usize..][..into.len()]);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut done = 0;
        while done < bytes.len() {
            let (block, from) =
                ((at + done as u64) / BLOCK_SIZE as u64, (at + done as u64) as usize % BLOCK_SIZE);
            let len = (BLOCK_SIZE - from).min(bytes.len() - done);
            let mut written = self.written.lock().unwrap();
            let of = written.entry(block).or_insert_with(|| vec![0; BLOCK_SIZE].into());
            of[from..from + len].copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }
}
