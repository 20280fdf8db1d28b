//! The records of block groups, which an opening reads, and their bitmaps, which come when a group is first used.
//!
//! A bitmap is missed as a node is: the call that wants it changes nothing, lets go of the locks, has it loaded and tries again (R4).
//! What does not read, or is not what the record says, makes its group count as full: a lost bitmap would free what is in use.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::ops::ControlFlow;

use holdfast_base::BlockRange;
use holdfast_format::item::group::{GroupItem, bitmap_key};
use holdfast_format::superblock::SHARED_BLOCKS;
use holdfast_format::{Key, Malformed};

use crate::load::Loading;
use crate::space::alloc::Space;
use crate::space::{Pieces, Wants, by_group, group_range};
use crate::tree::{Missing, MissingSet, TreeNo};
use crate::{Inner, Result, StoreError};

/// Bytes of leaves with records that an opening reads before it looks at them.
const LEAVES_BYTES: usize = 16 << 20;
/// So many groups are loaded at the opening, those that nodes go to first: a volume of up to 4 GiB is known as a whole.
pub(crate) const AT_ONCE: usize = 32;
/// Groups that are looked at more closely before a caller hears that no slot is free.
const UNSURE: usize = 64;
/// A tree has hardly more levels.
const LEVELS: usize = 4;

fn damage(why: String) -> StoreError {
    StoreError::Item { what: "the space tree".into(), source: Malformed::new("block group", why) }
}

impl Loading<'_> {
    /// Takes bitmaps into memory, where they stay until the call is over. Those that cannot be are lost.
    pub(crate) fn bring(&mut self, groups: &[u64]) {
        if groups.is_empty() {
            return;
        }
        let inner = self.inner;
        {
            let mut space = inner.space.lock();
            groups.iter().for_each(|index| space.groups.pin(*index));
        }
        self.groups.extend(groups);
        // All together, as far as they read.
        for _ in 0..LEVELS {
            let mut missing = MissingSet::default();
            for index in groups {
                if let Err(one) = inner.take_bitmap(*index)
                    && !missing.add(one)
                {
                    break;
                }
            }
            if missing.is_empty() {
                break;
            }
            if self.load_all(missing).is_err() {
                break;
            }
        }
        for index in groups {
            while let Err(missing) = inner.take_bitmap(*index) {
                if let Err(error) = self.load_all(missing) {
                    inner.lose_bitmap(*index, &error);
                }
            }
        }
        // What lies beside these costs no read.
        if let Some(next) = groups.last().and_then(|index| index.checked_add(1)) {
            let _ = inner.take_bitmap(next);
        }
    }
}

impl Inner {
    /// Takes the bitmap of a group into memory if the nodes that have it are there.
    fn take_bitmap(&self, index: u64) -> std::result::Result<(), Missing> {
        let mut forest = self.forest.write();
        let mut space = self.space.lock();
        if index >= space.group_count() || !space.groups.is_away(index) {
            return Ok(());
        }
        let mut pieces = Pieces::default();
        for (piece, bytes) in (0..).zip(&mut pieces) {
            *bytes = forest.get(TreeNo::SPACE, &bitmap_key(index, piece))?;
        }
        space.groups.evict();
        let loaded = space.load(index, &pieces);
        // They are judged again when they are wanted, and read for that: a node that was read beside another may be one of before.
        let strangers = space.not_used(forest.cache.within(group_range(index)));
        forest.cache.forget_clean(&strangers);
        drop(space);
        drop(forest);
        if let Err(why) = loaded {
            self.says_lost(index, &why);
        }
        Ok(())
    }

    fn lose_bitmap(&self, index: u64, error: &StoreError) {
        let is_lost = self.space.lock().lose(index);
        if is_lost {
            self.says_lost(index, &error.as_reason());
        }
    }

    fn says_lost(&self, index: u64, why: &str) {
        let why = format!("block group {index} counts as full: its bitmap is damaged: {why}");
        tracing::error!("{why}");
        self.found_damage(&why);
    }

    /// Does something with the space when the bitmaps of `range` are in memory.
    pub(crate) fn with_bitmaps<R>(
        &self,
        range: BlockRange,
        work: impl FnOnce(&mut Space) -> R,
    ) -> R {
        let mut loading = self.loading();
        let groups: Vec<u64> = self.space.lock().groups_of(range).collect();
        loading.bring(&groups);
        let mut space = self.space.lock();
        work(&mut space)
    }

    /// Whether no block of `range`, which may come from a damaged disk and be of any length, may be given away.
    pub(crate) fn is_busy(&self, range: BlockRange) -> bool {
        if self.space.lock().is_unknown() {
            return true;
        }
        let is_busy = |part: BlockRange| self.with_bitmaps(part, |space| space.is_busy(part));
        self.geometry().holds_data(range) && by_group(range).all(|(_, part)| is_busy(part))
    }

    /// Loads the bitmaps that are wanted before long, so that no caller waits for them. No lock is held.
    pub(crate) fn load_ahead(&self) {
        let wanted = self.space.lock().wanted_soon();
        if let Some(Wants(index)) = wanted {
            self.loading().bring(&[index]);
        }
    }

    /// Looks how many slots are really free in groups of which only a bound is known. Says whether there were any. No lock is held.
    pub(crate) fn look_closer(&self, unsure: impl FnOnce(&Space, usize) -> Vec<Wants>) -> bool {
        let unsure = unsure(&self.space.lock(), UNSURE);
        let groups: Vec<u64> = unsure.into_iter().map(|Wants(index)| index).collect();
        self.loading().bring(&groups);
        !groups.is_empty()
    }

    /// Reads the records of all groups, and judges them together.
    pub(crate) fn load_groups(&self) -> Result<()> {
        let (mut from, to) = (GroupItem::key(0), GroupItem::key(u64::MAX));
        let most = LEAVES_BYTES.checked_div(self.geometry().node_size).unwrap_or(0);
        loop {
            // Many side by side; what comes stays until it was looked at.
            let mut loading = self.loading();
            let end = loop {
                let found = self.forest.read().leaves_of(TreeNo::SPACE, (&from, &to), most);
                match found {
                    Ok(end) => break end,
                    Err(missing) => loading.load(missing)?,
                }
            };
            self.read_records(&from, end.as_ref().unwrap_or(&to))?;
            if end.is_some() {
                // There are many leaves, and none is wanted soon.
                loading.forget();
            }
            match end {
                Some(end) => from = end,
                None => break,
            }
        }
        let mut space = self.space.lock();
        let superblock = self.superblock.lock();
        if space.used_blocks() != superblock.used_blocks {
            return Err(damage(format!(
                "the superblock counts {} blocks in use, the groups {}",
                superblock.used_blocks,
                space.used_blocks()
            )));
        }
        space.inodes = superblock.inode_count;
        space.loaded = true;
        Ok(())
    }

    fn read_records(&self, from: &Key, to: &Key) -> Result<()> {
        let counts = self.superblock.lock().features_ro_compat & SHARED_BLOCKS != 0;
        let record = |index: u64, item: GroupItem| match item.shared_blocks > 0 && !counts {
            true => Err(format!("group {index} has shared blocks, and the volume none")),
            false => self.space.lock().record(index, &item),
        };
        let mut wrong = Ok(());
        self.scan(TreeNo::SPACE, from, to, &mut |key, value| {
            // The one at the end is read with those behind it.
            if key == *to && key.offset != u64::MAX {
                return ControlFlow::Break(());
            }
            let item = GroupItem::decode(value).map_err(|malformed| malformed.to_string());
            wrong = item.and_then(|item| record(key.offset, item));
            if wrong.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        wrong.map_err(damage)
    }

    /// Loads the bitmaps that the first changes want; a reader makes none.
    pub(crate) fn load_first_bitmaps(&self, most: usize) {
        let most = if self.read_only { 0 } else { most };
        let first: Vec<u64> = {
            let space = self.space.lock();
            (0..space.group_count())
                .filter(|index| space.groups.is_away(*index))
                .take(most)
                .collect()
        };
        self.loading().bring(&first);
    }
}
