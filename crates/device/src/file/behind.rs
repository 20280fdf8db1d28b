//! What a block device stands on, as far as the host tells: the file behind a loop device, the device of a partition,
//! the devices below a mapper. A volume is one location under several names. So each writer also locks the file behind,
//! in the same bytes that a program locks that opens the file itself.
//!
//! Loop devices name their file by path, and by device and inode number, which mean the same in every mount namespace:
//! a path that leads elsewhere is not taken. What cannot be locked is named in a log line and in [`Reach`]; then the
//! guard in the volume is what keeps two programs apart.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fstatfs, major, makedev, minor};
use rustix::ioctl::{Getter, Opcode, ioctl};

use super::OpenMode;
use super::lock::{self, Part, Share};
use crate::{DeviceError, Reach};

/// How deep devices upon devices are followed; no real stack is deeper, and a ring of them cannot be built.
const DEPTH_MAX: u32 = 16;
/// `LOOP_GET_STATUS64` from linux/loop.h.
const LOOP_GET_STATUS64: Opcode = 0x4c05;
/// Filesystems that several machines may have mounted, and whose locks hold for this one: NFS, SMB in three versions, Ceph, GFS2,
/// OCFS2, Lustre and AFS twice.
const NETWORK_FILESYSTEMS: [u32; 10] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x0116_1970,
    0x7461_636f,
    0x0bd0_0bd0,
    0x5346_414f,
    0x6b41_4653,
];
/// Filesystems that show files which others have as well, under locks that each of their mounts has for itself: FUSE, overlay, 9p, and
/// that of VirtualBox. A program that has the same file by another mount, or in place, is not met.
const SHOWING_FILESYSTEMS: [u32; 4] = [0x6573_5546, 0x794c_7630, 0x0102_1997, 0x786f_4256];

/// `struct loop_info64` from linux/loop.h, as far as it is of use.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopStatus {
    device: u64,
    inode: u64,
    _rdevice: u64,
    offset: u64,
    size_limit: u64,
    _number_encryption_and_flags: [u32; 4],
    file_name: [u8; 64],
    _crypt_name_key_and_init: [u64; 14],
}

/// Locks on what is behind a device, for as long as this lives.
#[derive(Debug)]
pub(super) struct Behind {
    /// Kept open for their locks.
    pub(super) held: Vec<File>,
    pub(super) reach: Reach,
}

/// Locks what is behind `file`, which was opened as `path` and is itself locked.
///
/// # Errors
/// [`DeviceError::InUse`] when another program has it. What is merely out of reach is no error.
pub(super) fn take(file: &File, path: &Path, mode: OpenMode) -> Result<Behind, DeviceError> {
    walk(file, path, mode, Locks::Take)
}

/// The same of what another process has locked for this one.
pub(super) fn look(file: &File, path: &Path, mode: OpenMode) -> Result<Behind, DeviceError> {
    walk(file, path, mode, Locks::AreTaken)
}

/// Whether what is behind a device is still to be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locks {
    Take,
    AreTaken,
}

fn walk(file: &File, path: &Path, mode: OpenMode, locks: Locks) -> Result<Behind, DeviceError> {
    let (held, reach) = (Vec::new(), Reach::Alone);
    let mut walk = Walk { host: Host::this(), mode, path, locks, held, reach };
    match file.metadata() {
        Ok(found) if found.file_type().is_block_device() => {
            let share = match mode {
                OpenMode::ReadOnly => Share::Beside,
                OpenMode::ReadWrite => Share::Alone,
            };
            walk.device(found.st_rdev(), Some(file), Part::WHOLE, share, 0)?;
        }
        _ => walk.on_filesystem(file),
    }
    Ok(Behind { held: walk.held, reach: walk.reach })
}

/// Where a host tells of its devices; a test makes one of its own.
#[derive(Clone, Copy)]
struct Host<'h> {
    sys: &'h Path,
    dev: &'h Path,
    /// What a loop device of this number says of itself.
    ask: fn(&File, u64) -> Option<LoopStatus>,
}

impl Host<'static> {
    fn this() -> Host<'static> {
        Host { sys: Path::new("/sys"), dev: Path::new("/dev"), ask: ask_loop }
    }
}

struct Walk<'p> {
    host: Host<'p>,
    mode: OpenMode,
    /// What was opened.
    path: &'p Path,
    locks: Locks,
    held: Vec<File>,
    reach: Reach,
}

impl Walk<'_> {
    /// Follows one block device down. `share`: how volumes reached this way share what is behind.
    fn device(
        &mut self,
        number: u64,
        open: Option<&File>,
        part: Part,
        share: Share,
        depth: u32,
    ) -> Result<(), DeviceError> {
        if depth > DEPTH_MAX {
            self.out_of_reach("too many devices lie upon each other");
            return Ok(());
        }
        let place = self.host.sys.join(format!("dev/block/{}:{}", major(number), minor(number)));
        let place = fs::canonicalize(&place).ok();
        // Asked first, because it needs no /sys.
        if let Some(status) = self.status(number, open, place.as_deref()) {
            return self.loop_device(place.as_deref(), &status, part, share, depth);
        }
        let Some(place) = place else {
            self.out_of_reach("/sys does not tell what a device is");
            return Ok(());
        };
        if place.join("loop/backing_file").exists() {
            self.out_of_reach("a loop device below it cannot be asked for its file");
            return Ok(());
        }
        if is_partition(&place) {
            let Some((whole, start, len)) = partition(&place) else {
                self.out_of_reach("/sys does not tell where a partition lies");
                return Ok(());
            };
            return self.device(whole, None, part.within(start, len), share, depth + 1);
        }
        self.reach = self.reach.max(Reach::Host);
        for below in fs::read_dir(place.join("slaves")).into_iter().flatten().flatten() {
            match device_at(&below.path()) {
                // Which of its parts a mapper uses is not known here, and others may have the rest. Volumes reached
                // through mappers share it, and keep out an opener that wants it alone.
                Some(number) => self.device(number, None, Part::WHOLE, Share::Beside, depth + 1)?,
                None => self.out_of_reach("/sys does not tell what a device below it is"),
            }
        }
        Ok(())
    }

    /// What a loop device says of itself; nothing if it is none.
    fn status(&self, number: u64, open: Option<&File>, place: Option<&Path>) -> Option<LoopStatus> {
        if major(number) != LOOP_MAJOR || place.is_some_and(is_partition) {
            return None;
        }
        let ask = |file: &File| (self.host.ask)(file, number);
        open.and_then(ask).or_else(|| {
            let about = fs::read_to_string(place?.join("uevent")).ok()?;
            let name = about.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
            ask(&File::open(self.host.dev.join(name)).ok()?)
        })
    }

    fn loop_device(
        &mut self,
        place: Option<&Path>,
        status: &LoopStatus,
        part: Part,
        share: Share,
        depth: u32,
    ) -> Result<(), DeviceError> {
        let Some(behind) = path_behind(place, status) else {
            self.out_of_reach("the file behind a loop device has no path here");
            return Ok(());
        };
        let file = match self.open_same(&behind, status) {
            Ok(file) => file,
            Err(error) => {
                self.out_of_reach(&format!("{}: {error}", behind.display()));
                return Ok(());
            }
        };
        let part = part.within(status.offset, status.size_limit);
        let named = format!("{}, which is behind {},", behind.display(), self.path.display());
        let locked = match self.locks {
            Locks::Take => lock::take_part(file, &behind, &named, part, share)?,
            Locks::AreTaken => Some(file),
        };
        let Some(file) = locked else {
            self.out_of_reach(&format!("{} cannot be locked in parts", behind.display()));
            return Ok(());
        };
        let below = file.metadata().ok().filter(|found| found.file_type().is_block_device());
        match below {
            Some(found) => self.device(found.st_rdev(), Some(&file), part, share, depth + 1)?,
            None => self.on_filesystem(&file),
        }
        self.held.push(file);
        Ok(())
    }

    /// Opens the file that the loop device means, not another one that has its path in this namespace.
    fn open_same(&self, path: &Path, status: &LoopStatus) -> io::Result<File> {
        let is_same = |found: &fs::Metadata| {
            let device = makedev(loop_major(status.device), loop_minor(status.device));
            (found.st_dev(), found.st_ino()) == (device, status.inode)
        };
        let other = || io::Error::other("it is not the file that the loop device has open");
        // Checked first: opening a pipe would wait.
        if !is_same(&fs::metadata(path)?) {
            return Err(other());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(self.mode == OpenMode::ReadWrite);
        let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
        if is_same(&file.metadata()?) { Ok(file) } else { Err(other()) }
    }

    /// The end of the walk is a file: its filesystem decides which other machines may have it.
    fn on_filesystem(&mut self, file: &File) {
        let reach = fstatfs(file).map_or(Reach::Unknown, |fs| reach_on(fs.f_type as u32));
        self.reach = self.reach.max(reach);
    }

    fn out_of_reach(&mut self, why: &str) {
        self.reach = Reach::Unknown;
        if self.mode == OpenMode::ReadWrite {
            tracing::warn!(
                "{}: what is behind it is not locked, so only the volume's guard notices another program that writes to it: {why}",
                self.path.display()
            );
        }
    }
}

/// Which other programs may have a file of a filesystem of this type.
fn reach_on(filesystem: u32) -> Reach {
    match filesystem {
        it if SHOWING_FILESYSTEMS.contains(&it) => Reach::Unknown,
        it if NETWORK_FILESYSTEMS.contains(&it) => Reach::Host,
        _ => Reach::Alone,
    }
}

/// Asks a loop device for what it says of itself; nothing if the file is not the device of this number.
#[allow(unsafe_code)]
fn ask_loop(file: &File, number: u64) -> Option<LoopStatus> {
    // The number 0x4c05 means something else to other drivers.
    if major(number) != LOOP_MAJOR || file.metadata().ok()?.st_rdev() != number {
        return None;
    }
    // SAFETY: LOOP_GET_STATUS64 fills a `struct loop_info64`, 232 bytes of plain numbers, which `LoopStatus`
    // has the size and layout of (a test holds the size); other descriptors answer an error and fill nothing.
    let call = unsafe { Getter::<LOOP_GET_STATUS64, LoopStatus>::new() };
    // SAFETY: the opcode and the type belong together, see above.
    unsafe { ioctl(file, call) }.ok()
}

/// The major number of loop devices, fixed for ever (Documentation/admin-guide/devices.txt).
const LOOP_MAJOR: u32 = 7;

/// The path of its file: whole in /sys, cut at 63 bytes in the answer of the device.
fn path_behind(place: Option<&Path>, status: &LoopStatus) -> Option<PathBuf> {
    let told = place.and_then(|place| fs::read_to_string(place.join("loop/backing_file")).ok());
    if let Some(path) = told {
        return Some(path.strip_suffix('\n').unwrap_or(&path).into());
    }
    let end = status.file_name.iter().position(|byte| *byte == 0)?;
    let path = std::str::from_utf8(&status.file_name[..end]).ok()?;
    (end > 0 && end < status.file_name.len() - 1).then(|| path.into())
}

/// The kernel's encoding of device numbers in this answer: `huge_encode_dev`.
fn loop_major(device: u64) -> u32 {
    (device as u32 & 0xfff00) >> 8
}

fn loop_minor(device: u64) -> u32 {
    (device as u32 & 0xff) | ((device as u32 >> 12) & 0xfff00)
}

fn is_partition(place: &Path) -> bool {
    place.join("partition").exists()
}

/// The device that a partition is a part of, and which: its first byte, and how many.
fn partition(place: &Path) -> Option<(u64, u64, u64)> {
    let bytes = |name: &str| read_number(&place.join(name))?.checked_mul(512);
    Some((device_at(place.parent()?)?, bytes("start")?, bytes("size")?))
}

/// The number of the device whose folder in /sys this is.
fn device_at(place: &Path) -> Option<u64> {
    let text = fs::read_to_string(place.join("dev")).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod sysfs_tests;

#[cfg(test)]
mod tests {
    use super::*;

    /// ext4, NFS, FUSE and overlay.
    #[test]
    fn locks_are_believed_where_all_who_have_the_file_meet_them() {
        let reach = [0xef53, 0x6969, 0x6573_5546, 0x794c_7630].map(reach_on);
        assert_eq!(reach, [Reach::Alone, Reach::Host, Reach::Unknown, Reach::Unknown]);
    }

    #[test]
    fn the_answer_of_a_loop_device_has_its_size_and_its_numbers() {
        assert_eq!(size_of::<LoopStatus>(), 232);
        // 254:0 and 8:1048575, as the kernel writes them.
        assert_eq!((loop_major(0xfe00), loop_minor(0xfe00)), (254, 0));
        let large = 0xff | (8 << 8) | (0xfff00 << 12);
        assert_eq!((loop_major(large), loop_minor(large)), (8, 0xfffff));
    }
}
