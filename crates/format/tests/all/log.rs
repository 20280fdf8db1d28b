//! Batches of the fsync log: what is written is read, and nothing else is believed.

use holdfast_base::prng::Prng;
use holdfast_base::{BlockNo, BlockRange, Epoch, InodeNo, Timestamp};
use holdfast_format::item::lineage::name_key;
use holdfast_format::item::{Dentry, FileType, GroupItem, InodeItem, LineageItem};
use holdfast_format::log::{
    BATCH_BYTES_MAX, Content, Decoder, Dropped, Encoder, LogHeader, Patch, Record, UNIT, frame,
};
use holdfast_format::{Carried, Geometry, ItemKind, Key, Malformed};

const VOLUME: [u8; 8] = *b"volume-1";

fn geometry() -> Geometry {
    Geometry::for_device(64 << 20, 4096).expect("the size is allowed")
}

fn inode(seconds: i64) -> InodeItem {
    let time = |secs| Timestamp { secs, nanos: 999_999_999 };
    InodeItem {
        mode: 0o100644,
        uid: 1000,
        gid: u32::MAX,
        nlink: 1,
        size: 1 << 40,
        blocks: 3,
        rdev: 0,
        parent: InodeNo(16),
        parent_slot: 1 << 63,
        atime: time(seconds),
        mtime: time(seconds),
        ctime: time(i64::MAX),
        btime: time(i64::MIN),
        flags: 1,
        xattr_value_next: 7,
        change: 3,
        project: 9,
        reserved: [0; 4],
    }
}

/// A batch with a record of every sort, and the records themselves.
fn sample(out: &mut Vec<u8>) -> Encoder {
    let data = BlockNo(geometry().first_data_block().0 + 5);
    let dentry = Dentry { inode: InodeNo(17), file_type: FileType::Regular, name: b"name" };
    let mut encoder = Encoder::default();
    encoder.put(&Key::inode(InodeNo(17)), &inode(-5).encode(), out);
    encoder.put(&Key::new(InodeNo(1), ItemKind::Dentry, u64::MAX), &dentry.encode(), out);
    encoder.put(&Key::inode(InodeNo(1)), &inode(12).encode(), out);
    encoder.delete(&Key::new(InodeNo(u64::MAX), ItemKind::Extent, 1 << 50), out);
    encoder.take(BlockRange::new(data, 2), &Content::Unwritten, out);
    encoder.take(BlockRange::new(BlockNo(data.0 + 2), 1), &Content::Summed(u64::MAX), out);
    let patches = vec![
        Patch { base: None, at: 0, bytes: &[7; 4096] },
        Patch { base: Some(data), at: 4095, bytes: &[8] },
    ];
    encoder.take(BlockRange::new(BlockNo(data.0 + 3), 2), &Content::Inside(patches), out);
    encoder.free(BlockRange::new(data, 1), out);
    encoder.put(&LineageItem::KEY, &LineageItem { next: 3, reserved: [0; 8] }.bytes(), out);
    encoder.delete(&name_key(0, b"agent"), out);
    encoder.branch(u64::from(u32::MAX), 1 << 40, out);
    encoder.drop_blocks(&dropped(), out);
    encoder
}

fn dropped() -> Dropped {
    let blocks = BlockRange::new(BlockNo(geometry().first_data_block().0 + 9), 2);
    Dropped { blocks, birth: Epoch(7), at: Key::new(InodeNo(17), ItemKind::Extent, 1 << 40) }
}

fn header(number: u64, records: u32) -> LogHeader {
    LogHeader {
        magic: frame::MAGIC,
        bytes: 0,
        sum: 0,
        address: 3 * UNIT,
        volume: VOLUME,
        number,
        durable: number - 1,
        prior: 0x55,
        after: 9,
        last: 12,
        inode_next: 18,
        inode_count: 4,
        len: 0,
        records,
        flags: 0,
        reserved: [0; 12],
    }
}

fn batch() -> Vec<u8> {
    let mut out = Vec::new();
    LogHeader::reserve(&mut out);
    let records = sample(&mut out).records();
    let sum = header(3, records).finish(&mut out, 0, 512);
    assert_eq!(LogHeader::decode(&out).map(|header| header.sum), Ok(sum));
    out
}

#[test]
fn a_batch_survives_the_round_trip() {
    let (batch, geometry) = (batch(), geometry());
    assert!(batch.len().is_multiple_of(512));
    let header = LogHeader::decode(&batch).unwrap();
    assert_eq!(header.bytes as usize, batch.len());
    let records = header.open(&batch, 3 * UNIT, &VOLUME).unwrap();
    let read: Vec<Record<'_>> = Decoder::new(records, header.records, &geometry, Carried::NOTHING)
        .map(Result::unwrap)
        .collect();
    assert_eq!(read.len(), 12);
    assert_eq!(read[0], Record::Inode(InodeNo(17), Box::new(inode(-5))));
    assert_eq!(read[2], Record::Inode(InodeNo(1), Box::new(inode(12))));
    assert!(matches!(&read[1], Record::Put(key, value) if key.offset == u64::MAX
        && Dentry::decode(value).unwrap().name == b"name"));
    assert!(matches!(&read[6], Record::Take(_, Content::Inside(patches)) if patches[1].at == 4095));
    assert!(matches!(&read[8], Record::Put(key, value) if *key == LineageItem::KEY
        && LineageItem::decode(value).is_ok_and(|item| item.next == 3)));
    assert_eq!(read[9], Record::Delete(name_key(0, b"agent")));
    assert_eq!(read[10], Record::Branch { id: u32::MAX.into(), inode_count: 1 << 40 });
    assert_eq!(read[11], Record::Drop(dropped()));
    let mut block = [1; 4096];
    Patch { base: None, at: 4094, bytes: &[5, 6] }.apply(&mut block);
    assert_eq!(block[4093..], [1, 5, 6]);
}

#[test]
fn a_batch_belongs_to_its_place_and_volume() {
    let batch = batch();
    let header = LogHeader::decode(&batch).unwrap();
    assert!(header.open(&batch, 4 * UNIT, &VOLUME).is_err());
    assert!(header.open(&batch, 3 * UNIT, b"volume-2").is_err());
    assert!(header.open(&batch[..100], 3 * UNIT, &VOLUME).is_err());
}

#[test]
fn every_flipped_bit_is_noticed() {
    let batch = batch();
    let used = LogHeader::SIZE + LogHeader::decode(&batch).unwrap().len as usize;
    for at in 0..used {
        let mut bad = batch.clone();
        bad[at] ^= 1 << (at % 8);
        let opened =
            LogHeader::decode(&bad).and_then(|h| h.open(&bad, 3 * UNIT, &VOLUME).map(<[u8]>::len));
        assert!(opened.is_err(), "byte {at}");
    }
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let bad: [fn(&mut LogHeader); 6] = [
        |h| h.magic = *b"none",
        |h| h.durable = h.number,
        |h| h.after = h.last,
        |h| h.inode_count = 1 << 63,
        |h| h.number = u64::MAX,
        |h| h.last = u64::MAX,
    ];
    for change in bad {
        let mut header = header(3, 0);
        change(&mut header);
        let mut out = Vec::new();
        LogHeader::reserve(&mut out);
        header.finish(&mut out, 0, 4096);
        assert!(LogHeader::decode(&out).is_err(), "{header:?}");
    }
    let mut long = batch();
    long[4..8].copy_from_slice(&(BATCH_BYTES_MAX as u32 + 512).to_le_bytes());
    assert!(LogHeader::decode(&long).is_err());
    assert!(LogHeader::decode(&long[..50]).is_err());
}

/// What names a branch that cannot be, or gives up blocks that cannot be.
#[test]
fn branches_that_cannot_be_are_refused() {
    let geometry = geometry();
    let read = |write: &dyn Fn(&mut Encoder, &mut Vec<u8>)| -> bool {
        let (mut encoder, mut out) = (Encoder::default(), Vec::new());
        write(&mut encoder, &mut out);
        let mut records = Decoder::new(&out, encoder.records(), &geometry, Carried::NOTHING);
        records.all(|record| record.is_ok())
    };
    assert!(read(&|encoder, out| encoder.branch(1, 0, out)));
    assert!(!read(&|encoder, out| encoder.branch(0, 0, out)), "no branch is number 0");
    assert!(!read(&|encoder, out| encoder.branch(1 << 63, 0, out)));
    assert!(!read(&|encoder, out| encoder.branch(2, 1 << 63, out)));
    assert!(read(&|encoder, out| encoder.drop_blocks(&dropped(), out)));
    let bad: [fn(&mut Dropped); 4] = [
        |of| of.birth = Epoch(0),
        |of| of.birth = Epoch(1 << 63),
        |of| of.at.offset += 1,
        |of| of.blocks.start = BlockNo(3),
    ];
    for change in bad {
        let mut dropped = dropped();
        change(&mut dropped);
        assert!(!read(&|encoder, out| encoder.drop_blocks(&dropped, out)), "{dropped:?}");
    }
    let group = GroupItem::key(0);
    assert!(!read(&|encoder, out| encoder.delete(&group, out)), "it is of no files tree");
}

/// Records that are made up, or changed, give an error or records, never a panic (P10).
#[test]
fn hostile_records_are_judged() {
    let geometry = geometry();
    let mut good = Vec::new();
    let records = sample(&mut good).records();
    let read = |bytes: &[u8], records| -> Result<usize, Malformed> {
        Decoder::new(bytes, records, &geometry, Carried::NOTHING)
            .try_fold(0, |count, record| record.map(|_| count + 1))
    };
    assert_eq!(read(&good, records), Ok(12));
    assert!(read(&good, records - 1).is_err(), "bytes too many");
    assert!(read(&good, records + 1).is_err(), "bytes too few");
    assert!(read(&good, u32::MAX).is_err());
    let seed = 20_261_121;
    let mut random = Prng::seeded(seed);
    for round in 0..20_000 {
        let mut bad = good.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bad.len() as u64) as usize;
            bad[at] = random.below(256) as u8;
        }
        bad.truncate(1 + random.below(bad.len() as u64) as usize);
        let items = Decoder::new(&bad, records, &geometry, Carried::NOTHING).count();
        assert!(items <= records as usize + 1, "seed {seed} round {round}");
    }
}
