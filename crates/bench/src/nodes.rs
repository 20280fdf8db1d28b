//! Creates per second over node size and switch: whether large nodes cost more than small ones.
//!
//! One thread creates empty files in a few directories, in memory, while a
//! timer commits every second. The rounds are interleaved, so that what slows
//! the machine down for a while slows all of them; the median counts.

use std::io;
use std::sync::Arc;

use holdfast::{CreateOptions, Dirty, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::{Device, MemoryDevice};
use serde::Serialize;

use crate::Counts;
use crate::counts::{median, ratio};
use crate::names::Names;
use crate::work::{fill_dirs, open_dirs};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a tree node; the first is what the others are compared with.
    pub node_sizes: Vec<usize>,
    /// Positions of the switch.
    pub switches: Vec<Dirty>,
    /// Files to create in each run.
    pub files: u64,
    /// Directories that they are spread over.
    pub dirs: u64,
    /// Runs of each kind.
    pub rounds: u64,
    /// Seconds between commits.
    pub commit_secs: u32,
}

/// All runs of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Position of the switch.
    pub dirty: &'static str,
    /// Files created in each run.
    pub files: u64,
    /// Files per second in each run.
    pub rounds: Vec<f64>,
    /// The median of them.
    pub per_second: f64,
    /// Over the median of the first node size with the same switch.
    pub to_first: Option<f64>,
    /// Everything that was counted, all runs together.
    pub counts: Counts,
}

/// Runs everything; `seen` is told node size, switch and files per second of each run.
pub fn run(plan: &Plan, mut seen: impl FnMut(usize, Dirty, f64)) -> io::Result<Vec<Row>> {
    let mut kinds = Vec::new();
    for &dirty in &plan.switches {
        kinds.extend(plan.node_sizes.iter().map(|&node_size| (node_size, dirty)));
    }
    let mut rows: Vec<Row> = kinds
        .iter()
        .map(|&(node_size, dirty)| Row {
            node_size,
            dirty: dirty.word(),
            files: plan.files,
            rounds: Vec::new(),
            per_second: 0.0,
            to_first: None,
            counts: Counts::default(),
        })
        .collect();
    for round in 0..plan.rounds {
        for at in 0..kinds.len() {
            // Forwards and backwards in turn: nobody is always the one after the heaviest.
            let at = if round % 2 == 0 { at } else { kinds.len() - 1 - at };
            let (node_size, dirty) = kinds[at];
            let (per_second, counts) = create(plan, node_size, dirty)?;
            seen(node_size, dirty, per_second);
            rows[at].rounds.push(per_second);
            rows[at].counts = rows[at].counts.plus(&counts);
        }
    }
    for row in &mut rows {
        row.per_second = median(row.rounds.clone());
    }
    let first: Vec<(&str, f64)> = rows
        .iter()
        .filter(|row| plan.node_sizes.first() == Some(&row.node_size))
        .map(|row| (row.dirty, row.per_second))
        .collect();
    for row in &mut rows {
        let base = first.iter().find(|(dirty, _)| *dirty == row.dirty);
        row.to_first = base.and_then(|(_, base)| ratio(row.per_second, *base));
    }
    Ok(rows)
}

fn create(plan: &Plan, node_size: usize, dirty: Dirty) -> io::Result<(f64, Counts)> {
    let bytes = (4 << 30) + plan.files * 2048;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    CreateOptions::new().node_size(node_size).format(&device)?;
    let volume =
        VolumeOptions::new().dirty(dirty).commit_secs(plan.commit_secs).open_device(device)?;
    fill_dirs(&volume, plan.dirs.max(1), 0)?;
    let dirs = open_dirs(&volume, plan.dirs.max(1))?;
    volume.commit()?;
    let before = Counts::of(&volume)?;
    let mut names = Names::new("file-");
    let time = Stopwatch::start();
    for number in 0..plan.files {
        let dir = &dirs[(number % dirs.len() as u64) as usize];
        drop(dir.create(names.of(number))?);
    }
    let per_second = plan.files as f64 / time.elapsed().as_secs_f64().max(1e-9);
    let counts = Counts::of(&volume)?.since(&before);
    volume.abandon();
    Ok((per_second, counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_rounds_and_a_ratio() {
        let plan = Plan {
            node_sizes: vec![4096, 65536],
            switches: Dirty::ALL.to_vec(),
            files: 200,
            dirs: 3,
            rounds: 2,
            commit_secs: 1,
        };
        let mut runs = 0;
        let rows = run(&plan, |_, _, _| runs += 1).expect("the workload runs");
        assert_eq!((rows.len(), runs), (6, 12));
        for row in &rows {
            assert_eq!(row.rounds.len(), 2);
            let to_first = row.to_first.expect("the first node size was measured");
            assert!(to_first > 0.0);
            assert!(row.node_size != 4096 || to_first == 1.0);
        }
    }
}
