//! What a salvage says of each file, for people and programs.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdfast_base::show;
use holdfast_daemon::opening::is_ours;
use holdfast_salvage::{Counts, FileNote, Holes, Missing, Version};
use holdfast_service::json;
use rustix::fs::OFlags;
use serde::Serialize;

use crate::host_tree::is_missed;
use crate::outcome::{Failure, plain_words, sentence as sentence_of, shown};

/// Where lines about files go.
pub(super) struct Report {
    out: Box<dyn Write>,
    /// Each file, not only those that are not whole.
    all: bool,
    json: bool,
    /// The file that was made for it.
    made: Option<PathBuf>,
    /// A file lacks attributes.
    pub(super) is_short: bool,
    /// What stands in front of paths, where there are several trees.
    pub(super) tree: Option<String>,
}

/// A file, as a program reads it.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<&'a str>,
    /// Characters that are not seen, and bytes that are not UTF-8, escaped.
    path: String,
    inode: u64,
    whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Holes::is_empty")]
    holes: &'a Holes,
    #[serde(skip_serializing_if = "Holes::is_empty")]
    unproved: &'a Holes,
    #[serde(skip_serializing_if = "Option::is_none")]
    older: Option<Version>,
    name_lost: bool,
    #[serde(skip_serializing_if = "<[Missing]>::is_empty")]
    missing: &'a [Missing],
    /// Attributes that the host did not take.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    not_set: &'a [String],
}

impl Report {
    /// Into a file, of all; or to standard output, of what is not whole.
    pub(super) fn new(file: Option<&Path>, json: bool) -> Result<Report, Failure> {
        let (mut is_made, mut out): (_, Box<dyn Write>) = (None, Box::new(io::stdout()));
        if let Some(path) = file {
            let made = create(path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Failure::plain(format!(
                    "{}: something of this name is there already: name a new file for the report",
                    shown(path)
                )),
                _ => Failure::plain(sentence_of(shown(path), &error)),
            })?;
            if made.metadata().is_ok_and(|found| found.is_file()) {
                is_made = Some(path.to_owned());
            }
            out = Box::new(made);
        }
        let out = Box::new(BufWriter::new(out));
        Ok(Report { out, all: file.is_some(), json, made: is_made, is_short: false, tree: None })
    }

    /// Removes the file that was made for it, if it has no line.
    pub(super) fn forget_if_empty(&mut self) {
        let is_empty = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() == 0);
        if let Some(path) = self.made.take().filter(is_empty) {
            // What is left of it does no harm.
            let _ = fs::remove_file(path);
        }
    }

    /// Says what became of a file. Files are copied on when the reader of the lines has gone.
    pub(super) fn file(&mut self, found: &FileNote) -> io::Result<()> {
        let is_short = found.not_set.iter().any(|name| is_missed(name));
        self.is_short |= is_short;
        if found.is_whole() && !is_short && !self.all {
            return Ok(());
        }
        match self.line(found) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.out = Box::new(io::sink());
                Ok(())
            }
            Err(error) => {
                let words = format!("the report: {}", plain_words(&error));
                Err(io::Error::new(error.kind(), words))
            }
            said => said,
        }
    }

    fn line(&mut self, found: &FileNote) -> io::Result<()> {
        let path = format!("/{}", show::name(&found.path));
        if self.json {
            let line = Line {
                tree: self.tree.as_deref(),
                path,
                inode: found.inode,
                whole: found.is_whole(),
                size: found.size,
                holes: &found.holes,
                unproved: &found.unproved,
                older: found.version,
                name_lost: found.is_name_lost,
                missing: &found.missing,
                not_set: &found.not_set,
            };
            return writeln!(self.out, "{}", json::text(&line));
        }
        let tree = self.tree.as_ref().map_or(String::new(), |tree| format!("{tree}:"));
        let whole = found.is_whole().then(|| "whole".to_owned());
        let words = whole.into_iter().chain(found.words()).collect::<Vec<_>>().join("; ");
        writeln!(self.out, "{tree}{path}: {}", crate::outcome::printable(&words))
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        match self.out.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

/// What was found in all, in a sentence.
pub(super) fn sentence(counts: &Counts) -> String {
    let mut words =
        vec![format!("{} of {} whole", counts.whole, show::count(counts.found, "file"))];
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            words.push(format!("{count} {what}"));
        }
    };
    add(counts.with_holes, "with bytes missing");
    add(counts.older, "perhaps not of the last version");
    add(counts.nameless, "without a name");
    add(counts.lost, "lost but for the name");
    add(
        counts.without_attributes,
        "without some attributes, which the host does not take (--report names them)",
    );
    if counts.missing_bytes > 0 {
        words.push(format!("{} missing", holdfast_service::size::show(counts.missing_bytes)));
    }
    words.join(", ")
}

/// A new file for this user alone, or a terminal or pipe of this user that is there. Nothing that is there is overwritten, whatever its
/// name leads to: it may be what the command reads.
fn create(path: &Path) -> io::Result<File> {
    let takes_bytes = |found: &Metadata| {
        is_ours(found) && (found.file_type().is_char_device() || found.file_type().is_fifo())
    };
    if std::fs::symlink_metadata(path).is_ok_and(|found| is_ours(&found)) {
        // Held before it is judged: an open for writing would wait for a reader of a pipe that has taken its place.
        let flags = OFlags::PATH.bits().cast_signed();
        let held = File::options().read(true).custom_flags(flags).open(path)?;
        return match takes_bytes(&held.metadata()?) {
            true => File::options().write(true).open(format!("/proc/self/fd/{}", held.as_raw_fd())),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        };
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}
