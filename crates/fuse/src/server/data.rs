//! Bytes: read, write, allocate, seek, copy.

use holdfast_base::units::{align_down, align_up};
use holdfast_posix::{FileSystem, FsError, WriteHow};

use super::Server;
use super::rolled_back::Verdict;
use crate::flags;
use crate::fsyncs::SyncKind;
use crate::interface::{Answer, CopyRange, Errno, FileId, Request, Write};
use crate::notices::Notice;
use crate::statistics::Operation;

/// How much one copy request does at most. The kernel asks again for the rest.
const COPY_MOST: u64 = 16 << 20;
/// Bytes that a copy holds in memory.
const COPY_PIECE: usize = 1 << 20;

/// Bytes as an answer.
fn length(written: usize) -> Answer<u32> {
    u32::try_from(written).map_err(|_| Errno(libc::EIO))
}

impl Server {
    /// Fills `into` from `offset`; fewer bytes only at the end of the file.
    pub fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> Answer<usize> {
        let _timed = self.timed(Operation::Read);
        let fs = self.fs()?;
        let handle = self.file(&fs, file)?;
        let read = fs.read(&handle.file, offset, into)?;
        self.requests().operations().read_bytes.add(read as u64);
        Ok(read)
    }

    /// Writes. With O_DIRECT the kernel cannot be trusted to send an fsync after a write to a file opened
    /// with O_SYNC or O_DSYNC, so the write is durable when it is answered.
    pub fn write(&self, request: &Request, write: &Write<'_>) -> Answer<u32> {
        let _timed = self.timed(Operation::Write);
        let fs = self.fs()?;
        let handle = self.file(&fs, write.file)?;
        let file = &handle.file;
        let inode = file.inode();
        let is_append = write.file.flags & libc::O_APPEND != 0;
        // Before the first judgement, so that a rollback behind it is noticed.
        let mut turn = fs.turns();
        let mut verdict = self.rolled_back.judge(inode, write.is_cached, is_append);
        if verdict == Verdict::Void {
            return length(write.bytes.len());
        }
        // For files that the kernel opened itself it has cleared them before the write.
        let mut kill_capabilities =
            handle.direct && !self.kernel_opens() || self.may_hide_capabilities(inode);
        let mut tell = write.kill_suid_sgid && self.has_privileges(&fs, inode);
        let caller = self.caller(&fs, request)?;
        let written = loop {
            let is_elsewhere =
                verdict == Verdict::Append && self.ends_elsewhere(&fs, write, turn)?;
            let how = WriteHow {
                kill_suid_sgid: write.kill_suid_sgid,
                kill_capabilities,
                append: is_elsewhere,
                turn: Some(turn),
                ..WriteHow::default()
            };
            match fs.write(&caller, file, write.offset, write.bytes, how) {
                Err(FsError::Turned) => {}
                // Flags forbid it. Linux does not know of them, has let a program store that, and shows it. The next caller
                // that syncs would get an error, and the bytes would stay shown.
                Err(FsError::NotPermitted) if write.is_cached => {
                    self.forget_pages(write);
                    return length(write.bytes.len());
                }
                Ok(written) if is_elsewhere => {
                    self.forget_misplaced(write);
                    break written;
                }
                done => break done?,
            }
            turn = fs.turns();
            verdict = self.rolled_back.judge(inode, write.is_cached, is_append);
            if verdict == Verdict::Void {
                return length(write.bytes.len());
            }
            // What the kernel has cleared, or knows, is that of the head that is gone.
            kill_capabilities = true;
            tell = write.kill_suid_sgid && self.has_privileges(&fs, inode);
        };
        if kill_capabilities {
            self.has_no_capabilities(inode, turn);
        }
        self.requests().operations().written_bytes.add(written as u64);
        if tell {
            self.tell_attr_changed(inode);
        }
        if handle.direct && flags::write_is_durable(write.file.flags) {
            self.durable(&fs, file.inode(), SyncKind::Write, || fs.fsync(file, true))?;
        }
        length(written)
    }

    /// Whether the file of an append does not end where the kernel believes.
    fn ends_elsewhere(&self, fs: &FileSystem, write: &Write<'_>, turn: u64) -> Answer<bool> {
        // The kernel lets one write come after the other.
        let is_elsewhere = fs.getattr(write.file.inode)?.size != write.offset;
        if !is_elsewhere {
            self.rolled_back.is_right(write.file.inode, turn);
        }
        Ok(is_elsewhere)
    }

    /// An append went elsewhere. The kernel keeps its whole pages where it believed the end to be: they go before the program
    /// can go on. One that is not whole it may hold until the answer: that goes behind it.
    fn forget_misplaced(&self, write: &Write<'_>) {
        let inode = write.file.inode.0;
        let end = write.offset.saturating_add(write.bytes.len() as u64);
        let (first, last) = (align_up(write.offset).unwrap_or(end), align_down(end));
        if first < last {
            self.notices.note(Notice::Bytes(inode, first, last - first));
            self.notices.drain();
        }
        self.forget_pages(write);
    }

    /// The kernel drops all pages that have bytes of a write, once it has the answer.
    fn forget_pages(&self, write: &Write<'_>) {
        let end = write.offset.saturating_add(write.bytes.len() as u64);
        let (first, last) = (align_down(write.offset), align_up(end).unwrap_or(end));
        self.notices.note(Notice::Bytes(write.file.inode.0, first, last - first));
    }

    /// Allocates, punches or zeroes a range; `mode` as for fallocate(2).
    pub fn fallocate(
        &self,
        request: &Request,
        file: FileId,
        mode: i32,
        offset: u64,
        len: u64,
    ) -> Answer<()> {
        let _timed = self.timed(Operation::Other);
        let fs = self.fs()?;
        let file = &self.file(&fs, file)?.file;
        fs.fallocate(file, flags::fallocate(mode)?, offset, len)?;
        self.drop_unseen_capabilities(&fs, file.inode())?;
        self.drop_privileges_for(request, &fs, file.inode())
    }

    /// The next data or hole; `whence` as for lseek(2).
    pub fn seek(&self, file: FileId, offset: i64, whence: i32) -> Answer<i64> {
        let _timed = self.timed(Operation::Other);
        let fs = self.fs()?;
        let file = &self.file(&fs, file)?.file;
        let offset = u64::try_from(offset).map_err(|_| Errno(libc::ENXIO))?;
        let found = fs.seek(file, offset, flags::seek(whence)?)?;
        i64::try_from(found).map_err(|_| Errno(libc::EOVERFLOW))
    }

    /// Copies bytes from file to file and says how many. Fewer than asked for is normal.
    pub fn copy_range(&self, request: &Request, copy: &CopyRange) -> Answer<u32> {
        let _timed = self.timed(Operation::Other);
        let fs = self.fs()?;
        let from = &self.file(&fs, copy.from)?.file;
        let to = &self.file(&fs, copy.to)?.file;
        let caller = self.caller(&fs, request)?;
        let kill_capabilities = self.may_hide_capabilities(to.inode());
        let read_before = fs.getattr(copy.from.inode)?.atime;
        let most = copy.len.min(COPY_MOST);
        let mut piece = vec![0; COPY_PIECE.min(most as usize)];
        let mut done = 0;
        while done < most {
            let want = piece.len().min((most - done) as usize);
            // Bytes of a head that is gone are not written into the next one.
            let turn = fs.turns();
            let how = WriteHow { turn: Some(turn), kill_capabilities, ..WriteHow::default() };
            let step =
                fs.read(from, copy.offset_in + done, &mut piece[..want]).and_then(
                    |got| match got {
                        0 => Ok(0),
                        _ => fs.write(&caller, to, copy.offset_out + done, &piece[..got], how),
                    },
                );
            match step {
                Err(FsError::Turned) => {}
                Ok(0) => break,
                Ok(moved) => {
                    done += moved as u64;
                    if kill_capabilities {
                        self.has_no_capabilities(to.inode(), turn);
                    }
                }
                // What has been copied counts; the error comes back with the next request.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        if fs.getattr(copy.from.inode)?.atime != read_before {
            // The kernel believes that a copy changes nothing about its source.
            self.tell_attr_changed(copy.from.inode);
        }
        if done > 0 {
            self.requests().operations().read_bytes.add(done);
            self.requests().operations().written_bytes.add(done);
            self.drop_privileges_for(request, &fs, to.inode())?;
        }
        u32::try_from(done).map_err(|_| Errno(libc::EIO))
    }
}
