//! What one operation changes: the unit that is visible, and durable, as a whole.

use std::ops::Range;

use holdfast_base::{BlockRange, Epoch, InodeNo};
use holdfast_format::item::Extent;
use holdfast_format::journal::{self, DataExtent};
use holdfast_format::log::{self, Dropped};
use holdfast_format::{ItemKind, Key};

use crate::space::{Allocated, Destination, Filling, LoggedBlock, Written, WrittenContent};

/// One change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change<'a> {
    pub(crate) key: Key,
    /// The value that the key has now; `None`: it has none, and may have had none before.
    pub(crate) value: Option<&'a [u8]>,
}

impl Change<'_> {
    /// The inode that a name leads to.
    pub(crate) fn leads_to(&self) -> Option<InodeNo> {
        log::record::leads_to(&self.key, self.value?)
    }
}

/// Changes, one behind the other. Their values lie in one piece of memory: an operation makes three, and a piece
/// for each would be made by it and given back by another thread, with the commit.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    list: Vec<(Key, Option<Range<usize>>)>,
    values: Vec<u8>,
}

impl Changes {
    /// Bytes for the values of a create: two inodes, and an entry whose name is not long.
    const VALUES: usize = 320;

    /// Adds a put of what `write` appends.
    pub(crate) fn put_with(&mut self, key: Key, write: impl FnOnce(&mut Vec<u8>)) {
        if self.values.capacity() == 0 {
            self.values.reserve(Changes::VALUES);
        }
        let start = self.values.len();
        write(&mut self.values);
        self.list.push((key, Some(start..self.values.len())));
    }

    /// Adds a put.
    pub(crate) fn put(&mut self, key: Key, value: &[u8]) {
        self.put_with(key, |values| values.extend_from_slice(value));
    }

    /// Adds a delete.
    pub(crate) fn delete(&mut self, key: Key) {
        self.list.push((key, None));
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Change `index`.
    pub(crate) fn get(&self, index: usize) -> Option<Change<'_>> {
        self.list.get(index).map(|of| self.change(of))
    }

    /// All of them, in the order in which they came.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        self.list.iter().map(|of| self.change(of))
    }

    /// They were part of a tree once, and become part of it again in `epoch`: none of the extents among them is younger.
    pub(crate) fn be_born_by(&mut self, epoch: Epoch) {
        for (key, value) in &self.list {
            if let (ItemKind::Extent, Some(range)) = (key.kind, value) {
                Extent::be_born_by(&mut self.values[range.clone()], epoch);
            }
        }
    }

    /// They become part of a tree in `epoch`: so do the extents among them that are not part of one.
    pub(crate) fn be_born(&mut self, epoch: Epoch) {
        for (key, value) in &self.list {
            if let (ItemKind::Extent, Some(range)) = (key.kind, value) {
                Extent::be_born(&mut self.values[range.clone()], epoch);
            }
        }
    }

    /// Adds copies of others behind them.
    pub(crate) fn extend(&mut self, others: &Changes) {
        let behind = self.values.len();
        let moved = |range: &Range<usize>| range.start + behind..range.end + behind;
        self.list.extend(others.list.iter().map(|(key, value)| (*key, value.as_ref().map(moved))));
        self.values.extend_from_slice(&others.values);
    }

    /// Bytes for which there is memory.
    pub(crate) fn capacity(&self) -> usize {
        self.list.capacity() * size_of::<(Key, Option<Range<usize>>)>() + self.values.capacity()
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.values.clear();
    }

    fn change(&self, (key, value): &(Key, Option<Range<usize>>)) -> Change<'_> {
        let value = value.clone().map(|range| &self.values[range]);
        Change { key: *key, value }
    }
}

/// Blocks that a transaction takes out of the free space.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) blocks: BlockRange,
    pub(crate) content: TakenContent,
}

/// What is known of their data.
#[derive(Debug)]
pub(crate) enum TakenContent {
    Unwritten,
    /// It was written to its location, and no flush is known to have come since; the sum of its checksums.
    Written(u64),
    /// It is durable at its location.
    Durable,
    /// It travels inside the log.
    Inside(Vec<LoggedBlock>, u64),
}

impl Taken {
    /// Blocks of data that wait for a flush.
    pub(crate) fn unflushed_blocks(&self) -> u64 {
        if let TakenContent::Written(_) = self.content { self.blocks.count } else { 0 }
    }

    /// What a commit or a transaction of the log says of data whose checksums have this sum.
    pub(crate) fn extent(&self, sum: u64) -> DataExtent {
        DataExtent { block: self.blocks.start.0, count: self.blocks.count, sum }
    }

    /// The data that becomes durable with a flush, wherever it is on its way.
    pub(crate) fn data(&self) -> Option<DataExtent> {
        match &self.content {
            TakenContent::Unwritten | TakenContent::Durable => None,
            TakenContent::Written(sum) | TakenContent::Inside(_, sum) => Some(self.extent(*sum)),
        }
    }
}

/// Everything that one operation changes.
#[derive(Debug, Default)]
pub struct Transaction {
    pub(crate) changes: Changes,
    pub(crate) dropped: Vec<Dropped>,
    /// Blocks that held data and are reserved from now on.
    pub(crate) unwritten: Vec<(BlockRange, Epoch)>,
    pub(crate) placed: Vec<Allocated>,
    /// Reserved blocks that hold data from now on.
    pub(crate) filled: Vec<Filling>,
    /// The same blocks, with what is known of their data.
    pub(crate) taken: Vec<Taken>,
    pub(crate) inodes_added: i64,
    pub(crate) moves: bool,
}

impl Transaction {
    /// An empty transaction.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Gives `key` a value of at most [`crate::Store::value_max`] bytes. A later change of the same key wins.
    pub fn put(&mut self, key: Key, value: impl AsRef<[u8]>) {
        self.changes.put(key, value.as_ref());
    }

    /// As [`Transaction::put`], with what `write` appends as value.
    pub fn put_with(&mut self, key: Key, write: impl FnOnce(&mut Vec<u8>)) {
        self.changes.put_with(key, write);
    }

    /// Takes the value of `key` away.
    pub fn delete(&mut self, key: Key) {
        self.changes.delete(key);
    }

    /// Gives up blocks of an extent that is so old; the first of them lay at the key `at`. They are free unless another tree
    /// has them (S1), and reusable only when this transaction is durable (R2).
    pub fn free(&mut self, blocks: BlockRange, birth: Epoch, at: Key) {
        if !blocks.is_empty() {
            self.dropped.push(Dropped { blocks, birth, at });
        }
    }

    /// Says that blocks hold nothing any more but stay with their file. They are written in place only when this
    /// transaction is durable (R2). If a snapshot has them as well, which are so old, the transaction is refused
    /// ([`crate::StoreError::Shared`]).
    pub fn unwrite(&mut self, blocks: BlockRange, birth: Epoch) {
        if !blocks.is_empty() {
            self.unwritten.push((blocks, birth));
        }
    }

    /// Says that written blocks belong to a file from this transaction on; returns the extent to put.
    pub fn publish(&mut self, written: Written) -> Extent {
        let blocks = written.blocks();
        let (location, sums, content) = written.into_parts();
        let extent = Extent::new(blocks, sums);
        // Takes nothing out of the free space, and the data is durable: neither the log nor a commit says more of it.
        let placed = match location {
            Destination::New(placed) => placed,
            Destination::Reserved(filling) => {
                self.filled.push(filling);
                return extent;
            }
        };
        let sum = journal::commit::data_sum(&extent.sums);
        let content = match content {
            WrittenContent::Sent => TakenContent::Written(sum),
            WrittenContent::Durable => TakenContent::Durable,
            WrittenContent::Inside(blocks) => TakenContent::Inside(blocks, sum),
        };
        self.taken.push(Taken { blocks: extent.blocks, content });
        self.placed.push(placed);
        extent
    }

    /// Says that allocated blocks belong to a file from this transaction on although never written.
    pub fn publish_unwritten(&mut self, placed: Allocated) -> Extent {
        let extent = Extent::new(placed.blocks(), Vec::new());
        self.taken.push(Taken { blocks: extent.blocks, content: TakenContent::Unwritten });
        self.placed.push(placed);
        extent
    }

    /// Says that blocks are at another place of their file from this transaction on. No snapshot may have them: what walks through one
    /// knows a block by its place. The rules by which a batch of the log is judged know no such change, so a commit makes it durable, and
    /// what comes behind it: a caller that wants no fsync to wait for that makes one at once.
    pub fn moves_blocks(&mut self) {
        self.moves = true;
    }

    /// Counts inodes that this transaction adds (or, below zero, removes) for statfs.
    pub fn count_inodes(&mut self, added: i64) {
        self.inodes_added += added;
    }

    /// Number of puts and deletes: what to reserve.
    pub fn changes(&self) -> u32 {
        u32::try_from(self.changes.len()).unwrap_or(u32::MAX)
    }

    /// Whether the transaction changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.len() == 0 && self.dropped.is_empty() && self.placed.is_empty()
    }
}
