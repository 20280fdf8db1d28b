//! Writes into full files with fsyncs between: the two workloads that M5 was published with.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_base::prng::Prng;

use super::run::{Run, Unit};
use crate::work::{fill, pattern};

/// Jobs, each with a file of its own.
const JOBS: [u64; 2] = [1, 8];

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    bytes: usize,
    writes_per_fsync: u64,
    is_random: bool,
}

/// 64 KiB one after the other, an fsync after each.
pub(super) fn sequential(run: &mut Run<'_>) -> io::Result<()> {
    let kind = Kind {
        name: "write 64 KiB + fsync, sequential",
        bytes: 64 << 10,
        writes_per_fsync: 1,
        is_random: false,
    };
    JOBS.into_iter().try_for_each(|jobs| writes(run, kind, jobs))
}

/// 4 KiB at random offsets, an fsync after sixteen.
pub(super) fn random(run: &mut Run<'_>) -> io::Result<()> {
    let kind = Kind {
        name: "write 4 KiB at random, fsync after 16",
        bytes: 4 << 10,
        writes_per_fsync: 16,
        is_random: true,
    };
    JOBS.into_iter().try_for_each(|jobs| writes(run, kind, jobs))
}

/// One operation is what ends with an fsync.
fn writes(run: &mut Run<'_>, kind: Kind, jobs: u64) -> io::Result<()> {
    let (place, syncer, scale) = (run.place().to_path_buf(), run.syncer(), run.scale());
    let name = format!("{}, {}", kind.name, holdfast_base::show::count(jobs, "job"));
    let places = (scale.job_bytes / kind.bytes as u64).max(1);
    run.repeat(&name, Unit::Bytes, jobs, |job| {
        let file = full(&place.join(format!("job-{jobs}-{job}")), scale.job_bytes)?;
        let mut content = pattern(kind.bytes);
        let mut prng = Prng::seeded(scale.seed + job);
        let mut written = 0u64;
        Ok(move || {
            for _ in 0..kind.writes_per_fsync {
                content[..8].copy_from_slice(&written.to_le_bytes());
                let at = if kind.is_random { prng.below(places) } else { written % places };
                file.write_all_at(&content, at * kind.bytes as u64)?;
                written += 1;
            }
            syncer.file(&file)?;
            Ok(Some(kind.writes_per_fsync * kind.bytes as u64))
        })
    })
}

/// A file with so many bytes in it, written from end to end.
pub(super) fn full(path: &Path, bytes: u64) -> io::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    fill(&file, bytes)?;
    file.sync_all()?;
    Ok(file)
}
