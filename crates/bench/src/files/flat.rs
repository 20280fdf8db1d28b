//! Many files in few directories: creates, renames, stat, readdir, unlink.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::run::{Laps, Run, Syncer, Unit};
use crate::work::pattern;

/// Bytes of a small file.
const SMALL: usize = 4096;
/// Threads of the creates.
const JOBS: [u64; 3] = [1, 2, 16];

/// Files of 4 KiB without fsyncs.
pub(super) fn create(run: &mut Run<'_>) -> io::Result<()> {
    JOBS.into_iter().try_for_each(|jobs| creates(run, jobs, None))
}

/// Files of 4 KiB, each with an fsync.
pub(super) fn create_fsync(run: &mut Run<'_>) -> io::Result<()> {
    let syncer = run.syncer();
    JOBS.into_iter().try_for_each(|jobs| creates(run, jobs, Some(syncer)))
}

/// Each thread in a directory of its own.
fn creates(run: &mut Run<'_>, jobs: u64, syncer: Option<Syncer>) -> io::Result<()> {
    let name = match syncer {
        Some(_) => format!("create 4 KiB + fsync, {}", threads(jobs)),
        None => format!("create 4 KiB, {}", threads(jobs)),
    };
    let place = run.place().to_path_buf();
    let content = pattern(SMALL);
    let limit = run.scale().files_max / jobs;
    run.repeat(&name, Unit::Operations, jobs, |job| {
        let dir = place.join(format!("create-{jobs}-{job}"));
        fs::create_dir(&dir)?;
        let (content, mut made) = (content.clone(), 0);
        Ok(move || {
            if made == limit {
                return Ok(None);
            }
            let mut file = File::create_new(dir.join(format!("f{made}")))?;
            file.write_all(&content)?;
            if let Some(syncer) = syncer {
                syncer.file(&file)?;
            }
            made += 1;
            Ok(Some(1))
        })
    })
}

/// `1 thread`, `16 threads`.
pub(super) fn threads(jobs: u64) -> String {
    holdfast_base::show::count(jobs, "thread")
}

/// Files with their numbers as names.
fn fill(dir: &Path, files: u64, content: &[u8]) -> io::Result<()> {
    fs::create_dir(dir)?;
    (0..files).try_for_each(|number| fs::write(dir.join(format!("f{number}")), content))
}

/// N files, synced; one more and an fsync of the directory; then all of them are renamed, in the same transaction.
pub(super) fn rename(run: &mut Run<'_>) -> io::Result<()> {
    let dir = run.place().join("names");
    let files = run.scale().files;
    fill(&dir, files, b"")?;
    run.quiesce()?;
    File::create_new(dir.join("one-more"))?;
    run.syncer().file(&File::open(&dir)?)?;
    let name = format!("rename, after an fsync of a directory of {files}");
    run.once(&name, Unit::Operations, |laps| {
        for number in 0..files {
            let (from, to) = (dir.join(format!("f{number}")), dir.join(format!("g{number}")));
            laps.lap(|| fs::rename(&from, &to))?;
        }
        Ok(files)
    })
}

/// stat and readdir of a directory, cold and warm, and unlink of everything in it.
pub(super) fn look(run: &mut Run<'_>) -> io::Result<()> {
    let dir = run.place().join("many");
    let files = run.scale().files;
    fill(&dir, files, b"some bytes")?;
    for warmth in ["cold", "warm"] {
        for (what, look) in [("readdir", readdir as fn(&Path, u64, &mut Laps) -> _), ("stat", stat)]
        {
            let name = format!("{what} in a directory of {files}, {warmth}");
            if warmth == "warm" || run.cool(&name)? {
                run.once(&name, Unit::Operations, |laps| look(&dir, files, laps))?;
            }
        }
    }
    run.quiesce()?;
    run.once(&format!("unlink in a directory of {files}"), Unit::Operations, |laps| {
        for number in 0..files {
            let path = dir.join(format!("f{number}"));
            laps.lap(|| fs::remove_file(&path))?;
        }
        Ok(files)
    })
}

fn readdir(dir: &Path, files: u64, _: &mut Laps) -> io::Result<u64> {
    let found = fs::read_dir(dir)?.try_fold(0, |count, entry| entry.map(|_| count + 1))?;
    expect(found, files, dir)?;
    Ok(found)
}

fn stat(dir: &Path, files: u64, laps: &mut Laps) -> io::Result<u64> {
    for number in 0..files {
        let path = dir.join(format!("f{number}"));
        let found = laps.lap(|| fs::symlink_metadata(&path))?;
        expect(found.len(), 10, &path)?;
    }
    Ok(files)
}

/// A filesystem that shows something else is not measured but broken.
pub(super) fn expect(found: u64, expected: u64, what: &Path) -> io::Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(io::Error::other(format!("{}: {found}, not {expected}", what.display()))),
    }
}
