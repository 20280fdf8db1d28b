//! Prints the log: each batch with its records, then where it ends and why.

use std::io::Write;

use holdfast_base::{BlockRange, TreeId};
use holdfast_device::Device;
use holdfast_format::log::{Content, Decoder, Dropped, LogMark, Record};
use holdfast_format::{Carried, Geometry, Key};

use crate::CheckError;
use crate::changes::Change;
use crate::log::{Damage, End, Ring, Whole};
use crate::recovered::Recovered;
use crate::text;

pub(super) fn mark(mark: &LogMark) -> String {
    format!("batch={} next={} sum={:016x}", mark.batch, mark.next, mark.sum)
}

/// Bytes of data are not printed, only how many.
pub(super) fn print(
    device: &dyn Device,
    recovered: &Recovered,
    out: &mut dyn Write,
) -> Result<(), CheckError> {
    let (before, replay) = (&recovered.journal.superblock, &recovered.log);
    let zone = before.geometry.log();
    writeln!(out, "log block={} count={}", zone.start, zone.count)?;
    writeln!(out, "mark lsn={} {}", before.lsn, mark(&before.log))?;
    if let Some(error) = recovered.journal_error.as_ref().or(recovered.log_error.as_ref()) {
        writeln!(out, "DAMAGED why={:?}", error.to_string())?;
    }
    let ring = Ring::new(device, before);
    let mut place = ring.start();
    while let Ok(whole) = ring.batch(&place)? {
        print_batch((&before.geometry, before.carried()), &ring, &whole, out)?;
        if whole.overlaps {
            break;
        }
        place = whole.after;
    }
    for fault in &replay.faults {
        writeln!(out, "DAMAGED block={} why={:?}", fault.block, fault.what)?;
    }
    let End { batch, at, reason, why } = &replay.end;
    writeln!(out, "end batch={batch} at={at} reason={} why={why:?}", reason.name())?;
    if let Some(Damage { batch, proof }) = &replay.damage {
        writeln!(
            out,
            "DAMAGED batch={batch} at={} later={} durable={} why=\"it was durable\"",
            proof.at, proof.batch, proof.durable
        )?;
    }
    if let Some((block, error)) = &replay.unsearched {
        writeln!(out, "DAMAGED block={block} why={error:?}")?;
    }
    let now = &replay.superblock;
    writeln!(
        out,
        "replay batches={} skipped={} records={} bytes={} lsn={} inode_next={} inode_count={} \
         used_blocks={}",
        replay.batches,
        replay.skipped,
        replay.records,
        replay.bytes,
        now.lsn,
        now.inode_next,
        now.inode_count,
        now.used_blocks
    )?;
    Ok(())
}

fn print_batch(
    (geometry, carried): (&Geometry, Carried),
    ring: &Ring<'_>,
    whole: &Whole,
    out: &mut dyn Write,
) -> Result<(), CheckError> {
    let header = &whole.header;
    let number = header.number;
    writeln!(
        out,
        "batch={number} at={} block={} bytes={} after={} last={} durable={} records={} len={} \
         inode_next={} inode_count={} prior={:016x} sum={:016x}",
        header.address,
        ring.block(header.address),
        header.bytes,
        header.after,
        header.last,
        header.durable,
        header.records,
        header.len,
        header.inode_next,
        header.inode_count,
        header.prior,
        header.sum
    )?;
    for record in Decoder::new(&whole.records, header.records, geometry, carried) {
        match record {
            Ok(record) => print_record(number, &record, out)?,
            Err(malformed) => {
                writeln!(out, "DAMAGED batch={number} why={:?}", malformed.to_string())?;
            }
        }
    }
    Ok(())
}

fn print_record(batch: u64, record: &Record<'_>, out: &mut dyn Write) -> Result<(), CheckError> {
    let blocks = |blocks: &BlockRange| format!("block={} count={}", blocks.start, blocks.count);
    match record {
        Record::Put(key, value) => {
            writeln!(out, "put batch={batch} {}", text::item(key, value))?;
        }
        Record::Inode(number, item) => {
            let value = item.encode();
            writeln!(out, "put batch={batch} {}", text::item(&Key::inode(*number), &value))?;
        }
        Record::Delete(key) => writeln!(out, "delete batch={batch} {}", text::key(key))?,
        Record::Take(range, Content::Unwritten) => {
            writeln!(out, "take batch={batch} {}", blocks(range))?;
        }
        Record::Take(range, Content::Summed(sum)) => {
            writeln!(out, "take batch={batch} {} sum={sum:016x}", blocks(range))?;
        }
        Record::Take(range, Content::Inside(patches)) => {
            writeln!(out, "take batch={batch} {} inside={}", blocks(range), patches.len())?;
            for (block, patch) in (range.start.0..).zip(patches) {
                let base = patch.base.map_or("zeros".into(), |base| base.to_string());
                let (at, len) = (patch.at, patch.bytes.len());
                writeln!(out, "data batch={batch} block={block} base={base} at={at} len={len}")?;
            }
        }
        Record::Free(range) => writeln!(out, "free batch={batch} {}", blocks(range))?,
        Record::Branch { id, inode_count } => {
            writeln!(out, "branch batch={batch} id={id} inode_count={inode_count}")?;
        }
        Record::Drop(Dropped { blocks: range, birth, at }) => {
            let (inode, offset, range) = (at.inode, at.offset, blocks(range));
            writeln!(
                out,
                "drop batch={batch} {range} birth={birth} inode={inode} offset={offset:#x}"
            )?;
        }
    }
    Ok(())
}

/// What the log makes of items of the files trees, or of branches and snapshots.
pub(super) fn print_items(
    recovered: &Recovered,
    tree: TreeId,
    out: &mut dyn Write,
) -> Result<(), CheckError> {
    let log = &recovered.log;
    let others = log.branches.iter().map(|(id, of)| (format!(" branch={id}"), &of.items));
    let files = std::iter::once((String::new(), &log.items)).chain(others);
    let lists: Vec<_> = match tree {
        TreeId::Files => files.collect(),
        TreeId::Space => vec![(String::new(), &log.lineage)],
    };
    for (branch, items) in lists {
        for (key, Change { value, block }) in items {
            match value {
                Some(value) => {
                    writeln!(out, "item log={block}{branch} {}", text::item(key, value))?
                }
                None => writeln!(out, "deleted log={block}{branch} {}", text::key(key))?,
            }
        }
    }
    Ok(())
}
