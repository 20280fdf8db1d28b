//! Walks a recording: power fails behind every call, and every image is opened and judged.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_device::sim::{CrashImage, Cut, Event, Recording};
use holdfast_script::Trees;

use super::memo::{ImageContent, Memo};
use super::{Policy, Stats};
use crate::history::History;
use crate::visit::{visit, visit_recovery};

/// One opened image in so many is used on.
const USED_ON: u64 = 3;

/// Where and what went wrong.
pub(super) struct Wrong {
    /// Number of the event and of the image.
    pub(super) place: (usize, usize),
    /// The event and what was lost.
    pub(super) lost: String,
    /// How many writes were lost or torn.
    pub(super) losses: usize,
    pub(super) what: String,
}

/// Everything that the judgement of one recording needs.
pub(super) struct Judge<'a> {
    history: &'a History,
    policy: &'a Policy,
    memo: &'a Memo,
    stats: Stats,
    /// Operations that have returned.
    acked: usize,
    /// Operations that have begun.
    started: usize,
    /// Images that were judged in the present moment of history, to judge none twice.
    judged: HashSet<u64>,
    /// With a limit: failures are collected, up to so many.
    limit: usize,
    wrong: Vec<Wrong>,
}

impl<'a> Judge<'a> {
    /// A judge of the script that ends `history` and began when `before` operations had returned.
    pub(super) fn new(
        history: &'a History,
        policy: &'a Policy,
        memo: &'a Memo,
        before: usize,
    ) -> Judge<'a> {
        Judge {
            history,
            policy,
            memo,
            stats: Stats::default(),
            acked: before,
            started: before,
            judged: HashSet::new(),
            limit: 1,
            wrong: Vec::new(),
        }
    }

    /// Does not stop at the first failure, but after so many.
    pub(super) fn collecting(self, limit: usize) -> Judge<'a> {
        Judge { limit, ..self }
    }

    /// Every image of every moment. Gives what was done, and what was wrong.
    pub(super) fn run(mut self, recording: &Recording) -> (Stats, Vec<Wrong>) {
        self.stats.events = recording.events.len() as u64;
        let mut cut = recording.start();
        self.cut(&cut, None);
        for event in &recording.events {
            if self.wrong.len() >= self.limit {
                break;
            }
            cut.advance(event);
            let worth = match event {
                Event::Mark(mark) if mark % 2 == 0 => {
                    self.started = *mark as usize / 2 + 1;
                    self.judged.clear();
                    false
                }
                Event::Mark(mark) => {
                    self.acked = (*mark as usize).div_ceil(2);
                    self.judged.clear();
                    self.history.is_barrier(self.acked - 1)
                }
                event => event.changes_images(),
            };
            if worth {
                self.cut(&cut, Some(event));
            }
        }
        (self.stats, self.wrong)
    }

    /// Power fails here.
    fn cut(&mut self, cut: &Cut, event: Option<&Event>) {
        if self.policy.only.is_some_and(|(index, _)| index != cut.index()) {
            return;
        }
        self.stats.cuts += 1;
        for image in cut.images(&self.policy.images) {
            if self.policy.only.is_some_and(|(_, number)| number != image.number()) {
                continue;
            }
            if self.wrong.len() >= self.limit {
                return;
            }
            if let Err(what) = self.image(&image) {
                let (acked, started) = (self.acked, self.started);
                let event = event.map_or("start".into(), |event| format!("{event:?}"));
                let lost = image.describe();
                self.wrong.push(Wrong {
                    place: (cut.index(), image.number()),
                    lost: format!("[{event}; {lost}; {acked} of {started} operations returned]"),
                    losses: image.losses(),
                    what,
                });
            }
        }
    }

    fn image(&mut self, image: &CrashImage<'_>) -> Result<(), String> {
        self.stats.images += 1;
        let fingerprint = image.fingerprint();
        // The same bytes at the same moment of history: the same verdict.
        if !self.judged.insert(fingerprint) {
            return Ok(());
        }
        let trees = match self.memo.get(fingerprint) {
            Some(found) => found,
            None => {
                let found = self.open(image);
                self.memo.insert(fingerprint, found)
            }
        };
        self.history.judge(&*trees?, self.acked, self.started).map(drop)
    }

    /// Opens an image that was not seen yet. What is done to it depends on nothing but its bytes, so
    /// that the order in which scripts run does not matter.
    fn open(&mut self, image: &CrashImage<'_>) -> ImageContent {
        self.stats.opened += 1;
        let (setup, recovery) = (&self.policy.setup, self.policy.recovery);
        let lot = image.fingerprint() >> 7;
        if recovery != 0 && lot.is_multiple_of(recovery) {
            let few = holdfast_device::sim::Policy {
                exhaustive: 2,
                each: 2,
                samples: 2,
                torn: 2,
                ..self.policy.images
            };
            let (trees, images) = visit_recovery(&image.device(), setup, &few, self.policy.deep)?;
            self.stats.recoveries.0 += 1;
            self.stats.recoveries.1 += images;
            return Ok(Arc::new(trees));
        }
        let on = lot.is_multiple_of(USED_ON).then_some(lot);
        let trees: Trees = visit(image.device(), setup, on)?;
        Ok(Arc::new(trees))
    }
}
