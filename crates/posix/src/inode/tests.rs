//! Which handle reports which error, and one inode for each number.

use std::sync::Arc;

use holdfast_base::Timestamp;

use super::*;

#[test]
fn every_handle_that_was_open_reports_an_error_once() {
    let errors = ErrorSequence::default();
    let (first, second) = (errors.sample(), errors.sample());
    assert!(errors.check(&first).is_none());
    errors.record_error("the disk said no");
    errors.record_error("and again");
    let unseen = errors.sample();
    assert!(errors.check(&first).is_some());
    let late = errors.sample();
    assert!(errors.check(&first).is_none(), "once each");
    assert!(errors.check(&second).is_some());
    assert!(errors.check(&second).is_none());
    assert!(errors.check(&late).is_none(), "reported before it was opened");
    assert!(errors.check(&unseen).is_some(), "opened before anybody had seen it");
    errors.record_error("a new one");
    for cursor in [&first, &second, &late, &unseen] {
        assert!(errors.check(cursor).is_some());
        assert!(errors.check(cursor).is_none());
    }
}

fn regular(no: u64, size: u64) -> Inode {
    let item =
        InodeItem { size, nlink: 1, ..InodeItem::blank(FileType::Regular, Timestamp::default()) };
    Inode::new(InodeNo(no), item, Lsn(0))
}

#[test]
fn what_was_read_before_others_changed_and_dropped_it_is_read_again() {
    let table = InodeTable::new(0, InodeNo(0));
    let no = InodeNo(20);
    let mut reads = 0;
    let inode = table.get_or_read(no, || {
        reads += 1;
        if reads > 1 {
            return Ok(regular(20, 2));
        }
        let old = regular(20, 1);
        // Meanwhile another thread loads it, changes it, and the hand drops it.
        table.insert(Arc::new(regular(20, 1)));
        for other in 30..40 {
            table.insert(Arc::new(regular(other, 0)));
        }
        assert!(table.peek(no).is_none(), "a table of nothing kept it");
        Ok(old)
    });
    assert_eq!((inode.unwrap().state.read().attr.size, reads), (2, 2));
}

#[test]
fn two_loaders_get_one_inode() {
    let table = InodeTable::new(0, InodeNo(0));
    let mut first = None;
    let second = table.get_or_read(InodeNo(20), || {
        first = Some(table.get_or_read(InodeNo(20), || Ok(regular(20, 1))).unwrap());
        Ok(regular(20, 1))
    });
    assert!(Arc::ptr_eq(&first.unwrap(), &second.unwrap()));
}

#[test]
fn the_hand_spares_what_is_used_or_needed() {
    let table = InodeTable::new(32, InodeNo(0));
    let open = Arc::new(regular(20, 0));
    open.state.write().handles = 1;
    table.insert(open);
    let orphan = Arc::new(regular(21, 0));
    orphan.state.write().lookups = 1;
    orphan.state.write().disk.nlink = 0;
    table.insert(orphan);
    let held = Arc::new(regular(22, 0));
    table.insert(held.clone());
    table.insert(Arc::new(regular(23, 0)));
    for other in 30..300 {
        assert!(table.peek(InodeNo(23)).is_some(), "used each time, so never dropped");
        table.insert(Arc::new(regular(other, 0)));
    }
    for no in [20, 21, 22] {
        assert!(table.peek(InodeNo(no)).is_some(), "inode {no} is needed");
    }
    assert!(table.len() <= 34, "{} inodes stay", table.len());
    drop(held);
}

#[test]
fn references_survive_when_the_inode_does_not() {
    let table = InodeTable::new(0, InodeNo(0));
    let no = InodeNo(20);
    let load = || table.get_or_read(no, || Ok(regular(20, 0))).unwrap();
    let push_out = || {
        for other in 30..40 {
            table.insert(Arc::new(regular(other, 0)));
        }
        assert!(table.peek(no).is_none(), "a named inode is dropped although it is remembered");
    };
    load().state.write().lookups = 5;
    push_out();
    assert_eq!(load().state.read().lookups, 5);
    push_out();
    assert!(table.forget_absent(no, 3).is_ok());
    assert_eq!(load().state.read().lookups, 2);
    push_out();
    assert!(table.forget_absent(no, 2).is_ok());
    assert_eq!(load().state.read().lookups, 0);
    assert!(table.forget_absent(no, 1).is_err(), "it is in memory now: the caller goes on");
}

#[test]
fn removed_inodes_leave_the_clock_while_there_is_room() {
    let table = InodeTable::new(100, InodeNo(0));
    for no in 1..20_000 {
        table.insert(Arc::new(regular(no, 0)));
        table.remove(InodeNo(no));
    }
    assert!(table.clock_len() < 2_000, "{} numbers", table.clock_len());
}
