//! Callers at the control socket of a daemon: how many are answered at once, and which wait.
//!
//! Each user has places of its own, so none can take those of others: root and the user of the daemon have theirs, all other users
//! share some, of which one user gets a part. A caller without one waits, without a thread. What a stranger says comes through a
//! process of its own ([`door`]), of which each user gets so many in a second.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_device::HostFile;
use parking_lot::Mutex;
use rustix::process::geteuid;

use crate::control_socket::ControlSocket;
use crate::control_socket::connect::{Peer, peer};
use crate::descriptor_filter;

/// Callers that are answered at once: of root, and of the user of the daemon; of another user; of all others together.
const OF_TRUSTED: usize = 64;
const OF_ONE: usize = 16;
const OF_STRANGERS: usize = 64;
/// Callers of one user that wait; and of all users but root and that of the daemon.
const WAITING: usize = 256;
const STRANGERS_WAITING: usize = 512;
/// Doors of one user that open at once, and how often another one does.
const DOORS_AT_ONCE: u32 = 20;
const DOOR_EVERY: Duration = Duration::from_millis(100);
/// How long a door gets to hand on what was said last and to end, and how long when it was killed.
const ENDING: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(1)];
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Root and the user of the daemon could do all that the daemon does anyway. Others are strangers, whatever they may read.
pub(super) fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// The callers of one user.
#[derive(Debug, Default)]
struct Of {
    answered: usize,
    waiting: VecDeque<UnixStream>,
}

/// When doors of a user open.
#[derive(Debug)]
struct Pace {
    since: Stopwatch,
    /// When the next one would if they came evenly.
    next: Duration,
}

impl Pace {
    fn new() -> Pace {
        Pace { since: Stopwatch::start(), next: Duration::ZERO }
    }

    /// How long one more has to wait.
    fn wait(&mut self) -> Duration {
        let now = self.since.elapsed();
        let next = self.next.max(now);
        self.next = next + DOOR_EVERY;
        next.saturating_sub(now + DOOR_EVERY * (DOORS_AT_ONCE - 1))
    }

    /// Whether it says no more than a new one.
    fn is_over(&self) -> bool {
        self.next <= self.since.elapsed()
    }
}

#[derive(Debug, Default)]
struct CallersByUser {
    of: HashMap<u32, Of>,
    paces: HashMap<u32, Pace>,
    /// Doors that cannot end, each of which keeps a place of its user.
    stuck: Vec<(Child, u32)>,
}

impl CallersByUser {
    /// Whether one more caller of this user can be answered now.
    fn has_room(&self, user: u32) -> bool {
        let own = self.of.get(&user).map_or(0, |of| of.answered);
        if is_trusted(user) {
            return own < OF_TRUSTED;
        }
        let strangers = self.of.iter().filter(|(user, _)| !is_trusted(**user));
        own < OF_ONE && strangers.map(|(_, of)| of.answered).sum::<usize>() < OF_STRANGERS
    }

    /// Whether one more caller of this user can wait.
    fn may_wait(&self, user: u32) -> bool {
        let own = self.of.get(&user).map_or(0, |of| of.waiting.len());
        let strangers = self.of.iter().filter(|(user, _)| !is_trusted(**user));
        let all = strangers.map(|(_, of)| of.waiting.len()).sum::<usize>();
        own < WAITING && (is_trusted(user) || all < STRANGERS_WAITING)
    }

    /// The caller that waits and is answered next: of a user that has the fewest answered.
    fn next(&mut self) -> Option<(UnixStream, u32)> {
        let can =
            self.of.iter().filter(|(user, of)| !of.waiting.is_empty() && self.has_room(**user));
        let user = *can.min_by_key(|(_, of)| of.answered)?.0;
        let of = self.of.get_mut(&user)?;
        let stream = of.waiting.pop_front()?;
        of.answered += 1;
        Some((stream, user))
    }

    /// How long one more door for this user has to wait.
    fn wait(&mut self, user: u32) -> Duration {
        self.paces.retain(|_, pace| !pace.is_over());
        self.paces.entry(user).or_insert_with(Pace::new).wait()
    }

    /// A place of this user is free.
    fn leave(&mut self, user: u32) {
        if let Some(of) = self.of.get_mut(&user) {
            of.answered -= 1;
            if of.answered == 0 && of.waiting.is_empty() {
                self.of.remove(&user);
            }
        }
    }

    /// Frees the places of doors that have ended after all.
    fn look_at_stuck(&mut self) {
        let all = std::mem::take(&mut self.stuck);
        for (mut door, user) in all {
            match door.try_wait() {
                Ok(None) => self.stuck.push((door, user)),
                _ => self.leave(user),
            }
        }
    }
}

/// The callers of a daemon.
#[derive(Debug)]
pub(super) struct Callers {
    volume: HostFile,
    state: Mutex<CallersByUser>,
}

/// What becomes of the connection of a caller who was answered: no descriptors come through it any more.
pub(super) type Then = Box<dyn FnOnce(UnixStream) + Send>;

/// Answers one caller, of this user.
type Answer = dyn Fn(&UnixStream, u32) -> Option<Then> + Send + Sync;

impl Callers {
    pub(super) fn new(volume: HostFile) -> Arc<Callers> {
        Arc::new(Callers { volume, state: Mutex::default() })
    }

    /// Has `answer` called with each caller until the socket is shut down, on threads of their own.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn listen(
        self: &Arc<Self>,
        socket: &ControlSocket,
        answer: impl Fn(&UnixStream, u32) -> Option<Then> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let (callers, listener) = (Arc::clone(self), socket.listener().try_clone()?);
        let answer: Arc<Answer> = Arc::new(answer);
        holdfast_sync::start("control", move || callers.accept(&listener, &answer)).map(drop)
    }

    fn accept(self: Arc<Self>, listener: &UnixListener, answer: &Arc<Answer>) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => self.receive(stream, answer),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It is shut down.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(error) => {
                    tracing::warn!("the control socket: {error}");
                    // There are no descriptors, most likely: some come back.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// A caller that is turned away hears that no daemon listens.
    fn receive(self: &Arc<Self>, stream: UnixStream, answer: &Arc<Answer>) {
        let Ok(Peer { user, .. }) = peer(&stream) else { return };
        let mut state = self.state.lock();
        state.look_at_stuck();
        let has_room = state.has_room(user);
        if !has_room && !state.may_wait(user) {
            return;
        }
        let of = state.of.entry(user).or_default();
        if !has_room {
            of.waiting.push_back(stream);
            return;
        }
        of.answered += 1;
        drop(state);
        let (callers, answer) = (Arc::clone(self), Arc::clone(answer));
        let started = holdfast_sync::start("caller", move || {
            let mut next = Some((stream, user));
            while let Some((stream, user)) = next {
                let mut place = AnswerSlot { callers: &callers, user, door: None };
                // A panic is logged; others wait for the place.
                let _ = catch_unwind(AssertUnwindSafe(|| place.serve(stream, &*answer)));
                drop(place);
                next = callers.state.lock().next();
            }
        });
        if let Err(error) = started {
            tracing::warn!("the system gives no thread for a caller ({error})");
            self.state.lock().leave(user);
        }
    }
}

/// The place of a caller that is being answered.
struct AnswerSlot<'a> {
    callers: &'a Callers,
    user: u32,
    door: Option<Child>,
}

impl AnswerSlot<'_> {
    fn serve(&mut self, stream: UnixStream, answer: &Answer) {
        if is_trusted(self.user) {
            if let Some(then) = answer(&stream, self.user) {
                then(stream);
            }
            return;
        }
        // It keeps no place but its user's meanwhile.
        let wait = self.callers.state.lock().wait(self.user);
        std::thread::sleep(wait);
        let opened = stream.try_clone().and_then(|direct| {
            let (door, stream) = descriptor_filter::open(stream, &self.callers.volume)?;
            Ok((door, stream, direct))
        });
        match opened {
            Ok((door, stream, direct)) => {
                self.door = Some(door);
                if let Some(then) = answer(&stream, self.user) {
                    drop(stream);
                    // It would take what the caller says next for a message.
                    self.door = self.door.take().and_then(ended);
                    if self.door.is_none() {
                        then(direct);
                    }
                }
            }
            Err(error) => tracing::warn!("the system gives no process for a caller ({error})"),
        }
    }
}

impl Drop for AnswerSlot<'_> {
    fn drop(&mut self) {
        let stuck = self.door.take().and_then(ended);
        let mut state = self.callers.state.lock();
        match stuck {
            Some(door) => state.stuck.push((door, self.user)),
            None => state.leave(self.user),
        }
    }
}

/// Waits for a door to end, and kills it if it does not. Gives back one that cannot end.
fn ended(mut door: Child) -> Option<Child> {
    for (is_killed, time) in [false, true].into_iter().zip(ENDING) {
        if is_killed {
            let _ = door.kill();
        }
        let until = Deadline::after(time);
        loop {
            match door.try_wait() {
                Ok(None) if until.is_over() => break,
                Ok(None) => std::thread::sleep(PAUSE),
                _ => return None,
            }
        }
    }
    Some(door)
}

#[cfg(test)]
mod tests {
    use holdfast_base::clock::SimulatedClock;

    use super::*;

    #[test]
    fn doors_of_a_user_open_as_often_as_they_may_and_others_do_not_wait_for_them() {
        let clock = SimulatedClock::new();
        let _entered = clock.enter();
        let mut state = CallersByUser::default();
        for _ in 0..DOORS_AT_ONCE {
            assert_eq!(state.wait(7), Duration::ZERO);
        }
        assert_eq!((state.wait(7), state.wait(7)), (DOOR_EVERY, DOOR_EVERY * 2));
        assert_eq!(state.wait(8), Duration::ZERO);
        clock.advance(DOOR_EVERY * 3);
        assert_eq!((state.wait(7), state.wait(7)), (Duration::ZERO, DOOR_EVERY));
        // Nothing is kept of users that have not asked for long.
        clock.advance(DOOR_EVERY * 1000);
        assert_eq!((state.wait(9), state.paces.len()), (Duration::ZERO, 1));
    }

    /// As [`Callers::receive`], without threads.
    fn comes(state: &mut CallersByUser, user: u32) -> Option<bool> {
        let has_room = state.has_room(user);
        if !has_room && !state.may_wait(user) {
            return None;
        }
        let of = state.of.entry(user).or_default();
        match has_room {
            true => of.answered += 1,
            false => of.waiting.push_back(UnixStream::pair().unwrap().0),
        }
        Some(has_room)
    }

    #[test]
    fn nobody_takes_the_places_of_another_user() {
        let mut state = CallersByUser::default();
        let strangers = 1_000_000..;
        for _ in 0..OF_ONE {
            assert_eq!(comes(&mut state, strangers.start), Some(true));
        }
        for _ in 0..WAITING {
            assert_eq!(comes(&mut state, strangers.start), Some(false));
        }
        assert_eq!(comes(&mut state, strangers.start), None, "too many of one user wait");
        assert_eq!(comes(&mut state, strangers.start + 1), Some(true));
        for user in strangers.clone().skip(2).take(1000) {
            comes(&mut state, user);
        }
        // They are full; trusted users have other places.
        for _ in 0..OF_TRUSTED {
            assert_eq!(comes(&mut state, 0), Some(true));
        }
        assert_eq!(comes(&mut state, 0), Some(false));
        assert!(state.next().is_none());
        state.leave(strangers.start);
        let (_, next) = state.next().unwrap();
        assert!(next != strangers.start && next != 0, "one of those with the fewest: {next}");
        state.leave(0);
        assert_eq!(state.next().map(|(_, user)| user), Some(0));
    }
}
