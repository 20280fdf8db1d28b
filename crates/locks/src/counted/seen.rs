//! What a thread sees of its locks: their names, counts, and the trace of what it took and gave.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use holdfast_base::clock::Stopwatch;
use nix::sys::resource::{UsageWho, getrusage};

/// Bits of a [`Lock`] that are its number; those above are its class.
const NUMBER_BITS: u32 = 48;

/// Locks that are made at one place and guard one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockClass {
    /// The source file that makes them, from the top of the workspace.
    pub file: &'static str,
    /// Its line.
    pub line: u32,
    /// What they guard, with the paths of its types.
    pub guards: &'static str,
}

impl Display for LockClass {
    /// `store/src/open.rs:200 Vec<Tree>`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Where a function of the standard library makes it, the type has to tell them apart.
        let (_, file) = self.file.rsplit_once("/library/").unwrap_or(("", self.file));
        let file = file.strip_prefix("crates/").unwrap_or(file);
        write!(f, "{file}:{} {}", self.line, without_paths(self.guards))
    }
}

/// A type's name without the modules that its parts are in.
fn without_paths(name: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut short = String::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_part(c) != is_part(first)).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        short.push_str(if is_part(first) {
            part.rsplit("::").next().unwrap_or(part)
        } else {
            part
        });
        rest = behind;
    }
    short
}

/// One lock, from the first time that it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lock(u64);

impl Lock {
    /// What it is called.
    pub fn class(self) -> LockClass {
        let classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
        classes[self.class_index()]
    }

    fn class_index(self) -> usize {
        (self.0 >> NUMBER_BITS) as usize
    }
}

/// How an acquisition began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The thread waits until it has the lock.
    Waiting,
    /// It goes on without the lock if that is not free.
    Trying,
    /// It had the lock, and gave it away while it waited for a condition or did something else.
    Again,
}

/// What a thread did, in nanoseconds of a clock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// See [`mark`].
    Mark {
        /// When.
        at: u64,
    },
    /// It took a lock.
    Took {
        /// Which one.
        lock: Lock,
        /// Whether others may have it at the same time.
        shared: bool,
        /// How.
        way: Way,
        /// When it asked, or began to wait for a condition.
        asked: u64,
        /// When it had the lock.
        got: u64,
    },
    /// It gave a lock back.
    Gave {
        /// Which one.
        lock: Lock,
        /// When.
        at: u64,
    },
}

/// What a thread has counted of the locks of one class. Times are in nanoseconds, with what counting itself takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Acquisitions.
    pub taken: u64,
    /// Of these, such as others may have at the same time.
    pub shared: u64,
    /// Of these, such as did not succeed at the first attempt.
    pub contended: u64,
    /// Acquisitions, and waits for a condition, in which the thread slept.
    pub slept: u64,
    /// Attempts that were given up.
    pub refused: u64,
    /// Waits for a condition.
    pub conditions: u64,
    /// Time from an acquisition to its release, locks that are taken meanwhile included.
    pub held: u64,
    /// Time in contended acquisitions.
    pub waited: u64,
    /// Time in waits for a condition.
    pub paused: u64,
    /// Acquisitions of any locks while one of these was held.
    pub within: u64,
}

impl LockCounts {
    /// Adds what another thread has counted.
    pub fn add(&mut self, other: &LockCounts) {
        self.taken += other.taken;
        self.shared += other.shared;
        self.contended += other.contended;
        self.slept += other.slept;
        self.refused += other.refused;
        self.conditions += other.conditions;
        self.held += other.held;
        self.waited += other.waited;
        self.paused += other.paused;
        self.within += other.within;
    }
}

/// All classes so far; the upper bits of a lock are an index into it.
static CLASSES: Mutex<Vec<LockClass>> = Mutex::new(Vec::new());
/// The number of the next lock. 0 is none.
static NEXT: AtomicU64 = AtomicU64::new(1);

#[derive(Default)]
struct Seen {
    /// By the index of the class.
    counts: Vec<LockCounts>,
    /// Acquisitions of all classes.
    taken: u64,
    trace: Option<Vec<LockEvent>>,
    /// Indices of classes by where a place and the name of a type are in memory.
    known: HashMap<(usize, usize), u64>,
}

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::default();
    static CLOCK: Stopwatch = Stopwatch::start();
}

impl Seen {
    fn of(&mut self, lock: Lock) -> &mut LockCounts {
        let index = lock.class_index();
        if self.counts.len() <= index {
            self.counts.resize(index + 1, LockCounts::default());
        }
        &mut self.counts[index]
    }

    fn remember(&mut self, event: LockEvent) {
        if let Some(trace) = &mut self.trace {
            trace.push(event);
        }
    }

    fn class_index(&mut self, made: &'static Location<'static>, guards: &'static str) -> u64 {
        let key = (std::ptr::from_ref(made).addr(), guards.as_ptr().addr());
        *self.known.entry(key).or_insert_with(|| index_of(made, guards))
    }
}

fn index_of(made: &'static Location<'static>, guards: &'static str) -> u64 {
    let class = LockClass { file: made.file(), line: made.line(), guards };
    let mut classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = classes.iter().position(|other| *other == class);
    let index = known.unwrap_or_else(|| {
        classes.push(class);
        classes.len() - 1
    });
    index as u64
}

/// Does something with what this thread has seen, unless the thread is at its end.
fn with_seen<T: Default>(work: impl FnOnce(&mut Seen) -> T) -> T {
    SEEN.try_with(|seen| work(&mut seen.borrow_mut())).unwrap_or_default()
}

/// What the calling thread has counted since it began, or since the last call, by class.
pub fn take() -> Vec<(LockClass, LockCounts)> {
    let counts = with_seen(|seen| std::mem::take(&mut seen.counts));
    let classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
    let all = classes.iter().copied().zip(counts);
    all.filter(|(_, counts)| *counts != LockCounts::default()).collect()
}

/// From now on the calling thread remembers what it does, with room for so many events before memory is asked for.
pub fn trace(events: usize) {
    with_seen(|seen| seen.trace = Some(Vec::with_capacity(events)));
}

/// What the calling thread did since [`trace`], which ends here.
pub fn traced() -> Vec<LockEvent> {
    with_seen(|seen| seen.trace.take()).unwrap_or_default()
}

/// Puts an [`LockEvent::Mark`] into the trace of the calling thread, if there is one.
pub fn mark() {
    let at = now();
    with_seen(|seen| seen.remember(LockEvent::Mark { at }));
}

/// How often the calling thread has slept until something was there that it waited for, by the kernel's count.
pub fn sleeps() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    usage.map_or(0, |usage| u64::try_from(usage.voluntary_context_switches()).unwrap_or(0))
}

/// Nanoseconds since the calling thread first asked.
pub(super) fn now() -> u64 {
    CLOCK.with(|clock| clock.nanos())
}

/// The name of a lock.
#[derive(Debug)]
pub(super) struct Name {
    made: &'static Location<'static>,
    /// The [`Lock`]; 0 before it is taken.
    lock: AtomicU64,
}

impl Name {
    pub(super) const fn new(made: &'static Location<'static>) -> Name {
        Name { made, lock: AtomicU64::new(0) }
    }

    fn lock(&self, guards: &'static str) -> Lock {
        match self.lock.load(Ordering::Relaxed) {
            0 => self.give(guards),
            known => Lock(known),
        }
    }

    #[cold]
    fn give(&self, guards: &'static str) -> Lock {
        let class = with_seen(|seen| seen.class_index(self.made, guards));
        let new = (class << NUMBER_BITS) | NEXT.fetch_add(1, Ordering::Relaxed);
        let given = self.lock.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        Lock(given.map_or_else(|known| known, |_| new))
    }

    /// Takes the lock by `at_once`, or else by `patiently`. `guards`: the type that it guards.
    pub(super) fn take<G>(
        &self,
        guards: &'static str,
        shared: bool,
        at_once: impl FnOnce() -> Option<G>,
        patiently: impl FnOnce() -> G,
    ) -> (G, Hold) {
        let asked = now();
        let (real, waited) = match at_once() {
            Some(real) => (real, None),
            None => {
                let (real, waited) = waiting(patiently);
                (real, Some(waited))
            }
        };
        (real, Hold::begin(self, guards, (Way::Waiting, shared), asked, waited))
    }

    /// Takes the lock by `at_once`, if it is free.
    pub(super) fn try_take<G>(
        &self,
        guards: &'static str,
        shared: bool,
        at_once: impl FnOnce() -> Option<G>,
    ) -> Option<(G, Hold)> {
        let asked = now();
        let Some(real) = at_once() else {
            let lock = self.lock(guards);
            with_seen(|seen| seen.of(lock).refused += 1);
            return None;
        };
        Some((real, Hold::begin(self, guards, (Way::Trying, shared), asked, None)))
    }
}

/// The end of a wait.
pub(super) struct Waited {
    until: u64,
    slept: bool,
}

/// Waits by `wait`, and says what came of it.
pub(super) fn waiting<T>(wait: impl FnOnce() -> T) -> (T, Waited) {
    let before = sleeps();
    let result = wait();
    let until = now();
    (result, Waited { until, slept: sleeps() > before })
}

/// A lock that is held: counts until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    lock: Lock,
    since: u64,
    /// Acquisitions of this thread, this one included.
    taken: u64,
}

impl Hold {
    /// Begins a hold that was asked for at `asked`; `waited` where the first attempt did not succeed.
    pub(super) fn begin(
        name: &Name,
        guards: &'static str,
        (way, shared): (Way, bool),
        asked: u64,
        waited: Option<Waited>,
    ) -> Hold {
        let lock = name.lock(guards);
        let got = waited.as_ref().map_or(asked, |waited| waited.until);
        let taken = with_seen(|seen| {
            let counts = seen.of(lock);
            counts.taken += 1;
            counts.shared += u64::from(shared);
            if let Some(waited) = waited {
                counts.slept += u64::from(waited.slept);
                let [how_often, how_long] = match way {
                    Way::Again => [&mut counts.conditions, &mut counts.paused],
                    Way::Waiting | Way::Trying => [&mut counts.contended, &mut counts.waited],
                };
                *how_often += 1;
                *how_long += got.saturating_sub(asked);
            }
            seen.taken += 1;
            seen.remember(LockEvent::Took { lock, shared, way, asked, got });
            seen.taken
        });
        Hold { lock, since: got, taken }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let at = now();
        with_seen(|seen| {
            let within = seen.taken.saturating_sub(self.taken);
            let counts = seen.of(self.lock);
            counts.held += at.saturating_sub(self.since);
            counts.within += within;
            seen.remember(LockEvent::Gave { lock: self.lock, at });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        let class = LockClass {
            file: "crates/store/src/open.rs",
            line: 7,
            guards: "alloc::vec::Vec<(u64, &store::tree::Tree<store::Key>)>",
        };
        assert_eq!(class.to_string(), "store/src/open.rs:7 Vec<(u64, &Tree<Key>)>");
        let class =
            LockClass { file: "/rustc/0123/library/alloc/src/sync.rs", line: 9, guards: "bool" };
        assert_eq!(class.to_string(), "alloc/src/sync.rs:9 bool");
        assert_eq!(without_paths("()"), "()");
        assert_eq!(without_paths(""), "");
    }
}
