//! The superblock: which one counts, and the single place that writes one.
//!
//! The slots alternate, and a superblock is written only after a flush covers
//! all that it reaches (R1): the write takes the proof of that flush (R3).

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::clock::Stopwatch;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, Epoch};
use holdfast_device::{Device, Flushed, flush_unless};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::signpost::Search;
use holdfast_format::superblock::{
    FoundDamage, newer_program, other_version as other, tags_of, version_of,
};
use holdfast_format::{Malformed, Superblock};

use crate::throttle::access_times::AccessTimes;
use crate::{Result, StoreError, signpost};

/// What superblocks say of the program that wrote them.
pub(crate) const WRITER: &str = concat!("holdfast ", env!("CARGO_PKG_VERSION"));

/// What the slots say.
#[derive(Debug)]
pub(crate) struct Newest {
    /// The valid superblock with the larger epoch.
    pub(crate) superblock: Superblock,
    /// What was found damaged, by that one or the one before it: a volume that stopped has told the latter.
    pub(crate) fault: Option<FoundDamage>,
    /// The one before it is valid and says another size: a change of the size was cut short.
    pub(crate) is_of_two_sizes: bool,
}

/// The valid superblock with the larger epoch. One that is newer still, and that this program is too old for, is obeyed
/// as well: then there is none.
///
/// A slot that cannot be read may be read another time, and be the newer one: only a reader may do without.
/// `places` learns how long the reads took.
pub(crate) fn newest(device: &dyn Device, is_reader: bool, places: &AccessTimes) -> Result<Newest> {
    let mut found = Vec::new();
    let mut too_new = None;
    let mut broken = Vec::new();
    let mut unread = None;
    let mut other_version = None;
    for slot in SUPERBLOCK_SLOTS {
        let mut block = [0; BLOCK_SIZE];
        let at = slot.byte_offset().expect("the slots lie at the start of the volume");
        let last = device.len().checked_sub(BLOCK_BYTES);
        let judged = if last.is_some_and(|last| at <= last) {
            let time = Stopwatch::start();
            match device.read(at, &mut block) {
                Ok(()) => {
                    places.read_took(BLOCK_BYTES, time.nanos());
                    other_version = other_version.or_else(|| version_of(&block).and_then(other));
                    too_new = too_new.max(newer_program(&block, slot));
                    Superblock::decode(&block, slot)
                }
                Err(error) if is_reader => {
                    tracing::error!("the superblock at byte {at} cannot be read: {error}");
                    unread = Some(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
        } else {
            Err(Malformed::new("superblock", "the device ends before it"))
        };
        match judged {
            Ok(superblock) => found.push(superblock),
            Err(malformed) => broken.push(malformed),
        }
    }
    found.sort_by_key(|superblock: &Superblock| superblock.epoch);
    if let Some((epoch, why)) = too_new
        && found.last().is_none_or(|newest| newest.epoch < epoch)
    {
        return Err(StoreError::Refused(format!("the volume needs a newer program: {why}")));
    }
    match (found.pop(), unread) {
        (Some(superblock), _) => {
            let before = found.pop();
            let of_before = before.as_ref().and_then(|before| before.fault.clone());
            let fault = superblock.fault.clone().or(of_before);
            let blocks = superblock.geometry.volume_blocks;
            let is_of_two_sizes = before.is_some_and(|before| {
                before.geometry.volume_blocks != blocks && before.tags() == superblock.tags()
            });
            Ok(Newest { superblock, fault, is_of_two_sizes })
        }
        (None, Some(error)) => Err(error.into()),
        (None, None) if other_version.is_some() => {
            Err(StoreError::Refused(other_version.unwrap_or_default()))
        }
        (None, None) if far(device).is_ok_and(|far| far.is_some()) => {
            Err(StoreError::Refused(
                "both superblocks are damaged, but the far copy is whole: `holdfast fsck -y` writes it back"
                    .into(),
            ))
        }
        (None, None) => {
            let second = broken.pop().expect("no slot was valid");
            let first = broken.pop().expect("no slot was valid");
            Err(StoreError::NoSuperblock { first, second })
        }
    }
}

/// Where the far copy may be.
pub(crate) fn search(device: &dyn Device) -> Search {
    let slots = SUPERBLOCK_SLOTS.into_iter().filter_map(|slot| {
        let mut block = [0; BLOCK_SIZE];
        device.read(slot.byte_offset()?, &mut block).ok()?;
        Superblock::decode(&block, slot).ok()
    });
    let signpost = signpost::read(device).ok().flatten();
    Search::new(slots.collect(), signpost, device.len() / BLOCK_BYTES)
}

/// The far copy, if there is one that is valid. Fails if there is none where it reads, and a place does not.
pub(crate) fn far(device: &dyn Device) -> Result<Option<Superblock>> {
    let search = search(device);
    let (mut newest, mut failed): (Option<Superblock>, _) = (None, None);
    for place in search.places() {
        let mut block = [0; BLOCK_SIZE];
        let at = place.byte_offset().expect("it lies on the device");
        if let Err(error) = device.read(at, &mut block) {
            failed.get_or_insert(error);
            continue;
        }
        let found = Superblock::decode(&block, place).ok().filter(|found| search.takes(found));
        let is_newer =
            |found: &Superblock| newest.as_ref().is_none_or(|newest| newest.epoch < found.epoch);
        newest = found.filter(is_newer).or(newest);
    }
    match failed {
        Some(error) if newest.is_none() => Err(error.into()),
        _ => Ok(newest),
    }
}

/// Writes what was found at the far copy into its slot, unless a slot counts that is as new, or that is of another volume. One that
/// this program is too old for counts as well; if it is older, the volume has given up since what it brought. What the far copy leads to was
/// judged by the caller. The far copy itself is left alone: until the flush it may be all that there is.
pub(crate) fn restore(device: &dyn Device, far: &Superblock) -> Result<()> {
    for slot in SUPERBLOCK_SLOTS {
        let mut block = [0; BLOCK_SIZE];
        device.read(slot.byte_offset().expect("the slots lie at the start"), &mut block)?;
        let is_same = tags_of(&block, slot) == Some(far.tags());
        if let Some((epoch, why)) = newer_program(&block, slot) {
            if is_same && epoch < far.epoch && slot != far.slot() {
                continue;
            }
            return Err(StoreError::Refused(format!("the volume needs a newer program: {why}")));
        }
        let Ok(found) = Superblock::decode(&block, slot) else { continue };
        if !is_same || found.epoch >= far.epoch {
            return Err(StoreError::Refused(
                "a superblock slot is valid: nothing is to be restored".into(),
            ));
        }
    }
    write_to(device, far, far.slot())?;
    let _durable = device.flush()?;
    Ok(())
}

/// Writes a superblock to one of its places, a slot or the far copy. The flush is the caller's.
pub(crate) fn write_to(device: &dyn Device, superblock: &Superblock, place: BlockNo) -> Result<()> {
    let at = place.byte_offset().expect("the superblock was judged");
    Ok(device.write(at, &superblock.encode(place)[..])?)
}

/// What counts until a superblock is published.
pub(crate) struct Present {
    /// The epoch of its superblock.
    pub(crate) epoch: Epoch,
    /// Its size, as the signpost says it.
    pub(crate) blocks: u64,
}

/// Writes a superblock into its slot, and the far copy, and flushes; around one of another size the signpost. The slot of the superblock
/// that counts until then is refused, whatever went wrong before (P9). `_reached` proves that all it reaches is durable (R1).
pub(crate) fn publish(
    device: &dyn Device,
    superblock: &Superblock,
    present: Present,
    _reached: Flushed,
) -> Result<Flushed> {
    let Present { epoch, blocks } = present;
    assert!(
        superblock.epoch > epoch && superblock.epoch.0 % 2 != epoch.0 % 2,
        "the superblock of epoch {} would go over that of epoch {epoch}, which counts",
        superblock.epoch
    );
    if superblock.geometry.volume_blocks == blocks {
        return put(device, superblock);
    }
    signpost::name_both(device, superblock, blocks)?;
    let durable = put(device, superblock)?;
    signpost::name_one(device, superblock)?;
    Ok(durable)
}

pub(crate) fn put(device: &dyn Device, superblock: &Superblock) -> Result<Flushed> {
    let index = if mutants::is(Mutant::SuperblockSlot) { 0 } else { superblock.epoch.0 % 2 };
    write_to(device, superblock, SUPERBLOCK_SLOTS[index as usize])?;
    // The same flush makes both durable, so the far copy is never older than the slot that counts when anything is used
    // again that only an older one reaches (R2).
    write_to(device, superblock, superblock.geometry.far_copy())?;
    Ok(flush_unless(device, Mutant::SuperblockFlush)?)
}

/// Makes the superblock durable that a store was opened from, and the signpost right, before anything else is written.
///
/// Its writer may have ended between the write and its flush, or met an error there; then
/// it can be read now and still be lost, and the one before it counts again. But blocks that
/// only that one reaches are free from now on (R2), and the recovery of the log takes them for the nodes
/// of its checkpoint, before there is another superblock. Writing it again is harmless: its slot holds
/// the same bytes or older ones.
pub(crate) fn make_durable(device: &dyn Device, superblock: &Superblock) -> Result<Flushed> {
    if mutants::is(Mutant::SuperblockNotMadeDurable) {
        return Ok(flush_unless(device, Mutant::SuperblockNotMadeDurable)?);
    }
    let _before = device.flush()?;
    let durable = put(device, superblock)?;
    signpost::name_one(device, superblock)?;
    Ok(durable)
}
