//! Prints the journal: each commit with its frames, nodes, cancels and data, then where it ends and why.

use std::io::Write;

use holdfast_base::BlockNo;
use holdfast_device::Device;
use holdfast_format::Superblock;
use holdfast_format::journal::{Base, Commit, DataExtent};

use super::mark;
use crate::CheckError;
use crate::journal::{End, NextCommit, Ring, Whole, replay};

/// Bytes of ranges are not printed: what they make of a node, the dump of that node shows.
pub(super) fn print(
    device: &dyn Device,
    superblock: &Superblock,
    out: &mut dyn Write,
) -> Result<(), CheckError> {
    let ring = superblock.geometry.journal();
    writeln!(out, "journal block={} count={}", ring.start, ring.count)?;
    writeln!(out, "mark epoch={} {}", superblock.epoch, mark(&superblock.journal))?;
    let reader = Ring::new(device, superblock);
    let mut place = reader.start();
    while let NextCommit::Whole(whole) = reader.commit(&place)? {
        print_commit(superblock, &whole, out)?;
        place = whole.after;
    }
    let replay = replay(device, superblock)?;
    for fault in replay.lost.values().chain(&replay.faults) {
        writeln!(out, "DAMAGED block={} why={:?}", fault.block, fault.what)?;
    }
    let End { commit, at, reason, why } = &replay.end;
    writeln!(out, "end commit={commit} block={at} reason={} why={why:?}", reason.name())?;
    if let Some(damage) = &replay.damage {
        writeln!(
            out,
            "DAMAGED commit={} block={} later={} durable={} why=\"it was durable\"",
            damage.commit, damage.at, damage.later, damage.durable
        )?;
    }
    let (commits, nodes, bytes) = (replay.commits, replay.nodes.len(), replay.bytes);
    let seconds = replay.work().estimate().as_secs_f64();
    writeln!(out, "replay commits={commits} nodes={nodes} bytes={bytes} recovery={seconds}")?;
    Ok(())
}

fn print_commit(
    superblock: &Superblock,
    whole: &Whole,
    out: &mut dyn Write,
) -> Result<(), CheckError> {
    let commit = whole.commit;
    for (at, header) in &whole.frames {
        writeln!(
            out,
            "frame block={at} blocks={} commit={commit} epoch={} index={} frames={} len={} \
             durable={} prior={:016x} sum={:016x}",
            header.blocks(),
            header.epoch,
            header.index,
            header.frames,
            header.len,
            header.durable,
            header.prior,
            header.sum
        )?;
    }
    let judged = match Commit::decode(&whole.payload, whole.epoch, &superblock.geometry) {
        Ok(judged) => judged,
        Err(malformed) => {
            writeln!(out, "DAMAGED commit={commit} why={:?}", malformed.to_string())?;
            return Ok(());
        }
    };
    let head = &judged.head;
    let (files, space) = (head.files(), head.space());
    writeln!(
        out,
        "commit={commit} lsn={} inode_next={} inode_count={} used_blocks={} referenced_blocks={} \
         files_block={} files_epoch={} files_level={} space_block={} space_epoch={} space_level={} \
         nodes={} cancels={} extents={}",
        head.lsn,
        head.inode_next,
        head.inode_count,
        head.used_blocks,
        head.referenced_blocks,
        files.block,
        files.epoch,
        head.files_level,
        space.block,
        space.epoch,
        head.space_level,
        head.nodes,
        head.cancels,
        head.extents
    )?;
    for change in &judged.nodes {
        let base = match change.base {
            Base::Zeros => "new".to_string(),
            Base::Changed => "changed".to_string(),
            Base::Copied(from) => format!("copied from={} from_epoch={}", from.block, from.epoch),
        };
        let ranges: Vec<_> =
            change.ranges().map(|(start, bytes)| format!("{start}+{}", bytes.len())).collect();
        let (block, len) = (change.block, change.len());
        let ranges = ranges.join(",");
        writeln!(out, "change commit={commit} node={block} base={base} len={len} ranges={ranges}")?;
    }
    for BlockNo(block) in &judged.cancels {
        writeln!(out, "cancel commit={commit} node={block}")?;
    }
    for DataExtent { block, count, sum } in &judged.extents {
        writeln!(out, "data commit={commit} block={block} count={count} sum={sum:016x}")?;
    }
    Ok(())
}
