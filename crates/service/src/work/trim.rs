//! Free space goes back to the device, or to the host of an image.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use holdfast::Volume;
use holdfast_base::show;
use holdfast_stream::Progress;

use super::{Ends, Out};
use crate::outcome::{Context, Failure, Outcome, printed};

pub(super) fn run(door: &Volume, volume: &str, least: u64, ends: &dyn Ends) -> Outcome {
    let given = || door.engine().map(|engine| engine.given()).context(volume);
    let before = given()?;
    let done = door.trim(least, |at| {
        ends.progress(Progress { bytes: at.bytes, files: at.groups, files_in_all: at.groups_all });
        ends.wait(Duration::ZERO).is_ok()
    });
    let trimmed = match done {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(Failure::plain(format!(
                "{volume}: what it lies on takes no free space back"
            )));
        }
        done => done.context(volume)?,
    };
    let (bytes, ranges) = (trimmed.bytes, trimmed.ranges);
    let mut line =
        format!("{volume}: {} trimmed ({bytes} bytes) in {ranges} ranges", show::bytes(bytes));
    if let (Some(before), Some(after)) = (before, given()?) {
        let less = show::bytes(before.saturating_sub(after));
        line += &format!("; the image takes {less} less of its host, {} now", show::bytes(after));
    }
    if trimmed.groups < trimmed.groups_all {
        return Err(Failure::plain(format!("{line}; it was not done to the end")));
    }
    printed(writeln!(Out(ends), "{line}"))?;
    Ok(0)
}
