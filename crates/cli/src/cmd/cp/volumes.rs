//! The volumes of one command: each device is opened once, each branch and snapshot on it once. A volume that a daemon serves is not
//! opened: the daemon is asked.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{cell::RefCell, io};

use holdfast::{Volume, VolumeOptions};
use holdfast_service::outcome::{NOT_WHOLE, not_whole};
use holdfast_service::work::InPlace;
use holdfast_service::work::files::{Files, What};

use super::side::{Door, Image, Side};
use crate::branches::Place;
use crate::host_tree;
use crate::outcome::{Context, Failure, complain};
use crate::target::{Target, open_place};

/// What is open.
#[derive(Default)]
pub(super) struct Volumes {
    devices: HashMap<PathBuf, Device>,
    asked: Vec<(Asked, Rc<Image>)>,
    /// The last state of one of them is not whole.
    is_damaged: bool,
}

/// What is open on one device; the first was opened with it.
struct Device {
    images: Vec<(Tree, Rc<Image>, Volume)>,
}

/// What a daemon is asked about: files of a volume, by its file, and whether they are written.
#[derive(PartialEq, Eq)]
struct Asked {
    real: PathBuf,
    branch: Option<Vec<u8>>,
    snapshot: Option<Vec<u8>>,
    writes: bool,
}

/// A branch, or a snapshot of it, by its names.
#[derive(Hash, PartialEq, Eq)]
struct Tree {
    branch: String,
    snapshot: Option<String>,
}

/// Tells trees apart, also from devices of the host, which have small numbers.
fn id(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish() | 1 << 63
}

impl Volumes {
    /// Opens what a path is in.
    pub(super) fn side(&mut self, target: &Target, read_only: bool) -> Result<Side, Failure> {
        match target {
            Target::Host(path) => Ok(Side::Host(host_tree::Place::named(path))),
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

    fn open(&mut self, place: &Place, read_only: bool) -> Result<Rc<Image>, Failure> {
        let located = place.located()?;
        let real = located.image().canonicalize().context(place.path.display())?;
        if let Some(device) = self.devices.get_mut(&real) {
            return device.open(place, &real, read_only);
        }
        let name = |of: &Option<crate::branches::Name>| of.as_ref().map(|name| name.0.clone());
        let (branch, snapshot) = (name(&place.branch), name(&place.snapshot));
        let asked = Asked { real: real.clone(), branch, snapshot, writes: !read_only };
        if let Some((_, image)) = self.asked.iter().find(|(of, _)| *of == asked) {
            return Ok(Rc::clone(image));
        }
        let tree = located.tree();
        let Some(daemon) = located.converse(What { tree, writes: !read_only })? else {
            return self.open_at_rest(place, real, read_only);
        };
        let first = || b"main".to_vec();
        let names = (asked.branch.clone().unwrap_or_else(first), &asked.snapshot);
        let image = Rc::new(Image {
            name: place.to_string(),
            id: id(&(&asked.real, names)),
            door: RefCell::new(Door::Daemon(daemon)),
        });
        self.asked.push((asked, Rc::clone(&image)));
        Ok(image)
    }

    fn open_at_rest(
        &mut self,
        place: &Place,
        real: PathBuf,
        read_only: bool,
    ) -> Result<Rc<Image>, Failure> {
        let volume = open_place(place, read_only)?;
        if let Some(why) = volume.missing() {
            complain(&format!("{place}: {}", not_whole(&why)));
            self.is_damaged = true;
        }
        let tree = Tree::of(&volume, place)?;
        let mut device = Device { images: Vec::new() };
        let image = device.add(place, &real, tree, volume);
        self.devices.insert(real, device);
        Ok(image)
    }

    /// Makes everything durable and releases the devices.
    ///
    /// # Errors
    /// Something is not durable. Without a sentence: the last state of what was read is not whole, which was said.
    pub(super) fn close(self) -> Result<(), Failure> {
        let at_rest = self.devices.into_values().flat_map(|device| device.images);
        for (_, image, volume) in at_rest {
            let name = image.name.clone();
            // With what a copy that failed has left open.
            drop(image);
            volume.close().context(name)?;
        }
        let mut is_damaged = self.is_damaged;
        for (_, image) in self.asked {
            let Some(image) = Rc::into_inner(image) else {
                return Err(Failure::plain("files are still being copied"));
            };
            match image.close() {
                Err(failure) if failure.code == NOT_WHOLE => is_damaged = true,
                closed => closed?,
            }
        }
        match is_damaged {
            true => Err(Failure::new(NOT_WHOLE, "")),
            false => Ok(()),
        }
    }
}

impl Device {
    fn open(&mut self, place: &Place, real: &Path, read_only: bool) -> Result<Rc<Image>, Failure> {
        let first = &self.images.first().ok_or_else(|| Failure::plain("nothing is open"))?.2;
        let tree = Tree::of(first, place)?;
        if let Some((_, image, _)) = self.images.iter().find(|(open, ..)| *open == tree) {
            return Ok(Rc::clone(image));
        }
        let volume = tree.open(first, read_only).context(place)?;
        Ok(self.add(place, real, tree, volume))
    }

    fn add(&mut self, place: &Place, real: &Path, tree: Tree, volume: Volume) -> Rc<Image> {
        let files = Files::of(InPlace::of((*volume).clone(), None));
        let image = Rc::new(Image {
            name: place.to_string(),
            id: id(&(real, &tree)),
            door: RefCell::new(Door::Here(Box::new(files))),
        });
        self.images.push((tree, Rc::clone(&image), volume));
        image
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
    fn open(&self, open: &Volume, read_only: bool) -> io::Result<Volume> {
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
