//! Trees of many small files: unpacked, looked at, read, removed.
//!
//! What is unpacked is a plain tar outside of the tested filesystem: a real one, or one that is
//! made here in the shape of a kernel's source tree (files of some KiB, a dozen in a directory).

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::Command;

use holdfast_base::prng::Prng;

use super::flat::expect;
use super::run::{Laps, Run, Unit};
use crate::undo::{self, interrupted};
use crate::work::pattern;

/// Files in a directory of a made archive.
const FILES_PER_DIR: u64 = 12;
/// Files of a package of [`modules`].
const FILES_PER_PACKAGE: u64 = 20;

/// Makes an archive with `files` files in the shape of a kernel's source tree.
pub(super) fn write_archive(path: &Path, files: u64, seed: u64) -> io::Result<()> {
    let mut archive = tar::Builder::new(BufWriter::new(File::create_new(path)?));
    let mut prng = Prng::seeded(seed);
    let content = pattern(64 << 10);
    for number in 0..files {
        interrupted()?;
        let dir = number / FILES_PER_DIR;
        let path = format!("tree/part{}/section{dir}/file{number}.c", dir / 40);
        let len = size(&mut prng, content.len() as u64) as usize;
        let mut header = tar::Header::new_ustar();
        header.set_size(len as u64);
        header.set_mode(0o644);
        // Different content everywhere, and text that compresses no better than text does.
        let from = prng.below((content.len() - len).max(1) as u64) as usize;
        archive.append_data(&mut header, path, &content[from..from + len])?;
    }
    archive.into_inner()?.flush()
}

/// Half of the files have less than 4 KiB, few have more than 32.
fn size(prng: &mut Prng, max: u64) -> u64 {
    let doublings = prng.below(8);
    (256 + prng.below(256) + (prng.below(512) << doublings)).min(max)
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
        undo::run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&dir))?;
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
            undo::run(Command::new("rm").arg("-rf").arg(entry?.path()))?;
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
