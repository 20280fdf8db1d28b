//! Both superblock slots, and which one counts.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::{Device, DeviceError};
use holdfast_format::checksum::crc64_with_hole;
use holdfast_format::codec::Reader;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::superblock::{Fields, INCOMPAT_KNOWN, MAGIC, VERSION};
use holdfast_format::{Malformed, Superblock};

use crate::CheckError;

/// What stands in the two slots.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The slots as far as the device has them, zeros otherwise.
    pub(crate) bytes: [Box<[u8; BLOCK_SIZE]>; 2],
    /// The slots, judged.
    pub(crate) judged: [Result<Superblock, Malformed>; 2],
}

impl Slots {
    /// Reads both slots. Fails only if the device cannot read either.
    pub(crate) fn read(device: &dyn Device) -> Result<Slots, DeviceError> {
        let (first, one) = read_slot(device, SUPERBLOCK_SLOTS[0]);
        let (second, two) = read_slot(device, SUPERBLOCK_SLOTS[1]);
        match (one, two) {
            (Err(SlotError::Device(error)), Err(SlotError::Device(_))) => Err(error),
            (one, two) => Ok(Slots {
                bytes: [first, second],
                judged: [one.map_err(SlotError::words), two.map_err(SlotError::words)],
            }),
        }
    }

    /// The valid superblock with the larger epoch.
    pub(crate) fn newest(&self) -> Option<&Superblock> {
        let valid = self.judged.iter().flatten();
        valid.max_by_key(|superblock| superblock.epoch)
    }

    /// Whether a slot begins like a Holdfast superblock, valid or not.
    pub(crate) fn has_magic(&self) -> bool {
        self.bytes.iter().any(|bytes| bytes.starts_with(&MAGIC))
    }

    /// The newest superblock, or why there is none to work with.
    pub(crate) fn into_newest(self) -> Result<Superblock, CheckError> {
        if let Some(words) = self.newer() {
            return Err(CheckError::Newer(words));
        }
        let [first, second] = self.judged;
        match (first, second) {
            (Ok(one), Ok(two)) => Ok(if two.epoch > one.epoch { two } else { one }),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
            (Err(first), Err(second)) => Err(CheckError::NoSuperblock { first, second }),
        }
    }

    /// What of an intact superblock this program is too old for, if no slot is valid.
    pub(crate) fn newer(&self) -> Option<String> {
        if self.newest().is_some() {
            return None;
        }
        self.bytes.iter().find_map(|bytes| {
            let fields = Fields::read(&mut Reader::new(Fields::TITLE, &bytes[..])).ok()?;
            let sum_at = Fields::fields().iter().find(|field| field.name == "sum")?.offset;
            let intact = fields.magic == MAGIC && crc64_with_hole(&bytes[..], sum_at) == fields.sum;
            let unknown = fields.features_incompat & !INCOMPAT_KNOWN;
            match fields.version {
                _ if !intact => None,
                version if version > VERSION => Some(format!("its format is version {version}")),
                _ if unknown != 0 => Some(format!("it has the features {unknown:#x}")),
                _ => None,
            }
        })
    }
}

enum SlotError {
    Device(DeviceError),
    Malformed(Malformed),
}

impl SlotError {
    fn words(self) -> Malformed {
        match self {
            SlotError::Malformed(malformed) => malformed,
            SlotError::Device(error) => Malformed::new(Fields::TITLE, error.to_string()),
        }
    }
}

fn read_slot(
    device: &dyn Device,
    slot: BlockNo,
) -> (Box<[u8; BLOCK_SIZE]>, Result<Superblock, SlotError>) {
    let mut bytes = Box::new([0; BLOCK_SIZE]);
    let at = slot.0 * BLOCK_BYTES;
    if at + BLOCK_BYTES > device.len() {
        let short = Malformed::new(Fields::TITLE, "the device ends before it");
        return (bytes, Err(SlotError::Malformed(short)));
    }
    match device.read(at, &mut bytes[..]) {
        Ok(()) => {
            let judged = Superblock::decode(&bytes, slot).map_err(SlotError::Malformed);
            (bytes, judged)
        }
        Err(error) => (bytes, Err(SlotError::Device(error))),
    }
}
