//! Holdfast as it is mounted: the same files through the kernel.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{Client, Commits, Place, ROOM};

pub(super) struct Mount {
    program: PathBuf,
    dir: PathBuf,
    is_mounted: bool,
}

impl Mount {
    pub(super) fn open(place: &Place<'_>) -> Result<Mount> {
        let (image, dir) = (place.dir.join("image"), place.dir.join("mnt"));
        let mut mount = Mount { program: place.program.into(), dir, is_mounted: false };
        DirBuilder::new().create(&mount.dir)?;
        let size = ROOM.to_string();
        mount.run([
            "mkfs".as_ref(),
            "-q".as_ref(),
            "--size".as_ref(),
            size.as_ref(),
            image.as_os_str(),
        ])?;
        mount.run(["mount".as_ref(), image.as_os_str(), mount.dir.as_os_str()])?;
        mount.is_mounted = true;
        Ok(mount)
    }

    fn run<'a>(&self, words: impl IntoIterator<Item = &'a OsStr>) -> Result<()> {
        let status = Command::new(&self.program).args(words).status()?;
        ensure!(status.success(), "{}: {status}", self.program.display());
        Ok(())
    }

    /// Unmounts it, once.
    fn leave(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        let umount =
            |words: &[&str]| self.run(words.iter().map(OsStr::new).chain([self.dir.as_os_str()]));
        umount(&["umount"]).or_else(|error| umount(&["umount", "--lazy"]).and(Err(error)))
    }
}

impl Commits for Mount {
    fn client(&self, number: u64) -> Result<Client<'_>> {
        let file = File::create(self.dir.join(format!("client-{number}")))?;
        Ok(Box::new(move |key, value| {
            file.write_all_at(value, key * value.len() as u64)?;
            Ok(file.sync_data()?)
        }))
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.leave()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            eprintln!("holdfast-databases: cleaning up: {error}");
        }
    }
}
