//! What a program may expect of a mount whose volume is full.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use crate::common::{Mount, can_mount, volume};

const ROUNDS: usize = 40;
const PIECE: usize = 1 << 20;

/// Writes to `file` until not even a block finds room.
fn fill(file: &File) {
    let bytes = vec![0x77; PIECE];
    let (mut at, mut len) = (0, bytes.len());
    while len >= 4096 {
        match file.write_at(&bytes[..len], at) {
            Ok(written) => at += written as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                len /= 2;
            }
        }
    }
}

/// The kernel says that it has forgotten a file behind the answer to the program that removed it.
#[test]
fn a_write_right_behind_the_removal_of_a_big_file_finds_its_space() {
    if !can_mount() {
        return;
    }
    let mount = Mount::of(volume(48));
    let bytes = vec![0x55; 16 << 20];
    for round in 0..ROUNDS {
        let big = File::create(mount.path("big")).unwrap();
        fill(&big);
        // Closed before its name goes, or with it.
        if round % 2 == 0 {
            drop(big);
            std::fs::remove_file(mount.path("big")).unwrap();
        } else {
            std::fs::remove_file(mount.path("big")).unwrap();
            drop(big);
        }
        let next = File::create(mount.path("next"))
            .unwrap_or_else(|error| panic!("round {round}: create: {error}"));
        next.write_all_at(&bytes, 0)
            .unwrap_or_else(|error| panic!("round {round}: write: {error}"));
        drop(next);
        std::fs::remove_file(mount.path("next")).unwrap();
    }
    mount.leave();
}
