//! Statistics as lines of text: values with units, rates beside them, as much as a window holds.
//!
//! Pure: it knows reports and the size of the window, not where lines go. In
//! a small window the statistics that say the least are left out first: those
//! that are 0, then those that have not moved.

use std::time::Duration;

use holdfast_base::Timestamp;
use holdfast_base::counters::Unit;

use crate::cmd::ls::utc;
use crate::daemon::control::{Counter, Report};
use crate::{size, span};

/// Columns of name, value and rate, and between two blocks of them.
const NAME: usize = 22;
const VALUE: usize = 12;
const RATE: usize = 14;
const BLOCK: usize = 2 + NAME + VALUE + RATE;
const GAP: usize = 3;

/// What was asked before, and how long ago.
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
    let mut lines = vec![format!("{} served by process {}", report.volume.display(), report.pid)];
    let mut group = "";
    for counter in &report.counters {
        if counter.group != group {
            group = &counter.group;
            lines.push(String::new());
            lines.push(group.to_string());
        }
        let value = value(counter);
        lines.push(format!("{value:>VALUE$}  {}: {}", counter.name, counter.meaning));
    }
    lines
}

/// One sample: all of it, or what fits into the window.
pub(super) fn sample(
    now: &Report,
    at: Timestamp,
    before: Option<Before<'_>>,
    first: &Report,
    window: Option<Window>,
) -> Vec<String> {
    let seconds = at.secs.rem_euclid(60);
    let head = format!(
        "{} served by process {}, {}:{seconds:02} UTC",
        now.volume.display(),
        now.pid,
        utc(at.secs)
    );
    let all = |_: &Counter| true;
    let Some(window) = window else {
        let mut lines = vec![head];
        lines.extend(blocks(now, before, &all).into_iter().flatten());
        return lines;
    };
    let not_zero = |counter: &Counter| counter.value != 0;
    let moved = |counter: &Counter| {
        let then = find(first, counter).map(|then| then.value);
        then != Some(counter.value)
    };
    // The head, a line that says what is missing, and one for the cursor.
    let room = window.rows.saturating_sub(3).max(1);
    let choices: [&dyn Fn(&Counter) -> bool; 3] = [&all, &not_zero, &moved];
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
    lines.insert(0, head);
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
    choice: &dyn Fn(&Counter) -> bool,
) -> Vec<Vec<String>> {
    let mut blocks: Vec<Vec<String>> = Vec::new();
    let mut group = "";
    for counter in now.counters.iter().filter(|counter| choice(counter)) {
        if counter.group != group {
            group = &counter.group;
            blocks.push(vec![group.to_string()]);
        }
        let line = format!(
            "  {:<NAME$}{:>VALUE$}{:>RATE$}",
            counter.name,
            value(counter),
            rate(counter, before)
        );
        if let Some(block) = blocks.last_mut() {
            block.push(line.trim_end().to_string());
        }
    }
    blocks
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

fn value(counter: &Counter) -> String {
    match Unit::of(&counter.name) {
        Unit::Number => counter.value.to_string(),
        Unit::Bytes => size::show(counter.value),
        Unit::Nanoseconds => span::show(Duration::from_nanos(counter.value)),
    }
}

/// What was added in each second; nothing for gauges and the first sample.
fn rate(counter: &Counter, before: Option<Before<'_>>) -> String {
    let then = before.and_then(|before| Some((find(before.report, counter)?, before.seconds)));
    let Some((then, seconds)) = then.filter(|_| !counter.gauge) else {
        return String::new();
    };
    let added = counter.value.saturating_sub(then.value) as f64 / seconds.max(1e-9);
    match Unit::of(&counter.name) {
        Unit::Number => format!("{added:.1}/s"),
        Unit::Bytes => format!("{}/s", size::show(added as u64)),
        Unit::Nanoseconds => format!("{}/s", span::show(Duration::from_nanos(added as u64))),
    }
}

/// The same statistic in another report.
pub(super) fn find<'a>(report: &'a Report, counter: &Counter) -> Option<&'a Counter> {
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
    fn explained_by_groups() {
        let lines = explained(&report(5, 8192, 1));
        assert!(lines.contains(&"device".to_string()));
        assert!(lines.iter().any(|line| line.trim() == "8.0 KiB  journal_bytes_used: A test."));
    }
}
