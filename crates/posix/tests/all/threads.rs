//! Many threads on one file: readers see whole blocks of one writer, never damage or a mixture.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::prng::Prng;
use holdfast_base::switch::FsyncWait;
use holdfast_posix::{FallocateFlags, MountOptions, OpenFlags};

use crate::common::*;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
const RUN: Duration = Duration::from_millis(1500);

/// A block that says what it is: every eighth byte the same.
fn stamp(block: u64, version: u64) -> Vec<u8> {
    let word = (block << 40 | version) + 1;
    word.to_le_bytes().repeat(BLOCK / 8)
}

fn check_block(bytes: &[u8], block: u64) {
    let words: Vec<u64> =
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let first = words[0];
    assert!(words.iter().all(|word| *word == first), "block {block} is a mixture");
    assert!(first == 0 || (first - 1) >> 40 == block, "block {block} holds another one's data");
}

#[test]
fn readers_see_whole_blocks_while_others_write_truncate_punch_and_sync() {
    let seed = seed();
    let (worker, none) = (FsyncWait::Completion, FsyncWait::Writeback);
    for (dirty_bytes, fsync_wait) in [(1, none), (256 << 20, none), (256 << 20, worker)] {
        let device = new_volume(64 * MIB, 4096);
        let options =
            MountOptions { commit_secs: 1, dirty_bytes, fsync_wait, ..MountOptions::default() };
        let fs = mount(&device, &options);
        let file = create(&fs, "f");
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let run = |number: u64, work: &(dyn Fn(&mut Prng) + Sync)| {
                let mut random = Prng::seeded(seed + number);
                while !end.load(Ordering::Relaxed) {
                    work(&mut random);
                }
            };
            let (fs, file) = (&fs, &file);
            for number in 0..2 {
                scope.spawn(move || {
                    run(number, &|random| {
                        let block = random.below(BLOCKS);
                        let count = 1 + random.below(6.min(BLOCKS - block));
                        let version = random.below(1 << 30);
                        let bytes: Vec<u8> =
                            (block..block + count).flat_map(|b| stamp(b, version)).collect();
                        write_all(fs, file, block * BLOCK as u64, &bytes);
                    });
                });
            }
            scope.spawn(move || {
                run(10, &|random| {
                    std::thread::sleep(Duration::from_millis(3));
                    let block = random.below(BLOCKS);
                    if random.one_in(2) {
                        set_size(fs, file, block * BLOCK as u64).expect("truncate");
                    } else {
                        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                        fs.fallocate(file, flags, block * BLOCK as u64, 3 * BLOCK as u64)
                            .expect("punch");
                    }
                });
            });
            for number in 20..22 {
                scope.spawn(move || {
                    run(number, &|_| {
                        let _ = fs.fsync(file, false).expect("fsync");
                    });
                });
            }
            for number in 30..32 {
                scope.spawn(move || {
                    run(number, &|random| {
                        let block = random.below(BLOCKS);
                        let got = read(fs, file, block * BLOCK as u64, 5 * BLOCK).expect("read");
                        for (i, bytes) in got.chunks_exact(BLOCK).enumerate() {
                            check_block(bytes, block + i as u64);
                        }
                    });
                });
            }
            let start = Instant::now();
            while start.elapsed() < RUN {
                std::thread::sleep(Duration::from_millis(20));
            }
            end.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs.counters().checksum_failures.get(), 0);
        // What is there now is there after a remount.
        let before = read(&fs, &file, 0, BLOCKS as usize * BLOCK + 10).expect("read");
        drop(file);
        fs.unmount().expect("unmount");
        let fs = mount(&device, &quiet());
        let file = open(&fs, "f", OpenFlags::READ);
        assert!(read(&fs, &file, 0, BLOCKS as usize * BLOCK + 10).expect("read") == before);
    }
}

#[test]
fn appends_of_many_threads_do_not_overwrite_one_another() {
    let device = new_volume(64 * MIB, 16384);
    let fs = mount(&device, &quiet());
    create(&fs, "log");
    let (threads, each) = (4, 300);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let fs = &fs;
            scope.spawn(move || {
                let flags = OpenFlags::WRITE | OpenFlags::APPEND;
                let file = open(fs, "log", flags);
                for i in 0..each {
                    write_all(fs, &file, 0, format!("{thread:03}:{i:06}\n").as_bytes());
                    if i % 50 == 0 {
                        fs.fsync(&file, true).expect("fsync");
                    }
                }
            });
        }
    });
    drop(fs.sync());
    drop(fs);
    let fs = mount(&device, &quiet());
    let file = open(&fs, "log", OpenFlags::READ);
    let all = read(&fs, &file, 0, 1 << 20).expect("read");
    let text = String::from_utf8(all).expect("text");
    let mut next = vec![0; threads];
    for line in text.lines() {
        let (thread, number) = line.split_once(':').expect("a whole line");
        let thread: usize = thread.parse().expect("a number");
        assert_eq!(number.parse::<usize>().expect("a number"), next[thread]);
        next[thread] += 1;
    }
    assert_eq!(next, vec![each; threads]);
}

/// Four writers fill so many files, each with so many bytes; after no write more than `most` bytes wait.
fn write_many(count: usize, size: usize, most: usize) {
    let device = new_volume(128 * MIB, 16384);
    let options = MountOptions { commit_secs: 0, dirty_bytes: 8 << 20, ..MountOptions::default() };
    let fs = mount(&device, &options);
    let files: Vec<_> = (0..count).map(|i| create(&fs, &format!("f{i}"))).collect();
    let each = count / 4;
    std::thread::scope(|scope| {
        for (number, files) in files.chunks(each).enumerate() {
            let fs = &fs;
            scope.spawn(move || {
                for (i, file) in files.iter().enumerate() {
                    let bytes = vec![(number * each + i) as u8; size];
                    write_all(fs, file, 0, &bytes);
                    assert!(fs.dirty_bytes() <= most, "{}", fs.dirty_bytes());
                }
            });
        }
    });
    for (i, file) in files.iter().enumerate() {
        let bytes = read(&fs, file, 0, size + 1).expect("read");
        assert!(bytes.len() == size && bytes.iter().all(|&b| b == i as u8));
    }
    drop(files);
    fs.unmount().expect("unmount");
}

#[test]
fn memory_for_dirty_data_stays_within_its_budget_under_many_files() {
    // One step of each of the four writers may be on its way.
    write_many(40, 2 << 20, (8 << 20) + 4 * (1 << 20));
}

#[test]
fn small_files_go_a_quarter_beyond_the_budget_at_most() {
    write_many(1000, 64 << 10, (8 << 20) / 4 * 5 + 4 * (64 << 10));
}
