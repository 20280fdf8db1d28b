//! Reports as JSON, in memory and in files.

use std::io;
use std::path::Path;

use super::Report;

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
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let report: Report =
            serde_json::from_str(text).map_err(|error| wrong(format!("not a report: {error}")))?;
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
}
