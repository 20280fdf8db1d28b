//! What several workloads need: content, names, directories full of files, files full of bytes, threads.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use holdfast::{Dir, Volume};
use holdfast_base::clock::Deadline;
use holdfast_base::prng::Prng;

use crate::undo::interrupted;

/// Bytes of zeros, or of content, that are written at once.
const CHUNK: usize = 1 << 20;

/// Bytes that do not compress and are the same in each run.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prng::seeded(1).fill(&mut bytes);
    bytes
}

/// `prefix0` and so on: made before, so that a measured loop is about what is done with them.
pub(crate) fn names(prefix: &str, count: u64) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

/// Writes `bytes` bytes of content into `file`, from its begin.
pub(crate) fn fill(file: &impl FileExt, bytes: u64) -> io::Result<()> {
    let content = pattern(CHUNK);
    for at in (0..bytes).step_by(CHUNK) {
        interrupted()?;
        file.write_all_at(&content[..(bytes - at).min(CHUNK as u64) as usize], at)?;
    }
    Ok(())
}

/// A new file of zeros, written from end to end, so that its host allocates nothing later.
pub(crate) fn zeros(path: &Path, bytes: u64) -> io::Result<()> {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| named(path, &error))?;
    let zeros = vec![0; CHUNK];
    for at in (0..bytes).step_by(CHUNK) {
        interrupted()?;
        file.write_all(&zeros[..(bytes - at).min(CHUNK as u64) as usize])
            .map_err(|error| named(path, &error))?;
    }
    file.sync_all()
}

/// The same error, with `path` in front.
pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes `/d0` to `/d<dirs - 1>`, each with the empty files `old0` to `old<files - 1>`.
pub(crate) fn fill_dirs(volume: &Volume, dirs: u64, files: u64) -> io::Result<Vec<Dir>> {
    let made = (0..dirs).map(|number| {
        let name = format!("/d{number}");
        volume.create_dir(&name)?;
        let dir = volume.open_dir(&name)?;
        (0..files).try_for_each(|file| dir.create(format!("old{file}")).map(drop))?;
        Ok(dir)
    });
    made.collect()
}

/// Everything so far is part of a commit and at its location: neither log nor journal hold any of it.
pub(crate) fn quiesce(volume: &Volume) -> io::Result<()> {
    volume.sync()?;
    volume.engine()?.checkpoint().map_err(io::Error::other)
}

/// Does `work` with 0, 1 and so on until `time` is over; how often. At least once.
pub(crate) fn repeat(
    time: Duration,
    mut work: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let until = Deadline::after(time);
    let mut done = 0;
    while done == 0 || !until.is_over() {
        interrupted()?;
        work(done)?;
        done += 1;
    }
    Ok(done)
}

/// Runs `job` with the numbers below `jobs`, each on a thread of its own, and answers with what each
/// gave, in their order.
pub(crate) fn on_threads<T: Send>(
    jobs: u64,
    job: impl Fn(u64) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let job = &job;
        let threads: Vec<_> = (0..jobs).map(|number| scope.spawn(move || job(number))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, io::Result<T>>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}
