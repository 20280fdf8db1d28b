//! A snapshot out of a stream.

use std::io::{BufReader, Write};

use holdfast::Volume;
use holdfast_stream::Receiving;

use super::send::failure;
use super::{Ends, In, Out};
use crate::branches::Name;
use crate::outcome::{Failure, Outcome, printable, printed};

/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;

pub(super) fn run(door: &Volume, volume: &str, branch: Option<&Name>, ends: &dyn Ends) -> Outcome {
    let branch = branch.map(Name::utf8).transpose()?;
    let input = BufReader::with_capacity(BUFFER, In(ends, 0));
    let received = Receiving::begin(door, input, branch)
        .and_then(|stream| stream.run(&mut |at| ends.progress(at)))
        .map_err(|error| failure(volume, &error))?;
    if received.was_here {
        if let Some(branch) = branch.filter(|branch| !is_of(&received.snapshot, branch)) {
            let (name, snapshot) = (printable(branch), &received.snapshot);
            let why =
                format!("{volume}: {snapshot} is here already, and was not received into {name}");
            return Err(Failure::plain(format!(
                "{why}; `holdfast fork --from {snapshot}` makes a branch of it"
            )));
        }
        ends.note(&format!("{} is here already; nothing was done", received.snapshot));
    }
    if let Some(kept) = &received.kept {
        ends.note(&format!("the branch had changed; what it was is kept as its snapshot {kept}"));
    }
    printed(writeln!(Out(ends), "{}", received.snapshot))?;
    Ok(0)
}

/// Whether a snapshot that is called so is one of a branch.
fn is_of(snapshot: &str, branch: &str) -> bool {
    snapshot.strip_prefix(branch).is_some_and(|rest| rest.starts_with('@'))
}

/// Says where a stream was cut.
pub(super) fn token(
    door: &Volume,
    volume: &str,
    branch: Option<&Name>,
    ends: &dyn Ends,
) -> Outcome {
    let mut found = holdfast_stream::tokens(door).map_err(|error| failure(volume, &error))?;
    if let Some(branch) = branch {
        let branch = branch.text();
        found.retain(|(name, ..)| *name == branch);
    }
    match &found[..] {
        [(_, _, token)] => printed(writeln!(Out(ends), "{token}")).map(|()| 0),
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
