//! Requests that take long, and can be given up between two steps of their work: when the program that waits was sent a signal, for
//! which the kernel sends FUSE_INTERRUPT, and when the mount ends.
//!
//! An interrupt may be read, by another thread, before its request has [begun](Interrupts::begin). Such a one is missed, and the
//! request goes on to its end, as most do anyway: to remember each interrupt would take memory for all that come too late.

use parking_lot::Mutex;

/// Those of one mount that are under way.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(Mutex<InterruptTable>);

#[derive(Debug, Default)]
struct InterruptTable {
    /// What the kernel calls each of them, and whether it was interrupted.
    under_way: Vec<(u64, bool)>,
    /// The mount ends.
    has_ended: bool,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Interruptible<'a> {
    of: &'a Interrupts,
    unique: u64,
}

impl Interrupts {
    /// The request that the kernel calls `unique` can be interrupted from now on.
    pub(crate) fn begin(&self, unique: u64) -> Interruptible<'_> {
        self.0.lock().under_way.push((unique, false));
        Interruptible { of: self, unique }
    }

    /// The program of that request waits for it no more.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut state = self.0.lock();
        let all = state.under_way.iter_mut().filter(|(of, _)| *of == unique);
        all.for_each(|(_, is_interrupted)| *is_interrupted = true);
    }

    /// Interrupts all of them, and those that come later.
    pub(crate) fn end(&self) {
        self.0.lock().has_ended = true;
    }
}

impl Interruptible<'_> {
    /// Whether the program still waits for the answer. `false` also when the mount has ended.
    pub(crate) fn is_wanted(&self) -> bool {
        let state = self.of.0.lock();
        !state.has_ended && !state.under_way.contains(&(self.unique, true))
    }
}

impl Drop for Interruptible<'_> {
    fn drop(&mut self) {
        let mut state = self.of.0.lock();
        state.under_way.retain(|(of, _)| *of != self.unique);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_reaches_its_request_alone_and_the_end_all() {
        let interrupts = Interrupts::default();
        interrupts.interrupt(8);
        let (one, other) = (interrupts.begin(8), interrupts.begin(12));
        assert!(one.is_wanted() && other.is_wanted(), "what came before was of another one");
        interrupts.interrupt(12);
        assert!(one.is_wanted() && !other.is_wanted());
        drop(other);
        let other = interrupts.begin(12);
        assert!(other.is_wanted(), "the number is one of a new request");
        interrupts.end();
        assert!(!one.is_wanted() && !other.is_wanted() && !interrupts.begin(16).is_wanted());
    }
}
