//! A volume of our own that is made, mounted, unmounted, and gone when it is dropped, also after a failure.
//!
//! All volumes of a run stand in one file, which is written from end to end
//! before, so that the host allocates nothing under an fsync.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Counts;
use crate::mechanisms::Scale;

/// Bytes of zeros that are written at once.
const CHUNK: usize = 4 << 20;

/// Where volumes are mounted, and by which program. Its directory is gone when this is dropped.
#[derive(Debug)]
pub struct Mounts {
    program: PathBuf,
    place: PathBuf,
}

impl Mounts {
    /// Volumes in a new directory of `dir`, mounted by `program`, which is Holdfast's.
    pub fn new(program: &Path, dir: &Path, scale: Scale) -> io::Result<Mounts> {
        let place = dir.join(format!("holdfast-mechanisms-{}", std::process::id()));
        std::fs::create_dir(&place)?;
        let mounts = Mounts { program: program.to_path_buf(), place };
        std::fs::create_dir(mounts.dir())?;
        let mut file = File::create_new(mounts.image())?;
        let zeros = vec![0; CHUNK];
        for _ in 0..scale.pick(256 << 20, 6u64 << 30, 8 << 30) / CHUNK as u64 {
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

    fn holdfast(&self, words: &[&str], paths: &[&Path]) -> io::Result<String> {
        let mut command = Command::new(&self.program);
        command.args(words).args(paths).stdin(Stdio::null());
        let output = command.output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("holdfast {}: {}", words.join(" "), said.trim())))
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        // Only what was made by `new`, and nothing while something is mounted in it.
        let _ = std::fs::remove_dir(self.dir());
        let _ = std::fs::remove_file(self.image());
        let _ = std::fs::remove_dir(&self.place);
    }
}

/// A volume that was just made, and its mount.
#[derive(Debug)]
pub(super) struct Volume<'a> {
    mounts: &'a Mounts,
    is_mounted: bool,
}

impl<'a> Volume<'a> {
    /// Makes an empty volume with nodes of `node_size` bytes, in place of the one before, and mounts it.
    pub(super) fn new(
        mounts: &'a Mounts,
        node_size: usize,
        options: &str,
    ) -> io::Result<Volume<'a>> {
        let nodes = format!("{}k", node_size >> 10);
        let words = ["mkfs", "-q", "--force", "--node-size", &nodes];
        mounts.holdfast(&words, &[&mounts.image()])?;
        let mut volume = Volume { mounts, is_mounted: false };
        volume.enter(options)?;
        Ok(volume)
    }

    fn enter(&mut self, options: &str) -> io::Result<()> {
        let options = format!("noatime,{options}");
        let words = ["mount", "-o", &options];
        self.mounts.holdfast(&words, &[&self.mounts.image(), &self.mounts.dir()])?;
        self.is_mounted = true;
        Ok(())
    }

    /// Unmounts and mounts again with `options`: nothing is in memory, everything is at its home.
    pub(super) fn again(&mut self, options: &str) -> io::Result<()> {
        self.leave()?;
        self.enter(options)
    }

    fn leave(&mut self) -> io::Result<()> {
        self.mounts.holdfast(&["umount"], &[&self.mounts.dir()])?;
        self.is_mounted = false;
        Ok(())
    }

    /// Where it is mounted.
    pub(super) fn dir(&self) -> PathBuf {
        self.mounts.dir()
    }

    /// Everything so far is durable and at its place.
    pub(super) fn settle(&self) -> io::Result<()> {
        self.mounts.holdfast(&["sync"], &[&self.dir()]).map(drop)
    }

    /// What its daemon has counted.
    pub(super) fn counts(&self) -> io::Result<Counts> {
        let said = self.mounts.holdfast(&["stats", "--json"], &[&self.dir()])?;
        let value: serde_json::Value = serde_json::from_str(&said)?;
        Ok(Counts::named(|name| value["counters"][name].as_u64().unwrap_or(0)))
    }

    /// Unmounts, and has what is left checked.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.leave()?;
        self.mounts.holdfast(&["fsck", "-n"], &[&self.mounts.image()]).map(drop)
    }
}

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        if self.is_mounted && self.leave().is_err() {
            // It lets go of the mount when the last file in it is closed.
            let _ = Command::new("umount").arg("-l").arg(self.dir()).status();
        }
    }
}
