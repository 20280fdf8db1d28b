//! The codecs of the journal against every kind of bytes: an error, or a value that encodes to the same bytes (P10).
//!
//! proptest prints the smallest failing input and its seed.

use holdfast_base::{BLOCK_SIZE, BlockNo, Epoch};
use holdfast_format::journal::frame::{FRAME_BYTES_MAX, FrameHeader, KIND_COMMIT, KIND_END, MAGIC};
use holdfast_format::journal::node::{encode_node, node_size};
use holdfast_format::journal::{Base, Commit, CommitHead, DataExtent, next_block};
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::{Geometry, NodePointer};
use proptest::prelude::*;
use proptest::sample::Index;

const NODE: usize = 4096;
const EPOCH: Epoch = Epoch(9);

fn geometry() -> Geometry {
    Geometry::for_device(8 << 20, NODE).expect("8 MiB are enough")
}

/// A block of the data zone.
fn blocks() -> impl Strategy<Value = BlockNo> {
    let geometry = geometry();
    (geometry.first_data_block().0..geometry.far_copy().0).prop_map(BlockNo)
}

/// A record to be encoded.
#[derive(Clone, Debug)]
struct Record {
    block: BlockNo,
    base: Base,
    ranges: Vec<(usize, usize)>,
}

fn records() -> impl Strategy<Value = Record> {
    let copied = (blocks(), 0..EPOCH.0)
        .prop_map(|(block, epoch)| Base::Copied(NodePointer { block, epoch: Epoch(epoch) }));
    let bases = prop_oneof![Just(Base::Zeros), Just(Base::Changed), copied];
    // An even number of different offsets makes ranges that ascend.
    let cuts = prop::collection::btree_set(0..=NODE, 0..12);
    (blocks(), bases, cuts).prop_map(|(block, base, cuts)| {
        let cuts: Vec<_> = cuts.into_iter().collect();
        let ranges = cuts.as_chunks::<2>().0.iter().map(|pair| (pair[0], pair[1])).collect();
        Record { block, base, ranges }
    })
}

/// The bytes of every node of these tests.
fn pattern() -> Vec<u8> {
    (0..NODE).map(|at| (at * 7 / 3) as u8).collect()
}

fn heads() -> impl Strategy<Value = CommitHead> {
    let first = geometry().first_data_block().0;
    let counts = (0..=COUNTER_MAX, 16..=COUNTER_MAX, 0..=COUNTER_MAX);
    (counts, 0..=geometry().data_blocks(), [0..16u8, 0..16], [0..=EPOCH.0, 0..=EPOCH.0]).prop_map(
        move |((lsn, inode_next, inode_count), used_blocks, levels, epochs)| CommitHead {
            lsn,
            inode_next,
            inode_count,
            used_blocks,
            referenced_blocks: inode_count / 2,
            files_block: first,
            files_epoch: epochs[0],
            space_block: first + 1,
            space_epoch: epochs[1],
            files_level: levels[0],
            space_level: levels[1],
            pad: [0; 6],
            nodes: 0,
            cancels: 0,
            extents: 0,
            pad2: 0,
            log_batch: 0,
            log_next: 0,
            log_sum: 0,
        },
    )
}

/// A valid payload.
fn payloads() -> impl Strategy<Value = Vec<u8>> {
    let extents = (blocks(), any::<u64>()).prop_map(|(block, sum)| DataExtent {
        block: block.0,
        count: 1,
        sum,
    });
    (
        heads(),
        prop::collection::vec(records(), 0..5),
        prop::collection::vec(any::<u64>(), 0..4),
        prop::collection::vec(extents, 0..4),
    )
        .prop_map(|(head, records, cancels, extents)| {
            let counts = [records.len(), cancels.len(), extents.len()].map(|count| count as u32);
            let [nodes, cancelled, data] = counts;
            let mut out = Vec::new();
            CommitHead { nodes, cancels: cancelled, extents: data, ..head }.write(&mut out);
            for Record { block, base, ranges } in records {
                let before = out.len();
                let (count, len) = (ranges.len(), ranges.iter().map(|(a, b)| b - a).sum());
                encode_node(block, base, ranges.into_iter(), &pattern(), &mut out);
                assert_eq!(out.len() - before, node_size(base, count, len));
            }
            out.extend(cancels.iter().flat_map(|cancel| cancel.to_le_bytes()));
            extents.iter().for_each(|extent| extent.write(&mut out));
            out
        })
}

/// The payload of what was decoded.
fn again(commit: &Commit<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    commit.head.write(&mut out);
    for change in &commit.nodes {
        let mut node = vec![0; NODE];
        change.apply(&mut node);
        let ranges: Vec<_> =
            change.ranges().map(|(start, bytes)| (start, start + bytes.len())).collect();
        encode_node(change.block, change.base, ranges.into_iter(), &node, &mut out);
    }
    out.extend(commit.cancels.iter().flat_map(|cancel| cancel.0.to_le_bytes()));
    commit.extents.iter().for_each(|extent| extent.write(&mut out));
    out
}

/// Fails unless `bytes` are refused, or come back as they were.
fn judge_payload(bytes: &[u8]) {
    if let Ok(commit) = Commit::decode(bytes, EPOCH, &geometry()) {
        assert_eq!(again(&commit), bytes);
    }
}

fn frames() -> impl Strategy<Value = (FrameHeader, Vec<u8>)> {
    let numbers = (any::<u64>(), any::<u64>(), any::<[u8; 8]>(), 0..=COUNTER_MAX);
    let place = (1..=COUNTER_MAX, any::<Index>(), 1..=u32::MAX, any::<Index>());
    let payload = prop::collection::vec(any::<u8>(), 1..9000);
    (numbers, place, payload, any::<bool>()).prop_map(
        |((address, prior, volume, epoch), (commit, durable, frames, index), payload, is_end)| {
            let durable = durable.index(commit.min(1 << 40) as usize) as u64;
            let (kind, index, frames, payload) = if is_end {
                (KIND_END, 0, 1, Vec::new())
            } else {
                (KIND_COMMIT, index.index(frames as usize) as u32, frames, payload)
            };
            let header = FrameHeader {
                magic: MAGIC,
                kind,
                sum: 0,
                address,
                volume,
                epoch,
                commit,
                durable,
                prior,
                index,
                frames,
                len: 0,
                pad: 0,
                reserved: [0; 16],
            };
            (header, payload)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn valid_payloads_come_back(bytes in payloads()) {
        let commit = Commit::decode(&bytes, EPOCH, &geometry());
        prop_assert!(commit.is_ok(), "{:?}", commit.err());
        let commit = commit.expect("it is valid");
        prop_assert_eq!(again(&commit), &bytes[..]);
        // What ranges hold is what the node held there.
        let pattern = pattern();
        for change in &commit.nodes {
            prop_assert_eq!(change.len(), change.ranges().map(|(_, bytes)| bytes.len()).sum::<usize>());
            for (start, bytes) in change.ranges() {
                prop_assert_eq!(bytes, &pattern[start..start + bytes.len()]);
            }
        }
        // A base as young as the commit itself cannot be.
        let copies = commit.nodes.iter().filter_map(|change| match change.base {
            Base::Copied(pointer) => Some(pointer.epoch),
            _ => None,
        });
        if let Some(youngest) = copies.max() {
            prop_assert!(Commit::decode(&bytes, youngest, &geometry()).is_err());
        }
    }

    #[test]
    fn a_payload_cut_short_or_too_long_is_refused(bytes in payloads(), cut in any::<Index>()) {
        let short = &bytes[..cut.index(bytes.len())];
        prop_assert!(Commit::decode(short, EPOCH, &geometry()).is_err());
        let long = [&bytes[..], &[0]].concat();
        prop_assert!(Commit::decode(&long, EPOCH, &geometry()).is_err());
    }

    #[test]
    fn damaged_payloads_are_refused_or_come_back(
        mut bytes in payloads(),
        damage in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        judge_payload(&bytes);
    }

    #[test]
    fn noise_is_no_payload(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        judge_payload(&bytes);
    }

    #[test]
    fn frames_come_back((header, payload) in frames(), before in 0..3usize) {
        // Frames are appended to what is there.
        let mut out = vec![7; before * BLOCK_SIZE];
        let sum = header.encode(&payload, &mut out);
        let frame = &out[before * BLOCK_SIZE..];
        let found = FrameHeader::decode(frame);
        prop_assert_eq!(&found, &Ok(FrameHeader { sum, len: payload.len() as u32, ..header }));
        let found = found.expect("it is valid");
        prop_assert_eq!(found.blocks() as usize * BLOCK_SIZE, frame.len());
        let at = BlockNo(header.address);
        prop_assert_eq!(found.open(frame, at, &header.volume), Ok(&payload[..]));
        prop_assert!(found.open(frame, BlockNo(at.0 ^ 1), &header.volume).is_err());
        let mut other = header.volume;
        other[3] ^= 1;
        prop_assert!(found.open(frame, at, &other).is_err());
        prop_assert!(found.open(&frame[..FrameHeader::SIZE], at, &header.volume).is_err()
            || payload.is_empty());
    }

    #[test]
    fn one_wrong_byte_of_a_frame_is_seen(
        (header, payload) in frames(),
        at in any::<Index>(),
        by in 1..=255u8,
    ) {
        let mut frame = Vec::new();
        header.encode(&payload, &mut frame);
        // What follows the payload means nothing.
        frame[at.index(FrameHeader::SIZE + payload.len())] ^= by;
        let address = BlockNo(header.address);
        if let Ok(found) = FrameHeader::decode(&frame) {
            prop_assert!(found.open(&frame, address, &header.volume).is_err());
        }
    }

    #[test]
    fn a_header_that_passes_keeps_its_bounds(
        (header, payload) in frames(),
        damage in prop::collection::vec((0..FrameHeader::SIZE, any::<u8>()), 0..4),
        noise in any::<Option<[u8; 32]>>(),
    ) {
        let mut frame = Vec::new();
        header.encode(&payload, &mut frame);
        for (at, byte) in damage {
            frame[at] = byte;
        }
        if let Some(noise) = noise {
            frame[4..36].copy_from_slice(&noise);
        }
        if let Ok(found) = FrameHeader::decode(&frame) {
            let mut again = Vec::new();
            found.write(&mut again);
            prop_assert_eq!(&again[..], &frame[..FrameHeader::SIZE]);
            prop_assert!(found.index < found.frames && found.durable < found.commit);
            prop_assert!(found.blocks() as usize * BLOCK_SIZE <= FRAME_BYTES_MAX);
            // Whatever the sum says, opening does not panic.
            let _ = found.open(&frame, BlockNo(found.address), &found.volume);
        }
    }

    #[test]
    fn the_next_block_lies_in_the_ring(at in any::<Index>(), blocks in any::<Index>()) {
        let ring = geometry().journal();
        let at = at.index(ring.count as usize) as u64;
        let blocks = 1 + blocks.index((ring.count - at) as usize) as u64;
        let next = next_block(ring, BlockNo(ring.start.0 + at), blocks);
        let expected = if at + blocks == ring.count { 0 } else { at + blocks };
        prop_assert_eq!(next.0, ring.start.0 + expected);
    }
}
