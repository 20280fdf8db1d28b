//! A volume of our own that is made, mounted, unmounted, and gone when it is dropped, also after a failure or a signal.
//!
//! All volumes of a run stand in one file, which is written from end to end
//! before, so that the host allocates nothing during an fsync.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Counts;
use crate::mechanisms::Scale;
use crate::systems::cleanup::{Cleanup, CleanupGuard, interrupted, run};
use crate::systems::mounted::{ask, quiesce};

/// Bytes of zeros that are written at once.
const CHUNK: usize = 4 << 20;

/// Where volumes are mounted, and by which program. Its directory is gone when this is dropped.
#[derive(Debug)]
pub struct Mounts {
    program: PathBuf,
    place: PathBuf,
    _guard: CleanupGuard,
}

impl Mounts {
    /// Volumes in a new directory of `dir`, mounted by `program`, which is Holdfast's.
    pub fn new(program: &Path, dir: &Path, scale: Scale) -> io::Result<Mounts> {
        let place = dir.join(format!("holdfast-mechanisms-{}", std::process::id()));
        let ((), guard) = CleanupGuard::make(|| {
            std::fs::create_dir(&place)?;
            Ok(((), Cleanup::Dir(place.clone())))
        })?;
        let mounts = Mounts { program: program.to_path_buf(), place, _guard: guard };
        std::fs::create_dir(mounts.dir())?;
        let mut file = File::create_new(mounts.image())?;
        let zeros = vec![0; CHUNK];
        for _ in 0..scale.pick(256 << 20, 4u64 << 30, 8 << 30) / CHUNK as u64 {
            interrupted()?;
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        Ok(mounts)
    }

    fn image(&self) -> PathBuf {
        self.place.join("volume")
    }

    fn dir(&self) -> PathBuf {
        self.place.join("mnt")
    }

    fn holdfast(&self, words: &[&str], paths: &[&OsStr]) -> io::Result<()> {
        run(Command::new(&self.program).args(words).args(paths)).map(drop)
    }
}

/// A volume that was just made, and its mount.
#[derive(Debug)]
pub(super) struct Volume<'a> {
    mounts: &'a Mounts,
    mount: Option<CleanupGuard>,
}

impl<'a> Volume<'a> {
    /// Makes an empty volume with nodes of `node_size` bytes, in place of the one before, and mounts it.
    pub(super) fn new(
        mounts: &'a Mounts,
        node_size: usize,
        options: &str,
    ) -> io::Result<Volume<'a>> {
        interrupted()?;
        let nodes = format!("{}k", node_size >> 10);
        let words = ["mkfs", "-q", "--force", "--node-size", &nodes];
        mounts.holdfast(&words, &[mounts.image().as_os_str()])?;
        let mut volume = Volume { mounts, mount: None };
        volume.enter(options)?;
        Ok(volume)
    }

    fn enter(&mut self, options: &str) -> io::Result<()> {
        let (image, dir) = (self.mounts.image(), self.mounts.dir());
        let options = format!("noatime,{options}");
        let ((), guard) = CleanupGuard::make(|| {
            let paths = [image.as_os_str(), dir.as_os_str()];
            self.mounts.holdfast(&["mount", "-o", &options], &paths)?;
            Ok(((), Cleanup::OurMount(dir.clone(), self.mounts.program.clone())))
        })?;
        self.mount = Some(guard);
        Ok(())
    }

    /// Unmounts and mounts again with `options`: nothing is in memory, everything is at its location.
    pub(super) fn again(&mut self, options: &str) -> io::Result<()> {
        self.leave()?;
        self.enter(options)
    }

    fn leave(&mut self) -> io::Result<()> {
        self.mount.take().map_or(Ok(()), CleanupGuard::finish)
    }

    /// Where it is mounted.
    pub(super) fn dir(&self) -> PathBuf {
        self.mounts.dir()
    }

    /// Everything so far is durable and at its location.
    pub(super) fn quiesce(&self) -> io::Result<()> {
        quiesce(&self.dir(), true)
    }

    /// What its daemon has counted.
    pub(super) fn counts(&self) -> io::Result<Counts> {
        let (_, stats) = ask(&self.mounts.program, &self.dir())?;
        Ok(Counts::named(|name| stats.get(name).copied().unwrap_or(0)))
    }

    /// Unmounts, and has what is left checked.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.leave()?;
        self.mounts.holdfast(&["fsck", "-n"], &[self.mounts.image().as_os_str()])
    }
}
