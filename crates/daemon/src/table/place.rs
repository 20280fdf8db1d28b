//! A place in the table, from the question for it until the mount is there; and which mount gives way to which.
//!
//! A branch is mounted once. So that a user who may only read the volume keeps nobody from it who may write it, a mount of such a reader
//! gives way, and one that is only about to be as well.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{ActiveMounts, Entry, Event, Mounting, New, Table, Taken};

/// What a user may do to the volume who asks for a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Read it.
    Reader,
    /// Write it, or whatever the daemon's user may.
    Writer,
}

/// The user about to mount.
#[derive(Debug)]
pub(super) struct Joining {
    from: Option<UnixStream>,
    branch: Option<u64>,
    pub(super) asks: Asks,
}

impl Joining {
    /// It hears that it is over, and gives its place back.
    pub(super) fn end(&self) {
        if let Some(from) = &self.from {
            let _ = from.shutdown(Shutdown::Both);
        }
    }
}

/// A place for a mount that is about to be. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct MountSlot {
    table: Arc<Table>,
    number: u64,
    branch: Option<u64>,
    asks: Asks,
    is_used: bool,
}

impl Table {
    /// A place for a mount of this branch; `None` in place of a branch: of a snapshot. `from` is the caller. Waits while the
    /// branch is being closed. For a writer readers give way.
    pub(crate) fn place(
        self: &Arc<Self>,
        branch: Option<u64>,
        from: Option<UnixStream>,
        asks: Asks,
        patience: Duration,
    ) -> Result<MountSlot, Taken> {
        let is_writer = asks == Asks::Writer;
        let is_taken = |state: &ActiveMounts| {
            let is_it = |no| state.taken.contains(&no) || !is_writer && state.wanted.contains(&no);
            branch.is_some_and(is_it)
        };
        let wanted = branch.filter(|_| is_writer);
        self.lock().wanted.extend(wanted);
        let mut state = self.wait_while(patience, |state| {
            if let Some(branch) = wanted {
                self.have_readers_give_way(state, branch);
            }
            !state.is_ending && is_taken(state) && at(state, branch).is_none()
        });
        if let Some(it) = state.wanted.iter().position(|it| Some(*it) == wanted) {
            state.wanted.swap_remove(it);
        }
        if state.is_ending {
            return Err(Taken::Ending);
        }
        if is_taken(&state) {
            let at = at(&state, branch);
            return Err(at.map_or(Taken::Busy, |(dir, user)| Taken::At(dir, user)));
        }
        state.taken.extend(branch);
        let number = state.next;
        state.next += 1;
        state.joining.insert(number, Joining { from, branch, asks });
        drop(state);
        Ok(MountSlot { table: Arc::clone(self), number, branch, asks, is_used: false })
    }

    fn have_readers_give_way(&self, state: &mut ActiveMounts, branch: u64) {
        let is_it = |of: Option<u64>, asks| of == Some(branch) && asks == Asks::Reader;
        state.joining.values().filter(|it| is_it(it.branch, it.asks)).for_each(Joining::end);
        let mounts = state.mounts.iter_mut().filter(|(_, it)| is_it(it.branch, it.asks));
        for (number, entry) in mounts.filter(|(_, entry)| entry.session.is_some()) {
            if !std::mem::replace(&mut entry.gives_way, true) {
                self.tell(Event::GivesWay(*number));
            }
        }
    }
}

/// Where a branch is mounted and stays so, and the user.
fn at(state: &ActiveMounts, branch: Option<u64>) -> Option<(PathBuf, u32)> {
    let mut mounts = state.mounts.values();
    let found = mounts.find(|it| it.branch.is_some() && it.branch == branch)?;
    // One that was unmounted a moment ago is on its way out.
    let stays = found.is_connected() && !found.gives_way;
    stays.then(|| (found.dir.clone(), found.user))
}

impl MountSlot {
    /// The mount is there. If the daemon ends meanwhile, it comes back, to be closed before the place is dropped.
    pub(crate) fn fill(&mut self, new: New) -> Result<(), Box<New>> {
        let table = Arc::clone(&self.table);
        let number = self.number;
        let mut state = table.lock();
        if state.is_ending {
            return Err(Box::new(new));
        }
        let New { session, volume, mounting, keeping: _keeping, is_resumed } = new;
        let Mounting { dir, device, options, read_only, user } = mounting;
        let (remote, branch) = (session.remote(), self.branch);
        session.when_ended({
            let table = Arc::downgrade(&table);
            move || {
                if let Some(table) = table.upgrade() {
                    table.tell(Event::Ended(number));
                }
            }
        });
        let (session, volume) = (Some(session), Some(volume));
        let entry = Entry {
            session,
            volume,
            dir,
            device,
            options,
            read_only,
            user,
            remote,
            branch,
            asks: self.asks,
            gives_way: false,
            _keeping,
            is_resumed,
        };
        state.mounts.insert(number, entry);
        state.joining.remove(&number);
        self.is_used = true;
        drop(state);
        table.changed.notify_all();
        Ok(())
    }
}

impl Drop for MountSlot {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        let mut state = self.table.lock();
        state.joining.remove(&self.number);
        if let Some(branch) = self.branch {
            state.taken.remove(&branch);
        }
        drop(state);
        self.table.changed.notify_all();
        self.table.tell(Event::Look);
    }
}
