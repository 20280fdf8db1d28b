//! Small honest volumes to begin with: the same bytes each time, in each process. The engine makes them without threads of
//! its own, so that what it does behind a call is done when the call returns.
//!
//! Made by the engine from scripts. The clock is pinned ([`pin`]), the id and
//! the seed of the name hash are fixed. Between them they hold every kind of item,
//! trees of several levels, a closed volume, one with commits in its journal, one
//! with batches in its log, and one with both, each as a crash leaves it; and two with
//! branches and snapshots, deletions on their way, and changes of branches in the log; and one whose nodes are stored twice.

use std::sync::{Arc, OnceLock};

use holdfast_base::InodeNo;
use holdfast_base::clock::{Pinned, Timestamp, pin};
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::{FileType, InodeItem};
use holdfast_format::journal::JournalMark;
use holdfast_format::log::LogMark;
use holdfast_format::{Geometry, Key, Superblock};
use holdfast_script::{Outcome, Script, Target};
use holdfast_sim::{Engine, Setup, judge};
use holdfast_store::{CreateOptions, OpenOptions, Store, Transaction};
use uuid::Uuid;

use crate::image::Image;

/// The moment at which all golden volumes were made.
pub const MOMENT: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };

/// Makes it [`MOMENT`] in this thread, as long as the returned value is kept.
pub fn pinned() -> Pinned {
    pin(MOMENT.secs as u64 * 1_000_000_000)
}

/// A file of every sort, names with equal beginnings, long and short attributes.
const TREE: &str = "mkdir /d; mkdir /d/sub; mkdir /empty; mkfile /d/inline; write /d/inline 0 100 1; \
    mkfile /d/data; write /d/data 0 40k 2; mkfile /d/holes; write /d/holes 64k 8k 3; write /d/holes 256k 4k 4; \
    mkfile /d/room 600; fallocate /d/room 0 16k; truncate /d/room 9000; symlink target /d/link; \
    symlink {x*1000} /d/long; mknod /d/pipe fifo; mknod /d/tty char:4:64; mknod /d/disk block:8:1; \
    mknod /d/sock socket; link /d/data /d/sub/again; setxattr /d/data user.short 10 1; \
    setxattr /d/data user.long 9000 2; setxattr /d security.x 3 3; mkfile /{n*255}; mkdir /d/sub/deep; \
    mkfile /d/sub/deep/f; write /d/sub/deep/f 0 5000 5; chmod /d/inline 4755";
/// Changes of what is there: names move, data is overwritten, things go.
const CHANGES: &str = "rename /d/inline /d/moved; write /d/data 4k 4k 6; unlink /d/long; mkdir /new; \
    rename /d/sub/deep /new/deep; mkfile /new/f; write /new/f 0 12k 7; punch /d/holes 64k 4k; \
    removexattr /d/data user.short; truncate /d/data 30000; setxattr /new user.y 100 8";

/// Snapshots with one, two and no trees that grew out of them, branches that share what they have not changed, and what
/// is left of a rollback.
const BRANCHES: &str = "snapshot one; write /d/data 0 8k 9; unlink /d/long; fork side one; switch side; \
    write /d/holes 64k 4k 8; mkfile /own; write /own 0 9000 1; snapshot two; truncate /d/data 100; unlink /d/holes; \
    fork young two; switch main; mkfile /wrong; snapshot before; unlink /d/room; rollback one was; snapshot last; \
    mkfile /on; write /on 0 20k 3; hold was; fork now";

/// How a volume is made.
struct Recipe {
    name: &'static str,
    mib: u64,
    node_size: usize,
    /// Each node is stored twice.
    copies: bool,
    /// Scripts, and what follows each.
    steps: &'static [(&'static str, Then)],
}

enum Then {
    Commit,
    Checkpoint,
    Nothing,
    Unmount,
    /// The volume is closed, and the deletion of this snapshot of `main` begins and goes so many steps.
    Delete(&'static [u8], usize),
}

const PLAIN: Recipe = Recipe { name: "", mib: 8, node_size: 4096, copies: false, steps: &[] };

const RECIPES: &[Recipe] = &[
    Recipe { name: "closed", steps: &[(TREE, Then::Unmount)], ..PLAIN },
    Recipe {
        name: "journal",
        steps: &[
            (TREE, Then::Checkpoint),
            (CHANGES, Then::Commit),
            ("mkfile /late; write /late 0 8k 9; rmdir /empty", Then::Commit),
            ("unlink /d/room; mkfile /last", Then::Commit),
        ],
        ..PLAIN
    },
    Recipe {
        name: "log",
        steps: &[
            (TREE, Then::Checkpoint),
            (CHANGES, Then::Nothing),
            ("fsync /new/f; write /new/f 100 50 1; fsync /new/f; mkfile /late", Then::Nothing),
            ("write /late 0 40k 9; fsync /late; rmdir /empty; fsyncdir /", Then::Nothing),
            ("tmpfile h /; write @h 0 100 3; write /d/data 0 3000 4; fsync /d/data", Then::Nothing),
        ],
        ..PLAIN
    },
    Recipe {
        name: "both",
        mib: 16,
        node_size: 16384,
        steps: &[
            (TREE, Then::Commit),
            (
                "open h /d/data read,write; unlink /d/data; unlink /d/sub/again; mkfile /a",
                Then::Commit,
            ),
            ("write /a 0 300 1; fsync /a; rename /a /b; fsyncdir /", Then::Nothing),
            ("write /d/holes 0 100 9; fsync /d/holes", Then::Nothing),
        ],
        ..PLAIN
    },
    Recipe { name: "empty", node_size: 65536, ..PLAIN },
    Recipe {
        name: "branches",
        steps: &[
            (TREE, Then::Checkpoint),
            (BRANCHES, Then::Commit),
            ("write /on 0 5000 4; mkfile /late; fork more was", Then::Commit),
            ("chmod /on 600", Then::Delete(b"before", 1)),
        ],
        ..PLAIN
    },
    Recipe {
        name: "branches in the log",
        steps: &[
            (TREE, Then::Checkpoint),
            (BRANCHES, Then::Checkpoint),
            ("write /d/data 4k 100 9; fsync /d/data; fork more was; switch more", Then::Nothing),
            ("write /d/data 0 12k 5; unlink /d/inline; fsync /d/data; mkfile /new", Then::Nothing),
            ("fsync /new; switch side; write /own 0 300 6; fsync /own", Then::Nothing),
            ("mvsnapshot two 2; rmsnapshot 2; switch main; rmsnapshot before", Then::Nothing),
            ("mvbranch now then; unlink /on; fsyncdir /; mkfile /z; fsync /z", Then::Nothing),
        ],
        ..PLAIN
    },
    Recipe {
        name: "copies of nodes",
        copies: true,
        steps: &[
            (TREE, Then::Checkpoint),
            ("mkfile /a; write /a 0 5000 3; fsync /a; rename /a /b", Then::Commit),
            ("unlink /b; fsyncdir /", Then::Nothing),
        ],
        ..PLAIN
    },
];

/// How many there are.
pub const COUNT: usize = RECIPES.len();

/// The volume of this index, modulo [`COUNT`].
pub fn golden(index: usize) -> &'static Image {
    static ALL: [OnceLock<Image>; COUNT] = [const { OnceLock::new() }; COUNT];
    let index = index % COUNT;
    ALL[index].get_or_init(|| {
        let device = make(&RECIPES[index]);
        if let Err(why) = judge(&device) {
            panic!("the golden volume {:?} is not clean: {why}", RECIPES[index].name);
        }
        Image::new(RECIPES[index].name, device)
    })
}

/// An empty volume with one directory, as mkfs makes it but for id and seed.
fn mkfs(device: &Arc<dyn Device>, recipe: &Recipe) {
    let plain = Geometry::for_device(device.len(), recipe.node_size);
    let plain = plain.expect("the sizes are allowed");
    let geometry = match recipe.copies {
        true => plain.with_copies().expect("it is large enough"),
        false => plain,
    };
    let options = CreateOptions {
        geometry,
        uuid: Uuid::from_bytes(*b"hostile holdfast"),
        label: "golden".into(),
        hash_seed: 0x6f1d,
        node_tag: *b"nodetag!",
        created: MOMENT,
    };
    let root = InodeItem {
        mode: FileType::Directory.mode_bits() | 0o755,
        nlink: 2,
        parent: InodeNo::ROOT,
        ..InodeItem::blank(FileType::Directory, MOMENT)
    };
    let mut first = Transaction::new();
    first.put(Key::inode(InodeNo::ROOT), root.encode());
    first.count_inodes(1);
    Store::create_with(device, &options, first).expect("memory does not fail");
    // The tag of the rings is random. Only markers and the frame that says that no commit follows carry it yet; without these none
    // follows either, where the marks name none.
    for ring in geometry.rings() {
        let first = [0; 4 * BLOCK_SIZE];
        device.write(ring.start.0 * BLOCK_BYTES, &first).expect("memory does not fail");
    }
    for slot in SUPERBLOCK_SLOTS.into_iter().chain([geometry.far_copy()]) {
        let at = slot.0 * BLOCK_BYTES;
        let mut block = [0; BLOCK_SIZE];
        device.read(at, &mut block).expect("memory does not fail");
        if let Ok(found) = Superblock::decode(&block, slot) {
            let journal = JournalMark { sum: 0, ..found.journal };
            let log = LogMark { sum: 0, ..found.log };
            let fixed = Superblock { ring_tag: *b"ringtag!", journal, log, ..found };
            device.write(at, &fixed.encode(slot)[..]).expect("memory does not fail");
        }
    }
}

fn make(recipe: &Recipe) -> MemoryDevice {
    let _pinned = pinned();
    let memory = Arc::new(MemoryDevice::new(recipe.mib << 20));
    let device: Arc<dyn Device> = Arc::clone(&memory) as Arc<dyn Device>;
    mkfs(&device, recipe);
    let mut setup = Setup::new(recipe.node_size, 64);
    setup.mount.threads = false;
    let mut engine = Engine::open(device, setup).expect("it was just made");
    for (script, then) in recipe.steps {
        let script: Script = script.parse().expect("the scripts are well formed");
        for op in script.ops() {
            let outcome = engine.apply(op);
            assert!(matches!(outcome, Outcome::Ok(_)), "{op} answers {outcome}");
        }
        let done = match (then, engine.filesystem()) {
            (Then::Commit, Ok(filesystem)) => filesystem.commit(),
            (Then::Checkpoint, Ok(filesystem)) => filesystem.checkpoint(),
            (Then::Unmount, _) => engine.unmount(),
            (Then::Delete(snapshot, steps), _) => engine.unmount().map(|()| {
                begin_to_delete(&memory, snapshot, *steps);
            }),
            _ => Ok(()),
        };
        done.expect("memory does not fail");
    }
    // As a crash leaves it: what the engine does when it ends does not come any more.
    let image = memory.snapshot();
    engine.kill();
    image
}

/// Some steps of a deletion, as a thread of the engine makes them.
fn begin_to_delete(memory: &Arc<MemoryDevice>, snapshot: &[u8], steps: usize) {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    let store = Store::open(Arc::clone(memory) as Arc<dyn Device>, &options, Arc::default());
    let store = store.expect("it was just closed");
    let number = store.find_tree(b"main", Some(snapshot)).expect("it was taken");
    store.delete_snapshot(number).expect("memory does not fail");
    store.work_off_deletions(steps).expect("memory does not fail");
    assert!(store.counters().deletions_left.get() > 0, "something is left to delete");
    store.commit_deletions().expect("memory does not fail");
    store.close().expect("memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_each_time() {
        for recipe in RECIPES {
            let (one, two) = (make(recipe).to_image(), make(recipe).to_image());
            let pairs = one.iter().zip(&two).enumerate();
            let differ = pairs.filter(|(_, (one, two))| one != two).map(|(at, _)| at);
            assert_eq!(differ.take(40).collect::<Vec<_>>(), [0; 0], "{}", recipe.name);
        }
    }

    #[test]
    fn they_hold_what_they_are_for() {
        let report = |index: usize| judge(&golden(index).snapshot()).expect("it is clean").facts;
        assert!(report(0).journal_commits == 0 && report(0).log_batches == 0);
        assert!(report(1).journal_commits >= 3);
        assert!(report(2).log_batches >= 4);
        assert!(report(3).journal_commits >= 2 && report(3).log_batches >= 2);
        let trees = |index: usize| (report(index).branches, report(index).snapshots);
        assert!(report(6).log_batches >= 5);
        assert!(trees(5).0 == 5 && trees(5).1 >= 4 && trees(6) == (5, 6), "{:?}", trees(5));
        assert!(report(3).orphans == 1 && report(0).xattrs >= 3 && report(0).files_nodes > 2);
    }
}
