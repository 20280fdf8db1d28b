//! What the threads do, and what they have seen of their locks.

use std::collections::BTreeMap;
use std::io;
use std::sync::Barrier;

use holdfast::{Dir, File, Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_locks::counted::{self, LockClass, LockCounts, LockEvent};

use crate::mechanisms::Devices;
use crate::undo::interrupted;
use crate::work::{fill_dirs, names, on_threads, pattern, quiesce};

/// Bytes of a volume in memory, of which only what is written exists.
const VOLUME: u64 = 32 << 30;
/// Bytes that are written or read at once.
const CHUNK: usize = 4096;
/// Chunks of the file that is read, and files that are asked for.
const WARM: u64 = 256;
/// Events of an operation, about: more memory is asked for where they are more.
const EVENTS: u64 = 256;

/// One kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Append,
    Read,
    Stat,
    Rename,
    Unlink,
    CreateAndFsync,
}

impl Operation {
    pub(super) const ALL: [Operation; 7] = [
        Operation::Create,
        Operation::Append,
        Operation::Read,
        Operation::Stat,
        Operation::Rename,
        Operation::Unlink,
        Operation::CreateAndFsync,
    ];

    /// In tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Operation::Create => "create 4 KiB",
            Operation::Append => "append 4 KiB",
            Operation::Read => "cached read of 4 KiB",
            Operation::Stat => "stat",
            Operation::Rename => "rename",
            Operation::Unlink => "unlink of 4 KiB",
            Operation::CreateAndFsync => "create 4 KiB + fsync",
        }
    }

    /// In keys.
    pub(super) fn key(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Append => "append",
            Operation::Read => "read",
            Operation::Stat => "stat",
            Operation::Rename => "rename",
            Operation::Unlink => "unlink",
            Operation::CreateAndFsync => "create-fsync",
        }
    }
}

/// What one thread needs for its operations.
struct Worker<'a> {
    operation: Operation,
    dir: &'a Dir,
    file: File,
    old: Vec<String>,
    new: Vec<String>,
    chunk: Vec<u8>,
}

impl<'a> Worker<'a> {
    /// Makes the files that `count` operations want to find.
    fn new(operation: Operation, dir: &'a Dir, count: u64) -> io::Result<Worker<'a>> {
        let chunk = pattern(CHUNK);
        let files = match operation {
            Operation::Stat => WARM,
            Operation::Rename | Operation::Unlink => count,
            _ => 0,
        };
        let (old, new) = (names("old-", files), names("new-", count));
        for name in &old {
            dir.create(name)?.write_all_at(&chunk, 0)?;
        }
        let mut file = dir.create("worked")?;
        if operation == Operation::Read {
            (0..WARM).try_for_each(|at| file.write_all_at(&chunk, at * CHUNK as u64))?;
            file = dir.open_file("worked")?;
        }
        Ok(Worker { operation, dir, file, old, new, chunk })
    }

    /// The operation of this number, which is below the count that was asked for.
    fn act(&self, number: u64, into: &mut [u8]) -> io::Result<()> {
        let at = number as usize;
        match self.operation {
            Operation::Create => drop(self.create(at)?),
            Operation::Append => self.file.write_all_at(&self.chunk, number * CHUNK as u64)?,
            Operation::Read => self.file.read_exact_at(into, number % WARM * CHUNK as u64)?,
            Operation::Stat => self.dir.metadata(&self.old[at % self.old.len()]).map(drop)?,
            Operation::Rename => self.dir.rename(&self.old[at], &self.new[at])?,
            Operation::Unlink => self.dir.remove_file(&self.old[at])?,
            Operation::CreateAndFsync => self.create(at)?.sync_all()?,
        }
        Ok(())
    }

    fn create(&self, at: usize) -> io::Result<File> {
        let file = self.dir.create(&self.new[at])?;
        file.write_all_at(&self.chunk, 0)?;
        Ok(file)
    }
}

/// A fresh volume with a directory for each thread.
pub(super) fn volume(devices: &mut Devices<'_>, threads: u64) -> io::Result<(Volume, Vec<Dir>)> {
    let device = devices(VOLUME)?;
    crate::new_volume().format(&device)?;
    let volume = VolumeOptions::new().open_device(device)?;
    let dirs = fill_dirs(&volume, threads, 1)?;
    Ok((volume, dirs))
}

fn workers<'a>(
    operation: Operation,
    volume: &Volume,
    dirs: &'a [Dir],
    count: u64,
) -> io::Result<Vec<Worker<'a>>> {
    let workers = dirs.iter().map(|dir| Worker::new(operation, dir, count));
    let workers = workers.collect::<io::Result<_>>()?;
    quiesce(volume)?;
    Ok(workers)
}

/// What threads that worked at the same time have counted together.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) threads: u64,
    /// Operations of all threads.
    pub(super) count: u64,
    /// Nanoseconds that all threads worked, together.
    pub(super) nanos: u64,
    /// Operations of all threads in a second.
    pub(super) rate: f64,
    pub(super) classes: BTreeMap<LockClass, LockCounts>,
    /// How often the kernel has put one of them to sleep.
    pub(super) sleeps: u64,
}

/// Lets a thread in each of `dirs` do `count` operations.
pub(super) fn count(
    operation: Operation,
    volume: &Volume,
    dirs: &[Dir],
    count: u64,
) -> io::Result<Run> {
    let workers = workers(operation, volume, dirs, count)?;
    let threads = dirs.len() as u64;
    let begin = Barrier::new(dirs.len());
    let seen = on_threads(threads, |thread| {
        let worker = &workers[thread as usize];
        let mut into = vec![0; CHUNK];
        begin.wait();
        drop(counted::take());
        let slept = counted::sleeps();
        let time = Stopwatch::start();
        for number in 0..count {
            interrupted()?;
            worker.act(number, &mut into)?;
        }
        Ok((time.nanos().max(1), counted::sleeps() - slept, counted::take()))
    })?;
    let mut run = Run {
        threads,
        count: count * threads,
        nanos: 0,
        rate: 0.0,
        classes: BTreeMap::new(),
        sleeps: 0,
    };
    for (nanos, sleeps, classes) in seen {
        run.nanos += nanos;
        run.rate += count as f64 * 1e9 / nanos as f64;
        run.sleeps += sleeps;
        for (class, counts) in classes {
            run.classes.entry(class).or_default().add(&counts);
        }
    }
    Ok(run)
}

/// What a thread in each of two `dirs` takes and gives in `count` operations, one thread after the other.
pub(super) fn trace(
    operation: Operation,
    volume: &Volume,
    dirs: &[Dir],
    count: u64,
) -> io::Result<Vec<Vec<LockEvent>>> {
    let workers = workers(operation, volume, dirs, count)?;
    let trace = |worker: &Worker<'_>| -> io::Result<Vec<LockEvent>> {
        let mut into = vec![0; CHUNK];
        counted::trace((EVENTS * count) as usize);
        for number in 0..count {
            counted::mark();
            worker.act(number, &mut into)?;
        }
        counted::mark();
        Ok(counted::traced())
    };
    let traces = workers.iter().map(|worker| on_threads(1, |_| trace(worker)));
    Ok(traces.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}
