//! What one small operation costs: bytes, writes and flushes, counted at the device.
//!
//! The rows are those of a comparison of kernel filesystems that was made
//! elsewhere, see `rows.rs`. A tree of thousands of files and one large file is
//! there before; each row begins on a filesystem that was just mounted, and
//! what it leaves for the background is counted until it is unmounted again.
//! Holdfast is counted twice: at the loop device below its mount, and as a
//! library over a device in memory, which sees what it asks for itself.

mod report;
mod rows;

pub use report::sections;

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use holdfast::{OpenOptions, Volume, VolumeOptions};
use holdfast_device::{Device, DeviceStats, MemoryDevice};

use crate::counts::asked;
use crate::folder::Folder;
use crate::systems::{Bed, Mounted, Ours, System};
use crate::undo::interrupted;
use crate::work;
pub(crate) use rows::{ROWS, Row};

/// Operations of a row that are not counted: the first one may make what later ones find.
const WARM_UP: u64 = 2;

/// How much is there before, and how much is done.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Files in the tree, half of them in each of two directories.
    pub files: u64,
    /// Bytes of the large file.
    pub large_bytes: u64,
    /// Operations of a row.
    pub operations: u64,
    /// Renames that one fsync follows.
    pub renames: u64,
    /// Bytes of a sector of the library's device.
    pub sector: u32,
    /// Snapshots of the tree that Holdfast's volumes have: they must cost an operation nothing (P15).
    pub snapshots: u64,
}

impl Plan {
    /// As the comparison was made.
    pub const USUAL: Plan = Plan {
        files: 20_000,
        large_bytes: 64 << 20,
        operations: 1_000,
        renames: 1_000,
        sector: 512,
        snapshots: 0,
    };
    /// Enough to see that everything works.
    pub const QUICK: Plan = Plan {
        files: 400,
        large_bytes: 4 << 20,
        operations: 20,
        renames: 100,
        sector: 512,
        snapshots: 0,
    };

    /// Operations of `row`: the costly ones are fewer, and what is a thousand things at once is one.
    fn operations_of(&self, row: &Row) -> u64 {
        (self.operations * row.percent / 100).max(1)
    }
}

/// What an operation of a row costs on the average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Bytes written until it was answered.
    pub bytes: f64,
    /// Write requests.
    pub writes: f64,
    /// Flushes.
    pub flushes: f64,
    /// Bytes that the background wrote for it afterwards; no number if that cannot be known.
    pub later_bytes: f64,
}

impl Cost {
    fn of([before, after, quiesced]: &[DeviceStats; 3], operations: u64) -> Cost {
        let each = |count: u64| count as f64 / operations as f64;
        let of_them = asked(after, before);
        Cost {
            bytes: each(of_them.written_bytes),
            writes: each(of_them.writes),
            flushes: each(of_them.flushes),
            later_bytes: each(asked(quiesced, after).written_bytes),
        }
    }
}

/// The costs of every row on one system, or why there is none.
#[derive(Clone, Debug)]
pub struct Column {
    /// A word for keys.
    pub name: String,
    /// The head of the column.
    pub title: String,
    /// Whether it is a filesystem of the kernel.
    pub is_peer: bool,
    /// One for each of the rows, in their order.
    pub costs: Vec<Result<Cost, String>>,
}

impl Column {
    /// A system that cannot be measured here.
    pub fn missing(system: System, why: &str) -> Column {
        Column { costs: vec![Err(why.into()); ROWS.len()], ..Column::of(system) }
    }

    fn of(system: System) -> Column {
        let (name, title) = (system.word(), system.title().into());
        Column { name, title, is_peer: system.is_peer(), costs: Vec::new() }
    }
}

/// Prepares `row` in `folder`, and does it after `quiesce`: what `look` says before and after its operations.
fn count<L>(
    plan: &Plan,
    row: &Row,
    folder: &Folder,
    quiesce: impl FnOnce() -> io::Result<()>,
    look: impl Fn() -> io::Result<L>,
) -> io::Result<(L, L)> {
    let mut work = (row.prepare)(folder, plan)?;
    let mut one = |number| interrupted().and_then(|()| work(number));
    (0..WARM_UP).try_for_each(&mut one)?;
    quiesce()?;
    let before = look()?;
    (WARM_UP..WARM_UP + plan.operations_of(row)).try_for_each(&mut one)?;
    Ok((before, look()?))
}

/// Every row on `system`, counted at `bed`'s device. For ours the second column holds what its own device counted.
pub fn on_bed(
    plan: &Plan,
    system: System,
    bed: &Bed,
    ours: &Ours,
    mut seen: impl FnMut(&'static str, &Cost),
) -> io::Result<(Column, Vec<Option<Cost>>)> {
    let mounted = Mounted::new(system, bed, ours)?;
    let folder = Folder::Host(mounted.dir().to_path_buf());
    fill(&folder, plan)?;
    mounted.pause()?;
    if system.is_ours() {
        // The volume itself: what a mount costs is another measurement.
        let options = VolumeOptions::new().commit_secs(0).through_mount(false);
        take_snapshots(options.open(bed.device())?, plan)?;
    }
    let (mut column, mut own) = (Column::of(system), Vec::new());
    for row in ROWS {
        mounted.resume()?;
        let look = || Ok((mounted.counts()?, bed.asked()?));
        let ((stats, before), (new_stats, after)) =
            count(plan, row, &folder, || mounted.quiesce(), look)?;
        mounted.pause()?;
        let operations = plan.operations_of(row);
        let cost = Cost::of(&[before, after, bed.asked()?], operations);
        own.push(stats.zip(new_stats).map(|(old, new)| {
            let grown = new.since(&old);
            let each = |name: &str| grown.get(name) as f64 / operations as f64;
            Cost {
                bytes: each("device.written_bytes"),
                writes: each("device.writes"),
                flushes: each("device.flushes"),
                // The daemon that has counted them is gone by then.
                later_bytes: f64::NAN,
            }
        }));
        seen(row.name, &cost);
        column.costs.push(Ok(cost));
    }
    mounted.leave()?;
    Ok((column, own))
}

/// Every row of the library over memory. What only a mount can do gets the cost that `mounted` names.
pub fn in_memory(plan: &Plan, mounted: &[Option<Cost>]) -> io::Result<Column> {
    let base = Arc::new(MemoryDevice::with_sector_size(device_bytes(plan), plan.sector));
    let device: Arc<dyn Device> = base.clone();
    crate::new_volume().format(&device)?;
    let volume = open(device)?;
    fill(&Folder::Library((*volume).clone()), plan)?;
    volume.close()?;
    take_snapshots(open(base.clone())?, plan)?;
    let mut costs = Vec::new();
    for (number, row) in ROWS.iter().enumerate() {
        if row.needs_mount {
            let cost = mounted.get(number).copied().flatten();
            costs.push(cost.ok_or_else(|| "SQLite needs a mount".to_string()));
            continue;
        }
        let device = Arc::new(base.snapshot());
        let volume = open(device.clone())?;
        let root = Folder::Library((*volume).clone());
        let look = || Ok(device.stats());
        let (before, after) = count(plan, row, &root, || volume.commit(), look)?;
        drop(root);
        volume.close()?;
        costs.push(Ok(Cost::of(&[before, after, device.stats()], plan.operations_of(row))));
    }
    let title = format!("Holdfast, own device, {} B sectors", plan.sector);
    Ok(Column { name: "own".into(), title, is_peer: false, costs })
}

fn device_bytes(plan: &Plan) -> u64 {
    (256 << 20) + 4 * plan.large_bytes + plan.files * 16_384 + plan.snapshots * 65_536
}

/// No background commit disturbs the counts.
fn open(device: Arc<dyn Device>) -> io::Result<Volume> {
    VolumeOptions::new().commit_secs(0).open_device(device)
}

/// Takes the snapshots that the plan wants. A file changes between them, so that each has a tree of its own.
fn take_snapshots(volume: Volume, plan: &Plan) -> io::Result<()> {
    let main = volume.branch("main")?;
    let file = OpenOptions::new().write(true).create(true).open(&volume, "/snapshotted")?;
    for number in 0..plan.snapshots {
        file.write_at(&number.to_le_bytes(), 0)?;
        main.snapshot(&format!("before-{number}"))?;
    }
    drop((file, main));
    volume.close()
}

/// The tree that is there before.
fn fill(folder: &Folder, plan: &Plan) -> io::Result<()> {
    for dir in ["a", "b"] {
        folder.create_dir(dir)?;
        for number in 0..plan.files / 2 {
            let file = folder.create(&format!("{dir}/{}", rows::file(number)))?;
            file.write_all_at(b"some bytes", 0)?;
        }
    }
    let large = folder.create("large")?;
    work::fill(&large, plan.large_bytes)?;
    large.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P15: with snapshots an operation writes what it writes without.
    #[test]
    fn snapshots_cost_an_operation_nothing() {
        let few = in_memory(&Plan::QUICK, &[]).unwrap();
        let many = in_memory(&Plan { snapshots: 300, ..Plan::QUICK }, &[]).unwrap();
        for (row, (few, many)) in ROWS.iter().zip(few.costs.iter().zip(&many.costs)) {
            let asked = |cost: &Result<Cost, String>| {
                cost.as_ref().ok().map(|cost| (cost.bytes, cost.writes, cost.flushes))
            };
            assert_eq!(asked(few), asked(many), "{}", row.name);
        }
    }

    #[test]
    fn the_library_stays_below_what_is_published_of_others() {
        let column = in_memory(&Plan::QUICK, &[]).unwrap();
        for (row, cost) in ROWS.iter().zip(&column.costs) {
            match cost {
                Ok(cost) if row.name == rows::CLEAN => {
                    assert_eq!((cost.bytes, cost.writes, cost.flushes), (0.0, 0.0, 0.0));
                }
                Ok(cost) => {
                    assert!(cost.flushes >= 1.0 && cost.flushes <= 2.0, "{}: {cost:?}", row.name)
                }
                Err(why) => assert!(row.needs_mount, "{}: {why}", row.name),
            }
        }
        let append = column.costs[0].as_ref().unwrap();
        assert_eq!((append.bytes, append.writes, append.flushes), (4608.0, 1.0, 1.0));
    }
}
