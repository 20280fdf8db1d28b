//! The journal, replayed the plain way: what the volume is after a crash, without writing anything.
//!
//! [`replay`] starts at the mark of a superblock, takes one whole commit after
//! the other, and stops at the first that is not there. It keeps the nodes that
//! commits make in memory, in front of the device, and the head of the last
//! commit in place of the superblock. A commit that is only incomplete is how a
//! crash leaves a journal; [`Fault`] and [`Damage`] are what a crash cannot do.
//!
//! Written from the format alone, as a second opinion on the engine's recovery.
//! Memory grows only with frames that were really read, and stays below
//! `COMMIT_BYTES_MAX` for each of two commits and `REPLAY_BYTES_MAX` for nodes (P10).

mod apply;
mod around_mark;
mod ring;

use std::collections::BTreeMap;

use holdfast_base::recover::RecoveryWork;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, CommitNo};
use holdfast_device::Device;
use holdfast_format::log::LogMark;
use holdfast_format::{Stored, Superblock, node};

use crate::CheckError;
use crate::issue::Issue;
use crate::nodes::NodeCache;
pub(crate) use ring::{BadFrame, NextCommit, Ring, Whole};

/// What a journal makes of a volume.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The superblock that stands for the volume after the journal: that of the device with the head
    /// of the last commit, its epoch, and the mark behind it.
    pub superblock: Superblock,
    /// Nodes that stand in front of those of the device, sealed, by their first block.
    pub nodes: BTreeMap<BlockNo, Vec<u8>>,
    /// Other nodes, that were read from the device lately.
    pub(crate) read: NodeCache,
    /// Commits applied.
    pub commits: u64,
    /// Bytes of their frames, padding included.
    pub bytes: u64,
    /// Where and why it ended.
    pub end: End,
    /// A later frame proves that the commit at which it ended was durable.
    pub damage: Option<Damage>,
    /// Places that lack a frame of a durable commit which another place has.
    pub(crate) bad_places: Vec<(CommitNo, BadFrame)>,
    /// Where the log went on before the last commit.
    pub(crate) earlier_log: LogMark,
    /// Nodes that would be among those, were it not for a damaged one that commits build on, and that no later commit made anew or
    /// left out; and why. Nothing may be written to such a volume.
    pub(crate) lost: BTreeMap<BlockNo, Fault>,
    /// What no crash explains of commits whose frames are whole.
    pub faults: Vec<Fault>,
}

/// Where a journal ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The first commit that does not count.
    pub commit: CommitNo,
    /// Block of the ring at which it ends.
    pub at: BlockNo,
    /// The kind of end.
    pub reason: Reason,
    /// What exactly was found there.
    pub why: String,
}

/// Why a journal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Not even the first frame of the next commit is there.
    Nothing,
    /// The volume was closed.
    Closed,
    /// Some frames of the next commit are there, but not all.
    Incomplete,
    /// The data that was to become durable with the last commit did not arrive, and nothing says that it did.
    DataMissing,
    /// The next commit is whole but cannot be applied; [`Replay::faults`] says more.
    Broken,
}

impl Reason {
    /// Its name in dumps.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Nothing => "nothing",
            Reason::Closed => "closed",
            Reason::Incomplete => "incomplete",
            Reason::DataMissing => "data-missing",
            Reason::Broken => "broken",
        }
    }
}

/// A frame that was written only after a commit that is not there was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The commit that is not there.
    pub commit: CommitNo,
    /// First block of the frame that proves it.
    pub at: BlockNo,
    /// Commit of that frame.
    pub later: CommitNo,
    /// Last durable commit by that frame.
    pub durable: CommitNo,
}

/// What is wrong with a commit whose frames are all there, or with a node that commits made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The finding.
    pub issue: Issue,
    /// What exactly is wrong.
    pub what: String,
    /// First block of the commit or node.
    pub block: BlockNo,
}

impl Replay {
    /// The volume as the superblock alone has it.
    pub(crate) fn none(superblock: &Superblock) -> Replay {
        let end = End {
            commit: superblock.journal.commit.next(),
            at: superblock.journal.next,
            reason: Reason::Nothing,
            why: String::new(),
        };
        Replay {
            superblock: superblock.clone(),
            nodes: BTreeMap::new(),
            read: NodeCache::default(),
            commits: 0,
            bytes: 0,
            end,
            damage: None,
            earlier_log: superblock.log,
            lost: BTreeMap::new(),
            bad_places: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Whether nothing durable is missing and every commit can be, but for single nodes: then the log goes on behind it.
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty() && self.damage.is_none()
    }

    /// Whether nodes are lost that commits built on damaged ones.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Takes one commit after the other. Fails where the next does not read: those before it stand.
    fn read(&mut self, ring: &Ring<'_>) -> Result<(), CheckError> {
        let (mut found, mut unread) = ring.next(&ring.start());
        loop {
            let whole = match found {
                NextCommit::Whole(whole) => whole,
                NextCommit::End(end) => {
                    self.end = end;
                    return unread.map_or(Ok(()), |error| Err(error.into()));
                }
                NextCommit::Fault(end, fault) => {
                    self.end = end;
                    self.faults.push(fault);
                    return Ok(());
                }
            };
            (found, unread) = ring.next(&whole.after);
            // The next commit is written after the flush of this one: then its data needs no proof.
            let is_last = matches!(found, NextCommit::End(_));
            // A crash may leave the last one so; but not where the volume was closed behind it.
            if !matches!(&found, NextCommit::End(end) if end.reason != Reason::Closed) {
                let places = whole.bad.iter().map(|bad| (whole.commit, bad.clone()));
                self.bad_places.extend(places);
            }
            if let Err(end) = self.take(ring, &whole, is_last) {
                self.end = end;
                return unread.map_or(Ok(()), |error| Err(error.into()));
            }
        }
    }

    /// What a recovery would have to do.
    pub fn work(&self) -> RecoveryWork {
        let geometry = &self.superblock.geometry;
        let is_twice = |bytes: &[u8]| node::stored(bytes, geometry) == Stored::Twice;
        RecoveryWork {
            journal_bytes: self.bytes,
            nodes: self.nodes.len() as u64,
            node_bytes: self.superblock.geometry.node_size as u64,
            copies: self.nodes.values().filter(|node| is_twice(node)).count() as u64,
            ..RecoveryWork::default()
        }
    }
}

/// Replays the journal behind `superblock`, which must be valid and the newest of `device`.
///
/// Fails only if the device does not read.
pub fn replay(device: &dyn Device, superblock: &Superblock) -> Result<Replay, CheckError> {
    match replay_readable(device, superblock) {
        (replay, None) => Ok(replay),
        (_, Some(error)) => Err(error),
    }
}

/// The replay, and why the device does not read all that it must look at. Then the journal ends there.
pub(crate) fn replay_readable(
    device: &dyn Device,
    superblock: &Superblock,
) -> (Replay, Option<CheckError>) {
    let ring = Ring::new(device, superblock);
    let mut replay = Replay::none(superblock);
    let mut unread = replay.read(&ring).err();
    replay.seal(superblock);
    let ends_early = [Reason::Nothing, Reason::Incomplete, Reason::DataMissing];
    if ends_early.contains(&replay.end.reason) {
        let (damage, error) = ring.damage(&replay.end);
        replay.damage = damage;
        unread = unread.or(error.map(CheckError::from));
    }
    let is_empty = replay.commits == 0 && replay.end.reason == Reason::Nothing;
    if is_empty && replay.damage.is_none() && unread.is_none() && ring.is_wiped() {
        let at = replay.end.at;
        let what =
            format!("nothing is left of the journal at block {at}, where frames were durable");
        replay.faults.push(Fault { issue: Issue::JournalWiped, what, block: at });
    }
    (replay, unread)
}

/// Bytes of so many blocks that were read.
fn bytes_of(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_BYTES)
}
