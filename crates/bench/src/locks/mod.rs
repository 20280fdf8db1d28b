//! Which locks an operation takes, how long it holds them and waits for them, and what more processors would gain.
//!
//! Works in a program whose locks count (`make locks`); in any other it finds no lock. Threads work in a volume in memory, each
//! in a directory of its own; each counts for itself, so that what the threads of the volume do meanwhile shows as
//! waits alone. Times are without what counting itself takes, which is measured before.
//!
//! For the prediction two threads do each operation one after the other, and every acquisition and release is
//! remembered. A lock that both have taken is one that all threads share; all others are of one thread or
//! one file. These traces are replayed with more threads (`simulation.rs`).

mod report;
mod simulation;
mod trace;
mod work;

use std::io;

pub use holdfast_locks::COUNTED;
use holdfast_locks::counted::cost;

use crate::mechanisms::{Devices, Progress};
use crate::result::Section;
use report::Measured;
use work::Operation;

/// Most operations that are traced of one thread.
const TRACED_MAX: u64 = 2_000;

/// How much to do.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Scale {
    /// How many threads work at the same time, each in a directory of its own.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Vec<u64>,
    /// Operations of each thread.
    #[arg(long, value_name = "N", default_value_t = 20_000,
        value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    pub ops: u64,
}

/// Counts, traces and predicts, on a device of `devices` for each run: a section with all operations, and one for each
/// with its locks. `seen` hears of each operation.
pub fn run(
    scale: &Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Vec<Section>> {
    let (counting, tracing) = (cost(false), cost(true));
    let mut all = Vec::new();
    for operation in Operation::ALL {
        let runs = scale.threads.iter().map(|&threads| {
            let (volume, dirs) = work::volume(devices, threads)?;
            let run = work::count(operation, &volume, &dirs, scale.ops);
            drop(dirs);
            volume.abandon();
            run
        });
        let runs: Vec<_> = runs.collect::<io::Result<_>>()?;
        let (volume, dirs) = work::volume(devices, 2)?;
        let traces = work::trace(operation, &volume, &dirs, scale.ops.min(TRACED_MAX));
        drop(dirs);
        volume.abandon();
        let traced = trace::read(&traces?, &tracing);
        all.push(Measured::new(operation, runs, traced));
        seen(format!("locks: {}", operation.title()));
    }
    Ok(report::sections(scale, &all, &counting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Cell;
    use holdfast_device::MemoryDevice;
    use std::sync::Arc;

    #[test]
    fn every_operation_is_counted_and_predicted() {
        let scale = Scale { threads: vec![1, 2], ops: 20 };
        let mut memory = |bytes| Ok(Arc::new(MemoryDevice::new(bytes)) as _);
        let mut told = 0;
        let sections = run(&scale, &mut memory, &mut |_| told += 1).expect("the workload runs");
        let names: Vec<&str> = sections.iter().map(|section| section.name.as_str()).collect();
        let expected = ["locks", "locks-create", "locks-append", "locks-read", "locks-stat"];
        assert_eq!(names[..5], expected);
        assert_eq!(names[5..], ["locks-rename", "locks-unlink", "locks-create-fsync"]);
        assert_eq!(told, Operation::ALL.len());
        for section in &sections[1..] {
            assert_eq!(section.table.rows.is_empty(), !COUNTED, "{section:?}");
        }
        for operation in Operation::ALL {
            let cell = |key| sections[0].table.cell(operation.title(), key).and_then(Cell::median);
            assert!(cell("time-1").unwrap() > 0.0 && cell("gain-2").unwrap() > 0.0);
            let predicted = cell("predicted-32").unwrap();
            // Threads have done different operations when the simulation ends, of which few were traced.
            let least = if COUNTED { 0.5 } else { 30.0 };
            assert!((least..34.0).contains(&predicted), "{predicted}");
            assert_eq!(cell("serial").is_some(), COUNTED);
        }
    }
}
