//! The space that a repair may take.

use std::collections::BTreeMap;

use holdfast_base::BlockNo;
use holdfast_check::runs::Runs;
use holdfast_format::{Geometry, Stored};

/// Space that nothing reaches, neither before the repair nor behind it.
#[derive(Debug)]
pub(crate) struct Space {
    /// What the bitmaps call free as well, and what only the trees do: the former is taken first. What lies below a node that
    /// cannot be read may still be marked, and can be looked for later.
    free: [BTreeMap<u64, u64>; 2],
    /// Where the search goes on in each.
    next: [u64; 2],
}

impl Space {
    /// All of the data zone but `used`, and first of all what is not `marked` either.
    pub(crate) fn new(geometry: &Geometry, used: &[(u64, u64)], marked: &Runs) -> Space {
        let (zone, none) =
            ((geometry.first_data_block().0, geometry.far_copy().0), Runs::default());
        let used = used.iter().copied().collect();
        let unused = Runs::from_iter([zone]).changed(&none, &used);
        let first = unused.changed(&none, marked);
        let second = unused.changed(&none, &first);
        Space { free: [first, second].map(|runs| runs.iter().collect()), next: [0, 0] }
    }

    /// Takes `count` neighbours, the first of which is a multiple of `align`.
    pub(crate) fn take(&mut self, count: u64, align: u64) -> Option<u64> {
        (0..2).find_map(|kind| {
            let from = self.next[kind];
            let found = fit(&self.free[kind], from..u64::MAX, count, align)
                .or_else(|| fit(&self.free[kind], 0..from, count, align))?;
            let (start, end, at) = found;
            let free = &mut self.free[kind];
            free.remove(&start);
            if start < at {
                free.insert(start, at);
            }
            if at + count < end {
                free.insert(at + count, end);
            }
            self.next[kind] = at + count;
            Some(at)
        })
    }

    /// Takes a place for a node, and that of its copy.
    pub(crate) fn take_node(&mut self, geometry: &Geometry, stored: Stored) -> Option<BlockNo> {
        let count = geometry.node_blocks();
        if stored == Stored::Once {
            return self.take(count, count).map(BlockNo);
        }
        let found = self.free.iter().find_map(|free| {
            let starts = free.iter().flat_map(|(start, end)| {
                let first = start.next_multiple_of(count);
                (first..).step_by(count as usize).take_while(move |at| at + count <= *end)
            });
            { starts }.map(BlockNo).find(|at| {
                let copy =
                    geometry.copy_of(*at, stored).filter(|_| geometry.holds_node(*at, stored));
                copy.is_some_and(|copy| self.run_of(copy.0, count).is_some())
            })
        })?;
        for place in geometry.places_of_node(found, stored) {
            let (kind, run) = self.run_of(place.start.0, count)?;
            let free = &mut self.free[kind];
            let end = free.remove(&run)?;
            let rest = [(run, place.start.0), (place.start.0 + count, end)];
            free.extend(rest.into_iter().filter(|(start, end)| start < end));
        }
        Some(found)
    }

    /// The free run that has all of these, and of which kind it is.
    fn run_of(&self, at: u64, count: u64) -> Option<(usize, u64)> {
        self.free.iter().enumerate().find_map(|(kind, free)| {
            let (start, end) = free.range(..=at).next_back()?;
            (at + count <= *end).then_some((kind, *start))
        })
    }
}

/// The first run that has room, and where in it.
fn fit(
    free: &BTreeMap<u64, u64>,
    range: std::ops::Range<u64>,
    count: u64,
    align: u64,
) -> Option<(u64, u64, u64)> {
    free.range(range).find_map(|(&start, &end)| {
        let at = start.checked_next_multiple_of(align)?;
        (at.checked_add(count)? <= end).then_some((start, end, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::prng::Prng;

    /// What is taken is free, aligned and never taken twice; and what is not marked goes first.
    #[test]
    fn space_agrees_with_single_blocks() {
        let geometry = Geometry::for_device(8 << 20, 4096).expect("8 MiB are enough");
        let zone = geometry.first_data_block().0..geometry.far_copy().0;
        for seed in 0..50 {
            let mut prng = Prng::seeded(seed);
            let mut runs = || {
                let run = |start: u64| (start, start + 1 + start % 5);
                (0..100).map(|_| run(zone.start + prng.below(1500))).collect::<Vec<_>>()
            };
            let (used, marked) = (runs(), runs());
            let among =
                |runs: &[(u64, u64)], block| runs.iter().any(|r| (r.0..r.1).contains(&block));
            let mut space = Space::new(&geometry, &used, &marked.iter().copied().collect());
            let mut taken = Vec::new();
            let mut was_marked = false;
            while let Some(at) = space.take(2, 2) {
                assert!(
                    at % 2 == 0 && zone.contains(&at) && zone.contains(&(at + 1)),
                    "seed {seed}"
                );
                for block in at..at + 2 {
                    assert!(!among(&used, block) && !taken.contains(&block), "seed {seed} {block}");
                    taken.push(block);
                }
                let is_marked = among(&marked, at) || among(&marked, at + 1);
                assert!(is_marked || !was_marked, "seed {seed}: {at} is free and came late");
                was_marked |= is_marked;
            }
            let left = zone.clone().filter(|block| !among(&used, *block) && !taken.contains(block));
            let left: Vec<_> = left.collect();
            // Neither marked nor used, two neighbours: none is left.
            let pairs = left.windows(2).filter(|pair| pair[0] % 2 == 0 && pair[0] + 1 == pair[1]);
            let pairs = pairs.filter(|pair| among(&marked, pair[0]) == among(&marked, pair[1]));
            assert_eq!(pairs.count(), 0, "seed {seed}");
        }
    }
}
