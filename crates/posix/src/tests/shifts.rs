//! Ranges that are taken out of files and put in.

use super::*;

const COLLAPSE: FallocateFlags = FallocateFlags::COLLAPSE_RANGE;
const INSERT: FallocateFlags = FallocateFlags::INSERT_RANGE;

/// Bytes of which no block is like another.
fn pattern(len: u32, seed: u32) -> Vec<u8> {
    (0..len).map(|at| (at / 4096 * 7 + at % 251 + seed) as u8).collect()
}

fn written(volume: &Volume, name: &str, bytes: &[u8]) -> std::sync::Arc<OpenFile> {
    let no = volume.file(ROOT, name);
    let file = volume.fs.open(&root(), no, OpenFlags::READ | OpenFlags::WRITE).unwrap();
    let count = volume.fs.write(&root(), &file, 0, bytes, WriteHow::default()).unwrap();
    assert_eq!(count, bytes.len());
    file
}

fn content(volume: &Volume, file: &OpenFile) -> Vec<u8> {
    let size = volume.fs.getattr(file.inode()).unwrap().size;
    let mut bytes = vec![9; size as usize];
    assert_eq!(volume.fs.read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[test]
fn what_follows_moves_and_is_durable() {
    let volume = Volume::new();
    let mut bytes = pattern(300_000, 1);
    let file = written(&volume, "f", &bytes);
    volume.fs.fallocate(&file, COLLAPSE, 8192, 40_960).unwrap();
    bytes.drain(8192..8192 + 40_960);
    assert!(content(&volume, &file) == bytes);
    volume.fs.fallocate(&file, INSERT, 4096, 12_288).unwrap();
    bytes.splice(4096..4096, vec![0; 12_288]);
    assert!(content(&volume, &file) == bytes);
    assert_eq!(volume.fs.seek(&file, 4096, Seek::Data).unwrap(), 4096 + 12_288);
    let attr = volume.fs.getattr(file.inode()).unwrap();
    assert_eq!((attr.size, attr.blocks), (bytes.len() as u64, 64 * 8));
    assert_eq!(volume.fs.core.counters.log_moved.get(), 0, "the calls have made it durable");
    let no = file.inode();
    drop(file);
    let Volume { fs, device } = volume;
    drop(fs);
    let volume = Volume { fs: FileSystem::mount(device.clone(), options()).unwrap(), device };
    let file = volume.fs.open(&root(), no, OpenFlags::READ).unwrap();
    assert!(content(&volume, &file) == bytes);
}

#[test]
fn ranges_that_make_no_sense_are_refused() {
    let volume = Volume::new();
    let file = written(&volume, "f", &pattern(20_000, 1));
    let refused = |flags, offset, len| errno(volume.fs.fallocate(&file, flags, offset, len));
    for flags in [COLLAPSE, INSERT] {
        assert_eq!(refused(flags, 100, 4096), libc::EINVAL);
        assert_eq!(refused(flags, 4096, 100), libc::EINVAL);
        assert_eq!(refused(flags, 4096, 0), libc::EINVAL);
        assert_eq!(refused(flags | FallocateFlags::KEEP_SIZE, 4096, 4096), libc::EINVAL);
        assert_eq!(refused(flags, 20_480, 4096), libc::EINVAL);
    }
    assert_eq!(refused(COLLAPSE | INSERT, 0, 4096), libc::EINVAL);
    assert_eq!(refused(COLLAPSE, 16_384, 4096), libc::EINVAL, "it reaches the end");
    assert_eq!(refused(INSERT, 0, (1 << 63) - 8192), libc::EFBIG);
    assert_eq!(refused(INSERT, 4096, u64::MAX - 8191), libc::EFBIG);
    // What lies behind the end would lie beyond the largest file.
    let far = holdfast_format::limits::FILE_SIZE_MAX / 4096 * 4096 - 8192;
    volume.fs.fallocate(&file, FallocateFlags::KEEP_SIZE, far, 4096).unwrap();
    assert_eq!(refused(INSERT, 4096, 1 << 20), libc::EFBIG);
    assert!(content(&volume, &file) == pattern(20_000, 1));
    let readable = volume.fs.open(&root(), file.inode(), OpenFlags::READ).unwrap();
    assert_eq!(errno(volume.fs.fallocate(&readable, COLLAPSE, 0, 4096)), libc::EBADF);
    volume.fs.core.store.invariants();
}

/// More extents than one step moves: nothing has changed.
#[test]
fn too_many_extents_are_refused() {
    let volume = Volume::new();
    let file = written(&volume, "f", &[1]);
    for block in 0..300u64 {
        volume
            .fs
            .write(&root(), &file, block * 8192, &[(block % 250) as u8 + 1], WriteHow::default())
            .unwrap();
    }
    assert_eq!(errno(volume.fs.fallocate(&file, COLLAPSE, 0, 4096)), libc::EFBIG);
    volume.fs.fallocate(&file, COLLAPSE, 100 * 8192, 8192).unwrap();
    let bytes = content(&volume, &file);
    assert_eq!((bytes[99 * 8192], bytes[100 * 8192], bytes[8192]), (100, 102, 2));
}

/// A small file lies in its item; behind a hole it needs blocks.
#[test]
fn a_small_file_gets_a_hole_in_front() {
    let volume = Volume::new();
    let file = written(&volume, "f", b"small");
    volume.fs.fsync(&file, false).unwrap();
    volume.fs.fallocate(&file, INSERT, 0, 8192).unwrap();
    assert!(content(&volume, &file) == [&[0; 8192][..], b"small"].concat());
    volume.fs.fallocate(&file, COLLAPSE, 0, 8192).unwrap();
    assert!(content(&volume, &file) == b"small");
    volume.fs.write(&root(), &file, 1, b"M", WriteHow::default()).unwrap();
    let volume = volume.crash_after_sync();
    volume.fs.core.store.invariants();
}

/// Snapshots keep what they have, and give back all of it when they go, in any order.
#[test]
fn snapshots_keep_what_they_have() {
    for order in [[b"a", b"b"], [b"b", b"a"]] {
        let volume = Volume::new();
        let free = volume.fs.statfs().blocks_free;
        let mut bytes = pattern(200_000, 3);
        let file = written(&volume, "f", &bytes);
        volume.fs.fallocate(&file, FallocateFlags::KEEP_SIZE, 260 << 10, 64 << 10).unwrap();
        volume.fs.snapshot(b"a").unwrap();
        volume.fs.fallocate(&file, COLLAPSE, 4096, 8192).unwrap();
        volume.fs.snapshot(b"b").unwrap();
        volume.fs.fallocate(&file, INSERT, 16_384, 20_480).unwrap();
        let shown = |name: &[u8]| {
            let snapshot = volume.fs.open_snapshot(&b"main"[..], name, options()).unwrap();
            let found = snapshot.lookup(&root(), ROOT, b"f").unwrap();
            let open = snapshot.open(&root(), found.inode, OpenFlags::READ).unwrap();
            let mut read = vec![9; found.size as usize];
            snapshot.read(&open, 0, &mut read).unwrap();
            drop(open);
            snapshot.unmount().unwrap();
            read
        };
        assert!(shown(b"a") == bytes, "the first one");
        bytes.drain(4096..12_288);
        assert!(shown(b"b") == bytes, "the second one");
        bytes.splice(16_384..16_384, vec![0; 20_480]);
        assert!(content(&volume, &file) == bytes);
        for name in order {
            volume.fs.delete_snapshot(&b"main"[..], &name[..]).unwrap();
            while volume.fs.core.deletions.work_off(100).unwrap() {}
            assert!(content(&volume, &file) == bytes);
        }
        drop(file);
        volume.unlink(ROOT, "f").unwrap();
        let volume = volume.remount();
        volume.fs.commit().unwrap();
        let left = free - volume.fs.statfs().blocks_free;
        assert!(left < 8, "{left} blocks are lost");
    }
}

/// Lost bytes are known by their place: the file stays as it is until they are written again.
#[test]
fn lost_bytes_do_not_move() {
    let volume = Volume::new();
    let file = written(&volume, "f", &pattern(20_000, 1));
    volume.fs.core.inode(file.inode()).unwrap().lost.add(std::iter::once(8192..9000));
    assert_eq!(errno(volume.fs.fallocate(&file, COLLAPSE, 0, 4096)), libc::EIO);
    volume.fs.write(&root(), &file, 8192, &[7; 808], WriteHow::default()).unwrap();
    volume.fs.fallocate(&file, COLLAPSE, 0, 4096).unwrap();
    assert_eq!(content(&volume, &file)[4096..4904], [7; 808]);
}

/// P8: taking a range out makes room. What fallocate has reserved moves with it, and can be written then.
#[test]
fn a_full_volume_is_made_emptier() {
    let volume = Volume::with(8 << 20, 4096, options());
    let file = written(&volume, "f", &pattern(400_000, 1));
    let reserved = written(&volume, "r", &pattern(4096, 2));
    volume.fs.fallocate(&reserved, FallocateFlags::empty(), 4096, 200 << 10).unwrap();
    let filling = written(&volume, "fill", b"x");
    let mut at = 0;
    for len in [64 << 10, 4096] {
        let bytes = pattern(len, 3);
        while volume.fs.write(&root(), &filling, at, &bytes, WriteHow::default()).is_ok() {
            at += u64::from(len);
        }
    }
    volume.fs.sync().unwrap();
    assert_eq!(
        errno(volume.fs.write(&root(), &filling, at, &[1; 8192], WriteHow::default())),
        libc::ENOSPC
    );
    volume.fs.fallocate(&reserved, COLLAPSE, 0, 4096).unwrap();
    volume.fs.fallocate(&reserved, COLLAPSE, 8192, 8192).unwrap();
    let written =
        volume.fs.write(&root(), &reserved, 0, &pattern(100 << 10, 4), WriteHow::default());
    assert_eq!(written.unwrap(), 100 << 10);
    volume.fs.fsync(&reserved, false).unwrap();
    volume.fs.fallocate(&file, COLLAPSE, 0, 200 << 10).unwrap();
    volume.fs.write(&root(), &filling, at, &[1; 65536], WriteHow::default()).unwrap();
    assert!(content(&volume, &reserved)[..100 << 10] == pattern(100 << 10, 4));
    assert!(content(&volume, &file) == pattern(400_000, 1)[200 << 10..]);
    volume.check();
}
