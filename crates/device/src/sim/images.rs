//! Chooses among the images that a power cut may leave.
//!
//! With few unflushed writes every subset is taken. With many, the telling ones: none, all, each prefix, each single
//! one dropped, and random subsets. Besides, single writes are torn: at each sector boundary, or into any subset of
//! sectors where they have few, with the other writes kept, lost or mixed. Where physical sectors are larger than
//! logical ones, a torn write also destroys a whole physical sector that it touched, flushed bytes included. It does
//! not destroy one that it covers and leaves as it was, for a disk must be able to do that.
//!
//! Always true: the plan depends on the policy, the cut and nothing else, so the number of an image is enough to see it
//! again; no image comes twice in one cut; images of different cuts with equal fingerprints are equal.

use std::collections::{HashMap, HashSet};

use holdfast_base::prng::Prng;

use super::pending::Cut;
use crate::memory::MemoryDevice;

/// How many images of a cut are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Seed of everything random; the position of the cut is mixed in.
    pub seed: u64,
    /// Every subset of the unflushed writes, if they are at most so many. At most 16.
    pub exhaustive: usize,
    /// Above that: at most so many prefixes, and so many with one write dropped.
    pub each: usize,
    /// Above that: so many random subsets.
    pub samples: usize,
    /// At most so many images with a torn write; the newest write is torn first.
    pub torn: usize,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { seed: 1, exhaustive: 5, each: 16, samples: 16, torn: 24 }
    }
}

impl Policy {
    /// Everything lost or everything kept, nothing between: for quick runs.
    pub fn whole_only() -> Policy {
        Policy { seed: 1, exhaustive: 0, each: 0, samples: 0, torn: 0 }
    }
}

impl Cut {
    /// The images that may be left here, as many as `policy` wants, each once.
    pub fn images(&self, policy: &Policy) -> CrashImages<'_> {
        CrashImages::new(self, policy)
    }
}

/// What power left of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    Nothing,
    Whole,
    /// These sectors.
    Sectors(Vec<bool>),
    /// These sectors, and what lies in this physical one is lost, whichever write put it there.
    Destroyed(Vec<bool>, u64),
}

impl Kept {
    fn has(&self, sector: usize) -> bool {
        match self {
            Kept::Nothing => false,
            Kept::Whole => true,
            Kept::Sectors(kept) | Kept::Destroyed(kept, _) => kept[sector],
        }
    }

    fn destroyed(&self) -> Option<u64> {
        match self {
            Kept::Destroyed(_, physical) => Some(*physical),
            _ => None,
        }
    }
}

fn whole_or_nothing(kept: bool) -> Kept {
    match kept {
        true => Kept::Whole,
        false => Kept::Nothing,
    }
}

/// The images of one cut, one after the other.
#[derive(Debug)]
pub struct CrashImages<'a> {
    cut: &'a Cut,
    plan: std::vec::IntoIter<Vec<Kept>>,
    seen: HashSet<u64>,
    number: usize,
}

/// One image that a power cut may leave. Costs memory only when its device is asked for.
#[derive(Debug)]
pub struct CrashImage<'a> {
    cut: &'a Cut,
    kept: Vec<Kept>,
    fingerprint: u64,
    number: usize,
}

impl<'a> CrashImages<'a> {
    pub(super) fn new(cut: &'a Cut, policy: &Policy) -> CrashImages<'a> {
        CrashImages { cut, plan: plan(cut, policy).into_iter(), seen: HashSet::new(), number: 0 }
    }
}

impl<'a> Iterator for CrashImages<'a> {
    type Item = CrashImage<'a>;

    fn next(&mut self) -> Option<CrashImage<'a>> {
        for kept in self.plan.by_ref() {
            let fingerprint = fingerprint(self.cut, &kept);
            if self.seen.insert(fingerprint) {
                self.number += 1;
                return Some(CrashImage {
                    cut: self.cut,
                    kept,
                    fingerprint,
                    number: self.number - 1,
                });
            }
        }
        None
    }
}

impl CrashImage<'_> {
    /// The image as a device: an overlay that shares everything else with the base.
    pub fn device(&self) -> MemoryDevice {
        let image = self.cut.stable.snapshot();
        for (pending, kept) in self.cut.pending.iter().zip(&self.kept) {
            for (index, sector, bytes) in pending.sectors(self.cut.sector_size) {
                if kept.has(index) {
                    image.put(sector * self.cut.sector_size, bytes);
                }
            }
        }
        // Power went while it was written: nothing came after.
        for physical in self.kept.iter().filter_map(Kept::destroyed) {
            let (at, junk) = self.cut.junk(physical);
            image.put(at, &junk);
        }
        image
    }

    /// Equal for images of one recording that hold the same bytes, different for others (but for
    /// one chance in 2^64).
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// How many writes were lost or torn.
    pub fn losses(&self) -> usize {
        self.kept.iter().filter(|kept| **kept != Kept::Whole).count()
    }

    /// Its place among the images of its cut, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// What was kept, in words: the event numbers of lost and torn writes.
    pub fn describe(&self) -> String {
        let mut words = Vec::new();
        for (pending, kept) in self.cut.pending.iter().zip(&self.kept) {
            let event = pending.event;
            match kept {
                Kept::Whole => {}
                Kept::Nothing => words.push(format!("{event} lost")),
                Kept::Sectors(kept) | Kept::Destroyed(kept, _) => {
                    let kept: String =
                        kept.iter().map(|&kept| if kept { '+' } else { '-' }).collect();
                    words.push(format!("{event} torn {kept}"));
                }
            }
        }
        for physical in self.kept.iter().filter_map(Kept::destroyed) {
            words.push(format!("physical sector {physical} destroyed"));
        }
        match words.is_empty() {
            true => "nothing lost".into(),
            false => words.join(", "),
        }
    }
}

/// The fingerprint of the image that `kept` leaves, without making it.
fn fingerprint(cut: &Cut, kept: &[Kept]) -> u64 {
    let mut changed: HashMap<u64, u64> = HashMap::new();
    for (pending, kept) in cut.pending.iter().zip(kept) {
        for (index, sector, _) in pending.sectors(cut.sector_size) {
            if kept.has(index) {
                changed.insert(sector, pending.sums[index]);
            }
        }
    }
    for physical in kept.iter().filter_map(Kept::destroyed) {
        changed.extend(cut.junk_sums(physical));
    }
    changed.iter().fold(cut.fingerprint, |all, (sector, sum)| {
        all ^ sum ^ cut.sums.get(sector).copied().unwrap_or(0)
    })
}

/// Everything to be tried, the plainest first.
fn plan(cut: &Cut, policy: &Policy) -> Vec<Vec<Kept>> {
    let count = cut.pending.len();
    let mut prng = Prng::seeded(policy.seed ^ (cut.index() as u64).rotate_left(32));
    let mut plan = vec![vec![Kept::Nothing; count], vec![Kept::Whole; count]];
    let choose = |keeps: &dyn Fn(usize) -> bool| -> Vec<Kept> {
        (0..count).map(|index| whole_or_nothing(keeps(index))).collect()
    };
    if count <= policy.exhaustive.min(16) {
        for subset in 0u32..1 << count {
            plan.push(choose(&|index| subset >> index & 1 == 1));
        }
    } else {
        for len in spread(count, policy.each) {
            plan.push(choose(&|index| index < len));
        }
        for dropped in spread(count, policy.each) {
            plan.push(choose(&|index| index != dropped));
        }
        for _ in 0..policy.samples {
            // Not always half of them: a subset that misses few, or has few, is as telling.
            let share = prng.below(9) + 1;
            let subset = (0..count).map(|_| whole_or_nothing(prng.below(10) < share));
            plan.push(subset.collect());
        }
    }
    plan.extend(torn(cut, policy, &mut prng));
    plan
}

/// At most `most` numbers below `count`, evenly spread, the last one among them.
fn spread(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let most = most.min(count);
    (1..=most).map(move |step| step * count / most - 1)
}

/// Images with one torn write each.
fn torn(cut: &Cut, policy: &Policy, prng: &mut Prng) -> Vec<Vec<Kept>> {
    let count = cut.pending.len();
    let mut order: Vec<usize> = (0..count).collect();
    if count > 1 {
        prng.shuffle(&mut order[..count - 1]);
        order.rotate_right(1);
    }
    let mut plan = Vec::new();
    for victim in order {
        if plan.len() >= policy.torn {
            break;
        }
        let tears = tears(cut.pending[victim].live.len(), prng).into_iter().map(Kept::Sectors);
        // In turns: there may be images for few of them.
        let mut destroyed = destroyed(cut, victim).into_iter();
        let tears = tears.flat_map(|tear| destroyed.next().into_iter().chain([tear]));
        let tears: Vec<Kept> = tears.collect();
        for tear in tears.into_iter().chain(destroyed) {
            let mixed = |index: usize, prng: &mut Prng| match index {
                _ if index == victim => tear.clone(),
                _ => whole_or_nothing(prng.one_in(2)),
            };
            let mut kept = vec![Kept::Whole; count];
            kept[victim] = tear.clone();
            plan.push(kept);
            plan.push((0..count).map(|index| mixed(index, prng)).collect());
        }
    }
    plan.truncate(policy.torn);
    plan
}

/// Ways in which a torn write takes a whole physical sector: the first that it touches, the last, some between.
fn destroyed(cut: &Cut, victim: usize) -> Vec<Kept> {
    let pending = &cut.pending[victim];
    if cut.physical_size <= cut.sector_size {
        return Vec::new();
    }
    let (first, end) = pending.physical(cut.physical_size);
    let mut places: Vec<u64> = std::iter::once(first)
        .chain(spread((end - first) as usize, 3).map(|place| first + place as u64))
        .filter(|&physical| !cut.is_as_before(pending, physical))
        .collect();
    places.dedup();
    let kept = |physical: u64| {
        let reached = (physical * cut.physical_size).saturating_sub(pending.at) / cut.sector_size;
        (0..pending.live.len() as u64).map(|sector| sector < reached).collect()
    };
    places.into_iter().map(|physical| Kept::Destroyed(kept(physical), physical)).collect()
}

/// Ways to tear a write of `sectors` sectors: every proper part if there are few sectors, else
/// beginnings and random parts.
fn tears(sectors: usize, prng: &mut Prng) -> Vec<Vec<bool>> {
    if sectors <= 3 {
        return (1u32..(1 << sectors) - 1)
            .map(|part| (0..sectors).map(|index| part >> index & 1 == 1).collect())
            .collect();
    }
    let mut tears: Vec<Vec<bool>> = spread(sectors - 1, 7)
        .map(|last| (0..sectors).map(|index| index <= last).collect())
        .collect();
    for _ in 0..3 {
        tears.push((0..sectors).map(|_| prng.one_in(2)).collect());
    }
    prng.shuffle(&mut tears);
    tears
}
