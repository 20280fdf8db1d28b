//! Reports as JSON, in files, and in a directory that keeps those of many runs.
//!
//! Such a directory has one for each day, kernel and commit, and in it one file
//! for each benchmark: `2026-01-31-6.12.1-0123456789/mechanisms.json`. Of the
//! runs of one benchmark the one that began last counts.

use std::io;
use std::path::{Path, PathBuf};

use super::{Report, Section};

/// The form that this program writes and reads. It grows when a reader of the old form would be misled.
pub const SCHEMA: u32 = 1;

impl Report {
    /// The stored form, with line ends for people who compare two of them.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a report has only string keys");
        text.push('\n');
        text
    }

    /// Reads [`Report::to_json`]. Another form is an error of kind `InvalidData`.
    pub fn from_json(text: &str) -> io::Result<Report> {
        let report: Report = serde_json::from_str(text)
            .map_err(|error| wrong(format!("not a report of a benchmark: {error}")))?;
        match report.schema {
            SCHEMA => Ok(report),
            other => Err(wrong(format!("a report of form {other}; this program reads {SCHEMA}"))),
        }
    }

    /// Reads a stored report.
    pub fn read(path: &Path) -> io::Result<Report> {
        Report::from_json(&std::fs::read_to_string(path)?)
    }

    /// Stores it at `path`, in place of what was there.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.to_json())
    }

    /// Keeps it in a directory of `dir`, in place of an earlier one of the same day, kernel, commit and
    /// name; says where.
    pub fn keep(&self, dir: &Path) -> io::Result<PathBuf> {
        let day = self.began.split('T').next().unwrap_or_default();
        let dir = dir.join(format!("{day}-{}-{}", self.machine.release(), self.commit));
        std::fs::create_dir_all(&dir)?;
        let path = dir.join(format!("{}.json", self.name()));
        self.write(&path)?;
        Ok(path)
    }
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reports that were kept, the newest of each name.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    reports: Vec<Report>,
}

impl Stored {
    /// Reads what [`Report::keep`] put into `dir`. A directory that is not there holds nothing.
    pub fn read(dir: &Path) -> io::Result<Stored> {
        let mut stored = Stored::default();
        for run in entries(dir)? {
            if !run.is_dir() {
                continue;
            }
            for path in entries(&run)? {
                if path.extension().is_some_and(|extension| extension == "json") {
                    let report = Report::read(&path);
                    let named = |error| wrong(format!("{}: {error}", path.display()));
                    stored.add(report.map_err(named)?);
                }
            }
        }
        Ok(stored)
    }

    /// With one more report; an older one of the same name goes.
    pub fn add(&mut self, report: Report) {
        let name = report.name();
        match self.reports.iter_mut().find(|other| other.name() == name) {
            Some(other) if other.began < report.began => *other = report,
            Some(_) => {}
            None => self.reports.push(report),
        }
    }

    /// A section of the newest report called `report`.
    pub fn section(&self, report: &str, section: &str) -> Option<(&Report, &Section)> {
        let report = self.reports.iter().find(|other| other.name() == report)?;
        Some((report, report.section(section)?))
    }
}

/// What is in a directory, by name. Nothing, if there is none.
fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let found = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths = found.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::example;

    #[test]
    fn what_was_kept_is_found_and_the_newest_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Stored::read(&dir.path().join("none")).unwrap().reports.is_empty());
        let mut report = Report::begin(["holdfast", "bench", "ops"].map(String::from));
        report.sections.push(example());
        report.machine.kernel = "Linux 6.1-x".into();
        report.commit = "0123".into();
        for began in ["2026-02-01T10:00:00Z", "2026-03-01T10:00:00Z", "2026-01-01T10:00:00Z"] {
            report.began = began.into();
            let path = report.keep(dir.path()).unwrap();
            let day = began.split('T').next().unwrap();
            assert_eq!(path, dir.path().join(format!("{day}-6.1-x-0123/ops.json")));
        }
        let stored = Stored::read(dir.path()).unwrap();
        let (found, section) = stored.section("ops", "example").unwrap();
        assert_eq!((found.began.as_str(), section), ("2026-03-01T10:00:00Z", &example()));
        assert!(stored.section("ops", "other").is_none() && stored.section("x", "y").is_none());
    }
}
