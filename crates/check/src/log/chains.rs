//! Which whole batches behind a hole follow one another: one pass over the ring finds them, and the blocks that they need. A batch that is
//! beyond the bounds on memory (P10) is not there.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use holdfast_format::Superblock;
use holdfast_format::log::{Content, Decoder, LogHeader, REPLAY_BYTES_MAX, Record};

use super::blocks::Blocks;
use super::{Replay, Ring};
use crate::runs::Runs;

/// Most bytes that the blocks take which batches need, and those of one more batch.
const NEEDED_MAX: u64 = 64 << 20;

/// A whole batch: its header and records.
pub(super) type Batch = (LogHeader, Vec<u8>);

/// What a ring has behind a hole.
#[derive(Debug)]
pub(super) struct BehindHole {
    pub(super) chains: Vec<Linked>,
    /// The last batch that any calls durable.
    pub(super) proven: u64,
    /// As [`Later::needed`](super::Later::needed).
    pub(super) needed: Runs,
}

/// Batches that follow one another.
#[derive(Debug)]
pub(super) struct Linked {
    /// The first number that was not handed out before, where what the first batch follows is known.
    pub(super) first: Option<u64>,
    /// The last batch that they call durable.
    pub(super) durable: u64,
    pub(super) batches: Vec<Batch>,
}

/// Reads the ring from the end of `replay` on.
pub(super) fn read(ring: &Ring<'_>, replay: &Replay) -> BehindHole {
    let (mut found, mut bytes, mut needed) = (BTreeMap::new(), 0u64, Blocks::default());
    ring.beyond(replay.end.batch, &mut |header, records| {
        // It stands in two places.
        let Entry::Vacant(place) = found.entry((header.number, header.sum)) else { return };
        bytes = bytes.saturating_add(header.bytes.into());
        if bytes <= REPLAY_BYTES_MAX && needed.bytes() <= NEEDED_MAX {
            need(&mut needed, header, records, &replay.superblock);
            place.insert((*header, records.to_vec()));
        }
    });
    let (chains, proven) = linked(ring, replay, found);
    BehindHole { chains, proven, needed: needed.runs() }
}

/// Adds the blocks that a batch takes, and those on which data in it builds.
fn need(needed: &mut Blocks, header: &LogHeader, records: &[u8], now: &Superblock) {
    let decoder = Decoder::new(records, header.records, &now.geometry, now.carried());
    for record in decoder.map_while(Result::ok) {
        let Record::Take(blocks, content) = record else { continue };
        let (start, end) = blocks.ends();
        needed.unite(start, end);
        if let Content::Inside(patches) = content {
            let bases = patches.iter().filter_map(|patch| patch.base);
            bases.for_each(|base| needed.unite(base.0, base.0.saturating_add(1)));
        }
    }
}

/// The chains of these batches, in the order of their numbers, and the last batch that any calls durable.
fn linked(
    ring: &Ring<'_>,
    replay: &Replay,
    found: BTreeMap<(u64, u64), Batch>,
) -> (Vec<Linked>, u64) {
    let proven = found.values().map(|(header, _)| header.durable).max().unwrap_or(0);
    let now = &replay.superblock;
    let (mut chains, mut seen) = (Vec::<Linked>::new(), HashMap::<u64, (usize, LogHeader)>::new());
    for batch in found.into_values() {
        let header = batch.0;
        let last = seen.get(&header.prior).copied();
        let follows = last.filter(|(_, last)| ring.follows(last, &header));
        if let Some(chain) = follows.and_then(|(at, _)| chains.get_mut(at)) {
            chain.durable = chain.durable.max(header.durable);
            seen.extend(follows.map(|(at, _)| (header.sum, (at, header))));
            chain.batches.push(batch);
            continue;
        }
        if header.records == 0 {
            // It confirms the batch before it, or nothing that is there.
            let confirmed = seen.get(&!header.prior).and_then(|(at, _)| chains.get_mut(*at));
            if let Some(chain) = confirmed {
                chain.durable = chain.durable.max(header.durable);
            }
            continue;
        }
        // Behind a change of the lineage: it left a number out, and no operation lies between.
        let known =
            last.filter(|(_, last)| last.last == header.after && last.number < header.number);
        let mark = (now.log.sum, now.lsn.0);
        let is_beyond = header.number > replay.end.batch.0 && mark.0 != 0;
        let is_next = is_beyond && (header.prior, header.after) == mark;
        let first = known.map(|(_, last)| last.inode_next);
        let first = first.or(is_next.then_some(now.inode_next.0));
        seen.insert(header.sum, (chains.len(), header));
        chains.push(Linked { first, durable: header.durable, batches: vec![batch] });
    }
    chains.retain(|chain| {
        let first = chain.batches.first().map_or(u64::MAX, |(first, _)| first.number);
        first <= chain.durable.saturating_add(1)
    });
    (chains, proven)
}
