//! The steps of the log, of commits and of checkpoints, as `store` takes them.
//!
//! Each function is a part of the function of the same name, up to the next point
//! where another thread or a power cut can see the difference: a lock that is
//! released, or a flush. Nothing here decides when: see [`crate::model`].

use crate::disk::{
    Base, Batch, Commit, Content, Device, Extent, FILES, Held, JournalMark, Location, LogMark,
    RingPlace, Tree,
};
use crate::memory::{Checkpointer, Committer, Generation, Leader, LogPosition, Memory, Sealed};
use crate::model::Thread;
use crate::mutant::Mutant;
use crate::shared::Shared;

/// Blocks of data that a batch or a commit may name: more is flushed before.
const NAMED_MAX: usize = 1;

impl Memory {
    /// Whether `lead` would find something, and room for it.
    pub(crate) fn may_lead(&self) -> bool {
        let batches = self.pending.iter().filter(|one| one.after != one.last).count();
        self.leader == Leader::Idle
            && (batches > 0 || self.appended.is_some_and(|(last, _)| last > self.durable))
            && batches <= self.log_room() as usize
    }

    /// Batches for which the log has room. One place is kept for the marker of a recovery (R12), and what lies before the
    /// tail until a batch behind it is durable.
    fn log_room(&self) -> u8 {
        let used = self.place.head - self.log_tail;
        let of_tail = self.place.mark.batch - used;
        let kept = u8::from(self.before <= of_tail && !self.is(Mutant::BatchBeforeMarkReused));
        let marker = u8::from(!self.is(Mutant::MarkerWithoutRoom));
        self.rings.log.saturating_sub(used + marker + kept)
    }

    /// The same of commits.
    fn journal_room(&self) -> u8 {
        let used = self.journal_head - self.journal_tail;
        let kept = u8::from(used == 0 && !self.is(Mutant::FrameBeforeMarkReused));
        let marker = u8::from(!self.is(Mutant::MarkerWithoutRoom));
        self.rings.journal.saturating_sub(used + marker + kept)
    }

    /// `lead`: takes what is pending.
    pub(crate) fn lead(&mut self) {
        self.begin();
        let taken = self.pending.len() - 1;
        self.frozen = self.frozen.map(|_| 0);
        let taken = self.pending.drain(..taken).filter(|one| one.after != one.last).collect();
        self.leader = Leader::Taken(taken);
    }

    /// `Log::write`: formats and writes the batches; much data is flushed before.
    pub(crate) fn log_write(&mut self, device: &mut Device) {
        let Leader::Taken(generations) = std::mem::replace(&mut self.leader, Leader::Idle) else {
            return;
        };
        let own = generations.iter().map(Generation::unflushed).sum::<usize>();
        let before = self.appended.map_or(0, |(_, named)| named as usize);
        let waiting = self.appended.map(|(last, _)| last);
        let flush_data = own + before > NAMED_MAX;
        if flush_data {
            device.flush();
            self.before = self.place.mark.batch;
            self.appended = None;
        }
        let mut place = self.place;
        let mut named = Vec::new();
        let last = generations.last().map(|generation| generation.last).or(waiting);
        let last = last.expect("something was pending, or waited for a flush");
        for generation in generations {
            let mut takes = generation.takes;
            for take in takes.iter_mut().filter(|take| take.content == Content::Summed) {
                named.push(take.extent);
                if flush_data {
                    take.content = Content::Durable;
                    named.clear();
                }
            }
            self.confirmed = self.before;
            let batch = Shared::new(Batch {
                number: place.mark.batch + 1,
                prior: place.mark.sum,
                durable: self.before,
                after: generation.after,
                last: generation.last,
                puts: generation.puts,
                takes,
                frees: generation.frees,
            });
            let mark = LogMark {
                batch: batch.number,
                next: (place.mark.next + 1) % self.rings.log,
                sum: batch.sum(),
            };
            let held = Held::Batch(batch);
            self.write_places(device, |at| Location::Log(at, place.mark.next), held);
            place = LogPosition { mark, head: place.head + 1 };
        }
        self.leader = Leader::Written { place, last, named };
    }

    /// Writes what `held` is to its places in a ring, all before the one flush (R11).
    pub(crate) fn write_places(
        &self,
        device: &mut Device,
        at: impl Fn(RingPlace) -> Location,
        held: Held,
    ) {
        let late = match held {
            Held::Batch(_) => Mutant::BatchPlaceWrittenLate,
            _ => Mutant::CommitPlaceWrittenLate,
        };
        let most = if self.is(late) { 1 } else { 2 };
        for &place in self.rings.places().iter().take(most) {
            device.write(at(place), held.clone());
        }
    }

    /// A mutant writes second places behind the flush.
    fn write_late(&self, device: &mut Device, late: Mutant) {
        if !self.is(late) {
            return;
        }
        for place in Location::of_rings(self.rings) {
            let second = match place {
                Location::Log(RingPlace::First, at) => Location::Log(RingPlace::Second, at),
                Location::Journal(RingPlace::First, at) => Location::Journal(RingPlace::Second, at),
                _ => continue,
            };
            let held = device.read(place).clone();
            device.write(second, held);
        }
    }

    /// The rest of `append`: no caller waits, and there is no flush.
    pub(crate) fn append(&mut self) {
        if let Leader::Written { place, last, named } =
            std::mem::replace(&mut self.leader, Leader::Idle)
        {
            let before = self.appended.map_or(0, |(_, named)| named);
            self.appended = Some((last, before + named.len() as u8));
            self.place = place;
            if self.is(Mutant::AppendedCalledDurable) {
                self.before = place.mark.batch;
            }
            if self.is(Mutant::AppendedAnswered) {
                self.durable = self.durable.max(last);
            }
        }
    }

    /// Whether `confirm` would find something to say, and room.
    pub(crate) fn may_confirm(&self) -> bool {
        self.leader == Leader::Idle
            && self.appended.is_none()
            && self.confirmed != self.before
            && self.durable > self.committed
            && self.log_room() > 0
    }

    /// `confirm`: a batch that follows nothing says that the last one was durable. Its flush is one like others.
    pub(crate) fn confirm(&mut self, device: &mut Device) {
        let mark = self.place.mark;
        let marker = Batch::marker(mark, self.before);
        let prior = if self.is(Mutant::ConfirmedAsHistory) { mark.sum } else { marker.prior };
        let batch = Batch { prior, after: self.durable, last: self.durable + 1, ..marker };
        let held = Held::Batch(Shared::new(batch));
        self.write_places(device, |place| Location::Log(place, mark.next), held);
        self.confirmed = self.before;
    }

    /// The one flush behind the batches.
    pub(crate) fn log_flush(&mut self, device: &mut Device) {
        if let Leader::Written { place, last, named } =
            std::mem::replace(&mut self.leader, Leader::Idle)
        {
            if !self.is(Mutant::LogFlushDropped) {
                device.flush();
            }
            self.write_late(device, Mutant::BatchPlaceWrittenLate);
            self.leader = Leader::Flushed { place, last, named };
        }
    }

    /// The rest of `lead`: the waiting callers are answered.
    pub(crate) fn answer(&mut self) {
        if let Leader::Flushed { place, last, named } =
            std::mem::replace(&mut self.leader, Leader::Idle)
        {
            self.unflushed.retain(|extent| !named.contains(extent));
            self.place = place;
            (self.before, self.appended) = (place.mark.batch, None);
            self.durable = self.durable.max(last);
        }
    }

    /// Whether `freeze` would find something, and room for it in the journal.
    pub(crate) fn may_freeze(&self, seal: bool) -> bool {
        self.committer == Committer::Idle
            && self.lsn != self.committed
            && self.journal_room() > 0
            && (!seal || self.checkpointer == Checkpointer::Idle)
    }

    /// `freeze`: what changed is copied, and `seal` takes the node at the same moment.
    pub(crate) fn freeze(&mut self, seal: bool) {
        let flush_data = self.unflushed.len() > NAMED_MAX;
        let base = match self.copied_from.take() {
            Some((block, epoch)) => Some(Base::Copied(block, epoch)),
            None => (self.location.1 == self.epoch).then_some(Base::Changed),
        };
        let commit = Commit {
            number: self.journal.commit + 1,
            prior: self.journal.sum,
            durable: self.journal.commit,
            epoch: self.epoch,
            location: self.location,
            base,
            changes: difference(&self.frozen_tree, &self.tree),
            extents: if flush_data { Vec::new() } else { self.unflushed.clone() },
            lsn: self.lsn,
            log: self.place.mark,
        };
        let log_head = self.place.head;
        if self.is(Mutant::LogReleasedAtFreeze) {
            self.log_tail = log_head;
        }
        self.freeze_moment();
        self.frozen_tree = self.tree;
        let sealed = seal.then(|| self.seal());
        self.committer = Committer::Frozen { commit, flush_data, log_head, sealed };
    }

    /// `write_commit`, up to its flush: log-resident data, data that is flushed before, frames.
    pub(crate) fn write_commit(&mut self, device: &mut Device) {
        let Committer::Frozen { commit, flush_data, log_head, mut sealed } =
            std::mem::replace(&mut self.committer, Committer::Idle)
        else {
            return;
        };
        if !self.is(Mutant::LogResidentNotWritten) && !self.is(Mutant::LogResidentWrittenLate) {
            self.write_log_resident(device);
        }
        if flush_data {
            device.flush();
        }
        let lsn = commit.lsn;
        let commit = Shared::new(commit);
        self.journal = JournalMark { commit: commit.number, sum: commit.sum() };
        self.journal_head += 1;
        let slot = commit.number % self.rings.journal;
        let held = Held::Commit(commit);
        self.write_places(device, |place| Location::Journal(place, slot), held);
        if let Some(sealed) = &mut sealed {
            self.stand_behind(sealed);
        }
        self.committer = Committer::Written { lsn, log_head, sealed };
    }

    /// The one flush behind the frames.
    pub(crate) fn commit_flush(&mut self, device: &mut Device) {
        if let Committer::Written { lsn, log_head, sealed } =
            std::mem::replace(&mut self.committer, Committer::Idle)
        {
            if !self.is(Mutant::CommitFlushDropped) {
                device.flush();
            }
            self.write_late(device, Mutant::CommitPlaceWrittenLate);
            if self.is(Mutant::LogResidentWrittenLate) {
                self.write_log_resident(device);
            }
            self.committer = Committer::Flushed { lsn, log_head, sealed };
        }
    }

    /// `thaw`, and what was sealed goes to the checkpoint.
    pub(crate) fn commit_thaw(&mut self) {
        if let Committer::Flushed { lsn, log_head, sealed } =
            std::mem::replace(&mut self.committer, Committer::Idle)
        {
            self.thaw(lsn, log_head);
            self.begin_checkpoint(sealed);
        }
    }

    fn begin_checkpoint(&mut self, sealed: Option<Sealed>) {
        let Some(sealed) = sealed else { return };
        if self.is(Mutant::JournalReleasedAtSeal) {
            self.journal_tail = sealed.journal_head;
        }
        self.checkpointer = Checkpointer::Sealed(sealed);
    }

    /// `write_log_resident`: what only the log holds goes to its location (R5).
    fn write_log_resident(&self, device: &mut Device) {
        for extent in &self.log_resident_frozen {
            device.write(Location::Pool(extent.block), Held::Data(extent.version));
        }
    }

    /// What was sealed contains every commit so far, and nothing more.
    fn stand_behind(&self, sealed: &mut Sealed) {
        sealed.superblock.journal = self.journal;
        sealed.journal_head = self.journal_head;
    }

    /// `checkpoint_at_once`: seals without a commit; no commit begins until it is durable.
    pub(crate) fn checkpoint_at_once(&mut self, device: &mut Device) {
        let (lsn, log_head) = (self.lsn, self.place.head);
        self.freeze_moment();
        self.frozen_tree = self.tree;
        let mut sealed = self.seal();
        self.stand_behind(&mut sealed);
        if !self.is(Mutant::LogResidentNotWritten) {
            self.write_log_resident(device);
        }
        self.committer = Committer::AtOnce { lsn, log_head };
        self.begin_checkpoint(Some(sealed));
    }

    /// `try_write_sealed`: the node goes to its location.
    pub(crate) fn write_nodes(&mut self, device: &mut Device) {
        if let Checkpointer::Sealed(sealed) = self.take_checkpointer() {
            if let Some(tree) = sealed.node {
                let (block, born) = sealed.superblock.location;
                device.write(Location::Pool(block), Held::Node(born, tree));
            }
            self.checkpointer = Checkpointer::NodesWritten(sealed);
        }
    }

    /// The flush that covers all that the superblock reaches (R1).
    pub(crate) fn nodes_flush(&mut self, device: &mut Device) {
        if let Checkpointer::NodesWritten(sealed) = self.take_checkpointer() {
            if !self.is(Mutant::NodesFlushDropped) {
                device.flush();
            }
            self.checkpointer = Checkpointer::NodesFlushed(sealed);
        }
    }

    /// `publish`: the superblock goes into the slot of its epoch.
    pub(crate) fn publish(&mut self, device: &mut Device) {
        if let Checkpointer::NodesFlushed(sealed) = self.take_checkpointer() {
            let slot = match self.is(Mutant::SlotsDoNotAlternate) {
                true => self.superblock.epoch,
                false => sealed.superblock.epoch,
            };
            device.write(
                Location::Superblock(slot),
                Held::Superblock(Shared::new(sealed.superblock)),
            );
            self.checkpointer = Checkpointer::Published(sealed);
        }
    }

    /// The flush of `publish`.
    pub(crate) fn publish_flush(&mut self, device: &mut Device) {
        if let Checkpointer::Published(sealed) = self.take_checkpointer() {
            if !self.is(Mutant::PublishFlushDropped) {
                device.flush();
            }
            self.checkpointer = Checkpointer::PublishedFlushed(sealed);
        }
    }

    /// `release`: nothing before the superblock is needed any more.
    pub(crate) fn release(&mut self) {
        if let Checkpointer::PublishedFlushed(sealed) = self.take_checkpointer() {
            if let Committer::AtOnce { lsn, log_head } = self.committer {
                self.thaw(lsn, log_head);
                self.committer = Committer::Idle;
                self.recovering = false;
            }
            self.superblock = sealed.superblock;
            self.unseal();
            self.journal_tail = sealed.journal_head;
        }
    }

    /// A `Step` is dropped: its thread has died in the middle of it, and the volume has stopped.
    pub(crate) fn thread_dies(&mut self, whose: Thread) {
        let goes_on = match whose {
            Thread::Leader => {
                self.leader = Leader::Idle;
                Mutant::DeadLeaderStopsNothing
            }
            Thread::Committer => {
                self.committer = Committer::Idle;
                Mutant::DeadCommitterStopsNothing
            }
            Thread::Checkpointer => {
                self.checkpointer = Checkpointer::Idle;
                Mutant::DeadCheckpointerStopsNothing
            }
        };
        self.stopped = !self.is(goes_on);
    }

    /// Which threads are in the middle of a step.
    pub(crate) fn at_work(&self) -> impl Iterator<Item = Thread> {
        let checkpoints = self.checkpointer != Checkpointer::Idle;
        // In a checkpoint at once both are the same thread.
        let commits = !matches!(self.committer, Committer::Idle | Committer::AtOnce { .. });
        [
            (Thread::Leader, self.leader != Leader::Idle),
            (Thread::Committer, commits),
            (Thread::Checkpointer, checkpoints),
        ]
        .into_iter()
        .filter_map(|(thread, is_at_work)| is_at_work.then_some(thread))
    }

    fn take_checkpointer(&mut self) -> Checkpointer {
        std::mem::replace(&mut self.checkpointer, Checkpointer::Idle)
    }
}

/// What became of files between two moments.
fn difference(before: &Tree, after: &Tree) -> Vec<(u8, Option<Extent>)> {
    (0..FILES)
        .filter(|file| before[*file] != after[*file])
        .map(|file| (file as u8, after[file]))
        .collect()
}
