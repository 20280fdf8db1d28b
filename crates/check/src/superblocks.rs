//! Both superblock slots, and which one counts; and the far copy, for a volume that has lost both.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::{Device, DeviceError};
use holdfast_format::geometry::{SUPERBLOCK_SLOTS, far_copy};
use holdfast_format::superblock::{
    Fields, FoundDamage, MAGIC, VERSION, newer_program, other_version, tags_of, version_of,
};
use holdfast_format::{Malformed, Superblock};

use crate::CheckError;

/// What stands in the two slots.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The slots as far as the device has them, zeros otherwise.
    pub(crate) bytes: [Box<[u8; BLOCK_SIZE]>; 2],
    /// The slots, judged.
    pub(crate) judged: [Result<Superblock, Malformed>; 2],
    /// The far copy: where the volume has it, or if there is no valid slot, where one as large as the device has it.
    /// `None` if the device ends before it or does not read there.
    pub(crate) far: Option<Result<Superblock, Malformed>>,
}

impl Slots {
    /// Reads both slots. Fails only if the device cannot read either.
    pub(crate) fn read(device: &dyn Device) -> Result<Slots, DeviceError> {
        let (first, one) = read_slot(device, SUPERBLOCK_SLOTS[0]);
        let (second, two) = read_slot(device, SUPERBLOCK_SLOTS[1]);
        match (one, two) {
            (Err(SlotError::Device(error)), Err(SlotError::Device(_))) => Err(error),
            (one, two) => {
                let judged = [one.map_err(SlotError::words), two.map_err(SlotError::words)];
                let far = far(device, &judged);
                Ok(Slots { bytes: [first, second], judged, far })
            }
        }
    }

    /// The far copy, if it is all that is left: both slots are gone.
    pub(crate) fn only_far(&self) -> Option<&Superblock> {
        let far = self.far.as_ref()?.as_ref().ok()?;
        self.newest().is_none().then_some(far)
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
        if let Some(older) = self.older() {
            return Err(CheckError::Older(older));
        }
        let [first, second] = self.judged;
        match (first, second) {
            (Ok(one), Ok(two)) => Ok(if two.epoch > one.epoch { two } else { one }),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
            (Err(first), Err(second)) => Err(CheckError::NoSuperblock { first, second }),
        }
    }

    /// What to do with a volume of an older format, if no slot is valid and there is one.
    pub(crate) fn older(&self) -> Option<String> {
        if self.newest().is_some() {
            return None;
        }
        let versions = self.bytes.iter().filter_map(|bytes| version_of(bytes));
        versions.filter(|version| *version < VERSION).find_map(other_version)
    }

    /// What of an intact superblock this program is too old for, if no valid one is as new.
    pub(crate) fn newer(&self) -> Option<String> {
        let slots = self.bytes.iter().zip(SUPERBLOCK_SLOTS);
        let newer = slots.filter_map(|(bytes, slot)| newer_program(bytes, slot)).max()?;
        let newest = self.newest().or(self.later_far());
        newest.is_none_or(|newest| newest.epoch <= newer.0).then_some(newer.1)
    }

    /// The far copy, if no slot is valid and one is of the same volume that this program is too old for: is it of a later
    /// checkpoint, the volume has given up what that one brought.
    fn later_far(&self) -> Option<&Superblock> {
        let far = self.only_far()?;
        let slots = self.bytes.iter().zip(SUPERBLOCK_SLOTS);
        { slots }.any(|(bytes, slot)| tags_of(bytes, slot) == Some(far.tags())).then_some(far)
    }

    /// The far copy, if the superblock that it is a copy of is lost: the slot that it belongs to is not valid, and the other
    /// one is older and of the same volume. A power cut may leave that as well, and then both lead to the same state.
    pub(crate) fn lost_newest(&self) -> Option<&Superblock> {
        let far = self.far.as_ref()?.as_ref().ok()?;
        let [even, odd] = &self.judged;
        let (own, other) = if far.epoch.0.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        let other = other.as_ref().ok().filter(|_| own.is_err())?;
        (other.epoch < far.epoch && other.tags() == far.tags()).then_some(far)
    }

    /// What was found damaged, by the superblock that counts or the one before it.
    pub(crate) fn fault(&self) -> Option<&FoundDamage> {
        let newest = self.newest().or(self.only_far())?;
        let before = self.judged.iter().flatten().find(|slot| slot.epoch < newest.epoch);
        newest.fault.as_ref().or_else(|| before?.fault.as_ref())
    }
}

/// The far copy: where the newest valid slot has it; where the other one has it, or a volume as large as the device, if it is newer there: the
/// size was being changed. Without a valid slot where a volume as large as the device has it.
fn far(
    device: &dyn Device,
    slots: &[Result<Superblock, Malformed>; 2],
) -> Option<Result<Superblock, Malformed>> {
    let blocks = device.len() / BLOCK_BYTES;
    let mut valid: Vec<&Superblock> = slots.iter().flatten().collect();
    valid.sort_by_key(|superblock| std::cmp::Reverse(superblock.epoch));
    let places = valid.iter().map(|slot| slot.geometry.far_copy()).chain([far_copy(blocks)]);
    let mut first = None;
    let mut newest: Option<Superblock> = None;
    for (at, place) in places.enumerate().filter(|(_, place)| place.0 < blocks) {
        match read_slot(device, place).1 {
            Ok(found) => {
                let is_of_volume = valid.first().is_none_or(|slot| slot.tags() == found.tags());
                let is_newer = newest.as_ref().is_none_or(|newest| newest.epoch < found.epoch);
                if is_newer && (is_of_volume || at == 0) {
                    newest = Some(found);
                }
            }
            Err(SlotError::Malformed(malformed)) if at == 0 => first = Some(Err(malformed)),
            Err(_) => {}
        }
    }
    newest.map(Ok).or(first)
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
