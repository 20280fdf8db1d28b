//! Written bytes that the tree does not hold yet, block by block.
//!
//! Two layers: accepted pages (`dirty`) and pages that are being written to the device (`flight`). A block may be in
//! both: then the dirty page is newer. A page in flight never changes. It is dropped from flight only after its extent
//! is in the tree, so a reader that looks here first and into the tree after always sees one of them.
//!
//! Pages of one write share a run of memory, which stays as long as one of them does. What is left of a run that lost
//! pages moves out of it ([`Pages::dissolve_runs`]), or a few pages would keep much memory that is not counted.
//!
//! Pure: knows nothing of the device, of extents, or of the file's size.

use std::collections::BTreeMap;
use std::ops::Range;

use holdfast_base::units::BLOCK_SIZE;
use holdfast_store::Delayed;
use holdfast_store::page::{Page, RUN_PAGES};

use super::wrote::Wrote;

/// A page and what is known of its block.
#[derive(Clone, Debug)]
struct Slot {
    page: Page,
    /// The tree holds no block here, as far as the writer knew: stat counts one more.
    fresh: bool,
    /// Outside `changed` it holds what the tree holds here, or what is in flight to there.
    over_tree: bool,
    /// What the log has to hold of it.
    changed: Range<usize>,
    /// The written bytes that are lost if the page is.
    wrote: Wrote,
    /// No block is promised to it: it goes to the block that the file has reserved for it.
    in_place: bool,
}

impl Slot {
    fn whole(page: Page, fresh: bool, wrote: Wrote) -> Slot {
        Slot { page, fresh, over_tree: false, changed: 0..BLOCK_SIZE, wrote, in_place: false }
    }
}

/// A page that is taken out to be written back.
#[derive(Clone, Debug)]
pub(crate) struct DirtyPage {
    /// Its block, counted from the start of the file.
    pub(crate) block: u64,
    /// Its bytes.
    pub(crate) page: Page,
    /// Outside `changed` it holds what the tree holds there.
    pub(crate) over_tree: bool,
    /// The bytes that were written.
    pub(crate) changed: Range<usize>,
    /// It has no promised block, but one that the file has reserved for it.
    pub(crate) in_place: bool,
}

/// The pages of one file.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    dirty: BTreeMap<u64, Slot>,
    flight: BTreeMap<u64, Slot>,
    /// Fresh slots of both layers.
    fresh: u64,
    /// Slots of both layers that are written in place.
    in_place: u64,
    /// Runs of consecutive blocks in each layer.
    dirty_runs: u64,
    flight_runs: u64,
    /// Dirty pages left runs that may have others, since [`Pages::dissolve_runs`].
    has_cut_runs: bool,
    /// No block from here on has a page: what a stream adds there needs no search. Too far while pages behind are gone.
    end: u64,
}

impl Pages {
    /// The newest bytes of `block`, if they are not in the tree.
    #[cfg(test)]
    pub(crate) fn get(&self, block: u64) -> Option<&Page> {
        let slot = self.dirty.get(&block).or_else(|| self.flight.get(&block))?;
        Some(&slot.page)
    }

    /// Whether a write of `block` changes a page that is already dirty: it needs no new space.
    pub(crate) fn is_dirty(&self, block: u64) -> bool {
        block < self.end && self.dirty.contains_key(&block)
    }

    /// The newest pages of `range`, upwards.
    pub(crate) fn collect(&self, range: Range<u64>) -> BTreeMap<u64, Page> {
        let layer = |slots: &BTreeMap<u64, Slot>| -> Vec<(u64, Page)> {
            let slots = slots.range(range.clone());
            slots.map(|(&b, s)| (b, s.page.clone())).collect()
        };
        let mut pages: BTreeMap<u64, Page> = layer(&self.flight).into_iter().collect();
        pages.extend(layer(&self.dirty));
        pages
    }

    /// All of `block` was written. `fresh`: the tree holds nothing there. Returns whether a page was added.
    pub(crate) fn put(&mut self, block: u64, page: Page, fresh: bool) -> bool {
        if block < self.end
            && let Some(slot) = self.dirty.get_mut(&block)
        {
            self.has_cut_runs |= slot.page.run_pages() > 1;
            let in_place = slot.in_place;
            *slot = Slot { in_place, ..Slot::whole(page, slot.fresh, Wrote::ALL) };
            return false;
        }
        self.insert(block, page, fresh, Wrote::ALL);
        true
    }

    /// Makes `block` dirty with what it holds already, or zeros where that was cut off. None of it was written: if the
    /// page is lost, no program misses it.
    pub(crate) fn put_base(&mut self, block: u64, page: Page, fresh: bool) {
        match self.dirty.get_mut(&block) {
            Some(slot) => {
                self.has_cut_runs |= slot.page.run_pages() > 1;
                let wrote = std::mem::replace(&mut slot.wrote, Wrote::NOTHING);
                let in_place = slot.in_place;
                *slot = Slot { in_place, ..Slot::whole(page, slot.fresh, wrote) };
            }
            None => self.insert(block, page, fresh, Wrote::NOTHING),
        }
    }

    /// Makes `block`, which is not dirty, dirty as zeros.
    pub(crate) fn put_zeros(&mut self, block: u64, fresh: bool) {
        self.put_base(block, Page::zeroed(), fresh);
        if let Some(slot) = self.dirty.get_mut(&block) {
            slot.changed = 0..0;
        }
    }

    fn insert(&mut self, block: u64, page: Page, fresh: bool, wrote: Wrote) {
        // What is in flight is counted there.
        let fresh = fresh && !self.is_in_flight(block);
        self.fresh += u64::from(fresh);
        self.add_dirty(block, Slot::whole(page, fresh, wrote));
    }

    /// Adds a slot for `block`, which is not dirty.
    fn add_dirty(&mut self, block: u64, slot: Slot) {
        // A run of its own, or it makes one longer, or one of two.
        let neighbours = if block < self.end {
            let beside = block.saturating_sub(1)..=block.saturating_add(1);
            self.dirty.range(beside).count() as u64
        } else {
            let last = self.dirty.last_key_value();
            u64::from(last.is_some_and(|(&last, _)| last + 1 == block))
        };
        self.dirty_runs = self.dirty_runs + 1 - neighbours;
        self.end = self.end.max(block.saturating_add(1));
        let old = self.dirty.insert(block, slot);
        debug_assert!(old.is_none(), "block {block} was dirty");
    }

    /// Makes `block`, which is not dirty, dirty: `page` holds what the tree holds, or what is in flight to there.
    /// `fresh`: the tree holds no block there (inline content).
    pub(crate) fn put_unchanged(&mut self, block: u64, page: Page, fresh: bool) {
        // What is in flight is counted there.
        let fresh = fresh && !self.is_in_flight(block);
        self.fresh += u64::from(fresh);
        let slot = Slot {
            page,
            fresh,
            over_tree: true,
            changed: 0..0,
            wrote: Wrote::NOTHING,
            in_place: false,
        };
        self.add_dirty(block, slot);
    }

    /// Changes bytes of a block that is dirty. Returns false if it is not.
    pub(crate) fn change(&mut self, block: u64, at: usize, bytes: &[u8]) -> bool {
        let Some(slot) = self.dirty.get_mut(&block) else {
            return false;
        };
        if slot.page.run_pages() > 1 {
            self.has_cut_runs = true;
            slot.page = slot.page.alone();
        }
        // Copies only while a reader still holds the page.
        let end = at + bytes.len();
        slot.page.bytes_mut()[at..end].copy_from_slice(bytes);
        slot.changed = match slot.changed.is_empty() {
            true => at..end,
            false => slot.changed.start.min(at)..slot.changed.end.max(end),
        };
        slot.wrote.add(at..end);
        true
    }

    /// Moves what is left of runs out of them. Called at the end of each change, which gave new pages to all blocks of
    /// `changed`, or took theirs away: what is left lies before and behind, up to where runs end.
    pub(crate) fn dissolve_runs(&mut self, changed: Range<u64>) {
        if std::mem::take(&mut self.has_cut_runs) {
            self.dissolve_around(changed);
        }
    }

    fn dissolve_around(&mut self, changed: Range<u64>) {
        let border = RUN_PAGES as u64;
        let before = changed.start - changed.start % border..changed.start;
        let behind = changed.end..changed.end.checked_next_multiple_of(border).unwrap_or(u64::MAX);
        for around in [before, behind] {
            for slot in self.dirty.range_mut(around).map(|(_, slot)| slot) {
                if slot.page.run_pages() > 1 {
                    slot.page = slot.page.alone();
                }
            }
        }
    }

    /// Moves the dirty pages of `range` into flight and returns them, upwards. Nothing may be in flight.
    pub(crate) fn take(&mut self, range: Range<u64>) -> Vec<DirtyPage> {
        assert!(self.flight.is_empty(), "one write_back at a time");
        self.flight = if range == (0..u64::MAX) {
            self.flight_runs = std::mem::take(&mut self.dirty_runs);
            std::mem::take(&mut self.dirty)
        } else {
            let mut taken = self.dirty.split_off(&range.start);
            let mut rest = taken.split_off(&range.end);
            // Counted by what is taken: much more may be left.
            self.flight_runs = runs(taken.keys());
            let ends = |one: Option<(&u64, &Slot)>, next: Option<(&u64, &Slot)>| {
                u64::from(one.zip(next).is_some_and(|((one, _), (next, _))| one + 1 == *next))
            };
            let cuts = ends(self.dirty.last_key_value(), taken.first_key_value())
                + ends(taken.last_key_value(), rest.first_key_value());
            self.dirty_runs = self.dirty_runs + cuts - self.flight_runs;
            self.dirty.append(&mut rest);
            self.dissolve_around(range);
            taken
        };
        let flight = self.flight.iter();
        let dirty = flight.map(|(&block, slot)| DirtyPage {
            block,
            page: slot.page.clone(),
            over_tree: slot.over_tree,
            changed: slot.changed.clone(),
            in_place: slot.in_place,
        });
        dirty.collect()
    }

    /// Forgets all pages in flight: the tree has their bytes as an item, and counts no blocks for it. So a newer page
    /// is one that the tree does not count.
    pub(crate) fn land_inline(&mut self) {
        for (block, slot) in std::mem::take(&mut self.flight) {
            match self.dirty.get_mut(&block) {
                Some(newer) if slot.fresh => newer.fresh = true,
                _ => self.fresh -= u64::from(slot.fresh),
            }
        }
        self.flight_runs = 0;
    }

    /// Forgets the pages in flight below `end`: their extents are in the tree. Returns how many.
    pub(crate) fn land(&mut self, end: u64) -> usize {
        // Mostly all of them land, and a split would make two trees of one.
        let is_last = self.flight.last_key_value().is_none_or(|(&last, _)| last < end);
        let rest = if is_last { BTreeMap::new() } else { self.flight.split_off(&end) };
        let landed = std::mem::replace(&mut self.flight, rest);
        let goes_on = |last: &u64| self.flight.contains_key(&(last + 1));
        let cut = u64::from(landed.keys().next_back().is_some_and(goes_on));
        self.flight_runs = self.flight_runs + cut - runs(landed.keys());
        // A dirty page over one in flight was never fresh, so nothing else changes.
        self.fresh -= landed.values().filter(|slot| slot.fresh).count() as u64;
        self.forget_in_place(landed.values());
        if self.is_empty() {
            self.end = 0;
        }
        landed.len()
    }

    /// The blocks of about the first `count` dirty pages, up to where a run may end; all of them, if there are not many more.
    pub(crate) fn front(&self, count: usize) -> Range<u64> {
        let border = RUN_PAGES as u64;
        let behind =
            self.dirty.keys().nth(count).and_then(|at| at.checked_next_multiple_of(border));
        0..behind.unwrap_or(u64::MAX)
    }

    /// Makes what is in flight dirty again where nothing newer is. Returns how many pages were dropped.
    pub(crate) fn give_back(&mut self) -> usize {
        let mut dropped = 0;
        for (block, slot) in std::mem::take(&mut self.flight) {
            match self.dirty.get_mut(&block) {
                Some(newer) => {
                    // The page it was based on never reached the tree. A block is promised to it, if not to the older
                    // one.
                    let mut wrote = slot.wrote;
                    wrote.merge(&newer.wrote);
                    self.in_place -= u64::from(slot.in_place);
                    let whole = Slot::whole(newer.page.clone(), slot.fresh, wrote);
                    *newer = Slot { in_place: newer.in_place, ..whole };
                    dropped += 1;
                }
                None => {
                    // Others of its run may have landed, or are dropped here.
                    let page = slot.page.alone();
                    self.add_dirty(block, Slot { page, ..slot });
                }
            }
        }
        self.flight_runs = 0;
        dropped
    }

    /// Forgets the dirty pages of `range`. Nothing of it may be in flight. Returns how many.
    pub(crate) fn drop_dirty(&mut self, range: Range<u64>) -> usize {
        debug_assert!(self.flight.range(range.clone()).next().is_none());
        let mut taken = self.dirty.split_off(&range.start);
        let mut rest = taken.split_off(&range.end);
        self.dirty.append(&mut rest);
        self.fresh -= taken.values().filter(|slot| slot.fresh).count() as u64;
        self.forget_in_place(taken.values());
        self.dirty_runs = runs(self.dirty.keys());
        self.dissolve_around(range);
        taken.len()
    }

    /// Whether an older version of `block` is on its way to the device.
    pub(crate) fn is_in_flight(&self, block: u64) -> bool {
        block < self.end && self.flight.contains_key(&block)
    }

    /// No block is promised to `block`, which has just become dirty: its file has reserved one.
    pub(crate) fn write_in_place(&mut self, block: u64) {
        let slot = self.dirty.get_mut(&block).expect("it is dirty");
        self.in_place += u64::from(!std::mem::replace(&mut slot.in_place, true));
    }

    /// Number of pages of both layers that go to blocks which the file has reserved.
    pub(crate) fn in_place(&self) -> u64 {
        self.in_place
    }

    fn forget_in_place<'a>(&mut self, gone: impl Iterator<Item = &'a Slot>) {
        if self.in_place > 0 {
            self.in_place -= gone.filter(|slot| slot.in_place).count() as u64;
        }
    }

    /// The bytes that were written and are dirty, and no others, as ranges of the file, upwards.
    pub(crate) fn written_bytes(&self) -> impl Iterator<Item = Range<u64>> {
        self.dirty.iter().flat_map(|(&block, slot)| {
            let at = block * BLOCK_SIZE as u64;
            slot.wrote.runs().map(move |run| at + run.start as u64..at + run.end as u64)
        })
    }

    /// Number of blocks that the tree does not count yet.
    pub(crate) fn fresh(&self) -> u64 {
        self.fresh
    }

    /// The first block at or after `block` that has a page.
    pub(crate) fn next(&self, block: u64) -> Option<u64> {
        let first = |slots: &BTreeMap<u64, Slot>| slots.range(block..).next().map(|(&b, _)| b);
        match (first(&self.dirty), first(&self.flight)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The blocks from `block` on that have a page, upwards.
    pub(crate) fn blocks_from(&self, block: u64) -> Vec<u64> {
        let layer = |slots: &BTreeMap<u64, Slot>| slots.range(block..).map(|(&b, _)| b).collect();
        let mut blocks: Vec<u64> = layer(&self.dirty);
        let flight: Vec<u64> = layer(&self.flight);
        blocks.extend(flight);
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Whether nothing is dirty; something may be in flight.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Whether everything is in the tree.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.flight.is_empty()
    }

    /// What waits to come into the tree.
    pub(crate) fn delayed(&self) -> Delayed {
        Delayed { runs: self.dirty_runs + self.flight_runs, pages: self.count() as u64 }
    }

    /// Number of pages of both layers.
    pub(crate) fn count(&self) -> usize {
        self.dirty.len() + self.flight.len()
    }
}

/// Runs of consecutive blocks.
fn runs<'a>(blocks: impl Iterator<Item = &'a u64>) -> u64 {
    let mut next = None;
    blocks.filter(|&&block| next.replace(block + 1) != Some(block)).count() as u64
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
