//! The volumes of one command: each device is opened once, each branch and snapshot on it once. A volume that a daemon serves is not
//! opened: the daemon is asked.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use holdfast::Volume;
use holdfast_control::Name;
use holdfast_service::outcome::{NOT_WHOLE, not_whole};
use holdfast_service::work::files::{FileAccess, Files};
use holdfast_service::work::{AtRest, Tree};

use super::endpoint::{Door, Endpoint, Image};
use crate::branches::TreeLocation;
use crate::host_tree;
use crate::outcome::{Context, Failure, complain};
use crate::target::{Target, open_place};

/// What is open.
#[derive(Default)]
pub(super) struct Volumes {
    /// Volumes at rest, by their files.
    at_rest: HashMap<PathBuf, Volume>,
    images: Vec<(Asked, Rc<Image>)>,
    /// Those of which a mount is named whose branch is not known.
    unknown: HashSet<PathBuf>,
    /// The last state of one of them is not whole.
    is_damaged: bool,
}

/// Files of a volume, by its file, and whether they are written.
#[derive(PartialEq, Eq)]
struct Asked {
    real: PathBuf,
    tree: Tree,
    writes: bool,
}

/// Tells trees apart, also from devices of the host, which have small numbers.
fn id(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish() | 1 << 63
}

impl Volumes {
    /// Opens what a path is in.
    pub(super) fn side(&mut self, target: &Target, read_only: bool) -> Result<Endpoint, Failure> {
        match target {
            Target::Host(path) => Ok(Endpoint::Host(host_tree::HostEntry::named(path))),
            Target::Inside { place, path } if place.snapshot.is_some() && !read_only => {
                Err(Failure::plain(format!(
                    "{}: a snapshot never changes; copy into a branch, or make one with: holdfast fork",
                    named(place, path)
                )))
            }
            Target::Inside { place, path } => {
                let image = self.open(place, read_only)?;
                Ok(Endpoint::Volume(image, path.clone()))
            }
        }
    }

    fn open(&mut self, place: &TreeLocation, read_only: bool) -> Result<Rc<Image>, Failure> {
        let located = place.located()?;
        let real = located.image().canonicalize().context(place.path.display())?;
        // Where no branch is named, the one that is mounted there is meant.
        let tree = match place.branch {
            Some(_) => Tree { at: None, ..located.tree() },
            None => located.tree(),
        };
        let asked = Asked { real: real.clone(), tree, writes: !read_only };
        if let Some((_, image)) = self.images.iter().find(|(of, _)| *of == asked) {
            return Ok(Rc::clone(image));
        }
        let what = FileAccess { tree: located.tree(), writes: !read_only };
        let daemon = match self.at_rest.contains_key(&real) {
            true => None,
            false => located.converse(what.clone())?,
        };
        let [mut branch, snapshot] = located.names();
        let door = match daemon {
            Some(daemon) => Door::Daemon(daemon),
            None => {
                let (volume, name) = (self.at_rest(&real, place, read_only)?, place.to_string());
                branch = Some(Name(what.tree.branch(volume, &name)?.name().into()));
                let heads = AtRest { volume, name: &name };
                Door::Here(Box::new(Files::of(volume, &heads, &name, &what)?))
            }
        };
        let is_unknown = branch.is_none() && asked.tree.at.is_some();
        let mut others =
            self.images.iter().filter(|(of, _)| of.real == real && of.tree != asked.tree);
        if others.any(|_| is_unknown || self.unknown.contains(&real)) {
            let why = "the daemon does not say what is mounted there, which may be one file: name the volume";
            return Err(Failure::plain(format!("{place}: {why}")));
        }
        if is_unknown {
            self.unknown.insert(real.clone());
        }
        let id = match (&branch, &asked.tree.at) {
            // The mount alone is known.
            (None, Some(at)) => id(&(&real, &at.device)),
            (branch, _) => {
                let branch = branch.as_ref().map_or(&b"main"[..], Name::bytes);
                id(&(&real, branch, snapshot.as_ref().map(Name::bytes)))
            }
        };
        let image = Rc::new(Image { name: place.to_string(), id, door: RefCell::new(door) });
        self.images.push((asked, Rc::clone(&image)));
        Ok(image)
    }

    /// A volume at rest; the first place in it is what is opened.
    fn at_rest(
        &mut self,
        real: &Path,
        place: &TreeLocation,
        read_only: bool,
    ) -> Result<&Volume, Failure> {
        let none = match self.at_rest.entry(real.into()) {
            Entry::Occupied(open) => return Ok(open.into_mut()),
            Entry::Vacant(none) => none,
        };
        let volume = open_place(place, read_only)?;
        if let Some(why) = volume.missing() {
            complain(&format!("{place}: {}", not_whole(&why)));
            self.is_damaged = true;
        }
        Ok(none.insert(volume))
    }

    /// Makes everything durable and releases the devices.
    ///
    /// # Errors
    /// Something is not durable. Without a sentence: the last state of what was read is not whole, which was said.
    pub(super) fn close(self) -> Result<(), Failure> {
        let mut is_damaged = self.is_damaged;
        for (_, image) in self.images {
            let Some(image) = Rc::into_inner(image) else {
                return Err(Failure::plain("files are still being copied"));
            };
            match image.close() {
                Err(failure) if failure.code == NOT_WHOLE => is_damaged = true,
                closed => closed?,
            }
        }
        for (real, volume) in self.at_rest {
            volume.close().context(real.display())?;
        }
        match is_damaged {
            true => Err(Failure::new(NOT_WHOLE, "")),
            false => Ok(()),
        }
    }
}

fn named(place: &TreeLocation, path: &Path) -> String {
    format!("{place}:{}", path.display())
}
