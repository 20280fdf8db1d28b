//! Power fails at each write and flush of a repair: the volume is as it was or as it is repaired, and a second repair ends clean.

use holdfast_check::{Finding, Issue, Severity};
use holdfast_device::SimDevice;
use holdfast_device::sim::images::Policy;
use holdfast_repair::is_repaired;

use crate::common::broken::provoke;
use crate::every_finding::{LOSS, found, planned};

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
                // A slot that is being written may be torn. That is a note; or where the far copy counts, another
                // word for the same.
                let lost = Issue::NewestSuperblockLost.number();
                let word = |id| if id == Issue::NoSuperblock.number() { lost } else { id };
                let errors = |list: &[Finding]| {
                    let errors = list.iter().filter(|it| it.severity > Severity::Note);
                    errors.map(|it| word(it.id)).collect::<Vec<_>>()
                };
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
