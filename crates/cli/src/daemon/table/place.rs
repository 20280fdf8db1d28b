//! A place in the table, from the question for it until the mount is there.

use std::sync::Arc;

use super::{Entry, Event, Mounting, New, Table};

/// A place for a mount that is about to be. Given back when it is dropped.
#[derive(Debug)]
pub(in crate::daemon) struct Place {
    pub(super) table: Arc<Table>,
    pub(super) number: u64,
    pub(super) branch: Option<u64>,
    pub(super) is_used: bool,
}

impl Place {
    /// The mount is there. If the daemon ends meanwhile, it comes back, to be closed before the place is dropped.
    pub(in crate::daemon) fn fill(&mut self, new: New) -> Result<(), Box<New>> {
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

impl Drop for Place {
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
