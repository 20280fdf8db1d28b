//! Space that fallocate has reserved, written through the kernel on a volume that has no other room.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};

use crate::common::{Mount, can_mount, volume};

const RESERVED: usize = 4 << 20;
const PIECE: usize = 60 << 10;

/// Writes to a file of its own until not even a block finds room.
fn fill(mount: &Mount) {
    let file = File::create(mount.path("fill")).unwrap();
    let bytes = vec![0x77; 1 << 20];
    let (mut at, mut len) = (0, bytes.len());
    while len >= 4096 {
        let written = file.write_at(&bytes[..len], at);
        // What was freed on the way is free with the next commit.
        mount.fs().sync().unwrap();
        match written {
            Ok(written) => at += written as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                len /= 2;
            }
        }
    }
}

/// The bytes of a file, other ones for each piece.
fn bytes() -> Vec<u8> {
    (0..RESERVED).map(|at| (at / PIECE * 7 + at % 251) as u8).collect()
}

#[test]
fn what_fallocate_reserved_is_written_on_a_full_volume_and_is_there_after_a_remount_and_a_crash() {
    if !can_mount() {
        return;
    }
    let mount = Mount::of(volume(32));
    let (path, bytes) = (mount.path("reserved"), bytes());
    let file = File::create(&path).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, RESERVED as u64).unwrap();
    file.sync_all().unwrap();
    fill(&mount);
    let refused = File::create(mount.path("other")).and_then(|other| {
        other.write_all_at(&bytes[..1 << 20], 0)?;
        other.sync_all()
    });
    let refused = refused.expect_err("the volume is full");
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    let in_place = |mount: &Mount| mount.fs().counters().reserved_bytes_written.get();
    let before = in_place(&mount);
    // From the end to the beginning, whole blocks.
    let pieces: Vec<_> = (0..).step_by(PIECE).zip(bytes.chunks(PIECE)).collect();
    for (count, (at, piece)) in pieces.iter().rev().enumerate() {
        file.write_all_at(piece, *at as u64).unwrap();
        if count % 8 == 7 {
            file.sync_all().unwrap();
        }
    }
    file.sync_all().unwrap();
    assert!(in_place(&mount) - before >= RESERVED as u64 / 2, "it went elsewhere");
    drop(file);
    let is_there = |mount: &Mount, when: &str| {
        assert!(std::fs::read(mount.path("reserved")).unwrap() == bytes, "{when}");
    };
    is_there(&mount, "before");
    let mount = mount.crash();
    is_there(&mount, "after a crash");
    let mount = mount.remount();
    is_there(&mount, "after a remount");
    std::fs::remove_file(mount.path("fill")).unwrap();
    std::fs::write(mount.path("other"), &bytes[..1 << 20]).unwrap();
    mount.leave();
}
