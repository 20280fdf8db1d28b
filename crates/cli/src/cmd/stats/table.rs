//! Statistics as lines of text: values with units, rates beside them, as much as a window holds.
//!
//! Pure: it knows reports and the size of the window, not where lines go. In
//! a small window the statistics that say the least are left out first: those
//! that are 0, then those that have not moved. What is expected to be 0 and is
//! not stands behind the head, in any window.

use std::time::Duration;

use holdfast_base::Timestamp;
use holdfast_base::counters::Unit;
use holdfast_base::show::time;
use holdfast_daemon::report::{Report, Statistic};
use holdfast_service::moment::utc;
use holdfast_service::size;

use crate::cmd::stats::fsyncs::{self, averages};

/// Columns of name, value and rate, and between two blocks of them.
const NAME: usize = 22;
const VALUE: usize = 12;
const RATE: usize = 14;
const BLOCK: usize = 2 + NAME + VALUE + RATE;
const GAP: usize = 3;
/// The group behind which the averages of fsyncs stand.
const LOG: &str = "log";

/// The previous report, and how long ago it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before<'a> {
    pub(super) report: &'a Report,
    pub(super) seconds: f64,
}

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// Every statistic with its meaning.
pub(super) fn explained(report: &Report) -> Vec<String> {
    let mut lines = vec![super::head(report)];
    lines.extend(alarms(report));
    for group in groups(report) {
        lines.push(String::new());
        lines.push(group.to_string());
        for counter in report.counters.iter().filter(|counter| counter.group == group) {
            let value = value(counter);
            lines.push(format!("{value:>VALUE$}  {}: {}", counter.name, counter.meaning));
        }
        let averages = if group == LOG { averages(report, None) } else { Vec::new() };
        if !averages.is_empty() {
            lines.push(String::new());
            lines.push(fsyncs::TITLE.into());
        }
        for fsyncs::Average { name, value, meaning } in averages {
            lines.push(format!("{value:>VALUE$}  {name}: {meaning}"));
        }
    }
    lines
}

/// The names of the groups, in their order.
fn groups(report: &Report) -> Vec<&str> {
    let mut groups: Vec<&str> =
        report.counters.iter().map(|counter| counter.group.as_str()).collect();
    groups.dedup();
    groups
}

/// A line that names what is expected to be 0 and is not.
fn alarms(report: &Report) -> Option<String> {
    let alarms = report.counters.iter().filter(|counter| counter.alarm && counter.value > 0);
    let alarms: Vec<String> =
        alarms.map(|counter| format!("{} {}", counter.name, counter.value)).collect();
    (!alarms.is_empty()).then(|| format!("expected to be 0: {}", alarms.join(", ")))
}

/// The first line of a sample.
pub(super) fn head(now: &Report, at: Timestamp) -> String {
    format!("{}, {} UTC", super::head(now), utc(at.secs, "%Y-%m-%d %H:%M:%S"))
}

/// One sample: all of it, or what fits into the window.
pub(super) fn sample(
    now: &Report,
    at: Timestamp,
    before: Option<Before<'_>>,
    first: &Report,
    window: Option<Window>,
) -> Vec<String> {
    let head = head(now, at);
    let all = |_: &Statistic| true;
    let Some(window) = window else {
        let mut lines = vec![head];
        lines.extend(alarms(now));
        lines.extend(blocks(now, before, &all).into_iter().flatten());
        return lines;
    };
    let alarms = alarms(now);
    let not_zero = |counter: &Statistic| counter.value != 0;
    let moved = |counter: &Statistic| {
        let then = find(first, counter).map(|then| then.value);
        then != Some(counter.value)
    };
    // The head, a line that says what is missing, and one for the cursor.
    let room = window.rows.saturating_sub(3 + usize::from(alarms.is_some())).max(1);
    let choices: [&dyn Fn(&Statistic) -> bool; 3] = [&all, &not_zero, &moved];
    let mut lines = Vec::new();
    let mut shown = 0;
    for choice in choices {
        let blocks = blocks(now, before, choice);
        shown = now.counters.iter().filter(|counter| choice(counter)).count();
        lines = side_by_side(blocks, window.columns);
        if lines.len() <= room {
            break;
        }
    }
    let missing = now.counters.len() - shown;
    let cut = lines.len() > room;
    lines.truncate(room);
    lines.splice(0..0, [head].into_iter().chain(alarms));
    if cut {
        lines.push("the window is too small for more".into());
    } else if missing > 0 {
        lines.push(format!("{missing} more are 0 or did not change"));
    }
    for line in &mut lines {
        *line = line.chars().take(window.columns).collect();
    }
    lines
}

/// A block of lines for each group that has something to show.
fn blocks(
    now: &Report,
    before: Option<Before<'_>>,
    choice: &dyn Fn(&Statistic) -> bool,
) -> Vec<Vec<String>> {
    let mut blocks: Vec<Vec<String>> = Vec::new();
    for group in groups(now) {
        let chosen = now.counters.iter().filter(|it| it.group == group && choice(it));
        let lines =
            chosen.map(|counter| line(&counter.name, &value(counter), &rate(counter, before)));
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() {
            continue;
        }
        blocks.push([group.to_string()].into_iter().chain(lines).collect());
        if group == LOG {
            let averages = averages(now, before.map(|before| before.report));
            let lines = averages.iter().map(|average| line(average.name, &average.value, ""));
            let lines: Vec<String> = lines.collect();
            if !lines.is_empty() {
                blocks.push([fsyncs::TITLE.to_string()].into_iter().chain(lines).collect());
            }
        }
    }
    blocks
}

fn line(name: &str, value: &str, rate: &str) -> String {
    format!("  {name:<NAME$}{value:>VALUE$}{rate:>RATE$}").trim_end().to_string()
}

/// Blocks below each other in as many columns as there is room for, the columns as short as can be.
fn side_by_side(blocks: Vec<Vec<String>>, columns: usize) -> Vec<String> {
    let count = ((columns + GAP) / (BLOCK + GAP)).max(1);
    let total: usize = blocks.iter().map(Vec::len).sum();
    let tallest = blocks.iter().map(Vec::len).max().unwrap_or(0);
    let height = (tallest..total).find(|height| packed(&blocks, *height).len() <= count);
    let columns = packed(&blocks, height.unwrap_or(total));
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let line = |row: usize| {
        let cells = columns.iter().map(|column| column.get(row).map_or("", |cell| cell.as_str()));
        let line: String =
            cells.map(|cell| format!("{cell:<width$}", width = BLOCK + GAP)).collect();
        line.trim_end().to_string()
    };
    (0..height).map(line).collect()
}

/// Blocks in their order in columns of at most `height` lines.
fn packed(blocks: &[Vec<String>], height: usize) -> Vec<Vec<&String>> {
    let mut columns: Vec<Vec<&String>> = Vec::new();
    for block in blocks {
        match columns.last_mut() {
            Some(column) if column.len() + block.len() <= height => column.extend(block),
            _ => columns.push(block.iter().collect()),
        }
    }
    columns
}

fn value(counter: &Statistic) -> String {
    match Unit::of(&counter.name) {
        Unit::Number => counter.value.to_string(),
        Unit::Bytes => size::show(counter.value),
        Unit::Nanoseconds => time(Duration::from_nanos(counter.value)),
    }
}

/// What was added in each second; nothing for gauges and the first sample.
fn rate(counter: &Statistic, before: Option<Before<'_>>) -> String {
    let then = before.and_then(|before| Some((find(before.report, counter)?, before.seconds)));
    let Some((then, seconds)) = then.filter(|_| !counter.gauge) else {
        return String::new();
    };
    let added = counter.value.saturating_sub(then.value) as f64 / seconds.max(1e-9);
    match Unit::of(&counter.name) {
        Unit::Number => format!("{added:.1}/s"),
        Unit::Bytes => format!("{}/s", size::show(added as u64)),
        Unit::Nanoseconds => format!("{}/s", time(Duration::from_nanos(added as u64))),
    }
}

/// The same statistic in another report.
pub(super) fn find<'a>(report: &'a Report, counter: &Statistic) -> Option<&'a Statistic> {
    report.counters.iter().find(|other| other.group == counter.group && other.name == counter.name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    fn text(window: Option<Window>) -> Vec<String> {
        let (then, now) = (report(2, 100, 0), report(5, 8192, 0));
        let before = Before { report: &then, seconds: 2.0 };
        sample(&now, Timestamp { secs: 65, nanos: 0 }, Some(before), &then, window)
    }

    #[test]
    fn values_have_units_and_totals_rates() {
        let lines = text(None);
        assert_eq!(lines[0], "/img served by process 7, 1970-01-01 00:01:05 UTC");
        assert_eq!(lines[1], "commits");
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(words(&lines[2]), ["commits", "5", "1.5/s"]);
        assert_eq!(words(&lines[3]), ["frozen_ns", "8.5", "ms", "2.5", "ms/s"]);
        assert_eq!(words(&lines[5]), ["journal_bytes_used", "8.0", "KiB"]);
        assert_eq!(words(&lines[7]), ["flushes", "0", "0.0/s"]);
        let first = report(5, 8192, 0);
        let lines = sample(&first, Timestamp::default(), None, &first, None);
        assert_eq!(words(&lines[2]), ["commits", "5"]);
    }

    #[test]
    fn a_wide_window_has_columns_and_a_small_one_the_most_telling() {
        let wide = text(Some(Window { columns: 200, rows: 50 }));
        assert!(wide[1].contains("commits") && wide[1].contains("checkpoints"), "{wide:?}");
        let low = text(Some(Window { columns: 60, rows: 9 }));
        assert!(low.iter().any(|line| line.contains("journal_bytes_used")), "{low:?}");
        assert!(!low.iter().any(|line| line.contains("flushes")), "{low:?}");
        assert_eq!(low.last().unwrap(), "1 more are 0 or did not change");
        for (columns, rows) in [(1, 1), (10, 4), (80, 2)] {
            let lines = text(Some(Window { columns, rows }));
            assert!(lines.len() <= rows.max(3), "{lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{lines:?}");
        }
    }

    #[test]
    fn what_should_be_0_and_is_not_is_told_in_any_window() {
        let mut report = report(5, 8192, 1);
        let table =
            |report: &Report, window| sample(report, Timestamp::default(), None, report, window);
        let said = |lines: &[String]| lines.get(1).is_some_and(|line| line.contains("to be 0"));
        assert!(!said(&table(&report, None)) && !said(&explained(&report)));
        report.counters[0].alarm = true;
        assert_eq!(explained(&report)[1], "expected to be 0: commits 5");
        for rows in [4, 8, 50] {
            let lines = table(&report, Some(Window { columns: 60, rows }));
            assert!(said(&lines) && lines.len() < rows, "{lines:?}");
        }
        assert!(said(&table(&report, None)));
    }

    #[test]
    fn averages_stand_behind_the_log() {
        let mut report = report(5, 8192, 1);
        for counter in &mut report.counters[..2] {
            counter.group = LOG.into();
        }
        report.counters[0].name = "fsyncs".into();
        let lines = table_lines(&report);
        let title = lines.iter().position(|line| line == fsyncs::TITLE).unwrap();
        assert!(title > lines.iter().position(|line| line == LOG).unwrap());
        assert!(title < lines.iter().position(|line| line == "checkpoints").unwrap());
        assert!(lines[title + 1].trim_start().starts_with("clean "), "{lines:?}");
        assert!(
            explained(&report)
                .iter()
                .any(|line| line.ends_with("  flushes: Flushes: below 1 where fsyncs share them."))
        );
    }

    fn table_lines(report: &Report) -> Vec<String> {
        sample(report, Timestamp::default(), None, report, None)
    }

    #[test]
    fn explained_by_groups() {
        let lines = explained(&report(5, 8192, 1));
        assert!(lines.contains(&"device".to_string()));
        assert!(lines.iter().any(|line| line.trim() == "8.0 KiB  journal_bytes_used: A test."));
    }
}
