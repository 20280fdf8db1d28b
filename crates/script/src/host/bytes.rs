//! Bytes of files of the host.

use std::os::fd::BorrowedFd;

use rustix::fs::{self, FallocateFlags, SeekFrom};

use super::Answered;
use crate::bytes::{Data, Digest};
use crate::errno::Errno;
use crate::op::{Fallocate, Whence};
use crate::outcome::Answer;

pub(super) fn write(file: BorrowedFd<'_>, offset: u64, data: &Data) -> Answered {
    let bytes = data.bytes();
    let mut done = 0;
    // An empty write is made as well: it must do nothing.
    loop {
        let count = rustix::io::pwrite(file, &bytes[done..], offset + done as u64)?;
        done += count;
        if done == bytes.len() {
            return Ok(Answer::Done);
        }
        if count == 0 {
            return Err(Errno::EIO);
        }
    }
}

pub(super) fn truncate(file: BorrowedFd<'_>, size: u64) -> Answered {
    fs::ftruncate(file, size)?;
    Ok(Answer::Done)
}

pub(super) fn fallocate(file: BorrowedFd<'_>, how: Fallocate, offset: u64, len: u64) -> Answered {
    let flags = match how {
        Fallocate::Allocate => FallocateFlags::empty(),
        Fallocate::Keep => FallocateFlags::KEEP_SIZE,
        Fallocate::Punch => FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
        Fallocate::Zero => FallocateFlags::ZERO_RANGE,
        Fallocate::ZeroKeep => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        Fallocate::Collapse => FallocateFlags::COLLAPSE_RANGE,
        Fallocate::Insert => FallocateFlags::INSERT_RANGE,
    };
    fs::fallocate(file, flags, offset, len)?;
    Ok(Answer::Done)
}

pub(super) fn seek(file: BorrowedFd<'_>, whence: Whence, offset: u64) -> Answered {
    let from = match whence {
        Whence::Data => SeekFrom::Data(offset),
        Whence::Hole => SeekFrom::Hole(offset),
    };
    Ok(Answer::Position(fs::seek(file, from)?))
}

pub(super) fn read(file: BorrowedFd<'_>, offset: u64, len: u64) -> Answered {
    let mut bytes = vec![0; len as usize];
    let mut done = 0;
    loop {
        let count = rustix::io::pread(file, &mut bytes[done..], offset + done as u64)?;
        done += count;
        if count == 0 || done == bytes.len() {
            bytes.truncate(done);
            return Ok(Answer::Bytes(bytes));
        }
    }
}

pub(super) fn sum(file: BorrowedFd<'_>) -> Answered {
    let size = fs::fstat(file)?.st_size as u64;
    let digest = Digest::of_file(
        size,
        |offset, into| Ok(rustix::io::pread(file, into, offset)?),
        |offset| match fs::seek(file, SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno.into()),
        },
    )?;
    // A handle that cannot read says so even if there is nothing to read.
    rustix::io::pread(file, &mut [0u8; 1][..], 0)?;
    Ok(Answer::Sum(size, digest))
}
