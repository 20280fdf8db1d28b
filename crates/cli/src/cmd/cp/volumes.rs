//! The volumes of one command: each device is opened once, each branch and snapshot on it once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast::{Volume, VolumeOptions};

use super::side::{Image, Side};
use crate::branches::Place;
use crate::outcome::{Context, Failure};
use crate::target::{Target, open_place};

/// What is open.
#[derive(Default)]
pub(super) struct Volumes {
    devices: HashMap<PathBuf, Device>,
}

/// What is open on one device; the first was opened with it.
struct Device {
    images: Vec<(Tree, Arc<Image>)>,
}

/// A branch, or a snapshot of it, by its names.
#[derive(PartialEq, Eq)]
struct Tree {
    branch: String,
    snapshot: Option<String>,
}

impl Volumes {
    /// Opens what a path is in.
    pub(super) fn side(&mut self, target: &Target, read_only: bool) -> Result<Side, Failure> {
        match target {
            Target::Host(path) => Ok(Side::Host(path.clone())),
            Target::Inside { place, path } if place.snapshot.is_some() && !read_only => {
                Err(Failure::plain(format!(
                    "{}: a snapshot never changes; copy into a branch, or make one with: holdfast fork",
                    named(place, path)
                )))
            }
            Target::Inside { place, path } => {
                let image = self.open(place, read_only)?;
                Ok(Side::Volume(image, path.clone()))
            }
        }
    }

    fn open(&mut self, place: &Place, read_only: bool) -> Result<Arc<Image>, Failure> {
        let real = place.path.canonicalize().context(place.path.display())?;
        let image = |volume| Arc::new(Image { name: place.to_string(), volume });
        let Some(device) = self.devices.get_mut(&real) else {
            let first = image(open_place(place, read_only)?);
            let tree = Tree::of(&first.volume, place)?;
            self.devices.insert(real, Device { images: vec![(tree, first.clone())] });
            return Ok(first);
        };
        let (_, first) = &device.images[0];
        let tree = Tree::of(first, place)?;
        if let Some((_, image)) = device.images.iter().find(|(open, _)| *open == tree) {
            return Ok(image.clone());
        }
        let image = image(tree.open(first, read_only).context(place)?);
        device.images.push((tree, image.clone()));
        Ok(image)
    }

    /// Makes everything durable and releases the devices.
    pub(super) fn close(self) -> Result<(), Failure> {
        for (_, image) in self.devices.into_values().flat_map(|device| device.images) {
            match Arc::try_unwrap(image) {
                Ok(image) => image.volume.close().context(image.name)?,
                // Never so once the copier is gone; and a sync keeps the promise all the same.
                Err(image) => image.sync().context(&image.name)?,
            }
        }
        Ok(())
    }
}

impl Tree {
    /// What a place means on a device of which something is open.
    fn of(open: &Volume, place: &Place) -> Result<Tree, Failure> {
        let branch = match &place.branch {
            Some(name) => name.utf8()?.to_owned(),
            None => match open.branches().context(place)?.first() {
                Some(first) => first.name().to_owned(),
                None => return Err(Failure::plain(format!("{place}: there is no branch"))),
            },
        };
        let snapshot = place.snapshot.as_ref().map(|name| name.utf8()).transpose()?;
        Ok(Tree { branch, snapshot: snapshot.map(String::from) })
    }

    /// Opens it beside what is open.
    fn open(&self, open: &Volume, read_only: bool) -> std::io::Result<Volume> {
        let branch = open.branch(&self.branch)?;
        match &self.snapshot {
            Some(name) => branch.snapshot_named(name)?.open(),
            None => branch.open_with(&VolumeOptions::new().read_only(read_only)),
        }
    }
}

fn named(place: &Place, path: &Path) -> String {
    format!("{place}:{}", path.display())
}
