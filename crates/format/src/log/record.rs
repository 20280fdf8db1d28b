//! The records of a batch.
//!
//! A record begins with one byte: what it is in the lower four bits, the kind
//! of its key above them, or that it follows. Numbers are varints; inode numbers are stored as their
//! distance from that of the record before. The inode of a new name comes
//! before the name.

use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::{BlockNo, BlockRange, Epoch, InodeNo, Timestamp};

use super::{inode, varint};
use crate::codec::Reader;
use crate::feature::Carried;
use crate::geometry::Geometry;
use crate::item::InodeItem;
use crate::limits::{COUNTER_MAX, value_max};
use crate::{ItemKind, Key, Malformed};

const WHAT: &str = "record of a log batch";

/// The key has this value now: length and bytes follow.
const PUT: u8 = 0;
/// The key has no value now.
const DELETE: u8 = 1;
/// An inode has this item now: its numbers follow.
const INODE: u8 = 2;
/// Blocks belong to a file now, without data.
const TAKE: u8 = 3;
/// The same, with data that was written before the batch's flush: its sum follows.
const TAKE_SUMMED: u8 = 4;
/// The same, with data inside the batch: a patch for each block follows.
const TAKE_INSIDE: u8 = 5;
/// Blocks are freed.
const FREE: u8 = 6;
/// The keys that follow are of another branch: its number, and how many inodes it has behind this batch, follow.
const BRANCH: u8 = 7;
/// The branch gives up blocks that a snapshot may have: their birth, and their place in the file, follow.
const DROP: u8 = 8;

/// In place of a kind: it follows in a byte of its own. Kinds below it have none.
const KIND_FOLLOWS: u8 = 15;

/// What is known of the data of blocks that a batch takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Nothing: they were never written, or their data was durable before the batch was written.
    Unwritten,
    /// It was written to its location before the flush of the batch; this is the sum of its checksums,
    /// as [`crate::journal::commit::data_sum`] makes it.
    Summed(u64),
    /// It lies in the batch, one patch for each block. Its write to its location may never have begun.
    Inside(Vec<Patch<'a>>),
}

/// A block's data inside a batch: bytes over those of another block, or over zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch<'a> {
    /// The block that holds the other bytes. It is given back by the batch, or a later one, and is not
    /// used again before the next commit.
    pub base: Option<BlockNo>,
    /// Where the bytes begin.
    pub at: u16,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Patch<'_> {
    /// Changes `block`, which holds the base.
    pub fn apply(&self, block: &mut [u8; BLOCK_SIZE]) {
        let at = usize::from(self.at);
        block[at..at + self.bytes.len()].copy_from_slice(self.bytes);
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The key has this value now.
    Put(Key, &'a [u8]),
    /// The inode has this item now: a put of its key.
    Inode(InodeNo, Box<InodeItem>),
    /// The key has no value now. It may have had none before.
    Delete(Key),
    /// Blocks that were free belong to a file now.
    Take(BlockRange, Content<'a>),
    /// Blocks that belonged to a file are not used any more.
    Free(BlockRange),
    /// The records of keys and the drops that follow are of this branch, up to the next such record. Those before the first are
    /// of `main`.
    Branch {
        /// Its number.
        id: u64,
        /// Inodes in it behind this batch.
        inode_count: u64,
    },
    /// The branch does not have these blocks any more, which were born when a snapshot had them perhaps: a replay judges by the
    /// lineage that it finds whether they are free.
    Drop(Dropped),
}

/// Blocks that a branch gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Which.
    pub blocks: BlockRange,
    /// The epoch in which they became part of a tree.
    pub birth: Epoch,
    /// The file, and the first of its blocks that lay there.
    pub at: Key,
}

/// Writes the records of a batch one after the other.
#[derive(Debug, Default)]
pub struct Encoder {
    inode: u64,
    time: Timestamp,
    block: u64,
    records: u32,
}

impl Encoder {
    /// Records so far.
    pub fn records(&self) -> u32 {
        self.records
    }

    fn key(&mut self, what: u8, key: &Key, out: &mut Vec<u8>) {
        self.records += 1;
        match key.kind.number() {
            kind @ ..KIND_FOLLOWS => out.push(kind << 4 | what),
            kind => out.extend_from_slice(&[KIND_FOLLOWS << 4 | what, kind]),
        }
        let distance = key.inode.0.wrapping_sub(self.inode) as i64;
        varint::write(varint::zigzag(distance), out);
        self.inode = key.inode.0;
        if what == INODE {
            return;
        }
        match key.kind {
            // A hash is as long as it is.
            ItemKind::Dentry | ItemKind::Xattr => out.extend_from_slice(&key.offset.to_le_bytes()),
            _ => varint::write(key.offset, out),
        }
    }

    /// The key has this value now.
    pub fn put(&mut self, key: &Key, value: &[u8], out: &mut Vec<u8>) {
        if *key == Key::inode(key.inode)
            && value.len() == InodeItem::SIZE
            && let Ok(item) = InodeItem::decode(value)
        {
            self.key(INODE, key, out);
            inode::write(&item, &mut self.time, out);
            return;
        }
        self.key(PUT, key, out);
        varint::write(value.len() as u64, out);
        out.extend_from_slice(value);
    }

    /// The key has no value now.
    pub fn delete(&mut self, key: &Key, out: &mut Vec<u8>) {
        self.key(DELETE, key, out);
    }

    fn blocks(&mut self, what: u8, blocks: BlockRange, out: &mut Vec<u8>) {
        self.records += 1;
        out.push(what);
        self.number(blocks.start, out);
        varint::write(blocks.count, out);
    }

    /// A block's number, by its distance from the one before.
    fn number(&mut self, block: BlockNo, out: &mut Vec<u8>) {
        varint::write(varint::zigzag(block.0.wrapping_sub(self.block) as i64), out);
        self.block = block.0;
    }

    /// Blocks that were free belong to a file now.
    pub fn take(&mut self, blocks: BlockRange, content: &Content<'_>, out: &mut Vec<u8>) {
        match content {
            Content::Unwritten => self.blocks(TAKE, blocks, out),
            Content::Summed(sum) => {
                self.blocks(TAKE_SUMMED, blocks, out);
                out.extend_from_slice(&sum.to_le_bytes());
            }
            Content::Inside(patches) => self.take_inside(blocks, patches.iter().copied(), out),
        }
    }

    /// As [`Encoder::take`] of [`Content::Inside`].
    pub fn take_inside<'a>(
        &mut self,
        blocks: BlockRange,
        patches: impl ExactSizeIterator<Item = Patch<'a>>,
        out: &mut Vec<u8>,
    ) {
        assert_eq!(patches.len() as u64, blocks.count, "a patch for each block");
        self.blocks(TAKE_INSIDE, blocks, out);
        for patch in patches {
            // Block 0 is no base: nothing of a file ever lies there.
            varint::write(patch.base.map_or(0, |base| base.0), out);
            varint::write(patch.at.into(), out);
            varint::write(patch.bytes.len() as u64, out);
            out.extend_from_slice(patch.bytes);
        }
    }

    /// Blocks are not used any more.
    pub fn free(&mut self, blocks: BlockRange, out: &mut Vec<u8>) {
        self.blocks(FREE, blocks, out);
    }

    /// What follows is of branch `id`, which has `inode_count` inodes behind this batch.
    pub fn branch(&mut self, id: u64, inode_count: u64, out: &mut Vec<u8>) {
        self.records += 1;
        out.push(BRANCH);
        varint::write(id, out);
        varint::write(inode_count, out);
    }

    /// The branch gives up blocks that a snapshot may have.
    pub fn drop_blocks(&mut self, dropped: &Dropped, out: &mut Vec<u8>) {
        self.blocks(DROP, dropped.blocks, out);
        varint::write(dropped.birth.0, out);
        varint::write(dropped.at.inode.0, out);
        varint::write(dropped.at.offset, out);
    }
}

/// Reads and judges the records of a batch. Ends after the first that is malformed.
#[derive(Debug)]
pub struct Decoder<'a> {
    reader: Reader<'a>,
    left: u32,
    geometry: &'a Geometry,
    carried: Carried,
    inode: u64,
    time: Timestamp,
    block: u64,
}

impl<'a> Decoder<'a> {
    /// The `records` records in `bytes`, of a volume of this shape that has these unknown things.
    pub fn new(
        bytes: &'a [u8],
        records: u32,
        geometry: &'a Geometry,
        carried: Carried,
    ) -> Decoder<'a> {
        Decoder {
            reader: Reader::new(WHAT, bytes),
            left: records,
            geometry,
            carried,
            inode: 0,
            time: Timestamp::default(),
            block: 0,
        }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        varint::read(&mut self.reader, WHAT)
    }

    fn number(&mut self) -> Result<BlockNo, Malformed> {
        let distance = varint::unzigzag(self.varint()?);
        self.block = self.block.wrapping_add(distance as u64);
        Ok(BlockNo(self.block))
    }

    fn key(&mut self, what: u8, kind: u8) -> Result<Key, Malformed> {
        let fail = |why: String| Err(Malformed::new(WHAT, why));
        let kind = match kind {
            KIND_FOLLOWS => self.reader.array().map(|[kind]| kind)?,
            kind => kind,
        };
        let known = ItemKind::from_raw(kind).filter(|kind| kind.may_be(self.carried));
        let Some(kind) = known else {
            return fail(format!("kind {kind} is unknown"));
        };
        if kind.tree() != holdfast_base::TreeId::Files && !kind.is_lineage() {
            return fail(format!("{kind:?} does not belong there"));
        }
        let distance = varint::unzigzag(self.varint()?);
        self.inode = self.inode.wrapping_add(distance as u64);
        let offset = match kind {
            _ if what == INODE => 0,
            ItemKind::Dentry | ItemKind::Xattr => u64::from_le_bytes(self.reader.array()?),
            _ => self.varint()?,
        };
        if what == INODE && kind != ItemKind::Inode {
            return fail(format!("{kind:?} is no inode"));
        }
        Ok(Key::new(InodeNo(self.inode), kind, offset))
    }

    fn blocks(&mut self) -> Result<BlockRange, Malformed> {
        let blocks = BlockRange::new(self.number()?, self.varint()?);
        if blocks.is_empty() || !self.geometry.holds_data(blocks) {
            return Err(Malformed::new(WHAT, format!("the blocks {blocks:?} cannot be")));
        }
        Ok(blocks)
    }

    fn patch(&mut self) -> Result<Patch<'a>, Malformed> {
        let fail = |why: &str| Err(Malformed::new(WHAT, why));
        let base = match self.varint()? {
            0 => None,
            block if self.geometry.holds_data(BlockRange::new(BlockNo(block), 1)) => {
                Some(BlockNo(block))
            }
            _ => return fail("the base of a patch lies outside the data zone"),
        };
        let (at, len) = (self.varint()?, self.varint()?);
        let size = BLOCK_SIZE as u64;
        if at >= size || len > size - at {
            return fail("a patch reaches out of its block");
        }
        Ok(Patch { base, at: at as u16, bytes: self.reader.bytes(len as usize)? })
    }

    fn record(&mut self) -> Result<Record<'a>, Malformed> {
        let [tag] = self.reader.array()?;
        let (what, kind) = (tag & 0xf, tag >> 4);
        let has_key = matches!(what, PUT | DELETE | INODE);
        if !has_key && kind != 0 {
            return Err(Malformed::new(WHAT, "blocks have no kind"));
        }
        Ok(match what {
            PUT => {
                let key = self.key(what, kind)?;
                let len = self.varint()?;
                if len > value_max(self.geometry.node_size) as u64 {
                    return Err(Malformed::new(
                        WHAT,
                        format!("a value of {len} bytes is too long"),
                    ));
                }
                Record::Put(key, self.reader.bytes(len as usize)?)
            }
            DELETE => Record::Delete(self.key(what, kind)?),
            INODE => {
                let key = self.key(what, kind)?;
                let item = inode::read(&mut self.reader, &mut self.time)?;
                Record::Inode(key.inode, Box::new(item))
            }
            TAKE => Record::Take(self.blocks()?, Content::Unwritten),
            TAKE_SUMMED => {
                let blocks = self.blocks()?;
                Record::Take(blocks, Content::Summed(u64::from_le_bytes(self.reader.array()?)))
            }
            TAKE_INSIDE => {
                let blocks = self.blocks()?;
                // Each patch is there before the next is kept: nothing is allocated by a count of the disk.
                let mut patches = Vec::new();
                for _ in 0..blocks.count {
                    patches.push(self.patch()?);
                }
                Record::Take(blocks, Content::Inside(patches))
            }
            FREE => Record::Free(self.blocks()?),
            BRANCH => {
                let (id, inode_count) = (self.varint()?, self.varint()?);
                if id == 0 || id > COUNTER_MAX || inode_count > COUNTER_MAX {
                    return Err(Malformed::new(WHAT, format!("there is no branch {id}")));
                }
                Record::Branch { id, inode_count }
            }
            DROP => {
                let (blocks, birth) = (self.blocks()?, Epoch(self.varint()?));
                let (inode, offset) = (InodeNo(self.varint()?), self.varint()?);
                if birth.0 == 0 || birth.0 > COUNTER_MAX || offset % BLOCK_SIZE as u64 != 0 {
                    return Err(Malformed::new(WHAT, format!("{blocks:?} cannot be of {birth:?}")));
                }
                Record::Drop(Dropped {
                    blocks,
                    birth,
                    at: Key::new(inode, ItemKind::Extent, offset),
                })
            }
            what => return Err(Malformed::new(WHAT, format!("what {what} is, is unknown"))),
        })
    }
}

impl<'a> Iterator for Decoder<'a> {
    type Item = Result<Record<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let rest = std::mem::replace(&mut self.reader, Reader::new(WHAT, &[]));
            return rest.finish().err().map(Err);
        }
        let record = self.record();
        self.left = if record.is_ok() { self.left - 1 } else { 0 };
        if record.is_err() {
            self.reader = Reader::new(WHAT, &[]);
        }
        Some(record)
    }
}

/// The inode that a name leads to, if `key` and `value` are those of a name: its record comes first.
pub fn leads_to(key: &Key, value: &[u8]) -> Option<InodeNo> {
    let inode = value.first_chunk::<8>().filter(|_| key.kind == ItemKind::Dentry)?;
    Some(InodeNo(u64::from_le_bytes(*inode)))
}
