//! A stream becomes a snapshot.
//!
//! ```text
//!  begin (which base, which branch, what is left of last time) ─▶ apply (each record, in a fork)
//!        ─▶ finish (counts, the end) ─▶ the fork's snapshot is the branch's
//!        └▶ stop (the stream is cut) ─▶ a snapshot of the fork with all that is needed to go on
//! ```
//!
//! Always true: nothing but the fork changes before the last step.

mod begin;
mod finish;
mod state;
mod tree;

use std::io::Read;

use holdfast::{Branch, Volume};

pub use self::state::tokens;
use self::tree::Tree;
use crate::error::Doing;
use crate::frame::FrameReader;
use crate::record::{Begin, Record, Resume};
use crate::{Progress, Result, StreamError};

/// Bytes of a stream after which it is kept how far it has come.
const KEEP_BYTES: u64 = 1 << 30;

/// Where a snapshot goes.
enum Goal {
    /// A branch goes on with it. Its number, for its name may be anything by then.
    Branch(Branch),
    /// The fork becomes a branch of this name.
    New(String),
}

/// What became of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// `main@tuesday`, as it is called here.
    pub snapshot: String,
    /// It was here before, and nothing was done.
    pub was_here: bool,
    /// What the branch was before, if it had changes of its own: a snapshot of it.
    pub kept: Option<String>,
}

/// A receive that has begun: what the stream is was read.
pub struct Receiving<'v, R> {
    volume: &'v Volume,
    from: FrameReader<R>,
    begin: Begin,
    /// The branch that was asked for.
    wanted: Option<String>,
}

impl<'v, R: Read> Receiving<'v, R> {
    /// Reads the begin of a stream, and judges nothing but that.
    ///
    /// `branch`: where the snapshot is wanted. Without it, a stream that continues a snapshot goes to the branch that has that, and
    /// a whole one to the branch that has the sender's name.
    pub fn begin(volume: &'v Volume, from: R, branch: Option<&str>) -> Result<Receiving<'v, R>> {
        let mut from = FrameReader::new(from)?;
        let begin = match from.next()? {
            (_, Record::Begin(begin)) => begin,
            (position, _) => {
                let why = "its first record does not say what it is".into();
                return Err(StreamError::Malformed { position, why });
            }
        };
        begin::judge(&begin)?;
        Ok(Receiving { volume, from, begin, wanted: branch.map(str::to_owned) })
    }

    /// What the stream is.
    pub fn what(&self) -> &Begin {
        &self.begin
    }

    /// Receives all of it. When this returns without an error, the snapshot is there and survives any crash (P12). Otherwise no
    /// branch has changed; of a stream that was cut a branch `.receiving-...` is left, out of which [`tokens`] says how to go on.
    pub fn run(self, progress: &mut dyn FnMut(Progress)) -> Result<Received> {
        let Receiving { volume, mut from, begin, wanted } = self;
        let prepared = begin::prepare(volume, &mut from, &begin, wanted.as_deref())?;
        let begin::Prepared { goal, mut tree } = match prepared {
            begin::Start::WasHere(received) => return Ok(received),
            begin::Start::Ready(prepared) => *prepared,
        };
        let mut behind = (from.place(), from.records());
        match records(&mut from, &mut tree, progress, (begin.inodes, &mut behind)) {
            Ok(()) => finish::finish(volume, &begin, goal, tree),
            Err(error) => {
                stop(behind, tree, &error);
                Err(error)
            }
        }
    }
}

/// Obeys all records. `behind` is behind the last one that was obeyed, and how many those are: a receive that goes on does so with
/// the next, be it the end.
fn records<R: Read>(
    from: &mut FrameReader<R>,
    tree: &mut Tree<'_>,
    progress: &mut dyn FnMut(Progress),
    (files_in_all, behind): (u64, &mut (Resume, u64)),
) -> Result<()> {
    let mut kept = from.place().position;
    loop {
        *behind = (from.place(), from.records());
        let (position, record) = from.next()?;
        if let Record::End(end) = record {
            // Those that were passed over count as well.
            let before = from.records().saturating_sub(1);
            if (end.records, end.data_bytes) != (before, tree.files.data_bytes) {
                let why = "it has not as many records or bytes as it says".into();
                return Err(StreamError::Malformed { position, why });
            }
            break;
        }
        tree.files.apply(position, record)?;
        let place = from.place();
        progress(Progress { bytes: place.position, files: tree.files.files, files_in_all });
        if place.position.saturating_sub(kept) >= KEEP_BYTES {
            tree.keep(place, from.records())?;
            kept = place.position;
        }
    }
    match from.expect_end() {
        // It was whole before.
        Err(StreamError::Io(_)) => Ok(()),
        done => done,
    }
}

/// A stream has failed: keeps how far it has come, if more of it can come; otherwise what was kept last stays, or nothing.
fn stop((place, records): (Resume, u64), mut tree: Tree<'_>, error: &StreamError) {
    let may_go_on = match error {
        StreamError::Cut { .. } | StreamError::Io(_) => true,
        // What came before is whole.
        StreamError::Malformed { .. } => !tree.files.is_broken,
        StreamError::Refused(_) | StreamError::Volume { .. } => false,
    };
    // Of two errors the first one is told.
    let kept = may_go_on && tree.keep(place, records).is_ok();
    tree.leave(kept);
}

/// The sentence for a call on a volume.
fn of_volume<T>(result: std::io::Result<T>) -> Result<T> {
    result.doing(|| "the volume".into())
}
