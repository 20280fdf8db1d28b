//! Every constant of the format, related by compile-time asserts.

use holdfast_base::units::BLOCK_SIZE;

/// Node sizes that mkfs offers, in bytes.
pub const NODE_SIZES: [usize; 3] = [4096, 16384, 65536];
/// Node size unless the options of mkfs say otherwise.
pub const NODE_SIZE_DEFAULT: usize = 16384;
/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const SYMLINK_MAX: usize = 4095;
/// Longest value of an extended attribute, in bytes.
pub const XATTR_VALUE_MAX: usize = 65536;
/// Most links to one file.
pub const LINK_MAX: u32 = 1_000_000_000;
/// Largest file, in bytes: offsets must fit the kernel's signed 64 bits, less one block of room for rounding.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64 - (BLOCK_SIZE as u64 - 1);
/// Levels of a tree, leaves included. A tree of 4 KiB nodes with this many levels exceeds any device.
pub const TREE_LEVELS_MAX: u8 = 16;

/// No counter of a superblock is larger: adding to them cannot overflow.
pub const COUNTER_MAX: u64 = 1 << 62;

/// Blocks in a block group: 128 MiB.
pub const GROUP_BLOCKS: u64 = 32768;
/// Blocks that one bitmap item covers: 16 MiB.
pub const BITMAP_BLOCKS: u64 = 4096;
/// Bytes of one bitmap item.
pub const BITMAP_BYTES: usize = (BITMAP_BLOCKS / 8) as usize;
/// Bitmap items of one group.
pub const BITMAPS_PER_GROUP: u64 = GROUP_BLOCKS / BITMAP_BLOCKS;

/// Smallest log ring, in blocks.
pub const LOG_BLOCKS_MIN: u64 = 64;
/// Smallest journal ring, in blocks.
pub const JOURNAL_BLOCKS_MIN: u64 = 64;
/// Blocks of the log that a new volume has in use, if it has room for more: 1 MiB.
pub const FIRST_LOG_BLOCKS: u64 = 256;
/// Blocks of the journal that a new volume has in use, if it has room for more: 1 MiB.
pub const FIRST_JOURNAL_BLOCKS: u64 = 256;
/// Largest volume that this program makes or opens, in bytes: 1 PiB, as it keeps a few bytes for each group. No rule of the format.
pub const VOLUME_BYTES_MAX: u64 = 1 << 50;
/// Smallest volume, in bytes.
pub const VOLUME_BYTES_MIN: u64 = 8 << 20;

/// Longest value that a leaf of `node_size` accepts, in bytes: at least three fit a node of any size.
pub const fn value_max(node_size: usize) -> usize {
    if node_size / 4 < BLOCK_SIZE { node_size / 4 } else { BLOCK_SIZE }
}

/// Most blocks that one written extent is given: 256 KiB. An overwrite in the middle of an extent
/// logs the checksums behind it again, half of them on average; shorter ones would cost long files
/// more records than they save.
pub const EXTENT_BLOCKS_MAX: u64 = 64;

const _: () = assert!(GROUP_BLOCKS.is_multiple_of(BITMAP_BLOCKS));
const _: () = assert!(BITMAP_BYTES <= value_max(NODE_SIZES[0]));
