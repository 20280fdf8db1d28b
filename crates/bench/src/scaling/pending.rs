//! An fsync, the more records it finds pending.

use std::io;

use holdfast::Batching;

use super::curves::Curves;
use crate::mechanisms::workloads::pending;
use crate::mechanisms::{Devices, Progress, Scale};
use crate::result::{Section, Unit};

pub(super) fn run(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let most = scale.pick(3, 6, 6);
    let mut curves = Curves::new(
        "scaling-pending",
        "Files that an fsync finds pending",
        "pending files",
        Unit::Count,
    );
    for files in (0..=most).map(|power| 10u64.pow(power)) {
        let bytes = pending::device_bytes(1, files);
        // One file alone says little.
        let rounds = scale.rounds().max(scale.pick(3, 50, 200).min(100_000 / files));
        for _ in 0..rounds {
            let run = pending::run(devices(bytes)?, Batching::Indexed, 1, files)?;
            let x = files as f64;
            let fsync = (run.total_ns - run.create_ns).max(0.0);
            let bytes = (run.counts.log_bytes + run.counts.journal_bytes) as f64 / x;
            curves.add("create", x, run.create_ns, None);
            curves.add("its share of the fsync", x, fsync, Some(bytes));
            if run.counts.log_records > 0 {
                curves.add("to format a record", x, run.format_ns, None);
            }
        }
        seen(format!("pending: {files} files"));
    }
    let about = format!(
        "Empty files in one directory, in memory, and one fsync that has to log what is still pending: commits in the \
         background take records out of it. Times are for each file; {}, more of few files.",
        scale.rounds_text()
    );
    Ok(curves.section(&about))
}
