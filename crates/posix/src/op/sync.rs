//! History made durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::clock::Stopwatch;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{InodeNo, Lsn, Receipt};

use crate::core::Core;
use crate::data::writeback::{DataCost, write_back_for_log};
use crate::delayed::UnderWay;
use crate::inode::Inode;
use crate::*;

impl FileSystem {
    /// fsync, or fdatasync with `data_only`. Reports a write error of this file that this handle has not seen yet (P7),
    /// also when nothing is dirty. Returns what it cost.
    pub fn fsync(&self, file: &OpenFile, data_only: bool) -> Result<Receipt> {
        // What makes the data durable makes everything before it durable, attributes included.
        let _ = data_only;
        self.core.counters.fsyncs.increment();
        make_handle_durable(&self.core, file)
    }

    /// As [`FileSystem::fsync`], but runs the completion callback `then` when it is done, on this thread or on one that
    /// makes history durable for many callers: it must not wait for the filesystem. The handle is dropped before; if it
    /// is the last one of a file without a name, that frees its blocks.
    pub fn fsync_then(
        &self,
        file: Arc<OpenFile>,
        data_only: bool,
        then: impl FnOnce(Result<Receipt>) + Send + 'static,
    ) {
        let _ = data_only;
        self.core.counters.fsyncs.increment();
        make_durable_then(&self.core, Arc::clone(&file.inode), move |done| {
            let done = report(&file, done);
            drop(file);
            then(done);
        });
    }

    /// As [`FileSystem::fsync_inode`], with a completion callback as in [`FileSystem::fsync_then`].
    pub fn fsync_inode_then(
        &self,
        inode: InodeNo,
        then: impl FnOnce(Result<Receipt>) + Send + 'static,
    ) {
        self.core.counters.fsyncs.increment();
        match self.core.inode(inode) {
            Ok(inode) => make_durable_then(&self.core, inode, then),
            Err(error) => then(Err(error)),
        }
    }

    /// fsync of a directory (P2), or of an inode without a handle.
    pub fn fsync_inode(&self, inode: InodeNo) -> Result<Receipt> {
        self.core.counters.fsyncs.increment();
        let inode = self.core.inode(inode)?;
        make_durable(&self.core, &inode)
    }

    /// The host has the data of `inode` and every operation that changed it when this returns: a kill of the process takes
    /// none of it, a power cut may. Costs one write that callers share, and no flush.
    pub fn hand_over_inode(&self, inode: InodeNo) -> Result<()> {
        let inode = self.core.inode(inode)?;
        let (upto, _, _under_way) = write_data(&self.core, &inode)?;
        Ok(self.core.store.hand_over(upto, inode.no)?)
    }

    /// Everything that was done in the volume before this call, in any of its branches, is durable when it returns. Fails also if data of
    /// any file was given up since the last sync of this branch that reported it, whichever thread was to write it (P7).
    pub fn sync(&self) -> Result<Receipt> {
        self.core.counters.fsyncs.increment();
        let volume = &self.volume.volume;
        if volume.options.read_only {
            return Ok(Receipt::default());
        }
        let time = Stopwatch::start();
        let losses = &self.core.data.losses;
        let reported = losses.begin();
        let written = volume.write_back();
        let data_ns = time.nanos();
        let _under_way = self.core.data.in_flight.fsync(InodeNo::ROOT);
        let receipt = self.core.store.sync(self.core.store.latest(), InodeNo::ROOT)?;
        losses.end(reported).and(written)?;
        if receipt.is_clean() {
            self.core.counters.clean_fsyncs.increment();
        }
        Ok(Receipt { data_ns, ..receipt })
    }

    /// What the last fsync of this file or directory cost, if there was one since it came into memory.
    pub fn last_receipt(&self, inode: InodeNo) -> Result<Option<Receipt>> {
        Ok(self.core.inode(inode)?.receipt.lock().as_deref().copied())
    }

    /// As [`FileSystem::sync`], by a commit: what the background does after six times `commit_secs` at the latest. It
    /// is never required: it leaves the log empty, and makes freed space usable.
    pub fn commit(&self) -> Result<()> {
        let written = self.volume.volume.write_back();
        let _inside = self.core.gate.enter();
        self.core.commit().and(written)
    }

    /// What the background does when the volume rests: delayed data goes to its location, what is pending is appended
    /// to the log without a flush, and what is durable already is confirmed (see [`holdfast_store::Inner::confirm`]).
    /// Makes nothing durable. What fails keeps nothing else from being done; the first error is returned.
    pub fn rest(&self) -> Result<()> {
        let appended = crate::committer::append(&self.volume.volume);
        let confirmed = self.core.store.confirm();
        appended.and(confirmed.map_err(FsError::from)).map(drop)
    }

    /// Makes a checkpoint of everything that has reached the trees; delayed data stays in memory. It is never required:
    /// it only leaves less to recover.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.core.store.checkpoint()?)
    }

    /// Whether all operations so far are durable; writes that wait in memory are none yet.
    pub fn is_durable(&self) -> bool {
        self.core.store.durable() >= self.core.store.latest()
    }
}

/// What fsync of a handle and a synchronous write through it do.
pub(crate) fn make_handle_durable(core: &Core, file: &OpenFile) -> Result<Receipt> {
    report(file, make_durable(core, &file.inode))
}

/// A writeback that another thread began, and that failed, leaves nothing dirty: only the recorded error says that the
/// data is lost (P1, P7). It was recorded for every handle; this one reports it here, once.
fn report(file: &OpenFile, done: Result<Receipt>) -> Result<Receipt> {
    match file.inode.errors.check(&file.errors).filter(|_| !mutants::is(Mutant::ErrorSwallowed)) {
        Some(error) => Err(error),
        None => done,
    }
}

/// Fails while lost bytes of the file may still be relied on: see [`crate::inode::lost`].
pub(crate) fn expect_nothing_lost(core: &Core, inode: &Inode) -> Result<()> {
    let is_told = !mutants::is(Mutant::ErrorSwallowed) && !mutants::is(Mutant::ErrorToldOnce);
    let Some(lost) = inode.lost.first().filter(|_| is_told) else {
        return Ok(());
    };
    Err(FsError::Io(format!(
        "bytes {} to {} of {} could not be written and are lost; write them again, or close the file",
        lost.start,
        lost.end,
        core.called(inode.no)
    )))
}

/// Returns when the data of `inode` and every operation that changed it are durable (P1). Costs nothing if they are.
pub(crate) fn make_durable(core: &Core, inode: &Arc<Inode>) -> Result<Receipt> {
    let Some(written) = prepare(core, inode)? else {
        return Ok(Receipt::default());
    };
    let receipt = core.store.sync(written.upto, inode.no)?;
    Ok(written.note(inode, receipt))
}

/// As [`make_durable`], with a completion callback as in [`FileSystem::fsync_then`].
fn make_durable_then(
    core: &Core,
    inode: Arc<Inode>,
    then: impl FnOnce(Result<Receipt>) + Send + 'static,
) {
    let written = match prepare(core, &inode) {
        Ok(Some(written)) => written,
        Ok(None) => return then(Ok(Receipt::default())),
        Err(error) => return then(Err(error)),
    };
    core.store.sync_then(written.upto, inode.no, move |done| {
        let done = done.map(|receipt| written.note(&inode, receipt)).map_err(FsError::from);
        drop((inode, written));
        then(done);
    });
}

/// The data of an inode is on its way, and everything else that an fsync of it means is part of history.
struct WrittenBack {
    /// Up to where that must be durable.
    upto: Lsn,
    data: DataCost,
    data_ns: u64,
    _under_way: UnderWay,
}

impl WrittenBack {
    /// It is durable, which has cost so much.
    fn note(&self, inode: &Inode, receipt: Receipt) -> Receipt {
        let WrittenBack { data, data_ns, .. } = *self;
        let receipt =
            Receipt { data_bytes: data.bytes, data_writes: data.writes, data_ns, ..receipt };
        **inode.receipt.lock().get_or_insert_default() = receipt;
        receipt
    }
}

/// Writes the data of `inode`. Returns up to where history must be durable for it as well.
fn write_data(core: &Core, inode: &Arc<Inode>) -> Result<(Lsn, DataCost, UnderWay)> {
    let (data, under_way) = match mutants::is(Mutant::DataForgotten) {
        true => (DataCost::default(), core.data.in_flight.fsync(inode.no)),
        false => {
            // In front of a snapshot that waits: what is inside may take long.
            let _inside = core.gate.enter_first();
            write_back_for_log(core, inode)?
        }
    };
    inode.state.read().expect_fresh()?;
    expect_nothing_lost(core, inode)?;
    // The names above it count as well: all its names are reachable afterwards (P1).
    let last_move = Lsn(core.last_move.load(Ordering::Acquire));
    let above = if mutants::is(Mutant::AncestorsForgotten) { Lsn(0) } else { last_move };
    Ok((inode.state.read().changed.max(above), data, under_way))
}

/// Writes the data of `inode`. `None` if nothing of it has to become durable.
fn prepare(core: &Core, inode: &Arc<Inode>) -> Result<Option<WrittenBack>> {
    let time = Stopwatch::start();
    let (upto, data, under_way) = write_data(core, inode)?;
    if core.store.durable() >= upto {
        core.counters.clean_fsyncs.increment();
        **inode.receipt.lock().get_or_insert_default() = Receipt::default();
        return Ok(None);
    }
    let data_ns = time.nanos();
    core.counters.fsync_data_ns.add(data_ns);
    Ok(Some(WrittenBack { upto, data, data_ns, _under_way: under_way }))
}
