//! Which bytes of a file were accepted, could not be written, and are gone (P1, P7).
//!
//! While a file has lost bytes, every fsync of it fails: a program that ignored the first error, or opened the file
//! before another one did, is not told that its bytes are safe. Lost bytes are forgotten when they are written again,
//! cut off or made zeros, or when the file's last handle is closed.

use std::collections::BTreeMap;
use std::ops::Range;

use holdfast_sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Ranges that are kept apart: as many as the default of `dirty_bytes` has blocks, so that a program which wrote here
/// and there gets rid of them by writing the same again. More are taken together with what lies between them.
const RANGES_MAX: usize = 1 << 16;
/// Ranges that what is written again may leave; a hole inside one more is not noted.
const FORGET_MAX: usize = 2 * RANGES_MAX;

/// The lost bytes of one file.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Read without the lock: mostly nothing is lost.
    any: AtomicBool,
    /// Ends by starts; they neither touch nor overlap.
    ranges: Mutex<BTreeMap<u64, u64>>,
}

impl Lost {
    /// These bytes are lost.
    pub(crate) fn add(&self, ranges: impl IntoIterator<Item = Range<u64>>) {
        let mut known = self.ranges.lock();
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            let (mut start, mut end) = (range.start, range.end);
            while let Some((&from, &to)) = known.range(..=end).next_back() {
                if to < start {
                    break;
                }
                known.remove(&from);
                (start, end) = (start.min(from), end.max(to));
            }
            known.insert(start, end);
            if known.len() > 2 * RANGES_MAX {
                join_nearest(&mut known);
            }
        }
        if known.len() > RANGES_MAX {
            join_nearest(&mut known);
        }
        self.any.store(!known.is_empty(), Ordering::Release);
    }

    /// Forgets the lost bytes of `range`: they were written again, or are to be zeros.
    pub(crate) fn forget(&self, range: Range<u64>) {
        if !self.any.load(Ordering::Acquire) || range.is_empty() {
            return;
        }
        let mut known = self.ranges.lock();
        while let Some((&from, &to)) = known.range(..range.end).next_back() {
            if to <= range.start {
                break;
            }
            if from < range.start && to > range.end && known.len() >= FORGET_MAX {
                // All of it stays lost until more of it is written again: memory has a bound.
                break;
            }
            known.remove(&from);
            if from < range.start {
                known.insert(from, range.start);
            }
            if to > range.end {
                known.insert(range.end, to);
            }
        }
        self.any.store(!known.is_empty(), Ordering::Release);
    }

    /// Forgets all: the file's last handle is closed.
    pub(crate) fn forget_all(&self) {
        self.forget(0..u64::MAX);
    }

    /// The first range that is lost.
    pub(crate) fn first(&self) -> Option<Range<u64>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.ranges.lock().first_key_value().map(|(&from, &to)| from..to)
    }
}

/// Takes the nearest ranges together, until no more are left than may be.
fn join_nearest(known: &mut BTreeMap<u64, u64>) {
    let gap = |pair: &[(u64, u64)]| pair[1].0 - pair[0].1;
    let ends: Vec<(u64, u64)> = std::mem::take(known).into_iter().collect();
    let mut gaps: Vec<u64> = ends.windows(2).map(gap).collect();
    let surplus = ends.len().saturating_sub(RANGES_MAX);
    if surplus == 0 {
        return known.extend(ends);
    }
    let (_, &mut widest, _) = gaps.select_nth_unstable(surplus - 1);
    // Of several gaps as wide as the widest one that has to go, the first.
    let mut as_wide = surplus - gaps.iter().filter(|gap| **gap < widest).count();
    let mut ends = ends.into_iter();
    let mut last = ends.next();
    for (start, end) in ends {
        let Some((first, before)) = last else { break };
        let gap = start - before;
        let joins = gap < widest || gap == widest && as_wide > 0;
        if joins && gap == widest {
            as_wide -= 1;
        }
        last = Some((if joins { first } else { start }, end));
        if !joins {
            known.insert(first, before);
        }
    }
    known.extend(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(lost: &Lost) -> Vec<(u64, u64)> {
        lost.ranges.lock().iter().map(|(&from, &to)| (from, to)).collect()
    }

    #[test]
    fn lost_bytes_are_wanted_until_all_of_them_were_written_again() {
        let lost = Lost::default();
        lost.forget(0..10);
        assert_eq!(lost.first(), None);
        lost.add([10..20, 30..40, 20..25, 24..32, 5..5]);
        assert_eq!(ranges(&lost), [(10, 40)]);
        lost.forget(0..12);
        lost.forget(20..22);
        lost.forget(39..50);
        assert_eq!(ranges(&lost), [(12, 20), (22, 39)]);
        lost.forget(12..20);
        assert_eq!(lost.first(), Some(22..39));
        lost.forget(22..39);
        assert_eq!(lost.first(), None);
        lost.add(std::iter::once(7..8));
        lost.forget_all();
        assert_eq!(lost.first(), None);
    }

    #[test]
    fn what_is_written_again_in_small_parts_takes_no_memory_without_a_bound() {
        let lost = Lost::default();
        lost.add(std::iter::once(0..1 << 20));
        const { assert!(4 * FORGET_MAX <= 1 << 20) };
        for at in 0..2 * FORGET_MAX as u64 {
            lost.forget(2 * at..2 * at + 1);
        }
        let all = ranges(&lost);
        assert_eq!((all.len(), all[0], all[FORGET_MAX - 1].1), (FORGET_MAX, (1, 2), 1 << 20));
        lost.forget(0..1 << 20);
        assert_eq!(lost.first(), None);
    }

    #[test]
    fn of_many_ranges_the_nearest_are_taken_together() {
        let lost = Lost::default();
        lost.add((0..RANGES_MAX as u64).map(|n| n * 100..n * 100 + 10));
        lost.add(std::iter::once(15..20));
        let all = ranges(&lost);
        assert_eq!((all.len(), all[0], all[1]), (RANGES_MAX, (0, 20), (100, 110)));
        // Far more at once.
        lost.add((0..4 * RANGES_MAX as u64).map(|n| (1 << 40) + n * 50..(1 << 40) + n * 50 + 1));
        let all = ranges(&lost);
        assert_eq!(all.len(), RANGES_MAX);
        assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0));
        let end = (1 << 40) + (4 * RANGES_MAX as u64 - 1) * 50 + 1;
        assert_eq!((all[0].0, all[all.len() - 1].1), (0, end));
    }
}
