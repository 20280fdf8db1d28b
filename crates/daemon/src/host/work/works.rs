//! How much work is under way, and its end.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::super::No;
use crate::callers::is_trusted;

/// Work that goes on at a time; that of all users who are neither root nor that of the daemon; and that of one of them.
const MOST: usize = 32;
const MOST_OF_STRANGERS: usize = 16;
const MOST_OF_ONE: usize = 4;
/// How long such a user's command may take and send nothing: what it looks at keeps its space meanwhile.
const PATIENCE_WITH_STRANGERS: Duration = Duration::from_secs(600);

/// All work of a daemon.
#[derive(Debug)]
pub(crate) struct Works {
    state: Mutex<RunningWork>,
    changed: Condvar,
    /// Work looks at the first; it can be read when the second is shut down.
    stop: (Arc<UnixStream>, UnixStream),
}

#[derive(Debug, Default)]
struct RunningWork {
    /// By user.
    running: HashMap<u32, usize>,
    /// Questions, of which the callers of a daemon are the limit.
    questions: usize,
    /// None is begun any more.
    is_over: bool,
}

impl RunningWork {
    /// How much of it is of strangers.
    fn of_strangers(&self) -> usize {
        self.running.iter().filter(|(user, _)| !is_trusted(**user)).map(|(_, own)| own).sum()
    }
}

/// A place for work. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct WorkSlot {
    works: Arc<Works>,
    user: u32,
    is_question: bool,
}

impl Works {
    /// None is under way.
    ///
    /// # Errors
    /// There are too many open files.
    pub(crate) fn new() -> io::Result<Arc<Works>> {
        let (stop, stopper) = UnixStream::pair()?;
        let stop = (Arc::new(stop), stopper);
        Ok(Arc::new(Works { state: Mutex::default(), changed: Condvar::new(), stop }))
    }

    /// What can be read when work is to end.
    pub(super) fn stop(&self) -> Arc<UnixStream> {
        Arc::clone(&self.stop.0)
    }

    /// A place for work of this user, or for a question, which always has one.
    pub(super) fn begin(self: &Arc<Self>, user: u32, is_question: bool) -> Result<WorkSlot, No> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(No::Ending);
        }
        if is_question {
            state.questions += 1;
            return Ok(WorkSlot { works: Arc::clone(self), user, is_question });
        }
        let own = state.running.get(&user).copied().unwrap_or_default();
        let all = state.running.values().sum::<usize>();
        let is_full = match is_trusted(user) {
            true => all >= MOST,
            false => own >= MOST_OF_ONE || state.of_strangers() >= MOST_OF_STRANGERS || all >= MOST,
        };
        if is_full {
            return Err(No::Refused(format!(
                "the daemon is at work for {all} commands already ({own} of yours); try again when one has ended"
            )));
        }
        *state.running.entry(user).or_default() += 1;
        drop(state);
        Ok(WorkSlot { works: Arc::clone(self), user, is_question })
    }

    /// Has all work end, and waits for that.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let _ = self.stop.1.shutdown(Shutdown::Both);
        let is_busy = |state: &mut RunningWork| !state.running.is_empty() || state.questions > 0;
        self.changed.wait_while(&mut state, is_busy);
    }
}

impl WorkSlot {
    /// How long its command may take and send nothing; `None`: for ever.
    pub(super) fn patience(&self) -> Option<Duration> {
        (!is_trusted(self.user)).then_some(PATIENCE_WITH_STRANGERS)
    }
}

impl Drop for WorkSlot {
    fn drop(&mut self) {
        let mut state = self.works.state.lock();
        if self.is_question {
            state.questions -= 1;
        } else if let Some(own) = state.running.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                state.running.remove(&self.user);
            }
        }
        drop(state);
        self.works.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_gets_some_places_and_never_all_and_none_comes_behind_the_end() {
        let works = &Works::new().unwrap();
        let stranger = rustix::process::geteuid().as_raw() + 4711;
        let mut places: Vec<WorkSlot> =
            (0..MOST_OF_ONE).map(|_| works.begin(stranger, false).map_err(drop).unwrap()).collect();
        assert!(matches!(works.begin(stranger, false), Err(No::Refused(_))));
        places.pop();
        places.push(works.begin(stranger, false).map_err(drop).unwrap());
        let other = works.begin(stranger + 1, false).map_err(drop).unwrap();
        // However many they are.
        let more =
            |user| std::iter::from_fn(move || works.begin(user, false).ok()).collect::<Vec<_>>();
        let others: Vec<WorkSlot> = (stranger + 2..stranger + 20).flat_map(&more).collect();
        assert_eq!(others.len(), MOST_OF_STRANGERS - MOST_OF_ONE - 1);
        assert!(others.iter().all(|place| place.patience().is_some()));
        let root = more(0);
        assert_eq!(root.len(), MOST - MOST_OF_STRANGERS);
        assert!(root.iter().all(|place| place.patience().is_none()));
        // A question is none of them.
        let question = works.begin(stranger, true).map_err(drop).unwrap();
        let ends = Arc::clone(works);
        let ending = std::thread::spawn(move || ends.end());
        // It wakes the waiters, and waits for them.
        let mut byte = [0];
        assert_eq!(io::Read::read(&mut &*works.stop(), &mut byte).unwrap(), 0);
        assert!(matches!(works.begin(0, false), Err(No::Ending)));
        drop((places, others, root));
        assert!(!ending.is_finished());
        drop(other);
        assert!(!ending.is_finished());
        drop(question);
        ending.join().unwrap();
    }
}
