//! Trees of many small files: unpacked, looked at, read, removed.
//!
//! An [`Archive`] is a plain tar outside of the tested filesystem: a real one, or one that is
//! made here in the shape of a kernel's source tree (files of some KiB, a dozen in a directory).

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_base::prng::Prng;

use super::flat::expect;
use super::run::{Laps, Run, Unit};
use crate::systems::cleanup::{Cleanup, CleanupGuard, interrupted, run_inside};
use crate::work::pattern;

/// Bytes of a block of tar.
const BLOCK: usize = 512;
/// Files in a directory of a made archive.
const FILES_PER_DIR: u64 = 12;
/// Files of a package of [`modules`].
const FILES_PER_PACKAGE: u64 = 20;

/// A plain tar, and what to expect in it.
#[derive(Clone, Debug)]
pub struct Archive {
    /// The file.
    pub path: PathBuf,
    /// What it is, for people.
    pub about: String,
}

impl Archive {
    /// The archive at `path`; one that ends in `xz` is decompressed into `dir` first, for as long as the second
    /// value lives.
    pub fn open(path: &Path, dir: &Path) -> io::Result<(Archive, Kept)> {
        let about = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_none_or(|extension| extension != "xz") {
            File::open(path).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
            return Ok((Archive { path: path.to_path_buf(), about }, Kept(None)));
        }
        let plain = kept_path(dir, "tree");
        let ((), guard) = CleanupGuard::make(|| {
            File::create_new(&plain)?;
            Ok(((), Cleanup::File(plain.clone())))
        })?;
        let script = "exec xz -dc -- \"$1\" >\"$2\"";
        run_inside(Command::new("sh").args(["-c", script, "sh"]).arg(path).arg(&plain))?;
        Ok((Archive { path: plain, about }, Kept(Some(guard))))
    }
}

/// Keeps an archive that was made for a benchmark.
#[derive(Debug)]
pub struct Kept(#[expect(dead_code, reason = "held until it is dropped")] Option<CleanupGuard>);

fn kept_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("holdfast-bench-{}-{name}.tar", std::process::id()))
}

/// An archive in `dir`, called by `name`, with `files` files, for as long as the second value lives.
pub fn made_archive(dir: &Path, name: &str, files: u64, seed: u64) -> io::Result<(Archive, Kept)> {
    let path = kept_path(dir, name);
    let (file, guard) =
        CleanupGuard::make(|| Ok((File::create_new(&path)?, Cleanup::File(path.clone()))))?;
    write_archive(BufWriter::new(file), files, seed)?;
    let about = format!("a made tree of {files} files");
    Ok((Archive { path, about }, Kept(Some(guard))))
}

fn write_archive(mut out: impl Write, files: u64, seed: u64) -> io::Result<()> {
    let mut prng = Prng::seeded(seed);
    let content = pattern(64 << 10);
    for number in 0..files {
        interrupted()?;
        let dir = number / FILES_PER_DIR;
        let path = format!("tree/part{}/section{}/file{number}.c", dir / 40, dir);
        let len = size(&mut prng, content.len() as u64) as usize;
        out.write_all(&header(&path, len))?;
        // Different content everywhere, and text that compresses no better than text does.
        let from = prng.below((content.len() - len).max(1) as u64) as usize;
        out.write_all(&content[from..from + len])?;
        out.write_all(&[0; BLOCK][..(BLOCK - len % BLOCK) % BLOCK])?;
    }
    out.write_all(&[0; 2 * BLOCK])?;
    out.flush()
}

/// Half of the files have less than 4 KiB, few have more than 32.
fn size(prng: &mut Prng, max: u64) -> u64 {
    let doublings = prng.below(8);
    (256 + prng.below(256) + (prng.below(512) << doublings)).min(max)
}

/// A header of ustar for a regular file.
fn header(path: &str, len: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, path);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{len:011o}"));
    put(136, "14000000000");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Unpacks the archive and syncs; then everything is looked at, read, and removed.
pub(super) fn unpack(run: &mut Run<'_>) -> io::Result<()> {
    let Some(archive) = &run.scale().archive else {
        run.skip("unpack a tree and sync", "there is no archive".into());
        return Ok(());
    };
    let dir = run.place().to_path_buf();
    let syncer = run.syncer();
    let host = run.host();
    run.once("unpack a tree and sync", Unit::Whole, |_| {
        run_inside(Command::new("tar").arg("-xf").arg(&archive.path).arg("-C").arg(&dir))?;
        if syncer.is_durable() {
            host.quiesce()?;
        }
        Ok(1)
    })?;
    for (look, verb) in [(Look::Stat, "stat"), (Look::Read, "read")] {
        for warmth in ["cold", "warm"] {
            let name = format!("{verb} a whole tree, {warmth}");
            if warmth == "warm" || run.cool(&name)? {
                run.once(&name, Unit::Operations, |laps| walk(&dir, laps, look))?;
            }
        }
    }
    remove(run, "rm -rf of that tree and sync")
}

#[derive(Clone, Copy)]
enum Look {
    Stat,
    Read,
}

/// Everything below `dir`: how many files were looked at.
fn walk(dir: &Path, laps: &mut Laps, look: Look) -> io::Result<u64> {
    interrupted()?;
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        match entry.file_type()? {
            kind if kind.is_dir() => count += walk(&path, laps, look)?,
            kind => {
                match look {
                    Look::Stat => {
                        laps.lap(|| fs::symlink_metadata(&path))?;
                    }
                    Look::Read if kind.is_file() => {
                        laps.lap(|| {
                            let mut content = Vec::new();
                            File::open(&path)?.read_to_end(&mut content)
                        })?;
                    }
                    Look::Read => {}
                }
                count += 1;
            }
        }
    }
    Ok(count)
}

/// Removes everything in the workload's directory with rm(1), and syncs.
fn remove(run: &mut Run<'_>, name: &str) -> io::Result<()> {
    let dir = run.place().to_path_buf();
    let host = run.host();
    run.once(name, Unit::Whole, |_| {
        for entry in fs::read_dir(&dir)? {
            run_inside(Command::new("rm").arg("-rf").arg(entry?.path()))?;
        }
        host.quiesce()?;
        Ok(1)
    })?;
    expect(fs::read_dir(&dir)?.count() as u64, 0, &dir)
}

/// A tree like node_modules: packages in packages, most files small, made one by one and removed by rm -rf.
pub(super) fn modules(run: &mut Run<'_>) -> io::Result<()> {
    let dir = run.place().join("node_modules");
    let (packages, seed) = (run.scale().packages, run.scale().seed);
    let files = packages * FILES_PER_PACKAGE;
    let host = run.host();
    run.once(
        &format!("make {files} files like node_modules and sync"),
        Unit::Operations,
        |laps| {
            let mut prng = Prng::seeded(seed);
            let content = pattern(64 << 10);
            for package in 0..packages {
                interrupted()?;
                // Every fifth one is a dependency of the one before.
                let mut place = dir.join(format!("package-{}", package - package % 5));
                if package % 5 > 0 {
                    place = place.join(format!("node_modules/inner-{package}"));
                }
                for sub in ["lib", "dist/types"] {
                    fs::create_dir_all(place.join(sub))?;
                }
                for file in 0..FILES_PER_PACKAGE {
                    let sub = ["", "lib", "dist", "dist/types"][file as usize % 4];
                    let path = place.join(sub).join(format!("file-{file}.js"));
                    let len = size(&mut prng, content.len() as u64) as usize;
                    laps.lap(|| fs::write(&path, &content[..len]))?;
                }
            }
            host.quiesce()?;
            Ok(files)
        },
    )?;
    remove(run, &format!("rm -rf of {files} files like node_modules and sync"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_understands_what_is_made() {
        let place = tempfile::tempdir().unwrap();
        let (archive, kept) = made_archive(place.path(), "tree", 30, 1).unwrap();
        let listed = run_inside(Command::new("tar").arg("-tvf").arg(&archive.path)).unwrap();
        assert_eq!(listed.lines().count(), 30, "{listed}");
        assert!(listed.contains("tree/part0/section2/file29.c"), "{listed}");
        let path = archive.path.clone();
        drop(kept);
        assert!(!path.exists());
    }
}
