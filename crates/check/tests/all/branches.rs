//! Volumes with branches, as the engine makes them: what is right is clean, what is wrong in one of them is said of that, and
//! what they share is read once.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_check::{CheckError, Issue, Referenced, Report, Subject, dump, referenced, view};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::item::{
    Dentry, Extent, FileType, InodeItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace,
};
use holdfast_format::log::Dropped;
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Branch, Store};

use crate::common;
use crate::common::branches::{apply, chown, grown, grown_behind, item, moment, open, overwrite};
use crate::common::log::Log;
use crate::common::*;

fn clean(device: &dyn Device) -> Report {
    let report = check_all(device);
    assert_eq!(report.findings, []);
    report
}

fn agent(store: &Arc<Store>) -> Branch {
    Branch::open(Arc::clone(store), b"agent", None).unwrap()
}

/// As a crash leaves it: the engine does nothing at its end.
fn crash(device: &Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    Arc::new(device.snapshot())
}

#[test]
fn grown_volumes_are_clean() {
    for leaf_items in [usize::MAX, 9, 4] {
        for changes_main in [false, true] {
            let grown = grown_behind(leaf_items, changes_main);
            let report = clean(&*grown.device);
            assert_eq!((report.facts.branches, report.facts.snapshots), (2, 1));
            let (facts, all) = (&report.facts, report.facts.of_branches);
            let of_main = [facts.inodes, facts.files, facts.directories, facts.dentries];
            let of_both = [all.inodes, all.files, all.directories, all.dentries];
            assert_eq!(of_both, of_main.map(|count| 2 * count));
            // Two more blocks of data for each that wrote.
            let data = 6 + 2 + 2 * u64::from(changes_main);
            assert_eq!(report.facts.data_blocks, data);
            assert_eq!(report.facts.verified_bytes, (4 + data - 6) * 4096);
            let used = report.facts.data_blocks + report.facts.node_blocks;
            assert_eq!(used, grown.superblock.used_blocks);
        }
    }
}

/// What finding [210] compares: the engine counts as a walk does, and a repair is told what is right of each.
#[test]
fn what_each_branch_and_snapshot_refers_to_is_counted() {
    for leaf_items in [usize::MAX, 4] {
        let grown = grown_behind(leaf_items, true);
        let all = referenced(&*grown.device).unwrap();
        let names: Vec<_> = all.iter().map(|of| (of.id, of.name.as_str())).collect();
        assert_eq!(names, [(1, "main"), (2, "main@before"), (3, "agent")]);
        assert!(all.iter().all(|of| of.is_right() && of.counted > 6), "{all:?}");
    }
    // A snapshot and a branch that say something else.
    let grown = grown();
    let before = referenced(&*grown.device).unwrap();
    // In a node of the space tree that does not read may stand branches of which nothing is known.
    let copy = grown.device.snapshot();
    common::put(&copy, grown.superblock.space.block, &[0; NODE]);
    assert!(matches!(referenced(&copy), Err(CheckError::Missing(_))));
    grown.patch(|items| {
        for (key, bytes) in items.iter_mut() {
            if *key == TreeItem::key(2) {
                let item = TreeItem::decode(bytes).unwrap();
                let referenced_blocks = item.referenced_blocks + 7;
                *bytes = TreeItem { referenced_blocks, ..item }.encode();
            } else if *key == RootItem::key(3) {
                let item = RootItem::decode(bytes).unwrap();
                *bytes = RootItem { referenced_blocks: 0, ..item }.bytes().to_vec();
            }
        }
    });
    let wrong = |of: &Referenced| (of.id, of.said, of.counted);
    let all: Vec<_> = referenced(&*grown.device).unwrap().iter().map(wrong).collect();
    let counted: Vec<u64> = before.iter().map(|of| of.counted).collect();
    let said = [counted[0], counted[1] + 7, 0];
    assert_eq!(all, [1, 2, 3].map(|id| (id, said[id as usize - 1], counted[id as usize - 1])));
    let report = check_all(&*grown.device);
    let found: Vec<_> = report.findings.iter().map(|of| of.id).collect();
    assert_eq!(found, [Issue::ReferencedBlocks.number(); 2]);
    // What a lost node has below it may belong to each.
    common::put(&*grown.device, grown.superblock.files.block, &[0; NODE]);
    assert!(matches!(referenced(&*grown.device), Err(CheckError::Missing(_))));
}

/// Everything through the log, and nothing but it: a fork that the log makes, and what it changes and gives up.
#[test]
fn a_log_makes_a_branch_and_changes_it() {
    let device = Arc::new(Maker::sample().make().device);
    let store = open(&device);
    let main = Branch::main(Arc::clone(&store));
    let snapshot = store.snapshot(1, b"before", moment()).unwrap();
    store.fork(snapshot, b"agent", moment()).unwrap();
    let agent = agent(&store);
    overwrite(&agent, 2);
    chown(&agent, PIPE);
    overwrite(&main, 3);
    store.sync(store.latest(), PIPE).unwrap();
    let image = crash(&device);
    let report = clean(&*image);
    assert!(report.facts.log_batches > 0);
    assert_eq!((report.facts.branches, report.facts.snapshots), (2, 1));
    let before = view(&*image).unwrap();
    let number = agent.number();
    assert_ne!(before.branches[&number], before.items);
    let store = open(&image);
    let recovered = Branch::open(Arc::clone(&store), b"agent", None).unwrap();
    assert_eq!(item(&recovered, PIPE).uid, 1);
    drop(recovered);
    Arc::into_inner(store).unwrap().close().unwrap();
    clean(&*image);
    assert_eq!(view(&*image).unwrap().difference(&before), None);
}

/// Two forks give up the same blocks of the snapshot, one after the other: neither frees them.
#[test]
fn two_branches_give_up_what_the_snapshot_has() {
    let device = Arc::new(Maker::sample().make().device);
    let store = open(&device);
    let main = Branch::main(Arc::clone(&store));
    let snapshot = store.snapshot(1, b"before", moment()).unwrap();
    store.fork(snapshot, b"agent", moment()).unwrap();
    let agent = agent(&store);
    for (branch, byte) in [(&agent, 2), (&main, 3)] {
        overwrite(branch, byte);
        store.sync(store.latest(), PIPE).unwrap();
    }
    let image = crash(&device);
    clean(&*image);
    let before = view(&*image).unwrap();
    drop(open(&image));
    clean(&*image);
    assert_eq!(view(&*image).unwrap().difference(&before), None);
}

/// A deletion at every step, as a crash leaves it there: what its cursor has passed is in use no more, or by others. At one
/// of the steps the branch gives up what the snapshot has.
#[test]
fn a_deletion_is_clean_at_every_step() {
    let (mut most, mut drops) = (0, 0);
    for when in 0..12 {
        let (steps, dropped) = delete_with_a_write_at(when);
        most = most.max(steps);
        drops += dropped;
    }
    // Some of what the branch gave up was to be judged by the cursor.
    assert!(most > 3 && drops > 1, "{most} steps, {drops} drops");
}

fn chown_all(branch: &Branch) {
    for number in (1..100).map(InodeNo) {
        if branch.get(&Key::inode(number)).unwrap().is_some() {
            chown(branch, number);
        }
    }
}

/// Steps, and blocks that were given up by the log.
fn delete_with_a_write_at(when: usize) -> (usize, usize) {
    let grown = grown_behind(4, true);
    let store = open(&grown.device);
    let main = Branch::main(Arc::clone(&store));
    overwrite(&main, 5);
    // Each leaf is the snapshot's own, and another one in the branch: what is the same is passed in one step.
    chown_all(&main);
    let last = store.snapshot(1, b"last", moment()).unwrap();
    chown_all(&main);
    store.delete_snapshot(last).unwrap();
    let (mut steps, mut drops) = (0, 0);
    loop {
        store.commit().unwrap();
        clean(&*crash(&grown.device));
        let goes_on = store.work_off_deletions(1).unwrap();
        if steps == when {
            overwrite(&main, 7);
        }
        chown(&main, PIPE);
        store.sync(store.latest(), PIPE).unwrap();
        let image = crash(&grown.device);
        clean(&*image);
        let mut log = Vec::new();
        dump(&*image, &Subject::Log, &mut log).unwrap();
        drops += String::from_utf8_lossy(&log).matches("\ndrop ").count();
        steps += 1;
        if !goes_on {
            break;
        }
    }
    store.commit().unwrap();
    let report = clean(&*crash(&grown.device));
    assert_eq!(report.facts.snapshots, 1);
    (steps, drops)
}

/// Only what is wrong in a branch, and only of it.
#[test]
fn what_is_wrong_in_a_branch_is_said_of_it() {
    type Wrong = fn(&Branch);
    // And where in it, if the file knows its name.
    let cases: [(Issue, &str, Wrong); 8] = [
        (Issue::LinkCount, "", |branch| put(branch, DATA, |item| item.nlink += 1)),
        (Issue::DirectorySize, ":/dir", |branch| put(branch, DIR, |item| item.size += 1)),
        (Issue::InodeFields, "", |branch| put(branch, PIPE, |item| item.size = 5)),
        (Issue::NamePlace, "", |branch| put(branch, SUB, |item| item.parent_slot += 1)),
        (Issue::BlocksWrong, "", |branch| put(branch, DATA, |item| item.blocks += 1)),
        (Issue::DentryDangling, ":/ghost", |branch| {
            name(branch, "ghost", InodeNo(9), FileType::Regular)
        }),
        (Issue::DirectoryNames, ":/dir/sub", |branch| {
            name(branch, "again", SUB, FileType::Directory);
            put(branch, ROOT, |item| item.nlink += 1);
        }),
        (Issue::OrphanUnlisted, "", |branch| {
            apply(branch, |transaction| transaction.delete(Key::orphan(ORPHAN)));
        }),
    ];
    for (issue, path, wrong) in cases {
        let grown = grown();
        let store = open(&grown.device);
        let agent = agent(&store);
        wrong(&agent);
        drop(agent);
        Arc::into_inner(store).unwrap().close().unwrap();
        let report = check_all(&*grown.device);
        let found: Vec<_> =
            report.findings.iter().map(|of| (of.issue(), of.tree.as_deref())).collect();
        assert_eq!(found, [(issue, Some("agent"))], "{:#?}", report.findings);
        let said = report.findings[0].to_string();
        println!("{said}");
        assert!(said.contains(&format!(": agent{path}: ")), "{said}");
    }
}

/// Data of one tree alone, and a node of one: which tree, and which file.
#[test]
fn damage_in_a_branch_or_snapshot_names_it_and_the_file() {
    let grown = grown_behind(4, true);
    let store = open(&grown.device);
    let agent = agent(&store);
    overwrite(&agent, 9);
    // The sample says of directories alone where they are.
    put(&agent, DATA, |item| {
        (item.parent, item.parent_slot) = (DIR, dentry_key(DIR, "data").offset);
    });
    let last = store.snapshot(agent.number(), b"last", moment()).unwrap();
    overwrite(&agent, 10);
    let key = Key::new(DATA, ItemKind::Extent, 0);
    let extent = {
        let last = Branch::open(Arc::clone(&store), b"agent", Some(b"last")).unwrap();
        Extent::decode(&last.get(&key).unwrap().unwrap()).unwrap()
    };
    let root = store.tree(last).unwrap().root;
    drop(agent);
    Arc::into_inner(store).unwrap().close().unwrap();
    clean(&*grown.device);
    for (block, issue, place) in [
        (extent.blocks.start, Issue::DataDamaged, ": agent@last:/dir/data: "),
        (root.block, Issue::NodeDamaged, ": agent@last: "),
    ] {
        let image = grown.device.snapshot();
        let mut bytes = [0; 4096];
        image.read(block.0 * 4096, &mut bytes).unwrap();
        bytes[100] ^= 1;
        image.write(block.0 * 4096, &bytes).unwrap();
        let report = check_all(&image);
        assert_eq!(issues(&report)[0], issue, "{:#?}", report.findings);
        assert!(report.findings[0].to_string().contains(place), "{}", report.findings[0]);
    }
}

fn put(branch: &Branch, number: InodeNo, change: impl FnOnce(&mut InodeItem)) {
    let mut now = item(branch, number);
    change(&mut now);
    apply(branch, |transaction| transaction.put(Key::inode(number), now.encode()));
}

/// A name in the root directory, which counts it.
fn name(branch: &Branch, name: &str, to: InodeNo, file_type: FileType) {
    let entry = Dentry { inode: to, file_type, name: name.as_bytes() }.encode();
    apply(branch, |transaction| transaction.put(dentry_key(ROOT, name), &entry));
    put(branch, ROOT, |item| item.size += 1);
}

/// A file that a branch makes, moves and removes.
#[test]
fn honest_changes_of_names_are_clean() {
    let grown = grown();
    let store = open(&grown.device);
    let agent = agent(&store);
    // A directory with a directory in it moves to another place.
    let (from, to) = (dentry_key(DIR, "sub"), dentry_key(ROOT, "moved"));
    let entry = Dentry { inode: SUB, file_type: FileType::Directory, name: b"moved" }.encode();
    let change = |number, change: fn(&mut InodeItem)| {
        let mut now = item(&agent, number);
        change(&mut now);
        (Key::inode(number), now.encode())
    };
    apply(&agent, |transaction| {
        transaction.delete(from);
        transaction.put(to, &entry);
        let (key, value) = change(DIR, |dir| (dir.size, dir.nlink) = (dir.size - 1, dir.nlink - 1));
        transaction.put(key, value);
        let (key, value) =
            change(ROOT, |dir| (dir.size, dir.nlink) = (dir.size + 1, dir.nlink + 1));
        transaction.put(key, value);
        let now = InodeItem { parent: ROOT, parent_slot: to.offset, ..item(&agent, SUB) };
        transaction.put(Key::inode(SUB), now.encode());
    });
    // A name goes, and with it the file.
    apply(&agent, |transaction| {
        transaction.delete(dentry_key(ROOT, "pipe"));
        transaction.delete(Key::inode(PIPE));
        transaction.count_inodes(-1);
        let (key, value) = change(ROOT, |dir| dir.size -= 1);
        transaction.put(key, value);
    });
    drop(agent);
    Arc::into_inner(store).unwrap().close().unwrap();
    clean(&*grown.device);
}

/// A block that trees share is of one birth and at one place of one file, or it is two.
#[test]
fn what_trees_share_must_be_the_same() {
    let key = Key::new(DATA, ItemKind::Extent, 8192);
    let report = |change: fn(&mut [u8])| {
        let grown = grown_behind(4, true);
        grown.poke_item(grown.agent_root(), &key, change);
        check_all(&*grown.device)
    };
    assert_eq!(report(|_| {}).findings, []);
    let older = report(|value| value[8] -= 1);
    assert_eq!(issues(&older), [Issue::BlocksShared], "{:#?}", older.findings);
    // The block before, which is the second of another extent.
    let beside = report(|value| value[0] -= 1);
    assert!(issues(&beside).contains(&Issue::BlocksShared), "{:#?}", beside.findings);
}

/// A batch may only name branches that are there, and give up what they had.
#[test]
fn batches_of_branches_are_judged() {
    let judge = |write: fn(&mut Log<'_>)| {
        let made = Maker::sample().make();
        let mut log = Log::new(&made);
        log.operation();
        write(&mut log);
        issues(&check_all(&made.device))
    };
    let none = judge(|log| {
        log.batch_with(|encoder, out| encoder.branch(9, 1, out), |_| {});
    });
    assert_eq!(none, [Issue::BatchMalformed]);
    let strange = judge(|log| {
        let at = Key::new(DATA, ItemKind::Extent, 0);
        let dropped = Dropped { blocks: log.free_blocks(2), birth: EPOCH, at };
        log.batch_with(|encoder, out| encoder.drop_blocks(&dropped, out), |_| {});
    });
    assert_eq!(strange, [Issue::BatchBlocks]);
}

fn bytes_read(device: &Arc<MemoryDevice>) -> u64 {
    let device = device.snapshot();
    let options = holdfast_check::Options::default();
    let report = holdfast_check::check(&device, &options).unwrap();
    assert_eq!(report.findings, []);
    let stats = device.stats();
    assert_eq!((stats.writes, stats.flushes, stats.discards), (0, 0, 0), "a check never writes");
    stats.read_bytes
}

/// Many snapshots and forks of one tree cost what differs between them, not the tree each.
#[test]
fn what_trees_share_is_read_once() {
    let mut maker = Maker::sample();
    for index in 0..3000 {
        maker.dentry(DIR, &format!("name {index}"), DATA, FileType::Regular);
    }
    maker.change(DIR, |item| item.size += 3000);
    maker.change(DATA, |item| item.nlink += 3000);
    let device = Arc::new(maker.make().device);
    let one = bytes_read(&device);
    let store = open(&device);
    let main = Branch::main(Arc::clone(&store));
    for index in 0..50 {
        chown(&main, PIPE);
        let snapshot = store.snapshot(1, format!("s{index}").as_bytes(), moment()).unwrap();
        store.fork(snapshot, format!("f{index}").as_bytes(), moment()).unwrap();
    }
    drop(main);
    Arc::into_inner(store).unwrap().close().unwrap();
    let all = bytes_read(&device);
    let facts = check_all(&*device).facts;
    assert!(facts.files_nodes > 100);
    // A hundred trees more: each a path.
    let most = one + 100 * 4 * 4096;
    assert!(all < most, "{one} bytes with one tree, {all} with a hundred more");
    // Superblocks, marks of journal and log, and each node once, whichever passes and trees look at it.
    let nodes = (facts.files_nodes + facts.space_nodes) * 4096;
    assert!(all < nodes + 50 * 4096, "{all} bytes for {nodes} of nodes");
}

#[test]
fn dumps_show_branches() {
    let grown = grown();
    let show = |what| {
        let mut out = Vec::new();
        dump(&*grown.device, &what, &mut out).map(|()| String::from_utf8(out).unwrap())
    };
    let lineage = show(Subject::Lineage).unwrap();
    for line in ["tree=1 name=\"main\"", "tree=2 name=\"main@before\"", "tree=3 name=\"agent\""] {
        assert!(lineage.contains(line), "{lineage}");
    }
    let branch = show(Subject::Branch(3)).unwrap();
    assert!(branch.contains("kind=Inode") && branch.contains("uid=2"), "{branch}");
    assert!(show(Subject::Branch(9)).is_err());
}

/// Entered along its cursor only: what lies before it may be anything.
#[test]
fn a_snapshot_that_is_deleted_is_entered_along_its_cursor() {
    let grown = grown_behind(4, true);
    grown.patch(|items| {
        let mut item = TreeItem::decode(&items[&TreeItem::key(2)]).unwrap();
        assert_eq!(item.kind, TreeKind::Snapshot);
        item.name.clear();
        items.insert(TreeItem::key(2), item.encode());
        items.remove(&holdfast_format::item::lineage::name_key(1, b"before"));
        // Behind everything but the root.
        let end = WalkPlace::node(None, item.level);
        items.insert(WalkItem::key(2), WalkItem::at(&end).bytes().to_vec());
    });
    let report = check_all(&*grown.device);
    // Two have grown out of it: it may not have begun. And what only it had is leaked now; its root is not.
    let found = issues(&report);
    assert!(found.contains(&Issue::DeletionWrong), "{:#?}", report.findings);
    assert!(!found.contains(&Issue::BlocksNotMarked), "{:#?}", report.findings);
    let leaked = report.findings.iter().filter(|of| of.issue() == Issue::BlocksLeaked);
    assert!(leaked.count() > 0, "{:#?}", report.findings);
}
