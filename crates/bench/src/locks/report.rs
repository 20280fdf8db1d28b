//! The tables: all operations with what more processors would gain, and the locks of each operation.

use std::collections::BTreeSet;

use holdfast_locks::counted::{CountingCost, LockClass, LockCounts};

use super::Scale;
use super::simulation::speed_up;
use super::trace::Traced;
use super::work::{Operation, Run};
use crate::result::{Cell, Row, Section, Table, Unit};

/// For so many processors the gain is predicted.
const PROCESSORS: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// A class that fewer acquisitions of an operation are of has no row.
const TAKEN_MIN: f64 = 0.005;

/// What was found out about one operation.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) operation: Operation,
    pub(super) runs: Vec<Run>,
    pub(super) traced: Traced,
    /// What so many of [`PROCESSORS`] gain.
    predicted: Vec<Option<f64>>,
}

impl Measured {
    /// With what the traces predict.
    pub(super) fn new(operation: Operation, runs: Vec<Run>, traced: Traced) -> Measured {
        let (operations, locks) = (&traced.operations, traced.shared.len());
        let predicted = PROCESSORS.map(|processors| speed_up(operations, locks, processors)).into();
        Measured { operation, runs, traced, predicted }
    }
}

/// All sections.
pub(super) fn sections(scale: &Scale, all: &[Measured], cost: &CountingCost) -> Vec<Section> {
    let mut sections = vec![summary(scale, all, cost)];
    sections.extend(all.iter().map(|measured| of_operation(measured, cost)));
    sections
}

fn summary(scale: &Scale, all: &[Measured], cost: &CountingCost) -> Section {
    let mut table = Table::new("operation").column("time-1", "time", Unit::Nanoseconds);
    for threads in &scale.threads[1..] {
        let first = scale.threads[0];
        let title = format!("{threads} threads over {first}, counted");
        table = table.column(format!("gain-{threads}"), title, Unit::Ratio);
    }
    for threads in &scale.threads {
        let title = format!("sleeps ({threads})");
        table = table.column(format!("sleeps-{threads}"), title, Unit::Ratio);
    }
    table = table.column("serial", "serial part", Unit::Nanoseconds);
    for processors in PROCESSORS {
        let (key, title) = (format!("predicted-{processors}"), format!("×{processors}"));
        table = table.column(key, title, Unit::Ratio);
    }
    for measured in all {
        let Measured { operation, runs, traced, predicted } = measured;
        let mut row = Row::new(operation.title()).cell(Cell::one(traced.time));
        for run in &runs[1..] {
            row = row.cell(Cell::one(run.rate / runs[0].rate));
        }
        for run in runs {
            row = row.cell(Cell::one(run.sleeps as f64 / run.count as f64));
        }
        row = row.cell(Cell::maybe(traced.serial.map(|(_, nanos)| nanos)));
        for gain in predicted {
            row = row.cell(Cell::maybe(*gain));
        }
        table.push(row);
    }
    let about = format!(
        "In memory, where a flush costs nothing; {} operations of each thread, in a directory of its own. Counting takes \
         {:.0} ns for each acquisition, {:.0} ns of it while the lock is held, and is subtracted but from what several \
         threads gain. Sleeps are waits that the kernel was asked for (futexes), of an operation.",
        scale.ops, cost.all, cost.held
    );
    Section::new("locks", "Operations and their locks", about, table).note(
        "×N: what N processors would gain, where nothing but the locks that all threads share is in the way: neither \
         cache lines nor the time to wake a thread, and each fsync flushes for itself.",
    )
}

/// Of each operation, without what counting takes.
struct Each {
    taken: f64,
    held: f64,
    waited: f64,
    contended: f64,
    conditions: f64,
}

impl Each {
    fn of(counts: &LockCounts, count: u64, cost: &CountingCost) -> Each {
        let count = count as f64;
        let counting = counts.taken as f64 * cost.held + counts.within as f64 * cost.all;
        Each {
            taken: counts.taken as f64 / count,
            held: (counts.held as f64 - counting).max(0.0) / count,
            waited: (counts.waited + counts.paused) as f64 / count,
            contended: counts.contended as f64 / counts.taken.max(1) as f64,
            conditions: counts.conditions as f64 / count,
        }
    }
}

/// The locks of one operation, those that are held longest in front.
fn of_operation(measured: &Measured, cost: &CountingCost) -> Section {
    let Measured { operation, runs, traced, .. } = measured;
    let mut table = Table::new("lock").column("shared", "of", Unit::None);
    for Run { threads, .. } in runs {
        for (key, title, unit) in [
            ("taken", "taken", Unit::Ratio),
            ("held", "held", Unit::Nanoseconds),
            ("waited", "waited", Unit::Nanoseconds),
            ("contended", "contended", Unit::Share),
        ] {
            table = table.column(format!("{key}-{threads}"), format!("{title} ({threads})"), unit);
        }
    }
    let shared = traced.shared_classes();
    let classes: BTreeSet<&LockClass> = runs.iter().flat_map(|run| run.classes.keys()).collect();
    let mut rows = Vec::new();
    for class in classes {
        let each =
            |run: &Run| run.classes.get(class).map(|counts| Each::of(counts, run.count, cost));
        let each: Vec<Option<Each>> = runs.iter().map(each).collect();
        if each.iter().flatten().all(|each| each.taken < TAKEN_MIN) {
            continue;
        }
        let held = each.iter().flatten().map(|each| each.held).fold(0.0, f64::max);
        let whose = if shared.contains(class) { "all" } else { "one thread" };
        let mut row = Row::new(class.to_string()).cell(Cell::text(whose));
        for each in each {
            let cells = each.map(|each| [each.taken, each.held, each.waited, each.contended]);
            for number in 0..4 {
                row = row.cell(Cell::maybe(cells.map(|cells| cells[number])));
            }
        }
        rows.push((held, row));
    }
    rows.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    rows.into_iter().for_each(|(_, row)| table.push(row));
    let about = "Of each operation: acquisitions, how long the lock is held (with what is done and taken meanwhile), how \
                 long it and its conditions are waited for; contended: the share of acquisitions that had to wait.";
    let title = format!("Locks of: {}", operation.title());
    let mut section = Section::new(format!("locks-{}", operation.key()), title, about, table);
    for note in notes(measured, cost) {
        section = section.note(note);
    }
    section
}

/// What the table does not say.
fn notes(measured: &Measured, cost: &CountingCost) -> Vec<String> {
    let Measured { operation, runs, traced, predicted } = measured;
    let nanos = |nanos| Unit::Nanoseconds.show(nanos);
    let mut notes = Vec::new();
    if let Some((lock, serial)) = traced.serial {
        let (class, time) = (lock.class(), nanos(traced.time));
        notes.push(format!("Serial part: {} of {time}, {class}.", nanos(serial)));
    }
    for run in runs {
        let mut sum = LockCounts::default();
        run.classes.values().for_each(|counts| sum.add(counts));
        let each = Each::of(&sum, run.count, cost);
        notes.push(format!(
            "{}, with counting: {} for each, {:.1} acquisitions, {} waited, {:.3} waits for conditions, {:.3} sleeps.",
            holdfast_base::show::count(run.threads, "thread"),
            nanos(run.nanos as f64 / run.count as f64),
            each.taken,
            nanos(each.waited),
            each.conditions,
            run.sleeps as f64 / run.count as f64,
        ));
    }
    let gain = |(processors, gain): (usize, &Option<f64>)| match gain {
        Some(gain) => format!("{processors}: {gain:.2}"),
        None => format!("{processors}: -"),
    };
    let gains: Vec<String> = PROCESSORS.into_iter().zip(predicted).map(gain).collect();
    notes.push(format!("Predicted for processors: {}.", gains.join(", ")));
    if traced.left_out > 0 {
        let of = traced.left_out + traced.operations.len();
        notes.push(format!(
            "{} of {of} traced operations ({}) were interrupted and are left out of it.",
            traced.left_out,
            operation.title()
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::simulation::Step;
    use std::collections::BTreeMap;

    fn class(line: u32) -> LockClass {
        LockClass { file: "crates/store/src/open.rs", line, guards: "store::Tree" }
    }

    #[test]
    fn times_are_of_each_operation_and_without_counting() {
        let counts = LockCounts {
            taken: 20,
            contended: 5,
            held: 3_000,
            waited: 400,
            paused: 100,
            conditions: 1,
            within: 10,
            ..LockCounts::default()
        };
        let few = LockCounts { taken: 1, held: 9_000, ..LockCounts::default() };
        let run = |threads| Run {
            threads,
            count: 1_000,
            nanos: 1_000_000,
            rate: 1e6 * threads as f64,
            classes: BTreeMap::from([(class(7), counts), (class(8), few)]),
            sleeps: 250,
        };
        let traced = Traced {
            operations: vec![vec![Step::Work(900)]],
            shared: Vec::new(),
            time: 900.0,
            serial: None,
            left_out: 1,
        };
        let measured = Measured::new(Operation::Create, vec![run(1), run(2)], traced);
        let scale = Scale { threads: vec![1, 2], ops: 1_000 };
        let sections = sections(&scale, &[measured], &CountingCost { all: 60.0, held: 40.0 });
        let all = |key| sections[0].table.cell("create 4 KiB", key).and_then(Cell::median);
        let found = ["time-1", "gain-2", "sleeps-2", "predicted-8", "serial"].map(all);
        assert_eq!(found, [Some(900.0), Some(2.0), Some(0.25), Some(8.0), None]);
        let table = &sections[1].table;
        assert_eq!(table.rows.len(), 1, "the other one is rare: {table:?}");
        let cell = |key| table.cell("store/src/open.rs:7 Tree", key).and_then(Cell::median);
        let found = ["taken-1", "held-1", "waited-2", "contended-2"].map(cell);
        assert_eq!(found, [Some(0.02), Some(1.6), Some(0.5), Some(0.25)]);
        assert!(sections[1].notes.iter().any(|note| note.contains("0.250 sleeps")));
        assert!(sections[1].notes.iter().any(|note| note.contains("1 of 2 traced")));
    }
}
