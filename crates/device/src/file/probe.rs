//! Finds out what an opened file can do: length, sector size, direct I/O.
//!
//! Block devices name their logical sector. For regular files the sector is
//! what direct I/O on them needs: 512 bytes if the host says so (or takes a
//! read of 512 bytes, where it does not say), else 4,096; a file whose host
//! wants more than that, or refuses direct I/O, is used through the page cache.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};

use rustix::fs::{
    AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, fstat, ioctl_blksszget, statx,
};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use super::physical::attribute;
use crate::buffer::AlignedBuf;

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probed {
    pub(super) len: u64,
    pub(super) sector_size: u32,
    pub(super) direct: bool,
    pub(super) block_device: bool,
}

/// Looks at `file`, and switches direct I/O on if `direct` is wanted and possible.
pub(super) fn probe(file: &File, direct: bool) -> io::Result<Probed> {
    let block_device = file.metadata()?.file_type().is_block_device();
    let len = length(file)?;
    let unit = match direct {
        true => direct_unit(file, block_device)?,
        false => None,
    };
    let sector_size = match block_device {
        true => ioctl_blksszget(file)?,
        false => unit.unwrap_or(512),
    };
    if sector_size != 512 && sector_size != 4096 {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("its sectors of {sector_size} bytes are not supported"),
        ));
    }
    Ok(Probed { len, sector_size, direct: unit.is_some(), block_device })
}

/// Switches direct I/O on and gives the unit it needs, or leaves it off and gives `None`.
fn direct_unit(file: &File, block_device: bool) -> io::Result<Option<u32>> {
    let flags = fcntl_getfl(file)?;
    if fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return Ok(None);
    }
    let said = match block_device {
        true => Some(ioctl_blksszget(file)?),
        false => said_unit(file),
    };
    let unit = [512, 4096].into_iter().filter(|&unit| said.is_none_or(|said| said <= unit)).find(
        |&unit| {
            let mut buf = AlignedBuf::zeroed(unit as usize);
            file.read_at(&mut buf, 0).is_ok()
        },
    );
    if unit.is_none() {
        fcntl_setfl(file, flags)?;
    }
    Ok(unit)
}

/// Bytes of a file or block device as it is now.
pub(super) fn length(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// The alignment that the host names for direct I/O on a file, if it knows.
fn said_unit(file: &File) -> Option<u32> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN);
    let unit = u32::max(found.stx_dio_offset_align, found.stx_dio_mem_align);
    (known && unit != 0).then_some(unit)
}

/// The least and the most that is believed to be given back together.
const DISCARD_UNITS: std::ops::RangeInclusive<u64> = 4096..=1 << 20;

/// Bytes that a discard gives back together: blocks of the host's file, or what a block device says. `None`: the block
/// device takes no discards. Whether the host of a file punches holes shows with the first one.
pub(super) fn discard_unit(file: &File, block_device: bool) -> Option<u64> {
    let found = fstat(file).ok();
    let said = match (block_device, found) {
        (true, Some(found)) => {
            let queue = |name: &str| attribute(found.st_rdev, &format!("queue/{name}"));
            // A device that says nothing is asked.
            if queue("discard_max_bytes") == Some(0) {
                return None;
            }
            queue("discard_granularity").and_then(|bytes| u64::try_from(bytes).ok())
        }
        (false, Some(found)) => u64::try_from(found.st_blksize).ok(),
        (_, None) => None,
    };
    let (least, most) = (*DISCARD_UNITS.start(), *DISCARD_UNITS.end());
    let unit = said.unwrap_or(least).clamp(least, most);
    Some(if unit.is_power_of_two() { unit } else { most })
}

/// `BLKDISCARD` from linux/fs.h: an `_IO` number that takes start and length.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Discards sectors of a block device.
#[allow(unsafe_code)]
pub(super) fn block_discard(file: &File, at: u64, len: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads exactly two 64-bit numbers, start and length in bytes, from the
    // address it is given; `Setter` gives it the address of this array for the time of the call.
    let call = unsafe { Setter::<BLKDISCARD, [u64; 2]>::new([at, len]) };
    // SAFETY: the opcode and the argument belong together, see above; other descriptors answer ENOTTY.
    let _: () = unsafe { ioctl(file, call)? };
    Ok(())
}

/// [`crate::Device::data_from`] of an open file that ends at `end`. Where its filesystem says nothing of holes, that is `at`.
pub fn data_from(file: impl AsFd, at: u64, end: u64) -> u64 {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(data) => data.min(end),
        Err(Errno::NXIO) => end,
        Err(_) => at,
    }
}
