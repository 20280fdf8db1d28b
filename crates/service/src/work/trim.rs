//! Free space goes back to the device, or to the host of an image.

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use holdfast::Volume;
use holdfast_base::show;
use holdfast_stream::Progress;
use serde::Serialize;

use super::{Ends, told};
use crate::outcome::{Context, Failure, Outcome};

/// What was given back.
#[derive(Serialize)]
struct GivenBack<'a> {
    #[serde(skip)]
    volume: &'a str,
    trimmed_bytes: u64,
    ranges: u64,
    /// What an image takes of its host, and took before.
    host_bytes: Option<u64>,
    host_bytes_before: Option<u64>,
}

impl fmt::Display for GivenBack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GivenBack { volume, trimmed_bytes: bytes, ranges, .. } = self;
        write!(f, "{volume}: {} trimmed ({bytes} bytes) in {ranges} ranges", show::bytes(*bytes))?;
        let Some((before, now)) = self.host_bytes_before.zip(self.host_bytes) else {
            return Ok(());
        };
        let less = show::bytes(before.saturating_sub(now));
        write!(f, "; the image takes {less} less of its host, {} now", show::bytes(now))
    }
}

pub(super) fn run(door: &Volume, volume: &str, least: u64, json: bool, ends: &dyn Ends) -> Outcome {
    let given = || door.engine().map(|engine| engine.given()).context(volume);
    let host_bytes_before = given()?;
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
    let answer = GivenBack {
        volume,
        trimmed_bytes: trimmed.bytes,
        ranges: trimmed.ranges,
        host_bytes: given()?,
        host_bytes_before,
    };
    if trimmed.groups < trimmed.groups_all {
        return Err(Failure::plain(format!("{answer}; it was not done to the end")));
    }
    told(&answer, json, ends)
}
