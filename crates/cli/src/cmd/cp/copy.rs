//! Copies one thing after the other: a tree without recursion, holes as holes, attributes last.
//!
//! A failure is reported and counted, and the rest goes on. A directory gets its own attributes after everything in it,
//! so that filling it cannot disturb them.

use std::collections::HashMap;
use std::io::{self, IsTerminal};

use holdfast::FileType;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::side::{At, Failed, Found, Side};
use crate::outcome::sentence;

/// Bytes moved at once.
const CHUNK: usize = 1 << 20;

/// What the arguments ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) recursive: bool,
    pub(super) preserve: bool,
    pub(super) hard_links: bool,
    pub(super) quiet: bool,
}

/// Something left to do.
enum Todo {
    Copy {
        from: Side,
        to: Side,
        first: bool,
    },
    /// Everything in a directory is done.
    Finish {
        from: Side,
        to: Side,
        found: Found,
    },
}

pub(super) struct Copier {
    how: How,
    buffer: Vec<u8>,
    /// Files with more names, by id, and the first copy made of each.
    linked: HashMap<(u64, u64), Side>,
    progress: ProgressBar,
    files: u64,
    bytes: u64,
    failures: u64,
}

impl Copier {
    pub(super) fn new(how: How) -> Copier {
        let progress = ProgressBar::new_spinner();
        // indicatif hides itself where stderr is no terminal; said here once more because scripts rely on it.
        if how.quiet || !io::stderr().is_terminal() {
            progress.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Copier {
            how,
            buffer: vec![0; CHUNK],
            linked: HashMap::new(),
            progress,
            files: 0,
            bytes: 0,
            failures: 0,
        }
    }

    /// Copies `from` to the name `to`.
    pub(super) fn copy(&mut self, from: Side, to: Side) {
        let mut todo = vec![Todo::Copy { from, to, first: true }];
        while let Some(next) = todo.pop() {
            let done = match next {
                Todo::Copy { from, to, first } => self.one(&from, &to, first, &mut todo),
                Todo::Finish { from, to, found } => self.attributes(&from, &to, &found),
            };
            if let Err(Failed { what, error }) = done {
                self.failures += 1;
                let sentence = sentence(what, &error);
                self.progress.suspend(|| crate::outcome::complain(&sentence));
            }
        }
    }

    /// How many could not be copied.
    pub(super) fn finish(self) -> u64 {
        self.progress.finish_and_clear();
        self.failures
    }

    fn one(
        &mut self,
        from: &Side,
        to: &Side,
        first: bool,
        todo: &mut Vec<Todo>,
    ) -> Result<(), Failed> {
        // Named by the user, a link means what it leads to, unless a tree is copied; as with cp(1).
        let found = from.found(first && !self.how.recursive).at(from)?;
        if found.file_type == FileType::Directory {
            return self.directory(from, to, found, todo);
        }
        if self.how.hard_links && found.nlink > 1 {
            if let Some(copied) = self.linked.get(&found.id) {
                remove_old(to).at(to)?;
                return copied.hard_link(to).at(to);
            }
            self.linked.insert(found.id, to.clone());
        }
        match found.file_type {
            FileType::Regular => self.file(from, to, &found)?,
            FileType::Symlink => {
                remove_old(to).at(to)?;
                to.symlink(&from.read_link().at(from)?).at(to)?;
            }
            _ => {
                remove_old(to).at(to)?;
                to.node(&found).at(to)?;
            }
        }
        self.attributes(from, to, &found)?;
        self.files += 1;
        self.show();
        Ok(())
    }

    fn directory(
        &mut self,
        from: &Side,
        to: &Side,
        found: Found,
        todo: &mut Vec<Todo>,
    ) -> Result<(), Failed> {
        if !self.how.recursive {
            let why = "is a directory; -r copies it";
            return Err(io::Error::new(io::ErrorKind::IsADirectory, why)).at(from);
        }
        // Listed before it is made: a copy into itself does not find itself.
        let names = from.names().at(from)?;
        to.create_dir().at(to)?;
        todo.push(Todo::Finish { from: from.clone(), to: to.clone(), found });
        for name in names {
            todo.push(Todo::Copy { from: from.join(&name), to: to.join(&name), first: false });
        }
        Ok(())
    }

    fn file(&mut self, from: &Side, to: &Side, found: &Found) -> Result<(), Failed> {
        if let Ok(there) = to.found(true)
            && there.id == found.id
        {
            return Err(io::Error::other("is the same file as the destination")).at(from);
        }
        let source = from.open().at(from)?;
        let copy = to.create().at(to)?;
        let mut at = 0;
        let mut end = 0;
        while let Some((start, stop)) = source.data_after(at, found.len).at(from)? {
            at = start;
            while at < stop {
                let want = (stop - at).min(CHUNK as u64) as usize;
                let len = source.read_at(&mut self.buffer[..want], at).at(from)?;
                if len == 0 {
                    break;
                }
                copy.write_all_at(&self.buffer[..len], at).at(to)?;
                at += len as u64;
                end = at;
                self.bytes += len as u64;
                self.show();
            }
            if at < stop {
                break;
            }
        }
        if end < found.len {
            copy.set_len(found.len).at(to)?;
        }
        Ok(())
    }

    /// Owner before mode, because a change of owner clears set-id bits; times last.
    fn attributes(&mut self, from: &Side, to: &Side, found: &Found) -> Result<(), Failed> {
        let symlink = found.file_type == FileType::Symlink;
        if self.how.preserve {
            to.set_owner(found).at(to)?;
            if !symlink {
                for (name, value) in from.xattrs().at(from)? {
                    to.set_xattr(&name, &value).at(to)?;
                }
            }
        }
        if !symlink {
            to.set_mode(found.mode).at(to)?;
        }
        if self.how.preserve {
            to.set_times(found).at(to)?;
        }
        Ok(())
    }

    fn show(&self) {
        self.progress.tick();
        if !self.progress.is_hidden() {
            let (files, bytes) = (HumanCount(self.files), HumanBytes(self.bytes));
            self.progress.set_message(format!("{files} files, {bytes}"));
        }
    }
}

/// Makes room for something that cannot be written over.
fn remove_old(to: &Side) -> io::Result<()> {
    match to.remove_file() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
