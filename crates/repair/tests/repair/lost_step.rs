//! The commit of a step of a deletion is the last one, and batches of the log follow it. Its frame rots: what they say of blocks that the step
//! freed, or of what the branch has alone since, is applied to nothing older.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockRange, InodeNo};
use holdfast_check::Issue;
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::checksum::block_sums;
use holdfast_format::item::Extent;
use holdfast_format::{ItemKind, Key};
use holdfast_repair::is_repaired;
use holdfast_store::{Branch, Need, OpenOptions, Store, StoreError, Transaction};

use crate::common::branches::{chown, grown_behind, moment, open, overwrite};
use crate::common::{DATA, PIPE};
use crate::every_finding::{LOSS, found, planned};
use crate::lost_seal::{rotten, second_reader};

/// What is synced behind the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// No block is taken or given up.
    Owner,
    /// New data lies where that of the snapshot was, if it is free.
    Reused,
    /// The branch gives up what the snapshot had, or has.
    DroppedExtents,
}

fn data(branch: &Branch) -> Extent {
    let key = Key::new(DATA, ItemKind::Extent, 0);
    Extent::decode(
        &branch.get(&key).expect("memory takes and gives it").expect("memory takes and gives it"),
    )
    .expect("memory takes and gives it")
}

/// New data for the file, as near to a block as can be; says whether it lies there.
fn overwrite_at(branch: &Branch, byte: u8, near: BlockRange) -> bool {
    let key = Key::new(DATA, ItemKind::Extent, 0);
    let old = data(branch);
    let mut room =
        branch.reserve(Need::Grow { changes: 8, blocks: 8 }).expect("memory takes and gives it");
    let placed = branch
        .allocate(&mut room, old.blocks.count, Some(near.start))
        .expect("memory takes and gives it");
    let is_there = placed.blocks() == near;
    let bytes = vec![byte; (placed.blocks().count * BLOCK_BYTES) as usize];
    let written = branch.write(placed, &bytes).expect("memory takes and gives it");
    let mut transaction = Transaction::new();
    transaction.free(old.blocks, old.birth, key);
    let extent = transaction.publish(written);
    transaction.put(key, extent.encode());
    branch.apply(transaction, &mut room).expect("memory takes and gives it");
    is_there
}

fn chown_all(branch: &Branch) {
    for number in (1..100).map(InodeNo) {
        if branch.get(&Key::inode(number)).expect("memory takes and gives it").is_some() {
            chown(branch, number);
        }
    }
}

/// What a crash leaves before a step, behind its commit, and behind a batch that follows. `None`: there is no such step.
fn crashed(step: usize, behind: Behind) -> Option<([MemoryDevice; 3], bool)> {
    let grown = grown_behind(4, true);
    let store = open(&grown.device);
    let main = Branch::main(Arc::clone(&store));
    overwrite(&main, 5);
    chown_all(&main);
    let last = store.snapshot(1, b"last", moment()).expect("memory takes and gives it");
    let of_snapshot = data(&main).blocks;
    chown_all(&main);
    if behind != Behind::DroppedExtents {
        overwrite(&main, 6);
    }
    store.checkpoint().expect("memory takes and gives it");
    store.delete_snapshot(last).expect("memory takes and gives it");
    store.commit().expect("memory takes and gives it");
    for _ in 0..step {
        if !store.work_off_deletions(1).expect("memory takes and gives it") {
            return None;
        }
        store.commit_deletions().expect("memory takes and gives it");
    }
    let before = grown.device.snapshot();
    store.work_off_deletions(1).expect("memory takes and gives it");
    store.commit_deletions().expect("memory takes and gives it");
    let stepped = grown.device.snapshot();
    if stepped.to_image() == before.to_image() {
        return None;
    }
    let is_reused = match behind {
        Behind::Owner => false,
        Behind::Reused => overwrite_at(&main, 7, of_snapshot),
        Behind::DroppedExtents => {
            overwrite(&main, 7);
            false
        }
    };
    chown(&main, PIPE);
    store.sync(store.latest(), PIPE).expect("memory takes and gives it");
    Some(([before, stepped, grown.device.snapshot()], is_reused))
}

fn opened(device: &MemoryDevice, read_only: bool) -> Result<Arc<Store>, StoreError> {
    let options = OpenOptions { threads: false, read_only, ..OpenOptions::default() };
    let device: Arc<dyn Device> = Arc::new(device.snapshot());
    Store::open(device, &options, Arc::default()).map(Arc::new)
}

/// What `main` holds: owners, and the bytes of the file.
fn shown(store: &Arc<Store>) -> BTreeMap<u64, Vec<u8>> {
    let main = Branch::main(store.clone());
    let items = (1..100).filter_map(|number| {
        main.get(&Key::inode(InodeNo(number)))
            .expect("memory takes and gives it")
            .map(|item| (number, item))
    });
    let mut all: BTreeMap<u64, Vec<u8>> = items.collect();
    let extent = data(&main);
    let mut bytes = vec![0; (extent.blocks.count * BLOCK_BYTES) as usize];
    main.read(extent.blocks, &mut bytes).expect("memory takes and gives it");
    assert!(block_sums(&bytes).eq(extent.sums), "other bytes than were written");
    all.insert(0, bytes);
    all
}

#[test]
fn a_batch_behind_a_lost_step_of_a_deletion_is_applied_to_nothing_it_does_not_fit() {
    let (mut reused, mut refused, mut steps) = (0, 0, 0);
    for behind in [Behind::Owner, Behind::Reused, Behind::DroppedExtents] {
        for step in 0.. {
            let Some((crashed, is_reused)) = crashed(step, behind) else { break };
            (reused, steps) = (reused + u32::from(is_reused), steps.max(step));
            let when = format!("{behind:?} behind step {step}");
            refused += u32::from(is_right(crashed, &when));
        }
    }
    assert!(
        steps > 3 && reused > 0 && refused > 0,
        "{steps} steps, {reused} reuses, {refused} refusals"
    );
}

/// Findings of a batch that does not fit.
const SAID: [Issue; 3] = [Issue::LogDamaged, Issue::BatchMalformed, Issue::BatchBlocks];

/// Says whether the volume is refused to writers.
fn is_right([before, stepped, after]: [MemoryDevice; 3], when: &str) -> bool {
    let of =
        |device: &MemoryDevice| shown(&opened(device, true).expect("memory takes and gives it"));
    assert!(found(&after).findings.is_empty(), "{when}");
    let (old, new) = (of(&before), of(&after));
    assert!(of(&rotten(&stepped)) == old, "{when}: a step changes nothing of a branch");
    let lost = rotten(&after);
    let seen = of(&lost);
    assert!(seen == old || seen == new, "{when}: a mixture");
    let report = found(&lost);
    if let Err(why) = opened(&lost, false) {
        assert!(why.to_string().contains("log"), "{when}: {why}");
        let is_said = report.findings.iter().any(|it| SAID.contains(&it.issue()));
        assert!(is_said, "{when}: {why}, {:?}", report.findings);
        assert!(second_reader(&lost).is_none_or(|said| !said.is_empty()), "{when}: {why}");
        let plan = planned(&lost, &LOSS).unwrap_or_else(|error| panic!("{when}: {error}"));
        plan.write(&lost).expect("memory takes and gives it");
        assert!(is_repaired(&found(&lost)), "{when}: {:?}", found(&lost).findings);
        goes_on(&lost, when);
        return true;
    }
    assert!(seen == new, "{when}: nothing is refused, and the batch is left out");
    assert!(report.findings.is_empty(), "{when}: {:?}", report.findings);
    assert!(second_reader(&lost).is_none_or(|said| said.is_empty()), "{when}");
    goes_on(&lost, when);
    false
}

/// The deletion comes to its end, and what is free is written: the branch keeps what it has.
fn goes_on(device: &MemoryDevice, when: &str) {
    let device = Arc::new(device.snapshot());
    let store = open(&device);
    let before = shown(&store);
    while store.work_off_deletions(1).expect("memory takes and gives it") {}
    store.commit_deletions().expect("memory takes and gives it");
    let main = Branch::main(store.clone());
    store.snapshot(1, b"guard", moment()).expect("memory takes and gives it");
    for byte in 0..40 {
        overwrite(&main, byte);
        store.commit().expect("memory takes and gives it");
    }
    let guard = store.find_snapshot(1, b"guard").expect("memory takes and gives it");
    store.roll_back(1, guard, None, moment()).expect("memory takes and gives it");
    assert!(shown(&store) == before, "{when}: another write went over its data");
    drop(main);
    Arc::into_inner(store)
        .expect("memory takes and gives it")
        .close()
        .expect("memory takes and gives it");
    assert!(found(&*device).findings.is_empty(), "{when}: {:?}", found(&*device).findings);
}
