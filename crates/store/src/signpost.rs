//! The signpost says at which size the far copy of the superblock is to be looked for. A superblock of another size is written between two
//! changes of it.
//!
//! ```text
//!  the far copy's new place is wiped -> both sizes -> superblock: slot and far copy -> the other place is wiped -> the new size alone
//!  ---------------------- FLUSH ---------- FLUSH --------------------------- FLUSH ------------------- FLUSH ---------------- FLUSH -
//! ```
//!
//! Nothing that only the superblock before reaches is used again before all that. So whenever power fails, the newest far copy that the
//! signpost leads to is that of a superblock that may count; never one that is left of a size of before, and never the content of a file.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::{Device, DeviceError};
use holdfast_format::geometry::{SIGNPOST, far_copy};
use holdfast_format::{Signpost, Superblock};

use crate::Result;

/// The signpost. `None`: it is not valid.
pub(crate) fn read(device: &dyn Device) -> std::result::Result<Option<Signpost>, DeviceError> {
    let mut block = [0; BLOCK_SIZE];
    device.read(SIGNPOST.byte_offset().expect("it lies at the start of the volume"), &mut block)?;
    Ok(Signpost::decode(&block).ok())
}

/// Writes the signpost. The flush is the caller's.
pub(crate) fn write(device: &dyn Device, signpost: Signpost) -> Result<()> {
    let at = SIGNPOST.byte_offset().expect("it lies at the start of the volume");
    Ok(device.write(at, &signpost.encode()[..])?)
}

/// Before a superblock of another size than `present` blocks is written: the far copy may be at either place.
pub(crate) fn name_both(device: &dyn Device, superblock: &Superblock, present: u64) -> Result<()> {
    let one = Signpost::of(superblock);
    if far_copy(present) != superblock.geometry.far_copy() {
        wipe(device, superblock.geometry.far_copy())?;
    }
    write(device, Signpost { sizes: [present, superblock.geometry.volume_blocks], ..one })?;
    let _named = device.flush()?;
    Ok(())
}

/// Makes the signpost name the size of `superblock` alone, which is durable in its slot and its far copy. Where it does, nothing is written.
pub(crate) fn name_one(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let one = Signpost::of(superblock);
    // One that the device does not read is written again.
    let found = read(device).ok().flatten();
    if found == Some(one) {
        return Ok(());
    }
    // What a change of size has left behind the volume is not to be found, by no signpost either. What lies before its end may be data.
    let own = found.filter(|found| found.node_tag == one.node_tag);
    for place in own.iter().flat_map(|found| found.sizes).map(far_copy) {
        if place > superblock.geometry.far_copy() && place.0 < device.len() / BLOCK_BYTES {
            wipe(device, place)?;
        }
    }
    match write(device, one) {
        // None leads nowhere wrong: no volume is refused for that.
        Err(error) if found.is_none() => tracing::warn!("the signpost cannot be written: {error}"),
        done => done?,
    }
    let _named = device.flush()?;
    Ok(())
}

fn wipe(device: &dyn Device, place: BlockNo) -> Result<()> {
    device.write(place.byte_offset().expect("it lies on the device"), &[0; BLOCK_SIZE])?;
    let _gone = device.flush()?;
    Ok(())
}
