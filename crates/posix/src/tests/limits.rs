//! Branches at their limits: what would make one refer to more is refused, all else goes on.

use super::*;

const BOTH: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const BLOCK: usize = 4096;

fn open(v: &Volume, name: &str) -> Result<Arc<OpenFile>> {
    Ok(v.fs.create(&root(), ROOT, name.as_bytes(), 0o644, BOTH, false)?.1)
}

fn write(v: &Volume, file: &OpenFile, block: usize, blocks: usize) -> Result<usize> {
    let bytes = vec![block as u8 + 1; blocks * BLOCK];
    v.fs.write(&root(), file, (block * BLOCK) as u64, &bytes, WriteHow::default())
}

fn referenced(v: &Volume) -> u64 {
    v.fs.core.store.referenced_blocks()
}

/// The branch may refer to so many blocks more than now.
fn leave(v: &Volume, blocks: u64) {
    v.fs.sync().unwrap();
    v.fs.limit(b"main", Some(referenced(v) + blocks)).unwrap();
}

#[test]
fn what_grows_is_refused_and_what_shrinks_works() {
    let v = Volume::new();
    let file = open(&v, "file").unwrap();
    write(&v, &file, 0, 50).unwrap();
    leave(&v, 10);
    let shown = v.fs.statfs();
    assert_eq!(shown.blocks_available, 10);
    assert_eq!(shown.blocks - shown.blocks_free, referenced(&v));
    // As much as there is room for, and then nothing.
    assert_eq!(write(&v, &file, 50, 20).unwrap(), 10 * BLOCK);
    assert_eq!(v.fs.statfs().blocks_available, 0);
    assert_eq!(errno(write(&v, &file, 60, 1)), libc::EDQUOT);
    let more = v.fs.fallocate(&file, FallocateFlags::empty(), 80 * BLOCK as u64, BLOCK as u64);
    assert_eq!(errno(more), libc::EDQUOT);
    // What was accepted is written, and fsynced.
    v.fs.fsync(&file, false).unwrap();
    v.fs.sync().unwrap();
    assert_eq!(v.stat(file.inode()).size, 60 * BLOCK as u64);

    v.fs.limit(b"main", Some(5)).unwrap();
    assert_eq!(errno(open(&v, "other")), libc::EDQUOT);
    let made = v.fs.mkdir(&root(), ROOT, b"dir", 0o755);
    assert_eq!(errno(made), libc::EDQUOT);
    let linked = v.fs.link(&root(), file.inode(), ROOT, b"link");
    assert_eq!(errno(linked), libc::EDQUOT);
    assert_eq!((v.fs.statfs().blocks, v.fs.statfs().blocks_free), (5, 0));
    v.rename((ROOT, "file"), (ROOT, "new name")).unwrap();
    let perm = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    v.fs.setattr(&root(), file.inode(), None, perm).unwrap();
    let cut = SetAttr { size: Some(BLOCK as u64), ..SetAttr::default() };
    v.fs.setattr(&root(), file.inode(), None, cut).unwrap();
    v.unlink(ROOT, "new name").unwrap();
    drop(file);
    v.fs.limit(b"main", Some(100)).unwrap();
    let file = open(&v, "other").unwrap();
    write(&v, &file, 0, 50).unwrap();
    drop(file);
    v.check();
}

#[test]
fn data_in_place_of_old_data_is_accepted_at_the_limit() {
    let v = Volume::new();
    let file = open(&v, "file").unwrap();
    write(&v, &file, 0, 100).unwrap();
    leave(&v, 0);
    for round in 0..5 {
        assert_eq!(write(&v, &file, 0, 100).unwrap(), 100 * BLOCK, "round {round}");
        // In part of blocks, too.
        let part = v.fs.write(&root(), &file, 77, b"part", WriteHow::default());
        assert_eq!(part.unwrap(), 4);
        v.fs.fsync(&file, true).unwrap();
    }
    let before = referenced(&v);
    // A hole in the middle gives room for as much.
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    v.fs.fallocate(&file, hole, 10 * BLOCK as u64, 7 * BLOCK as u64).unwrap();
    assert_eq!(referenced(&v), before - 7);
    assert_eq!(write(&v, &file, 10, 7).unwrap(), 7 * BLOCK);
    assert_eq!(errno(write(&v, &file, 100, 1)), libc::EDQUOT);
    // What a snapshot has as well is overwritten alike: the branch refers to no more.
    v.fs.snapshot(b"s").unwrap();
    assert_eq!(write(&v, &file, 0, 100).unwrap(), 100 * BLOCK);
    v.fs.sync().unwrap();
    drop(file);
    v.check();
}

#[test]
fn small_files_that_wait_give_back_what_they_do_not_need() {
    let v = Volume::new();
    leave(&v, 40);
    // Each waits with a block, and needs none in the end.
    for number in 0..60 {
        let file = open(&v, &format!("f{number}")).unwrap();
        let wrote = v.fs.write(&root(), &file, 0, b"small", WriteHow::default());
        assert_eq!(wrote.unwrap(), 5, "file {number}");
    }
    v.fs.sync().unwrap();
    v.check();
}

#[test]
fn a_limit_is_that_of_its_branch_and_stays_with_it() {
    let v = Volume::new();
    let file = open(&v, "file").unwrap();
    write(&v, &file, 0, 30).unwrap();
    v.fs.snapshot(b"s").unwrap();
    v.fs.fork(b"work", Some(b"s")).unwrap();
    let of = |v: &Volume, name: &[u8]| v.fs.find_branch(name).unwrap();
    assert_eq!(of(&v, b"work").referenced, of(&v, b"main").referenced);
    leave(&v, 3);
    let limit = of(&v, b"main").limit;
    assert_eq!(write(&v, &file, 30, 9).unwrap(), 3 * BLOCK);
    v.fs.rollback(b"s", Some(b"kept")).unwrap();
    assert_eq!(of(&v, b"main").limit, limit);
    assert_eq!(write(&v, &file, 30, 9).unwrap(), 3 * BLOCK, "it is as it was");
    assert_eq!(errno(write(&v, &file, 33, 1)), libc::EDQUOT);
    assert_eq!(of(&v, b"work").limit, None);
    drop(file);
    let v = v.crash_after_sync();
    let file = v.fs.open(&root(), v.find(ROOT, "file").unwrap(), BOTH).unwrap();
    let all: usize = (0..20).map_while(|at| write(&v, &file, 50 + at, 1).ok()).sum();
    assert!(all <= 4 * BLOCK, "{all} bytes were accepted behind a crash");
    drop(file);
    let v = v.remount();
    assert_eq!(of(&v, b"main").limit, limit);
    v.check();
}
