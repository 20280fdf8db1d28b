//! Space that was reserved with fallocate can be written, however full the volume is.
#![allow(missing_docs)]

mod common;

use std::sync::Arc;

use common::*;
use holdfast_base::prng::Prng;
use holdfast_posix::{FallocateFlags, FileSystem, FsError, OpenFile, OpenFlags, StatFs};
use holdfast_store::StoreError;

const BLOCK: u64 = 4096;

fn is_full(error: &FsError) -> bool {
    matches!(error, FsError::Store(StoreError::NoSpace))
}

/// Writes to a file of its own until not even a block finds room.
fn fill(fs: &FileSystem) {
    let file = create(fs, "fill");
    let bytes = vec![0x77; 1 << 20];
    let (mut at, mut len) = (0, bytes.len());
    while len > 0 {
        match write(fs, &file, at, &bytes[..len]) {
            Ok(written) => at += written as u64,
            Err(error) => {
                assert!(is_full(&error), "{error}");
                // What was freed on the way is free with the next commit.
                fs.sync().expect("sync");
                len /= 2;
            }
        }
        len -= len % BLOCK as usize;
    }
}

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
    for (round, node_size) in [4096, 16384, 65536].into_iter().enumerate() {
        for order in orders {
            let when = format!("{order:?}, nodes of {node_size}");
            let mut random = Prng::seeded(seed + round as u64);
            let device = new_volume(24 * MIB, node_size);
            let fs = mount(&device, &quiet());
            let file = create(&fs, "reserved");
            // Each second block of all would leave more items than are kept room for.
            let share = if matches!(order, Order::Other) { 2 } else { 3 };
            let blocks = fs.statfs().blocks_available / 4 * share;
            fs.fallocate(&file, FallocateFlags::empty(), 0, blocks * BLOCK).expect("there is room");
            fill(&fs);
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

/// The second half of a block whose first half is on the volume, and a block that is written again, need another one.
#[test]
fn what_is_written_is_written_again_on_a_full_volume() {
    for node_size in [4096, 16384, 65536] {
        let device = new_volume(24 * MIB, node_size);
        let fs = mount(&device, &quiet());
        let file = create(&fs, "reserved");
        let blocks = 600;
        fs.fallocate(&file, FallocateFlags::empty(), 0, blocks * BLOCK).expect("there is room");
        fill(&fs);
        let filled = fs.counters().no_space.get();
        let mut model = vec![0; (blocks * BLOCK) as usize];
        let mut write_parts = |byte: u8, from: u64, len: u64, step: usize| {
            for (count, block) in (0..blocks).step_by(step).enumerate() {
                let at = block * BLOCK + from;
                let part = vec![byte; len as usize];
                model[at as usize..(at + len) as usize].copy_from_slice(&part);
                let written = write(&fs, &file, at, &part)
                    .unwrap_or_else(|error| panic!("nodes of {node_size}, at {at}: {error}"));
                assert_eq!(written as u64, len);
                if count % 16 == 15 {
                    fs.fsync(&file, false).expect("fsync");
                }
            }
            fs.fsync(&file, false).expect("fsync");
        };
        write_parts(1, 0, BLOCK / 2, 1);
        write_parts(2, BLOCK / 2, BLOCK / 2, 1);
        write_parts(3, 0, BLOCK, 3);
        write_parts(4, 0, 50 * BLOCK, 50);
        let other = open(&fs, "fill", OpenFlags::READ | OpenFlags::WRITE);
        // In as many calls as there are spare blocks for, each of them one step.
        let (bytes, mut at) = (vec![5; 2 << 20], 0);
        while at < bytes.len() {
            at += write(&fs, &other, at as u64, &bytes[at..]).expect("it is as full as before");
        }
        fs.sync().expect("sync");
        assert!(fs.counters().no_space.get() > filled, "it was full");
        // Nothing that makes the volume fuller has room.
        for end in [size(&fs, &file), size(&fs, &other) + (1 << 30)] {
            let refused = write(&fs, &file, end, &[6; BLOCK as usize]);
            assert!(refused.is_err_and(|error| is_full(&error)), "it is full");
        }
        same(&fs, &file, &model, "before");
        drop((file, other));
        fs.unmount().expect("unmount");
        let fs = mount(&device, &quiet());
        same(&fs, &open(&fs, "reserved", OpenFlags::READ), &model, "after");
    }
}

/// Each has a MiB in flight as one step, and there are spare blocks for one of them at a time.
#[test]
fn threads_that_write_over_data_on_a_full_volume_are_none_of_them_refused() {
    let device = new_volume(96 * MIB, 16384);
    let fs = mount(&device, &quiet());
    const FILES: u8 = 4;
    let name = |file: u8| format!("file {file}");
    for file in 0..FILES {
        write_all(&fs, &create(&fs, &name(file)), 0, &vec![file; 3 << 20]);
    }
    fill(&fs);
    std::thread::scope(|scope| {
        for number in 0..FILES {
            let fs = &fs;
            scope.spawn(move || {
                let file = open(fs, &name(number), OpenFlags::READ | OpenFlags::WRITE);
                for round in 1..4 {
                    let bytes = vec![number + FILES * round; 1 << 20];
                    for at in [0, 1 << 20, (1 << 20) + 4096 * 17, 2 << 20] {
                        let written = write(fs, &file, at, &bytes).expect("none is refused");
                        assert_eq!(written, bytes.len(), "nor cut short");
                    }
                }
            });
        }
    });
    fs.sync().expect("sync");
    let of = |number: u8| vec![number + FILES * 3; 3 << 20];
    for number in 0..FILES {
        same(&fs, &open(&fs, &name(number), OpenFlags::READ), &of(number), "before");
    }
    fs.unmount().expect("unmount");
    let fs = mount(&device, &quiet());
    for number in 0..FILES {
        same(&fs, &open(&fs, &name(number), OpenFlags::READ), &of(number), "after");
    }
}

fn same(fs: &FileSystem, file: &Arc<OpenFile>, model: &[u8], when: &str) {
    for (at, part) in (0..).step_by(1 << 20).zip(model.chunks(1 << 20)) {
        let got = read(fs, file, at, part.len()).expect("read");
        assert!(got == part, "{when}: what was written is not there, from {at} on");
    }
}
