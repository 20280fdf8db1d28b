//! Both superblock slots, and which one counts; and the far copy, with the signpost to it, for a volume that has lost both.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::{Device, DeviceError};
use holdfast_format::geometry::{SIGNPOST, SUPERBLOCK_SLOTS};
use holdfast_format::signpost::Search;
use holdfast_format::superblock::{
    Fields, FoundDamage, MAGIC, VERSION, newer_program, other_version, tags_of, version_of,
};
use holdfast_format::{Malformed, Signpost, Superblock};

use crate::CheckError;

/// What stands in the two slots.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The slots as far as the device has them, zeros otherwise.
    pub(crate) bytes: [Box<[u8; BLOCK_SIZE]>; 2],
    /// The slots, judged.
    pub(crate) judged: [Result<Superblock, Malformed>; 2],
    /// The far copy, as it is found. `None` if the device ends before it or does not read there.
    pub(crate) far: Option<Result<Superblock, Malformed>>,
    /// What says where that is where no slot does.
    signpost: Result<Signpost, Malformed>,
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
                let valid: Vec<Superblock> = judged.iter().flatten().cloned().collect();
                let signpost = read_signpost(device);
                let blocks = device.len() / BLOCK_BYTES;
                let far = far(device, &Search::new(valid, signpost.clone().ok(), blocks));
                Ok(Slots { bytes: [first, second], judged, far, signpost })
            }
        }
    }

    /// What is wrong with the signpost of a volume.
    pub(crate) fn wrong_signpost(&self, superblock: &Superblock) -> Option<String> {
        match &self.signpost {
            Ok(signpost) if signpost.leads_to(superblock) => None,
            Ok(_) => Some("it names another volume, or another size".into()),
            Err(malformed) => Some(malformed.why.clone()),
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

/// The newest far copy where one may be; or why none is valid, at the place where the volume has it.
fn far(device: &dyn Device, search: &Search) -> Option<Result<Superblock, Malformed>> {
    let mut wrong = None;
    let mut newest: Option<Superblock> = None;
    for (at, place) in search.places().into_iter().enumerate() {
        let why = match read_slot(device, place).1 {
            Ok(found) if search.takes(&found) => {
                if newest.as_ref().is_none_or(|newest| newest.epoch < found.epoch) {
                    newest = Some(found);
                }
                continue;
            }
            Ok(_) => Malformed::new(Fields::TITLE, "it is not of this volume"),
            Err(SlotError::Malformed(malformed)) => malformed,
            Err(SlotError::Device(_)) => continue,
        };
        if at == 0 {
            wrong = Some(Err(why));
        }
    }
    newest.map(Ok).or(wrong)
}

fn read_signpost(device: &dyn Device) -> Result<Signpost, Malformed> {
    let (bytes, _) = read_slot(device, SIGNPOST);
    Signpost::decode(&bytes)
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
