//! What an operation costs as everything around it grows: time and bytes of the device, and how fast both grow.
//!
//! A dimension is one thing that grows: files in a directory, files in a
//! volume, what is pending, threads, nodes, the volume, what is branched. Its table has one row
//! for each operation, and behind the figures the exponent of the power that
//! fits them best: 0 is flat, 1 is in proportion. More files also mean more
//! memory than the caches of a processor hold, so that nothing is quite flat.

mod branches;
mod curves;
mod files;
mod pending;
mod threads;
mod volumes;

use std::io;
use std::str::FromStr;
use std::sync::Arc;

use holdfast_device::Device;

use crate::mechanisms::{Progress, Scale};
use crate::result::Section;

/// One thing that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Files of the directory that is worked in.
    Directory,
    /// Files of the volume, a thousand in each directory.
    Files,
    /// Records that an fsync finds pending.
    Pending,
    /// Threads at work.
    Threads,
    /// Bytes of a tree node.
    Nodes,
    /// Bytes of the volume.
    Volume,
    /// Files of a tree that is branched.
    Branched,
    /// Snapshots of the volume.
    Snapshots,
    /// Files that changed since a snapshot.
    Changes,
}

impl Dimension {
    /// All of them.
    pub const ALL: &[Dimension] = &[
        Dimension::Directory,
        Dimension::Files,
        Dimension::Pending,
        Dimension::Threads,
        Dimension::Nodes,
        Dimension::Volume,
        Dimension::Branched,
        Dimension::Snapshots,
        Dimension::Changes,
    ];

    /// One word, for people and keys.
    pub fn word(self) -> &'static str {
        match self {
            Dimension::Directory => "directory",
            Dimension::Files => "files",
            Dimension::Pending => "pending",
            Dimension::Threads => "threads",
            Dimension::Nodes => "nodes",
            Dimension::Volume => "volume",
            Dimension::Branched => "branched",
            Dimension::Snapshots => "snapshots",
            Dimension::Changes => "changes",
        }
    }
}

impl FromStr for Dimension {
    type Err = String;

    fn from_str(word: &str) -> Result<Dimension, String> {
        let found = Dimension::ALL.iter().find(|dimension| dimension.word() == word);
        let words: Vec<&str> = Dimension::ALL.iter().map(|dimension| dimension.word()).collect();
        found.copied().ok_or_else(|| format!("{word} is not one of {}", words.join(", ")))
    }
}

/// Measures one dimension in memory, on devices of so many bytes from `devices`.
pub fn run(
    dimension: Dimension,
    scale: Scale,
    devices: &mut dyn FnMut(u64) -> io::Result<Arc<dyn Device>>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    match dimension {
        Dimension::Directory => files::directory(scale, devices, seen),
        Dimension::Files => files::volume(scale, devices, seen),
        Dimension::Pending => pending::run(scale, devices, seen),
        Dimension::Threads => threads::run(scale, devices, seen),
        Dimension::Nodes => files::nodes(scale, devices, seen),
        Dimension::Volume => volumes::run(scale, devices, seen),
        Dimension::Branched => branches::files(scale, devices, seen),
        Dimension::Snapshots => branches::snapshots(scale, devices, seen),
        Dimension::Changes => branches::changes(scale, devices, seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    #[test]
    fn every_dimension_has_figures_an_exponent_and_a_plot() {
        for &dimension in Dimension::ALL {
            let mut memory = |bytes| Ok(Arc::new(MemoryDevice::new(bytes)) as Arc<dyn Device>);
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
            assert_eq!(dimension.word().parse(), Ok(dimension));
        }
        assert!("depth".parse::<Dimension>().is_err());
    }
}
