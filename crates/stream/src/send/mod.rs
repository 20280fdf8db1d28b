//! A snapshot as a stream, whole or as what became of another one; and what makes one tree another, as records for their taker.

mod changes;
mod file;
mod side;
mod table;
mod whole;

use std::io::Write;

use holdfast::{Snapshot, Volume};

pub(crate) use self::side::SentTree;
use self::table::Table;
use crate::error::Doing;
use crate::frame::{FrameWriter, Sink};
use crate::record::{Begin, End, GENERATOR, Record};
use crate::token::Token;
use crate::{Progress, Result, StreamError, origin};

/// What is sent.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each stream")]
pub enum Sending {
    /// All of a snapshot.
    Whole(Snapshot),
    /// What makes the first snapshot the second.
    Changes(Snapshot, Snapshot),
    /// What is left of a stream that was cut.
    Rest(Token),
}

/// What a stream is made of, and where it goes.
struct Sender<'a, O: Sink> {
    base: Option<SentTree>,
    new: SentTree,
    out: O,
    /// Files that the receiver knows by their numbers.
    table: Table,
    files: u64,
    files_in_all: u64,
    progress: &'a mut dyn FnMut(Progress),
}

/// Writes a stream to `out`. The same two snapshots make the same stream each time.
///
/// # Errors
/// What the volume or `out` says; nothing behind it makes a stream whole that has failed here.
pub fn send<W: Write>(
    volume: &Volume,
    what: Sending,
    out: W,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let (base, snapshot, resume) = match what {
        Sending::Whole(snapshot) => (None, snapshot, None),
        Sending::Changes(base, snapshot) => (Some(base), snapshot, None),
        Sending::Rest(token) => {
            if !token.is_ours() {
                return StreamError::refused(
                    "another version of this program made the stream, and it cannot go on; send it anew",
                );
            }
            let base = match &token.base {
                Some(id) => Some(origin::by_id(volume, id)?),
                None => None,
            };
            (base, origin::by_id(volume, &token.snapshot)?, Some(token))
        }
    };
    if base.as_ref().is_some_and(|base| base.number() == snapshot.number()) {
        return StreamError::refused("both are the same snapshot; there is nothing to send");
    }
    let uuid = volume.info().doing(|| "the volume".into())?.uuid;
    let new = SentTree::open(&snapshot)?;
    let older = base.as_ref().map(SentTree::open).transpose()?;
    let base = base.as_ref().map(|of| origin::named(uuid, of));
    let begin = Begin {
        stream: [0; 16],
        generator: GENERATOR,
        block_bytes: holdfast_base::units::BLOCK_BYTES as u32,
        inodes: snapshot.inodes(),
        snapshot: origin::named(uuid, &snapshot),
        base,
        resume: None,
    };
    let begin = Begin { stream: begin.stream_id(), ..begin };
    if resume.as_ref().is_some_and(|token| token.stream != begin.stream) {
        return StreamError::refused("this token is of other snapshots of the same numbers");
    }
    let out = start(out, begin, resume)?;
    let mut sender = Sender::new((older, new), out, snapshot.inodes(), progress);
    match sender.base {
        None => sender.whole()?,
        Some(_) => sender.changes()?,
    }
    let Sender { mut out, base, new, .. } = sender;
    let (records, data_bytes) = out.counts();
    out.put(&Record::End(End { records, data_bytes }))?;
    out.finish()?;
    base.into_iter().chain([new]).try_for_each(SentTree::close)
}

/// Says to `out` what makes the first tree the second, both of one volume, without a begin or an end. All of it comes back.
pub(crate) fn changes<O: Sink>(
    (base, new): (SentTree, SentTree),
    out: O,
    progress: &mut dyn FnMut(Progress),
) -> (Result<()>, O, Vec<SentTree>) {
    let mut sender = Sender::new((Some(base), new), out, 0, progress);
    let said = sender.changes();
    let Sender { out, base, new, .. } = sender;
    (said, out, base.into_iter().chain([new]).collect())
}

fn start<W: Write>(out: W, begin: Begin, token: Option<Token>) -> Result<FrameWriter<W>> {
    let Some(Token { resume, begin_bytes, .. }) = token else {
        return FrameWriter::new(out, &Record::Begin(begin), None);
    };
    let again = Record::Begin(Begin { resume: Some(resume), ..begin });
    let mut out = FrameWriter::new(out, &again, Some(resume))?;
    // As many as when the stream began: the snapshots may have had other names then.
    out.pass_begin(begin_bytes)?;
    Ok(out)
}

impl<'a, O: Sink> Sender<'a, O> {
    fn new(
        (base, new): (Option<SentTree>, SentTree),
        out: O,
        files_in_all: u64,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Sender<'a, O> {
        let (table, files) = (Table::new(), 0);
        Sender { base, new, out, table, files, files_in_all, progress }
    }

    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        self.out.put(record)
    }

    /// A file is whole.
    fn made_one(&mut self) {
        self.files = self.files.saturating_add(1);
        self.tell();
    }

    fn tell(&mut self) {
        let (bytes, files, files_in_all) = (self.out.position(), self.files, self.files_in_all);
        (self.progress)(Progress { bytes, files, files_in_all });
    }
}
