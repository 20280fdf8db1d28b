//! The fsync log, replayed the plain way: what the volume is after a crash, without writing anything.
//!
//! [`replay`] starts where the journal left off, takes one whole batch after the
//! other, and stops at the first that is not there. What batches change is kept
//! beside the trees: values of keys, blocks taken and given back, data that lies
//! in the log. A batch that is only incomplete, or whose data did not arrive, is
//! how a crash leaves a log; [`Fault`] and [`Damage`] are what a crash cannot do.
//!
//! Written from the format alone, as a second opinion on the engine's recovery.
//! Memory grows only with what was really read, and stays below
//! `REPLAY_BYTES_MAX` for the batches and four times that for what they say (P10).

mod apply;
mod around_mark;
mod blocks;
mod chains;
mod give_back;
mod judged;
mod later;
mod lineage;
mod origins;
mod ring;

use std::collections::BTreeMap;

use holdfast_base::recover::RecoveryWork;
use holdfast_base::{BatchNo, BlockNo, InodeNo, Lsn};
use holdfast_device::{Device, DeviceError};
use holdfast_format::item::lineage::MAIN;
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::log::{DATA_BLOCKS_MAX, REPLAY_BYTES_MAX};
use holdfast_format::{Key, Superblock};

use crate::CheckError;
use crate::changes::{Change, Changes, NO_CHANGES};
use crate::issue::Issue;
use crate::journal::{self, Fault, Reason};
use crate::lineage::Lineage;
use crate::patched::Patched;
use crate::runs::Runs;
use crate::volume::Volume;
use apply::LogEffects;
pub(crate) use later::Later;
pub use later::{Gaps, MadeLater};
pub(crate) use ring::{BadBatch, Ring, Whole};

/// What a log makes of the volume that the journal leaves.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The superblock that stands for the volume after journal and log.
    pub superblock: Superblock,
    /// Keys of the files tree of `main` that the log changed, with what they are now.
    pub items: BTreeMap<Key, Change>,
    /// The same of other branches, by their numbers.
    pub branches: BTreeMap<u64, BranchChanges>,
    /// Items of branches and snapshots that the log changed, with what they are now.
    pub lineage: BTreeMap<Key, Change>,
    /// Batches applied.
    pub batches: u64,
    /// Batches that the journal contains already.
    pub skipped: u64,
    /// Records of the batches applied.
    pub records: u64,
    /// Bytes of all batches up to the end, padding included.
    pub bytes: u64,
    /// Of those, bytes of file data in the batches applied.
    pub data_bytes: u64,
    /// Where and why it ended.
    pub end: End,
    /// A later batch proves that the one at which it ended was durable.
    pub damage: Option<Damage>,
    /// What counts of batches behind a hole, where that was asked for.
    pub(crate) later: Later,
    /// What no crash explains of batches that are whole.
    pub faults: Vec<Fault>,
    /// Places that lack a durable batch which another place has.
    pub(crate) bad_places: Vec<(BatchNo, BadBatch)>,
    /// The first block of the ring that could not be searched for such a batch, and why.
    pub unsearched: Option<(BlockNo, String)>,
    /// Blocks that belong to a file and were free before the log.
    pub(crate) taken: Runs,
    /// Blocks that were freed, some of them taken before by the log.
    pub(crate) freed: Runs,
    /// Blocks whose data lies in the log.
    pub(crate) data: Patched,
}

/// What the log changed of a branch other than `main`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchChanges {
    /// Keys of its files tree, with what they are now.
    pub items: BTreeMap<Key, Change>,
    /// Inodes in it.
    pub inode_count: u64,
}

/// Where a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The first batch that does not count.
    pub batch: BatchNo,
    /// Byte of the ring at which it would begin.
    pub at: u64,
    /// The kind of end.
    pub reason: Reason,
    /// What exactly was found there.
    pub why: String,
}

/// A batch that is missing although it was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The batch that is not there.
    pub batch: BatchNo,
    /// What proves it.
    pub proof: Proof,
}

/// A batch that says of another that it was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The number of the batch that says so.
    pub batch: BatchNo,
    /// Byte of the ring at which it begins.
    pub at: u64,
    /// Last durable batch by that batch.
    pub durable: BatchNo,
}

impl Replay {
    /// The volume as the journal alone has it.
    pub(crate) fn none(superblock: &Superblock, reason: Reason, why: &str) -> Replay {
        let mark = superblock.log;
        let end = End { batch: mark.batch.next(), at: mark.next, reason, why: why.into() };
        Replay {
            superblock: superblock.clone(),
            items: BTreeMap::new(),
            branches: BTreeMap::new(),
            lineage: BTreeMap::new(),
            batches: 0,
            skipped: 0,
            records: 0,
            bytes: 0,
            data_bytes: 0,
            end,
            damage: None,
            later: Later::default(),
            faults: Vec::new(),
            bad_places: Vec::new(),
            unsearched: None,
            taken: Runs::default(),
            freed: Runs::default(),
            data: Patched::default(),
        }
    }

    /// What it changed, to be seen in front of the trees.
    pub(crate) fn changes(&self) -> Changes<'_> {
        Changes { items: &self.items, lineage: &self.lineage, data: &self.data }
    }

    /// What it changed of the files tree of a branch.
    pub(crate) fn items_of(&self, branch: u64) -> &BTreeMap<Key, Change> {
        match self.branches.get(&branch) {
            _ if branch == MAIN => &self.items,
            Some(of) => &of.items,
            None => &NO_CHANGES,
        }
    }

    /// Inodes in a branch other than `main`, if the log changed it.
    pub(crate) fn inodes_in(&self, branch: u64) -> Option<u64> {
        self.branches.get(&branch).map(|of| of.inode_count)
    }

    /// A counter so near its end that no writer opens the volume any more, with its name.
    pub fn high_counter(&self) -> Option<(&'static str, u64)> {
        // A writer refuses a counter beyond half of the maximum. Before that check, a recovery may have raised it
        // by a number for each batch that it gives up.
        let high = COUNTER_MAX / 2 - (1 << 20);
        let counters = [
            ("epoch", self.superblock.epoch.0),
            ("number of the last commit", self.superblock.journal.commit.0),
            ("number of the last batch", self.superblock.log.batch.0),
            ("last operation", self.superblock.lsn.0),
            ("next inode", self.superblock.inode_next.0),
            ("number of inodes", self.superblock.inode_count),
        ];
        counters.into_iter().find(|(_, count)| *count > high)
    }

    /// What a recovery would have to do.
    pub fn work(&self, journal: &journal::Replay) -> RecoveryWork {
        RecoveryWork {
            log_bytes: self.bytes,
            log_data_bytes: self.data_bytes,
            log_blocks: self.data.len(),
            ..journal.work()
        }
    }

    fn refuse(&mut self, ring: &Ring<'_>, whole: &Whole, issue: Issue, why: String) {
        let what = format!("batch {}: {why}", whole.header.number);
        self.faults.push(Fault { issue, what, block: ring.block(whole.header.address) });
        self.end = whole.ends_before(Reason::Broken, why);
    }

    /// The superblock behind a batch that counts.
    fn advance(&mut self, whole: &Whole) {
        self.superblock.log = whole.after.mark;
        self.bytes += u64::from(whole.header.bytes);
    }
}

/// Replays the log behind `journal`, what the commits on `device` leave.
///
/// Fails only if the device does not read where the next batch must be.
pub fn replay(device: &dyn Device, journal: &journal::Replay) -> Result<Replay, CheckError> {
    match replay_readable(device, journal, !journal.is_whole(), Gaps::End) {
        (replay, None) => Ok(replay),
        (_, Some(error)) => Err(error),
    }
}

/// The replay, and why the device does not read where the next batch must be. The journal `is_cut` where commits that were durable are
/// missing.
pub(crate) fn replay_readable(
    device: &dyn Device,
    journal: &journal::Replay,
    is_cut: bool,
    holes: Gaps,
) -> (Replay, Option<CheckError>) {
    if is_cut && holes == Gaps::End {
        // What the batches build on is not there, and blocks that they take may be in use by it.
        let why = "the journal before it is not whole";
        return (Replay::none(&journal.superblock, Reason::Broken, why), None);
    }
    let ring = Ring::new(device, &journal.superblock);
    let mut replay = Replay::none(&journal.superblock, Reason::Nothing, "");
    let mut chain = Vec::new();
    let (mut proven, unread) = collect(&ring, is_cut, &mut replay, &mut chain);
    let mut proof = None;
    // A volume that was closed says that nothing durable is missing.
    if replay.end.reason != Reason::Broken && journal.end.reason != Reason::Closed {
        (proof, replay.unsearched) = ring.search(&replay.end, proven);
        proven = proof.as_ref().map_or(proven, |proof: &Proof| proof.durable.0);
    }
    // A crash may leave the others so.
    for whole in chain.iter().filter(|whole| whole.header.number <= proven) {
        let places = whole.bad.iter().map(|bad| (whole.number(), bad.clone()));
        replay.bad_places.extend(places);
    }
    let before = Volume::before_log(device, journal);
    if !chain.is_empty() {
        let is_lost = Lineage::lost(&before).is_some();
        let state = LogEffects::new(before.marks(), Lineage::read(&before), is_lost);
        apply(&before, &ring, state, &chain, proven, &mut replay);
    }
    let batch = replay.end.batch;
    let damage = proof.filter(|proof| proof.durable >= batch && replay.faults.is_empty());
    replay.damage = damage.filter(|_| !is_cut).map(|proof| Damage { batch, proof });
    // Operations that no batch has were those of a commit that is gone.
    let has_gap = replay.faults.iter().any(|fault| fault.issue == Issue::BatchGap);
    let has_hole = is_cut || has_gap || replay.damage.is_some() || unread.is_some();
    if has_hole && journal.end.reason != Reason::Closed && holes == Gaps::Cross {
        later::take(&before, &ring, &mut replay);
    }
    let is_empty = chain.is_empty() && replay.skipped == 0 && replay.end.reason == Reason::Nothing;
    let is_open = journal.end.reason != Reason::Closed && !has_hole;
    if is_empty && is_open && ring.is_wiped(&journal.earlier_log) {
        let what = format!(
            "nothing is left of the log at its byte {}, where batches were durable",
            replay.end.at
        );
        let block = ring.block(replay.end.at);
        replay.faults.push(Fault { issue: Issue::LogWiped, what, block });
    }
    (replay, unread.map(CheckError::from))
}

/// Reads the batches that must be applied. Those that the journal contains are passed over. Tells
/// which was the last durable batch by all that were read, and why the next one does not read. Behind a journal that `is_cut`, operations
/// are missing where the commits were.
fn collect(
    ring: &Ring<'_>,
    is_cut: bool,
    replay: &mut Replay,
    chain: &mut Vec<Whole>,
) -> (u64, Option<DeviceError>) {
    let (mut lsn, mut bytes, mut proven) = (replay.superblock.lsn.0, 0u64, 0);
    let mut place = ring.start();
    loop {
        let whole = match ring.batch(&place) {
            Ok(Ok(whole)) => whole,
            Ok(Err(end)) => {
                replay.end = end;
                return (proven, None);
            }
            Err(error) => {
                replay.end = ring.unread(&place);
                return (proven, Some(error));
            }
        };
        let header = whole.header;
        let is_old = header.last <= lsn;
        bytes = bytes.saturating_add(header.bytes.into());
        proven = proven.max(header.durable);
        let refused = if whole.overlaps {
            Some((Issue::BatchMalformed, "it lies over the first batch of the log".to_string()))
        } else if bytes > REPLAY_BYTES_MAX {
            Some((Issue::BatchMalformed, "the log is longer than may be".into()))
        } else if !is_old && header.after != lsn {
            let why = format!(
                "it builds on operation {}, but what is before it ends with operation {lsn}",
                header.after
            );
            if is_cut {
                replay.end = whole.ends_before(Reason::Nothing, why);
                return (proven, None);
            }
            Some((Issue::BatchGap, why))
        } else {
            None
        };
        if let Some((issue, why)) = refused {
            replay.refuse(ring, &whole, issue, why);
            return (proven, None);
        }
        place = whole.after;
        if is_old && chain.is_empty() {
            replay.skipped += 1;
            replay.advance(&whole);
        } else if !is_old {
            lsn = header.last;
            chain.push(whole);
        }
    }
}

/// Applies the batches one after the other, as far as they count. Up to number `proven` they need no
/// proof that their data arrived.
fn apply(
    before: &Volume<'_>,
    ring: &Ring<'_>,
    mut state: LogEffects,
    chain: &[Whole],
    proven: u64,
    replay: &mut Replay,
) {
    let mut unproven = 0u64;
    for whole in chain {
        let judged = match state.judge(whole, before, replay) {
            Ok(judged) => judged,
            Err((issue, why)) => {
                replay.refuse(ring, whole, issue, why);
                break;
            }
        };
        if proven < whole.header.number {
            unproven += judged.named.iter().map(|extent| extent.count).sum::<u64>();
        }
        if unproven > DATA_BLOCKS_MAX {
            let why = "the batches of one flush name more data than they may".to_string();
            replay.refuse(ring, whole, Issue::BatchMalformed, why);
            break;
        }
        if proven < whole.header.number
            && let Some(extent) = crate::data_sums::missing(before.device, &judged.named)
        {
            let (block, count) = (extent.block, extent.count);
            let why = format!("{count} blocks of data from {block} on did not arrive");
            replay.end = whole.ends_before(Reason::DataMissing, why);
            break;
        }
        state.apply(judged, ring.block(whole.header.address), replay);
        replay.advance(whole);
        let superblock = &mut replay.superblock;
        superblock.lsn = Lsn(whole.header.last);
        superblock.inode_next = InodeNo(whole.header.inode_next);
        superblock.inode_count = whole.header.inode_count;
        replay.batches += 1;
        replay.records += u64::from(whole.header.records);
    }
    state.finish(replay);
}
