//! Batches that say of branches and snapshots what no operation says: fsck finds each, and the engine neither writes to the
//! volume nor shows anything of the batch (P10).

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, Epoch, InodeNo};
use holdfast_check::Issue;
use holdfast_device::Device;
use holdfast_format::item::lineage::{LINEAGE, LineageItem, child_key, name_key};
use holdfast_format::item::{
    Extent, HoldItem, OriginItem, RootItem, TreeItem, WalkItem, WalkPlace,
};
use holdfast_format::log::{Content, Dropped, Encoder};
use holdfast_format::{ItemKind, Key};
use holdfast_store::Branch;

use crate::common::branches::{Grown, Items, grown, moment, open};
use crate::common::log::{Log, last_shown};
use crate::common::*;

/// What the space tree of a volume with `main@before` (2) and `agent` (3) holds.
fn items_of(grown: &Grown) -> Items {
    let mut found = Items::new();
    grown.patch(|items| found = items.clone());
    found
}

fn made(grown: &Grown) -> Made {
    let Grown { device, superblock } = grown;
    let space = superblock.space;
    Made { device: device.snapshot(), superblock: superblock.clone(), files: Vec::new(), space }
}

/// What a batch says.
pub(crate) type Says = dyn Fn(&mut Writer<'_>);

/// Puts into a batch.
pub(crate) struct Writer<'a> {
    pub(crate) encoder: &'a mut Encoder,
    pub(crate) out: &'a mut Vec<u8>,
    items: &'a Items,
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, key: Key, value: &[u8]) {
        self.encoder.put(&key, value, self.out);
    }

    fn tree(&self, id: u64) -> TreeItem {
        TreeItem::decode(&self.items[&TreeItem::key(id)]).unwrap()
    }

    pub(crate) fn put_tree(&mut self, id: u64, change: impl FnOnce(&mut TreeItem)) {
        let mut item = self.tree(id);
        change(&mut item);
        self.put(TreeItem::key(id), &item.encode());
    }

    fn next(&mut self, next: u64) {
        self.put(LineageItem::KEY, &LineageItem { next, reserved: [0; 8] }.bytes());
    }

    pub(crate) fn branch(&mut self, id: u64) {
        self.encoder.branch(id, 9, self.out);
    }

    fn walk(&mut self, id: u64, place: &WalkPlace) {
        self.put(WalkItem::key(id), &WalkItem::at(place).bytes());
    }

    /// A fork as the engine makes it, number 4, but for what `change` changes.
    fn fork(&mut self, change: impl FnOnce(&mut Fork)) {
        let snapshot = self.tree(2);
        let mut fork = Fork {
            id: 4,
            next: 5,
            parent: 2,
            item: self.tree(3),
            root: RootItem::of(
                snapshot.root,
                snapshot.level,
                snapshot.inode_count,
                snapshot.referenced_blocks,
            ),
            is_beside: true,
            has_root: true,
        };
        fork.item.name = b"forged".to_vec();
        change(&mut fork);
        let Fork { id, next, parent, item, root, is_beside, has_root } = fork;
        self.next(next);
        self.put(name_key(item.branch, &item.name), &id.to_le_bytes());
        self.put(TreeItem::key(id), &item.encode());
        if has_root {
            self.put(RootItem::key(id), &root.bytes());
        }
        if is_beside {
            self.put(child_key(parent, id), &[]);
        }
    }

    fn hold(&mut self, id: u64, tag: &[u8], at: &[u8]) {
        let hold = HoldItem { tag: tag.into(), created: moment() };
        self.put(HoldItem::key(id, at), &hold.encode());
    }

    /// The deletion of the snapshot begins, as the engine says it.
    fn delete(&mut self) {
        self.put_tree(2, |item| item.name.clear());
        self.encoder.delete(&name_key(1, b"before"), self.out);
        self.walk(2, &WalkPlace::start());
    }
}

struct Fork {
    id: u64,
    next: u64,
    parent: u64,
    item: TreeItem,
    root: RootItem,
    is_beside: bool,
    has_root: bool,
}

/// Batches, each with an operation of its own.
pub(crate) fn logged(grown: &Grown, batches: &[&Says]) -> Made {
    let items = items_of(grown);
    let made = made(grown);
    let mut log = Log::new(&made);
    for write in batches {
        log.operation();
        let records = |encoder: &mut Encoder, out: &mut Vec<u8>| {
            write(&mut Writer { encoder, out, items: &items });
        };
        log.batch_with(records, |_| {});
    }
    made
}

/// The honest ones among them are taken by both, and mean the same to both.
#[test]
fn what_operations_say_is_taken() {
    let honest: [(&str, &Says); 5] = [
        ("a fork", &|of| of.fork(|_| {})),
        ("its branch is named before it is made", &|of| {
            of.branch(4);
            of.fork(|_| {});
        }),
        ("a deletion begins", &|of| of.delete()),
        ("a fork, and the deletion begins", &|of| {
            of.fork(|_| {});
            of.delete();
        }),
        ("a hold, and another parent, which counts for nothing", &|of| {
            of.put_tree(2, |item| item.parent = 77);
            of.hold(2, b"mine", b"mine");
        }),
    ];
    for (what, write) in honest {
        let grown = grown();
        let made = logged(&grown, &[write]);
        let report = check_all(&made.device);
        let found = issues(&report);
        // The inodes that the record of a branch counts are not there.
        let found: Vec<_> = found.into_iter().filter(|of| *of != Issue::InodeCount).collect();
        assert_eq!(found, [], "{what}: {:#?}", report.findings);
        assert_eq!(report.facts.log_batches, 1, "{what}");
        let device = Arc::new(made.device.snapshot());
        let store = open(&device);
        let trees = store.trees().unwrap().len();
        assert!(trees >= 3, "{what}");
        assert_eq!(store.tree(2).unwrap().parent, 0, "{what}");
        drop(store);
        let report = check_all(&*device);
        let found: Vec<_> =
            issues(&report).into_iter().filter(|of| *of != Issue::InodeCount).collect();
        assert_eq!(found, [], "{what}, recovered: {:#?}", report.findings);
        // Beside a lineage that is lost they are right.
        made.poke(grown.superblock.space.block, NODE, |bytes| bytes[1000] ^= 1);
        let report = check_all(&made.device);
        assert!(!issues(&report).contains(&Issue::BatchMalformed), "{:#?}", report.findings);
        let said = second_reader(&made.device).unwrap_or_default();
        assert!(!said.contains("[90"), "{what}, lost: {said}");
    }
}

/// Each of them is refused by both, as damage of the batch.
#[test]
fn what_no_operation_says_is_refused() {
    let begun = WalkPlace::node(None, 0);
    let key = Key::inode(PIPE);
    let lies: Vec<(&str, Box<Says>)> = vec![
        ("a branch that does not exist", Box::new(|of| of.branch(9))),
        ("a branch that is a snapshot", Box::new(|of| of.branch(2))),
        (
            "a change of a snapshot",
            Box::new(move |of| {
                of.branch(2);
                of.put(key, &inode(holdfast_format::item::FileType::Fifo, 1, 0).encode());
            }),
        ),
        (
            "a drop of a snapshot",
            Box::new(|of| {
                of.branch(2);
                let at = Key::new(DATA, ItemKind::Extent, 0);
                let blocks = BlockRange::new(of.tree(2).root.block, 1);
                of.encoder.drop_blocks(&Dropped { blocks, birth: Epoch(1), at }, of.out);
            }),
        ),
        (
            "the root of another branch",
            Box::new(|of| {
                of.branch(3);
                let root = of.tree(2).root;
                of.put(RootItem::key(3), &RootItem::of(root, 0, 9, 1).bytes());
            }),
        ),
        (
            "the root of main",
            Box::new(|of| {
                let root = of.tree(2).root;
                of.put(RootItem::key(1), &RootItem::of(root, 0, 9, 1).bytes());
            }),
        ),
        ("a root that goes", Box::new(|of| of.encoder.delete(&RootItem::key(3), of.out))),
        ("a branch that goes", Box::new(|of| of.encoder.delete(&TreeItem::key(3), of.out))),
        ("a child that goes", Box::new(|of| of.encoder.delete(&child_key(2, 3), of.out))),
        ("a child that comes", Box::new(|of| of.put(child_key(2, 9), &[]))),
        (
            "another root of the snapshot",
            Box::new(|of| {
                of.put_tree(2, |item| item.root.block.0 += 1);
            }),
        ),
        (
            "another epoch of the snapshot",
            Box::new(|of| {
                of.put_tree(2, |item| item.epoch = Epoch(item.epoch.0 + 1));
            }),
        ),
        (
            "a branch becomes a snapshot",
            Box::new(|of| {
                let item = TreeItem { name: b"agent".to_vec(), ..of.tree(2) };
                of.put(TreeItem::key(3), &item.encode());
            }),
        ),
        (
            "a new snapshot",
            Box::new(|of| {
                let item = of.tree(2);
                of.fork(|fork| fork.item = TreeItem { name: b"forged".to_vec(), ..item });
            }),
        ),
        ("a fork with a number in use", Box::new(|of| of.fork(|fork| fork.id = 3))),
        ("a fork with a number that nobody gave", Box::new(|of| of.fork(|fork| fork.id = 5))),
        (
            "a fork with an old number",
            Box::new(|of| {
                of.fork(|fork| (fork.id, fork.next) = (0, 5));
            }),
        ),
        ("a fork without a root", Box::new(|of| of.fork(|fork| fork.has_root = false))),
        ("a fork of nothing", Box::new(|of| of.fork(|fork| fork.is_beside = false))),
        ("a fork of a branch", Box::new(|of| of.fork(|fork| fork.parent = 3))),
        ("a fork of what is not there", Box::new(|of| of.fork(|fork| fork.parent = 8))),
        (
            "a fork with another root",
            Box::new(|of| {
                of.fork(|fork| fork.root.block += 1);
            }),
        ),
        ("a fork with another level", Box::new(|of| of.fork(|fork| fork.root.level += 1))),
        ("a fork with other inodes", Box::new(|of| of.fork(|fork| fork.root.inode_count += 1))),
        ("the next number goes back", Box::new(|of| of.next(3))),
        (
            "a deletion midway",
            Box::new(move |of| {
                of.delete();
                of.encoder.delete(&name_key(1, b"none"), of.out);
                of.put_tree(3, |_| {});
                let place = WalkItem::at(&begun).bytes();
                of.put(WalkItem::key(2), &place);
            }),
        ),
        ("only the deletion, midway", Box::new(move |of| of.walk(2, &begun))),
        ("the deletion of a branch", Box::new(|of| of.walk(3, &WalkPlace::start()))),
        ("the deletion of nothing", Box::new(|of| of.walk(8, &WalkPlace::start()))),
        (
            "a deletion of what has a name",
            Box::new(|of| {
                of.put_tree(2, |_| {});
                of.walk(2, &WalkPlace::start());
            }),
        ),
        ("a hold of a branch", Box::new(|of| of.hold(3, b"mine", b"mine"))),
        ("a hold of what is not there", Box::new(|of| of.hold(8, b"mine", b"mine"))),
        ("a hold at the key of another", Box::new(|of| of.hold(2, b"mine", b"other"))),
        (
            "a hold of what is being deleted",
            Box::new(|of| {
                of.delete();
                of.hold(2, b"mine", b"mine");
            }),
        ),
        (
            "where a snapshot comes from",
            Box::new(|of| {
                let created = moment();
                let of_other =
                    OriginItem { volume: [7; 16], number: 9, lsn: 7, created, reserved: [0; 4] };
                of.put(OriginItem::key(2, 0), &of_other.bytes());
            }),
        ),
        (
            "two records of one item",
            Box::new(|of| {
                of.put_tree(3, |item| item.limit = 5);
                of.put_tree(3, |item| item.limit = 6);
            }),
        ),
        (
            "an item at no place",
            Box::new(|of| {
                of.put(Key::new(InodeNo(5), ItemKind::Tree, 0), &of.tree(3).encode());
            }),
        ),
        (
            "a name of one branch",
            Box::new(|of| {
                of.put(Key::new(InodeNo(LINEAGE + 3), ItemKind::Name, 7), &3u64.to_le_bytes());
            }),
        ),
        (
            "names in no order",
            Box::new(|of| {
                let key = Key::new(InodeNo(LINEAGE), ItemKind::Name, 7);
                of.put(key, &[3u64, 2].map(u64::to_le_bytes).concat());
            }),
        ),
    ];
    for (what, write) in &lies {
        let grown = grown();
        let made = logged(&grown, &[&**write]);
        let report = check_all(&made.device);
        assert_eq!(issues(&report), [Issue::BatchMalformed], "{what}: {:#?}", report.findings);
        assert!(report.findings[0].what.contains("batch "), "{what}: {}", report.findings[0]);
        assert_eq!(last_shown(&made.device), grown.superblock.lsn, "{what}");
    }
}

/// What the second reader says of a volume; `None` if there is no Python.
pub(crate) fn second_reader(device: &dyn Device) -> Option<String> {
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), &bytes).unwrap();
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/readvolume.py");
    let mut python = Command::new("python3");
    match python.arg("-BIS").arg(tool).arg(image.path()).arg("check").output() {
        Ok(output) => Some(String::from_utf8(output.stderr).unwrap()),
        Err(error) => {
            holdfast_base::skip::skipped(format_args!("python3: {error}"));
            None
        }
    }
}

/// An extent of a file of `agent` that the snapshot has as well, if it was not written since.
fn extent_of_agent(grown: &Grown, block: u64) -> (Key, Extent) {
    let device = Arc::new(grown.device.snapshot());
    let agent = Branch::open(open(&device), b"agent", None).unwrap();
    let key = Key::new(DATA, ItemKind::Extent, block * BLOCK_BYTES);
    (key, Extent::decode(&agent.get(&key).unwrap().unwrap()).unwrap())
}

/// Batches of `agent`, the last of which gives back what the snapshot has, by a lie about its birth or its place. All three
/// readers refuse it. The honest ones they take.
#[test]
fn no_batch_frees_what_a_snapshot_has() {
    /// What a batch does, with the blocks of an extent at a key.
    type Does = fn(&mut Writer<'_>, Key, &Extent);
    fn free(of: &mut Writer<'_>, blocks: BlockRange) {
        of.encoder.free(blocks, of.out);
    }
    fn drop_as(of: &mut Writer<'_>, blocks: BlockRange, birth: u64, at: Key) {
        let birth = Epoch(birth);
        of.encoder.drop_blocks(&Dropped { blocks, birth, at }, of.out);
    }
    fn delete(of: &mut Writer<'_>, key: Key, _: &Extent) {
        of.encoder.delete(&key, of.out);
    }
    fn younger(of: &mut Writer<'_>, key: Key, extent: &Extent) {
        of.put(key, &Extent { birth: Epoch(1 << 40), ..extent.clone() }.encode());
    }
    fn cut(of: &mut Writer<'_>, key: Key, extent: &Extent) {
        let BlockRange { start, count } = extent.blocks;
        let rest = BlockRange::new(BlockNo(start.0 + 1), count - 1);
        let at = Key { offset: key.offset + BLOCK_BYTES, ..key };
        let rest = Extent { birth: Epoch(1 << 40), ..Extent::new(rest, Vec::new()) };
        delete(of, key, extent);
        of.put(at, &rest.encode());
    }
    let none: &[Does] = &[];
    fn drop_again(of: &mut Writer<'_>, key: Key, extent: &Extent) {
        delete(of, key, extent);
        drop_as(of, extent.blocks, extent.birth.0, key);
    }
    let cases: [(&str, u64, &[Does], Does, bool); 17] = [
        (
            "dropped twice",
            8,
            none,
            |of, key, extent| {
                drop_again(of, key, extent);
                drop_as(of, extent.blocks, extent.birth.0, key);
            },
            false,
        ),
        (
            "dropped once more by a later batch",
            8,
            &[|of, key, extent| {
                younger(of, key, extent);
                drop_as(of, extent.blocks, extent.birth.0, key);
            }],
            drop_again,
            false,
        ),
        (
            "what it wrote is freed",
            0,
            none,
            |of, key, extent| {
                delete(of, key, extent);
                free(of, extent.blocks);
            },
            true,
        ),
        (
            "what it wrote is dropped",
            0,
            none,
            |of, key, extent| {
                delete(of, key, extent);
                drop_as(of, extent.blocks, extent.birth.0, key);
            },
            true,
        ),
        (
            "what the snapshot has is dropped",
            8,
            none,
            |of, key, extent| {
                delete(of, key, extent);
                drop_as(of, extent.blocks, extent.birth.0, key);
            },
            true,
        ),
        (
            "and a part of it, behind a cut",
            8,
            &[cut],
            |of, key, extent| {
                let at = Key { offset: key.offset + BLOCK_BYTES, ..key };
                delete(of, at, extent);
                let rest = BlockRange::new(BlockNo(extent.blocks.start.0 + 1), 1);
                drop_as(of, rest, extent.birth.0, at);
            },
            true,
        ),
        (
            "freed",
            8,
            none,
            |of, key, extent| {
                delete(of, key, extent);
                free(of, extent.blocks);
            },
            false,
        ),
        (
            "one block of it freed",
            8,
            none,
            |of, key, extent| {
                delete(of, key, extent);
                free(of, BlockRange::new(extent.blocks.start, 1));
            },
            false,
        ),
        (
            "dropped as if younger",
            8,
            none,
            |of, key, extent| {
                delete(of, key, extent);
                drop_as(of, extent.blocks, 1 << 40, key);
            },
            false,
        ),
        (
            "dropped as if older",
            0,
            none,
            |of, key, extent| {
                delete(of, key, extent);
                drop_as(of, extent.blocks, extent.birth.0 - 1, key);
            },
            false,
        ),
        (
            "dropped elsewhere",
            8,
            none,
            |of, key, extent| {
                delete(of, key, extent);
                let at = Key { offset: key.offset - BLOCK_BYTES, ..key };
                drop_as(of, extent.blocks, extent.birth.0, at);
            },
            false,
        ),
        (
            "made younger, then freed",
            8,
            &[younger],
            |of, key, extent| {
                delete(of, key, extent);
                free(of, extent.blocks);
            },
            false,
        ),
        (
            "cut, and the rest made younger, then freed",
            8,
            &[cut],
            |of, key, extent| {
                let at = Key { offset: key.offset + BLOCK_BYTES, ..key };
                delete(of, at, extent);
                free(of, BlockRange::new(BlockNo(extent.blocks.start.0 + 1), 1));
            },
            false,
        ),
        (
            "named by another key, then freed with that",
            8,
            &[|of, key, extent| {
                younger(of, Key { offset: 100 * BLOCK_BYTES, ..key }, extent);
            }],
            |of, key, extent| {
                delete(of, Key { offset: 100 * BLOCK_BYTES, ..key }, extent);
                free(of, extent.blocks);
            },
            false,
        ),
        (
            "claimed by a higher key as well, then dropped",
            0,
            &[|of, key, extent| {
                younger(of, key, extent);
                younger(of, Key { offset: 100 * BLOCK_BYTES, ..key }, extent);
            }],
            drop_again,
            true,
        ),
        (
            "claimed by a key of a lower inode as well, then dropped",
            0,
            &[|of, key, extent| {
                younger(of, Key { inode: InodeNo(key.inode.0 - 1), ..key }, extent);
                younger(of, key, extent);
            }],
            drop_again,
            false,
        ),
        (
            "the first block of it claimed by a higher key as well, then dropped",
            0,
            &[|of, key, extent| {
                let first = BlockRange::new(extent.blocks.start, 1);
                younger(of, key, extent);
                let at = Key { offset: 100 * BLOCK_BYTES, ..key };
                younger(of, at, &Extent::new(first, Vec::new()));
            }],
            drop_again,
            false,
        ),
    ];
    let grown = grown();
    for (what, block, before, last, is_honest) in cases {
        let (key, extent) = extent_of_agent(&grown, block);
        let says: Vec<Box<Says>> = before
            .iter()
            .copied()
            .chain([last])
            .map(|does| -> Box<Says> {
                let extent = extent.clone();
                Box::new(move |of| {
                    of.branch(3);
                    does(of, key, &extent);
                })
            })
            .collect();
        let says: Vec<&Says> = says.iter().map(|says| &**says).collect();
        let made = logged(&grown, &says);
        let report = check_all(&made.device);
        let is_refused = issues(&report).contains(&Issue::BatchBlocks);
        let taken = says.len() as u64 - u64::from(!is_honest);
        assert_eq!(is_refused, !is_honest, "{what}: {:#?}", report.findings);
        assert_eq!(report.facts.log_batches, taken, "{what}");
        if is_honest {
            drop(open(&Arc::new(made.device.snapshot())));
        } else {
            let shown = last_shown(&made.device).0 - grown.superblock.lsn.0;
            assert_eq!(shown, taken, "{what}");
        }
        if let Some(said) = second_reader(&made.device) {
            assert_eq!(said.contains("[904]"), !is_honest, "{what}: {said}");
        }
    }
}

/// What the log took for one branch, another one gives up when it goes there: all three readers refuse it. The same branch may.
#[test]
fn a_branch_gives_up_what_it_held_itself() {
    for (dropping, is_honest) in [(3, true), (1, false)] {
        let grown = grown();
        let made = logged(&grown, &[]);
        let blocks = Log::new(&made).free_blocks(1);
        let key = Key::new(DATA, ItemKind::Extent, 100 * BLOCK_BYTES);
        let take: Box<Says> = Box::new(move |of| {
            of.branch(3);
            of.encoder.take(blocks, &Content::Unwritten, of.out);
            of.put(key, &Extent::new(blocks, Vec::new()).encode());
        });
        let give: Box<Says> = Box::new(move |of| {
            of.branch(3);
            of.encoder.delete(&key, of.out);
            of.branch(dropping);
            let birth = Epoch(1 << 40);
            of.encoder.drop_blocks(&Dropped { blocks, birth, at: key }, of.out);
        });
        let made = logged(&grown, &[&*take, &*give]);
        let report = check_all(&made.device);
        let is_refused = issues(&report).contains(&Issue::BatchBlocks);
        assert_eq!(is_refused, !is_honest, "branch {dropping}: {:#?}", report.findings);
        let taken = if is_honest { 2 } else { 1 };
        assert_eq!(report.facts.log_batches, taken, "branch {dropping}");
        if is_honest {
            drop(open(&Arc::new(made.device.snapshot())));
        } else {
            let shown = last_shown(&made.device).0 - grown.superblock.lsn.0;
            assert_eq!(shown, taken, "branch {dropping}");
        }
        if let Some(said) = second_reader(&made.device) {
            assert_eq!(said.contains("[904]"), !is_honest, "branch {dropping}: {said}");
        }
    }
}

/// What earlier batches made counts for later ones.
#[test]
fn batches_follow_one_another() {
    let later: [(&str, &Says); 4] = [
        ("the fork once more", &|of| of.fork(|fork| fork.next = 6)),
        ("a fork of what is being deleted", &|of| {
            of.fork(|fork| (fork.id, fork.next, fork.item.name) = (5, 6, b"again".to_vec()));
        }),
        ("the deletion once more", &|of| of.walk(2, &WalkPlace::start())),
        ("a name for what is being deleted", &|of| of.put_tree(2, |_| {})),
    ];
    for (what, write) in later {
        let grown = grown();
        let first: &Says = &|of| {
            of.fork(|_| {});
            of.delete();
        };
        let made = logged(&grown, &[first, write]);
        let report = check_all(&made.device);
        assert_eq!(issues(&report), [Issue::BatchMalformed], "{what}: {:#?}", report.findings);
        assert_eq!(last_shown(&made.device), grown.superblock.lsn.next(), "{what}");
        assert_eq!(report.facts.log_batches, 1, "{what}");
    }
}
