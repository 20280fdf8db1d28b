//! `holdfast stats --watch`: a sample every so often, until something ends it.
//!
//! Between samples it sleeps on everything that can end it: a signal, a reader that closes our output, a change of the
//! mount table. Ending is never an error, except that the daemon dies and leaves its mount behind.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use holdfast_base::Timestamp;
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_daemon::interrupt::Interrupt;
use holdfast_daemon::mounts::{self, Mount};
use holdfast_daemon::report::{self, Report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;

use super::summary::{self, Interval};
use super::table::{self, Before, Window};
use super::{fields, no_answer, object, values};
use crate::outcome::{Context, Failure, Outcome, complain, printed};

pub(super) fn run(mount: &Mount, every: Duration, all: bool, json: bool) -> Outcome {
    // Before the first look, so that no change is missed.
    let sleep = Sleep::new()?;
    let mut output = Output::new(all, json);
    let mut first: Option<Report> = None;
    let mut before: Option<(Report, Stopwatch)> = None;
    loop {
        let next = Deadline::after(every);
        let Some(now) = ask(mount, first.as_ref())? else {
            return Ok(unmounted(mount));
        };
        let taken = Stopwatch::start();
        let then = before
            .as_ref()
            .map(|(report, at)| Before { report, seconds: at.elapsed().as_secs_f64() });
        let first = first.get_or_insert_with(|| now.clone());
        printed(output.sample(&now, then, first))?;
        before = Some((now, taken));
        loop {
            match sleep.until(next).context("poll")? {
                Woken::Time => break,
                Woken::Ended => return Ok(0),
                Woken::Mounts if is_mounted(mount)? => {}
                Woken::Mounts => return Ok(unmounted(mount)),
            }
        }
    }
}

fn unmounted(mount: &Mount) -> u8 {
    complain(&format!("{} was unmounted", mount.dir.display()));
    0
}

fn is_mounted(mount: &Mount) -> Result<bool, Failure> {
    Ok(mounts::list().context("/proc/self/mountinfo")?.contains(mount))
}

/// A report of the daemon that made the `first`; `None` when it does not serve this mount any more.
fn ask(mount: &Mount, first: Option<&Report>) -> Result<Option<Report>, Failure> {
    if !is_mounted(mount)? {
        return Ok(None);
    }
    match report::ask(mount) {
        // Unmounted and mounted again between two samples: what is counted now began at 0.
        Ok(report) => Ok(first.is_none_or(|first| first.pid == report.pid).then_some(report)),
        Err(error) if is_mounted(mount)? => Err(no_answer(mount, &error)),
        Err(_) => Ok(None),
    }
}

/// Where samples go, and how they look there.
struct Output {
    /// Every statistic, or the summary.
    all: bool,
    json: bool,
    /// Lines of the last table on a terminal and the window that they were made for; `None` elsewhere.
    screen: Option<(usize, Option<Window>)>,
}

impl Output {
    fn new(all: bool, json: bool) -> Output {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = !json && !dumb && io::stdout().is_terminal();
        Output { all, json, screen: terminal.then_some((0, None)) }
    }

    fn sample(&mut self, now: &Report, then: Option<Before<'_>>, first: &Report) -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let at = Timestamp::now();
        if self.json {
            writeln!(out, "{}", holdfast_service::json::text(&json(now, at, then)))?;
        } else if let Some((lines, window)) = &mut self.screen {
            let size = window_size();
            if *window != size {
                // The terminal may have wrapped lines anew: their number is not valid any more.
                if *lines > 0 {
                    write!(out, "\x1b[2J\x1b[H")?;
                }
                (*lines, *window) = (0, size);
            }
            let table = shown(self.all, now, at, then, first, size);
            if *lines > 0 {
                write!(out, "\x1b[{lines}A\r")?;
            }
            for line in &table {
                writeln!(out, "{line}\x1b[K")?;
            }
            write!(out, "\x1b[J")?;
            *lines = table.len();
        } else {
            for line in shown(self.all, now, at, then, first, None) {
                writeln!(out, "{line}")?;
            }
            writeln!(out)?;
        }
        out.flush()
    }
}

/// A sample as lines that fit the window.
fn shown(
    all: bool,
    now: &Report,
    at: Timestamp,
    then: Option<Before<'_>>,
    first: &Report,
    window: Option<Window>,
) -> Vec<String> {
    if all {
        return table::sample(now, at, then, first, window);
    }
    let mut lines = vec![table::head(now, at)];
    // One row is for the head, and one for the cursor.
    let rows = window.map(|window| window.rows.saturating_sub(2).max(1));
    lines.extend(summary::lines(now, then.map(|then| (then.report, then.seconds)), rows));
    if let Some(window) = window {
        for line in &mut lines {
            *line = line.chars().take(window.columns).collect();
        }
    }
    lines
}

/// The terminal's size, if it knows one.
fn window_size() -> Option<Window> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0)
        .then(|| Window { columns: size.ws_col.into(), rows: size.ws_row.into() })
}

/// A sample as one line. Everything that was counted, and what of it is new.
fn json(now: &Report, at: Timestamp, then: Option<Before<'_>>) -> Value {
    let mut line = object(now);
    let seconds = at.secs as f64 + f64::from(at.nanos) / 1e9;
    line.insert("timestamp".into(), seconds.into());
    line.insert("seconds".into(), then.map(|then| then.seconds).into());
    let interval = then.map(|then| fields(&Interval::between(now, Some(then.report))));
    line.insert("interval".into(), interval.into());
    let deltas = then.map(|then| {
        values(now, |counter| {
            let old = table::find(then.report, counter).filter(|old| !old.gauge)?;
            Some(counter.value.saturating_sub(old.value))
        })
    });
    line["all"]["deltas"] = deltas.into();
    line.into()
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Time,
    /// By a signal, or because the reader of our output is gone.
    Ended,
    /// Something was mounted or unmounted.
    Mounts,
}

/// What can wake us before the time.
struct Sleep {
    interrupt: Interrupt,
    mounts: File,
}

impl Sleep {
    fn new() -> Result<Sleep, Failure> {
        let interrupt = Interrupt::catch().context("signals")?;
        let mounts = File::open("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
        Ok(Sleep { interrupt, mounts })
    }

    fn until(&self, deadline: Deadline) -> io::Result<Woken> {
        let stdout = io::stdout();
        loop {
            let mut waiting = [
                PollFd::new(&self.interrupt, PollFlags::IN),
                // The kernel says so by an error of this file, once for each change.
                PollFd::new(&self.mounts, PollFlags::PRI),
                // With no events asked for, it still reports that the other end of a pipe is closed.
                PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()),
            ];
            let left = Timespec::try_from(deadline.left()).map_err(io::Error::other)?;
            match poll(&mut waiting, Some(&left)) {
                Ok(0) => return Ok(Woken::Time),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [signals, mounts, stdout] = waiting.map(|fd| !fd.revents().is_empty());
            if signals || stdout {
                return Ok(Woken::Ended);
            }
            if mounts {
                return Ok(Woken::Mounts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn in_a_low_window_errors_stand_behind_the_head() {
        let report = super::super::summary::tests::busy(1);
        let at = Timestamp { secs: 10, nanos: 0 };
        let show = |window| shown(false, &report, at, None, &report, window);
        let whole = show(None);
        assert!(whole[0].contains("served by process") && whole[1].starts_with("errors "));
        for (columns, rows) in [(80, 24), (80, 12), (80, 4), (10, 8), (1, 3)] {
            let lines = show(Some(Window { columns, rows }));
            assert!(lines.len() < rows, "{lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{lines:?}");
            if rows > 3 {
                assert!(whole[1].starts_with(&lines[1]) && lines[1].starts_with('e'), "{lines:?}");
            }
        }
    }

    #[test]
    fn json_lines_hold_values_and_what_is_new() {
        let (then, now) = (report(2, 100, 4), report(5, 50, 4));
        let at = Timestamp { secs: 10, nanos: 500_000_000 };
        let line = json(&now, at, Some(Before { report: &then, seconds: 2.0 }));
        assert_eq!(line["timestamp"], 10.5);
        assert_eq!(line["seconds"], 2.0);
        let (all, deltas) = (&line["all"], &line["all"]["deltas"]);
        assert_eq!(all["counters"]["commits"], 5);
        assert_eq!(all["counters"]["journal_bytes_used"], 50);
        assert_eq!(deltas["counters"]["commits"], 3);
        assert_eq!(deltas["counters"]["frozen_ns"], 5_100_000);
        assert_eq!(deltas["device"]["flushes"], 0);
        assert!(deltas["counters"].get("journal_bytes_used").is_none());
        assert_eq!(line["interval"]["bytes"]["written_to_device"], 0);
        let line = json(&now, at, None);
        assert!(line["all"]["deltas"].is_null() && line["seconds"].is_null());
        assert!(line["interval"].is_null());
    }
}
