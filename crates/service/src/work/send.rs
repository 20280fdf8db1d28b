//! A snapshot as a stream.

use std::io::{self, BufWriter};

use holdfast::{Snapshot, Volume};
use holdfast_stream::StreamError;
use serde::{Deserialize, Serialize};

use super::{Ends, Out, Tree};
use crate::branches::by_time::Purpose;
use crate::outcome::{Context, Failure, Outcome, without_number};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

/// What is sent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a variant says what its fields are")]
pub enum SendSource {
    /// A snapshot, or a branch as it is now; whole, or what has changed since another snapshot.
    Tree { tree: Tree, since: Option<Tree> },
    /// The rest of a stream that was cut, by its token.
    Rest(String),
}

pub(super) fn run(door: &Volume, volume: &str, what: &SendSource, ends: &dyn Ends) -> Outcome {
    let (tree, since) = match what {
        SendSource::Rest(token) => {
            let token = token.parse().map_err(|why: String| Failure::new(2, why))?;
            return send(door, volume, holdfast_stream::Sending::Rest(token), ends);
        }
        SendSource::Tree { tree, since } => (tree, since.as_ref()),
    };
    let since = match since.map(|since| since.snapshot(door, volume)).transpose()? {
        Some(None) => {
            return Err(Failure::new(2, "-i wants a snapshot: @SNAPSHOT or BRANCH@SNAPSHOT"));
        }
        since => since.flatten(),
    };
    let of = |snapshot: Snapshot| match since {
        Some(since) => holdfast_stream::Sending::Changes(since, snapshot),
        None => holdfast_stream::Sending::Whole(snapshot),
    };
    if let Some(snapshot) = tree.snapshot(door, volume)? {
        return send(door, volume, of(snapshot), ends);
    }
    // A snapshot has a name, here and at the receiver. Only that of the receiver stays.
    let name = Purpose::Sent.new_name();
    let taken = tree.branch(door, volume)?.snapshot(name.utf8()?).context(volume)?;
    let sent = send(door, volume, of(taken.clone()), ends);
    let deleted = match taken.delete() {
        // It was deleted meanwhile. What was sent is whole all the same.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        deleted => deleted.context(volume),
    };
    let code = sent?;
    deleted.map(|()| code)
}

fn send(door: &Volume, volume: &str, what: holdfast_stream::Sending, ends: &dyn Ends) -> Outcome {
    let out = BufWriter::with_capacity(BUFFER, Out(ends));
    holdfast_stream::send(door, what, out, &mut |at| ends.progress(at))
        .map_err(|error| failure(volume, &error))?;
    Ok(0)
}

/// The sentence for a stream that failed. A reader that has gone is told as well: what it has is not whole.
pub(super) fn failure(volume: &str, error: &StreamError) -> Failure {
    match error {
        StreamError::Volume { .. } => {
            Failure::plain(format!("{volume}: {}", without_number(&error.to_string())))
        }
        error => Failure::plain(without_number(&error.to_string())),
    }
}
