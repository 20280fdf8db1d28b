//! What a branch grew out of is damaged: the branch can be read all the same, and nothing is freed that a snapshot may reach.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::Issue;
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::item::{LineageItem, TreeItem, WalkItem};
use holdfast_format::node::MAGIC;
use holdfast_format::{ItemKind, Key, NodeView};
use holdfast_store::{Branch, OpenOptions, Store, StoreError};

use crate::common::branches::{
    Grown, chown, grown, grown_behind, item, moment, newest, open, overwrite,
};
use crate::common::*;

fn open_to_read(device: &Arc<MemoryDevice>) -> Arc<Store> {
    let options = OpenOptions { read_only: true, threads: false, ..OpenOptions::default() };
    let store = Store::open(device.clone() as Arc<dyn Device>, &options, Arc::default());
    Arc::new(store.expect("it can be read"))
}

fn open_to_write(device: &Arc<MemoryDevice>) -> Result<Store, StoreError> {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open(device.clone() as Arc<dyn Device>, &options, Arc::default())
}

/// Everything of `main` reads, and of the branch beside it if `with_agent`.
fn is_readable(device: &Arc<MemoryDevice>, with_agent: bool) {
    let store = open_to_read(device);
    let main = Branch::main(Arc::clone(&store));
    assert_eq!(item(&main, PIPE).uid, 1);
    assert!(main.get(&Key::new(DATA, ItemKind::Extent, 0)).unwrap().is_some());
    if with_agent {
        let agent = Branch::open(Arc::clone(&store), b"agent", None).unwrap();
        assert_eq!(item(&agent, PIPE).uid, 2);
    }
    assert!(store.counters().parents_unreadable.get() > 0, "it is said");
    assert!(matches!(store.snapshot(1, b"s", moment()), Err(StoreError::ReadOnly)));
}

/// The item of the parent is none; or the parent is something else, or its deletion has a cursor that is no place.
#[test]
fn branches_are_read_beside_a_damaged_item_of_their_parent() {
    let lies: [fn(&Grown); 4] = [
        |grown| grown.patch(|items| items.get_mut(&TreeItem::key(2)).unwrap()[44] = 7),
        |grown| {
            grown.patch(|items| {
                items.remove(&TreeItem::key(2));
            });
        },
        |grown| grown.patch(|items| drop(items.insert(TreeItem::key(2), vec![1; 3]))),
        |grown| grown.patch(|items| drop(items.insert(WalkItem::key(2), vec![0xff; 32]))),
    ];
    for (case, lie) in lies.into_iter().enumerate() {
        let grown = grown();
        lie(&grown);
        is_readable(&grown.device, true);
        // What main owns is not known: nothing is written.
        let refused = open_to_write(&grown.device);
        assert!(refused.is_err(), "case {case}");
        let found = issues(&check_all(&*grown.device));
        let is_found =
            found.contains(&Issue::LineageItemDamaged) || found.contains(&Issue::ParentMissing);
        assert!(is_found, "case {case}: {found:?}");
    }
}

/// The leaf of the space tree that holds the item of the parent is gone.
#[test]
fn main_is_read_beside_a_damaged_leaf_of_the_lineage() {
    let device = Arc::new(Maker::sample().make().device);
    let store = open(&device);
    let main = Branch::main(Arc::clone(&store));
    chown(&main, PIPE);
    let mut last = 0;
    for number in 0..60 {
        last = store.snapshot(1, format!("{number:0>200}").as_bytes(), moment()).unwrap();
    }
    chown(&main, InodeNo(16));
    drop(main);
    Arc::into_inner(store).unwrap().close().unwrap();
    let key = TreeItem::key(last);
    let mut broken = 0;
    for block in 0..device.len() / BLOCK_BYTES {
        let mut bytes = vec![0; NODE];
        device.read(block * BLOCK_BYTES, &mut bytes).unwrap();
        if bytes[..4] != MAGIC {
            continue;
        }
        let node = NodeView::trusted(&bytes);
        let keys = (0..node.count()).map(|index| node.key(index));
        let keys: Vec<Key> = if node.level() == 0 { keys.collect() } else { Vec::new() };
        if keys.contains(&key) && !keys.iter().any(|key| key.kind == ItemKind::Group) {
            device.write(block * BLOCK_BYTES + 512, &[0xee; 512]).unwrap();
            broken += 1;
        }
    }
    assert!(broken > 0);
    is_readable(&device, false);
    assert!(open_to_write(&device).is_err());
    assert!(issues(&check_all(&*device)).contains(&Issue::NodeDamaged));
}

/// The tree of the parent cannot be read: `main` goes on, and frees nothing that the parent has. Its deletion is set aside.
#[test]
fn main_goes_on_beside_a_parent_without_a_root() {
    let grown = grown_behind(4, true);
    let before = open_to_read(&grown.device).tree(2).unwrap();
    grown.device.write(before.root.block.byte_offset().unwrap(), &[0; NODE]).unwrap();
    let store = open(&grown.device);
    let main = Branch::main(Arc::clone(&store));
    let used = |store: &Store| store.space_use().total - store.space_use().free;
    let change = |byte| {
        overwrite(&main, byte);
        chown(&main, PIPE);
        for _ in 0..3 {
            store.checkpoint().unwrap();
        }
        used(&store)
    };
    let first = change(7);
    // What it had written itself before went, and no block of the parent.
    assert_eq!([change(8), change(9)], [first; 2]);
    let snapshot = Branch::open(Arc::clone(&store), b"main", Some(b"before")).unwrap();
    assert!(matches!(snapshot.get(&Key::inode(PIPE)), Err(StoreError::Node { .. })));
    drop(snapshot);
    store.delete_branch(3, moment()).unwrap();
    store.delete_snapshot(2).unwrap();
    while store.work_off_deletions(10).unwrap() {}
    assert_eq!(store.stop_reason(), None);
    let failed = store.failed_deletions();
    assert!(failed.iter().any(|(number, _)| *number == 2), "{failed:?}");
    assert_eq!(item(&main, PIPE).uid, 4);
    drop(main);
    Arc::into_inner(store).unwrap().close().unwrap();
    let found = issues(&check_all(&*grown.device));
    assert!(!found.contains(&Issue::BlocksNotMarked), "{found:?}");
}

/// What `main` has in the log does not ask what branches share: it is replayed, whatever is wrong with that.
#[test]
fn the_log_of_main_is_replayed_beside_a_damaged_lineage() {
    let closed = grown();
    let store = open(&closed.device);
    let main = Branch::main(Arc::clone(&store));
    chown(&main, PIPE);
    store.sync(store.latest(), PIPE).unwrap();
    // As a kill leaves it.
    let device = Arc::new(closed.device.snapshot());
    let superblock = newest(&*device);
    let killed = Grown { device, superblock };
    killed.patch(|items| drop(items.insert(LineageItem::KEY, vec![1; 3])));
    let store = open_to_read(&killed.device);
    assert_eq!(item(&Branch::main(store), PIPE).uid, 2);
    let store = Arc::new(open_to_write(&killed.device).unwrap());
    assert_eq!(item(&Branch::main(Arc::clone(&store)), PIPE).uid, 2);
    assert!(matches!(store.fork(2, b"more", moment()), Err(StoreError::Item { .. })));
}
