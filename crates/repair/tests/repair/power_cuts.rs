//! Power fails at each write and flush of a repair: the volume is as it was or as it is repaired, and a second repair ends clean.

use std::io::Cursor;

use holdfast_check::{Finding, Issue, Severity};
use holdfast_device::sim::images::Policy;
use holdfast_device::sim::{Action, Call, Event, Faults, When};
use holdfast_device::{MemoryDevice, SimDevice};
use holdfast_repair::{Undo, is_repaired};

use crate::common::broken::provoke;
use crate::every_finding::{LOSS, found, planned};

/// The numbers of what is wrong. A slot that is being written may be torn: that is a note; or where the far copy counts, another word
/// for the same.
fn errors(findings: &[Finding]) -> Vec<u16> {
    let lost = Issue::NewestSuperblockLost.number();
    let word = |id| if id == Issue::NoSuperblock.number() { lost } else { id };
    let errors = findings.iter().filter(|it| it.severity > Severity::Note);
    errors.map(|it| word(it.id)).collect()
}

#[test]
fn a_cut_leaves_the_old_or_the_new() {
    let issues = [
        Issue::NodeDamaged,
        Issue::NodeCopyBad,
        Issue::BlocksLeaked,
        Issue::BlocksShared,
        Issue::ChildItem,
        Issue::LogDamaged,
        Issue::JournalDamaged,
        Issue::JournalWiped,
        Issue::LogWiped,
        Issue::NewestSuperblockLost,
        Issue::SuperblockInvalid,
    ];
    for issue in issues {
        let image = provoke(issue).0;
        let plan = planned(&*image.device, &LOSS).expect("it can be repaired");
        let was = found(&*image.device).findings;
        let device = SimDevice::new(&image.device);
        plan.write(&device).expect("memory takes it");
        let recording = device.recording();
        let mut cut = recording.start();
        let (mut old, mut new) = (0, 0);
        for index in 0..=recording.events.len() {
            for left in cut.images(&Policy::default()) {
                let when = || format!("{} at call {index}: {}", issue.slug(), left.describe());
                let device = left.device();
                let now = found(&device);
                if is_repaired(&now) {
                    new += 1;
                    continue;
                }
                assert_eq!(errors(&now.findings), errors(&was), "{}", when());
                old += 1;
                let again =
                    planned(&device, &LOSS).unwrap_or_else(|why| panic!("{}: {why}", when()));
                again.write(&device).expect("memory takes it");
                assert!(is_repaired(&found(&device)), "{}", when());
            }
            if let Some(event) = recording.events.get(index) {
                cut.advance(event);
            }
        }
        assert!(new > 0 && (old > 0 || issue == Issue::SuperblockInvalid), "{}", issue.slug());
    }
}

/// A flush that fails ends a repair with its error: nothing is written behind it, and a power cut then leaves the old volume or the new one.
#[test]
fn a_flush_that_fails_ends_a_repair() {
    for issue in [Issue::NodeDamaged, Issue::LogDamaged, Issue::NodeCopyBad] {
        let image = provoke(issue).0;
        let plan = planned(&*image.device, &LOSS).expect("it can be repaired");
        let was = found(&*image.device).findings;
        let mut flushes = 0;
        loop {
            let device = SimDevice::new(&image.device);
            let nth = When::Nth(flushes + 1);
            device.set_faults(Faults::none().with(Call::Flush, nth, Action::Fail));
            let Err(error) = plan.write(&device) else { break };
            flushes += 1;
            let when = format!("{}, flush {flushes}", issue.slug());
            assert!(error.to_string().starts_with("flush "), "{when}: {error}");
            let recording = device.recording();
            let events = &recording.events;
            let failed = events.iter().position(|it| matches!(it, Event::FlushFailed { .. }));
            let behind = &events[failed.expect("it failed") + 1..];
            let goes_on = |it: &Event| matches!(it, Event::Write { .. } | Event::Flush { .. });
            assert!(!behind.iter().any(goes_on), "{when}: it goes on behind it");
            let mut cut = recording.start();
            recording.events.iter().for_each(|event| cut.advance(event));
            for left in cut.images(&Policy::default()) {
                let now = found(&left.device());
                assert!(
                    is_repaired(&now) || errors(&now.findings) == errors(&was),
                    "{when}: {}: {:?}",
                    left.describe(),
                    now.findings
                );
            }
        }
        assert!(flushes > 0, "{}: a repair flushes", issue.slug());
    }
}

/// Power fails at each write and flush of a repair, and then of its undo: the undo, begun again, brings back each byte.
#[test]
fn an_undo_brings_back_each_byte() {
    let issues =
        [Issue::NodeDamaged, Issue::NodeCopyBad, Issue::LogDamaged, Issue::NewestSuperblockLost];
    for issue in issues {
        let image = provoke(issue).0;
        let before = image.device.to_image();
        let plan = planned(&*image.device, &LOSS).expect("it can be repaired");
        let mut kept = Vec::new();
        plan.keep(&*image.device, &mut kept).expect("memory takes it");
        let undone = |device: &MemoryDevice, when: &str| {
            let undo = Undo::open(Cursor::new(kept.clone())).expect("it is whole");
            undo.write(device).unwrap_or_else(|why| panic!("{when}: {why}"));
            assert!(device.to_image() == before, "{when}: it is not what it was");
        };
        let device = SimDevice::new(&image.device);
        plan.write(&device).expect("memory takes it");
        each_cut(&device, |left, when| undone(left, &format!("{}, {when}", issue.slug())));
        let repaired = image.device.snapshot();
        plan.write(&repaired).expect("memory takes it");
        let device = SimDevice::new(&repaired);
        let undo = Undo::open(Cursor::new(kept.clone())).expect("it is whole");
        undo.write(&device).expect("it is as the repair left it");
        each_cut(&device, |left, when| {
            let when = format!("{}, undo, {when}", issue.slug());
            let now = found(left).findings;
            let errors = now.iter().filter(|it| it.severity > Severity::Note).count();
            let was = found(&*image.device).findings;
            let known = was.iter().filter(|it| it.severity > Severity::Note).count();
            assert!(errors == 0 || errors == known, "{when}: {now:#?}, before {was:#?}");
            undone(left, &when);
        });
    }
}

/// Calls `look` with each image that a power cut may leave.
pub(crate) fn each_cut(device: &SimDevice, mut look: impl FnMut(&MemoryDevice, &str)) {
    let recording = device.recording();
    let mut cut = recording.start();
    for index in 0..=recording.events.len() {
        for left in cut.images(&Policy::default()) {
            look(&left.device(), &format!("call {index}: {}", left.describe()));
        }
        if let Some(event) = recording.events.get(index) {
            cut.advance(event);
        }
    }
}
