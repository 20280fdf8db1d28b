//! What an open volume knows in memory, and how commits and checkpoints take it.
//!
//! The names are those of `store`: a [`Generation`] is what is pending for the log,
//! `freed` is what waits for a commit or a checkpoint, `log_resident` is data that
//! only the log holds.

use crate::disk::{
    Block, Commit, Content, Device, Extent, JournalMark, LogMark, Lsn, POOL, Rings, Superblock,
    Take, Tree, Version, ZEROS,
};
use crate::mutant::Mutant;

/// The changes between two moments, each file once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Generation {
    pub(crate) after: Lsn,
    pub(crate) last: Lsn,
    pub(crate) puts: Vec<(u8, Option<Extent>)>,
    pub(crate) takes: Vec<Take>,
    pub(crate) frees: Vec<Block>,
}

impl Generation {
    pub(crate) fn new(after: Lsn) -> Generation {
        Generation { after, last: after, puts: Vec::new(), takes: Vec::new(), frees: Vec::new() }
    }

    /// Blocks of data that wait for a flush.
    pub(crate) fn unflushed(&self) -> usize {
        self.takes.iter().filter(|take| take.content == Content::Summed).count()
    }
}

/// Where the log stands: the mark, and batches ever written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct LogPosition {
    pub(crate) mark: LogMark,
    pub(crate) head: u8,
}

/// How far the leader has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Leader {
    Idle,
    /// What was pending is taken.
    Taken(Vec<Generation>),
    /// The batches lie behind the last durable one; the flush is to come.
    Written {
        place: LogPosition,
        last: Lsn,
        named: Vec<Extent>,
    },
    /// The flush has returned.
    Flushed {
        place: LogPosition,
        last: Lsn,
        named: Vec<Extent>,
    },
}

/// What a checkpoint makes permanent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Sealed {
    /// The node, if it changed.
    pub(crate) node: Option<Tree>,
    pub(crate) superblock: Superblock,
    pub(crate) journal_head: u8,
}

/// How far the commit has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Committer {
    Idle,
    Frozen {
        commit: Commit,
        flush_data: bool,
        log_head: u8,
        sealed: Option<Sealed>,
    },
    Written {
        lsn: Lsn,
        log_head: u8,
        sealed: Option<Sealed>,
    },
    Flushed {
        lsn: Lsn,
        log_head: u8,
        sealed: Option<Sealed>,
    },
    /// A checkpoint without a commit; others wait for it.
    AtOnce {
        lsn: Lsn,
        log_head: u8,
    },
}

/// How far the checkpoint has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Checkpointer {
    Idle,
    Sealed(Sealed),
    NodesWritten(Sealed),
    NodesFlushed(Sealed),
    Published(Sealed),
    PublishedFlushed(Sealed),
}

/// Data for the block that a file has reserved, whose extents stay as they are meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum InPlace {
    /// On its way.
    Sent(u8, Extent),
    /// The flush has returned.
    Written(u8, Extent),
}

/// An open volume.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Memory {
    pub(crate) tree: Tree,
    pub(crate) lsn: Lsn,
    /// The tree's node, and the epoch that it was born in.
    pub(crate) location: (Block, u8),
    /// Where it was copied from, until a commit has said so.
    pub(crate) copied_from: Option<(Block, u8)>,
    pub(crate) epoch: u8,
    /// The tree that the last commit or seal took.
    pub(crate) frozen_tree: Tree,
    free: [bool; POOL],
    freed_data: Vec<Block>,
    freed_frozen: Vec<Block>,
    freed_nodes: Vec<Block>,
    freed_sealed: Vec<Block>,
    pub(crate) unflushed: Vec<Extent>,
    pub(crate) log_resident_fresh: Vec<Extent>,
    pub(crate) log_resident_frozen: Vec<Extent>,
    /// Written data of a file that no operation has published yet.
    pub(crate) written: Option<(u8, Extent)>,
    /// Data on its way to a reserved block.
    pub(crate) in_place: Option<InPlace>,
    /// The last operation that made a block unwritten.
    pub(crate) unwrote: Lsn,
    pub(crate) pending: Vec<Generation>,
    /// Of those, so many belong to the commit being made.
    pub(crate) frozen: Option<usize>,
    pub(crate) place: LogPosition,
    /// The last batch that is durable: what headers name.
    pub(crate) before: u8,
    /// The last batch that something on the device calls durable.
    pub(crate) confirmed: u8,
    /// The last operation in batches that wait for any flush, and how many blocks of data they name.
    pub(crate) appended: Option<(Lsn, u8)>,
    pub(crate) log_tail: u8,
    pub(crate) journal: JournalMark,
    pub(crate) journal_head: u8,
    pub(crate) journal_tail: u8,
    pub(crate) superblock: Superblock,
    pub(crate) durable: Lsn,
    pub(crate) committed: Lsn,
    pub(crate) leader: Leader,
    pub(crate) committer: Committer,
    pub(crate) checkpointer: Checkpointer,
    /// A recovery still runs: nothing else may change anything.
    pub(crate) recovering: bool,
    /// A thread has died in the middle of a step: nothing reaches the device any more.
    pub(crate) stopped: bool,
    pub(crate) rings: Rings,
    pub(crate) broken: Option<Mutant>,
}

impl Memory {
    /// A volume as `superblock` and its tree say.
    pub(crate) fn open(
        superblock: Superblock,
        tree: Tree,
        rings: Rings,
        broken: Option<Mutant>,
    ) -> Memory {
        let mut free = [true; POOL];
        free[superblock.location.0 as usize] = false;
        for extent in tree.iter().flatten() {
            free[extent.block as usize] = false;
        }
        Memory {
            tree,
            lsn: superblock.lsn,
            location: superblock.location,
            copied_from: None,
            epoch: superblock.epoch + 1,
            frozen_tree: tree,
            free,
            freed_data: Vec::new(),
            freed_frozen: Vec::new(),
            freed_nodes: Vec::new(),
            freed_sealed: Vec::new(),
            unflushed: Vec::new(),
            log_resident_fresh: Vec::new(),
            log_resident_frozen: Vec::new(),
            written: None,
            in_place: None,
            unwrote: 0,
            pending: vec![Generation::new(superblock.lsn)],
            frozen: None,
            place: LogPosition { mark: superblock.log, head: 0 },
            before: superblock.log.batch,
            confirmed: superblock.log.batch,
            appended: None,
            log_tail: 0,
            journal: superblock.journal,
            journal_head: 0,
            journal_tail: 0,
            superblock,
            durable: superblock.lsn,
            committed: superblock.lsn,
            leader: Leader::Idle,
            committer: Committer::Idle,
            checkpointer: Checkpointer::Idle,
            recovering: false,
            stopped: false,
            rings,
            broken,
        }
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.broken == Some(mutant)
    }

    pub(crate) fn open_generation(&mut self) -> &mut Generation {
        self.pending.last_mut().expect("there is always one to add to")
    }

    /// The allocator gives the lowest free block: nothing is reused sooner.
    pub(crate) fn allocate(&mut self) -> Option<Block> {
        let block = self.free.iter().position(|free| *free)?;
        self.free[block] = false;
        Some(block as Block)
    }

    /// Takes this very block, which a log names; false if it is not free.
    pub(crate) fn claim(&mut self, block: Block) -> bool {
        std::mem::take(&mut self.free[block as usize])
    }

    /// Whether an operation finds locations: one for data, and one for a copy of the node.
    pub(crate) fn has_room(&self) -> bool {
        self.free.iter().filter(|free| **free).count() >= 2
    }

    /// The first change of an epoch gives the node a new location.
    pub(crate) fn change_node(&mut self) {
        if self.location.1 == self.epoch {
            return;
        }
        let block = self.allocate().expect("there was room");
        self.free_node(self.location.0);
        self.copied_from = Some(self.location);
        self.location = (block, self.epoch);
    }

    pub(crate) fn free_data(&mut self, block: Block) {
        match self.is(Mutant::DataReusedAtOnce) {
            true => self.free[block as usize] = true,
            false => self.freed_data.push(block),
        }
        if !self.is(Mutant::FreedDataNamed) {
            self.unflushed.retain(|extent| extent.block != block);
        }
        self.log_resident_fresh.retain(|extent| extent.block != block);
    }

    fn free_node(&mut self, block: Block) {
        match self.is(Mutant::NodeReusedAtThaw) {
            true => self.freed_data.push(block),
            false => self.freed_nodes.push(block),
        }
    }

    /// `freeze_moment`: what is pending is set apart from what comes after.
    pub(crate) fn freeze_moment(&mut self) {
        self.unflushed.clear();
        self.freed_frozen.append(&mut self.freed_data);
        if self.is(Mutant::DataReusedAtFreeze) {
            self.give_away_frozen();
        }
        self.log_resident_frozen = std::mem::take(&mut self.log_resident_fresh);
        self.frozen = Some(self.pending.len());
        if !self.is(Mutant::BatchOverFreeze) {
            self.begin();
        }
    }

    /// A new generation begins.
    pub(crate) fn begin(&mut self) {
        let next = Generation::new(self.open_generation().last);
        self.pending.push(next);
    }

    fn give_away_frozen(&mut self) {
        for block in std::mem::take(&mut self.freed_frozen) {
            self.free[block as usize] = true;
        }
    }

    /// `thaw`: the moment that was frozen last is durable, with a log that stood at `log_head`.
    pub(crate) fn thaw(&mut self, lsn: Lsn, log_head: u8) {
        self.log_resident_frozen.clear();
        self.committed = lsn;
        self.durable = self.durable.max(lsn);
        if let Some(frozen) = self.frozen.take() {
            let frozen = match self.is(Mutant::BatchOverFreeze) {
                // There is no boundary: only what the commit holds whole may go.
                true => self.pending.iter().take_while(|one| one.last <= lsn).count(),
                false => frozen,
            };
            self.pending.drain(..frozen);
            if self.pending.is_empty() {
                self.pending.push(Generation::new(lsn));
            }
            if self.is(Mutant::PendingForgotten) {
                self.pending = vec![Generation::new(self.lsn)];
            }
        }
        self.log_tail = self.log_tail.max(log_head);
        self.give_away_frozen();
    }

    /// `seal`: the node and what the superblock will say are taken; the next epoch begins.
    pub(crate) fn seal(&mut self) -> Sealed {
        let superblock = self.superblock_of();
        self.freed_sealed.append(&mut self.freed_nodes);
        if self.is(Mutant::NodeReusedAtSeal) {
            self.unseal();
        }
        let node = (self.location.1 == self.epoch).then_some(self.tree);
        self.copied_from = None;
        self.epoch += 1;
        Sealed { node, superblock, journal_head: 0 }
    }

    /// `unseal`: old locations may be reused.
    pub(crate) fn unseal(&mut self) {
        for block in std::mem::take(&mut self.freed_sealed) {
            self.free[block as usize] = true;
        }
    }

    /// `superblock_of`: what a superblock would say of this moment, but for the journal.
    pub(crate) fn superblock_of(&self) -> Superblock {
        Superblock {
            epoch: self.epoch,
            location: self.location,
            lsn: self.lsn,
            journal: self.journal,
            log: self.place.mark,
        }
    }

    /// What reading a file gives: log-resident data is found in memory.
    pub(crate) fn read(&self, device: &Device, extent: Extent) -> Option<Version> {
        let resident = self.log_resident_frozen.iter().chain(&self.log_resident_fresh);
        let here = resident
            .filter(|resident| resident.block == extent.block)
            .map(|resident| resident.version)
            .next();
        here.or_else(|| device.data(extent.block))
    }

    /// Whether every file reads as its checksums say (P6). What is reserved reads as zeros.
    pub(crate) fn reads_right(&self, device: &Device) -> bool {
        self.tree.iter().flatten().all(|extent| {
            extent.version == ZEROS || self.read(device, *extent) == Some(extent.version)
        })
    }
}
