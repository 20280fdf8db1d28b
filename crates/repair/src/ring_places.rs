//! Frames and batches that one place of a ring lacks: written again from the other one, in place. The volume stays what it is, rings and
//! superblocks; only what a recovery reads is written.
//!
//! A power cut leaves any part of it: what is written lies in places that do not count, or is there already.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_check::reading::VolumeReading;
use holdfast_check::{Facts, Issue, Options as CheckOptions, Report, check};
use holdfast_device::Device;

use crate::copies::{Mend, Mended, Mends};
use crate::error::RepairError;
use crate::overlay::Overlay;
use crate::plan::Repair;
use crate::undo::{SECTOR, SECTORS, read_sectors};
use crate::write::Planned;
use crate::{RepairOptions, has_bad_ring_places, is_repaired};

/// Whether nothing else is to be repaired. Else journal and log go into the trees, and no place of them is needed.
pub(crate) fn is_all(report: &Report, options: &RepairOptions) -> bool {
    let stays = |issue| match issue {
        Issue::FramePlaceBad
        | Issue::BatchPlaceBad
        | Issue::SettingUnknown
        | Issue::DataDamaged
        | Issue::DataUnreadable => true,
        Issue::Fault => !options.data,
        _ => false,
    };
    has_bad_ring_places(report) && report.findings.iter().all(|it| stays(it.issue()))
}

/// Sectors of a block that are written again, and the block that has them.
#[derive(Debug)]
struct Bad {
    sectors: [bool; SECTORS],
    sound: u64,
}

/// The blocks of bad places in which sectors are bad.
fn blocks(report: &Report) -> BTreeMap<u64, Bad> {
    let mut blocks = BTreeMap::<u64, Bad>::new();
    for part in &report.bad_ring_parts {
        let sectors = (part.bad / SECTOR as u64..).zip(part.sound / SECTOR as u64..);
        for (bad, sound) in sectors.take((part.bytes / SECTOR as u64) as usize) {
            let (block, at) = (bad / SECTORS as u64, bad % SECTORS as u64);
            // Both places begin at a block: what is in one of a bad place is in one of the other.
            let new = || Bad { sectors: [false; SECTORS], sound: sound / SECTORS as u64 };
            blocks.entry(block).or_insert_with(new).sectors[at as usize] = true;
        }
    }
    blocks
}

/// The block with the bad sectors from the other place. Of the others those that do not read come from there as well: nothing that counts
/// is lost with them, which the check of the result proves.
fn composed(
    device: &dyn Device,
    block: u64,
    bad: &Bad,
) -> Result<Box<[u8; BLOCK_SIZE]>, RepairError> {
    let (mut bytes, is_read) = read_sectors(device, block);
    let (there, _) = read_sectors(device, bad.sound);
    let sectors = bytes.as_chunks_mut::<SECTOR>().0;
    for (at, (sector, from)) in sectors.iter_mut().zip(there.as_chunks::<SECTOR>().0).enumerate() {
        let place = block.saturating_mul(BLOCK_BYTES) + (at * SECTOR) as u64;
        let does_read = is_read || device.read(place, &mut [0; SECTOR]).is_ok();
        if bad.sectors[at] || !does_read {
            *sector = *from;
        }
    }
    Ok(Box::new(bytes))
}

/// What a recovery takes from the rings.
fn recovered(facts: &Facts) -> [u64; 6] {
    [
        facts.journal_commits,
        facts.journal_nodes,
        facts.journal_bytes_used,
        facts.log_batches,
        facts.log_records,
        facts.log_bytes_used,
    ]
}

/// Writes the bad places to memory, and has the check prove that nothing else has changed.
pub(crate) fn plan(
    device: &dyn Device,
    before: &Report,
    options: &RepairOptions,
) -> Result<Planned, RepairError> {
    let reading = VolumeReading::open(device, false)?;
    // Blocks that are bad as a whole are not kept: there may be as many as a ring has.
    let (mut mends, mut partly) = (Mends::new(), Vec::new());
    for (block, bad) in blocks(before) {
        match bad.sectors {
            [true, ..] if bad.sectors == [true; SECTORS] => {
                mends.insert(block, Mend { sound: bad.sound, is_late: false });
            }
            _ => partly.push((block, bad)),
        }
    }
    let mended = Mended::with(device, mends.clone());
    let overlay = Overlay::new(&mended);
    for (block, bad) in partly {
        overlay.put(BlockNo(block), &composed(device, block, &bad)?[..]);
    }
    let check_options = CheckOptions { data: options.data, progress: None };
    let after = check(&overlay, &check_options)?;
    let is_same = recovered(&after.facts) == recovered(&before.facts);
    if !is_same || has_bad_ring_places(&after) || !is_repaired(&after) {
        return RepairError::refused(
            "nothing is written: with the bad places of journal and log written again the volume would not be what it is; mount it for \
             writing, behind which they are not needed",
        );
    }
    let repairs = [Issue::FramePlaceBad, Issue::BatchPlaceBad].into_iter().filter_map(|issue| {
        let found = before.findings.iter().filter(|it| it.issue() == issue);
        let first = found.min_by_key(|it| it.block)?.block?;
        let of = if issue == Issue::FramePlaceBad {
            "frames of the journal"
        } else {
            "batches of the log"
        };
        let what = format!(
            "bad places of {of}, from block {first} on, are written again from the other ones"
        );
        Some(Repair { issue, tree: None, path: None, what, loses: false })
    });
    let (repairs, blocks) = (repairs.collect(), overlay.into_blocks());
    Ok(Planned::in_place(repairs, after, blocks, mends, reading.superblock()))
}
