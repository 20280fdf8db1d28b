//! Asks many mounts at once, so that one that does not answer holds none up.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use parking_lot::Mutex;

use crate::mounts::Mount;
use crate::report::{self, Report};

/// Mounts that are asked at once. Each takes a process, which does nothing but wait.
const AT_ONCE: usize = 16;

/// What mounts say of themselves, in their order. All of them together get `patience`: one that has not answered by then is
/// `TimedOut`, and so is one whose turn did not come.
pub fn ask_all(mounts: Vec<Mount>, patience: Duration) -> Vec<(Mount, io::Result<Report>)> {
    let until = Deadline::after(patience);
    each(mounts, |mount| match until.is_over() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => report::ask_within(mount, until.left()),
    })
}

/// What `ask` makes of each mount, in their order.
pub fn each<A: Send>(mounts: Vec<Mount>, ask: impl Fn(&Mount) -> A + Sync) -> Vec<(Mount, A)> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, mount)) = take(&mounts, &next) {
            let answer = ask(mount);
            answers.lock().push((at, answer));
        }
    };
    thread::scope(|scope| {
        for _ in 1..AT_ONCE.min(mounts.len()) {
            // Where no thread can be had there are fewer.
            if thread::Builder::new().name("holdfast-ask".into()).spawn_scoped(scope, work).is_err()
            {
                break;
            }
        }
        work();
    });
    let mut answers = answers.into_inner();
    answers.sort_by_key(|(at, _)| *at);
    mounts.into_iter().zip(answers.into_iter().map(|(_, answer)| answer)).collect()
}

fn take<'m>(mounts: &'m [Mount], next: &AtomicUsize) -> Option<(usize, &'m Mount)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    mounts.get(at).map(|mount| (at, mount))
}
