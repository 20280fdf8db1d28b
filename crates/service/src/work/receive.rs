//! A snapshot out of a stream.

use std::fmt;
use std::io::BufReader;

use holdfast::Volume;
use holdfast_stream::Receiving;
use serde::Serialize;

use super::send::failure;
use super::{Ends, In, told};
use crate::branches::Name;
use crate::outcome::{Failure, Outcome, printable};

/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;

/// What has come, as it is called here.
#[derive(Serialize)]
struct Come<'a> {
    branch: &'a str,
    snapshot: &'a str,
    was_here: bool,
    kept: Option<&'a str>,
}

impl fmt::Display for Come<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.branch, self.snapshot)
    }
}

/// Where a stream was cut.
#[derive(Serialize)]
struct CutAt {
    resume_token: String,
}

impl fmt::Display for CutAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resume_token)
    }
}

pub(super) fn run(
    door: &Volume,
    volume: &str,
    wanted: Option<&Name>,
    json: bool,
    ends: &dyn Ends,
) -> Outcome {
    let wanted = wanted.map(Name::utf8).transpose()?;
    let input = BufReader::with_capacity(BUFFER, In(ends, 0));
    let received = Receiving::begin(door, input, wanted)
        .and_then(|stream| stream.run(&mut |at| ends.progress(at)))
        .map_err(|error| failure(volume, &error))?;
    let (branch, snapshot) = received.snapshot.split_once('@').unwrap_or(("", &received.snapshot));
    let (was_here, kept) = (received.was_here, received.kept.as_deref());
    if was_here {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != branch) {
            let (name, snapshot) = (printable(wanted), &received.snapshot);
            let why =
                format!("{volume}: {snapshot} is here already, and was not received into {name}");
            return Err(Failure::plain(format!(
                "{why}; `holdfast fork --from {snapshot}` makes a branch of it"
            )));
        }
        if !json {
            ends.note(&format!("{} is here already; nothing was done", received.snapshot));
        }
    }
    if let Some(kept) = kept.filter(|_| !json) {
        ends.note(&format!("the branch had changed; what it was is kept as its snapshot {kept}"));
    }
    told(&Come { branch, snapshot, was_here, kept }, json, ends)
}

/// Says where a stream was cut.
pub(super) fn token(
    door: &Volume,
    volume: &str,
    branch: Option<&Name>,
    json: bool,
    ends: &dyn Ends,
) -> Outcome {
    let mut found = holdfast_stream::tokens(door).map_err(|error| failure(volume, &error))?;
    if let Some(branch) = branch {
        let branch = branch.text();
        found.retain(|(name, ..)| *name == branch);
    }
    match &found[..] {
        [(_, _, token)] => told(&CutAt { resume_token: token.to_string() }, json, ends),
        [] => Err(Failure::plain(format!("{volume}: no stream was cut that can go on"))),
        several => {
            let list =
                several.iter().map(|(name, begin, _)| format!("{name} ({})", begin.snapshot()));
            let list = list.collect::<Vec<_>>().join(", ");
            Err(Failure::plain(format!(
                "{volume}: several streams were cut: {list}; say which with --branch"
            )))
        }
    }
}
