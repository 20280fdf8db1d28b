//! Creates of empty files in a few directories, in memory, while a timer commits every second (M3).

use std::io;
use std::sync::Arc;

use holdfast::{CreateOptions, Dirty, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::{Device, MemoryDevice};

use crate::names::Names;
use crate::work::{fill_dirs, open_dirs};

/// Creates `files` files in `dirs` directories by one thread; how many a second.
pub(crate) fn run(node_size: usize, dirty: Dirty, files: u64, dirs: u64) -> io::Result<f64> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new((4 << 30) + files * 2048));
    CreateOptions::new().node_size(node_size).format(&device)?;
    let volume = VolumeOptions::new().dirty(dirty).commit_secs(1).open_device(device)?;
    fill_dirs(&volume, dirs, 0)?;
    let dirs = open_dirs(&volume, dirs)?;
    volume.commit()?;
    let mut names = Names::new("file-");
    let time = Stopwatch::start();
    for number in 0..files {
        let dir = &dirs[(number % dirs.len() as u64) as usize];
        drop(dir.create(names.of(number))?);
    }
    let per_second = files as f64 / time.elapsed().as_secs_f64().max(1e-9);
    volume.abandon();
    Ok(per_second)
}
