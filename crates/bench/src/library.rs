//! The library without a mount: creates, stats, removals, large and small writes, on one thread.

use std::io;
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::Device;

use crate::Row;
use crate::work::pattern;

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Empty files to create, stat and remove.
    pub files: u64,
    /// MiB to write and read.
    pub mebibytes: u64,
    /// Small appends, each with an fsync.
    pub appends: u64,
}

/// Runs all workloads on a fresh volume on `device`, with nodes of `node_size` bytes.
pub fn run(device: &Arc<dyn Device>, node_size: usize, scale: &Scale) -> io::Result<Vec<Row>> {
    CreateOptions::new().node_size(node_size).format(device)?;
    let volume = VolumeOptions::new().open_device(device.clone())?;
    let bench = Bench { volume: &volume, device: &**device, node_size };
    let rows = vec![
        bench.create(scale.files)?,
        bench.stat(scale.files)?,
        bench.list(scale.files)?,
        bench.remove(scale.files)?,
        bench.write(scale.mebibytes)?,
        bench.read(scale.mebibytes)?,
        bench.append(scale.appends)?,
    ];
    volume.close()?;
    Ok(rows)
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
    ) -> io::Result<Row> {
        let before = self.device.stats();
        let time = Stopwatch::start();
        work()?;
        let mut row = Row::new(workload, self.node_size, count, unit).took(time.elapsed());
        let after = self.device.stats();
        row.written_bytes = after.written_bytes - before.written_bytes;
        row.writes = after.writes - before.writes;
        row.flushes = after.flushes - before.flushes;
        Ok(row)
    }

    fn create(&self, files: u64) -> io::Result<Row> {
        self.volume.create_dir("/many")?;
        let dir = self.volume.open_dir("/many")?;
        self.measure("create empty files", files, "files", || {
            (0..files).try_for_each(|n| dir.create(format!("file-{n}")).map(drop))
        })
    }

    fn stat(&self, files: u64) -> io::Result<Row> {
        let dir = self.volume.open_dir("/many")?;
        self.measure("stat", files, "files", || {
            (0..files).try_for_each(|n| dir.metadata(format!("file-{n}")).map(drop))
        })
    }

    fn list(&self, files: u64) -> io::Result<Row> {
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

    fn remove(&self, files: u64) -> io::Result<Row> {
        let dir = self.volume.open_dir("/many")?;
        self.measure("remove", files, "files", || {
            (0..files).try_for_each(|n| dir.remove_file(format!("file-{n}")))
        })
    }

    fn write(&self, mebibytes: u64) -> io::Result<Row> {
        let chunk = pattern(1 << 20);
        let file = self.volume.create("/large")?;
        self.measure("write 1 MiB at a time, then fsync", mebibytes, "MiB", || {
            (0..mebibytes).try_for_each(|n| file.write_all_at(&chunk, n << 20))?;
            file.sync_all()
        })
    }

    fn read(&self, mebibytes: u64) -> io::Result<Row> {
        let mut chunk = vec![0; 1 << 20];
        let file = self.volume.open_file("/large")?;
        self.measure("read 1 MiB at a time", mebibytes, "MiB", || {
            (0..mebibytes).try_for_each(|n| file.read_exact_at(&mut chunk, n << 20))
        })
    }

    fn append(&self, appends: u64) -> io::Result<Row> {
        let chunk = pattern(4096);
        let file = self.volume.create("/log")?;
        self.measure("append 4 KiB + fsync", appends, "fsyncs", || {
            (0..appends).try_for_each(|n| {
                file.write_all_at(&chunk, n * chunk.len() as u64)?;
                file.sync_all()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::memory::MemoryDevice;

    #[test]
    fn every_workload_does_what_it_says() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let scale = Scale { files: 100, mebibytes: 4, appends: 5 };
        let rows = run(&device, 4096, &scale).expect("the workloads run");
        assert_eq!(rows.len(), 7);
        let row = |name: &str| rows.iter().find(|row| row.workload.starts_with(name)).unwrap();
        assert!(row("write").written_bytes >= 4 << 20);
        assert!(row("append").flushes >= 5);
        assert_eq!(row("stat").writes, 0);
    }
}
