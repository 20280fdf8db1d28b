//! A step that others build on: while it is under way, its end is the only good one.
//!
//! Between the freeze of a commit and its thaw, the seal of a checkpoint and its release, the taking of a
//! batch and its flush, memory says what the disk does not hold yet. If the thread in the middle dies, the next
//! step would publish what was never written. So a [`Step`] that is dropped before its
//! [end](Step::end) stops the volume, at once and for good: also by a panic, and before any lock is given back
//! that is held around it.

use std::fmt::Display;

use holdfast_base::stop::Stop;

/// See the head of this file.
#[derive(Debug)]
#[must_use = "a step that is dropped stops the volume"]
pub struct Step<'a> {
    stop: &'a Stop,
    name: &'static str,
}

impl<'a> Step<'a> {
    /// A step of the volume that `stop` stops has begun. `name` says what it is, with its article.
    pub(crate) fn begin(stop: &'a Stop, name: &'static str) -> Step<'a> {
        Step { stop, name }
    }

    /// What was done within the step; an error stops the volume, and is its reason.
    pub(crate) fn check<T, E: Display>(&self, done: Result<T, E>) -> Result<T, E> {
        done.inspect_err(|error| stop(self.stop, error.to_string()))
    }

    /// It has come to its end.
    pub fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let name = self.name;
        stop(
            self.stop,
            match std::thread::panicking() {
                true => format!("a thread panicked in the middle of {name}"),
                false => format!("{name} did not come to its end"),
            },
        );
    }
}

/// Stops a volume, and says so in the log unless it had stopped before.
pub(crate) fn stop(stop: &Stop, reason: String) {
    if !stop.is_stopped() && stop.stop(reason.as_str()) {
        tracing::error!("the volume stops, nothing is written any more: {reason}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_stops_the_volume_unless_it_comes_to_its_end() {
        let stopped = Stop::default();
        let step = Step::begin(&stopped, "a test");
        step.check(Ok::<_, String>(())).expect("it is");
        step.end();
        assert_eq!(stopped.reason(), None);
        drop(Step::begin(&stopped, "a test"));
        assert_eq!(stopped.reason(), Some("a test did not come to its end"));
        let failed = Stop::default();
        let step = Step::begin(&failed, "a test");
        assert!(step.check(Err::<(), _>("an error")).is_err());
        drop(step);
        assert_eq!(failed.reason(), Some("an error"), "the first reason is kept");
        let panicked = Stop::default();
        let panic = std::panic::AssertUnwindSafe(|| {
            let _step = Step::begin(&panicked, "a test");
            panic!("as the test wants");
        });
        assert!(std::panic::catch_unwind(panic).is_err());
        assert_eq!(panicked.reason(), Some("a thread panicked in the middle of a test"));
    }
}
