//! A fork that was promoted, whose snapshot has not followed it yet: all readers take it for one of the branch (S6a).

use std::sync::Arc;

use holdfast_check::Issue;
use holdfast_device::Device;
use holdfast_format::item::TreeItem;
use holdfast_format::item::lineage::{child_key, name_key};

use crate::common::branches::{Items, joined, open};
use crate::common::broken::change_tree;
use crate::common::log::last_shown;
use crate::common::*;
use crate::forged_lineage::{Says, logged, second_reader};

const KEPT: &[u8] = b"kept";

/// What was found, by both readers.
fn agree(device: &dyn Device) -> Vec<Issue> {
    let report = check_all(device);
    let found = issues(&report);
    if let Some(said) = second_reader(device) {
        assert_eq!(said.contains("[10") || said.contains("[90"), !found.is_empty(), "{said}");
    }
    found
}

fn give_name(items: &mut Items, branch: u64, name: &[u8], id: u64) {
    items.insert(name_key(branch, name), id.to_le_bytes().to_vec());
}

#[test]
fn a_snapshot_that_has_joined_a_branch_is_one_of_it() {
    let joined = joined();
    let mut items = Items::new();
    joined.patch(|found| items = found.clone());
    let item = TreeItem::decode(&items[&TreeItem::key(4)]).unwrap();
    assert_eq!((item.branch, &item.name[..]), (3, KEPT), "no step has come to it");
    assert_eq!(agree(&*joined.device), []);
    let store = open(&joined.device);
    assert_eq!(store.find_tree(b"main", Some(KEPT)).unwrap(), 4);
}

#[test]
fn what_cannot_have_joined_is_found() {
    type Lie = (&'static str, Issue, fn(&mut Items));
    let lies: [Lie; 5] = [
        ("no branch", Issue::BranchMissing, |items| {
            change_tree(items, 3, |item| item.branch = 9);
            let gone = items.remove(&child_key(1, 3));
            items.insert(child_key(9, 3), gone.unwrap());
        }),
        ("a snapshot", Issue::BranchMissing, |items| {
            change_tree(items, 3, |item| item.branch = 2);
            let gone = items.remove(&child_key(1, 3));
            items.insert(child_key(2, 3), gone.unwrap());
        }),
        ("the branch does not know", Issue::ChildItem, |items| {
            items.remove(&child_key(1, 3));
        }),
        ("nobody finds it", Issue::ChildItem, |items| {
            items.remove(&child_key(0, 3));
        }),
        ("a name twice", Issue::TreeName, |items| {
            items.remove(&name_key(1, b"before"));
            change_tree(items, 2, |item| item.name = KEPT.to_vec());
            give_name(items, 1, KEPT, 2);
        }),
    ];
    for (what, issue, lie) in lies {
        let joined = joined();
        joined.patch(lie);
        assert_eq!(agree(&*joined.device), [issue], "{what}");
    }
}

/// By the log the snapshot becomes one of the branch that it has joined, and of no other.
#[test]
fn a_snapshot_follows_its_branch_by_the_log() {
    let follows: &Says = &|of| {
        of.put_tree(4, |item| item.branch = 1);
        of.encoder.delete(&name_key(3, KEPT), of.out);
        of.put(name_key(1, KEPT), &4u64.to_le_bytes());
    };
    let lies: [&Says; 3] = [
        &|of| of.put_tree(4, |item| item.branch = 2),
        &|of| of.put_tree(2, |item| item.branch = 3),
        &|of| of.put_tree(3, |item| item.branch = 0),
    ];
    for (at, says) in [follows].into_iter().chain(lies).enumerate() {
        let joined = joined();
        let made = logged(&joined, &[says]);
        let wanted: &[Issue] = if at == 0 { &[] } else { &[Issue::BatchMalformed] };
        assert_eq!(agree(&made.device), wanted, "{at}");
        if at > 0 {
            let _ = last_shown(&made.device);
            continue;
        }
        let store = open(&Arc::new(made.device.snapshot()));
        assert_eq!(store.find_tree(b"main", Some(KEPT)).unwrap(), 4);
        assert_eq!(store.tree(4).unwrap().branch, 1);
    }
}
