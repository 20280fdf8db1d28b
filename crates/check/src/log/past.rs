//! Whole batches behind one that is lost although it was durable: what of them can be without it.
//!
//! No mount goes on behind a lost batch, as it shows a prefix of history (P3). A repair that gives the lost batch up, and a salvage,
//! take what came later as well: a batch says what its keys hold now, so most do not need the one before. A batch that does
//! not fit without the lost one (it gives back blocks that are not in use, or changes a branch that is not there) is left out alone.

use std::collections::BTreeMap;

use holdfast_base::BatchNo;
use holdfast_format::log::{LogHeader, REPLAY_BYTES_MAX};

use super::apply::State;
use super::ring::{Ring, Whole};
use super::{Replay, count};
use crate::volume::Volume;

/// Takes all that can be of what lies behind the damage in `replay`.
pub(super) fn take(before: &Volume<'_>, ring: &Ring<'_>, state: &mut State, replay: &mut Replay) {
    let Some(damage) = &replay.damage else { return };
    let (missing, durable) = (damage.batch, damage.proof.durable);
    for whole in in_order(ring, replay, missing) {
        // A batch that does not count may have changed it.
        let lineage = state.lineage.clone();
        let judged = state.judge(&whole, before, replay);
        let is_there = |named: &[_]| {
            whole.number() <= durable || crate::arrived::missing(before.device, named).is_none()
        };
        match judged.ok().filter(|judged| is_there(&judged.named)) {
            Some(judged) => {
                count(state, judged, ring, &whole, replay);
                replay.behind.insert(whole.number());
            }
            None => state.lineage = lineage,
        }
    }
}

/// The whole batches behind number `missing`, each of which was made behind the one before it and lies behind it in the ring: what was
/// given up by a recovery does not.
fn in_order(ring: &Ring<'_>, replay: &Replay, missing: BatchNo) -> Vec<Whole> {
    let (mut found, mut bytes) = (BTreeMap::new(), 0);
    ring.beyond(missing.next(), &mut |header, records| {
        bytes += u64::from(header.bytes);
        if bytes <= REPLAY_BYTES_MAX {
            found.insert(header.number, (*header, records.to_vec()));
        }
    });
    let mut last: Option<LogHeader> = None;
    let (mut lsn, mut end) = (replay.superblock.lsn.0, 0u64);
    let mut batches = Vec::new();
    for (header, records) in found.into_values() {
        let at = ring.distance(replay.end.at, header.address);
        let next = last.filter(|last| last.number.checked_add(1) == Some(header.number));
        let follows = next.is_none_or(|last| (header.prior, header.after) == (last.sum, last.last));
        let Some(behind) = at.checked_add(u64::from(header.bytes)) else { continue };
        if at < end || behind > ring.len() || header.after < lsn || !follows {
            continue;
        }
        (lsn, end, last) = (header.last, behind, Some(header));
        batches.push(ring.found(header, records));
    }
    batches
}
