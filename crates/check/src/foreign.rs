//! Recognises what is on a device by its magic bytes, so that mkfs does not overwrite it unasked.
//!
//! One table: where, which bytes, what it is. More specific rows come first.
//! Partition tables come last, because filesystems may carry a boot record.

use holdfast_device::Device;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::superblock::MAGIC;

/// The name of our own volumes, which may be damaged.
pub const OURS: &str = "a Holdfast volume";

/// Bytes at an offset that say what a device holds.
type Signature = (u64, &'static [u8], &'static str);

/// Byte offset, bytes found there, name.
const TABLE: &[Signature] = &[
    (SUPERBLOCK_SLOTS[0].0 * 4096, &MAGIC, OURS),
    (SUPERBLOCK_SLOTS[1].0 * 4096, &MAGIC, OURS),
    (0, b"LUKS\xba\xbe", "an encrypted LUKS volume"),
    (0x4000, b"SKUL\xba\xbe", "an encrypted LUKS volume"),
    (3, b"-FVE-FS-", "an encrypted BitLocker volume"),
    (0, b"XFSB", "an XFS filesystem"),
    (0x1_0040, b"_BHRfS_M", "a btrfs filesystem"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (65526, b"SWAPSPACE2", "swap space"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (3, b"EXFAT   ", "an exFAT filesystem"),
    (82, b"FAT32   ", "a FAT filesystem"),
    (54, b"FAT16   ", "a FAT filesystem"),
    (54, b"FAT12   ", "a FAT filesystem"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS filesystem"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS filesystem"),
    (
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        "a bcachefs filesystem",
    ),
    (
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "a bcache or bcachefs device",
    ),
    (1030, b"\x34\x34", "a NILFS filesystem"),
    (1024, b"H+\x00\x04", "an HFS+ filesystem"),
    (1024, b"HX\x00\x05", "an HFS+ filesystem"),
    (32, b"NXSB", "an APFS container"),
    (32768, b"JFS1", "a JFS filesystem"),
    (65588, b"ReIsErFs", "a ReiserFS filesystem"),
    (65588, b"ReIsEr2Fs", "a ReiserFS filesystem"),
    (65588, b"ReIsEr3Fs", "a ReiserFS filesystem"),
    (65536, b"\x01\x16\x19\x70", "a GFS2 filesystem"),
    (128 * 1024, b"\x0c\xb1\xba\x00\x00\x00\x00\x00", "a ZFS pool"),
    (128 * 1024, b"\x00\x00\x00\x00\x00\xba\xb1\x0c", "a ZFS pool"),
    (32769, b"CD001", "an ISO 9660 image"),
    (0, b"hsqs", "a SquashFS image"),
    (0, b"\x45\x3d\xcd\x28", "a CramFS image"),
    (512, b"LABELONE", "an LVM physical volume"),
    (0, b"LABELONE", "an LVM physical volume"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID array"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a RAID array"),
    (0, b"QFI\xfb", "a QCOW disk image"),
    (0, b"KDMV", "a VMDK disk image"),
    (0, b"vhdxfile", "a VHDX disk image"),
    (0, b"conectix", "a VHD disk image"),
    (64, b"\x7f\x10\xda\xbe", "a VDI disk image"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x1f\x8b\x08", "a gzip file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"070701", "a cpio archive"),
    (0, b"!<arch>\n", "an ar archive"),
    (0, b"\x7fELF", "an ELF program"),
    (0, b"%PDF-", "a PDF document"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
];

/// What `device` seems to hold: a name with its article, or `None` if nothing is recognised.
/// Offsets that the device does not have or cannot read are passed over.
pub fn identify(device: &dyn Device) -> Option<&'static str> {
    named_by(&TABLE[..2], device).or_else(|| identify_other(device))
}

/// As [`identify`], of other things than ours, also where a superblock of ours is left beside.
pub fn identify_other(device: &dyn Device) -> Option<&'static str> {
    ext(device).or_else(|| named_by(&TABLE[2..], device)).or_else(|| mbr(device))
}

/// What the first entry names whose bytes the device holds.
fn named_by(table: &[Signature], device: &dyn Device) -> Option<&'static str> {
    let holds = |at: u64, bytes: &[u8]| read(device, at, bytes.len()).is_some_and(|b| b == bytes);
    table.iter().find(|(at, magic, _)| holds(*at, magic)).map(|(_, _, name)| *name)
}

fn read(device: &dyn Device, at: u64, len: usize) -> Option<Vec<u8>> {
    // Whole sectors, because a device with direct I/O may want nothing else.
    let sector = u64::from(device.sector_size().max(512));
    let start = at - at % sector;
    let end = (at + len as u64).next_multiple_of(sector);
    if end > device.len() {
        return None;
    }
    let mut bytes = vec![0; (end - start) as usize];
    device.read(start, &mut bytes).ok()?;
    let skip = (at - start) as usize;
    Some(bytes[skip..skip + len].to_vec())
}

/// ext2, ext3 and ext4 share a magic; features distinguish them.
fn ext(device: &dyn Device) -> Option<&'static str> {
    let head = read(device, 1024 + 0x38, 0x30)?;
    if head[..2] != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (compat, incompat, ro_compat) = (word(0x24), word(0x28), word(0x2c));
    const HAS_JOURNAL: u32 = 0x4;
    // What ext3 knows: filetype, recover, journal device, meta_bg; sparse super, large file, btree dir.
    let newer = incompat & !0x1e != 0 || ro_compat & !0x7 != 0;
    Some(match (newer, compat & HAS_JOURNAL != 0) {
        (true, _) => "an ext4 filesystem",
        (false, true) => "an ext3 filesystem",
        (false, false) => "an ext2 filesystem",
    })
}

/// A boot record with at least one partition whose entry makes sense.
fn mbr(device: &dyn Device) -> Option<&'static str> {
    let sector = read(device, 0, 512)?;
    if sector[510..] != [0x55, 0xaa] {
        return None;
    }
    let (entries, _) = sector[446..510].as_chunks::<16>();
    let sane = entries.iter().all(|entry| entry[0] & 0x7f == 0);
    let used = entries.iter().any(|entry| entry[4] != 0 && entry[12..] != [0; 4]);
    (sane && used).then_some("an MBR partition table")
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    fn device(parts: &[(u64, &[u8])]) -> MemoryDevice {
        let mut image = vec![0; 1 << 20];
        for (at, bytes) in parts {
            let at = *at as usize;
            image[at..at + bytes.len()].copy_from_slice(bytes);
        }
        MemoryDevice::from_image(&image)
    }

    #[test]
    fn every_row_is_recognised_and_emptiness_is_not() {
        for (at, magic, name) in TABLE {
            assert_eq!(identify(&device(&[(*at, magic)])), Some(*name), "{at}");
        }
        assert_eq!(identify(&device(&[])), None);
        assert_eq!(identify(&MemoryDevice::new(0)), None);
        assert_eq!(identify(&MemoryDevice::new(600)), None);
    }

    #[test]
    fn the_generations_of_ext_are_told_apart() {
        let magic: (u64, &[u8]) = (1024 + 0x38, b"\x53\xef");
        assert_eq!(identify(&device(&[magic])), Some("an ext2 filesystem"));
        let journal: (u64, &[u8]) = (1024 + 0x5c, b"\x04");
        assert_eq!(identify(&device(&[magic, journal])), Some("an ext3 filesystem"));
        let extents: (u64, &[u8]) = (1024 + 0x60, b"\x40");
        assert_eq!(identify(&device(&[magic, journal, extents])), Some("an ext4 filesystem"));
    }

    #[test]
    fn a_boot_record_without_partitions_is_nothing() {
        let signature: (u64, &[u8]) = (510, b"\x55\xaa");
        assert_eq!(identify(&device(&[signature])), None);
        let entry: (u64, &[u8]) = (446, b"\x80\0\0\0\x83\0\0\0\0\x08\0\0\0\0\x10\0");
        let found = identify(&device(&[signature, entry]));
        assert_eq!(found, Some("an MBR partition table"));
    }
}
