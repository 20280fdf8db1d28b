//! What stands beside the item of a snapshot: holds and origins, of snapshots alone and at their keys; and bytes that a feature brings.

use holdfast_check::Issue;
use holdfast_format::ItemKind;
use holdfast_format::item::{HoldItem, OriginItem, TreeItem, WalkItem, WalkPlace};

use crate::common::branches::{Items, moment};
use crate::common::{broken, issues};

/// What is found in a volume with `main@before` (2) and its fork `agent` (3).
fn found(change: impl FnOnce(&mut Items)) -> Vec<Issue> {
    issues(&broken::with_branches(change).check())
}

fn hold(items: &mut Items, id: u64, tag: &str) {
    let hold = HoldItem { tag: tag.into(), created: moment() };
    items.insert(HoldItem::key(id, &hold.tag), hold.encode());
}

fn origin(items: &mut Items, id: u64, index: u64) {
    let created = moment();
    let of = OriginItem { volume: [7; 16], number: 9, lsn: 70, created, reserved: [0; 4] };
    items.insert(OriginItem::key(id, index), of.bytes().to_vec());
}

#[test]
fn holds_and_origins_are_of_snapshots() {
    let sound = found(|items| {
        hold(items, 2, "backup");
        hold(items, 2, "agent");
        origin(items, 2, 0);
        origin(items, 2, 7);
    });
    assert_eq!(sound, []);
    let damaged = [Issue::LineageItemDamaged];
    assert_eq!(found(|items| hold(items, 3, "backup")), damaged, "of a branch");
    assert_eq!(found(|items| hold(items, 9, "backup")), damaged, "of nothing");
    assert_eq!(found(|items| origin(items, 1, 0)), damaged, "of main");
    assert_eq!(found(|items| origin(items, 2, 8)), damaged, "one too many");
    let moved = found(|items| {
        let hold = HoldItem { tag: b"backup".to_vec(), created: moment() };
        items.insert(HoldItem::key(2, b"other"), hold.encode());
    });
    assert_eq!(moved, damaged, "at the key of another tag");
    let going = found(|items| {
        hold(items, 2, "backup");
        let walk = WalkItem::at(&WalkPlace::start());
        items.insert(WalkItem::key(2), walk.bytes().to_vec());
        let mut item = TreeItem::decode(&items[&TreeItem::key(2)]).unwrap();
        item.name.clear();
        items.insert(TreeItem::key(2), item.encode());
        items.retain(|key, value| {
            key.kind != ItemKind::Name || *value != 2u64.to_le_bytes().to_vec()
        });
    });
    assert_eq!(going, [Issue::DeletionWrong], "it is deleted and held");
}

#[test]
fn bytes_behind_a_name_are_of_a_feature() {
    let tail = found(|items| {
        let mut item = TreeItem::decode(&items[&TreeItem::key(3)]).unwrap();
        item.tail = b"of a feature".to_vec();
        items.insert(TreeItem::key(3), item.encode());
    });
    assert_eq!(tail, [Issue::LineageItemDamaged]);
}
