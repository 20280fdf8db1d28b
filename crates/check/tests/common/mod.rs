//! Builds tiny volumes by hand, item by item, without the engine.
//!
//! [`Maker::sample`] holds one of everything. A test changes its items or
//! fields, then [`Maker::make`] lays out nodes, bitmaps, counts and superblocks
//! so that everything fits again but what the test broke on purpose.

#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod branches;
pub(crate) mod broken;
pub(crate) mod journal;
pub(crate) mod log;

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{
    BLOCK_SIZE, BlockNo, BlockRange, CommitNo, Epoch, InodeNo, Lsn, Timestamp, TreeId,
};
use holdfast_check::{Issue, Options, Report, Subject, check, dump, identify, probe};
use holdfast_device::{Device, DeviceError, DeviceStats, Discards, Flushed, MemoryDevice};
use holdfast_format::checksum::block_sum;
use holdfast_format::geometry::{SIGNPOST, SUPERBLOCK_SLOTS};
use holdfast_format::item::dentry::slot;
use holdfast_format::item::xattr::{XattrValue, piece_offset};
use holdfast_format::item::{Dentry, Extent, FileType, GroupItem, InodeItem, Xattr};
use holdfast_format::limits::{BITMAP_BYTES, GROUP_BLOCKS};
use holdfast_format::node::{self, Expected, OfVolume, SLOT_SIZE, SLOTS_AT};
use holdfast_format::superblock::{LEAF_COPIES, NODE_COPIES, RING_COPIES};
use holdfast_format::{
    Geometry, ItemKind, JournalMark, Key, LogMark, NodePointer, Signpost, Superblock,
};
use uuid::Uuid;

pub(crate) const ROOT: InodeNo = InodeNo::ROOT;
/// `/dir`.
pub(crate) const DIR: InodeNo = InodeNo(16);
/// `/dir/sub`, empty.
pub(crate) const SUB: InodeNo = InodeNo(17);
/// `/dir/data` and `/hard`: five blocks, the last two unwritten, and attributes.
pub(crate) const DATA: InodeNo = InodeNo(18);
/// `/inline`.
pub(crate) const INLINE: InodeNo = InodeNo(19);
/// `/link`.
pub(crate) const LINK: InodeNo = InodeNo(20);
/// `/pipe`.
pub(crate) const PIPE: InodeNo = InodeNo(21);
/// Without a name.
pub(crate) const ORPHAN: InodeNo = InodeNo(22);
const NEXT: InodeNo = InodeNo(23);

const SEED: u64 = 77;
pub(crate) const NODE: usize = 4096;
/// Epoch of every node, and of the older superblock.
pub(crate) const EPOCH: Epoch = Epoch(3);
const PIECE: usize = NODE / 4;

type Change<T> = Box<dyn Fn(&mut T)>;

/// A volume to be made.
pub(crate) struct Maker {
    pub(crate) geometry: Geometry,
    /// Items of the files tree.
    pub(crate) files: BTreeMap<Key, Vec<u8>>,
    /// Settings and the like, besides groups and bitmaps.
    pub(crate) space: BTreeMap<Key, Vec<u8>>,
    /// Items in a leaf at most.
    pub(crate) leaf_items: usize,
    /// Changes of the superblock before it is written.
    pub(crate) superblock: Vec<Change<Superblock>>,
    /// Changes of the items of the space tree before they are written.
    pub(crate) accounts: Vec<Change<BTreeMap<Key, Vec<u8>>>>,
    next_block: u64,
    data: Vec<(u64, Vec<u8>)>,
}

/// A volume that was made.
pub(crate) struct Made {
    pub(crate) device: MemoryDevice,
    pub(crate) superblock: Superblock,
    /// Nodes of the files tree, leaves first, the root last.
    pub(crate) files: Vec<NodePointer>,
    pub(crate) space: NodePointer,
}

/// What its nodes carry.
pub(crate) const NODE_TAG: [u8; 8] = *b"of nodes";

fn time() -> Timestamp {
    Timestamp { secs: 1_700_000_000, nanos: 5 }
}

/// An inode of `file_type` with `nlink` links and nothing else.
pub(crate) fn inode(file_type: FileType, nlink: u32, size: u64) -> InodeItem {
    InodeItem {
        mode: file_type.mode_bits() | 0o644,
        uid: 0,
        gid: 0,
        nlink,
        size,
        blocks: 0,
        rdev: 0,
        parent: InodeNo(0),
        parent_slot: 0,
        atime: time(),
        mtime: time(),
        ctime: time(),
        btime: time(),
        flags: 0,
        xattr_value_next: 0,
        change: 1,
        project: 0,
        reserved: [0; 4],
    }
}

pub(crate) fn dentry_key(directory: InodeNo, name: &str) -> Key {
    Key::new(directory, ItemKind::Dentry, slot(SEED, name.as_bytes()))
}

pub(crate) fn xattr_key(inode: InodeNo, name: &str) -> Key {
    Key::new(inode, ItemKind::Xattr, slot(SEED, name.as_bytes()))
}

impl Maker {
    /// A volume of 8 MiB with nothing at all.
    pub(crate) fn empty() -> Maker {
        Maker::empty_in(Geometry::for_device(8 << 20, NODE).expect("8 MiB are enough"))
    }

    /// A volume of this shape with nothing at all.
    pub(crate) fn empty_in(geometry: Geometry) -> Maker {
        Maker {
            geometry,
            files: BTreeMap::new(),
            space: BTreeMap::new(),
            leaf_items: usize::MAX,
            superblock: Vec::new(),
            accounts: Vec::new(),
            next_block: geometry.first_data_block().0,
            data: Vec::new(),
        }
    }

    /// The same volume, with each node stored twice, and rings that stand twice.
    pub(crate) fn sample_with_copies() -> Maker {
        let twice = Maker::empty().geometry.with_copies().expect("8 MiB are enough for copies");
        Maker::sample_as(twice)
    }

    /// The same volume, with rings that stand twice.
    pub(crate) fn sample_with_ring_copies() -> Maker {
        let twice = Maker::empty().geometry.with_copies().expect("8 MiB are enough for copies");
        Maker::sample_as(Geometry { copy_mask: 0, leaf_copies: false, ..twice })
    }

    fn sample_as(geometry: Geometry) -> Maker {
        let next_block = geometry.first_data_block().0;
        Maker { geometry, next_block, ..Maker::empty() }.filled()
    }

    /// A volume with one of everything.
    pub(crate) fn sample() -> Maker {
        Maker::empty().filled()
    }

    /// The same with one of everything.
    pub(crate) fn filled(self) -> Maker {
        let mut maker = self;
        let directory =
            |nlink, size, parent| InodeItem { parent, ..inode(FileType::Directory, nlink, size) };
        maker.inode(ROOT, directory(3, 5, ROOT));
        maker.inode(DIR, directory(3, 2, ROOT));
        maker.inode(SUB, directory(2, 0, DIR));
        for (parent, name, child, file_type) in [
            (ROOT, "dir", DIR, FileType::Directory),
            (ROOT, "hard", DATA, FileType::Regular),
            (ROOT, "inline", INLINE, FileType::Regular),
            (ROOT, "link", LINK, FileType::Symlink),
            (ROOT, "pipe", PIPE, FileType::Fifo),
            (DIR, "data", DATA, FileType::Regular),
            (DIR, "sub", SUB, FileType::Directory),
        ] {
            maker.dentry(parent, name, child, file_type);
        }
        maker.inode(
            DATA,
            InodeItem {
                blocks: 5,
                flags: InodeItem::HAS_XATTRS,
                xattr_value_next: 1,
                ..inode(FileType::Regular, 2, 12_000)
            },
        );
        maker.written(DATA, 0, 2);
        maker.written(DATA, 2 * BLOCK_BYTES, 1);
        maker.unwritten(DATA, 8 * BLOCK_BYTES, 2);
        maker.xattr(DATA, "user.short", XattrValue::Here(b"value"));
        let len = PIECE as u32 + 3;
        maker.xattr(DATA, "user.long", XattrValue::Pieces { id: 0, len });
        for (index, len) in [(0, PIECE), (1, 3)] {
            let key = Key::new(DATA, ItemKind::XattrPiece, piece_offset(0, index));
            maker.files.insert(key, vec![b'x'; len]);
        }
        maker.inode(INLINE, inode(FileType::Regular, 1, 5));
        maker.files.insert(Key::new(INLINE, ItemKind::Inline, 0), b"hello".to_vec());
        maker.inode(LINK, inode(FileType::Symlink, 1, 8));
        maker.files.insert(Key::new(LINK, ItemKind::Inline, 0), b"dir/data".to_vec());
        maker.inode(PIPE, inode(FileType::Fifo, 1, 0));
        maker.inode(ORPHAN, InodeItem { blocks: 1, ..inode(FileType::Regular, 0, 4096) });
        maker.written(ORPHAN, 0, 1);
        maker.files.insert(Key::orphan(ORPHAN), Vec::new());
        maker
    }

    pub(crate) fn inode(&mut self, number: InodeNo, item: InodeItem) {
        self.files.insert(Key::inode(number), item.encode());
    }

    /// Changes the item of an inode.
    pub(crate) fn change(&mut self, number: InodeNo, change: impl FnOnce(&mut InodeItem)) {
        let bytes = self.files.get_mut(&Key::inode(number)).expect("the inode was made");
        let mut item = InodeItem::decode(bytes).expect("the inode is sound");
        change(&mut item);
        *bytes = item.encode();
    }

    /// Adds a name, in the first free place of its slot.
    pub(crate) fn dentry(
        &mut self,
        directory: InodeNo,
        name: &str,
        to: InodeNo,
        file_type: FileType,
    ) {
        let mut key = dentry_key(directory, name);
        while self.files.contains_key(&key) {
            key.offset += 1;
        }
        let dentry = Dentry { inode: to, file_type, name: name.as_bytes() };
        self.files.insert(key, dentry.encode());
        // A directory knows its name.
        let item = self.files.get(&Key::inode(to)).and_then(|bytes| InodeItem::decode(bytes).ok());
        if item.is_some_and(|item| item.parent == directory && item.parent_slot == 0) {
            self.change(to, |item| item.parent_slot = key.offset);
        }
    }

    pub(crate) fn xattr(&mut self, inode: InodeNo, name: &str, value: XattrValue<'_>) {
        let xattr = Xattr { name: name.as_bytes(), value };
        self.files.insert(xattr_key(inode, name), xattr.encode());
    }

    /// Takes blocks.
    pub(crate) fn take(&mut self, count: u64) -> BlockRange {
        let start = BlockNo(self.next_block);
        self.next_block += count;
        BlockRange::new(start, count)
    }

    /// Adds an extent with data.
    pub(crate) fn written(&mut self, inode: InodeNo, offset: u64, count: u64) -> BlockRange {
        let blocks = self.take(count);
        let mut sums = Vec::new();
        for block in blocks.start.0..blocks.start.0 + count {
            let bytes = vec![block as u8; BLOCK_SIZE];
            sums.push(block_sum(&bytes));
            self.data.push((block, bytes));
        }
        self.extent(inode, offset, &Extent::new(blocks, sums));
        blocks
    }

    /// Adds an extent without data.
    pub(crate) fn unwritten(&mut self, inode: InodeNo, offset: u64, count: u64) -> BlockRange {
        let blocks = self.take(count);
        self.extent(inode, offset, &Extent::new(blocks, Vec::new()));
        blocks
    }

    pub(crate) fn extent(&mut self, inode: InodeNo, offset: u64, extent: &Extent) {
        let mut bytes = extent.encode();
        Extent::be_born(&mut bytes, EPOCH);
        self.files.insert(Key::new(inode, ItemKind::Extent, offset), bytes);
    }

    /// Changes the superblock before it is written.
    pub(crate) fn superblock(&mut self, change: impl Fn(&mut Superblock) + 'static) {
        self.superblock.push(Box::new(change));
    }

    /// Changes the items of groups and bitmaps before they are written.
    pub(crate) fn accounts(&mut self, change: impl Fn(&mut BTreeMap<Key, Vec<u8>>) + 'static) {
        self.accounts.push(Box::new(change));
    }

    /// Writes it all to a device.
    pub(crate) fn make(mut self) -> Made {
        let device = MemoryDevice::new(self.geometry.volume_blocks * BLOCK_BYTES);
        let uuid = Uuid::from_bytes(*b"a tiny volume!!!");
        let files = self.write_tree(&device, TreeId::Files, &self.files.clone());
        let space_at = self.take(self.geometry.node_blocks()).start;
        for (block, bytes) in &self.data {
            put(&device, BlockNo(*block), bytes);
        }
        let mut bits = vec![0u8; (GROUP_BLOCKS / 8) as usize];
        let mut used: Vec<u64> = Vec::new();
        let nodes: Vec<_> = files.iter().map(|node| node.0.block).chain([space_at]).collect();
        let stored = self.geometry.stored(TreeId::Space, 0);
        let copies = nodes.iter().filter_map(|block| self.geometry.copy_of(*block, stored));
        used.extend(nodes.iter().copied().chain(copies).map(|block| block.0));
        for (key, value) in &self.files {
            if key.kind == ItemKind::Extent
                && let Ok(extent) = Extent::decode(value)
                && self.geometry.holds_data(extent.blocks)
            {
                used.extend((0..extent.blocks.count).map(|index| extent.blocks.start.0 + index));
            }
        }
        used.sort_unstable();
        used.dedup();
        for block in &used {
            bits[(block / 8) as usize] |= 1 << (block % 8);
        }
        let mut space = std::mem::take(&mut self.space);
        let words: Vec<u64> =
            { bits.as_chunks::<8>().0 }.iter().map(|of| u64::from_le_bytes(*of)).collect();
        let group = GroupItem::bounded(
            used.len() as u64,
            nodes.len() as u64 * self.geometry.node_copies().0,
            self.geometry.free_slots_of_group(0, &words),
            None,
        );
        space.insert(GroupItem::key(0), group.encode());
        for (piece, bits) in bits.chunks(BITMAP_BYTES).enumerate() {
            if bits.iter().any(|&byte| byte != 0) {
                let key = Key::new(InodeNo(0), ItemKind::Bitmap, piece as u64);
                space.insert(key, bits.to_vec());
            }
        }
        assert!(self.geometry.volume_blocks <= GROUP_BLOCKS);
        for change in &self.accounts {
            change(&mut space);
        }
        let space_pointer = NodePointer { block: space_at, epoch: EPOCH };
        let items: Vec<_> = space.into_iter().collect();
        put(&device, space_at, &node_bytes(TreeId::Space, 0, space_pointer, &items));
        let inodes = self.files.keys().filter(|key| key.kind == ItemKind::Inode && key.offset == 0);
        let (root, level) = *files.last().expect("a tree has a root");
        let extents = self.files.iter().filter(|(key, _)| key.kind == ItemKind::Extent);
        let of_extents: u64 = extents.map(|(_, value)| Extent::blocks_in(value)).sum();
        let mut superblock = Superblock {
            epoch: EPOCH.next(),
            geometry: self.geometry,
            uuid,
            label: "sample".into(),
            hash_seed: SEED,
            features_compat: 0,
            features_ro_compat: ((self.geometry.node_copies().0 - 1) * (NODE_COPIES | LEAF_COPIES))
                | if self.geometry.ring_distance == 0 { 0 } else { RING_COPIES },
            files: root,
            files_level: level,
            space: space_pointer,
            space_level: 0,
            lsn: Lsn(100),
            inode_next: NEXT,
            inode_count: inodes.count() as u64,
            used_blocks: used.len() as u64,
            referenced_blocks: files.len() as u64 * self.geometry.slot_blocks() + of_extents,
            journal: JournalMark {
                commit: CommitNo(7),
                next: self.geometry.journal().start,
                sum: 0,
            },
            log: LogMark::START,
            ring_tag: *b"a secret",
            node_tag: NODE_TAG,
            created: time(),
            writer: "a test".into(),
            fault: None,
            rest: Vec::new(),
        };
        for change in &self.superblock {
            change(&mut superblock);
        }
        for block in nodes {
            if let Some(copy) = self.geometry.copy_of(block, stored) {
                let mut bytes = vec![0; NODE];
                device.read(block.0 * BLOCK_BYTES, &mut bytes).expect("it was written");
                put(&device, copy, &bytes);
            }
        }
        let made = Made {
            device,
            superblock: superblock.clone(),
            files: files.into_iter().map(|(pointer, _)| pointer).collect(),
            space: space_pointer,
        };
        made.write_signpost(&superblock);
        made.write_far_copy(&superblock);
        made.write_superblock(0, &superblock);
        made.write_superblock(1, &Superblock { epoch: EPOCH, ..superblock });
        made
    }

    /// Writes leaves, then the levels above them. Returns every node with its level, the root last.
    fn write_tree(
        &mut self,
        device: &MemoryDevice,
        tree: TreeId,
        items: &BTreeMap<Key, Vec<u8>>,
    ) -> Vec<(NodePointer, u8)> {
        let mut nodes = Vec::new();
        let mut records: Vec<(Key, Vec<u8>)> =
            items.iter().map(|(key, value)| (*key, value.clone())).collect();
        for level in 0.. {
            let mut above: Vec<(Key, Vec<u8>)> = Vec::new();
            let mut rest = &records[..];
            loop {
                let mut room = NODE - SLOTS_AT;
                let fitting = rest.iter().take(self.leaf_items).take_while(|(_, value)| {
                    let need = SLOT_SIZE + Key::SIZE + value.len();
                    let fits = need <= room;
                    room = room.saturating_sub(need);
                    fits
                });
                let (part, others) = rest.split_at(fitting.count());
                let block = self.take(self.geometry.node_blocks()).start;
                let pointer = NodePointer { block, epoch: EPOCH };
                put(device, block, &node_bytes(tree, level, pointer, part));
                nodes.push((pointer, level));
                let first = if above.is_empty() { Key::MIN } else { part[0].0 };
                above.push((first, pointer.encode().to_vec()));
                rest = others;
                if rest.is_empty() {
                    break;
                }
            }
            if above.len() == 1 {
                break;
            }
            records = above;
        }
        nodes
    }
}

/// A sealed node.
pub(crate) fn node_bytes(
    tree: TreeId,
    level: u8,
    pointer: NodePointer,
    items: &[(Key, Vec<u8>)],
) -> Vec<u8> {
    let expected = Expected { pointer, tree, level, volume: OfVolume::tagged(NODE_TAG) };
    let mut bytes = node::empty(NODE, &expected);
    let mut heap = NODE;
    for (index, (key, value)) in items.iter().enumerate() {
        let len = Key::SIZE + value.len();
        heap -= len;
        let slot = SLOTS_AT + index * SLOT_SIZE;
        assert!(slot + SLOT_SIZE <= heap, "a node of the test is too full");
        bytes[heap..heap + Key::SIZE].copy_from_slice(&key.encode());
        bytes[heap + Key::SIZE..heap + len].copy_from_slice(value);
        bytes[slot..slot + 2].copy_from_slice(&(heap as u16).to_le_bytes());
        bytes[slot + 2..slot + 4].copy_from_slice(&(len as u16).to_le_bytes());
    }
    bytes[node::COUNT_AT..][..2].copy_from_slice(&(items.len() as u16).to_le_bytes());
    bytes[node::HEAP_START_AT..][..4].copy_from_slice(&(heap as u32).to_le_bytes());
    node::seal(&mut bytes);
    bytes
}

pub(crate) fn put(device: &dyn Device, block: BlockNo, bytes: &[u8]) {
    device.write(block.0 * BLOCK_BYTES, bytes).expect("memory takes every write");
}

impl Made {
    /// Writes one superblock slot.
    pub(crate) fn write_superblock(&self, slot: usize, superblock: &Superblock) {
        let at = SUPERBLOCK_SLOTS[slot];
        put(&self.device, at, &superblock.encode(at)[..]);
    }

    /// Writes the signpost.
    pub(crate) fn write_signpost(&self, superblock: &Superblock) {
        put(&self.device, SIGNPOST, &Signpost::of(superblock).encode()[..]);
    }

    /// Writes the far copy.
    pub(crate) fn write_far_copy(&self, superblock: &Superblock) {
        let at = superblock.geometry.far_copy();
        if (at.0 + 1) * BLOCK_BYTES <= self.device.len() {
            put(&self.device, at, &superblock.encode(at)[..]);
        }
    }

    /// Changes bytes of blocks.
    pub(crate) fn poke(&self, block: BlockNo, len: usize, change: impl FnOnce(&mut [u8])) {
        let mut bytes = vec![0; len];
        let at = block.0 * BLOCK_BYTES;
        self.device.read(at, &mut bytes).expect("memory reads");
        change(&mut bytes);
        put(&self.device, block, &bytes);
    }

    /// Changes a node and seals it.
    pub(crate) fn poke_node(&self, block: BlockNo, change: impl FnOnce(&mut [u8])) {
        self.poke(block, NODE, |bytes| {
            change(bytes);
            node::seal(bytes);
        });
    }

    /// The root of the files tree.
    pub(crate) fn root(&self) -> BlockNo {
        self.superblock.files.block
    }
}

/// A device that fails to read some blocks.
#[derive(Debug)]
pub(crate) struct Rotten(pub(crate) MemoryDevice, pub(crate) BlockRange);

impl Device for Rotten {
    holdfast_device::private!();

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let bad = self.1.start.0 * BLOCK_BYTES..(self.1.start.0 + self.1.count) * BLOCK_BYTES;
        if at < bad.end && at + into.len() as u64 > bad.start {
            let source = std::io::Error::other("the sector is gone");
            return Err(DeviceError::Io { call: "read", at, len: into.len() as u64, source });
        }
        self.0.read(at, into)
    }
    fn write(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        unreachable!("a check never writes")
    }
    fn flush(&self) -> Result<Flushed, DeviceError> {
        unreachable!("a check never flushes")
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        unreachable!("a check never discards")
    }
    fn discards(&self) -> Discards {
        Discards::Refused
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn sector_size(&self) -> u32 {
        self.0.sector_size()
    }
    fn physical_sector_size(&self) -> u32 {
        self.0.physical_sector_size()
    }
    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

/// Checks everything, data too.
pub(crate) fn check_all(device: &dyn Device) -> Report {
    let options = Options { data: true, ..Options::default() };
    check(device, &options).expect("a superblock can be read")
}

/// The issues found, each once, in order.
pub(crate) fn issues(report: &Report) -> Vec<Issue> {
    let mut issues: Vec<_> = report.findings.iter().map(|finding| finding.issue()).collect();
    issues.sort_unstable();
    issues.dedup();
    issues
}

/// Everything that reads an image.
pub(crate) fn use_all(device: &dyn Device) {
    let report = check(device, &holdfast_check::Options { data: true, progress: None });
    let mut out = Vec::new();
    let mut print = |what| drop(dump(device, &what, &mut out));
    print(Subject::Superblocks);
    print(Subject::Journal);
    print(Subject::Log);
    print(Subject::Tree(TreeId::Files));
    print(Subject::Tree(TreeId::Space));
    print(Subject::Inode(DATA));
    print(Subject::path(b"/dir/data"));
    if let Some(finding) = report.iter().flat_map(|report| &report.findings).next()
        && let Some(block) = finding.block
    {
        print(Subject::Node(block));
    }
    probe(device);
    identify(device);
}
