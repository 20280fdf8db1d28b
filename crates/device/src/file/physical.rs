//! How large the physical sectors are that lie under a file or block device.
//!
//! A disk may take writes of 512 bytes and keep sectors of 4 KiB (512e): it reads such a sector, changes a part
//! of it and writes it again, and a power cut in that may take all of it. A block device says how large they are. For
//! a regular file the block device below its filesystem says it; where there is none (tmpfs, overlays,
//! btrfs, network), 4 KiB are assumed.

use std::fs::{self, File};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;

use holdfast_base::units::BLOCK_BYTES;
use rustix::fs::{ioctl_blkpbszget, major, minor};

/// What is assumed where nothing says it: what nearly all disks have.
const ASSUMED: u32 = 4096;

/// The physical sector under a file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalSector {
    /// Its bytes.
    pub bytes: u32,
    /// How this is known.
    pub source: Source,
    /// Whether the first byte begins one, as far as the host says: a partition may begin anywhere.
    pub is_aligned: bool,
}

/// How the size of a physical sector is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The block device says it.
    Device,
    /// The block device says it that lies under the file's filesystem.
    DeviceBelow,
    /// Nothing says it.
    Assumed,
}

impl PhysicalSector {
    /// Looks what lies under `file`, which has logical sectors of `sector_size` bytes.
    pub fn of(file: &File, sector_size: u32) -> PhysicalSector {
        let found = file.metadata().ok();
        let number = found.as_ref().map(|found| match found.file_type().is_block_device() {
            true => found.st_rdev(),
            false => found.st_dev(),
        });
        let is_block_device = found.is_some_and(|found| found.file_type().is_block_device());
        let said = match is_block_device {
            true => ioctl_blkpbszget(file).ok().map(|bytes| (bytes, Source::Device)),
            false => number
                .and_then(|number| attribute(number, "queue/physical_block_size"))
                .and_then(|bytes| Some((u32::try_from(bytes).ok()?, Source::DeviceBelow))),
        };
        let (bytes, source) =
            said.filter(|(bytes, _)| bytes.is_power_of_two()).unwrap_or((ASSUMED, Source::Assumed));
        // The kernel says -1 of devices that are stacked out of step.
        let offset = number.and_then(|number| attribute(number, "alignment_offset"));
        PhysicalSector {
            bytes: bytes.max(sector_size),
            source,
            is_aligned: offset.is_none_or(|offset| offset == 0),
        }
    }

    /// Why blocks of 4 KiB do not lie in physical sectors of their own, in one sentence for people.
    pub fn danger(&self) -> Option<String> {
        if !self.is_aligned && self.bytes > 512 {
            return Some(format!(
                "the partition does not begin at a physical sector of {} bytes: a power cut may take blocks beside those \
                 that are being written; align it",
                self.bytes
            ));
        }
        (u64::from(self.bytes) > BLOCK_BYTES).then(|| {
            format!(
                "physical sectors of {} bytes are larger than blocks of 4 KiB: a power cut may take blocks beside \
                 those that are being written, unless the device guards against that",
                self.bytes
            )
        })
    }
}

/// A number that the kernel gives for a block device; a partition has some of those of its disk.
pub(super) fn attribute(device: u64, name: &str) -> Option<i64> {
    let place = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let found = fs::read_to_string(format!("{place}/{name}"))
        .or_else(|_| fs::read_to_string(format!("{place}/../{name}")));
    found.ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_a_block_or_beside_its_place_is_said() {
        let sector =
            |bytes, is_aligned| PhysicalSector { bytes, source: Source::Device, is_aligned };
        for bytes in [512, 4096] {
            assert_eq!(sector(bytes, true).danger(), None);
        }
        assert!(sector(65536, true).danger().is_some_and(|words| words.contains("65536")));
        assert!(sector(4096, false).danger().is_some_and(|words| words.contains("align")));
        assert_eq!(sector(512, false).danger(), None, "there is nothing to be beside of");
    }

    #[test]
    fn a_file_without_a_device_below_is_taken_for_one_on_sectors_of_4096() {
        let file = File::open("/proc/self/status").expect("proc is mounted");
        let found = PhysicalSector::of(&file, 512);
        assert_eq!((found.bytes, found.source), (4096, Source::Assumed));
    }
}
