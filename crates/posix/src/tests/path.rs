//! Paths for messages: found without a search, and bounded whatever a volume says.

use holdfast_format::Key;
use holdfast_format::item::InodeItem;
use holdfast_store::{Need, Transaction};

use super::*;

fn path(volume: &Volume, inode: InodeNo) -> Option<String> {
    volume.fs.whereabouts(inode).path().map(str::to_owned)
}

#[test]
fn a_path_is_that_of_the_newest_name_and_follows_moves() {
    let volume = Volume::new();
    let a = volume.dir(ROOT, "a");
    let b = volume.dir(a, "b");
    let file = volume.file(b, "new\nline");
    assert_eq!(path(&volume, ROOT).as_deref(), Some("/"));
    assert_eq!(path(&volume, file).as_deref(), Some("/a/b/new\\nline"));
    volume.rename((ROOT, "a"), (ROOT, "c")).unwrap();
    volume.fs.link(&root(), file, a, b"link").unwrap();
    assert_eq!(path(&volume, file).as_deref(), Some("/c/link"));
    let volume = volume.remount();
    assert_eq!(path(&volume, file).as_deref(), Some("/c/link"));
    let names = volume.fs.names();
    assert_eq!(names.whereabouts(file).path(), Some("/c/link"), "it is in memory by now");
    // Of several names it does not know another one by itself, and says no wrong one.
    volume.unlink(a, "link").unwrap();
    assert_eq!(volume.fs.whereabouts(file), Whereabouts::Unknown);
    assert_eq!(volume.fs.whereabouts(file).of(file), format!("inode {file}"));
    volume.rename((b, "new\nline"), (b, "x")).unwrap();
    assert_eq!(path(&volume, file).as_deref(), Some("/c/b/x"));
    assert_eq!(volume.fs.whereabouts(InodeNo(4711)), Whereabouts::Unknown);
    drop(volume);
    assert_eq!(names.whereabouts(file), Whereabouts::Unknown, "it is gone");
}

/// P10: directories that hold each other.
#[test]
fn directories_in_a_circle_end_the_way_and_are_said_to_be_one() {
    let volume = Volume::new();
    let a = volume.dir(ROOT, "a");
    let b = volume.dir(a, "b");
    let file = volume.file(b, "file");
    // `a` is a name in `b` as well, and says so.
    let store = &volume.fs.core.store;
    let item = |no| InodeItem::decode(&store.get(&Key::inode(no)).unwrap().unwrap()).unwrap();
    let slot = volume.fs.core.slot(b"a");
    let mut transaction = Transaction::new();
    crate::names::put(&mut transaction, b, slot, b"a", a, FileType::Directory);
    let item = InodeItem { parent: b, parent_slot: slot, ..item(a) };
    transaction.put_with(Key::inode(a), |out| item.write(out));
    let mut reservation = store.reserve(Need::Writeback { changes: 2 }).unwrap();
    store.apply(transaction, &mut reservation).unwrap();
    assert_eq!(volume.fs.whereabouts(file), Whereabouts::Endless);
    assert!(volume.fs.whereabouts(file).of(file).contains("in a circle"));
}

/// P6: data that fails its checksum is an error that names the file, and the next superblock tells of it.
#[test]
fn damaged_data_is_named_by_its_path_and_told_of_by_the_superblock() {
    let volume = Volume::new();
    let dir = volume.dir(ROOT, "dir");
    let file = volume.file(dir, "file");
    let open = volume.fs.open(&root(), file, OpenFlags::READ | OpenFlags::WRITE).unwrap();
    volume.fs.write(&root(), &open, 0, &[7; 20_000], WriteHow::default()).unwrap();
    volume.fs.fsync(&open, false).unwrap();
    drop(open);
    let volume = volume.remount();
    // One bit of the data.
    let mut block = vec![0; 4096];
    let at = (0..volume.device.len())
        .step_by(4096)
        .find(|at| {
            volume.device.read(*at, &mut block).unwrap();
            block == [7; 4096]
        })
        .unwrap();
    block[99] ^= 1;
    volume.device.write(at, &block).unwrap();
    let open = volume.fs.open(&root(), file, OpenFlags::READ).unwrap();
    let error = volume.fs.read(&open, 0, &mut [0; 20_000]).unwrap_err();
    drop(open);
    let named = format!("inode {file} (/dir/file): the data at byte ");
    assert!(error.to_string().contains(&named), "{error}");
    let volume = volume.remount();
    let fault = volume.fs.core.store.superblock().fault.unwrap();
    assert!(fault.reason.starts_with(&named), "{fault:?}");
}
