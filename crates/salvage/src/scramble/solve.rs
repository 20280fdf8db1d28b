//! Finds names of given lengths whose hashes are in a given order.
//!
//! A tree orders names by their hashes. New names whose hashes come in the order of the old ones leave each key in its node and each
//! node as it is. Such names are found by chance: the range of the hashes is divided into windows, one for each name, and names
//! are drawn until each window has one of its length. A directory of n names with d lengths takes about d · n · ln n draws.
//! Names of one or two bytes are too few for that: they are placed first, and the windows of the others lie between them.

use std::collections::HashMap;
use std::rc::Rc;

use holdfast_base::prng::Prng;

use super::draw::{Hashing, LISTED_MAX, Shape};

/// How often other windows are tried.
const ATTEMPTS: u32 = 16;
/// From this attempt on, names may have any bytes.
const LETTERS_ONLY: u32 = 4;
/// A window so many times narrower than on average is not waited for.
const NARROW: u64 = 256;

/// What takes a place in the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// Length 0: a key without a name.
    pub(super) shape: Shape,
    /// The name stays, and so does its hash.
    pub(super) fixed: Option<u64>,
}

/// A hash and what its name is drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) hash: u64,
    pub(super) draw: u64,
}

pub(super) struct Solver {
    hashing: Hashing,
    prng: Prng,
    /// Names that are listed, by their hashes.
    lists: HashMap<(Shape, bool), Rc<[Drawn]>>,
    name: Vec<u8>,
}

/// Units `start..end`, whose hashes are above `low` and below `high`.
struct Segment {
    start: usize,
    end: usize,
    low: u64,
    high: u64,
}

impl Solver {
    pub(super) fn new(hashing: Hashing, prng: Prng) -> Solver {
        Solver { hashing, prng, lists: HashMap::new(), name: Vec::new() }
    }

    /// A name of this shape whose hash is another one.
    pub(super) fn draw_beside(&mut self, shape: Shape, hash: u64) -> u64 {
        loop {
            let drawn = self.draw(shape, false);
            if drawn.hash != hash {
                return drawn.draw;
            }
        }
    }

    /// Ascending hashes for `units`. `None`: there are no such names, or they are too hard to find.
    pub(super) fn solve(&mut self, units: &[Unit]) -> Option<Vec<Drawn>> {
        (0..ATTEMPTS).find_map(|attempt| self.attempt(units, attempt))
    }

    fn attempt(&mut self, units: &[Unit], attempt: u32) -> Option<Vec<Drawn>> {
        let is_any = attempt >= LETTERS_ONLY && matches!(self.hashing, Hashing::Slots(_));
        let fixed = |unit: &Unit| unit.fixed.map(|hash| Drawn { hash, draw: 0 });
        let mut placed: Vec<Option<Drawn>> = units.iter().map(fixed).collect();
        for free in 1..=LISTED_MAX {
            for segment in self.segments(&placed)? {
                self.place_listed(units, &segment, (free, is_any, attempt), &mut placed)?;
            }
        }
        self.place_drawn(units, is_any, &mut placed)?;
        let drawn: Vec<Drawn> = placed.into_iter().collect::<Option<_>>()?;
        drawn.is_sorted_by(|a, b| a.hash < b.hash).then_some(drawn)
    }

    /// What lies between those that have a place. `None` if there is no room.
    fn segments(&self, placed: &[Option<Drawn>]) -> Option<Vec<Segment>> {
        let mut segments = Vec::new();
        let (mut start, mut low) = (0, 0);
        let end = Drawn { hash: self.hashing.end(), draw: 0 };
        let anchors = placed.iter().enumerate().filter_map(|(at, it)| it.map(|it| (at, it)));
        for (at, anchor) in anchors.chain([(placed.len(), end)]) {
            let room = anchor.hash.checked_sub(low)?;
            if room <= (at - start) as u64 {
                return None;
            }
            if at > start {
                segments.push(Segment { start, end: at, low, high: anchor.hash });
            }
            (start, low) = (at + 1, anchor.hash);
        }
        Some(segments)
    }

    /// Places the names of `free` bytes of a segment as evenly as it can.
    fn place_listed(
        &mut self,
        units: &[Unit],
        segment: &Segment,
        (free, is_any, attempt): (usize, bool, u32),
        placed: &mut [Option<Drawn>],
    ) -> Option<()> {
        let range = segment.start..segment.end;
        let wanted: Vec<usize> = range.filter(|at| units[*at].shape.free() == free).collect();
        let step = (segment.high - segment.low) / ((segment.end - segment.start) as u64 + 1);
        let mut low = segment.low;
        for (index, at) in wanted.iter().enumerate() {
            let list = self.list(units[*at].shape, is_any);
            let from = list.partition_point(|drawn| drawn.hash <= low);
            let to = list.partition_point(|drawn| drawn.hash < segment.high);
            // Those that follow need one each.
            let last = to.checked_sub(wanted.len() - index).filter(|last| *last >= from)?;
            let jitter = if attempt == 0 { 0 } else { self.prng.below(step.max(1)) };
            let even = segment.low + step * (*at - segment.start + 1) as u64;
            let target = (even - step / 2 * u64::from(attempt > 0)).saturating_add(jitter);
            let near = list.partition_point(|drawn| drawn.hash < target);
            let is_before = near > 0
                && list.get(near).is_none_or(|it| it.hash - target > target - list[near - 1].hash);
            let drawn = list[(near - usize::from(is_before)).clamp(from, last)];
            placed[*at] = Some(drawn);
            low = drawn.hash;
        }
        Some(())
    }

    /// Draws names until each has one in its window.
    fn place_drawn(
        &mut self,
        units: &[Unit],
        is_any: bool,
        placed: &mut [Option<Drawn>],
    ) -> Option<()> {
        let windows = self.windows(placed)?;
        let without = units.iter().zip(placed.iter()).filter(|(_, placed)| placed.is_none());
        let mut classes: Vec<(Shape, u64)> = without.map(|(unit, _)| (unit.shape, 1)).collect();
        classes.sort_unstable();
        classes.dedup_by(|next, one| {
            next.0 == one.0 && {
                one.1 += next.1;
                true
            }
        });
        for (at, unit) in units.iter().enumerate() {
            if placed[at].is_none() && unit.shape.len == 0 {
                let (start, width) = windows.0[at];
                placed[at] = Some(Drawn { hash: start + self.prng.below(width), draw: 0 });
            }
        }
        for (shape, count) in classes.into_iter().filter(|(shape, _)| shape.len > 0) {
            self.fill(units, &windows, (shape, is_any, count), placed)?;
        }
        Some(())
    }

    /// The window of each unit without a place: its start and width.
    fn windows(&self, placed: &[Option<Drawn>]) -> Option<Windows> {
        let hash = |drawn: &Option<Drawn>| (drawn.map_or(0, |drawn| drawn.hash), 0);
        let mut windows: Vec<(u64, u64)> = placed.iter().map(hash).collect();
        for segment in self.segments(placed)? {
            let width = (segment.high - segment.low - 1) / (segment.end - segment.start) as u64;
            for (index, at) in (segment.start..segment.end).enumerate() {
                windows[at] = (segment.low + 1 + index as u64 * width, width);
            }
        }
        Some(Windows(windows))
    }

    fn fill(
        &mut self,
        units: &[Unit],
        windows: &Windows,
        (shape, is_any, mut count): (Shape, bool, u64),
        placed: &mut [Option<Drawn>],
    ) -> Option<()> {
        let own = (0..units.len()).filter(|at| placed[*at].is_none() && units[*at].shape == shape);
        let narrowest = own.map(|at| windows.0[at].1).min()?.max(1);
        let each = self.hashing.end() / narrowest;
        if each > (units.len() as u64).saturating_mul(NARROW).saturating_add(1 << 20) {
            return None;
        }
        // Waiting for the last of n takes ln n times as long as for one.
        let draws = each.saturating_mul(u64::from(count.ilog2()) + 4).saturating_mul(8);
        for _ in 0..draws {
            let drawn = self.draw(shape, is_any);
            let Some(at) = windows.find(drawn.hash, self.hashing.end()) else { continue };
            if units[at].shape == shape && placed[at].is_none() {
                placed[at] = Some(drawn);
                count -= 1;
                if count == 0 {
                    return Some(());
                }
            }
        }
        None
    }

    fn draw(&mut self, shape: Shape, is_any: bool) -> Drawn {
        let draw = shape.draw(self.prng.next_u64(), is_any);
        shape.name(draw, &mut self.name);
        Drawn { hash: self.hashing.of(shape, &self.name), draw }
    }

    fn list(&mut self, shape: Shape, is_any: bool) -> Rc<[Drawn]> {
        if let Some(list) = self.lists.get(&(shape, is_any)) {
            return list.clone();
        }
        let draw = |number| {
            let draw = shape.draw_of(number, is_any);
            shape.name(draw, &mut self.name);
            Drawn { hash: self.hashing.of(shape, &self.name), draw }
        };
        let mut list: Vec<Drawn> = (0..shape.listed(is_any)).map(draw).collect();
        list.sort_unstable_by_key(|drawn| drawn.hash);
        list.dedup_by_key(|drawn| drawn.hash);
        let list: Rc<[Drawn]> = list.into();
        self.lists.insert((shape, is_any), list.clone());
        list
    }
}

/// Start and width of each, upwards; those of width 0 are taken.
struct Windows(Vec<(u64, u64)>);

impl Windows {
    /// The one that a hash is in.
    fn find(&self, hash: u64, end: u64) -> Option<usize> {
        let all = &self.0;
        // They are nearly even: the place is near to where it would be then.
        let guess = (u128::from(hash) * all.len() as u128 / u128::from(end)) as usize;
        let (low, high) = (guess.saturating_sub(8), (guess + 8).min(all.len()));
        let is_below = |at: usize| all.get(at).is_some_and(|(start, _)| *start <= hash);
        let near = match is_below(low) && !is_below(high) {
            true => low..high,
            false => 0..all.len(),
        };
        let after = near.start + all[near].partition_point(|(start, _)| *start <= hash);
        let at = after.checked_sub(1)?;
        let (start, width) = all[at];
        (hash - start < width).then_some(at)
    }
}
