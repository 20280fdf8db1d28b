//! The library without a mount, on one thread: creates, stats, removals, large and small writes; and small
//! appends with an fsync beside the bare device.
//!
//! What needs no device is measured in memory, over the sizes of nodes. The
//! appends go to the device that the caller names, and as many writes and flushes
//! of 4 KiB to another one of the same kind that has no volume: nothing that
//! keeps what it is given can be faster. The two take turns after a few of each, as a shared disk is
//! faster or slower from one moment to the next. What the volume does in the background, a commit every few
//! seconds, falls into turns of both.

use std::io;
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::{AlignedBuf, Device, DeviceStats, MemoryDevice};

use crate::counts::{asked, median};
use crate::names::Names;
use crate::result::{Cell, Row, Section, Table, Unit};
use crate::work::pattern;

/// Appends that are measured before it is the bare device's turn again.
const TURN: u64 = 50;

/// How much to do.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Empty files to create, stat and remove.
    pub files: u64,
    /// MiB to write and read.
    pub mebibytes: u64,
    /// Small appends, each with an fsync.
    pub appends: u64,
    /// Rounds of everything.
    pub rounds: u64,
    /// Bytes of a tree node.
    pub node_sizes: Vec<usize>,
    /// The appends go to a device that takes its time, not to memory: their rate beside its own says something.
    pub is_beside_bare: bool,
}

impl Scale {
    /// Bytes of a volume in memory: nothing is overwritten in place.
    fn bytes(&self) -> u64 {
        (1 << 30) + self.files * 2048 + 3 * (self.mebibytes << 20)
    }

    /// Bytes of each device for the appends.
    pub fn append_bytes(&self) -> u64 {
        (256 << 20) + self.appends * 3 * 4096
    }
}

/// Where the appends go.
#[derive(Debug)]
pub struct Devices {
    /// For a volume.
    pub volume: Arc<dyn Device>,
    /// Of the same kind, for nothing but writes and flushes.
    pub bare: Arc<dyn Device>,
}

/// Runs everything: a section of operations, and one of throughput, in memory; and one of fsyncs on what
/// `devices` gives, fresh ones for each round. `seen` hears of each round.
pub fn run(
    scale: &Scale,
    devices: &mut dyn FnMut() -> io::Result<Devices>,
    seen: &mut dyn FnMut(String),
) -> io::Result<Vec<Section>> {
    let mut rows = Vec::new();
    let mut bare = Vec::new();
    for round in 1..=scale.rounds {
        for &node_size in &scale.node_sizes {
            let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(scale.bytes()));
            rows.extend(in_memory(&memory, node_size, scale)?);
            let Devices { volume, bare: beside } = devices()?;
            let [mut row, mut alone] =
                on_volume(&volume, node_size, |bench| bench.append(scale.appends, &*beside))?;
            if scale.is_beside_bare {
                row.to_bare = Some(row.per_second / alone.per_second);
                alone.to_bare = Some(1.0);
            }
            bare.push(alone);
            seen(format!(
                "round {round}, nodes of {} KiB: {:.0} creates per second",
                node_size >> 10,
                rate(&rows)
            ));
            rows.push(row);
        }
    }
    let sections = [
        ("operations", "Operations in memory", "files", Unit::PerSecond),
        ("throughput", "Throughput in memory", "MiB", Unit::MibPerSecond),
        (
            "fsyncs",
            "Appends of 4 KiB, each with an fsync, beside writes of 4 KiB and flushes of the bare device",
            "fsyncs",
            Unit::PerSecond,
        ),
    ];
    let about = format!(
        "One thread, the library without a mount, commits in the background. {} files, {} MiB, {} appends, {TURN} of them in turn with as many writes of the bare device; medians of {} rounds.",
        scale.files, scale.mebibytes, scale.appends, scale.rounds
    );
    let of = sections.map(|(name, title, counted, unit)| {
        let of: Vec<&Run> = rows.iter().filter(|row| row.unit == counted).collect();
        let mut table = table(&of, unit);
        if counted == "fsyncs" {
            let bare: Vec<&Run> = bare.iter().collect();
            table.push(line("write 4 KiB and flush, bare device".into(), &bare));
        }
        Section::new(name, title, &about, table)
    });
    Ok(of.into())
}

/// Creates per second of the last volume in memory.
fn rate(rows: &[Run]) -> f64 {
    rows.iter().rev().find(|row| row.unit == "files").map_or(0.0, |row| row.per_second)
}

/// A line for each workload and size of nodes, in the order in which they were first measured.
fn table(rows: &[&Run], unit: Unit) -> Table {
    let each = if unit == Unit::MibPerSecond { "MiB" } else { "operation" };
    let mut table = Table::new("workload")
        .column("rate", "rate", unit)
        .column("bytes", format!("bytes written for each {each}"), Unit::Bytes)
        .column("writes", format!("writes for each {each}"), Unit::Ratio)
        .column("flushes", format!("flushes for each {each}"), Unit::Ratio);
    if rows.iter().any(|row| row.to_bare.is_some()) {
        table = table.column("to-bare", "to the bare device", Unit::Ratio);
    }
    let mut workloads: Vec<&str> = rows.iter().map(|row| row.workload).collect();
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.node_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut seen = Vec::new();
    workloads.retain(|workload| {
        !seen.contains(workload) && {
            seen.push(workload);
            true
        }
    });
    for workload in workloads {
        for &size in &sizes {
            let of: Vec<&Run> = rows
                .iter()
                .copied()
                .filter(|row| row.workload == workload && row.node_size == size)
                .collect();
            table.push(line(format!("{workload}, nodes of {} KiB", size >> 10), &of));
        }
    }
    table
}

fn line(label: String, rows: &[&Run]) -> Row {
    let each = |value: fn(&Run) -> u64| {
        let each = rows.iter().map(|row| value(row) as f64 / row.count.max(1) as f64);
        Cell::one(median(each.collect()))
    };
    let rate = Cell::of(&rows.iter().map(|row| row.per_second).collect::<Vec<_>>());
    let to_bare: Vec<f64> = rows.iter().filter_map(|row| row.to_bare).collect();
    let mut line = Row::new(label)
        .cell(rate)
        .cell(each(|row| row.asked.written_bytes))
        .cell(each(|row| row.asked.writes))
        .cell(each(|row| row.asked.flushes));
    if !to_bare.is_empty() {
        line = line.cell(Cell::of(&to_bare));
    }
    line
}

/// What needs no device, on a fresh volume.
fn in_memory(device: &Arc<dyn Device>, node_size: usize, scale: &Scale) -> io::Result<Vec<Run>> {
    on_volume(device, node_size, |bench| {
        Ok(vec![
            bench.create(scale.files)?,
            bench.stat(scale.files)?,
            bench.list(scale.files)?,
            bench.remove(scale.files)?,
            bench.write(scale.mebibytes)?,
            bench.read(scale.mebibytes)?,
        ])
    })
}

fn on_volume<T>(
    device: &Arc<dyn Device>,
    node_size: usize,
    work: impl FnOnce(&Bench<'_>) -> io::Result<T>,
) -> io::Result<T> {
    CreateOptions::new().node_size(node_size).format(device)?;
    let volume = VolumeOptions::new().open_device(device.clone())?;
    let done = work(&Bench { volume: &volume, device: &**device, node_size })?;
    volume.close()?;
    Ok(done)
}

/// What a device was asked in one turn or several, and how long they took.
struct Turns<'a> {
    device: &'a dyn Device,
    before: DeviceStats,
    seconds: f64,
}

impl<'a> Turns<'a> {
    fn of(device: &'a dyn Device) -> Turns<'a> {
        Turns { device, before: device.stats(), seconds: 0.0 }
    }

    fn take(&mut self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let time = Stopwatch::start();
        work()?;
        self.seconds += time.elapsed().as_secs_f64();
        Ok(())
    }

    fn done(
        &self,
        node_size: usize,
        workload: &'static str,
        count: u64,
        unit: &'static str,
    ) -> Run {
        let per_second = count as f64 / self.seconds.max(1e-9);
        let asked = asked(&self.device.stats(), &self.before);
        Run { workload, node_size, count, unit, per_second, to_bare: None, asked }
    }
}

/// One measured workload of one round.
#[derive(Debug)]
struct Run {
    workload: &'static str,
    node_size: usize,
    /// How many of what `unit` names: `files`, `MiB`, `fsyncs`.
    count: u64,
    unit: &'static str,
    per_second: f64,
    /// The rate beside that of the bare device in the same round, where there is one.
    to_bare: Option<f64>,
    /// What the device was asked.
    asked: DeviceStats,
}

struct Bench<'a> {
    volume: &'a Volume,
    device: &'a dyn Device,
    node_size: usize,
}

impl Bench<'_> {
    fn measure(
        &self,
        workload: &'static str,
        count: u64,
        unit: &'static str,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Run> {
        let mut turns = Turns::of(self.device);
        turns.take(work)?;
        Ok(turns.done(self.node_size, workload, count, unit))
    }

    fn create(&self, files: u64) -> io::Result<Run> {
        self.volume.create_dir("/many")?;
        let dir = self.volume.open_dir("/many")?;
        let mut names = Names::new("file-");
        self.measure("create empty files", files, "files", || {
            (0..files).try_for_each(|n| dir.create(names.of(n)).map(drop))
        })
    }

    fn stat(&self, files: u64) -> io::Result<Run> {
        let dir = self.volume.open_dir("/many")?;
        let mut names = Names::new("file-");
        self.measure("stat", files, "files", || {
            (0..files).try_for_each(|n| dir.metadata(names.of(n)).map(drop))
        })
    }

    fn list(&self, files: u64) -> io::Result<Run> {
        let dir = self.volume.open_dir("/many")?;
        self.measure("list", files, "files", || {
            let mut seen = 0;
            for entry in dir.entries() {
                entry?;
                seen += 1;
            }
            if seen == files {
                Ok(())
            } else {
                Err(io::Error::other(format!("{seen} files listed")))
            }
        })
    }

    fn remove(&self, files: u64) -> io::Result<Run> {
        let dir = self.volume.open_dir("/many")?;
        let mut names = Names::new("file-");
        self.measure("remove", files, "files", || {
            (0..files).try_for_each(|n| dir.remove_file(names.of(n)))
        })
    }

    fn write(&self, mebibytes: u64) -> io::Result<Run> {
        let chunk = pattern(1 << 20);
        let file = self.volume.create("/large")?;
        self.measure("write 1 MiB at a time, then fsync", mebibytes, "MiB", || {
            (0..mebibytes).try_for_each(|n| file.write_all_at(&chunk, n << 20))?;
            file.sync_all()
        })
    }

    fn read(&self, mebibytes: u64) -> io::Result<Run> {
        let mut chunk = vec![0; 1 << 20];
        let file = self.volume.open_file("/large")?;
        self.measure("read 1 MiB at a time", mebibytes, "MiB", || {
            (0..mebibytes).try_for_each(|n| file.read_exact_at(&mut chunk, n << 20))
        })
    }

    /// Appends with an fsync each, and as many writes and flushes of the device `bare`.
    fn append(&self, appends: u64, bare: &dyn Device) -> io::Result<[Run; 2]> {
        let chunk = AlignedBuf::copy_of(&pattern(4096));
        let file = self.volume.create("/log")?;
        let append = |n: u64| {
            file.write_all_at(&chunk, n * 4096)?;
            file.sync_all()
        };
        let write = |n: u64| {
            bare.write(n * 4096, &chunk)?;
            bare.flush().map(drop)
        };
        let mut ours = Turns::of(self.device);
        let mut alone = Turns::of(bare);
        for (number, first) in (0..appends).step_by(TURN as usize).enumerate() {
            let turn = first..appends.min(first + TURN);
            let mut appends = || ours.take(|| turn.clone().try_for_each(append));
            let mut writes =
                || alone.take(|| turn.clone().try_for_each(write).map_err(io::Error::other));
            // What appends leave behind falls into turns of both.
            if number.is_multiple_of(2) {
                appends().and_then(|()| writes())?;
            } else {
                writes().and_then(|()| appends())?;
            }
        }
        Ok([
            ours.done(self.node_size, "append 4 KiB + fsync", appends, "fsyncs"),
            alone.done(0, "write 4 KiB and flush", appends, "fsyncs"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::memory::MemoryDevice;

    #[test]
    fn every_workload_does_what_it_says() {
        let scale = Scale {
            files: 100,
            mebibytes: 4,
            appends: TURN + 5,
            rounds: 2,
            node_sizes: vec![4096, 16384],
            is_beside_bare: true,
        };
        let mut rounds = 0;
        let in_memory = |bytes| Arc::new(MemoryDevice::new(bytes)) as Arc<dyn Device>;
        let mut devices = || {
            let [volume, bare] = [scale.append_bytes(); 2].map(in_memory);
            Ok(Devices { volume, bare })
        };
        let sections = run(&scale, &mut devices, &mut |_| rounds += 1).expect("the workloads run");
        assert_eq!(rounds, 4);
        let cell = |section: usize, label: &str, key: &str| {
            sections[section].table.cell(label, key).and_then(Cell::median).unwrap()
        };
        assert_eq!(sections.iter().map(|of| of.table.rows.len()).collect::<Vec<_>>(), [8, 4, 3]);
        assert_eq!(cell(0, "stat, nodes of 4 KiB", "writes"), 0.0);
        assert!(
            cell(1, "write 1 MiB at a time, then fsync, nodes of 16 KiB", "bytes") >= 1048576.0
        );
        let append = "append 4 KiB + fsync, nodes of 4 KiB";
        assert!(cell(2, append, "flushes") >= 1.0);
        let bare = "write 4 KiB and flush, bare device";
        assert_eq!((cell(2, bare, "bytes"), cell(2, bare, "to-bare")), (4096.0, 1.0));
        assert!(cell(2, append, "to-bare").is_normal());

        // A single round, whose two rates make the ratio; and memory, beside which nothing is slow.
        let once = Scale { rounds: 1, node_sizes: vec![4096], ..scale };
        let sections = run(&once, &mut devices, &mut |_| {}).expect("the workloads run");
        let cell = |label, key| sections[2].table.cell(label, key).and_then(Cell::median);
        let ratio = cell(append, "rate").unwrap() / cell(bare, "rate").unwrap();
        assert!((cell(append, "to-bare").unwrap() - ratio).abs() < 1e-9);
        let without = Scale { is_beside_bare: false, ..once };
        let sections = run(&without, &mut devices, &mut |_| {}).expect("the workloads run");
        assert!(sections[2].table.cell(append, "to-bare").is_none());
        assert!(sections[2].table.cell(append, "rate").is_some());
    }
}
