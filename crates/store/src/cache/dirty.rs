//! Which bytes of a node changed: at most four half-open ranges, sorted and disjoint (M3).
//!
//! A fifth range closes the cheapest gap, so the set only ever grows over what
//! was marked. Four because a directory operation touches a head, a tail and
//! one or two spots between; more ranges cost more than the slack they save.

/// Most ranges that are kept.
pub(crate) const RANGES_MAX: usize = 4;

/// A half-open range of bytes in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct ByteRange {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// What a merge that was forced by the limit cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Slack {
    /// Merges: 0 or 1.
    pub(crate) merges: u32,
    /// Unchanged bytes that count as dirty from now on.
    pub(crate) bytes: u32,
}

/// The dirty bytes of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirtyRanges {
    // One place more than the limit: a new range is put in order first, then a gap is closed.
    ranges: [ByteRange; RANGES_MAX + 1],
    count: usize,
}

impl DirtyRanges {
    /// The ranges in order.
    pub(crate) fn as_slice(&self) -> &[ByteRange] {
        &self.ranges[..self.count]
    }

    /// Marks `start..end`.
    #[inline]
    pub(crate) fn mark(&mut self, start: usize, end: usize) -> Slack {
        let new = ByteRange { start: start as u32, end: end as u32 };
        if new.start >= new.end {
            return Slack::default();
        }
        // The ranges first..last touch or overlap the new one.
        let first = self.as_slice().iter().take_while(|range| range.end < new.start).count();
        let last = first
            + self.as_slice()[first..].iter().take_while(|range| range.start <= new.end).count();
        if first < last {
            let merged = ByteRange {
                start: new.start.min(self.ranges[first].start),
                end: new.end.max(self.ranges[last - 1].end),
            };
            self.ranges[first] = merged;
            self.ranges.copy_within(last..self.count, first + 1);
            self.count -= last - first - 1;
            return Slack::default();
        }
        self.ranges.copy_within(first..self.count, first + 1);
        self.ranges[first] = new;
        self.count += 1;
        if self.count > RANGES_MAX { self.close_cheapest_gap() } else { Slack::default() }
    }

    fn close_cheapest_gap(&mut self) -> Slack {
        let gap = |at: usize| self.ranges[at + 1].start - self.ranges[at].end;
        let at = (0..self.count - 1).min_by_key(|&at| gap(at)).unwrap_or(0);
        let bytes = gap(at);
        self.ranges[at].end = self.ranges[at + 1].end;
        self.ranges.copy_within(at + 2..self.count, at + 1);
        self.count -= 1;
        Slack { merges: 1, bytes }
    }

    /// Whether every byte in which `now` differs from `before` is marked.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn cover_changes(&self, before: &[u8], now: &[u8]) -> bool {
        let mut at = 0;
        for range in self.as_slice() {
            let (start, end) = (range.start as usize, range.end as usize);
            if before[at..start] != now[at..start] {
                return false;
            }
            at = end;
        }
        before[at..] == now[at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::prng::Prng;

    fn invariants(dirty: &DirtyRanges) {
        assert!(dirty.as_slice().len() <= RANGES_MAX);
        assert!(dirty.as_slice().iter().all(|range| range.start < range.end));
        assert!(dirty.as_slice().windows(2).all(|pair| pair[0].end < pair[1].start));
    }

    #[test]
    fn marks_always_cover_what_was_marked_and_stay_sorted() {
        for seed in 0..500 {
            let mut prng = Prng::seeded(seed);
            let mut dirty = DirtyRanges::default();
            let mut marked = vec![false; 512];
            let mut slack_bytes = 0;
            for _ in 0..40 {
                let start = prng.below(512) as usize;
                let end = (start + prng.below(24) as usize).min(512);
                slack_bytes += dirty.mark(start, end).bytes;
                marked[start..end].fill(true);
                invariants(&dirty);
                for (at, _) in marked.iter().enumerate().filter(|(_, marked)| **marked) {
                    assert!(
                        dirty
                            .as_slice()
                            .iter()
                            .any(|range| (range.start..range.end).contains(&(at as u32))),
                        "seed {seed}: byte {at} was marked and is not covered"
                    );
                }
            }
            let covered: u32 = dirty.as_slice().iter().map(|range| range.end - range.start).sum();
            let exact = marked.iter().filter(|marked| **marked).count() as u32;
            assert!(covered <= exact + slack_bytes, "seed {seed}: slack is not accounted for");
        }
    }

    #[test]
    fn a_fifth_range_closes_the_cheapest_gap() {
        let mut dirty = DirtyRanges::default();
        for start in [0, 100, 200, 300] {
            assert_eq!(dirty.mark(start, start + 10), Slack::default());
        }
        assert_eq!(dirty.mark(315, 320), Slack { merges: 1, bytes: 5 });
        assert_eq!(dirty.as_slice()[3], ByteRange { start: 300, end: 320 });
    }

    #[test]
    fn touching_ranges_become_one_and_empty_ones_nothing() {
        let mut dirty = DirtyRanges::default();
        dirty.mark(10, 20);
        dirty.mark(20, 30);
        dirty.mark(5, 5);
        assert_eq!(dirty.as_slice(), [ByteRange { start: 10, end: 30 }]);
    }

    #[test]
    fn a_change_outside_the_ranges_is_noticed() {
        let mut dirty = DirtyRanges::default();
        dirty.mark(4, 8);
        let before = [0u8; 16];
        let mut now = before;
        now[5] = 1;
        assert!(dirty.cover_changes(&before, &now));
        now[8] = 1;
        assert!(!dirty.cover_changes(&before, &now));
    }
}
