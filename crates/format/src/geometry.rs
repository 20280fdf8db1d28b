//! Where zones begin and end: pure arithmetic on the numbers of a volume.

use holdfast_base::TreeId;
use holdfast_base::units::{BLOCK_BYTES, BlockNo, BlockRange};

use crate::Malformed;
use crate::limits::{
    FIRST_JOURNAL_BLOCKS, FIRST_LOG_BLOCKS, GROUP_BLOCKS, JOURNAL_BLOCKS_MIN, LOG_BLOCKS_MIN,
    NODE_SIZES, VOLUME_BYTES_MAX, VOLUME_BYTES_MIN,
};

/// Blocks that hold a superblock. They alternate; neither moves in a volume's life.
pub const SUPERBLOCK_SLOTS: [BlockNo; 2] = [BlockNo(16), BlockNo(48)];
/// The block that says which program has the volume open, where that may be unknown to others (see [`guard`](crate::guard)).
pub const GUARD: BlockNo = BlockNo(32);
/// The block that says how large the volume is (see [`signpost`](crate::signpost)): behind the first MiB, which other programs overwrite when
/// they take the device for theirs, and not at its very end, where they let a partition begin.
pub const SIGNPOST: BlockNo = BlockNo(264);
/// First block that a ring may have, and where mkfs puts the log. With signpost and far copy a volume that has lost its first MiB lacks nothing.
pub const LOG_START: BlockNo = BlockNo(272);
/// The zones begin and end at multiples of this: nodes are aligned to their own size, up to 64 KiB.
const ALIGNMENT: u64 = NODE_SIZES[2] as u64 / BLOCK_BYTES;

/// A copy of a node lies at a multiple of so many blocks from it: its bits in a bitmap are those of another word.
const COPY_UNIT: u64 = 64;
/// An odd MiB between a node and its copy.
const COPY_ODD: u64 = (1 << 20) / BLOCK_BYTES;

/// From so many MiB of rings on, a ring and its second place are an odd number of MiB apart: that takes at most two MiB more.
const RING_ODD_MIN: u64 = 32;

/// Fewer slots than these leave nothing beside what is kept for commits and removals.
const COPY_SLOTS_MIN: u64 = 96;

const _: () = assert!(COPY_UNIT.is_multiple_of(ALIGNMENT));

/// Where a volume of so many blocks has the far copy of its superblock: the first block of its last whole 64 KiB. What
/// partition tables write at the end of a device lies behind it.
pub fn far_copy(volume_blocks: u64) -> BlockNo {
    BlockNo((volume_blocks / ALIGNMENT).saturating_sub(1) * ALIGNMENT)
}

/// How often a node is stored: its tree and its level say, wherever it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stored {
    /// At its own place alone.
    Once,
    /// At its own place, and at that of its copy.
    Twice,
}

/// The shape of a volume, fixed by mkfs but for its size and the lengths of its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the volume.
    pub volume_blocks: u64,
    /// Bytes of a tree node.
    pub node_size: usize,
    /// First block of the log ring.
    pub log_start: u64,
    /// Blocks of the log ring that are in use.
    pub log_blocks: u64,
    /// First block of the journal ring.
    pub journal_start: u64,
    /// Blocks of the journal ring that are in use.
    pub journal_blocks: u64,
    /// First block of the data zone. Before it the rings have room to become longer.
    pub data_start: u64,
    /// A node at block `b` that is stored twice has its copy at block `b ^ copy_mask`. 0: each node is stored once.
    pub copy_mask: u64,
    /// If there are copies, the leaves of files trees have them as well.
    pub leaf_copies: bool,
    /// What stands at block `b` of a ring stands a second time at block `b + ring_distance`. 0: it does not.
    pub ring_distance: u64,
}

impl Geometry {
    /// A sensible shape for a device of `bytes` bytes, all of its rings in use.
    ///
    /// The rings have room for at most a sixteenth of the volume each, at most 32 MiB (log) and 128 MiB (journal).
    pub fn for_device(bytes: u64, node_size: usize) -> Result<Geometry, Malformed> {
        Geometry::with_rings(bytes, node_size, None, None)
    }

    /// The same with rings of so many bytes, where that is said. What is not a multiple of a block is rounded up.
    pub fn with_rings(
        bytes: u64,
        node_size: usize,
        log_bytes: Option<u64>,
        journal_bytes: Option<u64>,
    ) -> Result<Geometry, Malformed> {
        let volume_blocks = bytes / BLOCK_BYTES;
        let blocks = |bytes: Option<u64>| bytes.map(|bytes| bytes.div_ceil(BLOCK_BYTES));
        let log = blocks(log_bytes).unwrap_or((volume_blocks / 64).clamp(LOG_BLOCKS_MIN, 8192));
        let journal =
            blocks(journal_bytes).unwrap_or((volume_blocks / 32).clamp(JOURNAL_BLOCKS_MIN, 32768));
        let geometry = Geometry {
            volume_blocks,
            node_size,
            log_start: LOG_START.0,
            log_blocks: log,
            journal_start: 0,
            journal_blocks: journal,
            data_start: 0,
            copy_mask: 0,
            leaf_copies: false,
            ring_distance: 0,
        };
        let geometry = geometry.with_ring_blocks(log, journal);
        geometry.check_own()?;
        Ok(geometry)
    }

    /// The same volume with rings that have room for so many blocks each, all of them in use.
    pub fn with_ring_blocks(self, log_blocks: u64, journal_blocks: u64) -> Geometry {
        let journal_start = LOG_START.0.saturating_add(log_blocks);
        let end = journal_start.saturating_add(journal_blocks).saturating_add(self.ring_distance);
        let data_start = end.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
        let log_start = LOG_START.0;
        Geometry { log_start, log_blocks, journal_start, journal_blocks, data_start, ..self }
    }

    /// The same volume whose rings are in use as far as a new one needs them, where they have room for more: the host of a sparse image
    /// pays for what is there.
    pub fn with_first_rings(self) -> Geometry {
        let log_blocks = self.log_room().min(FIRST_LOG_BLOCKS);
        let journal_blocks = self.journal_room().min(FIRST_JOURNAL_BLOCKS);
        Geometry { log_blocks, journal_blocks, ..self }
    }

    /// The most blocks that the log can have where it is.
    pub fn log_room(&self) -> u64 {
        self.room_of_ring(self.log_start)
    }

    /// The most blocks that the journal can have where it is.
    pub fn journal_room(&self) -> u64 {
        self.room_of_ring(self.journal_start)
    }

    /// Blocks from the first one of a ring up to what lies behind it, in the place that has fewer.
    fn room_of_ring(&self, start: u64) -> u64 {
        let [log, journal] = [self.log_start, self.journal_start];
        let room = |distance: u64| {
            let start = start.saturating_add(distance);
            let starts = self
                .ring_places()
                .flat_map(|place| [log, journal].map(|at| at.saturating_add(place)));
            let next = starts.chain([self.data_start]).filter(|at| *at > start).min();
            next.map_or(0, |next| next.saturating_sub(start))
        };
        self.ring_places().map(room).min().unwrap_or(0)
    }

    /// As [`Geometry::check`], for a volume that is made, changed or opened: it is also not larger than a program deals with.
    pub fn check_own(&self) -> Result<(), Malformed> {
        if self.volume_blocks > VOLUME_BYTES_MAX / BLOCK_BYTES {
            let why = format!(
                "{} blocks of 4 KiB are more than the {} TiB that this program makes and mounts",
                self.volume_blocks,
                VOLUME_BYTES_MAX >> 40
            );
            return Err(Malformed::new("geometry", why));
        }
        self.check()
    }

    /// Fails unless every zone fits the volume and the node size is one of those offered.
    pub fn check(&self) -> Result<(), Malformed> {
        let fail = |why: String| Err(Malformed::new("geometry", why));
        if !NODE_SIZES.contains(&self.node_size) {
            return fail(format!("node size {} is not 4, 16 or 64 KiB", self.node_size));
        }
        if self.volume_blocks < VOLUME_BYTES_MIN / BLOCK_BYTES {
            return fail(format!("a volume needs at least {} MiB", VOLUME_BYTES_MIN >> 20));
        }
        // Behind this, places in bytes could not be counted.
        if self.volume_blocks > i64::MAX as u64 / BLOCK_BYTES {
            return fail(format!("{} blocks of 4 KiB are too many", self.volume_blocks));
        }
        if self.log_blocks < LOG_BLOCKS_MIN || self.journal_blocks < JOURNAL_BLOCKS_MIN {
            return fail(format!(
                "the log needs at least {} KiB, and the journal {} KiB",
                (LOG_BLOCKS_MIN * BLOCK_BYTES) >> 10,
                (JOURNAL_BLOCKS_MIN * BLOCK_BYTES) >> 10
            ));
        }
        self.check_rings().or_else(|why| fail(why.into()))?;
        if self.data_blocks() < 2 * self.node_blocks() {
            return fail("no room is left for the roots of the trees".into());
        }
        if self.copy_mask >= GROUP_BLOCKS || !self.copy_mask.is_multiple_of(COPY_UNIT) {
            return fail(format!("no copy can be at a distance of {:#x} blocks", self.copy_mask));
        }
        if self.leaf_copies && self.copy_mask == 0 {
            return fail("leaves have copies, and nothing says where".into());
        }
        Ok(())
    }

    /// Fails unless the rings, in all their places, lie apart between the signpost and the data zone, and that lies in the volume.
    fn check_rings(&self) -> Result<(), &'static str> {
        const FIT: &str = "the rings do not fit the volume";
        let end = |start: u64, blocks: u64| start.checked_add(blocks).ok_or(FIT);
        let log_end = end(self.log_start, self.log_blocks)?;
        let journal_end = end(self.journal_start, self.journal_blocks)?;
        let (first, last) = (self.log_start.min(self.journal_start), log_end.max(journal_end));
        if first < LOG_START.0 || self.data_start >= self.far_copy().0 {
            return Err(FIT);
        }
        if end(last, self.ring_distance)? > self.data_start {
            return Err(FIT);
        }
        if !self.data_start.is_multiple_of(ALIGNMENT) {
            return Err("the data zone does not begin at a multiple of 16 blocks");
        }
        if log_end > self.journal_start && journal_end > self.log_start {
            return Err("one ring lies in the other");
        }
        if self.ring_distance != 0 && self.ring_distance < last - first {
            return Err("the second places of the rings lie in the first");
        }
        Ok(())
    }

    /// The same volume of which everything but data is stored twice: rings and all nodes. Fails as [`Geometry::with_root_copies`] does.
    pub fn with_copies(self) -> Result<Geometry, Malformed> {
        self.with_ring_copies()?.with_node_copies()
    }

    /// The same volume whose nodes have copies, all of them. Fails as [`Geometry::with_root_copies`] does.
    pub fn with_node_copies(self) -> Result<Geometry, Malformed> {
        Ok(Geometry { leaf_copies: true, ..self.with_root_copies()? })
    }

    /// The same volume whose rings stand twice, one pair behind the other: an odd number of MiB apart, where they are large.
    pub fn with_ring_copies(self) -> Result<Geometry, Malformed> {
        let (log, journal) = (self.log_room(), self.journal_room());
        let rings = log.saturating_add(journal);
        let ring_distance = match rings.div_ceil(COPY_ODD) {
            0..RING_ODD_MIN => rings.next_multiple_of(ALIGNMENT),
            odd => (odd | 1).saturating_mul(COPY_ODD),
        };
        let Geometry { log_blocks, journal_blocks, .. } = self;
        let apart = Geometry { ring_distance, ..self }.with_ring_blocks(log, journal);
        let geometry = Geometry { log_blocks, journal_blocks, ..apart };
        geometry.check()?;
        Ok(geometry)
    }

    /// The same volume of which what is near the roots has copies: what stands above the leaves, and the space tree. As far away as a block
    /// group and the volume allow, and so that neither damage to one region nor to every second MiB takes both. Fails where too little of
    /// the volume has a place for a copy.
    pub fn with_root_copies(self) -> Result<Geometry, Malformed> {
        let mut distance = GROUP_BLOCKS / 2;
        while distance >= COPY_UNIT {
            let odd = if distance > COPY_ODD { COPY_ODD } else { 0 };
            let geometry = Geometry { copy_mask: distance | odd, ..self };
            if geometry.has_places_for_copies() {
                return Ok(geometry);
            }
            distance /= 2;
        }
        Err(Malformed::new("geometry", "the volume is too small for copies of nodes of this size"))
    }

    /// Whether enough of the volume has a place for a copy, if nodes have any: nodes need little of a volume, but what they may need must
    /// not depend on where its end is.
    pub fn has_places_for_copies(&self) -> bool {
        if self.copy_mask == 0 {
            return true;
        }
        let slots = (0..self.group_count()).map(|group| self.slots_of_group(group));
        let slots: u64 = slots.sum();
        slots >= COPY_SLOTS_MIN && slots * self.slot_blocks() >= self.data_blocks() / 2
    }

    /// How often a node of this tree and level is stored.
    pub fn stored(&self, tree: TreeId, level: u8) -> Stored {
        let is_near_a_root = level > 0 || tree == TreeId::Space;
        match self.copy_mask != 0 && (is_near_a_root || self.leaf_copies) {
            true => Stored::Twice,
            false => Stored::Once,
        }
    }

    /// How often a node is stored at most, 1 or 2, and how often a leaf of a files tree is.
    pub fn node_copies(&self) -> (u64, u64) {
        (1 + u64::from(self.copy_mask != 0), 1 + u64::from(self.leaf_copies))
    }

    /// Blocks that a node takes, with its copy if it has one.
    pub fn blocks_of(&self, stored: Stored) -> u64 {
        match stored {
            Stored::Once => self.node_blocks(),
            Stored::Twice => 2 * self.node_blocks(),
        }
    }

    /// Blocks of a slot: room for a node, however often it is stored.
    pub fn slot_blocks(&self) -> u64 {
        self.node_blocks() * self.node_copies().0
    }

    /// Where the copy of the node at `block` is, if it is stored twice.
    pub fn copy_of(&self, block: BlockNo, stored: Stored) -> Option<BlockNo> {
        (stored == Stored::Twice).then_some(BlockNo(block.0 ^ self.copy_mask))
    }

    /// The blocks of the node at `block`, and those of its copy.
    pub fn places_of_node(
        &self,
        block: BlockNo,
        stored: Stored,
    ) -> impl Iterator<Item = BlockRange> + use<> {
        let count = self.node_blocks();
        let places = [Some(block), self.copy_of(block, stored)].into_iter().flatten();
        places.map(move |block| BlockRange::new(block, count))
    }

    /// Where the node at `block` may be read of which nothing else is known: its bytes say whose they are.
    pub fn places_of_some_node(&self, block: BlockNo) -> impl Iterator<Item = BlockRange> + use<> {
        let has_copy = self.copy_mask != 0 && self.holds_node(block, Stored::Twice);
        self.places_of_node(block, if has_copy { Stored::Twice } else { Stored::Once })
    }

    /// Places of group `index`: where a node that is stored once could be, if nothing were in use.
    pub fn places_of_group(&self, index: u64) -> u64 {
        Geometry { copy_mask: 0, leaf_copies: false, ..*self }.slots_of_group(index)
    }

    /// Slots of group `index`: where a node could be however often it is stored, if nothing were in use.
    pub fn slots_of_group(&self, index: u64) -> u64 {
        let (inside, count) = (self.group_blocks(index), self.node_blocks());
        if inside.count == GROUP_BLOCKS {
            return GROUP_BLOCKS / self.slot_blocks();
        }
        let slots = |start: u64, end: u64| (end / count).saturating_sub(start.div_ceil(count));
        let (start, end) = (inside.start.0, inside.start.0 + inside.count);
        if self.copy_mask == 0 {
            return slots(start, end);
        }
        // Unit by unit: a copy's unit is a node's, moved as a whole.
        let units = (start / COPY_UNIT..end.div_ceil(COPY_UNIT)).map(|unit| unit * COPY_UNIT);
        let of_unit = |unit: u64| {
            let copy = unit ^ self.copy_mask;
            if copy < unit {
                return 0;
            }
            let skipped = start.saturating_sub(unit).max(start.saturating_sub(copy));
            let left = end.saturating_sub(unit).min(end.saturating_sub(copy));
            slots(skipped, left.min(COPY_UNIT))
        };
        units.map(of_unit).sum()
    }

    /// Slots of a group that are free, if `used` has a bit for each of its blocks that is in use.
    pub fn free_slots_of_group(&self, index: u64, used: &[u64]) -> u64 {
        let (inside, place) = (self.group_blocks(index), self.node_blocks());
        let start = inside.start.0.saturating_sub(index * GROUP_BLOCKS);
        let end = start + inside.count;
        let first_bits = |count: u64| u64::MAX.checked_shr(64 - count.min(64) as u32).unwrap_or(0);
        let taken = |word: usize| {
            let at = word as u64 * 64;
            let is_inside =
                first_bits(end.saturating_sub(at)) & !first_bits(start.saturating_sub(at));
            used.get(word).copied().unwrap_or(0) | !is_inside
        };
        // One bit for each place of a word.
        let places = u64::MAX / first_bits(place);
        let slots = |word: usize| {
            let mut taken = taken(word) | taken(word ^ (self.copy_mask / 64) as usize);
            for bits in (0..place.ilog2()).map(|bit| 1 << bit) {
                taken |= taken >> bits;
            }
            u64::from((!taken & places).count_ones())
        };
        // A node and its copy lie in two words.
        (0..(GROUP_BLOCKS / 64) as usize).map(slots).sum::<u64>() / self.node_copies().0
    }

    /// The log ring, as far as it is in use.
    pub fn log(&self) -> BlockRange {
        BlockRange::new(BlockNo(self.log_start), self.log_blocks)
    }

    /// The journal ring, as far as it is in use.
    pub fn journal(&self) -> BlockRange {
        BlockRange::new(BlockNo(self.journal_start), self.journal_blocks)
    }

    /// How far from its first place each place is at which a block of a ring stands, in blocks: 0, and the distance if there are two.
    pub fn ring_places(&self) -> impl Iterator<Item = u64> + Clone + use<> {
        let second = (self.ring_distance != 0).then_some(self.ring_distance);
        [Some(0), second].into_iter().flatten()
    }

    /// Each place of a ring.
    pub fn places_of_ring(&self, ring: BlockRange) -> impl Iterator<Item = BlockRange> + use<> {
        self.ring_places().map(move |distance| {
            BlockRange::new(BlockNo(ring.start.0.saturating_add(distance)), ring.count)
        })
    }

    /// Both rings as far as they are in use, each in all its places.
    pub fn rings(&self) -> impl Iterator<Item = BlockRange> + use<> {
        let journal = self.places_of_ring(self.journal());
        self.places_of_ring(self.log()).chain(journal)
    }

    /// From the first block that a ring may have up to the data.
    pub fn ring_zone(&self) -> BlockRange {
        BlockRange::new(LOG_START, self.data_start.saturating_sub(LOG_START.0))
    }

    /// First block that the allocator may give away. Blocks before it belong to no bitmap.
    pub fn first_data_block(&self) -> BlockNo {
        BlockNo(self.data_start)
    }

    /// The block that holds the far copy of the superblock. The data zone ends before it.
    pub fn far_copy(&self) -> BlockNo {
        far_copy(self.volume_blocks)
    }

    /// Blocks that the allocator may give away.
    pub fn data_blocks(&self) -> u64 {
        self.far_copy().0.saturating_sub(self.data_start)
    }

    /// Blocks of a node.
    pub fn node_blocks(&self) -> u64 {
        self.node_size as u64 / BLOCK_BYTES
    }

    /// Number of block groups, the last one possibly short. Group `g` covers the blocks from
    /// `g * GROUP_BLOCKS` on, counted from the start of the volume.
    pub fn group_count(&self) -> u64 {
        self.far_copy().0.div_ceil(GROUP_BLOCKS)
    }

    /// The blocks of group `index` that the allocator may give away: less the zones before
    /// [`Geometry::first_data_block`] and what lies behind the end of the data zone.
    pub fn group_blocks(&self, index: u64) -> BlockRange {
        // Saturating: the index may come from a key on disk. A group that does not exist is empty.
        let begin = index.saturating_mul(GROUP_BLOCKS);
        let start = begin.max(self.first_data_block().0);
        let end = begin.saturating_add(GROUP_BLOCKS).min(self.far_copy().0);
        BlockRange::new(BlockNo(start), end.saturating_sub(start))
    }

    /// Whether `range` lies in the zone of data and nodes.
    pub fn holds_data(&self, range: BlockRange) -> bool {
        range.start >= self.first_data_block() && range.fits_below(self.far_copy().0)
    }

    /// Whether a node may live at `at`: inside the data zone and aligned to the node size, before its copy, and the copy as well.
    pub fn holds_node(&self, at: BlockNo, stored: Stored) -> bool {
        at.0.is_multiple_of(self.node_blocks())
            && self.copy_of(at, stored).is_none_or(|copy| at < copy)
            && self.places_of_node(at, stored).all(|place| self.holds_data(place))
    }

    /// Whether some node may live at `at`: what may be known of one before it is read.
    pub fn holds_some_node(&self, at: BlockNo) -> bool {
        self.holds_node(at, self.stored(TreeId::Files, 0))
    }
}
