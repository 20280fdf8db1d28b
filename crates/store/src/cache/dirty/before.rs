//! `dirty=bitmap` and `dirty=whole`: how a node remembered its changes before ranges (M3).

use super::{ByteRange, Marked};

/// Bytes that a bit of [`Bitmap`] stands for.
const CHUNK: usize = 128;
/// Bits of the largest node.
const BITS: usize = holdfast_format::limits::NODE_SIZES[2] / CHUNK;

/// What a node remembers of its changes.
#[derive(Clone, Debug)]
pub(crate) enum Before {
    /// A bit for each chunk.
    Bitmap(Box<Bitmap>, usize),
    /// Before that: whether anything changed.
    Whole {
        /// Whether anything did.
        changed: bool,
        /// Bytes of the node.
        size: usize,
    },
}

impl Before {
    /// Nothing changed yet in a node of `size` bytes.
    pub(crate) fn bitmap(size: usize) -> Before {
        Before::Bitmap(Box::default(), size)
    }

    /// Nothing changed yet in a node of `size` bytes.
    pub(crate) fn whole(size: usize) -> Before {
        Before::Whole { changed: false, size }
    }

    /// As [`super::Tracker::mark`].
    pub(crate) fn mark(&mut self, start: usize, end: usize) -> Marked {
        match self {
            Before::Bitmap(bitmap, _) => bitmap.mark(start, end),
            Before::Whole { changed, size } => {
                let grown = if *changed { 0 } else { *size as u32 };
                *changed = true;
                Marked { grown, ..Marked::default() }
            }
        }
    }

    /// As [`super::Tracker::measure`].
    pub(crate) fn measure(&self) -> (usize, usize) {
        match self {
            Before::Bitmap(bitmap, size) => bitmap.measure(*size),
            Before::Whole { changed: true, size } => (1, *size),
            Before::Whole { changed: false, .. } => (0, 0),
        }
    }

    /// As [`super::Tracker::ranges`].
    pub(crate) fn ranges(&self, out: &mut Vec<ByteRange>) {
        match self {
            Before::Bitmap(bitmap, size) => bitmap.ranges(*size, out),
            Before::Whole { changed: false, .. } => {}
            Before::Whole { changed: true, size } => out.push(ByteRange::new(0, *size)),
        }
    }

    /// As [`super::Tracker::clear`].
    pub(crate) fn clear(&mut self) {
        match self {
            Before::Bitmap(bitmap, _) => bitmap.bits = [0; BITS / 64],
            Before::Whole { changed, .. } => *changed = false,
        }
    }
}

/// A bit for each chunk of 128 bytes. Set on every change, by words; when a commit is formatted
/// they are walked bit by bit, once for the size and once for the content. (A walk that skips empty
/// words, as kernels have helpers for, would cost a fifth of this or less.)
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    bits: [u64; BITS / 64],
}

impl Default for Bitmap {
    fn default() -> Bitmap {
        Bitmap { bits: [0; BITS / 64] }
    }
}

impl Bitmap {
    fn mark(&mut self, start: usize, end: usize) -> Marked {
        let mut marked = Marked::default();
        if start >= end {
            return marked;
        }
        let (first, last) = (start / CHUNK, (end - 1) / CHUNK);
        for word in first / 64..=last / 64 {
            let from = first.saturating_sub(word * 64);
            let to = (last - word * 64).min(63);
            let mask = (u64::MAX << from) & (u64::MAX >> (63 - to));
            marked.grown += (mask & !self.bits[word]).count_ones() * CHUNK as u32;
            self.bits[word] |= mask;
        }
        marked
    }

    fn is_set(&self, bit: usize) -> bool {
        self.bits[bit / 64] >> (bit % 64) & 1 == 1
    }

    fn measure(&self, size: usize) -> (usize, usize) {
        let (mut runs, mut chunks, mut inside) = (0, 0, false);
        for bit in 0..size / CHUNK {
            let set = self.is_set(bit);
            chunks += usize::from(set);
            runs += usize::from(set && !inside);
            inside = set;
        }
        (runs, chunks * CHUNK)
    }

    fn ranges(&self, size: usize, out: &mut Vec<ByteRange>) {
        let mut start = None;
        for bit in 0..size / CHUNK {
            match (self.is_set(bit), start) {
                (true, None) => start = Some(bit),
                (false, Some(first)) => {
                    out.push(ByteRange::new(first * CHUNK, bit * CHUNK));
                    start = None;
                }
                _ => {}
            }
        }
        if let Some(first) = start {
            out.push(ByteRange::new(first * CHUNK, size));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::prng::Prng;

    #[test]
    fn the_bitmap_covers_what_was_marked_in_whole_chunks() {
        for seed in 0..200 {
            let mut prng = Prng::seeded(seed);
            let mut tracker = Before::bitmap(4096);
            let mut chunks = [false; 32];
            for _ in 0..prng.below(12) {
                let start = prng.below(4096) as usize;
                let end = (start + prng.below(300) as usize).min(4096);
                tracker.mark(start, end);
                for at in start..end {
                    chunks[at / CHUNK] = true;
                }
            }
            let mut ranges = Vec::new();
            tracker.ranges(&mut ranges);
            let bytes: u32 = ranges.iter().map(|range| range.end - range.start).sum();
            assert_eq!(tracker.measure(), (ranges.len(), bytes as usize), "seed {seed}");
            for (chunk, set) in chunks.iter().enumerate() {
                let at = (chunk * CHUNK) as u32;
                let covered = ranges.iter().any(|range| range.start <= at && at < range.end);
                assert_eq!(covered, *set, "seed {seed}: chunk {chunk}");
            }
            tracker.clear();
            assert_eq!(tracker.measure(), (0, 0));
        }
    }
}
