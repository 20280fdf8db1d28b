//! Copies one thing after the other: a tree without recursion, holes as holes, attributes last.
//!
//! A failure is reported and counted, and the rest goes on. A file has no name before it is whole, so a copy that is ended in the middle
//! leaves whole files only. A directory gets its own attributes after everything in it, so that filling it cannot disturb them.

use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal};

use holdfast::FileType;
use holdfast_base::user_namespace::maker;
use holdfast_service::work::files::message::Attributes;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::endpoint::{At, Copied, Directory, Endpoint, Failed, Reading, Writing};
use crate::host_tree::{self, EntryStat, Id};
use crate::outcome::{plain_words, sentence, words_of_volume};

/// What the arguments ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpOptions {
    pub(super) recursive: bool,
    pub(super) preserve: bool,
    pub(super) hard_links: bool,
    pub(super) quiet: bool,
    /// Each file is durable before the next.
    pub(super) sync: bool,
}

/// What the user has named, and not only something above it: a link means what it leads to.
#[derive(Clone, Copy, Debug, Default)]
struct Named {
    source: bool,
    destination: bool,
}

/// Something left to do.
enum Todo {
    Copy {
        from: Endpoint,
        to: Endpoint,
        named: Named,
    },
    /// Everything in a directory is done.
    Finish(Box<Entered>),
}

/// A directory that is copied.
struct Entered {
    from: (Endpoint, Directory),
    to: (Endpoint, Directory),
    seen: EntryStat,
    /// It was there before.
    was_there: bool,
}

pub(super) struct Copier {
    how: CpOptions,
    buffer: Vec<u8>,
    /// Files with more names, by id, and the first copy made of each.
    linked: HashMap<Id, (Endpoint, Option<Id>)>,
    /// The directories that the one that is copied lies in: a damaged volume may have one that lies in itself.
    within: HashSet<Id>,
    /// Whose a copy is that does not keep its owner.
    user: (u32, u32),
    progress: ProgressBar,
    files: u64,
    bytes: u64,
    failures: u64,
}

impl Copier {
    pub(super) fn new(how: CpOptions) -> Copier {
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
            within: HashSet::new(),
            user: maker(),
            progress,
            files: 0,
            bytes: 0,
            failures: 0,
        }
    }

    /// Copies `from` to the name `to`, which the user has named, or a directory in which it is.
    pub(super) fn copy(&mut self, from: Endpoint, to: Endpoint, is_named: bool) {
        let named = Named { source: true, destination: is_named };
        let mut todo = vec![Todo::Copy { from, to, named }];
        while let Some(next) = todo.pop() {
            let done = match next {
                Todo::Copy { from, to, named } => self.one(&from, &to, named, &mut todo),
                Todo::Finish(entered) => self.leave(&entered),
            };
            self.tell(done);
        }
    }

    /// Says what has failed, and counts it.
    pub(super) fn tell(&mut self, done: Result<(), Failed>) {
        if let Err(Failed { what, error }) = done {
            self.failures += 1;
            let sentence = match &what {
                Endpoint::Volume(..) => format!("{what}: {}", words_of_volume(&error)),
                Endpoint::Host(_) => sentence(what, &error),
            };
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
        from: &Endpoint,
        to: &Endpoint,
        named: Named,
        todo: &mut Vec<Todo>,
    ) -> Result<(), Failed> {
        // Named by the user, a link means what it leads to, unless a tree is copied; as with cp(1).
        let follow = named.source && !self.how.recursive;
        let seen = from.look(follow).at(from)?;
        let file_type = seen.found.file_type().at(from)?;
        if file_type == FileType::Directory {
            return self.directory(from, to, &seen, named, todo);
        }
        let mut linked = None;
        if self.how.hard_links && seen.found.nlink > 1 {
            if let Some(copied) = self.linked.get(&seen.id) {
                return to.hard_link(copied).at(to);
            }
            linked = Some(seen.id);
        }
        let copied = match file_type {
            FileType::Regular => self.file(from, to, (&seen, follow), named)?,
            // As with cp(1): named alone, it stands for what it gives.
            _ if follow => {
                self.refuse_itself(from, to, &seen, named)?;
                let input = from.stream(&seen).at(from)?;
                self.take(input, from, to, named.destination)?
            }
            _ => self.other(from, to, &seen)?,
        };
        // Only what is there gets more names.
        if let Some(id) = linked {
            self.linked.insert(id, (to.clone(), copied.id));
        }
        self.files += 1;
        self.show();
        self.tell_left_out(to, &copied.left_out);
        Ok(())
    }

    /// Says once what a copy does not have. Without `preserve` nothing was asked for.
    fn tell_left_out(&mut self, to: &Endpoint, left_out: &[String]) {
        let missed = left_out.iter().filter(|name| host_tree::is_missed(name));
        let left_out: Vec<String> = missed.cloned().collect();
        if self.how.preserve && !left_out.is_empty() {
            self.tell(Err(holdfast_service::outcome::left_out(&left_out)).at(to));
        }
    }

    fn directory(
        &mut self,
        from: &Endpoint,
        to: &Endpoint,
        seen: &EntryStat,
        named: Named,
        todo: &mut Vec<Todo>,
    ) -> Result<(), Failed> {
        let refused = |kind, why| Err(io::Error::new(kind, why)).at(from);
        if !self.how.recursive {
            return refused(io::ErrorKind::IsADirectory, "is a directory; -r copies it".into());
        }
        if named.source && to.lies_in(seen.id) {
            let why = format!("cannot be copied into itself, to {to}");
            return refused(io::ErrorKind::InvalidInput, why);
        }
        if matches!(from, Endpoint::Volume(..)) && self.within.contains(&seen.id) {
            let why = "is a directory that lies in itself: the volume is damaged";
            return refused(io::ErrorKind::InvalidData, why.into());
        }
        let source = from.enter(seen, false).at(from)?;
        let names = source.names().at(from)?;
        let (copy, was_there) = to.make_directory(named.destination).at(to)?;
        self.within.insert(seen.id);
        let (from, to) = ((from.clone(), source.clone()), (to.clone(), copy.clone()));
        todo.push(Todo::Finish(Box::new(Entered { from, to, seen: *seen, was_there })));
        let inside = names.iter().map(|name| (source.join(name), copy.join(name)));
        let named = Named::default();
        todo.extend(inside.map(|(from, to)| Todo::Copy { from, to, named }));
        Ok(())
    }

    /// All in a directory is done. What was there before keeps what it has, unless it is to be preserved; as with cp(1).
    fn leave(&mut self, entered: &Entered) -> Result<(), Failed> {
        let Entered { from: (from, source), to: (to, copy), seen, was_there } = entered;
        self.within.remove(&seen.id);
        if !was_there || self.how.preserve {
            let attributes = self.attributes_of(from, seen, || source.xattrs());
            let left_out = copy.set(attributes).at(to)?;
            self.tell_left_out(to, &left_out);
        }
        copy.expect_in_place().at(to)
    }

    /// A link, or in a tree a pipe, a socket or a device.
    fn other(
        &mut self,
        from: &Endpoint,
        to: &Endpoint,
        seen: &EntryStat,
    ) -> Result<Copied, Failed> {
        let (source, seen) = from.open(seen, false).at(from)?;
        let attributes = self.attributes_of(from, &seen, || source.xattrs());
        if seen.found.file_type().at(from)? != FileType::Symlink {
            return to.node(&seen, attributes).at(to);
        }
        let target = source.target().at(from)?;
        to.symlink(&target, Attributes { mode: None, ..attributes }).at(to)
    }

    fn file(
        &mut self,
        from: &Endpoint,
        to: &Endpoint,
        (seen, follow): (&EntryStat, bool),
        named: Named,
    ) -> Result<Copied, Failed> {
        self.refuse_itself(from, to, seen, named)?;
        let (source, seen) = from.open(seen, follow).at(from)?;
        let len = seen.found.len;
        // Nothing in a tree is written through links that are there.
        let mut copy = to.begin(named.destination).at(to)?;
        let mut at = 0;
        while let Some((start, stop)) = source.data_after(at, len).at(from)? {
            at = self.bytes((&source, from), (&mut copy, to), start, stop)?;
            if at < stop {
                break;
            }
        }
        if len == 0 {
            at = self.bytes((&source, from), (&mut copy, to), at, source.end(len))?;
        }
        let attributes = self.attributes_of(from, &seen, || source.xattrs());
        copy.end(len.max(at), attributes, self.how.sync).at(to)
    }

    /// Copies bytes from `at` on. Returns where they end: at `stop`, or where the source has no more.
    fn bytes(
        &mut self,
        (source, from): (&Reading, &Endpoint),
        (copy, to): (&mut Writing, &Endpoint),
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

    fn refuse_itself(
        &self,
        from: &Endpoint,
        to: &Endpoint,
        seen: &EntryStat,
        named: Named,
    ) -> Result<(), Failed> {
        if to.look(named.source).is_ok_and(|there| there.id == seen.id) {
            return Err(io::Error::other("is the same file as the destination")).at(from);
        }
        Ok(())
    }

    /// What a copy gets. Attributes that cannot be read are told, and it comes without them.
    fn attributes_of(
        &mut self,
        from: &Endpoint,
        seen: &EntryStat,
        xattrs: impl FnOnce() -> io::Result<Vec<(Vec<u8>, Vec<u8>)>>,
    ) -> Attributes {
        let found = &seen.found;
        let mode = Some(found.perm());
        if !self.how.preserve {
            // A program of another user's must not become one that runs as this user.
            let mode = mode.map(|mode| mode & 0o1777);
            return Attributes { mode, owner: Some(self.user), ..Attributes::default() };
        }
        let xattrs = xattrs().unwrap_or_else(|error| {
            let words = plain_words(&error);
            let why = format!("is copied without its extended attributes: {words}");
            self.tell(Err(io::Error::new(error.kind(), why)).at(from));
            Vec::new()
        });
        let times = Some((found.accessed, found.modified));
        Attributes { mode, owner: Some((found.uid, found.gid)), times, xattrs }
    }

    fn show(&self) {
        self.progress.tick();
        if !self.progress.is_hidden() {
            let (files, bytes) = (HumanCount(self.files), HumanBytes(self.bytes));
            self.progress.set_message(format!("{files} files, {bytes}"));
        }
    }
}
