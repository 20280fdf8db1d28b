//! Space that was reserved with fallocate can be written, however full the volume is.

use std::sync::Arc;

use holdfast_base::prng::Prng;
use holdfast_posix::{FallocateFlags, FileSystem, OpenFile, StatFs};

use crate::common::*;

const BLOCK: u64 = 4096;

/// What stat and statfs count of it.
fn counted(fs: &FileSystem, file: &OpenFile) -> (u64, StatFs) {
    (fs.getattr(file.inode()).expect("getattr").blocks, fs.statfs())
}

/// The pieces in which a file of `blocks` blocks is written, each block once.
fn pieces(blocks: u64, order: Order, random: &mut Prng) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < blocks {
        let len = match order {
            Order::Other | Order::Blocks => 1,
            Order::Front => 64,
            Order::Random => 1 + random.below(24),
        };
        let len = len.min(blocks - at);
        // Whole blocks, or some without their first or last bytes.
        let (mut start, mut end) = (at * BLOCK, (at + len) * BLOCK);
        if matches!(order, Order::Random) && random.one_in(3) {
            start += random.below(2000);
            end -= random.below(2000);
        }
        pieces.push((start, end));
        at += len;
    }
    match order {
        Order::Front => {}
        Order::Other => pieces.sort_by_key(|(start, _)| (start / BLOCK % 2, *start)),
        Order::Random | Order::Blocks => {
            for last in (1..pieces.len()).rev() {
                pieces.swap(last, random.below(last as u64 + 1) as usize);
            }
        }
    }
    pieces
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Front,
    Random,
    /// Single blocks, at random.
    Blocks,
    /// Each second block, then those between.
    Other,
}

#[test]
fn reserved_space_is_written_on_a_full_volume_in_any_order() {
    let seed = seed();
    let orders = [Order::Front, Order::Random, Order::Blocks, Order::Other];
    // Copies of large nodes need a larger volume.
    let volumes = [(24, 4096, 1), (24, 16384, 1), (24, 65536, 1), (24, 4096, 2), (48, 16384, 2)];
    for (round, (mib, node_size, copies)) in volumes.into_iter().enumerate() {
        for order in orders {
            let when = format!("{order:?}, nodes of {node_size} stored {copies} times");
            let mut random = Prng::seeded(seed + round as u64);
            let device = new_volume_with(mib * MIB, node_size, copies);
            let fs = mount(&device, &quiet());
            let file = create(&fs, "reserved");
            // Each second block of all would leave more items than are kept room for.
            let share = if matches!(order, Order::Other) { 2 } else { 3 };
            let blocks = fs.statfs().blocks_available / 4 * share;
            fs.fallocate(&file, FallocateFlags::empty(), 0, blocks * BLOCK).expect("there is room");
            fill(&fs, "fill");
            let full = counted(&fs, &file);
            let mut model = vec![0; (blocks * BLOCK) as usize];
            for (count, (start, end)) in pieces(blocks, order, &mut random).into_iter().enumerate()
            {
                let part = &mut model[start as usize..end as usize];
                random.fill(part);
                let written = write(&fs, &file, start, part)
                    .unwrap_or_else(|error| panic!("{when}: {start} to {end}: {error}"));
                assert_eq!(written as u64, end - start, "{when}");
                if count % 16 == 15 {
                    fs.fsync(&file, false).unwrap_or_else(|error| panic!("{when}: {error}"));
                }
            }
            fs.fsync(&file, false).unwrap_or_else(|error| panic!("{when}: {error}"));
            let (counted, space) = counted(&fs, &file);
            assert_eq!(counted, full.0, "{when}: st_blocks");
            assert!(space.blocks_free <= full.1.blocks_free, "{when}: {space:?}");
            same(&fs, &file, &model, &when);
            drop(file);
            fs.unmount().expect("unmount");
            let fs = mount(&device, &quiet());
            let file = open(&fs, "reserved", holdfast_posix::OpenFlags::READ);
            same(&fs, &file, &model, &when);
            // What makes room works all the same (P8).
            for name in ["fill", "reserved"] {
                fs.unlink(
                    &holdfast_posix::Caller::root(),
                    holdfast_base::InodeNo::ROOT,
                    name.as_bytes(),
                )
                .unwrap_or_else(|error| panic!("{when}: unlink {name}: {error}"));
            }
        }
    }
}

fn same(fs: &FileSystem, file: &Arc<OpenFile>, model: &[u8], when: &str) {
    for (at, part) in (0..).step_by(1 << 20).zip(model.chunks(1 << 20)) {
        let got = read(fs, file, at, part.len()).expect("read");
        assert!(got == part, "{when}: what was written is not there, from {at} on");
    }
}
