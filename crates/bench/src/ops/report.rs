//! The costs as sections of a report: one table to read, and the numbers of each kind apart.

use super::{Column, Cost, Plan, ROWS};
use crate::result::{Cell, Row, Section, Table, Unit};
use crate::systems::System;

/// A number of a cost, and what it is called.
type Kind = (&'static str, &'static str, Unit, fn(&Cost) -> f64);

const KINDS: [Kind; 4] = [
    ("bytes", "bytes written per operation", Unit::Bytes, |cost| cost.bytes),
    ("writes", "write requests per operation", Unit::Count, |cost| cost.writes),
    ("flushes", "flushes per operation", Unit::Count, |cost| cost.flushes),
    ("later", "bytes written afterwards, until unmounted", Unit::Bytes, |cost| cost.later_bytes),
];

/// The first one is for people; the others hold its numbers, and what came later.
pub fn sections(plan: &Plan, about: &str, columns: &[Column]) -> Vec<Section> {
    let about = format!(
        "KiB / write requests / flushes for each of {} operations (SQLite with a rollback journal: 30 %), on {about}. \
         {} files and one of {} are there before{}; {} renames. The kernel counts a flush without data as a write.",
        plan.operations,
        plan.files,
        Unit::Bytes.show(plan.large_bytes as f64),
        match plan.snapshots {
            0 => String::new(),
            some => format!(", and on Holdfast {some} snapshots"),
        },
        plan.renames,
    );
    let mut sections = vec![summary(&about, columns)];
    sections.extend(KINDS.map(|kind| numbers(kind, columns)));
    sections
}

fn summary(about: &str, columns: &[Column]) -> Section {
    let mut table = Table::new("operation");
    for column in columns {
        table = table.column(&column.name, &column.title, Unit::None);
    }
    table = table.column("best-bytes", "best peer / Holdfast, bytes", Unit::Ratio);
    table = table.column("best-flushes", "flushes", Unit::Ratio);
    table = table.column("best-all-bytes", "bytes with those of later", Unit::Ratio);
    let mut worse = [const { Vec::<String>::new() }; 3];
    for (number, operation) in ROWS.iter().enumerate() {
        let mut row = Row::new(operation.name);
        for column in columns {
            row = row.cell(match &column.costs[number] {
                Ok(cost) => Cell::text(triple(cost)),
                Err(why) => Cell::missing(why),
            });
        }
        let with_later: fn(&Cost) -> f64 = |cost| cost.bytes + cost.later_bytes;
        let compared = [KINDS[0].3, KINDS[2].3, with_later];
        for (worse, value) in worse.iter_mut().zip(compared) {
            let (ours, best) = (ours(columns, number, value), best(columns, number, value));
            row = row.cell(ratio(ours, best));
            if let (Some(ours), Some((best, system))) = (ours, best)
                && ours > best * 1.005
            {
                worse.push(format!("{} ({system})", operation.name));
            }
        }
        table.push(row);
    }
    let section = Section::new("ops", "What an operation costs", about, table);
    if !columns.iter().any(|column| column.is_peer) {
        return section;
    }
    let kinds = ["in bytes", "in flushes", "in bytes with those of later"];
    let said = kinds.iter().zip(worse).map(|(kind, worse)| match worse.is_empty() {
        true => format!("{kind}: nowhere"),
        false => format!("{kind}: {}", worse.join(", ")),
    });
    section.note(format!("Above the best peer {}.", said.collect::<Vec<_>>().join("; ")))
}

fn numbers((name, title, unit, value): Kind, columns: &[Column]) -> Section {
    let mut table = Table::new("operation");
    for column in columns {
        table = table.column(&column.name, &column.title, unit);
    }
    for (number, operation) in ROWS.iter().enumerate() {
        table.push(columns.iter().fold(Row::new(operation.name), |row, column| {
            row.cell(match &column.costs[number] {
                Ok(cost) => Cell::one(value(cost)),
                Err(why) => Cell::missing(why),
            })
        }));
    }
    let title = format!("What an operation costs: {title}");
    Section::new(format!("ops-{name}"), title, "The table above, one kind of number.", table)
}

/// `5.0 / 2 / 2`.
fn triple(cost: &Cost) -> String {
    let short = |value: f64| {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").map_or(text.clone(), String::from)
    };
    format!("{:.1} / {} / {}", cost.bytes / 1024.0, short(cost.writes), short(cost.flushes))
}

/// What Holdfast has at the loop device, where the peers were counted, and by default rather than through rings.
fn ours(columns: &[Column], row: usize, value: fn(&Cost) -> f64) -> Option<f64> {
    let named = |system: System| columns.iter().find(|column| column.name == system.word());
    let column = named(System::Holdfast).or_else(|| named(System::Rings))?;
    column.costs[row].as_ref().ok().map(value)
}

/// The least of the kernel's filesystems, and whose it is.
fn best(columns: &[Column], row: usize, value: fn(&Cost) -> f64) -> Option<(f64, &str)> {
    let peers = columns.iter().filter(|column| column.is_peer);
    let values = peers.filter_map(|column| {
        Some((value(column.costs[row].as_ref().ok()?), column.title.as_str()))
    });
    values.min_by(|one, other| one.0.total_cmp(&other.0))
}

fn ratio(ours: Option<f64>, best: Option<(f64, &str)>) -> Cell {
    match (ours, best) {
        (Some(ours), Some((best, _))) if ours > 0.0 => Cell::one(best / ours),
        (Some(_), Some((best, _))) if best > 0.0 => Cell::text("ours is 0"),
        (Some(_), Some(_)) => Cell::one(1.0),
        _ => Cell::missing(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_peer_is_the_one_with_least() {
        let cost = |bytes| Cost { bytes, writes: 1.0, flushes: 1.5, later_bytes: 0.0 };
        let column = |system: System, bytes| Column {
            costs: vec![Ok(cost(bytes)); ROWS.len()],
            ..Column::of(system)
        };
        let columns = [
            column(System::Holdfast, 4608.0),
            column(System::Ext4, 28672.0),
            column(System::Xfs, 5120.0),
            Column::missing(System::Btrfs, "mkfs.btrfs is missing"),
        ];
        let sections = sections(&Plan::QUICK, "memory", &columns);
        let table = &sections[0].table;
        let cell = |key| table.cell("chmod + fsync", key).cloned();
        assert_eq!(cell("holdfast"), Some(Cell::text("4.5 / 1 / 1.5")));
        assert_eq!(cell("best-bytes"), Some(Cell::one(5120.0 / 4608.0)));
        assert_eq!(cell("best-flushes"), Some(Cell::one(1.0)));
        assert_eq!(cell("btrfs"), Some(Cell::missing("mkfs.btrfs is missing")));
        let nowhere = "Above the best peer in bytes: nowhere; in flushes: nowhere; \
                       in bytes with those of later: nowhere.";
        assert_eq!(sections[0].notes[0], nowhere);
        assert_eq!(sections.len(), 5);
        let worse = super::sections(
            &Plan::QUICK,
            "memory",
            &[columns[1].clone(), column(System::Holdfast, 1e6)],
        );
        let note = &worse[0].notes[0];
        assert!(note.contains("in bytes: append 4 KiB + fsync (ext4), "), "{note}");
        assert!(note.contains("in flushes: nowhere; "), "{note}");
    }
}
