//! What the journal says: its commits applied, in memory, to the nodes that they changed.
//!
//! Everything comes from the disk and is judged (P10): frames by sum, place and
//! chain, payloads by the format, bases and results as nodes. The memory is
//! bounded by what was really read, and by the format's limit for nodes.
//!
//! Writes nothing: see [`super::recover`].

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

mod nodes;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, CommitNo, Epoch};
use holdfast_device::Device;
use holdfast_format::checksum::block_sums;
use holdfast_format::journal::commit::data_sum;
use holdfast_format::journal::frame::KIND_END;
use holdfast_format::journal::{
    COMMIT_BYTES_MAX, Commit, DataExtent, FrameHeader, JournalMark, next_block,
};
use holdfast_format::log::LogMark;
use holdfast_format::node::OfVolume;
use holdfast_format::{Malformed, Superblock};

use crate::before_mark::BeforeMark;
use crate::{Result, StoreError};

/// Blocks of data by their first block.
type Data = Vec<(BlockNo, Vec<u8>)>;

/// A volume as its journal leaves it.
#[derive(Debug)]
pub struct Replayed {
    /// What a superblock would say that contains the journal.
    pub superblock: Superblock,
    /// The epoch of the last commit, or of the superblock: what the log holds was in no later one but the next.
    pub(crate) last_epoch: Epoch,
    /// Nodes that stand in front of the device, by their first block.
    pub nodes: BTreeMap<BlockNo, Vec<u8>>,
    /// Commits applied.
    pub commits: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Data that the last commit made durable with itself, as it was read. None, if a frame says that this is done.
    pub(crate) data: Data,
    /// Whether the journal says that no commit follows.
    pub(crate) ended: bool,
    /// The epoch of a commit whose frames are whole, given up because its data never arrived. It must
    /// be dead before anything is written (see [`super::recover::read`]).
    pub(crate) dropped_extents: Option<Epoch>,
    /// The commit that is missing although it was durable, and the block of the frame that proves it.
    pub damage: Option<(CommitNo, BlockNo)>,
    /// Why the commits that follow were left out: only for readers.
    pub(crate) left_out: Option<String>,
    /// Why the journal counts as wiped.
    pub wiped: Option<String>,
    /// What lies before the superblock's mark.
    pub(crate) before: BeforeMark,
    /// Goes into the journal before the superblock that has its sum.
    pub(crate) marker: Option<(BlockNo, Vec<u8>)>,
    /// Where the log went on before the last commit.
    pub(crate) earlier_log: LogMark,
    /// Why nodes are not there that commits built on a damaged one, of the first that is left: only for readers.
    pub lost: Option<String>,
}

impl Replayed {
    /// The volume as `superblock` has it.
    fn nothing(superblock: &Superblock) -> Replayed {
        Replayed {
            superblock: superblock.clone(),
            last_epoch: superblock.epoch,
            nodes: BTreeMap::new(),
            commits: 0,
            bytes: 0,
            data: Vec::new(),
            ended: false,
            dropped_extents: None,
            damage: None,
            left_out: None,
            wiped: None,
            before: BeforeMark::Nothing,
            marker: None,
            earlier_log: superblock.log,
            lost: None,
        }
    }
}

/// A journal that cannot be replayed to its end.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// So many commits can be tried without it.
    pub commits: u64,
    /// What is wrong.
    pub error: StoreError,
}

/// Reads the journal behind `superblock` and applies its commits.
pub fn replay(device: &dyn Device, superblock: &Superblock) -> Result<Replayed> {
    let done = replay_some(device, superblock, u64::MAX);
    done.map_err(|stopped| stopped.error)
}

/// As [`replay`], with at most `commits_max` commits.
pub(crate) fn replay_some(
    device: &dyn Device,
    superblock: &Superblock,
    commits_max: u64,
) -> std::result::Result<Replayed, Stopped> {
    let mut commits = 0;
    let done = try_replay(device, superblock, commits_max, &mut commits);
    done.map_err(|error| Stopped { commits, error })
}

/// `safe` becomes the number of commits that can be tried without an error.
fn try_replay(
    device: &dyn Device,
    superblock: &Superblock,
    commits_max: u64,
    safe: &mut u64,
) -> Result<Replayed> {
    let mut replay = Replay::new(device, superblock)?;
    let mut done = Replayed::nothing(superblock);
    if commits_max == 0 {
        return Ok(done);
    }
    let mut found = replay.read_commit(superblock.journal, superblock.epoch, false)?;
    let mut last_epoch = superblock.epoch;
    loop {
        let payload = match found {
            NextFrame::Commit(payload) => payload,
            NextFrame::End => {
                done.ended = true;
                break;
            }
            NextFrame::Nothing => break,
        };
        *safe = done.commits;
        // A commit is written after the flush of the one before it: only the last can lack its data.
        let next = replay.read_commit(payload.after, payload.epoch, true);
        let is_last = matches!(next, Ok(NextFrame::End | NextFrame::Nothing));
        let damage = |source| {
            let what = format!("commit {} of the journal", payload.after.commit);
            StoreError::Item { what, source }
        };
        let commit = judged(&payload, superblock, &done.superblock).map_err(damage)?;
        if is_last && !mutants::is(Mutant::JournalUnverified) {
            match replay.read_data(&commit.extents) {
                Some(data) => done.data = data,
                // It was durable: what has rotted since speaks against its file, not against the commit.
                None if replay.later_frame(done.superblock.journal)?.is_some() => {}
                None => {
                    done.dropped_extents = Some(payload.epoch);
                    break;
                }
            }
        }
        replay.apply(&commit, damage)?;
        last_epoch = payload.epoch;
        done.last_epoch = last_epoch;
        let epoch = beside(superblock, payload.epoch);
        done.earlier_log = done.superblock.log;
        done.superblock = commit.head.superblock(superblock, epoch, payload.after);
        // Both are told, and no more: [`Replay::read_commit`] has held the blocks against the ring.
        done.commits = done.commits.saturating_add(1);
        done.bytes = done.bytes.saturating_add(payload.blocks.saturating_mul(BLOCK_BYTES));
        *safe = done.commits;
        if done.commits == commits_max {
            break;
        }
        found = next?;
    }
    // A node may be wrong since any of them.
    *safe = 0;
    done.nodes = replay.finish(last_epoch)?;
    done.lost = replay.lost.first_key_value().map(|(_, why)| why.clone());
    if !done.ended && !mutants::is(Mutant::JournalHole) {
        done.damage = replay.later_frame(done.superblock.journal)?;
    }
    if done.commits == 0 && done.dropped_extents.is_none() {
        done.before = replay.before(superblock.journal);
        if !done.ended && done.damage.is_none() {
            done.wiped = replay.wiped(superblock.journal);
        }
    }
    Ok(done)
}

/// The commit in `payload`, if it can follow `before`, which it makes of the volume of `superblock`.
fn judged<'a>(
    payload: &'a Payload,
    superblock: &Superblock,
    before: &Superblock,
) -> std::result::Result<Commit<'a>, Malformed> {
    let commit = Commit::decode(&payload.bytes, payload.epoch, &superblock.geometry)?;
    let mut blocks = BTreeSet::new();
    if let Some(twice) = commit.nodes.iter().find(|change| !blocks.insert(change.block)) {
        let why = format!("it has two records of node {}", twice.block);
        return Err(Malformed::new("commit", why));
    }
    if commit.head.lsn < before.lsn.0 || commit.head.inode_next < before.inode_next.0 {
        let why = "its last operation or next inode is from before what it follows";
        return Err(Malformed::new("commit", why));
    }
    Ok(commit)
}

/// `epoch`, or the one after it: the slots alternate, and the superblock to come must not take the
/// place of `before` (R1).
pub(super) fn beside(before: &Superblock, epoch: Epoch) -> Epoch {
    let same_slot = epoch.0 % 2 == before.epoch.0 % 2;
    if same_slot { epoch.next() } else { epoch }
}

/// What lies where a commit would.
enum NextFrame {
    Commit(Payload),
    End,
    Nothing,
}

/// All frames of a commit.
struct Payload {
    bytes: Vec<u8>,
    epoch: Epoch,
    after: JournalMark,
    blocks: u64,
}

pub(super) struct Replay<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) superblock: &'a Superblock,
    pub(super) ring: BlockRange,
    pub(super) ring_end: BlockNo,
    volume: OfVolume,
    nodes: BTreeMap<BlockNo, Vec<u8>>,
    /// Nodes that would be among those, were it not for a damaged one that they build on; and why.
    lost: BTreeMap<BlockNo, String>,
    /// Blocks of the frames read so far.
    blocks: u64,
}

impl<'a> Replay<'a> {
    /// Nothing is read yet of the journal behind `superblock`.
    pub(super) fn new(device: &'a dyn Device, superblock: &'a Superblock) -> Result<Replay<'a>> {
        let ring = superblock.geometry.journal();
        let Some(ring_end) = ring.end() else {
            let source = Malformed::new("journal", format!("the ring {ring:?} has no end"));
            return Err(StoreError::Item { what: "the superblock".into(), source });
        };
        Ok(Replay {
            device,
            superblock,
            ring,
            ring_end,
            volume: superblock.nodes(),
            nodes: BTreeMap::new(),
            lost: BTreeMap::new(),
            blocks: 0,
        })
    }
}

impl Replay<'_> {
    /// The commit behind `mark`. `epoch` is that of the commit before, or of the superblock.
    fn read_commit(
        &mut self,
        mark: JournalMark,
        epoch: Epoch,
        same_epoch: bool,
    ) -> Result<NextFrame> {
        let number = mark.commit.next();
        let mut payload = Payload {
            bytes: Vec::new(),
            epoch,
            after: JournalMark { commit: number, ..mark },
            blocks: 0,
        };
        let mut frames = None;
        for index in 0.. {
            let at = payload.after.next;
            let fits = |header: &FrameHeader| {
                let ends = header.kind == KIND_END;
                let right_epoch = match index {
                    0 => {
                        let is_same = header.epoch == epoch.0;
                        header.epoch == epoch.next().0 || (same_epoch || ends) && is_same
                    }
                    _ => header.epoch == payload.epoch.0 && !ends,
                };
                let follows = header.commit == number.0 && header.prior == payload.after.sum;
                let same_count = frames.is_none_or(|frames| frames == header.frames);
                follows && header.index == index && same_count && right_epoch
            };
            let Some(frame) = self.frame_that(at, fits)? else {
                return Ok(NextFrame::Nothing);
            };
            let header = &frame.header;
            frames = Some(header.frames);
            if header.kind == KIND_END {
                return Ok(NextFrame::End);
            }
            let part = frame.payload();
            // No crash leaves a journal that overlaps itself. What saturates is too much as well.
            payload.blocks = payload.blocks.saturating_add(header.blocks());
            let blocks = self.blocks.saturating_add(payload.blocks);
            let bytes = payload.bytes.len().saturating_add(part.len());
            if blocks > self.ring.count || bytes > COMMIT_BYTES_MAX {
                let what = format!("commit {number} of the journal");
                let source = Malformed::new("commit", "it is larger than a journal can be");
                return Err(StoreError::Item { what, source });
            }
            payload.bytes.extend_from_slice(part);
            payload.epoch = Epoch(header.epoch);
            payload.after.sum = header.sum;
            payload.after.next = next_block(self.ring, at, header.blocks());
            if index.checked_add(1) == Some(header.frames) {
                break;
            }
        }
        // The ring has as many.
        self.blocks = self.blocks.saturating_add(payload.blocks);
        Ok(NextFrame::Commit(payload))
    }

    /// The data that a commit names, or `None` if some of it never arrived. A block that cannot be
    /// read is damage, not a power cut: it speaks against its file, not against the commit.
    fn read_data(&self, extents: &[DataExtent]) -> Option<Data> {
        let mut data = Vec::new();
        for extent in extents {
            let mut sums = Vec::new();
            let mut bytes = Vec::new();
            let blocks = BlockRange::new(BlockNo(extent.block), extent.count);
            if let Err(error) = self.read_blocks(blocks, &mut bytes) {
                tracing::error!("data at {blocks:?} cannot be read: {error}");
                continue;
            }
            sums.extend(block_sums(&bytes));
            if data_sum(&sums) != extent.sum {
                return None;
            }
            data.push((BlockNo(extent.block), bytes));
        }
        Some(data)
    }
}
