//! The volumes that are damaged: what was acknowledged of them, which block is what, and what each block held before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, TreeId};
use holdfast_device::sim::Event;
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::Extent;
use holdfast_format::journal::{FrameHeader, JournalMark};
use holdfast_format::log::LogHeader;
use holdfast_format::node::Expected;
use holdfast_format::{ItemKind, NodePointer, NodeView, Stored, Superblock};
use holdfast_script::{Script, Target, Tree};
use holdfast_sim::{Engine, Setup};

/// Hardly more than the smallest: rings wrap around, and blocks are used again.
const VOLUME: u64 = 8 << 20;
/// The same for a volume whose nodes take twice as much.
const VOLUME_WITH_COPIES: u64 = 10 << 20;
/// Blocks of one kind that are damaged, spread over all that there are.
const OF_A_KIND: usize = 4;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    NewSuperblock,
    OldSuperblock,
    SpaceLeaf,
    FilesInner,
    FilesLeaf,
    /// Of a node, in the place of its copy.
    Copy,
    /// Of a node, in both places.
    Both,
    Commit,
    LastCommit,
    Batch,
    LastBatch,
    Data,
    DeadRing,
    Free,
}

impl Kind {
    pub(crate) const ALL: [Kind; 14] = [
        Kind::NewSuperblock,
        Kind::OldSuperblock,
        Kind::SpaceLeaf,
        Kind::FilesInner,
        Kind::FilesLeaf,
        Kind::Copy,
        Kind::Both,
        Kind::Commit,
        Kind::LastCommit,
        Kind::Batch,
        Kind::LastBatch,
        Kind::Data,
        Kind::DeadRing,
        Kind::Free,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::NewSuperblock => "superblock that counts",
            Kind::OldSuperblock => "superblock before it",
            Kind::SpaceLeaf => "space tree, leaf",
            Kind::FilesInner => "files tree, inner node",
            Kind::FilesLeaf => "files tree, leaf",
            Kind::Copy => "copy of a node",
            Kind::Both => "node and its copy",
            Kind::Commit => "journal, a commit",
            Kind::LastCommit => "journal, the last commit",
            Kind::Batch => "log, a batch",
            Kind::LastBatch => "log, the last batch",
            Kind::Data => "file data",
            Kind::DeadRing => "rings, dead part",
            Kind::Free => "free block",
        }
    }

    /// Its loss looks like a power cut before it was flushed.
    pub(crate) fn is_last(self) -> bool {
        matches!(self, Kind::LastCommit | Kind::LastBatch)
    }

    /// Everything may be there without it.
    pub(crate) fn may_be_spare(self) -> bool {
        let superblock = matches!(self, Kind::NewSuperblock | Kind::OldSuperblock);
        // The log holds what the last commit does until the commit is known to be durable, and longer.
        superblock || matches!(self, Kind::DeadRing | Kind::Free | Kind::LastCommit)
    }
}

/// A block to be damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    /// Byte offset.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) len: usize,
    /// Where the same is stored once more.
    pub(crate) copy: Option<u64>,
}

/// A volume and all that is known of it.
pub(crate) struct Volume {
    pub(crate) image: MemoryDevice,
    pub(crate) told: Tree,
    pub(crate) blocks: Vec<Block>,
    /// Names of findings before any damage.
    pub(crate) findings: BTreeSet<String>,
    /// Everything that was written.
    events: Vec<Event>,
    base: MemoryDevice,
    /// All blocks of each kind, also those that are not damaged.
    places: BTreeMap<Kind, Vec<Block>>,
}

/// With each node stored so many times.
pub(crate) fn setup(copies: u8) -> Setup {
    let mut setup = Setup::new(4096, 16);
    setup.mkfs.metadata_copies = copies;
    setup
}

fn apply(engine: &mut Engine, text: &str) {
    let script: Script = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    for op in script.ops() {
        let done = engine.apply(op);
        assert!(matches!(done, holdfast_script::Outcome::Ok(_)), "{op}: {done}");
    }
}

/// Files enough for a tree of some leaves, changed again and again, with checkpoints between.
fn work(device: &Arc<SimDevice>) -> Engine {
    let mut engine = Engine::open(device.clone(), setup(1)).unwrap();
    for round in 0..6 {
        apply(&mut engine, &format!("mkdir /d{round}"));
        for number in 0..40 {
            let (len, seed) = ([100, 9000, 90_000][number % 3], number + round * 100);
            let path = format!("/d{round}/file-{number}");
            apply(
                &mut engine,
                &format!(
                    "mkfile {path}; write {path} 0 {len} {seed}; setxattr {path} user.a 60 {seed}"
                ),
            );
            if round > 0 && number % 4 == 0 {
                apply(
                    &mut engine,
                    &format!(
                        "unlink /d{}/file-{number}; write /d{}/file-{} 500 3000 {seed}",
                        round - 1,
                        round - 1,
                        number + 1
                    ),
                );
            }
            if number % 10 == 9 {
                apply(&mut engine, &format!("fsync {path}"));
                engine.filesystem().unwrap().commit().unwrap();
            }
        }
        // The log's ring wraps around as well.
        for number in 0..25 {
            apply(
                &mut engine,
                &format!("write /d{round}/file-0 0 3500 {number}; fsync /d{round}/file-0"),
            );
        }
        apply(&mut engine, "sync");
        if round > 0 {
            let old = format!("/d{}/file-", round - 1);
            (0..40)
                .filter(|number| number % 3 == 2 && number % 4 != 0)
                .for_each(|number| apply(&mut engine, &format!("unlink {old}{number}")));
        }
        engine.filesystem().unwrap().checkpoint().unwrap();
    }
    engine
}

fn formatted(copies: u8) -> (MemoryDevice, Arc<SimDevice>) {
    let bytes = if copies == 1 { VOLUME } else { VOLUME_WITH_COPIES };
    let base = Arc::new(MemoryDevice::new(bytes));
    drop(Engine::create(base.clone(), setup(copies)).unwrap().unmount());
    let device = Arc::new(SimDevice::new(&base));
    (base.snapshot(), device)
}

impl Volume {
    /// Unmounted.
    pub(crate) fn left_in_order(copies: u8) -> Volume {
        let (base, device) = formatted(copies);
        let mut engine = work(&device);
        engine.unmount().unwrap();
        Volume::new(
            base,
            &device,
            &[
                Kind::NewSuperblock,
                Kind::OldSuperblock,
                Kind::SpaceLeaf,
                Kind::FilesInner,
                Kind::FilesLeaf,
                Kind::Copy,
                Kind::Both,
                Kind::Data,
                Kind::DeadRing,
                Kind::Free,
            ],
        )
    }

    /// Killed behind commits and fsyncs that no checkpoint contains.
    pub(crate) fn crashed(copies: u8) -> Volume {
        let (base, device) = formatted(copies);
        let mut engine = work(&device);
        for number in 0..4 {
            apply(
                &mut engine,
                &format!(
                    "mkfile /late{number}; write /late{number} 0 3000 {number}; fsync /late{number}"
                ),
            );
            engine.filesystem().unwrap().commit().unwrap();
        }
        for number in 4..8 {
            apply(
                &mut engine,
                &format!(
                    "mkfile /late{number}; write /late{number} 0 700 {number}; fsync /late{number}"
                ),
            );
        }
        engine.kill();
        Volume::new(
            base,
            &device,
            &[
                Kind::NewSuperblock,
                Kind::OldSuperblock,
                Kind::Commit,
                Kind::LastCommit,
                Kind::Batch,
                Kind::LastBatch,
                Kind::Data,
            ],
        )
    }

    fn new(base: MemoryDevice, device: &SimDevice, wanted: &[Kind]) -> Volume {
        let image = device.image();
        let events = device.recording().events;
        let mut engine = Engine::open(Arc::new(image.snapshot()), setup(1)).unwrap();
        let told = engine.walk().unwrap();
        engine.unmount().unwrap();
        let (findings, _) = super::fsck(&image);
        let places = places(&image);
        let blocks = wanted.iter().flat_map(|kind| {
            let all = places.get(kind).map_or(&[][..], Vec::as_slice);
            let spread = all.iter().copied().step_by(all.len().div_ceil(OF_A_KIND).max(1));
            // Those that have served before can be stale as well.
            let past = |block: &&Block| {
                past(&base, &events, block).iter().any(|bytes| is_something(bytes))
            };
            spread.chain(all.iter().filter(past).take(OF_A_KIND).copied())
        });
        let blocks = blocks.collect();
        Volume { image, told, blocks, findings, events, base, places }
    }

    pub(crate) fn bytes(&self, block: &Block) -> Vec<u8> {
        read(&self.image, block.at, block.len)
    }

    /// See [`past`].
    pub(crate) fn past(&self, block: &Block) -> Vec<Vec<u8>> {
        past(&self.base, &self.events, block)
    }

    /// What was meant for another block of the same kind, or of file data.
    pub(crate) fn stray(&self, block: &Block) -> Option<Vec<u8>> {
        let kinds = [block.kind, Kind::Data, Kind::Batch, Kind::NewSuperblock];
        let others = kinds.iter().filter_map(|kind| self.places.get(kind)).flatten();
        let other = others.copied().find(|other| other.at != block.at)?;
        Some(self.bytes(&other))
    }
}

fn is_something(bytes: &[u8]) -> bool {
    bytes.iter().any(|&byte| byte != 0)
}

/// What a block held before each write that changed it, the oldest first.
fn past(base: &MemoryDevice, events: &[Event], block: &Block) -> Vec<Vec<u8>> {
    let mut now = read(base, block.at, block.len);
    let mut past = Vec::new();
    for event in events {
        let Event::Write { at, bytes, .. } = event else { continue };
        let (start, end) =
            (block.at.max(*at), (block.at + block.len as u64).min(at + bytes.len() as u64));
        if start >= end {
            continue;
        }
        let new = &bytes[(start - at) as usize..(end - at) as usize];
        let old = &mut now[(start - block.at) as usize..(end - block.at) as usize];
        if old != new {
            let mut before = now.clone();
            std::mem::swap(&mut before, &mut now);
            now[(start - block.at) as usize..(end - block.at) as usize].copy_from_slice(new);
            past.push(before);
        }
    }
    past
}

fn read(device: &MemoryDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read(at, &mut bytes).unwrap();
    bytes
}

/// Which block is what.
fn places(image: &MemoryDevice) -> BTreeMap<Kind, Vec<Block>> {
    let mut places: BTreeMap<Kind, Vec<Block>> = BTreeMap::new();
    let mut put = |kind, at, len, copy| {
        places.entry(kind).or_default().push(Block { kind, at, len, copy });
    };
    let mut slots: Vec<(BlockNo, Superblock)> = Vec::new();
    for slot in SUPERBLOCK_SLOTS {
        let bytes = read(image, slot.0 * BLOCK_BYTES, 4096);
        slots.push((slot, Superblock::decode(&bytes[..].try_into().unwrap(), slot).unwrap()));
    }
    slots.sort_by_key(|(_, superblock)| superblock.epoch);
    let mut add = |kind, at, len| put(kind, at, len, None);
    add(Kind::OldSuperblock, slots[0].0.0 * BLOCK_BYTES, 4096);
    add(Kind::NewSuperblock, slots[1].0.0 * BLOCK_BYTES, 4096);
    let superblock = &slots[1].1;
    let mut used = BTreeSet::new();
    let mut walk = Walk { image, superblock, found: Vec::new() };
    walk.node(superblock.files, TreeId::Files, superblock.files_level);
    walk.node(superblock.space, TreeId::Space, superblock.space_level);
    let geometry = superblock.geometry;
    for (kind, block) in walk.found {
        let stored = match kind {
            Kind::Data => Stored::Once,
            Kind::FilesLeaf => geometry.stored(TreeId::Files, 0),
            _ => geometry.stored(TreeId::Space, 0),
        };
        let copy = geometry.copy_of(BlockNo(block), stored);
        let copy = copy.map(|copy| copy.0);
        used.extend([Some(block), copy].into_iter().flatten());
        let [at, copy] = [Some(block), copy].map(|block| block.map(|block| block * BLOCK_BYTES));
        let at = at.unwrap();
        put(kind, at, 4096, copy);
        if let Some(copy) = copy {
            put(Kind::Copy, copy, 4096, Some(at));
            put(Kind::Both, at, 4096, Some(copy));
        }
    }
    let distance = geometry.ring_distance * BLOCK_BYTES;
    let mut add_twice = |kind, at, len| match (kind, distance) {
        (Kind::DeadRing, _) | (_, 0) => put(kind, at, len, None),
        _ => {
            put(kind, at, len, Some(at + distance));
            put(kind, at + distance, len, Some(at));
        }
    };
    journal(image, superblock, &mut add_twice);
    log(image, superblock, &mut add_twice);
    let mut add = |kind, at, len| put(kind, at, len, None);
    let all = geometry.first_data_block().0..geometry.volume_blocks;
    for block in all.filter(|block| !used.contains(block)).take(4000).step_by(333) {
        add(Kind::Free, block * BLOCK_BYTES, 4096);
    }
    places
}

struct Walk<'a> {
    image: &'a MemoryDevice,
    superblock: &'a Superblock,
    found: Vec<(Kind, u64)>,
}

impl Walk<'_> {
    fn node(&mut self, pointer: NodePointer, tree: TreeId, level: u8) {
        let bytes = read(self.image, pointer.block.0 * BLOCK_BYTES, 4096);
        let volume = self.superblock.nodes();
        let node = NodeView::open(&bytes, &Expected { pointer, tree, level, volume }).unwrap();
        let kind = match (tree, level) {
            (TreeId::Space, _) => Kind::SpaceLeaf,
            (_, 0) => Kind::FilesLeaf,
            _ => Kind::FilesInner,
        };
        self.found.push((kind, pointer.block.0));
        for index in 0..node.count() {
            if level > 0 {
                self.node(node.child(index), tree, level - 1);
            } else if node.key(index).kind == ItemKind::Extent {
                let extent = Extent::decode(node.value(index)).unwrap();
                let first = extent.blocks.start.0;
                self.found
                    .extend((first..first + extent.blocks.count).map(|block| (Kind::Data, block)));
            }
        }
    }
}

/// The chain of commits behind the superblock, and what lies before it.
fn journal(image: &MemoryDevice, superblock: &Superblock, add: &mut impl FnMut(Kind, u64, usize)) {
    let ring = superblock.geometry.journal();
    let mut mark: JournalMark = superblock.journal;
    let mut chain = Vec::new();
    loop {
        let at = mark.next.0 * BLOCK_BYTES;
        let Ok(header) = FrameHeader::decode(&read(image, at, 4096)) else { break };
        if header.commit != mark.commit.0 + 1 || header.prior != mark.sum || header.len == 0 {
            break;
        }
        assert_eq!(header.frames, 1, "commits are small here");
        chain.push((at, header.blocks() as usize * 4096));
        mark.commit = mark.commit.next();
        mark.sum = header.sum;
        mark.next = holdfast_format::journal::next_block(ring, mark.next, header.blocks());
    }
    if let Some((last, others)) = chain.split_last() {
        others.iter().for_each(|&(at, len)| add(Kind::Commit, at, len));
        add(Kind::LastCommit, last.0, last.1);
    } else {
        // Behind what an opening looks at first, and before it.
        let back = (mark.next.0 + ring.count - ring.start.0 - 3) % ring.count + ring.start.0;
        add(Kind::DeadRing, back * BLOCK_BYTES, 4096);
    }
}

fn log(image: &MemoryDevice, superblock: &Superblock, add: &mut impl FnMut(Kind, u64, usize)) {
    let ring = superblock.geometry.log();
    let start = ring.start.0 * BLOCK_BYTES;
    let (mut next, mut number, mut chain) =
        (superblock.log.next, superblock.log.batch.0, Vec::new());
    while let Ok(header) = LogHeader::decode(&read(image, start + next, 512)) {
        if header.number != number + 1 {
            break;
        }
        chain.push((start + next, header.bytes as usize));
        next += u64::from(header.bytes);
        number += 1;
    }
    // Of those, the ones that no commit contains: the last four.
    if let Some((last, others)) = chain.split_last() {
        let counts = others.len().saturating_sub(3);
        others[counts..].iter().for_each(|&(at, len)| add(Kind::Batch, at, len));
        others[..counts].iter().for_each(|&(at, len)| add(Kind::DeadRing, at, len));
        add(Kind::LastBatch, last.0, last.1);
    } else if superblock.log.next >= 512 {
        add(Kind::DeadRing, start + superblock.log.next - 512, 512);
    }
}
