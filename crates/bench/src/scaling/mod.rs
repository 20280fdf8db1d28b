//! What an operation costs as everything around it grows: time and bytes of the device, and how fast both grow.
//!
//! A dimension is one thing that grows: files in a directory, files in a
//! volume, threads, the volume, what is branched. Its table has one row
//! for each operation, and behind the figures the exponent of the power that
//! fits them best: 0 is flat, 1 is in proportion. More files also mean more
//! memory than the caches of a processor hold, so that nothing is quite flat.

mod branches;
mod curves;
mod files;
mod threads;
mod tree;
mod volumes;

use std::io;

use clap::ValueEnum;

use crate::mechanisms::{Devices, Progress, Scale};
use crate::result::Section;

/// One thing that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dimension {
    /// Files of the directory that is worked in.
    Directory,
    /// Files of the volume, a thousand in each directory.
    Files,
    /// Threads at work.
    Threads,
    /// Bytes of the volume.
    Volume,
    /// Files of a tree that is branched.
    Branched,
    /// Snapshots of the volume.
    Snapshots,
}

/// 10 to the power of `first`, and so on to that of `last`.
fn powers(first: u32, last: u32) -> Vec<u64> {
    (first..=last).map(|power| 10u64.pow(power)).collect()
}

/// Measures one dimension in memory, on devices of so many bytes from `devices`.
pub fn run(
    dimension: Dimension,
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    match dimension {
        Dimension::Directory => files::directory(scale, devices, seen),
        Dimension::Files => files::volume(scale, devices, seen),
        Dimension::Threads => threads::run(scale, devices, seen),
        Dimension::Volume => volumes::run(scale, devices, seen),
        Dimension::Branched => branches::files(scale, devices, seen),
        Dimension::Snapshots => branches::snapshots(scale, devices, seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    #[test]
    fn every_dimension_has_figures_an_exponent_and_a_plot() {
        for &dimension in Dimension::value_variants() {
            let mut memory = |bytes| Ok(std::sync::Arc::new(MemoryDevice::new(bytes)) as _);
            let section =
                run(dimension, Scale::Quick, &mut memory, &mut |_| {}).expect("the workload runs");
            assert!(!section.table.rows.is_empty(), "{dimension:?}");
            let times =
                section.table.columns.iter().filter(|column| column.key.starts_with("time"));
            let times = times.count();
            assert!(times >= 2, "{dimension:?}");
            for row in &section.table.rows {
                let found: Vec<f64> =
                    row.cells[..times].iter().filter_map(|cell| cell.median()).collect();
                assert!(!found.is_empty() && found.iter().all(|time| *time > 0.0), "{row:?}");
                let exponent = row.cells[times].median();
                assert!(exponent.is_some() || found.len() < 2, "{row:?}");
            }
            assert!(!section.plots.is_empty() && !section.plots[0].series.is_empty());
        }
    }
}
