//! Files to which no name leads that is left: they come to `lost+found`, each called by its number, directories with all that is
//! in them.

use std::io;
use std::ops::ControlFlow;

use holdfast_base::InodeNo;
use holdfast_format::item::{Dentry, FileType, InodeItem};
use holdfast_format::{ItemKind, Key};

use super::{BATCH, Level, Named, Walk};
use crate::items::{Event, Origin};
use crate::known::{Known, known};
use crate::point::Point;
use crate::report::Provenance;

/// Where they come to.
const DIRECTORY: &str = "lost+found";
/// Names that a file may get when one is taken.
const TRIES: u32 = 100;

/// Which files are looked at. What lies in a directory without a name is found there, by its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Those whose directory is not among them.
    Tops,
    /// Directories of which only names are left.
    Directories,
    /// All that is left: directories that lie in each other, content without an inode.
    Rest,
}

impl Walk<'_, '_, '_> {
    /// Copies what was not seen yet.
    pub(super) fn nameless(&mut self) -> io::Result<()> {
        let depth = self.stack.len();
        for round in [Round::Tops, Round::Directories, Round::Rest] {
            if !self.round(round)? {
                break;
            }
        }
        if self.stack.len() > depth {
            self.finish()?;
        }
        Ok(())
    }

    /// Looks at all files once. Whether some are left for the next round.
    fn round(&mut self, round: Round) -> io::Result<bool> {
        let mut from = Some(Point::inode(InodeNo::ROOT.0 + 1));
        let mut are_left = false;
        while let Some(at) = from {
            let mut numbers: Vec<u64> = Vec::new();
            let seen = &self.seen;
            let _ = self.items.visit(at, None, &mut |event| {
                if let Event::Item { key, .. } = event
                    && numbers.last() != Some(&key.inode.0)
                    && !seen.contains(key.inode.0)
                {
                    if numbers.len() == BATCH {
                        return ControlFlow::Break(());
                    }
                    numbers.push(key.inode.0);
                }
                ControlFlow::Continue(())
            });
            let is_full = numbers.len() == BATCH;
            from = numbers
                .last()
                .filter(|_| is_full)
                .and_then(|last| last.checked_add(1))
                .map(Point::inode);
            for number in numbers {
                if !self.seen.contains(number) {
                    are_left |= !self.take(InodeNo(number), round)?;
                }
            }
        }
        Ok(are_left)
    }

    /// Copies a file, unless it belongs to a later round. Whether that is done.
    fn take(&mut self, number: InodeNo, round: Round) -> io::Result<bool> {
        let known = known(&mut self.items, number);
        let file_type = match (known.file_type(), round) {
            // It was removed; what is left of it is being collected, or is of an older state.
            _ if known.inode.is_some_and(|inode| inode.nlink == 0) => return Ok(true),
            _ if known.inode.is_none() && !known.is_unknown && !self.has_later_names(number) => {
                return Ok(true);
            }
            (file_type, Round::Rest) => file_type.or_else(|| self.directory(number)),
            (Some(file_type), _) if known.inode.is_some() => {
                let is_inside =
                    known.inode.is_some_and(|inode| self.lies_in_unseen(number, &inode));
                if is_inside {
                    return Ok(false);
                }
                Some(file_type)
            }
            (_, Round::Tops) => return Ok(false),
            (None, Round::Directories) => match self.directory(number) {
                Some(directory) => Some(directory),
                None => return Ok(false),
            },
            (Some(_), Round::Directories) => return Ok(false),
        };
        if file_type.is_none() {
            // Attributes without a file.
            return Ok(true);
        }
        self.enter_lost_and_found()?;
        let depth = self.stack.len();
        for attempt in 0..TRIES {
            if self.place_nameless(number, file_type, attempt, &known)? {
                self.work(depth)?;
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn place_nameless(
        &mut self,
        number: InodeNo,
        file_type: Option<FileType>,
        attempt: u32,
        known: &Known,
    ) -> io::Result<bool> {
        let name = numbered(&format!("#{number}"), attempt);
        let named = Named {
            number,
            name: name.as_bytes(),
            file_type,
            is_name_lost: true,
            provenance: Provenance::default(),
        };
        self.place(named, known.clone())
    }

    /// A directory of which only names are left.
    fn directory(&mut self, number: InodeNo) -> Option<FileType> {
        let (low, end) =
            (Point::first(number, ItemKind::Dentry), Point::first(number, ItemKind::Xattr));
        let mut found = None;
        let _ = self.items.visit(low, Some(end), &mut |event| match event {
            Event::Item { .. } => {
                found = Some(FileType::Directory);
                ControlFlow::Break(())
            }
            Event::Gap(..) => ControlFlow::Continue(()),
        });
        found
    }

    /// Whether it is a directory of a batch that is lost, in which files were made behind that.
    fn has_later_names(&mut self, number: InodeNo) -> bool {
        let (low, end) =
            (Point::first(number, ItemKind::Dentry), Point::first(number, ItemKind::Xattr));
        let mut has_any = false;
        if self.reading.has_hole() {
            let _ = self.items.visit(low, Some(end), &mut |event| {
                has_any |= matches!(event, Event::Item { origin: Origin::LOG, .. });
                ControlFlow::Continue(())
            });
        }
        has_any
    }

    /// Whether a name in a directory that was not met itself leads to the file.
    fn lies_in_unseen(&mut self, number: InodeNo, inode: &InodeItem) -> bool {
        if inode.parent == number || inode.parent.0 == 0 || self.seen.contains(inode.parent.0) {
            return false;
        }
        let key = Key::new(inode.parent, ItemKind::Dentry, inode.parent_slot);
        let Ok(Some((value, _))) = self.items.get(&key) else { return false };
        Dentry::decode(&value).is_ok_and(|dentry| dentry.inode == number)
    }

    /// Makes the directory for them, unless that is done.
    fn enter_lost_and_found(&mut self) -> io::Result<()> {
        if self.stack.last().is_some_and(|level| level.number.is_none()) {
            return Ok(());
        }
        let mut last = io::ErrorKind::AlreadyExists.into();
        for attempt in 0..TRIES {
            let name = numbered(DIRECTORY, attempt);
            match self.out.enter(name.as_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
                Ok(()) => {
                    self.entered(name.as_bytes(), Level::made());
                    return Ok(());
                }
            }
        }
        Err(last)
    }
}

/// A name, or another one where it is taken.
fn numbered(name: &str, attempt: u32) -> String {
    match attempt {
        0 => name.to_string(),
        attempt => format!("{name}.{attempt}"),
    }
}
