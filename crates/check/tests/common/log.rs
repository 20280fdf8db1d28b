//! Writes logs by hand, batch by batch, behind a volume that [`super::Maker`] made.
//!
//! [`Log::create`], [`Log::append`] and their like are honest operations; what they
//! change waits until [`Log::batch`] writes it, and is what a replay should find.
//! A test adds what is dishonest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BatchNo, BlockNo, BlockRange, InodeNo, Lsn};
use holdfast_check::log::Replay;
use holdfast_check::{View, journal, log, view};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::checksum::{block_sum, crc64_with_hole};
use holdfast_format::item::{Dentry, Extent, FileType, InodeItem};
use holdfast_format::journal::commit::data_sum;
use holdfast_format::log::{Content, Encoder, LogHeader, LogMark, Patch, frame};
use holdfast_format::{ItemKind, Key, Superblock};
use holdfast_store::{OpenOptions, Store, StoreError};

use super::{Made, Maker, ROOT, check_all, dentry_key, inode};

/// Offset of the sum of a batch.
const SUM_AT: usize = 8;
/// Offset of the sum of the batch before.
const PRIOR_AT: usize = 48;

/// The data of blocks that a batch takes.
#[derive(Clone)]
pub(crate) enum Data {
    Unwritten,
    /// It is on the device.
    Written,
    /// Base, place and bytes for each block.
    Inside(Vec<(Option<BlockNo>, usize, Vec<u8>)>),
}

/// A log in the making.
pub(crate) struct Log<'a> {
    pub(crate) made: &'a Made,
    /// What a recovery should leave.
    pub(crate) now: View,
    /// Where the next batch goes.
    pub(crate) mark: LogMark,
    /// Batches end at multiples of this.
    pub(crate) sector: usize,
    /// The last durable batch, as the next one will say; `None`: the one before it.
    pub(crate) durable: Option<u64>,
    /// Byte of the ring at which each batch begins.
    pub(crate) batches: Vec<u64>,
    /// The same before the batch that is being made.
    pub(crate) before: View,
    changes: BTreeMap<Key, Option<Vec<u8>>>,
    taken: Vec<(BlockRange, Data)>,
    freed: Vec<BlockRange>,
    used: BTreeSet<u64>,
    /// What blocks hold, where that is not on the device.
    pub(crate) pages: BTreeMap<u64, Vec<u8>>,
    free: u64,
}

/// Blocks as ranges that do not touch.
fn ranges(blocks: &BTreeSet<u64>) -> Vec<BlockRange> {
    let mut ranges: Vec<BlockRange> = Vec::new();
    for &block in blocks {
        match ranges.last_mut() {
            Some(last) if last.end() == Some(BlockNo(block)) => last.count += 1,
            _ => ranges.push(BlockRange::new(BlockNo(block), 1)),
        }
    }
    ranges
}

impl<'a> Log<'a> {
    /// The empty log of a volume.
    pub(crate) fn new(made: &'a Made) -> Log<'a> {
        Log::behind(made, &made.superblock)
    }

    /// The empty log behind the commits of a journal that lead to `superblock`.
    pub(crate) fn behind(made: &'a Made, superblock: &Superblock) -> Log<'a> {
        let now = view(&made.device).expect("the volume is sound");
        let blocks = |range: &BlockRange| range.start.0..range.start.0 + range.count;
        Log {
            made,
            mark: superblock.log,
            sector: 512,
            durable: None,
            batches: Vec::new(),
            before: now.clone(),
            changes: BTreeMap::new(),
            taken: Vec::new(),
            freed: Vec::new(),
            used: now.data.iter().flat_map(blocks).collect(),
            pages: BTreeMap::new(),
            free: superblock.geometry.first_data_block().0 + 1000,
            now,
        }
    }

    /// Unused blocks.
    pub(crate) fn free_blocks(&mut self, count: u64) -> BlockRange {
        let start = BlockNo(self.free);
        self.free += count;
        BlockRange::new(start, count)
    }

    pub(crate) fn put(&mut self, key: Key, mut value: Vec<u8>) {
        if key.kind == ItemKind::Extent {
            Extent::be_born(&mut value, super::EPOCH);
        }
        self.now.items.insert(key, value.clone());
        self.changes.insert(key, Some(value));
    }

    pub(crate) fn delete(&mut self, key: Key) {
        self.now.items.remove(&key);
        self.changes.insert(key, None);
    }

    /// Changes the item of an inode.
    pub(crate) fn change(&mut self, number: InodeNo, change: impl FnOnce(&mut InodeItem)) {
        let key = Key::inode(number);
        let mut item = InodeItem::decode(&self.now.items[&key]).expect("the inode is sound");
        change(&mut item);
        self.put(key, item.encode());
    }

    /// One more operation: the owner of an inode changes.
    pub(crate) fn chown(&mut self, number: InodeNo) {
        self.operation();
        self.change(number, |item| item.uid += 1);
    }

    pub(crate) fn operation(&mut self) {
        self.now.lsn = self.now.lsn.next();
    }

    pub(crate) fn take(&mut self, blocks: BlockRange, data: Data) {
        self.used.extend(blocks.start.0..blocks.start.0 + blocks.count);
        self.taken.push((blocks, data));
    }

    pub(crate) fn give_back(&mut self, blocks: BlockRange) {
        for block in blocks.start.0..blocks.start.0 + blocks.count {
            self.used.remove(&block);
        }
        self.freed.push(blocks);
    }

    /// The bytes of a block, as they are by now.
    fn page(&self, block: BlockNo) -> Vec<u8> {
        self.pages.get(&block.0).cloned().unwrap_or_else(|| {
            let mut bytes = vec![0; BLOCK_SIZE];
            self.made.device.read(block.0 * BLOCK_BYTES, &mut bytes).expect("memory reads");
            bytes
        })
    }

    /// A new file in the root directory, with a block of `byte`s that is on the device.
    pub(crate) fn create(&mut self, name: &str, byte: u8) -> InodeNo {
        self.operation();
        let number = self.now.inode_next;
        self.now.inode_next = InodeNo(number.0 + 1);
        self.now.inode_count += 1;
        let item = InodeItem { blocks: 1, ..inode(FileType::Regular, 1, 4096) };
        self.put(Key::inode(number), item.encode());
        let dentry = Dentry { inode: number, file_type: FileType::Regular, name: name.as_bytes() };
        self.put(dentry_key(ROOT, name), dentry.encode());
        self.change(ROOT, |root| root.size += 1);
        let blocks = self.free_blocks(1);
        let page = vec![byte; BLOCK_SIZE];
        super::put(&self.made.device, blocks.start, &page);
        self.take(blocks, Data::Written);
        let extent = Extent { birth: super::EPOCH, ..Extent::new(blocks, vec![block_sum(&page)]) };
        self.put(Key::new(number, ItemKind::Extent, 0), extent.encode());
        number
    }

    /// The only block of a file.
    pub(crate) fn block_of(&self, number: InodeNo) -> BlockNo {
        let value = &self.now.items[&Key::new(number, ItemKind::Extent, 0)];
        Extent::decode(value).expect("the extent is sound").blocks.start
    }

    /// Writes bytes into the block of a file that `create` made; they travel inside the log.
    pub(crate) fn overwrite(&mut self, number: InodeNo, at: usize, bytes: &[u8]) {
        self.operation();
        let old = self.block_of(number);
        let blocks = self.free_blocks(1);
        let mut page = self.page(old);
        page[at..at + bytes.len()].copy_from_slice(bytes);
        let extent = Extent { birth: super::EPOCH, ..Extent::new(blocks, vec![block_sum(&page)]) };
        self.pages.insert(blocks.start.0, page);
        self.take(blocks, Data::Inside(vec![(Some(old), at, bytes.to_vec())]));
        self.put(Key::new(number, ItemKind::Extent, 0), extent.encode());
        self.give_back(BlockRange::new(old, 1));
        self.change(number, |item| item.ctime.secs += 1);
    }

    /// Removes a file that `create` made.
    pub(crate) fn remove(&mut self, name: &str, number: InodeNo) {
        self.operation();
        let block = self.block_of(number);
        self.give_back(BlockRange::new(block, 1));
        self.delete(Key::new(number, ItemKind::Extent, 0));
        self.delete(Key::inode(number));
        self.delete(dentry_key(ROOT, name));
        self.change(ROOT, |root| root.size -= 1);
        self.now.inode_count -= 1;
    }

    /// Renames a file of the root directory.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        self.operation();
        let key = dentry_key(ROOT, from);
        let old = self.now.items[&key].clone();
        let old = Dentry::decode(&old).expect("the name is sound");
        let new = Dentry { name: to.as_bytes(), ..old }.encode();
        let number = old.inode;
        self.delete(key);
        self.put(dentry_key(ROOT, to), new);
        self.change(number, |item| item.ctime.secs += 1);
    }

    /// Writes what waits as a batch. Returns the byte of the ring at which it begins.
    pub(crate) fn batch(&mut self) -> u64 {
        self.batch_with(|_, _| {}, |_| {})
    }

    /// Writes what waits and what `records` appends as a batch whose header `change` changes.
    pub(crate) fn batch_with(
        &mut self,
        records: impl FnOnce(&mut Encoder, &mut Vec<u8>),
        change: impl FnOnce(&mut LogHeader),
    ) -> u64 {
        let mut out = Vec::new();
        LogHeader::reserve(&mut out);
        let mut encoder = Encoder::default();
        self.write_records(&mut encoder, &mut out);
        records(&mut encoder, &mut out);
        let number = self.mark.batch.next();
        let mut header = LogHeader {
            magic: frame::MAGIC,
            bytes: 0,
            sum: 0,
            address: self.mark.next,
            volume: self.made.superblock.ring_tag,
            number: number.0,
            durable: self.durable.unwrap_or(self.mark.batch.0),
            prior: self.mark.sum,
            after: self.before.lsn.0,
            last: self.now.lsn.0,
            inode_next: self.now.inode_next.0,
            inode_count: self.now.inode_count,
            len: 0,
            records: encoder.records(),
            flags: 0,
            reserved: [0; 12],
        };
        change(&mut header);
        let sum = header.finish(&mut out, 0, self.sector);
        let at = self.mark.next;
        let next = self.write(at, &out);
        self.mark = LogMark { batch: BatchNo(header.number), next, sum };
        self.batches.push(at);
        self.before = self.view();
        at
    }

    fn write_records(&mut self, encoder: &mut Encoder, out: &mut Vec<u8>) {
        // Inodes first, so that each comes before its names.
        let mut changes: Vec<_> = std::mem::take(&mut self.changes).into_iter().collect();
        changes.sort_by_key(|(key, _)| key.kind != ItemKind::Inode);
        for (key, value) in &changes {
            match value {
                Some(value) => encoder.put(key, value, out),
                None => encoder.delete(key, out),
            }
        }
        for (blocks, data) in std::mem::take(&mut self.taken) {
            let content = match &data {
                Data::Unwritten => Content::Unwritten,
                Data::Written => Content::Summed(sum_of(self.made, blocks)),
                Data::Inside(patches) => Content::Inside(
                    patches
                        .iter()
                        .map(|(base, at, bytes)| Patch { base: *base, at: *at as u16, bytes })
                        .collect(),
                ),
            };
            encoder.take(blocks, &content, out);
        }
        for blocks in std::mem::take(&mut self.freed) {
            encoder.free(blocks, out);
        }
    }

    /// What a recovery should find by now.
    pub(crate) fn view(&self) -> View {
        View { data: ranges(&self.used), ..self.now.clone() }
    }

    /// Bytes of the ring, and its first byte on the device.
    pub(crate) fn ring(&self) -> (u64, u64) {
        let ring = self.made.superblock.geometry.log();
        (ring.count * BLOCK_BYTES, ring.start.0 * BLOCK_BYTES)
    }

    /// Writes bytes of the ring. Returns the byte behind them.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> u64 {
        let (len, start) = self.ring();
        let (here, rest) = bytes.split_at(bytes.len().min((len - at) as usize));
        for distance in self.made.superblock.geometry.ring_places() {
            let start = start + distance * BLOCK_BYTES;
            for (at, part) in [(at, here), (0, rest)] {
                if !part.is_empty() {
                    self.made.device.write(start + at, part).expect("memory takes every write");
                }
            }
        }
        (at + bytes.len() as u64) % len
    }

    /// Reads bytes of the ring.
    pub(crate) fn read(&self, at: u64, count: usize) -> Vec<u8> {
        let (len, start) = self.ring();
        let mut bytes = vec![0; count];
        let (here, rest) = bytes.split_at_mut(count.min((len - at) as usize));
        self.made.device.read(start + at, here).expect("memory reads");
        self.made.device.read(start, rest).expect("memory reads");
        bytes
    }

    /// Changes the batch at `at` and, if wanted, makes its sum anew and chains all batches behind it.
    pub(crate) fn poke(&self, at: u64, resum: bool, change: impl FnOnce(&mut [u8])) {
        let mut change = Some(change);
        let mut prior = None;
        for &at in self.batches.iter().skip_while(|&&batch| batch != at) {
            let Ok(header) = LogHeader::decode(&self.read(at, LogHeader::SIZE)) else { return };
            let mut bytes = self.read(at, header.bytes as usize);
            if let Some(change) = change.take() {
                change(&mut bytes);
            }
            if let Some(prior) = prior {
                bytes[PRIOR_AT..][..8].copy_from_slice(&u64::to_le_bytes(prior));
            }
            if resum {
                let len = u32::from_le_bytes([0, 1, 2, 3].map(|index| bytes[88 + index]));
                let end = (LogHeader::SIZE + len as usize).min(bytes.len());
                let sum = crc64_with_hole(&bytes[..end], SUM_AT);
                bytes[SUM_AT..][..8].copy_from_slice(&sum.to_le_bytes());
                prior = Some(sum);
            }
            self.write(at, &bytes);
            if !resum {
                return;
            }
        }
    }

    /// Replays what is on the device.
    pub(crate) fn replay(&self) -> Replay {
        let superblock = &self.made.superblock;
        let journal = journal::replay(&self.made.device, superblock).expect("memory reads");
        log::replay(&self.made.device, &journal).expect("memory reads")
    }

    /// Fails unless a replay makes just what was written, with `batches` batches, and all of it is clean.
    pub(crate) fn expect(&self, batches: u64) -> Replay {
        self.expect_view(batches, &self.view())
    }

    /// Fails unless a replay leaves `expected`.
    pub(crate) fn expect_view(&self, batches: u64, expected: &View) -> Replay {
        let replay = self.replay();
        assert_eq!((&replay.faults[..], &replay.damage), (&[][..], &None), "{:?}", replay.end);
        assert_eq!(replay.batches, batches, "{:?}", replay.end);
        let found = view(&self.made.device).expect("the volume is sound");
        assert_eq!(found.difference(expected), None);
        assert_eq!(found, *expected);
        let report = check_all(&self.made.device);
        assert_eq!(report.findings, []);
        assert_eq!(report.facts.log_batches, batches);
        expect_engine(&self.made.device, expected);
        replay
    }
}

/// Fails unless the engine's recovery leaves what is expected, and nothing behind it.
pub(crate) fn expect_engine(device: &MemoryDevice, expected: &View) {
    let copy = recovered(device).unwrap_or_else(|error| panic!("the engine: {error}"));
    let found = view(&*copy).expect("the recovered volume is sound");
    assert_eq!(expected.difference(&found), None, "the engine's recovery");
    assert_eq!(found, *expected);
    let report = check_all(&*copy);
    assert_eq!(report.findings, []);
    assert_eq!((report.facts.journal_commits, report.facts.log_batches), (0, 0));
}

/// A copy of the volume after the engine's recovery, or why there is none.
pub(crate) fn recovered(device: &MemoryDevice) -> Result<Arc<MemoryDevice>, StoreError> {
    let copy = Arc::new(device.snapshot());
    drop(Store::open(copy.clone(), &OpenOptions::default(), Arc::default())?);
    Ok(copy)
}

/// The sum of data that is on the device.
pub(crate) fn sum_of(made: &Made, blocks: BlockRange) -> u64 {
    let mut sums = Vec::new();
    for block in blocks.start.0..blocks.start.0 + blocks.count {
        let mut bytes = vec![0; BLOCK_SIZE];
        made.device.read(block * BLOCK_BYTES, &mut bytes).expect("memory reads");
        sums.push(block_sum(&bytes));
    }
    data_sum(&sums)
}

/// The last operation that the engine shows of a volume to which it must not write.
pub(crate) fn last_shown(device: &MemoryDevice) -> Lsn {
    assert!(recovered(device).is_err(), "the engine writes to a damaged volume");
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let store = Store::open(Arc::new(device.snapshot()), &options, Arc::default());
    store.expect("it can be looked at").latest()
}

/// The sample.
pub(crate) fn made() -> Made {
    Maker::sample().make()
}

/// A volume whose log goes on `from_end` bytes before the ring's end.
pub(crate) fn made_near_the_end(from_end: u64) -> Made {
    let mut maker = Maker::sample();
    maker.superblock(move |superblock| {
        let len = superblock.geometry.log().count * BLOCK_BYTES;
        superblock.log = LogMark { batch: BatchNo(40), next: len - from_end, sum: 0 };
    });
    maker.make()
}
