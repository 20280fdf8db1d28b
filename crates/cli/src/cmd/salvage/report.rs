//! What a salvage says of each file, for people and programs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use holdfast_base::show;
use holdfast_salvage::{Counts, Found, Holes, Missing, Version};
use serde::Serialize;

use crate::outcome::{Context, Failure};

/// Where lines about files go.
pub(super) struct Report {
    out: Box<dyn Write>,
    /// Each file, not only those that are not whole.
    all: bool,
    json: bool,
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
}

impl Report {
    /// Into a file, of all; or to standard output, of what is not whole.
    pub(super) fn new(file: Option<&Path>, json: bool) -> Result<Report, Failure> {
        let out: Box<dyn Write> = match file {
            Some(path) => Box::new(BufWriter::new(File::create(path).context(path.display())?)),
            None => Box::new(BufWriter::new(io::stdout())),
        };
        Ok(Report { out, all: file.is_some(), json, tree: None })
    }

    /// Says what became of a file. Files are copied on when the reader of the lines has gone.
    pub(super) fn file(&mut self, found: &Found) -> io::Result<()> {
        if found.is_whole() && !self.all {
            return Ok(());
        }
        match self.line(found) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.out = Box::new(io::sink());
                Ok(())
            }
            said => said,
        }
    }

    fn line(&mut self, found: &Found) -> io::Result<()> {
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
            };
            let line = serde_json::to_string(&line).map_err(io::Error::other)?;
            return writeln!(self.out, "{line}");
        }
        let tree = self.tree.as_ref().map_or(String::new(), |tree| format!("{tree}:"));
        let words = match found.is_whole() {
            true => "whole".into(),
            false => found.words().join("; "),
        };
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
    if counts.missing_bytes > 0 {
        words.push(format!("{} missing", crate::size::show(counts.missing_bytes)));
    }
    words.join(", ")
}
