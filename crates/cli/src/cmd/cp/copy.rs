//! Copies one thing after the other: a tree without recursion, holes as holes, attributes last.
//!
//! A failure is reported and counted, and the rest goes on. A file has no name before it is whole, so a copy that is ended in the middle
//! leaves whole files only. A directory gets its own attributes after everything in it, so that filling it cannot disturb them.

use std::collections::HashMap;
use std::io::{self, IsTerminal};

use holdfast::FileType;
use holdfast_base::attribute::RECEIVED;
use holdfast_base::user_namespace::maker;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::host;
use super::side::{At, Failed, Reading, Side, Writing};
use crate::outcome::sentence;
use crate::work::files::message::{Attributes, Found};

/// What the arguments ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) recursive: bool,
    pub(super) preserve: bool,
    pub(super) hard_links: bool,
    pub(super) quiet: bool,
    /// Each file is durable before the next.
    pub(super) sync: bool,
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
    /// Whose a copy is that does not keep its owner.
    user: (u32, u32),
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
            buffer: Vec::new(),
            linked: HashMap::new(),
            user: maker(),
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
            self.tell(done);
        }
    }

    /// Says what has failed, and counts it.
    pub(super) fn tell(&mut self, done: Result<(), Failed>) {
        if let Err(Failed { what, error }) = done {
            self.failures += 1;
            let sentence = sentence(what, &error);
            self.progress.suspend(|| crate::outcome::complain(&sentence));
        }
    }

    /// So many bytes more are copied.
    pub(super) fn copied(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.show();
    }

    /// Whose a copy is that has no owner to keep.
    pub(super) fn user(&self) -> (u32, u32) {
        self.user
    }

    /// Whether each file is durable before the next.
    pub(super) fn is_synchronous(&self) -> bool {
        self.how.sync
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
        let file_type = found.file_type().at(from)?;
        if file_type == FileType::Directory {
            return self.directory(from, to, found, first, todo);
        }
        let mut linked = None;
        if self.how.hard_links && found.nlink > 1 {
            let id = from.id(&found).at(from)?;
            if let Some(copied) = self.linked.get(&id) {
                return copied.hard_link(to).at(to);
            }
            linked = Some(id);
        }
        match file_type {
            FileType::Regular => self.file(from, to, &found, first)?,
            FileType::Symlink => {
                let target = from.read_link().at(from)?;
                let attributes = Attributes { mode: None, ..self.attributes_of(from, &found)? };
                to.symlink(&target, attributes).at(to)?;
            }
            // As with cp(1): named alone, it stands for what it gives.
            _ if first && !self.how.recursive => {
                self.refuse_itself(from, to, &found)?;
                let input = from.stream(file_type)?;
                self.take(input, from, to)?;
            }
            _ => to.node(&found, self.attributes_of(from, &found)?).at(to)?,
        }
        // Only what is there gets more names.
        if let Some(id) = linked {
            self.linked.insert(id, to.clone());
        }
        self.files += 1;
        self.show();
        Ok(())
    }

    fn directory(
        &mut self,
        from: &Side,
        to: &Side,
        found: Found,
        first: bool,
        todo: &mut Vec<Todo>,
    ) -> Result<(), Failed> {
        if !self.how.recursive {
            let why = "is a directory; -r copies it";
            return Err(io::Error::new(io::ErrorKind::IsADirectory, why)).at(from);
        }
        if first && lies_in(to, &from.id(&found).at(from)?) {
            let why = format!("cannot be copied into itself, to {to}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why)).at(from);
        }
        let names = from.names().at(from)?;
        to.create_dir(first).at(to)?;
        todo.push(Todo::Finish { from: from.clone(), to: to.clone(), found });
        for name in names {
            todo.push(Todo::Copy { from: from.join(&name), to: to.join(&name), first: false });
        }
        Ok(())
    }

    fn file(&mut self, from: &Side, to: &Side, found: &Found, first: bool) -> Result<(), Failed> {
        self.refuse_itself(from, to, found)?;
        let source = from.open().at(from)?;
        // Nothing in a tree is written through links that are there.
        let mut copy = to.begin(first).at(to)?;
        let mut at = 0;
        while let Some((start, stop)) = source.data_after(at, found.len).at(from)? {
            at = self.bytes((&source, from), (&mut copy, to), start, stop)?;
            if at < stop {
                break;
            }
        }
        if found.len == 0 {
            at = self.bytes((&source, from), (&mut copy, to), at, from.end(found))?;
        }
        let attributes = self.attributes_of(from, found)?;
        copy.end(found.len.max(at), attributes, self.how.sync).at(to)
    }

    /// Copies bytes from `at` on. Returns where they end: at `stop`, or where the source has no more.
    fn bytes(
        &mut self,
        (source, from): (&Reading, &Side),
        (copy, to): (&mut Writing, &Side),
        mut at: u64,
        stop: u64,
    ) -> Result<u64, Failed> {
        while at < stop {
            source.read_at(&mut self.buffer, at, stop - at).at(from)?;
            if self.buffer.is_empty() {
                break;
            }
            copy.write_all_at(&self.buffer, at).at(to)?;
            let len = self.buffer.len() as u64;
            // No file ends behind that.
            at = at.saturating_add(len);
            self.copied(len);
        }
        Ok(at)
    }

    fn refuse_itself(&self, from: &Side, to: &Side, found: &Found) -> Result<(), Failed> {
        if let Ok(there) = to.found(true)
            && to.id(&there).at(to)? == from.id(found).at(from)?
        {
            return Err(io::Error::other("is the same file as the destination")).at(from);
        }
        Ok(())
    }

    /// What a copy of this file gets.
    fn attributes_of(&self, from: &Side, found: &Found) -> Result<Attributes, Failed> {
        let mode = Some(found.perm());
        if !self.how.preserve {
            // A program of another user's must not become one that runs as this user.
            let mode = mode.map(|mode| mode & 0o1777);
            return Ok(Attributes { mode, owner: Some(self.user), ..Attributes::default() });
        }
        let mut xattrs = from.xattrs().at(from)?;
        // Where a snapshot comes from is said of the snapshot, not of its files.
        xattrs.retain(|(name, _)| name != RECEIVED);
        let times = Some((found.accessed, found.modified));
        Ok(Attributes { mode, owner: Some((found.uid, found.gid)), times, xattrs })
    }

    fn attributes(&mut self, from: &Side, to: &Side, found: &Found) -> Result<(), Failed> {
        to.set_attributes(self.attributes_of(from, found)?).at(to)
    }

    fn show(&self) {
        self.progress.tick();
        if !self.progress.is_hidden() {
            let (files, bytes) = (HumanCount(self.files), HumanBytes(self.bytes));
            self.progress.set_message(format!("{files} files, {bytes}"));
        }
    }
}

/// Whether a path is a directory, or lies below one, even where not all of it is there yet.
fn lies_in(to: &Side, dir: &(u64, u64)) -> bool {
    let above: Vec<Side> = match to {
        Side::Host(path) => host::above(path).into_iter().map(Side::Host).collect(),
        Side::Volume(_, path) => {
            path.ancestors().skip(1).map(|path| to.with_path(path.into())).collect()
        }
    };
    above.iter().chain([to]).any(|at| {
        let found = at.found(true);
        found.and_then(|found| at.id(&found)).is_ok_and(|id| id == *dir)
    })
}
