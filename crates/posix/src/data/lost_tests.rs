//! Data that the device refuses: which bytes count as lost, and which calls report it (P7).

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::prng::{Prng, entropy};
use holdfast_base::units::BLOCK_BYTES;

use super::promise_tests::{Host, mount, refuse};
use super::tests::{BOTH, open, volume, write};
use crate::*;

/// All data on its way to the device is lost.
fn lose(host: &Host, fs: &FileSystem) {
    refuse(host, fs, true);
    assert_eq!(fs.core.write_back().unwrap_err().errno(), libc::EIO);
    refuse(host, fs, false);
}

/// The bytes that are lost, as a flag for each.
fn lost(file: &OpenFile, len: u64) -> Vec<bool> {
    let mut bytes = vec![false; len as usize];
    while let Some(range) = file.inode.lost.first() {
        bytes[range.start as usize..range.end as usize].fill(true);
        file.inode.lost.forget(range);
    }
    bytes
}

#[test]
fn exactly_the_bytes_are_lost_that_were_written() {
    let seed = entropy();
    println!("seed {seed}");
    let mut random = Prng::seeded(seed);
    const SPAN: u64 = 12 * BLOCK_BYTES;
    let (host, fs) = mount(volume(), libc::EIO);
    for round in 0..150 {
        let name = format!("f{round}");
        let made = fs.create(&Caller::root(), InodeNo::ROOT, name.as_bytes(), 0o644, BOTH, true);
        let file = made.unwrap().1;
        let mut wrote = vec![false; SPAN as usize];
        // Some of it small, so that content which was an item becomes a block, and holes; some of it written back before.
        let written = random.below(4);
        let count = written + 1 + random.below(6);
        let mut writes = Vec::new();
        for step in 0..count {
            let near = random.one_in(2);
            let at = random.below(if near { 3000 } else { SPAN - 1 });
            let len = (1 + random.below(if near { 300 } else { 9000 })).min(SPAN - at);
            write(&fs, &file, at, &vec![1 + step as u8; len as usize]);
            if step < written {
                fs.core.write_back().unwrap();
                continue;
            }
            wrote[at as usize..(at + len) as usize].fill(true);
            writes.push((at, len));
        }
        let content = file.inode.state.read().disk;
        if content.size <= 2048 && file.inode.state.read().attr.size <= 2048 {
            // It would stay an item, which no device refuses.
            continue;
        }
        lose(&host, &fs);
        assert!(lost(&file, SPAN) == wrote, "seed {seed}, round {round}: {writes:?}");
        // Once more, for a program that writes the same again.
        writes.iter().for_each(|&(at, len)| write(&fs, &file, at, &vec![9; len as usize]));
        if file.inode.state.read().attr.size <= 2048 {
            continue;
        }
        lose(&host, &fs);
        let last = writes.pop().unwrap();
        for (at, len) in writes {
            // To its location: log-resident data would be written while data is refused again.
            fs.core.write_back().unwrap();
            // Unless what was written first covers the rest.
            if file.inode.lost.first().is_some() {
                assert_eq!(fs.fsync(&file, false).unwrap_err().errno(), libc::EIO);
            }
            write(&fs, &file, at, &vec![9; len as usize]);
        }
        write(&fs, &file, last.0, &vec![9; last.1 as usize]);
        assert_eq!(file.inode.lost.first(), None, "seed {seed}, round {round}");
        fs.core.write_back().unwrap();
        // The handle has reported its error before, or reports it now.
        let _ = fs.fsync(&file, false);
        fs.fsync(&file, false).unwrap();
    }
}

#[test]
fn a_sync_tells_once_of_what_was_lost_before_it() {
    let (host, fs) = mount(volume(), libc::EIO);
    let file = open(&fs);
    fs.sync().unwrap();
    write(&fs, &file, 0, &[7; 9000]);
    // As the background does it.
    lose(&host, &fs);
    drop(file);
    assert_eq!(fs.sync().unwrap_err().errno(), libc::EIO);
    fs.sync().expect("it was told");
    let file = open(&fs);
    write(&fs, &file, 0, &[7; 9000]);
    refuse(&host, &fs, true);
    assert_eq!(fs.sync().unwrap_err().errno(), libc::EIO);
    refuse(&host, &fs, false);
    fs.sync().expect("it was told");
    // An fsync of the file reports what a sync has reported, and the other way round.
    assert_eq!(fs.fsync(&file, false).unwrap_err().errno(), libc::EIO);
    write(&fs, &file, 0, &[7; 9000]);
    refuse(&host, &fs, true);
    fs.core.write_back().unwrap_err();
    refuse(&host, &fs, false);
    assert_eq!(fs.fsync(&file, false).unwrap_err().errno(), libc::EIO);
    assert_eq!(fs.sync().unwrap_err().errno(), libc::EIO);
    write(&fs, &file, 0, &[7; 9000]);
    fs.sync().unwrap();
    fs.fsync(&file, false).unwrap();
    let again: Arc<OpenFile> = fs.open(&Caller::root(), file.inode(), BOTH).unwrap();
    fs.fsync(&again, false).unwrap();
}
