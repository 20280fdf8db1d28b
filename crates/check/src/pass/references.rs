//! References to blocks of data: as many as are counted, where a volume counts them; one, where it does not.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::BlockNo;
use holdfast_format::Malformed;
use holdfast_format::item::SharedItem;
use holdfast_format::superblock::SHARED_BLOCKS;

use super::{Context, Reference, Use};
use crate::issue::Issue;

/// Blocks with more than one reference, each with so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) references: u64,
}

/// Whether the volume counts references.
pub(super) fn are_counted(context: &Context<'_>) -> bool {
    context.volume.superblock.features_ro_compat & SHARED_BLOCKS != 0
}

/// Why an item cannot be in a volume that does not.
pub(super) fn not_counted() -> Malformed {
    Malformed::new(SharedItem::TITLE, "the volume has no shared blocks")
}

/// Blocks of a range that the items count.
pub(super) fn between(said: &[Counted], start: u64, end: u64) -> u64 {
    let inside = |of: &Counted| of.end.min(end).saturating_sub(of.start.max(start));
    said.iter().map(inside).sum()
}

/// Compares what the items say, in the order of their keys, with what trees have.
pub(super) fn compare(context: &mut Context<'_>, said: &[Counted]) {
    if !are_counted(context) {
        return;
    }
    for pair in said.windows(2).filter(|pair| pair[0].end > pair[1].start) {
        let what = format!("blocks from {} on are counted twice", pair[1].start);
        context.findings.add(Issue::SpaceItemDamaged, what).block(BlockNo(pair[1].start));
    }
    let found = count(&context.uses);
    // Each place at which either says something else than before it.
    let mut places: Vec<u64> =
        said.iter().chain(&found).flat_map(|of| [of.start, of.end]).collect();
    places.sort_unstable();
    places.dedup();
    let at = |all: &[Counted], block: u64| {
        let before = all.partition_point(|of| of.start <= block).checked_sub(1);
        before.map(|at| all[at]).filter(|of| block < of.end).map_or(1, |of| of.references)
    };
    for pair in places.windows(2) {
        let (has, says) = (at(&found, pair[0]), at(said, pair[0]));
        let issue = match has.cmp(&says) {
            Ordering::Equal => continue,
            Ordering::Greater => Issue::BlocksShared,
            Ordering::Less => Issue::GroupCount,
        };
        let blocks = pair[1] - pair[0];
        let what = format!(
            "{blocks} blocks from {} on have {has} references, and {says} are counted",
            pair[0]
        );
        context.findings.add(issue, what).block(BlockNo(pair[0]));
    }
}

/// The references to blocks that have more than one, upwards. `uses` go upwards by their first blocks.
fn count(uses: &[Use]) -> Vec<Counted> {
    let mut sweep = Sweep::default();
    for used in uses {
        let Some(reference) = used.reference() else { continue };
        let start = used.blocks.start.0;
        sweep.go_to(start);
        sweep.open(reference, start.saturating_add(used.blocks.count));
    }
    sweep.go_to(u64::MAX);
    sweep.found
}

/// A place that moves upwards over all blocks, and the references to the block there.
#[derive(Default)]
struct Sweep {
    at: u64,
    /// Behind the last block of each.
    open: BTreeMap<Reference, u64>,
    ends: BTreeSet<(u64, Reference)>,
    found: Vec<Counted>,
}

impl Sweep {
    /// Trees may have parts of one reference, which overlap: it ends with the last.
    fn open(&mut self, reference: Reference, end: u64) {
        let last = self.open.entry(reference).or_default();
        if *last < end {
            *last = end;
            self.ends.insert((end, reference));
        }
    }

    fn go_to(&mut self, to: u64) {
        while let Some((end, reference)) = self.ends.first().copied().filter(|first| first.0 <= to)
        {
            self.ends.pop_first();
            self.pass(end);
            if self.open.get(&reference) == Some(&end) {
                self.open.remove(&reference);
            }
        }
        self.pass(to);
    }

    /// The blocks up to a place have the references that the present one has.
    fn pass(&mut self, to: u64) {
        let (start, references) = (self.at, self.open.len() as u64);
        self.at = to;
        if references < 2 || start >= to {
            return;
        }
        match self.found.last_mut().filter(|of| of.end == start && of.references == references) {
            Some(last) => last.end = to,
            None => self.found.push(Counted { start, end: to, references }),
        }
    }
}
