//! Work that the daemon does for commands: on whole trees, so much at a time, and answers about branches, on the threads of the callers.
//!
//! ```text
//! caller ── Work (with a descriptor of the volume) ──▶ judged, named ──▶ a thread
//!        ◀── Begins: frames follow ──
//!        ◀── Pages: what is mounted of it ──
//!        ── Go: the kernel has handed over what programs have in memory ──▶ carry_out
//!        ◀── bytes, notes, progress, the end ──▶
//!        ◀── and once more Pages, Go, before a branch becomes another one ──▶
//! ```
//! Work needs no mount: it looks at what is pinned, and changes forks of its own. So it goes on when a mount ends beside others. When
//! the daemon ends, work is told to: what waits for a pipe wakes up, and the volume is closed behind the last of it.

mod command_stream;
mod works;

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast::{FileSystem, NewHead, Told, Volume, VolumeOptions};
use holdfast_base::Changed;
use holdfast_control::NotText;
use holdfast_fuse::Remote;
use holdfast_service::branches::answer::{PART, Refusal};
use holdfast_service::branches::not_forgotten;
use holdfast_service::rights::judge;
use holdfast_service::work::{At, Heads, InPlace, Job, Remembers, Tree, Work, carry_out};

use self::command_stream::{CommandStream, ENDED};
pub(crate) use self::works::Works;
use holdfast_control::{Ask, Name, Reply};
use holdfast_service::outcome::{Context, Failure, Outcome};

use super::{CLOSING, Host, No, PATIENCE};
use crate::callers::Then;
use crate::commands;
use crate::control_socket::message::{self, DaemonAnswer};
use crate::supervisor_link::Changing;
use crate::table::{Entry, Table};

/// The numbers of a branch, and of a snapshot of it.
type Numbers = (u64, Option<u64>);

/// How long a caller gets to have the kernel hand over pages of mapped files, before its work begins.
const BEGINS: Duration = Duration::from_secs(120);
/// What a caller hears whose mount is of another daemon: what that says of its source proves nothing.
const NOT_SERVED: &str = "the daemon of the volume does not serve that mount";
/// Bytes of written data that a fork which is filled may have in memory, if no mount has fewer.
const DIRTY_BYTES: u64 = 64 << 20;

/// Prepares work for a caller. The answer starts it, on a thread of its own, which has the connection from then on.
///
/// # Errors
/// The caller may not have it done.
pub(super) fn prepare(
    host: &Arc<Host>,
    user: u32,
    mut job: Job,
    descriptors: Vec<OwnedFd>,
) -> Result<Then, No> {
    if !host.table.is_serving(CLOSING) {
        return Err(No::Ending);
    }
    let may_write = descriptors.first().and_then(|proof| host.id.proven_by(proof));
    drop(descriptors);
    judge(job.work.needs(), may_write, host.options.read_only)?;
    if let Some(at) = &job.at
        && host.mounted_at(at).is_none()
    {
        return Err(NOT_SERVED.into());
    }
    let mut mounted = Vec::new();
    let mut door = None;
    for tree in job.work.trees() {
        host.name(tree)?;
        let numbers = host.numbers(tree)?;
        mounted.extend(host.mount_of(numbers));
        door.get_or_insert(numbers);
    }
    let door = door.map_or_else(|| host.numbers(&Tree::default()), Ok)?;
    let is_question = matches!(job.work, Work::Lineage { .. });
    if let Work::Lineage { ask, .. } = &mut job.work {
        if !ask.wants_pages() {
            mounted.clear();
        }
        ask.or_of(door.0, door.1);
    }
    let place = host.works.begin(user, is_question)?;
    let host = Arc::clone(host);
    let work = move |stream: UnixStream| {
        if let Ok(command_stream) = host.agree(stream, &mounted, &place) {
            let outcome = host.work(&job, door, &command_stream);
            command_stream.end(outcome);
        }
    };
    if is_question {
        return Ok(Box::new(work));
    }
    Ok(Box::new(move |stream| {
        let answered = stream.try_clone();
        let started = holdfast_sync::start("work", move || work(stream));
        if let (Err(error), Ok(caller)) = (started, answered) {
            let why = format!("the system gives no thread for it ({error}); try again later");
            let _ = message::send(&caller, &DaemonAnswer::Refused { why }, &[], PATIENCE);
        }
    }))
}

impl Host {
    /// Says what a mount shows by names.
    fn name(&self, tree: &mut Tree) -> Result<(), No> {
        let Some(at) = tree.at.take() else { return Ok(()) };
        let engine = self.mounted_at(&at).ok_or(NOT_SERVED)?;
        if tree.branch.is_some() {
            return Ok(());
        }
        let named = engine.branch_name().and_then(|branch| Ok((branch, engine.snapshot_name()?)));
        let (branch, snapshot) = named.map_err(|error| No::Refused(error.to_string()))?;
        tree.branch = Some(Name(branch));
        if tree.snapshot.is_none() {
            tree.snapshot = snapshot.map(Name);
        }
        Ok(())
    }

    fn mounted_at(&self, at: &At) -> Option<Arc<FileSystem>> {
        let state = self.table.lock();
        let is_it = |entry: &&Entry| entry.device.as_deref() == Some(at.device.as_str());
        let mut found: Vec<&Entry> = state.mounts.values().filter(is_it).collect();
        // A bind mount is at another directory; a joining mount says the device itself.
        if found.len() > 1 {
            found.retain(|entry| entry.dir.as_os_str().as_bytes() == at.dir.0);
        }
        match &found[..] {
            [one] => one.volume.as_ref()?.engine().ok(),
            _ => None,
        }
    }

    /// Where a branch is mounted, if it is one and no snapshot.
    fn mount_of(&self, (branch, snapshot): Numbers) -> Option<At> {
        let state = self.table.lock();
        let is_it = |entry: &&Entry| snapshot.is_none() && entry.branch == Some(branch);
        let entry = state.mounts.values().find(is_it)?;
        Some(At {
            dir: Name(entry.dir.as_os_str().as_bytes().into()),
            device: entry.device.clone()?,
        })
    }

    /// The numbers of a tree.
    fn numbers(&self, tree: &Tree) -> Result<Numbers, No> {
        let refused = |error: NotText| No::Refused(error.to_string());
        let mut options = VolumeOptions::new();
        if let Some(branch) = &tree.branch {
            options = options.branch(branch.utf8().map_err(refused)?);
        }
        if let Some(snapshot) = &tree.snapshot {
            options = options.snapshot(snapshot.utf8().map_err(refused)?);
        }
        self.open_volume(|kept| kept.find(&options))
    }

    /// Has the caller bring pages of mapped files into what is mounted.
    ///
    /// # Errors
    /// It is gone, the daemon ends, or [`BEGINS`] is over.
    fn agree(
        &self,
        stream: UnixStream,
        mounted: &[At],
        place: &works::WorkSlot,
    ) -> io::Result<Arc<CommandStream>> {
        message::send(&stream, &DaemonAnswer::Begins, &[], PATIENCE)?;
        // No door is in between any more.
        let command_stream = CommandStream::new(stream, self.works.stop(), place.patience())?;
        command_stream.begin(mounted, BEGINS)?;
        Ok(Arc::new(command_stream))
    }

    fn work(
        self: &Arc<Self>,
        job: &Job,
        door: Numbers,
        command_stream: &Arc<CommandStream>,
    ) -> Outcome {
        let door = self.open(door, &job.work).map_err(|no| match no {
            No::Refused(why) => Failure::plain(format!("{}: {why}", job.volume)),
            No::Ending => Failure::plain(ENDED),
        })?;
        let not_yet = Arc::<AtomicBool>::default();
        let (host, told) = (Arc::clone(self), Arc::clone(&not_yet));
        let command = Arc::downgrade(command_stream);
        door.promote_by(move |fs, branch, fork, keep, unchanged| {
            // What programs have stored into mappings until now is of the branch as it was: it has changed by that, and what is kept
            // of it has that. Behind the new head it would be lost without a word.
            if let Some(at) = host.mount_of((branch, None)) {
                let command = command.upgrade().ok_or(io::ErrorKind::ConnectionAborted)?;
                command.hand_over_pages(&[at])?;
            }
            let head = NewHead::Fork { fork: fork.into(), keep, unchanged };
            let known = promote(&host.table, fs, branch, head).map_err(|no| {
                let kind = if no.has_diverged() { ErrorKind::WouldBlock } else { ErrorKind::Other };
                io::Error::new(kind, no.why())
            })?;
            told.fetch_or(known == Told::NotYet, Ordering::Relaxed);
            Ok(())
        });
        let done = {
            let name = &job.volume;
            let heads = Served { host: self, door: &door, name, changing: RefCell::default() };
            carry_out(job, &door, &heads, &**command_stream)
        };
        let closed = door.close();
        let code = done?;
        closed.context(&job.volume)?;
        match not_yet.load(Ordering::Relaxed) {
            true => Err(not_forgotten("all has come")),
            false => Ok(code),
        }
    }

    /// What the library is reached by. Work that is about no tree looks at what the volume was made with.
    fn open(&self, numbers: Numbers, work: &Work) -> Result<Volume, No> {
        let dirty = self.options.dirty_bytes.map_or(DIRTY_BYTES, |bytes| bytes.min(DIRTY_BYTES));
        let options = self.options.volume().dirty_bytes(dirty as usize);
        self.open_volume(|kept| match work {
            // It may last for days: a moment of a branch would keep what is removed meanwhile. Or it needs no moment.
            Work::Scrub(_) | Work::Lineage { .. } => kept.door(&options),
            _ => kept.view(numbers, &options),
        })
    }
}

/// The mount of a branch that work changes, whose kernel hears of that.
#[derive(Debug)]
struct Kernel(Remote);

impl Remembers for Kernel {
    fn forget(&self, changed: Vec<Changed>) {
        self.0.forget(changed);
    }

    fn has_forgotten(&self, patience: Duration) -> bool {
        self.0.has_forgotten(patience)
    }
}

/// Branches of a volume that a daemon serves.
struct Served<'a> {
    host: &'a Host,
    door: &'a Volume,
    name: &'a str,
    /// What is changed under its kernel. All else of a volume the next process finds as this one does.
    changing: RefCell<Option<Changing>>,
}

impl Heads for Served<'_> {
    fn in_place(&self, tree: &Tree) -> Result<InPlace, Failure> {
        tree.expect_branch(self.name)?;
        let branch = tree.branch(self.door, self.name)?;
        // One that is just being mounted or unmounted is not for long.
        self.host.table.wait_until_settled(branch.number(), CLOSING);
        match self.host.table.open_at(branch.number()) {
            Some((_, _, true)) => {
                let dir = format!("{}: {} is mounted read-only", self.name, branch.name());
                Err(Failure::plain(dir))
            }
            Some((root, mount, false)) => {
                self.changing.replace(self.host.table.changing());
                Ok(InPlace::of(root, Some(Box::new(Kernel(mount)))))
            }
            None => Ok(InPlace::own(branch.open().context(self.name)?)),
        }
    }

    fn answer(&self, ask: &Ask) -> Result<Reply, Failure> {
        let fs = self.door.engine().context(self.name)?;
        Ok(commands::carry_out(&Arc::downgrade(&self.host.table), &fs, PART, ask))
    }
}

/// Has a branch become what a fork is: by the mount that has it, whose kernel hears of that.
fn promote(
    table: &Table,
    fs: &FileSystem,
    branch: u64,
    head: NewHead<'_>,
) -> Result<Told, Refusal> {
    // One that is just being mounted or unmounted is not for long.
    table.wait_until_settled(branch, CLOSING);
    let unmounted = || Ok(head.give(fs, branch).map(|()| Told::All)?);
    table.give_head(branch, head, unmounted)
}
