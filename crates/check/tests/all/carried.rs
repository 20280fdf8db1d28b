//! A volume of a later program, whose features this one does not know: what may be there lives on unchanged through all that
//! this program does, what may not be there is found and refused, and a volume that must not be written is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, InodeNo};
use holdfast_check::{Issue, Severity, check, view};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::InodeItem;
use holdfast_format::{ItemKind, Key, NodePointer, NodeView, Superblock};
use holdfast_posix::{
    Caller, FileSystem, FsError, MountOptions, OpenFlags, RenameFlags, SetAttr, WriteHow,
    XattrFlags,
};

use crate::common::branches::newest;
use crate::common::*;

/// A feature word of the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Compat,
    RoCompat,
}

impl Word {
    /// Kinds of items that its features may bring: first and last of both trees.
    fn kinds(self) -> ([u8; 2], [u8; 2]) {
        match self {
            Word::Compat => ([64, 95], [128, 159]),
            Word::RoCompat => ([96, 127], [160, 191]),
        }
    }

    /// Flags of inodes that they may bring: the lowest and the highest.
    fn flags(self) -> u32 {
        match self {
            Word::Compat => 1 << 16 | 1 << 23,
            Word::RoCompat => 1 << 24 | 1 << 31,
        }
    }

    /// Says that a feature which this program does not know is there.
    fn set(self, maker: &mut Maker) {
        maker.superblock(move |superblock| match self {
            Word::Compat => superblock.features_compat = FEATURE,
            Word::RoCompat => superblock.features_ro_compat = FEATURE,
        });
    }
}

const FEATURE: u64 = 1 << 40;
/// What it has put behind the fields of superblocks, and of inodes.
const REST: &[u8] = b"a later program's";
const TAIL: &[u8] = b"and its inode's";
/// An inode that there never was, and one that comes much later.
const NO_INODES: [InodeNo; 2] = [InodeNo(9), InodeNo(1 << 40)];

type Items = BTreeMap<Key, Vec<u8>>;

fn kind(raw: u8) -> ItemKind {
    ItemKind::from_raw(raw).unwrap()
}

/// Items of these kinds beside inodes that change, that go, and that are not there.
fn files_items(kinds: [u8; 2]) -> Items {
    let inodes = [ROOT, DIR, DATA, INLINE, ORPHAN, NO_INODES[0], NO_INODES[1]];
    let of = |inode: InodeNo| {
        kinds.map(|raw| {
            let value = vec![raw ^ inode.0 as u8; 40 + raw as usize];
            (Key::new(inode, kind(raw), u64::from(raw) << 20), value)
        })
    };
    inodes.into_iter().flat_map(of).collect()
}

fn space_items(kinds: [u8; 2]) -> Items {
    let of = |raw: u8| {
        let key = |inode, offset| Key::new(InodeNo(inode), kind(raw), offset);
        [(key(0, 5), vec![raw; 60]), (key(1 << 50, 0), vec![raw; 3])]
    };
    kinds.into_iter().flat_map(of).collect()
}

/// The inode's item with something behind its fields.
fn lengthen(maker: &mut Maker, number: InodeNo) {
    maker.files.get_mut(&Key::inode(number)).unwrap().extend(TAIL);
}

/// A volume with all that a feature of this word may bring, of a program that says so.
fn later(word: Word) -> Maker {
    let mut maker = Maker::sample();
    maker.leaf_items = 9;
    let (files, space) = word.kinds();
    maker.files.extend(files_items(files));
    maker.space.extend(space_items(space));
    for number in [ROOT, DIR, DATA, ORPHAN] {
        maker.change(number, |item| item.flags |= word.flags());
    }
    for number in [ROOT, DATA, INLINE] {
        lengthen(&mut maker, number);
    }
    maker.superblock(|superblock| superblock.rest = REST.to_vec());
    word.set(&mut maker);
    maker
}

/// Nothing is wrong: there are features that check does not know, which it may say.
fn clean(device: &dyn Device) {
    let report = check_all(device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(issues(&report), [Issue::FeaturesUnknown]);
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Note));
}

fn mount(device: &Arc<MemoryDevice>, read_only: bool) -> Result<FileSystem, FsError> {
    let options =
        MountOptions { commit_secs: 0, inode_cache: 1, read_only, ..MountOptions::default() };
    FileSystem::mount(device.clone() as Arc<dyn Device>, options)
}

/// The items of the space tree of a volume that was closed.
fn space_of(device: &dyn Device) -> Items {
    let mut items = Items::new();
    let mut todo: Vec<NodePointer> = vec![newest(device).space];
    while let Some(at) = todo.pop() {
        let mut bytes = vec![0; NODE];
        device.read(at.block.0 * BLOCK_BYTES, &mut bytes).unwrap();
        let node = NodeView::trusted(&bytes);
        for index in 0..node.count() {
            match node.level() {
                0 => drop(items.insert(node.key(index), node.value(index).to_vec())),
                _ => todo.push(node.child(index)),
            }
        }
    }
    items
}

/// What the word brought is in the files of a branch, beside each inode that is there and each that is not.
fn files_have(items: &Items, word: Word, what: &str) {
    for (key, value) in files_items(word.kinds().0) {
        assert_eq!(items.get(&key), Some(&value), "{what}: {key:?}");
    }
    for number in [ROOT, DIR, DATA] {
        let Some(bytes) = items.get(&Key::inode(number)) else { continue };
        let item = InodeItem::decode(bytes).unwrap();
        assert_eq!(item.flags & word.flags(), word.flags(), "{what}: {number}");
    }
    for number in [ROOT, DATA, INLINE] {
        let Some(bytes) = items.get(&Key::inode(number)) else { continue };
        assert_eq!(InodeItem::tail(bytes), TAIL, "{what}: {number}");
    }
}

/// What the word brought is in superblocks, the space tree, and each branch.
fn has_all(device: &dyn Device, word: Word) {
    for slot in SUPERBLOCK_SLOTS {
        let mut bytes = [0; 4096];
        device.read(slot.0 * BLOCK_BYTES, &mut bytes).unwrap();
        let superblock = Superblock::decode(&bytes, slot).unwrap();
        assert_eq!(superblock.rest, REST);
        assert_eq!(superblock.features_compat | superblock.features_ro_compat, FEATURE);
    }
    let space = space_of(device);
    for (key, value) in space_items(word.kinds().1) {
        assert_eq!(space.get(&key), Some(&value), "{key:?}");
    }
    let view = view(device).unwrap();
    files_have(&view.items, word, "main");
    for (number, items) in &view.branches {
        files_have(items, word, &format!("branch {number}"));
    }
}

/// Changes what the inodes with something unknown are and hold.
fn change(fs: &FileSystem, round: u32) {
    let root = Caller::root();
    for number in [ROOT, DIR, DATA, INLINE] {
        let perm = SetAttr { perm: Some(0o700 + round), ..SetAttr::default() };
        fs.setattr(&root, number, None, perm).unwrap();
        let name = format!("user.round-{round}");
        fs.setxattr(&root, number, name.as_bytes(), b"x", XattrFlags::empty()).unwrap();
    }
    for (number, at) in [(DATA, 5000), (INLINE, 3)] {
        let file = fs.open(&root, number, OpenFlags::READ | OpenFlags::WRITE).unwrap();
        fs.write(&root, &file, at, &[round as u8; 3000], WriteHow::default()).unwrap();
        fs.fsync(&file, false).unwrap();
    }
}

/// Makes nodes split and join.
fn crowd(fs: &FileSystem) {
    let root = Caller::root();
    let name = |number: u32| format!("one of a crowd, {number}").into_bytes();
    for number in 0..150 {
        fs.create(&root, DIR, &name(number), 0o600, OpenFlags::READ, true).unwrap();
    }
    fs.checkpoint().unwrap();
    for number in 0..150 {
        fs.unlink(&root, DIR, &name(number)).unwrap();
    }
}

/// Deletes a file with something unknown beside it, whose items outlive it.
fn remove_data(fs: &FileSystem) {
    let root = Caller::root();
    fs.unlink(&root, ROOT, b"hard").unwrap();
    fs.unlink(&root, DIR, b"data").unwrap();
}

#[test]
fn what_a_compat_feature_brings_lives_on() {
    let word = Word::Compat;
    let device = Arc::new(later(word).make().device);
    clean(&*device);
    has_all(&*device, word);

    let fs = mount(&device, false).unwrap();
    let root = Caller::root();
    change(&fs, 1);
    // A power cut with all of that in the log: the recovery, and check without one.
    let cut = Arc::new(device.snapshot());
    clean(&*cut);
    files_have(&view(&*cut).unwrap().items, word, "the log");
    mount(&cut, false).unwrap().unmount().unwrap();
    clean(&*cut);
    has_all(&*cut, word);

    fs.snapshot(b"first").unwrap();
    crowd(&fs);
    change(&fs, 2);
    fs.rename(&root, ROOT, b"inline", DIR, b"moved", RenameFlags::empty()).unwrap();
    fs.commit().unwrap();
    // And one with all of that in the journal.
    let cut = Arc::new(device.snapshot());
    clean(&*cut);
    mount(&cut, false).unwrap().unmount().unwrap();
    clean(&*cut);
    has_all(&*cut, word);

    fs.fork(b"fork", Some(b"first")).unwrap();
    let options = MountOptions { inode_cache: 1, ..MountOptions::default() };
    let fork = fs.open_branch(b"fork", options).unwrap();
    change(&fork, 3);
    remove_data(&fork);
    fork.snapshot(b"of the fork").unwrap();
    crowd(&fork);
    fork.commit().unwrap();
    clean(&device.snapshot());
    change(&fs, 4);
    fs.snapshot(b"second").unwrap();
    remove_data(&fs);
    // Walks go over the unknown items: of a snapshot that two trees grew out of, of one, and of a branch.
    fs.delete_snapshot(b"main", b"first").unwrap();
    fs.delete_snapshot(b"main", b"second").unwrap();
    fs.delete_snapshot(b"fork", b"of the fork").unwrap();
    fs.finish_deletions().unwrap();
    fork.unmount().unwrap();
    fs.fork(b"short", None).unwrap();
    fs.delete_branch(b"short").unwrap();
    fs.finish_deletions().unwrap();
    fs.checkpoint().unwrap();
    fs.unmount().unwrap();

    clean(&*device);
    has_all(&*device, word);
    let left = view(&*device).unwrap();
    assert_eq!(left.branches.len(), 1);
    for items in left.branches.values().chain([&left.items]) {
        assert!(!items.contains_key(&Key::inode(DATA)), "the file is gone, its items are not");
    }
}

#[test]
fn what_an_ro_compat_feature_brings_is_read_and_not_written() {
    let word = Word::RoCompat;
    let device = Arc::new(later(word).make().device);
    clean(&*device);
    has_all(&*device, word);
    let before = device.to_image();
    let refused = mount(&device, false).unwrap_err().to_string();
    assert!(refused.contains("0x10000000000") && refused.contains("read-only"), "{refused}");
    let fs = mount(&device, true).unwrap();
    read_all(&fs).unwrap();
    fs.unmount().unwrap();
    assert!(device.to_image() == before, "nothing was written");
}

/// Looks at all that a feature has touched.
fn read_all(fs: &FileSystem) -> Result<(), FsError> {
    let root = Caller::root();
    fs.readdir(ROOT, 0, &mut |_| true)?;
    for (parent, name) in [(ROOT, "dir"), (DIR, "data"), (ROOT, "inline")] {
        let attr = fs.lookup(&root, parent, name.as_bytes())?;
        if name != "dir" {
            let file = fs.open(&root, attr.inode, OpenFlags::READ | OpenFlags::NOATIME)?;
            fs.read(&file, 0, &mut vec![0; attr.size as usize])?;
        }
    }
    Ok(())
}

/// Puts something into a volume.
type Put = Box<dyn Fn(&mut Maker)>;

/// What one feature may bring, one thing at a time.
fn things(word: Word) -> Vec<(String, Put)> {
    let (files, space) = word.kinds();
    let mut all: Vec<(String, Put)> = Vec::new();
    for raw in files {
        let put = move |maker: &mut Maker| {
            maker.files.insert(Key::new(DATA, kind(raw), 0), vec![1]);
        };
        all.push((format!("files kind {raw}"), Box::new(put)));
    }
    for raw in space {
        let put = move |maker: &mut Maker| {
            maker.space.insert(Key::new(InodeNo(0), kind(raw), 0), vec![1]);
        };
        all.push((format!("space kind {raw}"), Box::new(put)));
    }
    for bit in (0..32).filter(|bit| word.flags() & 1 << bit != 0) {
        let set = move |maker: &mut Maker| maker.change(DATA, |item| item.flags |= 1 << bit);
        all.push((format!("flag {bit}"), Box::new(set)));
    }
    all
}

/// A thing that no feature of the volume brought: check finds it, and the program opens nothing of it, or says what does not read.
fn expect_refused(what: &str, maker: Maker) {
    let device = Arc::new(maker.make().device);
    let sound = match check(&*device, &Default::default()) {
        Ok(report) => report.is_clean(),
        Err(_) => false,
    };
    assert!(!sound, "{what}: check finds nothing");
    let before = device.to_image();
    // Of the space tree a reader needs nothing, and says that it does not read.
    let read = mount(&device, true).and_then(|fs| read_all(&fs).map(|()| fs.missing().is_some()));
    assert!(read.unwrap_or(true), "{what}: it is read without a word");
    assert!(device.to_image() == before, "{what}: a read-only mount wrote");
}

#[test]
fn without_its_bit_nothing_unknown_may_be_there() {
    for word in [Word::Compat, Word::RoCompat] {
        let other = if word == Word::Compat { Word::RoCompat } else { Word::Compat };
        for (what, put) in things(word) {
            for bit in [None, Some(other)] {
                let mut maker = Maker::sample();
                put(&mut maker);
                bit.inspect(|bit| bit.set(&mut maker));
                expect_refused(&format!("{what} with {bit:?}"), maker);
            }
            let mut maker = Maker::sample();
            put(&mut maker);
            word.set(&mut maker);
            clean(&maker.make().device);
        }
    }
    // Either word brings longer items and superblocks.
    let mut maker = Maker::sample();
    lengthen(&mut maker, DATA);
    expect_refused("a longer inode", maker);
    let mut maker = Maker::sample();
    maker.superblock(|superblock| superblock.rest = REST.to_vec());
    expect_refused("a longer superblock", maker);
    // No feature has kinds between the ranges, or a longer inode than the longest.
    let mut maker = Maker::sample();
    Word::Compat.set(&mut maker);
    let item = maker.files.get_mut(&Key::inode(DATA)).unwrap();
    item.resize(InodeItem::SIZE_MAX + 1, 0);
    expect_refused("an inode that is too long", maker);
}

/// The far copy is written with what this program does not know as well.
#[test]
fn the_far_copy_has_it_too() {
    let device = Arc::new(later(Word::Compat).make().device);
    let fs = mount(&device, false).unwrap();
    change(&fs, 1);
    fs.checkpoint().unwrap();
    fs.unmount().unwrap();
    let at: BlockNo = newest(&*device).geometry.far_copy();
    let mut bytes = [0; 4096];
    device.read(at.0 * BLOCK_BYTES, &mut bytes).unwrap();
    assert_eq!(Superblock::decode(&bytes, at).unwrap().rest, REST);
}
