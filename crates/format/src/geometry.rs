//! Where zones begin and end: pure arithmetic on the numbers of a volume.

use holdfast_base::units::{BLOCK_BYTES, BlockNo, BlockRange};

use crate::Malformed;
use crate::limits::{
    GROUP_BLOCKS, JOURNAL_BLOCKS_MIN, LOG_BLOCKS_MIN, NODE_SIZES, VOLUME_BYTES_MAX,
    VOLUME_BYTES_MIN,
};

/// Blocks that hold a superblock. They alternate; neither moves in a volume's life.
pub const SUPERBLOCK_SLOTS: [BlockNo; 2] = [BlockNo(16), BlockNo(48)];
/// The block that says which program has the volume open, where that may be unknown to others (see [`guard`](crate::guard)).
pub const GUARD: BlockNo = BlockNo(32);
/// First block of the log ring: behind the first MiB, which other programs overwrite when they take the device for theirs.
/// With the far copy of the superblock the volume then lacks nothing.
pub const LOG_START: BlockNo = BlockNo(256);
/// The zones begin and end at multiples of this: nodes are aligned to their own size, up to 64 KiB.
const ALIGNMENT: u64 = NODE_SIZES[2] as u64 / BLOCK_BYTES;

/// Where a volume of so many blocks has the far copy of its superblock: the first block of its last whole 64 KiB. What
/// partition tables write at the end of a device lies behind it.
pub fn far_copy(volume_blocks: u64) -> BlockNo {
    BlockNo((volume_blocks / ALIGNMENT).saturating_sub(1) * ALIGNMENT)
}

/// The shape of a volume, fixed by mkfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the volume.
    pub volume_blocks: u64,
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Blocks of the log ring.
    pub log_blocks: u64,
    /// Blocks of the journal ring.
    pub journal_blocks: u64,
}

impl Geometry {
    /// A sensible shape for a device of `bytes` bytes.
    ///
    /// The rings take at most a sixteenth of the volume each, at most 32 MiB (log) and 128 MiB (journal).
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
        let geometry = Geometry {
            volume_blocks,
            node_size,
            log_blocks: blocks(log_bytes)
                .unwrap_or((volume_blocks / 64).clamp(LOG_BLOCKS_MIN, 8192)),
            journal_blocks: blocks(journal_bytes)
                .unwrap_or((volume_blocks / 32).clamp(JOURNAL_BLOCKS_MIN, 32768)),
        };
        geometry.check()?;
        Ok(geometry)
    }

    /// Fails unless every zone fits the volume and the node size is one of those offered.
    pub fn check(&self) -> Result<(), Malformed> {
        let fail = |why: String| Err(Malformed::new("geometry", why));
        if !NODE_SIZES.contains(&self.node_size) {
            return fail(format!("node size {} is not 4, 16 or 64 KiB", self.node_size));
        }
        if self.volume_blocks < VOLUME_BYTES_MIN / BLOCK_BYTES {
            return fail(format!(
                "a volume needs at least {} MiB, this one has {} blocks of 4 KiB",
                VOLUME_BYTES_MIN >> 20,
                self.volume_blocks
            ));
        }
        if self.volume_blocks > VOLUME_BYTES_MAX / BLOCK_BYTES {
            return fail(format!(
                "{} blocks of 4 KiB are more than {} TiB",
                self.volume_blocks,
                VOLUME_BYTES_MAX >> 40
            ));
        }
        if self.log_blocks < LOG_BLOCKS_MIN || self.journal_blocks < JOURNAL_BLOCKS_MIN {
            return fail(format!(
                "rings of {} and {} blocks are too small",
                self.log_blocks, self.journal_blocks
            ));
        }
        let rings = self.log_blocks.checked_add(self.journal_blocks);
        match rings.and_then(|rings| rings.checked_add(LOG_START.0)) {
            Some(end) if end < self.far_copy().0 => {}
            _ => return fail("the rings do not fit the volume".into()),
        }
        if self.data_blocks() < 2 * self.node_blocks() {
            return fail("no room is left for the roots of the trees".into());
        }
        Ok(())
    }

    /// The log ring.
    pub fn log(&self) -> BlockRange {
        BlockRange::new(LOG_START, self.log_blocks)
    }

    /// The journal ring.
    pub fn journal(&self) -> BlockRange {
        BlockRange::new(BlockNo(LOG_START.0 + self.log_blocks), self.journal_blocks)
    }

    /// First block that the allocator may give away. Blocks before it belong to no bitmap.
    pub fn first_data_block(&self) -> BlockNo {
        let end = LOG_START.0 + self.log_blocks + self.journal_blocks;
        BlockNo(end.next_multiple_of(ALIGNMENT).min(self.far_copy().0))
    }

    /// The block that holds the far copy of the superblock. The data zone ends before it.
    pub fn far_copy(&self) -> BlockNo {
        far_copy(self.volume_blocks)
    }

    /// Blocks that the allocator may give away.
    pub fn data_blocks(&self) -> u64 {
        self.far_copy().0 - self.first_data_block().0
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

    /// Whether a node may live at `at`: inside the data zone and aligned to the node size.
    pub fn holds_node(&self, at: BlockNo) -> bool {
        at.0.is_multiple_of(self.node_blocks())
            && self.holds_data(BlockRange::new(at, self.node_blocks()))
    }
}
