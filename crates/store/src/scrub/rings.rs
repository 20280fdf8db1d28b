//! What of the two rings a recovery would need now: read in each place, and judged as a recovery would, by sums and the chain of them.
//!
//! - A volume that is used has all of it in memory as well. So nothing is written again here: the checkpoint with which a scrub begins
//!   puts it where it belongs, and no recovery reads it any more. That is why the rings come before that checkpoint.
//! - No lock is held while the device reads. A part that is not there is bad only if it is in use still behind that read: what is in
//!   use is not written over, so it was in use during the read. Otherwise the walk goes on where the ring begins by now.
//! - What came into the rings behind the beginning of the walk is left to the next scrub, so one has an end.
//! - A volume that stands still has it there alone. One place that holds a part is enough for a recovery; none is damage.
//! - A reader has no head of the rings in memory. What nothing calls durable may be what a crash has left, in one place or in none.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::clock::Stopwatch;

use super::walk::is_of_place;
use super::{BadRing, Listener, RingName, Scrub, answers};
use crate::journal::parts::Frames;
use crate::log::parts::Batches;
use crate::ring_parts::{RingPart, RingParts};
use crate::{Inner, Result};

/// The listener hears of reads when they come to so many bytes: batches are small.
const TELL_BYTES: u64 = 256 << 10;

/// A part of a ring that one place of it does not hold, or none.
#[derive(Debug)]
struct Bad {
    ring: RingName,
    number: u64,
    place: usize,
    at: u64,
    /// Of all of it; of a part that no place holds only those that would say how long it is.
    bytes: u64,
    /// Where it is whole.
    sound: Option<u64>,
    why: String,
}

/// What was read of a part: the first place that has it, and the first that does not.
struct Places<M> {
    sound: Option<(RingPart<M>, usize)>,
    bad: Option<(usize, String)>,
}

/// How the walk through one ring has ended.
struct Walked<M> {
    how: End,
    mark: M,
    /// The last commit or batch that the parts before call durable.
    proven: u64,
    /// Why the first place does not hold what comes next, if none does.
    why: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Everything that was in use was seen.
    Whole,
    /// No place holds what comes next.
    Missing,
    /// What comes next is not in use any more.
    Released,
    /// The listener did not want to go on.
    Stopped,
}

/// What was found in the rings.
#[derive(Default)]
pub(super) struct BadRings {
    bad: Vec<Bad>,
}

struct Rings<'a> {
    inner: &'a Inner,
    scrub: &'a Scrub,
    listener: &'a mut dyn Listener,
    found: BadRings,
    bytes: u64,
    time: Stopwatch,
}

impl Inner {
    /// Reads what is in use of the rings. Returns what was found, and whether the listener wants to go on: what was found before it did not,
    /// or before an error, is to be told as well.
    pub(super) fn scrub_rings(
        &self,
        scrub: &Scrub,
        listener: &mut dyn Listener,
    ) -> (BadRings, Result<bool>) {
        let (found, time) = (BadRings::default(), Stopwatch::start());
        let mut rings = Rings { inner: self, scrub, listener, found, bytes: 0, time };
        let done = if self.read_only { rings.of_a_reader() } else { rings.of_a_writer() };
        let goes_on = done.map(|goes_on| goes_on && rings.tell_read());
        (rings.found, goes_on)
    }

    /// Makes a checkpoint, behind which no recovery reads what was found bad.
    pub(super) fn checkpoint_behind(&self, found: &BadRings) -> Result<()> {
        match found.bad.is_empty() {
            true => self.checkpoint(),
            // What is bad may be the very batch or frame that must lie before a mark (R12).
            false => self.begin_rings_anew(),
        }
    }
}

impl BadRings {
    pub(super) fn is_empty(&self) -> bool {
        self.bad.is_empty()
    }

    /// Tells of what is bad: parts that follow each other together. `is_unneeded`: a checkpoint was made behind it.
    pub(super) fn tell(self, inner: &Inner, is_unneeded: bool, listener: &mut dyn Listener) {
        let follows = |one: &Bad, next: &Bad| {
            let kind = |bad: &Bad| (bad.ring, bad.place, bad.sound.is_some());
            kind(one) == kind(next) && one.at.checked_add(one.bytes) == Some(next.at)
        };
        for run in self.bad.chunk_by(follows) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            inner.counters.scrub_damages.increment();
            let bytes = first.at..last.at.saturating_add(last.bytes);
            let (ring, is_lost) = (first.ring, first.sound.is_none() && !is_unneeded);
            let why = first.told(last, is_unneeded);
            listener.has_bad_ring(BadRing { ring, bytes, is_lost, is_mended: is_unneeded, why });
        }
    }
}

impl Bad {
    /// What is to be said of it and what follows, up to `last`.
    fn told(&self, last: &Bad, is_unneeded: bool) -> String {
        let name = match self.ring {
            RingName::Journal => "commit",
            RingName::Log => "batch",
        };
        let Bad { at, why, .. } = self;
        let what = match last.number {
            number if number == self.number => format!("{name} {number}"),
            number => format!("{name} {} and what follows up to {number}", self.number),
        };
        let mut told = format!("{what}, from byte {at} of the device on: {why}");
        told += &match self.sound {
            Some(sound) => format!("; the other place, at byte {sound}, holds it"),
            None => "; no place holds it".into(),
        };
        told += match (self.sound, is_unneeded) {
            (_, true) => "; it is in memory, and by now in its place: nothing is lost",
            (Some(_), false) => "; a recovery reads that",
            (None, false) => {
                ": a mount that is there still has it in memory, and what is copied out of that now is kept; \
                 behind that it cannot be recovered, nor what follows, and `holdfast fsck` says what can"
            }
        };
        told
    }
}

impl Rings<'_> {
    /// Of a volume that was opened for writing, whether it has stopped or not: memory knows what is in use. Returns whether to go on.
    fn of_a_writer(&mut self) -> Result<bool> {
        let inner = self.inner;
        let mut end = None;
        let goes_on = loop {
            let (superblock, used) = {
                let journal = inner.journal.lock();
                (inner.superblock.lock().clone(), journal.in_use())
            };
            let end = *end.get_or_insert(used.end);
            let frames = Frames::new(&*inner.device, &superblock)?;
            let is_used = |at: u64| inner.journal.lock().in_use().start <= at;
            let from = (superblock.journal, used.start);
            if let Some(goes_on) = self.walk_in_use(&frames, from, end, is_used)? {
                break goes_on;
            }
        };
        if !goes_on {
            return Ok(false);
        }
        let mut end = None;
        loop {
            // Before what is in use: of a ring of another length all of that was dead.
            let superblock = inner.superblock.lock().clone();
            let (mark, used) = inner.log_in_use();
            let end = *end.get_or_insert(used.end);
            let batches = Batches::new(&*inner.device, &superblock);
            let ring = superblock.geometry.log();
            let is_used = |at: u64| {
                let is_same = inner.superblock.lock().geometry.log() == ring;
                is_same && inner.log_in_use().1.start <= at
            };
            if let Some(goes_on) = self.walk_in_use(&batches, (mark, used.start), end, is_used)? {
                return Ok(goes_on);
            }
        }
    }

    /// Walks what is in use of a ring up to `end`. Returns whether to go on; `None`: the ring begins elsewhere by now.
    fn walk_in_use<P: RingParts>(
        &mut self,
        ring: &P,
        from: (P::Mark, u64),
        end: u64,
        is_in_use: impl Fn(u64) -> bool,
    ) -> Result<Option<bool>> {
        let walked = self.walk(ring, from, |at, _| at >= end, is_in_use)?;
        Ok(match walked.how {
            End::Released => None,
            End::Stopped => Some(false),
            End::Missing => {
                self.is_missing(ring, &walked);
                Some(true)
            }
            End::Whole => Some(true),
        })
    }

    /// Of a volume that is read only: it stands in memory where the recovery has left it, and on the device before that. Returns whether
    /// to go on.
    fn of_a_reader(&mut self) -> Result<bool> {
        let inner = self.inner;
        let device = &*inner.device;
        // By the older superblock, where that one has rotted since, a journal that is sound would look as if it had a hole.
        let Some(before) = &inner.opened_from else { return Ok(true) };
        let recovered = inner.superblock.lock().clone();
        let frames = Frames::new(device, before)?;
        let is_over = |_, commit| commit >= recovered.journal.commit.0;
        let walked = self.walk(&frames, (before.journal, 0), is_over, |_| true)?;
        self.forget_unproven(RingName::Journal, walked.proven);
        match walked.how {
            End::Stopped => return Ok(false),
            End::Missing => {
                self.is_missing(&frames, &walked);
                return Ok(true);
            }
            End::Whole | End::Released => {}
        }
        // Behind what is gone the log does not count.
        let is_ended = match frames.is_ended(&walked.mark) {
            Err(error) if is_of_place(&error) => answers::probe(inner, error).map(|_| false)?,
            done => done?,
        };
        if is_ended || self.has_hole(&frames, &walked)? {
            return Ok(true);
        }
        let batches = Batches::new(device, &recovered);
        let walked = self.walk(&batches, (recovered.log, 0), |_, _| false, |_| true)?;
        self.forget_unproven(RingName::Log, walked.proven);
        if walked.how == End::Stopped {
            return Ok(false);
        }
        self.has_hole(&batches, &walked)?;
        Ok(true)
    }

    /// Walks a ring from a mark on, and from how much was ever written there, until `is_over` that and the number of what comes before.
    fn walk<P: RingParts>(
        &mut self,
        ring: &P,
        (mut mark, mut at): (P::Mark, u64),
        is_over: impl Fn(u64, u64) -> bool,
        is_in_use: impl Fn(u64) -> bool,
    ) -> Result<Walked<P::Mark>> {
        let (mut proven, mut missing) = (0, String::new());
        let how = loop {
            if is_over(at, P::number(&mark)) {
                break End::Whole;
            }
            let Places { sound, bad } = self.read(ring, &mark)?;
            if (bad.is_some() || sound.is_none()) && !is_in_use(at) {
                break End::Released;
            }
            let Some((part, place)) = sound else {
                missing = bad.map(|(_, why)| why).unwrap_or_default();
                break End::Missing;
            };
            if let Some((bad, why)) = bad {
                self.found.bad.push(Bad {
                    ring: P::NAME,
                    number: part.number,
                    place: bad,
                    at: ring.on_device(&mark, bad),
                    bytes: part.bytes,
                    sound: Some(ring.on_device(&mark, place)),
                    why,
                });
            }
            proven = proven.max(part.durable);
            mark = part.after;
            at = at.saturating_add(part.bytes.checked_div(P::COUNTED).unwrap_or(0));
            if self.bytes >= TELL_BYTES && !self.tell_read() {
                break End::Stopped;
            }
        };
        Ok(Walked { how, mark, proven, why: missing })
    }

    /// Reads what comes at a mark in each place.
    fn read<P: RingParts>(&mut self, ring: &P, mark: &P::Mark) -> Result<Places<P::Mark>> {
        let mut found = Places { sound: None, bad: None };
        let mut refused = None;
        for place in 0..ring.places() {
            let why = match ring.read(mark, place) {
                Ok(Some(part)) => {
                    self.bytes = self.bytes.saturating_add(part.bytes);
                    match &found.sound {
                        None => {
                            found.sound = Some((part, place));
                            continue;
                        }
                        Some((first, _)) if first.sum == part.sum => continue,
                        Some(_) => "it is another one".to_owned(),
                    }
                }
                Ok(None) => {
                    self.bytes = self.bytes.saturating_add(P::UNIT);
                    "it is not what was written".into()
                }
                Err(error) if is_of_place(&error) => refused.insert(error).in_words(),
                Err(error) => return Err(error),
            };
            found.bad.get_or_insert((place, why));
        }
        if found.sound.is_none()
            && let Some(error) = refused
        {
            let _of_a_place = answers::probe(self.inner, error)?;
        }
        Ok(found)
    }

    /// No place holds what comes next, and it was there.
    fn is_missing<P: RingParts>(&mut self, ring: &P, walked: &Walked<P::Mark>) {
        self.is_lost(ring, walked, walked.why.clone());
    }

    /// Whether something in the ring says that what comes next was durable.
    fn has_hole<P: RingParts>(&mut self, ring: &P, walked: &Walked<P::Mark>) -> Result<bool> {
        let why = ring.hole(&walked.mark, walked.proven)?;
        Ok(why.map(|why| self.is_lost(ring, walked, why)).is_some())
    }

    fn is_lost<P: RingParts>(&mut self, ring: &P, walked: &Walked<P::Mark>, why: String) {
        let (mark, bytes) = (&walked.mark, P::UNIT);
        let number = P::number(mark).saturating_add(1);
        let at = ring.on_device(mark, 0);
        self.found.bad.push(Bad { ring: P::NAME, number, place: 0, at, bytes, sound: None, why });
    }

    /// A crash may have left what nothing calls durable in one place.
    fn forget_unproven(&mut self, ring: RingName, proven: u64) {
        self.found.bad.retain(|bad| bad.ring != ring || bad.number <= proven);
    }

    /// Returns whether to go on.
    fn tell_read(&mut self) -> bool {
        let (bytes, took) = (std::mem::take(&mut self.bytes), self.time.elapsed());
        if bytes == 0 {
            return true;
        }
        self.inner.counters.scrubbed_bytes.add(bytes);
        let goes_on = self.listener.has_read(self.scrub, bytes, took);
        self.time = Stopwatch::start();
        goes_on
    }
}
