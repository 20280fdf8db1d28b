//! Pass 1: both superblock slots.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_format::geometry::{SIGNPOST, SUPERBLOCK_SLOTS};
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::superblock::{COMPAT_KNOWN, RO_COMPAT_KNOWN};
use holdfast_format::{Geometry, Superblock};

use super::Context;
use crate::issue::Issue;
use crate::report::Findings;
use crate::superblocks::Slots;

pub(super) fn run(context: &mut Context<'_>) {
    let findings = &mut context.findings;
    let is_lost = context.slots.newest().is_none();
    for (slot, judged) in context.slots.judged.iter().enumerate() {
        if let Err(malformed) = judged
            && !is_lost
        {
            findings
                .add(Issue::SuperblockInvalid, format!("slot {slot}: {}", malformed.why))
                .block(SUPERBLOCK_SLOTS[slot]);
        }
    }
    if let [Ok(first), Ok(second)] = &context.slots.judged
        && let Some(why) = disagreement(first, second)
    {
        findings.add(Issue::SuperblocksDisagree, why);
    }
    if context.newest_is_lost {
        let far = context.volume.superblock;
        let what = format!(
            "the slot of checkpoint {0} is not valid, and what the other slot leads to is not whole; the far copy at block {1} \
             is of checkpoint {0}, and all that follows is judged by it; `holdfast fsck -y` writes it back",
            far.epoch,
            far.geometry.far_copy()
        );
        findings.add(Issue::NewestSuperblockLost, what).block(far.slot());
    } else if let Some(far) = context.slots.only_far() {
        let mut words = words_of(context.slots);
        words.push(format!(
            "the far copy at block {} is of checkpoint {}, and all that follows is judged by it; \
             `holdfast fsck -y` writes it back if it leads to whole trees",
            far.geometry.far_copy(),
            far.epoch
        ));
        findings.add(Issue::NoSuperblock, words.join("; ")).block(SUPERBLOCK_SLOTS[0]);
    } else if let Some(Err(malformed)) = &context.slots.far {
        let place = context.volume.superblock.geometry.far_copy();
        findings.add(Issue::FarCopyInvalid, malformed.why.clone()).block(place);
    }
    if let Some(why) = context.slots.wrong_signpost(context.volume.superblock) {
        findings.add(Issue::FarCopyInvalid, format!("the signpost to it: {why}")).block(SIGNPOST);
    }
    if let Some(fault) = context.slots.fault() {
        findings.add(Issue::Fault, fault.reason.clone());
    }
    let superblock = context.volume.superblock;
    let device_blocks = context.volume.device.len() / BLOCK_BYTES;
    if superblock.geometry.volume_blocks > device_blocks {
        let volume_blocks = superblock.geometry.volume_blocks;
        findings.add(
            Issue::VolumeCutShort,
            format!("the volume has {volume_blocks} blocks of 4 KiB, the device {device_blocks}"),
        );
    }
    let unknown = (superblock.features_compat & !COMPAT_KNOWN)
        | (superblock.features_ro_compat & !RO_COMPAT_KNOWN);
    if unknown != 0 {
        findings.add(Issue::FeaturesUnknown, format!("unknown feature bits: {unknown:#x}"));
    }
    // A writer gives no number behind it.
    let next = context.lineage.next().filter(|next| *next > COUNTER_MAX / 2);
    let next = next.map(|next| ("next number of a branch or snapshot", next));
    if let Some((what, count)) = context.recovered.log.high_counter().or(next) {
        findings.add(Issue::CounterHigh, format!("the {what} is {count}"));
    }
}

/// What is reported when there is nothing to go on with.
pub(super) fn none_is_valid(slots: &Slots, findings: &mut Findings) {
    findings.add(Issue::NoSuperblock, words_of(slots).join("; ")).block(SUPERBLOCK_SLOTS[0]);
}

/// What is wrong with each slot.
fn words_of(slots: &Slots) -> Vec<String> {
    if let [Err(first), Err(second)] = &slots.judged
        && first == second
    {
        return vec![format!("both slots: {}", first.why)];
    }
    let words = slots.judged.iter().enumerate().filter_map(|(slot, judged)| {
        let malformed = judged.as_ref().err()?;
        Some(format!("slot {slot}: {}", malformed.why))
    });
    words.collect()
}

/// Where the rings begin, and the data: only their lengths change.
fn place_of_rings(geometry: &Geometry) -> [u64; 4] {
    let Geometry { log_start, journal_start, data_start, ring_distance, .. } = *geometry;
    [log_start, journal_start, data_start, ring_distance]
}

/// What two superblocks of one volume may not differ in.
fn disagreement(first: &Superblock, second: &Superblock) -> Option<String> {
    if first.epoch == second.epoch && first != second {
        return Some(format!("both are of epoch {}, but they differ", first.epoch));
    }
    let fixed = [
        ("node tag", first.node_tag != second.node_tag),
        ("node size", first.geometry.node_size != second.geometry.node_size),
        ("place of rings", place_of_rings(&first.geometry) != place_of_rings(&second.geometry)),
        ("copy mask", first.geometry.copy_mask != second.geometry.copy_mask),
        ("copies of leaves", first.geometry.leaf_copies != second.geometry.leaf_copies),
        ("time of making", first.created != second.created),
        ("hash seed", first.hash_seed != second.hash_seed),
        ("ring tag", first.ring_tag != second.ring_tag),
    ];
    if let Some((what, _)) = fixed.iter().find(|(_, differ)| *differ) {
        return Some(format!("their {what} differs, although it never changes"));
    }
    let (old, new) = if first.epoch < second.epoch { (first, second) } else { (second, first) };
    let shrunk = [
        ("last operation", old.lsn.0, new.lsn.0),
        ("next inode", old.inode_next.0, new.inode_next.0),
    ];
    let (what, old, new) = shrunk.into_iter().find(|(_, old, new)| new < old)?;
    Some(format!("their {what} went backwards, from {old} to {new}"))
}
