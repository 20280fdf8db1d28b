//! What became of one tree in two branches, put together: the changes of one are made in a fork of the other.
//!
//! ```text
//!          ┌─▶ theirs ──▶ a fork of theirs ◀── records of what makes base mine
//!  base ───┤        └ disjoint: do both touch a common path?
//!          └─▶ mine ───▶ what makes base mine
//! ```
//! All three are trees of one volume, where the number of an inode means the same file in each (S8). So a file is found in the fork
//! though its directories have other names in it, and no content has to be compared.
//!
//! Nothing but the fork changes, which no other call knows.

mod disjoint;

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use holdfast::Volume;
use holdfast_base::{InodeNo, prng};
use holdfast_posix::{SetAttr, SetTime};

use self::disjoint::Touched;
use crate::error::Doing;
use crate::files::{Files, make_parking};
use crate::flags::Flags;
use crate::frame::Sink;
use crate::record::Record;
use crate::send::{self, SentTree};
use crate::{Progress, Result, StreamError};

/// Common paths that are named.
const NAMED: usize = 10;
/// Bytes of paths that are remembered.
const BYTES_MAX: usize = 64 << 20;

/// What is put together. Each is a volume handle of its own of the same volume, which [`Merge::run`] closes.
#[derive(Debug)]
pub struct Merge {
    /// What both have grown out of: a view.
    pub base: Volume,
    /// What became of it in one branch: a view.
    pub mine: Volume,
    /// What became of it in the other one: a view.
    pub theirs: Volume,
    /// A fork of `theirs` in which nothing was done, open for writing.
    pub into: Volume,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The fork has both changes.
    Done,
    /// Both touch a common path, and the fork is as it was.
    Overlap {
        /// The first of these paths, from the root without a slash in front, in the order of their bytes.
        paths: Vec<Vec<u8>>,
        /// How many paths there are besides.
        more: u64,
    },
}

impl Merge {
    /// Makes in `into` what makes `base` `mine`, if `theirs` is disjoint from that: no file is touched in both, no name, and nothing
    /// below a directory that the other one has renamed or removed. A directory in which both have changed different names is
    /// none of these, nor are access times. Of the times of such a directory the later ones stay.
    ///
    /// No more than `most` changed files of `theirs` are remembered. `check` is asked now and then whether to go on.
    ///
    /// # Errors
    /// [`StreamError::Refused`] if more has changed; what the volume or `check` says. `into` is of no use then.
    pub fn run(self, most: usize, check: &dyn Fn() -> io::Result<()>) -> Result<Merged> {
        let Merge { base, mine, theirs, into } = self;
        let named = |volume, what: &str| SentTree::of(volume, what.to_owned());
        let base = named(base, "what both have begun with")?;
        let mine = named(mine, "the fork")?;
        let theirs = named(theirs, "the branch")?;
        let overlap = match overlap(&base, &mine, &theirs, most, check) {
            Ok(Merged::Done) => None,
            other => Some(other),
        };
        let (done, sides) = match overlap {
            Some(overlap) => (overlap, vec![base, mine, theirs]),
            None => apply([base, mine, theirs], &into, check),
        };
        let closed = sides.into_iter().map(SentTree::close).fold(Ok(()), Result::and);
        let closed = closed.and(into.close().doing(|| "the fork of the branch".into()));
        done.and_then(|done| closed.map(|()| done))
    }
}

/// Looks for what both touch.
fn overlap(
    base: &SentTree,
    mine: &SentTree,
    theirs: &SentTree,
    most: usize,
    check: &dyn Fn() -> io::Result<()>,
) -> Result<Merged> {
    let going_on = || check().map_err(StreamError::Io);
    let mut touched = Touched::default();
    for change in theirs.diff_from(base, false)? {
        going_on()?;
        let change = change.doing(|| "what has changed in the branch".into())?;
        if touched.len() >= most || touched.bytes() >= BYTES_MAX {
            return StreamError::refused(format!(
                "more than {most} files of the branch have changed meanwhile, or too long paths, which is too much to be put together"
            ));
        }
        touched.add(&change);
    }
    let mut paths = BTreeSet::new();
    // A file that another one has replaced is two changes of one path.
    let mut all: HashSet<u64> = HashSet::new();
    for change in mine.diff_from(base, false)? {
        going_on()?;
        let change = change.doing(|| "what has changed in the fork".into())?;
        if let Some(path) = touched.common(&change) {
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            all.insert(hasher.finish());
            paths.insert(path.to_vec());
            if paths.len() > NAMED {
                paths.pop_last();
            }
        }
    }
    if paths.is_empty() {
        return Ok(Merged::Done);
    }
    let more = (all.len() as u64).saturating_sub(paths.len() as u64);
    Ok(Merged::Overlap { paths: paths.into_iter().collect(), more })
}

/// The fork, as a place for records.
struct Fork<'a> {
    files: Files,
    records: u64,
    bytes: u64,
    check: &'a dyn Fn() -> io::Result<()>,
}

impl Sink for Fork<'_> {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        (self.check)().map_err(StreamError::Io)?;
        self.records = self.records.saturating_add(1);
        if let Record::Data { bytes, .. } = record {
            self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        }
        self.files.apply(self.records, record.clone()).map_err(|error| match error {
            // No stream is damaged here: what was taken for disjoint does not fit together.
            StreamError::Malformed { why, .. } => {
                StreamError::Refused(format!("the changes cannot be put together: {why}"))
            }
            other => other,
        })
    }

    fn position(&self) -> u64 {
        self.bytes
    }
}

/// Makes in the fork what makes the base `mine`. The sides come back, to be closed.
fn apply(
    [base, mine, theirs]: [SentTree; 3],
    into: &Volume,
    check: &dyn Fn() -> io::Result<()>,
) -> (Result<Merged>, Vec<SentTree>) {
    let files = match begin([&base, &mine, &theirs], into) {
        Ok(files) => files,
        Err(error) => return (Err(error), vec![base, mine, theirs]),
    };
    let sink = Fork { files, records: 0, bytes: 0, check };
    let nobody_looks = &mut |_: Progress| {};
    let (said, Fork { mut files, .. }, mut sides) = send::changes((base, mine), sink, nobody_looks);
    let done = said.and_then(|()| files.leave_parking()).and_then(|()| files.end_root());
    // It has borrowed what is closed next.
    drop(files);
    sides.push(theirs);
    (done.map(|()| Merged::Done), sides)
}

fn begin([base, mine, theirs]: [&SentTree; 3], into: &Volume) -> Result<Files> {
    let what = || "the fork of the branch".to_string();
    let fs = into.engine().doing(what)?;
    // Names are made and removed in it for the parking place alone.
    let was = fs.getattr(InodeNo::ROOT).doing(what)?;
    let root = SetAttr {
        atime: Some(SetTime::At(was.atime)),
        mtime: Some(SetTime::At(was.mtime)),
        ..SetAttr::default()
    };
    let mut flags = Flags::new([&base.fs, &mine.fs, &theirs.fs]);
    flags.lift(&fs, InodeNo::ROOT.0, InodeNo::ROOT).doing(what)?;
    let name = format!(".holdfast-merging-{:016x}{:016x}", prng::entropy(), prng::entropy());
    let parking = make_parking(into, name).doing(what)?;
    let mut files = Files::new(fs, Some(base.fs.clone()), parking, root);
    files.theirs = Some(theirs.fs.clone());
    files.flags = Some(flags);
    Ok(files)
}
