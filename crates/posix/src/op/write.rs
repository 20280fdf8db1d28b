//! Bytes into a file.

use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_base::units::{BLOCK_BYTES, align_down};
use holdfast_format::limits::FILE_SIZE_MAX;
use holdfast_store::{Need, StoreError, Transaction};

use crate::allow::Deed;
use crate::core::Core;
use crate::data::accept::accept;
use crate::file_data::WriterGuard;
use crate::inode::Inode;
use crate::*;

/// Bytes that are taken in one step.
const STEP_BYTES_MAX: usize = 1 << 20;

/// What a single write adds to how its file was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHow {
    /// Durable before it returns, whatever the handle says.
    pub sync: bool,
    /// At the end of the file, whatever the handle says.
    pub append: bool,
    /// Clear set-id bits (FUSE KILL_SUIDGID).
    pub kill_suid_sgid: bool,
    /// Take the file's capabilities away (`security.capability`).
    pub kill_capabilities: bool,
    /// [`FsError::Turned`] if the branch is rolled back after [`FileSystem::turns`] was this, and before the write.
    pub turn: Option<u64>,
}

impl FileSystem {
    /// Writes at `offset` (at the end with APPEND). Buffered unless the handle is SYNC or DSYNC. Space is decided now (P8).
    ///
    /// Writes less than asked for only where the volume is full or the file as large as it may be.
    pub fn write(
        &self,
        caller: &Caller,
        file: &OpenFile,
        offset: u64,
        bytes: &[u8],
        how: WriteHow,
    ) -> Result<usize> {
        if !file.flags.contains(OpenFlags::WRITE) {
            return Err(FsError::BadHandle);
        }
        if self.core.options.read_only {
            return Err(StoreError::ReadOnly.into());
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let inode = &file.inode;
        let append = how.append || file.flags.contains(OpenFlags::APPEND);
        let done = {
            let _inside = self.core.gate.enter();
            if how.turn.is_some_and(|turn| turn != self.turns()) {
                return Err(FsError::Turned);
            }
            let writer = inode.data.lock_writer();
            // A file may have become immutable since it was opened.
            let item = inode.state.read().attr;
            let appends = file.flags.contains(OpenFlags::APPENDS) && offset >= item.size;
            allow::expect_changeable(&item, Deed::adding(append || appends))?;
            let start = if append { item.size } else { offset };
            if start >= FILE_SIZE_MAX {
                return Err(FsError::FileTooLarge);
            }
            let room = (FILE_SIZE_MAX - start).min(bytes.len() as u64) as usize;
            if how.kill_capabilities {
                crate::op::xattr::drop_capabilities(&self.core, inode)?;
            }
            if how.kill_suid_sgid || (!caller.trusted && !caller.is_root()) {
                clear_set_ids(&self.core, inode)?;
            }
            write_steps(&self.core, inode, &writer, start, &bytes[..room])?
        };
        if how.sync || file.flags.intersects(OpenFlags::SYNC | OpenFlags::DSYNC) {
            self.fsync(file, true)?;
        }
        Ok(done)
    }
}

/// Writes as much as there is space for; an error only if that is nothing.
fn write_steps(
    core: &Core,
    inode: &Arc<Inode>,
    writer: &WriterGuard<'_>,
    start: u64,
    bytes: &[u8],
) -> Result<usize> {
    let now = Timestamp::now();
    let mut done = 0;
    let mut step_max = STEP_BYTES_MAX;
    let mut found_no_room = false;
    while done < bytes.len() {
        let at = start + done as u64;
        // Steps end at block borders, so that no block is taken twice.
        let end = align_down(at + step_max as u64).max(align_down(at) + BLOCK_BYTES);
        let len = ((end - at) as usize).min(bytes.len() - done);
        match accept(core, inode, writer, at, &bytes[done..done + len], now) {
            Ok(()) => done += len,
            Err(FsError::Store(StoreError::NoSpace | StoreError::Limit))
                if len > BLOCK_BYTES as usize =>
            {
                step_max = (len / 2).max(BLOCK_BYTES as usize);
                found_no_room = true;
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    if found_no_room {
        core.counters.writes_in_steps.increment();
    }
    Ok(done)
}

/// Clears set-id bits, as a write by an unprivileged caller does.
fn clear_set_ids(core: &Core, inode: &Arc<Inode>) -> Result<()> {
    let mode = inode.state.read().attr.mode;
    if perm::without_set_id(mode) == mode {
        return Ok(());
    }
    let mut reservation = core.store.reserve(Need::Writeback { changes: 1 })?;
    let mut state = inode.state.write();
    state.expect_alive()?;
    let mut item = state.next_disk();
    item.mode = perm::without_set_id(item.mode);
    item.ctime = Timestamp::now();
    let mut transaction = Transaction::new();
    state.put(inode.no, &item, &mut transaction);
    let lsn = core.store.apply(transaction, &mut reservation)?;
    state.took(item, lsn);
    Ok(())
}
