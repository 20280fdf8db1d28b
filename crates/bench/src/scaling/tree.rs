//! A volume whose tree grows.

use std::io;
use std::sync::Arc;

use holdfast::{Dir, Volume, VolumeOptions};
use holdfast_device::Device;

use crate::undo::interrupted;
use crate::work::quiesce;

/// Files, the same number in each directory.
pub(super) struct Tree {
    pub(super) device: Arc<dyn Device>,
    pub(super) volume: Volume,
    dirs: Vec<Dir>,
    /// Files of each directory, at most.
    dir_files: u64,
    pub(super) files: u64,
    /// What is in each.
    content: &'static [u8],
}

impl Tree {
    pub(super) fn new(
        device: Arc<dyn Device>,
        dir_files: u64,
        content: &'static [u8],
    ) -> io::Result<Tree> {
        crate::new_volume().node_size(16384).format(&device)?;
        let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone())?;
        Ok(Tree { device, volume, dirs: Vec::new(), dir_files, files: 0, content })
    }

    /// The directory of a file with this number.
    pub(super) fn dir(&self, file: u64) -> &Dir {
        &self.dirs[(file / self.dir_files) as usize]
    }

    /// Adds files until there are so many.
    pub(super) fn grow(&mut self, files: u64) -> io::Result<()> {
        while self.files < files {
            interrupted()?;
            let dir = (self.files / self.dir_files) as usize;
            if dir == self.dirs.len() {
                self.volume.create_dir(format!("/d{dir}"))?;
                self.dirs.push(self.volume.open_dir(format!("/d{dir}"))?);
            }
            let file = self.dirs[dir].create(format!("file-{}", self.files))?;
            file.write_all_at(self.content, 0)?;
            self.files += 1;
        }
        quiesce(&self.volume)
    }

    pub(super) fn end(self) {
        drop(self.dirs);
        self.volume.abandon();
    }
}
