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

use holdfast::{Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::{AlignedBuf, Device, DeviceStats, MemoryDevice};

use crate::counts::{asked, median};
use crate::result::{Cell, Row, Section, Table, Unit};
use crate::undo::interrupted;
use crate::work::{names, pattern};

/// Appends that are measured before it is the bare device's turn again.
const TURN: u64 = 50;

/// How much to do.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Scale {
    /// Empty files to create, stat, list and remove.
    #[arg(long, default_value_t = 500_000)]
    pub files: u64,
    /// MiB to write and read.
    #[arg(long, default_value_t = 1024)]
    pub mebibytes: u64,
    /// Appends of 4 KiB, each with an fsync.
    #[arg(long, default_value_t = 500)]
    pub appends: u64,
    /// Rounds, interleaved; the median counts.
    #[arg(long, default_value_t = 3)]
    pub rounds: u64,
    /// Bytes of a tree node.
    #[arg(long = "node", value_parser = crate::node_size, value_delimiter = ',', default_value = "4k,16k,64k")]
    pub node_sizes: Vec<usize>,
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
/// `devices` gives, fresh ones for each round. `slow`: those take their time as memory does not, and the rates of
/// both beside each other say something. `seen` hears of each round.
pub fn run(
    scale: &Scale,
    slow: bool,
    devices: &mut dyn FnMut() -> io::Result<Devices>,
    seen: &mut dyn FnMut(String),
) -> io::Result<Vec<Section>> {
    let mut tables = [const { Vec::new() }; 3];
    for round in 1..=scale.rounds {
        for &node_size in &scale.node_sizes {
            interrupted()?;
            let nodes = format!("nodes of {} KiB", node_size >> 10);
            let mut keep = |at: usize, work: &str, run: Run| {
                add(&mut tables[at], format!("{work}, {nodes}"), run);
            };
            let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(scale.bytes()));
            on_volume(&memory, node_size, |volume| in_memory(volume, &*memory, scale, &mut keep))?;
            let Devices { volume: device, bare } = devices()?;
            let [mut ours, mut alone] =
                on_volume(&device, node_size, |volume| append(volume, &*device, &*bare, scale))?;
            if slow {
                (ours.to_bare, alone.to_bare) = (Some(ours.rate() / alone.rate()), Some(1.0));
            }
            keep(2, "append 4 KiB + fsync", ours);
            add(&mut tables[2], "write 4 KiB and flush, bare device".into(), alone);
            seen(format!("round {round}, {nodes}"));
        }
    }
    let about = format!(
        "One thread, the library without a mount, commits in the background. {} files, {} MiB, {} appends, {TURN} of them in turn with as many writes of the bare device; medians of {} rounds.",
        scale.files, scale.mebibytes, scale.appends, scale.rounds
    );
    let titles = [
        ("operations", "Operations in memory", Unit::PerSecond),
        ("throughput", "Throughput in memory", Unit::MibPerSecond),
        (
            "fsyncs",
            "Appends of 4 KiB, each with an fsync, beside writes of 4 KiB and flushes of the bare device",
            Unit::PerSecond,
        ),
    ];
    let all = titles.into_iter().zip(tables);
    let sections = all
        .map(|((name, title, unit), rows)| Section::new(name, title, &about, table(&rows, unit)));
    Ok(sections.collect())
}

/// The runs of what has one label, in the order in which labels came first.
type Runs = (String, Vec<Run>);

fn add(table: &mut Vec<Runs>, label: String, run: Run) {
    match table.iter_mut().find(|(known, _)| *known == label) {
        Some((_, runs)) => runs.push(run),
        None => table.push((label, vec![run])),
    }
}

fn table(rows: &[Runs], unit: Unit) -> Table {
    let each = if unit == Unit::MibPerSecond { "MiB" } else { "operation" };
    let mut table = Table::new("workload")
        .column("rate", "rate", unit)
        .column("bytes", format!("bytes written for each {each}"), Unit::Bytes)
        .column("writes", format!("writes for each {each}"), Unit::Ratio)
        .column("flushes", format!("flushes for each {each}"), Unit::Ratio);
    if rows.iter().any(|(_, runs)| runs[0].to_bare.is_some()) {
        table = table.column("to-bare", "to the bare device", Unit::Ratio);
    }
    for (label, runs) in rows {
        let each = |value: fn(&DeviceStats) -> u64| {
            let each = runs.iter().map(|run| value(&run.asked) as f64 / run.count.max(1) as f64);
            Cell::one(median(each.collect()))
        };
        let mut row = Row::new(label)
            .cell(Cell::of(&runs.iter().map(Run::rate).collect::<Vec<_>>()))
            .cell(each(|asked| asked.written_bytes))
            .cell(each(|asked| asked.writes))
            .cell(each(|asked| asked.flushes));
        if runs[0].to_bare.is_some() {
            row =
                row.cell(Cell::of(&runs.iter().filter_map(|run| run.to_bare).collect::<Vec<_>>()));
        }
        table.push(row);
    }
    table
}

fn on_volume<T>(
    device: &Arc<dyn Device>,
    node_size: usize,
    work: impl FnOnce(&Volume) -> io::Result<T>,
) -> io::Result<T> {
    crate::new_volume().node_size(node_size).format(device)?;
    let volume = VolumeOptions::new().open_device(device.clone())?;
    let done = work(&volume)?;
    volume.close()?;
    Ok(done)
}

/// One measured workload of one round.
#[derive(Debug)]
struct Run {
    /// How many operations or MiB.
    count: u64,
    seconds: f64,
    /// The rate beside that of the bare device in the same round, where there is one.
    to_bare: Option<f64>,
    /// What the device was asked.
    asked: DeviceStats,
}

impl Run {
    fn rate(&self) -> f64 {
        self.count as f64 / self.seconds.max(1e-9)
    }
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

    fn done(&self, count: u64) -> Run {
        let asked = asked(&self.device.stats(), &self.before);
        Run { count, seconds: self.seconds, to_bare: None, asked }
    }
}

/// What needs no device, on a fresh volume. `keep` is told the number of its table.
fn in_memory(
    volume: &Volume,
    device: &dyn Device,
    scale: &Scale,
    keep: &mut dyn FnMut(usize, &str, Run),
) -> io::Result<()> {
    let (files, mebibytes) = (scale.files, scale.mebibytes);
    let mut measure = |table, name, count, work: &mut dyn FnMut() -> io::Result<()>| {
        let mut turns = Turns::of(device);
        turns.take(work)?;
        keep(table, name, turns.done(count));
        io::Result::Ok(())
    };
    volume.create_dir("/many")?;
    let (dir, names) = (volume.open_dir("/many")?, names("file-", files));
    measure(0, "create empty files", files, &mut || {
        names.iter().try_for_each(|name| dir.create(name).map(drop))
    })?;
    measure(0, "stat", files, &mut || {
        names.iter().try_for_each(|name| dir.metadata(name).map(drop))
    })?;
    measure(0, "list", files, &mut || {
        let seen = dir.entries().try_fold(0, |seen, entry| entry.map(|_| seen + 1))?;
        let wrong = || io::Error::other(format!("{seen} files listed"));
        (seen == files).then_some(()).ok_or_else(wrong)
    })?;
    measure(0, "remove", files, &mut || names.iter().try_for_each(|name| dir.remove_file(name)))?;
    let mut chunk = pattern(1 << 20);
    let file = volume.create("/large")?;
    measure(1, "write 1 MiB at a time, then fsync", mebibytes, &mut || {
        (0..mebibytes).try_for_each(|n| file.write_all_at(&chunk, n << 20))?;
        file.sync_all()
    })?;
    let file = volume.open_file("/large")?;
    measure(1, "read 1 MiB at a time", mebibytes, &mut || {
        (0..mebibytes).try_for_each(|n| file.read_exact_at(&mut chunk, n << 20))
    })
}

/// Appends with an fsync each, and as many writes and flushes of the device `bare`.
fn append(
    volume: &Volume,
    device: &dyn Device,
    bare: &dyn Device,
    scale: &Scale,
) -> io::Result<[Run; 2]> {
    let chunk = AlignedBuf::copy_of(&pattern(4096));
    let file = volume.create("/log")?;
    let append = |n: u64| {
        file.write_all_at(&chunk, n * 4096)?;
        file.sync_all()
    };
    let write = |n: u64| {
        bare.write(n * 4096, &chunk)?;
        bare.flush().map(drop)
    };
    let (mut ours, mut alone) = (Turns::of(device), Turns::of(bare));
    for (number, first) in (0..scale.appends).step_by(TURN as usize).enumerate() {
        let turn = first..scale.appends.min(first + TURN);
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
    Ok([ours.done(scale.appends), alone.done(scale.appends)])
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
        };
        let mut rounds = 0;
        let in_memory = |bytes| Arc::new(MemoryDevice::new(bytes)) as Arc<dyn Device>;
        let mut devices = || {
            let [volume, bare] = [scale.append_bytes(); 2].map(in_memory);
            Ok(Devices { volume, bare })
        };
        let sections =
            run(&scale, true, &mut devices, &mut |_| rounds += 1).expect("the workloads run");
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
        let sections = run(&once, true, &mut devices, &mut |_| {}).expect("the workloads run");
        let cell = |label, key| sections[2].table.cell(label, key).and_then(Cell::median);
        let ratio = cell(append, "rate").unwrap() / cell(bare, "rate").unwrap();
        assert!((cell(append, "to-bare").unwrap() - ratio).abs() < 1e-9);
        let sections = run(&once, false, &mut devices, &mut |_| {}).expect("the workloads run");
        assert!(sections[2].table.cell(append, "to-bare").is_none());
        assert!(sections[2].table.cell(append, "rate").is_some());
    }
}
