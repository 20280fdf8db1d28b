//! Every decoder of the format: an error, or a value that encodes to what was decoded (P10, R8).
//!
//! Each gets the bytes as they are, and once more with magic, sum and address
//! put right, as random bytes never match a checksum. What comes out is used as the engine
//! uses it: searched, applied, measured.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, Epoch, TreeId};
use holdfast_check::{dump, identify, probe};
use holdfast_device::MemoryDevice;
use holdfast_format::checksum::crc64_with_hole;
use holdfast_format::codec::Reader;
use holdfast_format::geometry::{GUARD, SIGNPOST, SUPERBLOCK_SLOTS};
use holdfast_format::guard::{self as guard_words, Guard};
use holdfast_format::item::group::{GroupItem, SharedItem, decode_bitmap};
use holdfast_format::item::lineage::decode_numbers;
use holdfast_format::item::{
    Dentry, Extent, HoldItem, InodeItem, LineageItem, OriginItem, PunchItem, RootItem, RunPart,
    TreeItem, WalkItem, Xattr, orphan,
};
use holdfast_format::journal::node::encode_node;
use holdfast_format::journal::{Commit, FrameHeader, frame};
use holdfast_format::log::{Decoder, Encoder, LogHeader, Record, frame as log_frame};
use holdfast_format::node::{self, Expected, NodeHeader, OfVolume};
use holdfast_format::signpost::{self as signpost_words, Search, Signpost, SignpostFields};
use holdfast_format::{
    Carried, Geometry, ItemKind, Key, NodePointer, NodeView, Superblock, superblock as words,
};

use crate::golden::{COUNT, golden};
use crate::image::Sort;
use crate::watched::Watched;

const VOLUME: [u8; 8] = *b"hostile ";
/// Where structures are said to lie.
const PLACE: BlockNo = BlockNo(256);

fn geometry() -> Geometry {
    Geometry::for_device(8 << 20, 4096).expect("the size is allowed")
}

/// `data`, cut or filled up with zeros.
fn sized(data: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.resize(len, 0);
    bytes
}

fn put_sum(bytes: &mut [u8], at: usize, len: usize) {
    let sum = crc64_with_hole(&bytes[..len.min(bytes.len())], at);
    bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
}

/// The bytes of golden structures, after a first byte that the target takes for itself.
fn golden_bytes(sort: Sort, first: &[u8]) -> Vec<Vec<u8>> {
    let of = |index: usize| {
        let structures = golden(index).structures.iter();
        structures.filter(move |structure| structure.sort == sort)
    };
    let with_first = |bytes: &Vec<u8>| [first, bytes].concat();
    (0..COUNT).flat_map(of).map(|structure| with_first(&structure.bytes)).take(24).collect()
}

/// A superblock, the guard between the two, and the signpost.
pub fn superblock(data: &[u8]) {
    let mut block = [0; BLOCK_SIZE];
    let len = data.len().min(BLOCK_SIZE);
    block[..len].copy_from_slice(&data[..len]);
    guard(block);
    signpost(block);
    for slot in SUPERBLOCK_SLOTS {
        let _ = Superblock::decode(&block, slot);
        block[..16].copy_from_slice(&words::MAGIC);
        block[24..32].copy_from_slice(&slot.0.to_le_bytes());
        put_sum(&mut block, 16, BLOCK_SIZE);
        let Ok(found) = Superblock::decode(&block, slot) else { continue };
        assert_eq!(*found.encode(slot), block, "a valid superblock encodes to other bytes");
        // What the engine computes with at once must not overflow.
        let geometry = found.geometry;
        assert!(geometry.data_blocks() <= geometry.volume_blocks && geometry.group_count() > 0);
        assert!(geometry.log().bytes().is_some() && geometry.journal().bytes().is_some());
    }
}

/// Its sizes are anything: where they lead must lie on the device.
fn signpost(mut block: [u8; BLOCK_SIZE]) {
    block[..8].copy_from_slice(&signpost_words::MAGIC);
    block[16..24].copy_from_slice(&SIGNPOST.0.to_le_bytes());
    block[SignpostFields::SIZE..].fill(0);
    put_sum(&mut block, 8, BLOCK_SIZE);
    if let Ok(found) = Signpost::decode(&block) {
        assert_eq!(*found.encode(), block, "a valid signpost encodes to other bytes");
        let places = Search::new(Vec::new(), Some(found), 5000).places();
        assert!(places.iter().all(|place| place.0 < 5000), "{places:?}");
    }
}

/// What stands in its name goes to a terminal.
fn guard(mut block: [u8; BLOCK_SIZE]) {
    let _ = Guard::decode(&block);
    block[..8].copy_from_slice(&guard_words::MAGIC);
    block[16..24].copy_from_slice(&GUARD.0.to_le_bytes());
    put_sum(&mut block[..guard_words::GUARD_BYTES], 8, guard_words::GUARD_BYTES);
    if let Ok(found) = Guard::decode(&block) {
        assert!(found.name.bytes().all(|byte| byte.is_ascii_graphic()), "{:?}", found.name);
        assert_eq!(Guard::decode(&found.encode()).as_ref(), Ok(&found));
    }
}

/// Beginnings of superblocks: zeros follow.
pub fn superblock_seeds() -> Vec<Vec<u8>> {
    let cut = |bytes: Vec<u8>| bytes[..320].to_vec();
    golden_bytes(Sort::Superblock, &[]).into_iter().map(cut).collect()
}

/// A node of 4 KiB. The first byte says which node is expected.
pub fn node(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let mut bytes = sized(rest, 4096);
    let tree = if first & 1 == 0 { TreeId::Files } else { TreeId::Space };
    let pointer = NodePointer { block: PLACE, epoch: Epoch(3) };
    let expected =
        Expected { pointer, tree, level: first >> 1 & 3, volume: OfVolume::tagged(VOLUME) };
    let _ = NodeView::open(&bytes, &expected);
    bytes[..4].copy_from_slice(&node::MAGIC);
    (bytes[4], bytes[5]) = (expected.level, tree as u8);
    bytes[node::ADDRESS_AT..node::ADDRESS_AT + 8].copy_from_slice(&PLACE.0.to_le_bytes());
    bytes[node::EPOCH_AT..node::EPOCH_AT + 8].copy_from_slice(&3u64.to_le_bytes());
    bytes[32..40].copy_from_slice(&VOLUME);
    node::seal(&mut bytes);
    let Ok(view) = NodeView::open(&bytes, &expected) else { return };
    let header = NodeHeader::read(&mut Reader::new("node", &bytes)).expect("it is long enough");
    assert_eq!((view.count(), view.level()), (header.count.into(), expected.level));
    assert_eq!(view.used() + view.free() + node::SLOTS_AT, bytes.len());
    for index in 0..view.count() {
        let key = view.key(index);
        assert_eq!(view.search(&key.raw()), Ok(index), "a key of a valid node is not found");
        assert_eq!(view.child_index(&key.raw()), index);
        match view.level() {
            0 => value(key.kind, view.value(index)),
            _ => assert_eq!(view.child(index).encode(), *view.value(index)),
        }
    }
    let _ = (view.search(&Key::MIN.raw()), view.search(&Key::MAX.raw()));
}

/// Nodes of 4 KiB.
pub fn node_seeds() -> Vec<Vec<u8>> {
    let mut all = golden_bytes(Sort::Node, &[0]);
    all.retain(|seed| seed.len() == 4097);
    for seed in &mut all {
        seed[0] = (seed[6] - 1) | seed[5] << 1;
    }
    all
}

/// A value of any kind.
fn value(kind: ItemKind, bytes: &[u8]) {
    let same = |encoded: Vec<u8>| {
        assert_eq!(encoded, bytes, "a valid {kind:?} encodes to other bytes");
    };
    match kind {
        ItemKind::Inode => {
            if let Ok(item) = InodeItem::decode(bytes) {
                let _ = item.file_type();
                same([&item.encode(), InodeItem::tail(bytes)].concat());
            }
        }
        ItemKind::Dentry => drop(Dentry::decode(bytes).map(|entry| same(entry.encode()))),
        ItemKind::Xattr => drop(Xattr::decode(bytes).map(|xattr| same(xattr.encode()))),
        ItemKind::Extent => {
            drop(Extent::decode(bytes).map(|extent| same(extent.encode())));
            drop(RunPart::decode(bytes).map(|part| same(part.encode())));
        }
        ItemKind::Group => drop(GroupItem::decode(bytes).map(|group| same(group.encode()))),
        ItemKind::Shared => {
            let key = SharedItem::key(0, 7);
            drop(SharedItem::decode(&key, bytes).map(|item| same(item.bytes().to_vec())));
        }
        ItemKind::Bitmap => drop(decode_bitmap(bytes).map(|bits| same(bits.to_vec()))),
        ItemKind::Orphan => drop(orphan::decode(bytes).map(|()| same(Vec::new()))),
        ItemKind::Punch => drop(PunchItem::decode(bytes).map(|punch| same(punch.encode()))),
        ItemKind::Tree => drop(TreeItem::decode(bytes).map(|tree| same(tree.encode()))),
        ItemKind::Hold => drop(HoldItem::decode(bytes).map(|hold| same(hold.encode()))),
        ItemKind::Origin => drop(OriginItem::decode(bytes).map(|of| same(of.bytes().to_vec()))),
        ItemKind::Root => drop(RootItem::decode(bytes).map(|root| same(root.bytes().to_vec()))),
        ItemKind::Walk => {
            drop(WalkItem::decode(bytes).map(|at| same(WalkItem::at(&at).bytes().to_vec())))
        }
        ItemKind::Lineage => {
            drop(LineageItem::decode(bytes).map(|item| same(item.bytes().to_vec())))
        }
        ItemKind::Name => drop(decode_numbers(bytes).map(|numbers| {
            same(numbers.iter().flat_map(|number| number.to_le_bytes()).collect());
        })),
        _ => {}
    }
}

/// A key and a value: the first byte says of which kind.
pub fn item(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    value(ItemKind::ALL[usize::from(*first) % ItemKind::ALL.len()], rest);
    if let Ok(key) = Key::decode(rest) {
        assert_eq!(key.encode(), rest[..Key::SIZE], "a valid key encodes to other bytes");
    }
    let pointer = NodePointer::decode(rest);
    assert!(pointer.is_err() || pointer.is_ok_and(|pointer| pointer.encode() == *rest));
}

/// The values of golden volumes.
pub fn item_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for structure in (0..COUNT).flat_map(|index| &golden(index).structures) {
        if structure.sort == Sort::Node && structure.bytes[4] == 0 {
            for (key, value) in crate::image::records::of_node(&structure.bytes) {
                let kind = ItemKind::ALL.iter().position(|kind| *kind == key.kind).unwrap_or(0);
                seeds.push([&[kind as u8], &value[..value.len().min(300)]].concat());
            }
        }
    }
    seeds.sort();
    seeds.dedup();
    seeds.truncate(200);
    seeds
}

/// A frame of the journal, and the commit in it.
pub fn frame(data: &[u8]) {
    let geometry = geometry();
    let mut bytes = sized(data, data.len().max(FrameHeader::SIZE));
    if let Ok(header) = FrameHeader::decode(&bytes) {
        let _ = header.open(&bytes, PLACE, &VOLUME);
    }
    bytes[..4].copy_from_slice(&frame::MAGIC);
    bytes[16..24].copy_from_slice(&PLACE.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&VOLUME);
    let len = bytes.len() - FrameHeader::SIZE;
    let said = u32::from_le_bytes([bytes[72], bytes[73], bytes[74], bytes[75]]) as usize;
    if said > len {
        bytes[72..76].copy_from_slice(&(len as u32).to_le_bytes());
    }
    put_sum(&mut bytes, 8, FrameHeader::SIZE + said.min(len));
    let Ok(header) = FrameHeader::decode(&bytes) else { return };
    assert!(header.blocks() * BLOCK_BYTES <= frame::FRAME_BYTES_MAX as u64);
    let payload = header.open(&bytes, PLACE, &VOLUME).expect("sum, place and volume are right");
    let mut again = Vec::new();
    header.encode(payload, &mut again);
    let whole = FrameHeader::SIZE + payload.len();
    assert_eq!(again[..whole], bytes[..whole], "a valid frame encodes to other bytes");
    commit(payload, Epoch(header.epoch), &geometry);
}

fn commit(payload: &[u8], epoch: Epoch, geometry: &Geometry) {
    let Ok(commit) = Commit::decode(payload, epoch, geometry) else { return };
    let mut again = Vec::new();
    commit.head.write(&mut again);
    let mut node = vec![0; geometry.node_size];
    for change in &commit.nodes {
        change.apply(&mut node);
        let ranges: Vec<_> =
            change.ranges().map(|(start, bytes)| (start, start + bytes.len())).collect();
        assert_eq!(ranges.iter().map(|(start, end)| end - start).sum::<usize>(), change.len());
        encode_node(change.block, change.base, ranges.iter().copied(), &node, &mut again);
    }
    for cancel in &commit.cancels {
        again.extend_from_slice(&cancel.0.to_le_bytes());
    }
    for extent in &commit.extents {
        extent.write(&mut again);
    }
    assert_eq!(again, payload, "a valid commit encodes to other bytes");
}

/// Frames of golden volumes, up to the end of what they hold.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    golden_bytes(Sort::Frame, &[])
}

/// A batch of the log.
pub fn batch(data: &[u8]) {
    let geometry = geometry();
    let mut bytes = sized(data, data.len().max(LogHeader::SIZE));
    if let Ok(header) = LogHeader::decode(&bytes) {
        let _ = header.open(&bytes, 0, &VOLUME);
    }
    bytes[..4].copy_from_slice(&log_frame::MAGIC);
    let len = bytes.len() - LogHeader::SIZE;
    let padded = (bytes.len() as u32).next_multiple_of(512);
    bytes[4..8].copy_from_slice(&padded.to_le_bytes());
    bytes[16..24].copy_from_slice(&512u64.to_le_bytes());
    bytes[24..32].copy_from_slice(&VOLUME);
    bytes[88..92].copy_from_slice(&(len as u32).to_le_bytes());
    let all = bytes.len();
    put_sum(&mut bytes, 8, all);
    let Ok(header) = LogHeader::decode(&bytes) else { return };
    let records = header.open(&bytes, 512, &VOLUME).expect("sum, place and volume are right");
    let decoded: Result<Vec<_>, _> =
        Decoder::new(records, header.records, &geometry, Carried::NOTHING).collect();
    let Ok(decoded) = decoded else { return };
    let mut encoder = Encoder::default();
    let mut again = Vec::new();
    for record in &decoded {
        match record {
            Record::Put(key, value) => encoder.put(key, value, &mut again),
            Record::Inode(inode, item) => {
                encoder.put(&Key::inode(*inode), &item.encode(), &mut again);
            }
            Record::Delete(key) => encoder.delete(key, &mut again),
            Record::Take(blocks, content) => encoder.take(*blocks, content, &mut again),
            Record::Free(blocks) => encoder.free(*blocks, &mut again),
            Record::Branch { id, inode_count } => encoder.branch(*id, *inode_count, &mut again),
            Record::Drop(dropped) => encoder.drop_blocks(dropped, &mut again),
        }
        if let Record::Take(_, holdfast_format::log::Content::Inside(patches)) = record {
            let mut block = [0; BLOCK_SIZE];
            patches.iter().for_each(|patch| patch.apply(&mut block));
        }
    }
    assert_eq!(encoder.records(), header.records);
    // Times may be encoded in more than one way, and an inode's item as bytes; the meaning is the same.
    let back: Result<Vec<_>, _> =
        Decoder::new(&again, encoder.records(), &geometry, Carried::NOTHING).collect();
    let back = back.expect("what was encoded is valid");
    let plain = |records: Vec<Record<'_>>| -> Vec<String> {
        let text = |record: Record<'_>| match record {
            Record::Inode(inode, item) => {
                format!("{:?}", Record::Put(Key::inode(inode), &item.encode()))
            }
            other => format!("{other:?}"),
        };
        records.into_iter().map(text).collect()
    };
    assert_eq!(plain(back), plain(decoded), "the records of a batch change when written again");
}

/// Batches of golden volumes.
pub fn batch_seeds() -> Vec<Vec<u8>> {
    golden_bytes(Sort::Batch, &[])
}

/// A device that holds something else, or a superblock and nothing: pieces of 64 bytes, each behind the
/// number of its sector.
pub fn foreign(data: &[u8]) {
    let memory = MemoryDevice::new(8 << 20);
    for piece in data.chunks(66) {
        let (place, bytes) = piece.split_at(piece.len().min(2));
        let place = place.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let mut sector = [0; 512];
        sector[..bytes.len()].copy_from_slice(bytes);
        holdfast_device::Device::write(&memory, place % 16384 * 512, &sector)
            .expect("the device is longer");
    }
    let device = Watched::new(memory, 0, false);
    let found = identify(&device);
    let _ = probe(&device);
    let report = holdfast_check::check(&device, &holdfast_check::Options::default());
    assert!(report.is_err() || found.is_some(), "a volume without a magic");
    let _ = dump(&device, &holdfast_check::Subject::Superblocks, &mut std::io::sink());
}

/// Something where the magics lie.
pub fn foreign_seeds() -> Vec<Vec<u8>> {
    let piece =
        |sector: u16, bytes: &[u8]| [sector.to_le_bytes().to_vec(), sized(bytes, 64)].concat();
    vec![
        piece(128, &words::MAGIC),
        [piece(128, &words::MAGIC), piece(384, &words::MAGIC)].concat(),
        piece(0, b"XFSB"),
        piece(2, &[0x10, 0x20, 0xf5, 0xf2]),
        piece(0, &[0; 64]),
    ]
}
