//! A tree, copied: first what names lead to from the root, then what no name leads to, by its number in `lost+found`.
//!
//! Memory: a bit for each inode, the name of each directory and of each file of several names, and some names of each directory on
//! the way. No recursion: a directory that is not finished lies on a stack, of at most [`DEPTH_MAX`]; one that lies deeper comes to
//! `lost+found`.

mod file;
mod nameless;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::ControlFlow;

use holdfast_base::InodeNo;
use holdfast_check::reading::VolumeReading;
use holdfast_format::ItemKind;
use holdfast_format::item::{Dentry, FileType};
use roaring::RoaringTreemap;

use crate::copying::Punches;
use crate::destination::{Attributes, Destination};
use crate::items::{Event, Items, Origin};
use crate::known::{Known, known};
use crate::point::Point;
use crate::progress::Progress;
use crate::report::{Counts, FileNote, Missing, Provenance, Version};

/// Names of a directory that are looked at together.
const BATCH: usize = 1024;
/// Directories in each other.
const DEPTH_MAX: usize = 4096;
/// Longest path that is shown, in bytes. One that would be longer begins with the number of a directory on the way.
const SHOWN_MAX: usize = 4096;

/// A name in a directory.
#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    slot: u64,
    inode: InodeNo,
    file_type: FileType,
    origin: Origin,
}

/// A directory that was made.
struct Made {
    /// Where the one above it stands in the list; the first one is its own.
    parent: usize,
    name: Vec<u8>,
}

/// A directory that is being copied.
struct Level {
    /// Where it stands in the list of directories that were made.
    made: usize,
    /// Its path, with a slash behind it unless it is the root.
    shown: Vec<u8>,
    /// `None`: it is made by the salvage and not one of the tree.
    number: Option<InodeNo>,
    known: Known,
    /// Where its names go on; `None`: all were met.
    next: Option<Point>,
    batch: VecDeque<Entry>,
    names: u64,
    lacks_names: bool,
    is_name_lost: bool,
    provenance: Provenance,
}

/// How a copy is made.
pub(crate) struct CopyRules<'o> {
    /// Blocks that do not match their checksums are written all the same.
    pub(crate) unproved: bool,
    /// It is not known whether the tree is the one that is wanted: nothing in it is called whole.
    pub(crate) is_doubted: bool,
    /// The volume has other branches, and a leaf to which nothing leads may be theirs.
    pub(crate) has_branches: bool,
    pub(crate) progress: &'o dyn Fn(Progress),
    /// Files that there are, if that is known.
    pub(crate) total: u64,
}

/// A tree on its way.
pub(crate) struct Walk<'a, 'd, 'o> {
    reading: &'a VolumeReading<'d>,
    items: Items<'a, 'd>,
    out: &'o mut dyn Destination,
    way: CopyRules<'o>,
    punches: Punches,
    seen: RoaringTreemap,
    /// Where files of several names were copied to: the directory and the name there.
    links: BTreeMap<u64, (usize, Vec<u8>)>,
    made: Vec<Made>,
    stack: Vec<Level>,
    counts: Counts,
}

/// A file that gets a name in the directory on top of the stack.
struct Named<'n> {
    number: InodeNo,
    name: &'n [u8],
    /// What it is, as the name says.
    file_type: Option<FileType>,
    is_name_lost: bool,
    provenance: Provenance,
}

impl<'a, 'd, 'o> Walk<'a, 'd, 'o> {
    pub(crate) fn new(
        reading: &'a VolumeReading<'d>,
        mut items: Items<'a, 'd>,
        out: &'o mut dyn Destination,
        way: CopyRules<'o>,
    ) -> Walk<'a, 'd, 'o> {
        let punches = Punches::read(&mut items);
        Walk {
            reading,
            items,
            out,
            way,
            punches,
            seen: RoaringTreemap::new(),
            links: BTreeMap::new(),
            made: vec![Made { parent: 0, name: Vec::new() }],
            stack: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Copies everything.
    ///
    /// # Errors
    /// What ends a salvage, as the destination says.
    pub(crate) fn run(mut self) -> io::Result<Counts> {
        let root = known(&mut self.items, InodeNo::ROOT);
        self.seen.insert(InodeNo::ROOT.0);
        self.stack.push(Level::new(InodeNo::ROOT, root, 0));
        self.work(1)?;
        self.nameless()?;
        self.finish()?;
        Ok(self.counts)
    }

    /// Goes on until so many directories are left, in the last of which all names were met.
    fn work(&mut self, left: usize) -> io::Result<()> {
        loop {
            match self.next_entry() {
                Some(entry) => self.entry(&entry)?,
                None if self.stack.len() <= left => return Ok(()),
                None => self.finish()?,
            }
        }
    }

    /// The next name in the directory on top of the stack.
    fn next_entry(&mut self) -> Option<Entry> {
        let level = self.stack.last_mut()?;
        if level.batch.is_empty()
            && let Some((number, from)) = level.number.zip(level.next.take())
        {
            let end = Point::first(number, ItemKind::Xattr);
            let _ = self.items.visit(from, Some(end), &mut |event| level.take(event));
        }
        level.batch.pop_front()
    }

    /// Copies what a name leads to.
    fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        let known = known(&mut self.items, entry.inode);
        let Some(level) = self.stack.last_mut() else { return Ok(()) };
        if entry.is_outdated(level.number, &known) {
            return Ok(());
        }
        level.names += 1;
        let mut provenance = Provenance::default();
        provenance.add(entry.origin);
        let named = Named {
            number: entry.inode,
            name: &entry.name,
            file_type: Some(entry.file_type),
            is_name_lost: false,
            provenance,
        };
        self.place(named, known).map(drop)
    }

    /// Makes a file under its name. Says whether the name was free.
    fn place(&mut self, named: Named<'_>, known: Known) -> io::Result<bool> {
        let is_file = known.inode.is_some() || known.inline.is_some() || known.has_extents;
        let file_type = known.file_type().or(named.file_type);
        let mut found = self.found(&named, file_type, &known);
        match file_type {
            Some(FileType::Directory) => return self.enter(&named, known, found),
            Some(_) if is_file => {}
            // Of a directory there may be names; of anything else there is nothing.
            _ => {
                found.missing = vec![Missing::Everything];
                self.report(&found)?;
                return Ok(true);
            }
        }
        let number = named.number.0;
        if !self.seen.insert(number) {
            let is_linked = match self.links.get(&number) {
                None => {
                    found.missing.push(Missing::Twice);
                    false
                }
                Some((directory, name)) => {
                    let mut old = self.way_to(*directory);
                    old.push(name.clone());
                    say(self.out.link(named.name, &old), &mut found)?
                }
            };
            // What there is to say of the file was said with its first name.
            if !is_linked || found.version.is_some() {
                self.report(&found)?;
            }
            return Ok(true);
        }
        match self.make(&named, &known, &mut found) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.seen.remove(number);
                return Ok(false);
            }
            made => say(made, &mut found)?,
        };
        found.not_set = self.out.take_not_set();
        if known.inode.is_some_and(|inode| inode.nlink > 1) {
            let directory = self.stack.last().map_or(0, |level| level.made);
            self.links.insert(number, (directory, named.name.to_vec()));
        }
        self.report(&found)?;
        Ok(true)
    }

    /// Makes a directory, and goes on in it.
    fn enter(&mut self, named: &Named<'_>, known: Known, mut found: FileNote) -> io::Result<bool> {
        if self.stack.len() >= DEPTH_MAX {
            return Ok(false);
        }
        if !self.seen.insert(named.number.0) {
            found.missing.push(Missing::Twice);
            self.report(&found)?;
            return Ok(true);
        }
        match self.out.enter(named.name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.seen.remove(named.number.0);
                return Ok(false);
            }
            entered => {
                if !say(entered, &mut found)? {
                    // What is in it comes to where files without a name are.
                    self.report(&found)?;
                    return Ok(true);
                }
            }
        }
        let mut level = Level::new(named.number, known, 0);
        level.is_name_lost = named.is_name_lost;
        level.provenance.join(named.provenance);
        self.entered(named.name, level);
        Ok(true)
    }

    /// A directory was made in the one on top of the stack, and entered.
    fn entered(&mut self, name: &[u8], mut level: Level) {
        level.made = self.made.len();
        if let Some(above) = self.stack.last() {
            self.made.push(Made { parent: above.made, name: name.to_vec() });
            level.shown = [&above.shown[..], name, b"/"].concat();
        }
        if level.shown.len() > SHOWN_MAX {
            let number = level.number.unwrap_or_default();
            level.shown = format!("#{number}/").into_bytes();
        }
        self.stack.push(level);
    }

    /// The names from the root to a directory that was made.
    fn way_to(&self, directory: usize) -> Vec<Vec<u8>> {
        let (mut names, mut at) = (Vec::new(), directory);
        while at != 0 {
            names.push(self.made[at].name.clone());
            at = self.made[at].parent;
        }
        names.reverse();
        names
    }

    /// The directory on top of the stack is done.
    fn finish(&mut self) -> io::Result<()> {
        let Some(level) = self.stack.pop() else { return Ok(()) };
        let left = self.out.leave(&attributes(&level.known));
        let Some(number) = level.number else { return left };
        let named = Named {
            number,
            name: b"",
            file_type: Some(FileType::Directory),
            is_name_lost: level.is_name_lost,
            provenance: level.provenance,
        };
        let mut found = self.found(&named, named.file_type, &level.known);
        found.path = level.shown;
        found.path.pop();
        let is_all = level.known.inode.is_some_and(|inode| inode.size == level.names);
        if level.lacks_names && !is_all {
            found.missing.push(Missing::Names);
        }
        say(left, &mut found)?;
        found.not_set = self.out.take_not_set();
        self.report(&found)
    }

    /// How far what is known of a file is known to be of the state that is wanted.
    fn provenance(&self, named: &Named<'_>, known: &Known) -> Provenance {
        let mut provenance = named.provenance;
        provenance.join(known.provenance);
        if self.way.is_doubted {
            provenance.doubt();
        }
        provenance
    }

    /// What there is to say of a file before it is copied.
    fn found(&self, named: &Named<'_>, file_type: Option<FileType>, known: &Known) -> FileNote {
        let provenance = self.provenance(named, known);
        let mut missing = Vec::new();
        if known.inode.is_none() {
            missing.push(Missing::Inode);
        }
        if known.lacks_xattrs {
            missing.push(Missing::Attributes);
        }
        let shown = self.stack.last().map_or(&b""[..], |level| &level.shown);
        let path = [shown, named.name].concat();
        let is_regular = file_type == Some(FileType::Regular);
        FileNote {
            path,
            inode: named.number.0,
            file_type,
            size: known.inode.filter(|_| is_regular).map(|inode| inode.size),
            version: self.version(provenance),
            is_name_lost: named.is_name_lost,
            missing,
            ..FileNote::default()
        }
    }

    fn version(&self, provenance: Provenance) -> Option<Version> {
        let has_branches = self.way.has_branches;
        provenance.version().map(|version| Version { has_branches, ..version })
    }

    fn report(&mut self, found: &FileNote) -> io::Result<()> {
        self.counts.add(found);
        let (done, total) = (self.counts.found, self.way.total.max(self.counts.found));
        (self.way.progress)(Progress { step: "copy", done, total });
        self.out.report(found)
    }
}

impl Level {
    fn new(number: InodeNo, known: Known, made: usize) -> Level {
        Level {
            made,
            shown: Vec::new(),
            number: Some(number),
            next: Some(Point::first(number, ItemKind::Dentry)),
            provenance: known.provenance,
            known,
            batch: VecDeque::new(),
            names: 0,
            lacks_names: false,
            is_name_lost: false,
        }
    }

    /// A directory of which the tree knows nothing.
    fn made() -> Level {
        let nothing = Level::new(InodeNo(0), Known::default(), 0);
        Level { number: None, next: None, ..nothing }
    }

    /// Takes names until there are enough, and remembers where they go on.
    fn take(&mut self, event: Event<'_>) -> ControlFlow<()> {
        let (key, value, origin) = match event {
            Event::Item { key, value, origin, .. } => (key, value, origin),
            Event::Gap(..) => {
                self.lacks_names = true;
                return ControlFlow::Continue(());
            }
        };
        self.provenance.add(origin);
        match Dentry::decode(value) {
            Ok(dentry) => self.batch.push_back(Entry {
                name: dentry.name.to_vec(),
                slot: key.offset,
                inode: dentry.inode,
                file_type: dentry.file_type,
                origin,
            }),
            Err(_) => self.lacks_names = true,
        }
        if self.batch.len() < BATCH {
            return ControlFlow::Continue(());
        }
        self.next = Point::of(&key).after();
        ControlFlow::Break(())
    }
}

impl Entry {
    /// Whether the name was given up before what is known of the file: it is of a leaf to which nothing leads, and the file says that
    /// it is gone, or has its only name elsewhere.
    fn is_outdated(&self, directory: Option<InodeNo>, known: &Known) -> bool {
        let is_proven = known.origin.is_none_or(|origin| origin.is_proven);
        if self.origin.is_proven && is_proven {
            return false;
        }
        let Some(inode) = known.inode else {
            let is_left = known.is_unknown || known.inline.is_some() || known.has_extents;
            return !self.origin.is_proven && !is_left;
        };
        let has_one_name = inode.nlink == 1 || inode.file_type() == FileType::Directory;
        let is_here = (Some(inode.parent), inode.parent_slot) == (directory, self.slot);
        let is_elsewhere = has_one_name && inode.parent.0 != 0 && !is_here;
        (inode.nlink == 0 || is_elsewhere) && known.origin >= Some(self.origin)
    }
}

/// What the copy of a file gets.
fn attributes(known: &Known) -> Attributes {
    Attributes {
        mode: known.inode.map(|inode| inode.mode),
        owner: known.inode.map(|inode| (inode.uid, inode.gid)),
        times: known.inode.map(|inode| (inode.atime, inode.mtime)),
        xattrs: known.xattrs.clone(),
    }
}

/// Says of a file what the host refused of it. Whether nothing was. Fails with what ends the salvage.
fn say(made: io::Result<()>, found: &mut FileNote) -> io::Result<bool> {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match made {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem) => {
            Err(error)
        }
        Err(error) => {
            found.missing.push(Missing::Refused(error.to_string()));
            Ok(false)
        }
    }
}
