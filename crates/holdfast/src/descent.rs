//! Down into a tree and up again, in bounded memory: every walk of a tree goes by this.
//!
//! A directory is gone into by the one name that it says it has, which the engine looks after. So a walk comes to none twice, and ends, also
//! in a damaged volume whose directories lie in themselves or in one another (P10).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::vec;

use holdfast_base::InodeNo;

use crate::dir::Dir;
use crate::metadata::FileType;
use crate::read_dir::{DirEntry, ReadDir};

/// Most bytes that the way down may take: directories in one another, and their names.
const WAY_BYTES: usize = 64 << 20;
/// What a directory on the way takes, beside its name.
const LEVEL_BYTES: usize = 320;
/// Most bytes of names that were read ahead in the directories above.
const AHEAD_BYTES: usize = 16 << 20;
/// Most bytes of names of one directory that are put in order at once.
const ORDER_BYTES: usize = 16 << 20;
/// What a name takes that was read ahead, beside its bytes.
const NAME_BYTES: usize = size_of::<Name>();

/// In which order the names of a directory come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As the directory has them: in no order that means anything to people.
    AsTheyLie,
    /// By their bytes. Of a very large directory the names are looked at several times.
    ByName,
}

/// A way through a tree that its caller steers: the names of the directory where it stands, down into one, and up again. [`Dir::walk`] is the
/// walk that goes everywhere.
///
/// In memory are the directories on the way down, up to 64 MiB: some 200,000 in one another. Of their names 16 MiB are kept that were
/// read ahead, and what is more is read again on the way back.
#[derive(Debug)]
pub struct Descent {
    order: Order,
    levels: Vec<Level>,
    /// Of the directory where it stands.
    path: Vec<u8>,
    /// Bytes of names that were read ahead above that.
    ahead: usize,
}

/// A directory on the way down.
#[derive(Debug)]
struct Level {
    dir: Dir,
    names: Names,
    /// Bytes of the path of the directory above, and behind that this one's name.
    above: usize,
    /// Bytes that were read ahead when one below was gone into.
    ahead: usize,
}

impl Descent {
    /// It stands nowhere yet.
    pub fn new(order: Order) -> Descent {
        Descent { order, levels: Vec::new(), path: Vec::new(), ahead: 0 }
    }

    /// Goes into `dir`, which is called `name` where it stands; the first has a path.
    ///
    /// # Errors
    /// The names cannot be read; the directories on the way are too many. Then it stands where it was.
    pub fn enter(&mut self, dir: Dir, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref().as_bytes();
        let way = (self.levels.len() + 1) * LEVEL_BYTES + self.path.len() + name.len();
        if way > WAY_BYTES {
            let why = "lies too deep: the directories above take more than 64 MiB of memory; begin further below";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let names = Names::of(&dir, self.order)?;
        if let Some(above) = self.levels.last_mut() {
            above.ahead = above.names.ahead_bytes();
            self.ahead += above.ahead;
        }
        if self.ahead > AHEAD_BYTES {
            self.ahead = 0;
            for level in self.levels.iter_mut().filter(|level| level.ahead > 0) {
                level.names.let_go();
                level.ahead = 0;
            }
        }
        let above = self.path.len();
        if !self.path.is_empty() && !self.path.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.levels.push(Level { dir, names, above, ahead: 0 });
        Ok(())
    }

    /// The next name of the directory where it stands. An entry's path is its name. `None`: there is none any more.
    pub fn next_name(&mut self) -> Option<io::Result<DirEntry>> {
        let Level { dir, names, .. } = self.levels.last_mut()?;
        names.next(dir)
    }

    /// Goes up. The directory that it comes from, and its name there; `None`: it stood nowhere.
    pub fn leave(&mut self) -> Option<(Dir, OsString)> {
        let Level { dir, above, .. } = self.levels.pop()?;
        let name = self.path.split_off(above);
        let name = name.strip_prefix(b"/").filter(|_| above > 0).unwrap_or(&name).to_vec();
        if let Some(now) = self.levels.last_mut() {
            self.ahead -= std::mem::take(&mut now.ahead);
        }
        Some((dir, OsString::from_vec(name)))
    }

    /// Where it stands.
    pub fn dir(&self) -> Option<&Dir> {
        self.levels.last().map(|level| &level.dir)
    }

    /// The path of where it stands, of the names that were gone into.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// How many directories it stands in.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }
}

/// What is left of the names of a directory.
#[derive(Debug)]
enum Names {
    AsTheyLie(Box<ReadDir>),
    ByName(Box<ByName>),
}

impl Names {
    fn of(dir: &Dir, order: Order) -> io::Result<Names> {
        match order {
            Order::AsTheyLie => Ok(Names::AsTheyLie(Box::new(dir.entries()))),
            Order::ByName => Ok(Names::ByName(Box::new(ByName::of(dir, ORDER_BYTES)?))),
        }
    }

    fn next(&mut self, dir: &Dir) -> Option<io::Result<DirEntry>> {
        match self {
            Names::AsTheyLie(entries) => entries.next(),
            Names::ByName(names) => names.next(dir),
        }
    }

    fn ahead_bytes(&self) -> usize {
        match self {
            Names::AsTheyLie(entries) => entries.ahead_bytes(),
            Names::ByName(names) => names.bytes,
        }
    }

    fn let_go(&mut self) {
        match self {
            Names::AsTheyLie(entries) => entries.let_go(),
            Names::ByName(names) => names.let_go(),
        }
    }
}

type Name = (OsString, InodeNo, FileType);

/// Names in the order of their bytes, as many at once as memory is allowed for them.
#[derive(Debug)]
struct ByName {
    next: vec::IntoIter<Name>,
    bytes: usize,
    /// The last one that was given.
    given: Option<OsString>,
    /// No name lies behind those that are next.
    is_all: bool,
    most: usize,
}

impl ByName {
    fn of(dir: &Dir, most: usize) -> io::Result<ByName> {
        let next = Vec::new().into_iter();
        let mut names = ByName { next, bytes: 0, given: None, is_all: false, most };
        names.fill(dir)?;
        Ok(names)
    }

    /// Reads the first names behind the last one that was given.
    fn fill(&mut self, dir: &Dir) -> io::Result<()> {
        let mut names: Vec<Name> = Vec::new();
        // Names behind this one are too many.
        let mut end: Option<OsString> = None;
        let mut bytes = 0;
        for entry in dir.entries() {
            let entry = entry?;
            let name = entry.file_name();
            let is_given = self.given.as_deref().is_some_and(|given| name <= given);
            if is_given || end.as_deref().is_some_and(|end| name > end) {
                continue;
            }
            bytes += NAME_BYTES + name.len();
            names.push((name.into(), InodeNo(entry.ino()), entry.file_type()));
            if bytes > 2 * self.most {
                bytes = cut(&mut names, self.most);
                end = names.last().map(|last| last.0.clone());
            }
        }
        names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        (self.next, self.bytes, self.is_all) = (names.into_iter(), bytes, end.is_none());
        Ok(())
    }

    fn next(&mut self, dir: &Dir) -> Option<io::Result<DirEntry>> {
        if self.next.as_slice().is_empty()
            && !self.is_all
            && let Err(error) = self.fill(dir)
        {
            self.is_all = true;
            return Some(Err(error));
        }
        let (name, inode, file_type) = self.next.next()?;
        self.bytes = self.bytes.saturating_sub(NAME_BYTES + name.len());
        self.given = Some(name.clone());
        Some(Ok(DirEntry::of(dir.held(), name, inode, file_type)))
    }

    fn let_go(&mut self) {
        self.is_all &= self.next.as_slice().is_empty();
        (self.next, self.bytes) = (Vec::new().into_iter(), 0);
    }
}

/// Keeps the first names, of so many bytes but one at least. Returns how many those have.
fn cut(names: &mut Vec<Name>, most: usize) -> usize {
    names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let (mut count, mut bytes) = (0, 0);
    for (name, ..) in names.iter() {
        let more = bytes + NAME_BYTES + name.len();
        if more > most && count > 0 {
            break;
        }
        (count, bytes) = (count + 1, more);
    }
    names.truncate(count);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;

    fn volume(names: usize) -> Volume {
        let v = Volume::in_memory(64 << 20).unwrap();
        v.create_dir("/d").unwrap();
        for at in 0..names {
            v.write(format!("/d/{at:04}"), "").unwrap();
        }
        v
    }

    #[test]
    fn names_in_order_take_as_much_memory_as_they_may() {
        let v = volume(700);
        let dir = v.open_dir("/d").unwrap();
        let most = 100 * (NAME_BYTES + 4);
        let mut names = ByName::of(&dir, most).unwrap();
        let mut all = Vec::new();
        while let Some(entry) = names.next(&dir) {
            all.push(entry.unwrap().file_name().to_os_string());
            assert!(names.bytes <= 2 * most);
            // As if others had taken the memory.
            if all.len() % 150 == 0 {
                names.let_go();
            }
        }
        let wanted: Vec<OsString> = (0..700).map(|at| format!("{at:04}").into()).collect();
        assert_eq!(all, wanted);
    }

    #[test]
    fn what_is_let_go_on_the_way_down_comes_on_the_way_back() {
        for order in [Order::AsTheyLie, Order::ByName] {
            let v = volume(600);
            v.create_dir("/d/0300-below").unwrap();
            let mut descent = Descent::new(order);
            descent.enter(v.open_dir("/d").unwrap(), "d").unwrap();
            let mut all = Vec::new();
            while let Some(entry) = descent.next_name() {
                let entry = entry.unwrap();
                all.push(entry.file_name().to_os_string());
                if entry.file_type().is_dir() || all.len() % 50 == 0 {
                    // Too much was read ahead.
                    descent.ahead = AHEAD_BYTES;
                    descent.enter(v.open_dir("/d/0300-below").unwrap(), "0300-below").unwrap();
                    assert_eq!((descent.ahead, descent.depth()), (0, 2));
                    assert_eq!(descent.path(), Path::new("d/0300-below"));
                    assert!(descent.next_name().is_none());
                    assert_eq!(descent.leave().unwrap().1, "0300-below");
                }
            }
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 601, "{order:?}");
            assert_eq!(descent.leave().unwrap().1, "d");
            assert!(descent.leave().is_none() && descent.next_name().is_none());
        }
    }

    #[test]
    fn a_way_that_takes_too_much_memory_is_refused() {
        let v = volume(0);
        let dir = v.open_dir("/d").unwrap();
        let mut descent = Descent::new(Order::AsTheyLie);
        let name = "n".repeat(255);
        let refused = loop {
            if let Err(error) = descent.enter(dir.clone(), &name) {
                break error;
            }
        };
        assert!(refused.to_string().starts_with("lies too deep"), "{refused}");
        assert!(descent.depth() > 100_000);
        while descent.leave().is_some() {}
        assert_eq!(descent.path(), Path::new(""));
    }
}
