//! What of a node changed since its last commit (M3).
//!
//! At most four half-open ranges, sorted and disjoint. A fifth range closes the
//! cheapest gap, so the set only ever grows over what was marked. Four because
//! a directory operation touches a head, a tail and one or two spots between;
//! more ranges cost more than the slack they save.
//!
//! [`Tracker`] is the switch: its other positions are what filesystems did
//! before, and are there only to be measured. Only this file knows which
//! position it is in.

#[cfg(feature = "before")]
mod before;

use holdfast_base::switch::Dirty;

#[cfg(feature = "before")]
use before::Before;

/// Most ranges that are kept.
pub(crate) const RANGES_MAX: usize = 4;

/// A half-open range of bytes in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct ByteRange {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl ByteRange {
    pub(crate) fn new(start: usize, end: usize) -> ByteRange {
        ByteRange { start: start as u32, end: end as u32 }
    }

    /// Start and end.
    pub(crate) fn pair(&self) -> (usize, usize) {
        (self.start as usize, self.end as usize)
    }
}

/// What a mark did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Marked {
    /// Bytes that count as dirty from now on and did not before, slack included.
    pub(crate) grown: u32,
    /// Merges that the limit forced.
    pub(crate) merges: u32,
    /// Unchanged bytes that those merges made dirty.
    pub(crate) slack: u32,
}

impl std::ops::AddAssign for Marked {
    fn add_assign(&mut self, other: Marked) {
        self.grown += other.grown;
        self.merges += other.merges;
        self.slack += other.slack;
    }
}

/// What a node remembers of its changes.
#[derive(Clone, Debug)]
pub(crate) enum Tracker {
    Ranges(DirtyRanges),
    #[cfg(feature = "before")]
    Before(Before),
}

impl Tracker {
    /// Nothing changed yet in a node of `size` bytes.
    #[cfg_attr(not(feature = "before"), expect(unused_variables, reason = "ranges need no size"))]
    pub(crate) fn new(how: Dirty, size: usize) -> Tracker {
        match how {
            Dirty::Ranges => Tracker::Ranges(DirtyRanges::default()),
            #[cfg(feature = "before")]
            Dirty::Bitmap => Tracker::Before(Before::bitmap(size)),
            #[cfg(feature = "before")]
            Dirty::Whole => Tracker::Before(Before::whole(size)),
        }
    }

    /// Marks `start..end` as changed.
    #[inline]
    pub(crate) fn mark(&mut self, start: usize, end: usize) -> Marked {
        match self {
            Tracker::Ranges(ranges) => ranges.mark(start, end),
            #[cfg(feature = "before")]
            Tracker::Before(before) => before.mark(start, end),
        }
    }

    /// Whether a mark of `start..end` would make no other byte dirty.
    pub(crate) fn takes(&self, start: usize, end: usize) -> bool {
        match self {
            Tracker::Ranges(ranges) => ranges.takes(start, end),
            #[cfg(feature = "before")]
            Tracker::Before(_) => true,
        }
    }

    /// Number of ranges and bytes that [`Tracker::ranges`] will append.
    pub(crate) fn measure(&self) -> (usize, usize) {
        match self {
            Tracker::Ranges(ranges) => ranges.measure(),
            #[cfg(feature = "before")]
            Tracker::Before(before) => before.measure(),
        }
    }

    /// Appends what to log of the node.
    pub(crate) fn ranges(&self, out: &mut Vec<ByteRange>) {
        match self {
            Tracker::Ranges(ranges) => out.extend_from_slice(ranges.as_slice()),
            #[cfg(feature = "before")]
            Tracker::Before(before) => before.ranges(out),
        }
    }

    /// Appends what to log of a new node of `size` bytes whose content ends at `head` and goes on from `heap`.
    pub(crate) fn ranges_of_new(
        &self,
        head: usize,
        heap: usize,
        size: usize,
        out: &mut Vec<ByteRange>,
    ) {
        match self {
            #[cfg(feature = "before")]
            Tracker::Before(Before::Whole { .. }) => out.push(ByteRange::new(0, size)),
            _ if heap == size => out.push(ByteRange::new(0, head)),
            _ => out.extend([ByteRange::new(0, head), ByteRange::new(heap, size)]),
        }
    }

    /// Forgets all marks: they are part of a commit.
    pub(crate) fn clear(&mut self) {
        match self {
            Tracker::Ranges(ranges) => *ranges = DirtyRanges::default(),
            #[cfg(feature = "before")]
            Tracker::Before(before) => before.clear(),
        }
    }
}

/// A range that holds and meets nothing: what stands in unused places.
const NOWHERE: ByteRange = ByteRange { start: u32::MAX, end: 0 };

/// The dirty bytes of one node.
#[derive(Clone, Debug)]
pub(crate) struct DirtyRanges {
    // One place more than the limit: a new range is put in order first, then a gap is closed.
    ranges: [ByteRange; RANGES_MAX + 1],
    count: usize,
}

impl Default for DirtyRanges {
    fn default() -> DirtyRanges {
        DirtyRanges { ranges: [NOWHERE; RANGES_MAX + 1], count: 0 }
    }
}

impl DirtyRanges {
    /// The ranges in order.
    pub(crate) fn as_slice(&self) -> &[ByteRange] {
        &self.ranges[..self.count]
    }

    fn takes(&self, start: usize, end: usize) -> bool {
        let meets = |range: &ByteRange| range.start as usize <= end && start <= range.end as usize;
        self.count < RANGES_MAX || self.as_slice().iter().any(meets)
    }

    fn measure(&self) -> (usize, usize) {
        let bytes = self.as_slice().iter().map(|range| (range.end - range.start) as usize).sum();
        (self.count, bytes)
    }

    /// Marks `start..end`.
    #[inline]
    pub(crate) fn mark(&mut self, start: usize, end: usize) -> Marked {
        let new = ByteRange::new(start, end);
        // Most marks fall into a range that is there: the head, the slots. All places are compared,
        // without asking how many are in use; that is a few instructions without a branch.
        let [a, b, c, d, _] = &self.ranges;
        let holds = |range: &ByteRange| (range.start <= new.start) & (new.end <= range.end);
        if holds(a) | holds(b) | holds(c) | holds(d) {
            return Marked::default();
        }
        self.add(new)
    }

    fn add(&mut self, new: ByteRange) -> Marked {
        if new.start >= new.end {
            return Marked::default();
        }
        let count = self.count;
        // The ranges first..last touch or overlap the new one.
        let mut first = 0;
        while first < count && self.ranges[first].end < new.start {
            first += 1;
        }
        let mut last = first;
        let mut before = 0;
        while last < count && self.ranges[last].start <= new.end {
            before += self.ranges[last].end - self.ranges[last].start;
            last += 1;
        }
        if first < last {
            let merged = ByteRange {
                start: new.start.min(self.ranges[first].start),
                end: new.end.max(self.ranges[last - 1].end),
            };
            self.ranges[first] = merged;
            self.take_out(first + 1, last - first - 1);
            return Marked { grown: merged.end - merged.start - before, ..Marked::default() };
        }
        let mut at = count;
        while at > first {
            self.ranges[at] = self.ranges[at - 1];
            at -= 1;
        }
        self.ranges[first] = new;
        self.count += 1;
        let mut marked = Marked { grown: new.end - new.start, ..Marked::default() };
        if self.count > RANGES_MAX {
            let slack = self.close_cheapest_gap();
            marked += Marked { grown: slack, merges: 1, slack };
        }
        marked
    }

    /// Takes `count` ranges out from `at` on.
    fn take_out(&mut self, at: usize, count: usize) {
        if count == 0 {
            return;
        }
        for to in at..self.count {
            let from = to + count;
            self.ranges[to] = if from < self.count { self.ranges[from] } else { NOWHERE };
        }
        self.count -= count;
    }

    /// Returns the bytes of the gap.
    fn close_cheapest_gap(&mut self) -> u32 {
        let gap = |at: usize| self.ranges[at + 1].start - self.ranges[at].end;
        let at = (0..self.count - 1).min_by_key(|&at| gap(at)).unwrap_or(0);
        let bytes = gap(at);
        self.ranges[at].end = self.ranges[at + 1].end;
        self.take_out(at + 1, 1);
        bytes
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
            let (mut slack_bytes, mut grown_bytes) = (0, 0);
            for _ in 0..40 {
                let start = prng.below(512) as usize;
                let end = (start + prng.below(24) as usize).min(512);
                let grown = dirty.mark(start, end);
                slack_bytes += grown.slack;
                grown_bytes += grown.grown;
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
            assert_eq!(covered, grown_bytes, "seed {seed}");
        }
    }

    #[test]
    fn a_fifth_range_closes_the_cheapest_gap() {
        let mut dirty = DirtyRanges::default();
        for start in [0, 100, 200, 300] {
            let whole = Marked { grown: 10, ..Marked::default() };
            assert_eq!(dirty.mark(start, start + 10), whole);
        }
        assert_eq!(dirty.mark(315, 320), Marked { grown: 10, merges: 1, slack: 5 });
        assert_eq!(dirty.as_slice()[3], ByteRange { start: 300, end: 320 });
    }

    #[test]
    fn bytes_that_grow_are_those_that_will_be_logged() {
        for &how in Dirty::ALL {
            let mut tracker = Tracker::new(how, 16384);
            let marks = [(100, 110), (104, 300), (5000, 5001)];
            let grown: u32 = marks.map(|(start, end)| tracker.mark(start, end).grown).iter().sum();
            assert_eq!(tracker.measure().1, grown as usize, "{how:?}");
        }
    }

    #[test]
    fn touching_ranges_become_one_and_empty_ones_nothing() {
        let mut dirty = DirtyRanges::default();
        dirty.mark(10, 20);
        dirty.mark(20, 30);
        dirty.mark(5, 5);
        assert_eq!(dirty.as_slice(), [ByteRange { start: 10, end: 30 }]);
    }
}
