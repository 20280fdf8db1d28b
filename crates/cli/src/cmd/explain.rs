//! `holdfast explain`: what the last fsync of a file or directory cost, and why.
//!
//! The daemon keeps it and tells it by the attribute `holdfast.fsync` of the file. Permission to read the file is
//! enough to ask, and the kernel finds the file through links, bind mounts and `/proc/PID/fd`. Asking changes nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_base::show::time;
use holdfast_daemon::{ask, mounts};
use holdfast_service::json;
use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::outcome::{Context, Failure, Outcome, printable, printed};

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Say what the last fsync of a file or directory in a mounted volume cost, and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An fsync writes what changed since the fsync before, of all files, with one write, and flushes once.
Programs that call fsync at the same time share that: one of them writes for all (a batch).

The last fsync of each of the last 4096 files is known, since the volume was mounted; the volume's
root also knows the last `holdfast sync`. With --json all numbers are shown, in bytes and
nanoseconds (names with `_ns`); `led` says whether this fsync wrote the batch or waited for another
one to write it.")]
pub(crate) struct Args {
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A file or directory in a mounted volume.
    path: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let answer = ask_about(&args.path)?;
    let mut out = std::io::stdout().lock();
    use std::io::Write;
    if args.json {
        let mut object = answer.values;
        object.insert("path".into(), args.path.to_string_lossy().into());
        object.insert("says".into(), answer.says.into());
        printed(writeln!(out, "{}", json::text(&object)))?;
        return Ok(0);
    }
    let path = args.path.to_string_lossy();
    printed(writeln!(out, "{}: {}", printable(&path), answer.head()))?;
    if let Some(path) = answer.values.get("volume_path").and_then(Value::as_str) {
        printed(writeln!(out, "  in the volume: {path}"))?;
    }
    for statement in &answer.says {
        printed(writeln!(out, "  {statement}"))?;
    }
    Ok(0)
}

/// What the daemon knows of the last fsync of one file.
#[derive(Debug, PartialEq)]
struct Answer {
    /// Every value by its name.
    values: Map<String, Value>,
    /// What it means.
    says: Vec<String>,
}

fn ask_about(path: &Path) -> Result<Answer, Failure> {
    let none = || Failure::plain(format!("{}: no fsync of it is known", path.display()));
    let elsewhere =
        || Failure::plain(format!("{} is not in a mounted Holdfast volume", path.display()));
    let answered = ask::attribute(path, "holdfast.fsync", PATIENCE);
    let error = match answered {
        Ok(value) => return Ok(Answer::parse(&String::from_utf8_lossy(&value))),
        Err(error) => error,
    };
    match Errno::from_io_error(&error) {
        Some(Errno::OPNOTSUPP) => Err(elsewhere()),
        // Other filesystems may answer so for any name that they do not know.
        Some(Errno::NODATA) => match mounts::around(path).context("/proc/self/mountinfo")? {
            Some(_) => Err(none()),
            None => Err(elsewhere()),
        },
        _ if error.kind() == std::io::ErrorKind::TimedOut => {
            let patience = PATIENCE.as_secs();
            let path = path.display();
            Err(Failure::plain(format!("{path}: the daemon does not answer within {patience} s")))
        }
        _ => Err(error).context(path.display()),
    }
}

impl Answer {
    /// Reads lines of a name and a value. A daemon of another version may say more or less.
    fn parse(text: &str) -> Answer {
        let (mut values, mut says) = (Map::new(), Vec::new());
        let lines: Vec<_> = text.lines().map(printable).collect();
        for (name, value) in lines.iter().filter_map(|line| line.split_once(' ')) {
            if name == "says" {
                says.push(value.to_owned());
                continue;
            }
            let value = match (value.parse::<u64>(), value) {
                (Ok(number), _) => number.into(),
                (_, "true") => true.into(),
                (_, "false") => false.into(),
                _ => value.into(),
            };
            values.insert(name.into(), value);
        }
        Answer { values, says }
    }

    /// `fsync 1.2 s ago, it took 704.1 us`
    fn head(&self) -> String {
        let what = self.values.get("what").and_then(Value::as_str).unwrap_or("fsync");
        let time = |name: &str| {
            let nanos = self.values.get(name).and_then(Value::as_u64).unwrap_or(0);
            time(Duration::from_nanos(nanos))
        };
        format!("{what} {} ago, it took {}", time("ago_ns"), time("took_ns"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_numbers_and_sentences() {
        let answer = Answer::parse(
            "what synchronous write\nago_ns 1200000\ntook_ns 704100\nled true\nescape log_full\n\
             says batch 7 of the log: 512 B\nsays more \x1b[2J\nodd\n",
        );
        assert_eq!(answer.head(), "synchronous write 1.2 ms ago, it took 704.1 us");
        assert_eq!(answer.says, ["batch 7 of the log: 512 B", "more \\u{1b}[2J"]);
        assert_eq!(answer.values["took_ns"], 704_100);
        assert_eq!(answer.values["led"], true);
        assert_eq!(answer.values["escape"], "log_full");
        assert_eq!(Answer::parse("").head(), "fsync 0 s ago, it took 0 s");
    }
}
