//! The thread that looks at the guard while the volume is open.

use holdfast_sync::atomic::Ordering;
use holdfast_sync::thread::JoinHandle;
use std::sync::Arc;

use holdfast_base::BLOCK_SIZE;
use holdfast_base::clock::Deadline;
use holdfast_base::stop::Stop;
use holdfast_device::Device;
use uuid::Uuid;

use super::{Guarded, Guarding, HELD, LOST, RESTING};
use crate::step::Step;
use crate::{Result, StoreError};

/// Keeps the guard of an open volume.
#[derive(Debug)]
pub(crate) struct Keeper {
    guarded: Arc<Guarded>,
    /// What stood in the guard before.
    before: Box<[u8; BLOCK_SIZE]>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Takes the volume `uuid` on `device`, which is `guarded` with flushes that are believed, and looks after the
    /// guard from then on, unless there are to be no threads. Should its thread die, it stops the volume by `stop`.
    pub(crate) fn start(
        guarded: Arc<Guarded>,
        (device, stop): (&Arc<dyn Device>, &Arc<Stop>),
        uuid: Uuid,
        how: &Guarding,
        threads: bool,
    ) -> Result<Keeper> {
        let before = guarded.claim(&**device, uuid, how)?;
        let mut keeper = Keeper { guarded, before, thread: None };
        if threads {
            let (guarded, device, how) = (keeper.guarded.clone(), device.clone(), how.clone());
            let stop = stop.clone();
            let spawned = holdfast_sync::start("guard", move || {
                // If this thread died, another program's claim would go unseen.
                let step = Step::begin(&stop, "the looks at the guard");
                watch(&guarded, &*device, &how);
                step.end();
            });
            match spawned {
                Ok(thread) => keeper.thread = Some(thread),
                Err(error) => {
                    keeper.not_opened();
                    return Err(StoreError::Refused(format!(
                        "the system gives no thread for the guard ({error}); raise its limit of processes"
                    )));
                }
            }
        }
        Ok(keeper)
    }

    /// The volume was refused for another reason, and is left as it was.
    pub(crate) fn not_opened(&mut self) {
        self.end();
        self.guarded.give_back(&self.before);
    }

    /// The volume is left in order. `device`: as for [`Keeper::start`].
    pub(crate) fn leave(&self, device: &dyn Device) {
        *self.guarded.ended.lock() = true;
        self.guarded.woken.notify_all();
        self.guarded.leave(device);
    }

    /// Whether the guard is not looked at because nothing is asked of the device.
    pub(crate) fn is_resting(&self) -> bool {
        self.guarded.state.load(Ordering::Acquire) == RESTING
    }

    fn end(&mut self) {
        *self.guarded.ended.lock() = true;
        self.guarded.woken.notify_all();
        if let Some(thread) = self.thread.take() {
            // One that panicked has reported it.
            let _ = thread.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn watch(guarded: &Guarded, device: &dyn Device, how: &Guarding) {
    let mut quiet = 0;
    while guarded.rest_or_wait(quiet >= how.rest, how) {
        match guarded.used.swap(false, Ordering::Relaxed) {
            true => quiet = 0,
            false => quiet += 1,
        }
        // A look that comes too late and learns nothing leaves it to the next call of the device, which is refused
        // then.
        let _ = guarded.look();
        // Others read it at once where the host has no cache in between. Nothing relies on a flush that
        // failed (P7), and the volume's next flush reports it.
        if guarded.answered.swap(false, Ordering::AcqRel)
            && let Err(error) = device.flush()
        {
            tracing::error!("the guard of the volume cannot be flushed: {error}");
        }
    }
}

impl Guarded {
    /// Waits until the next look, or at rest until the device is called; false at the end.
    fn rest_or_wait(&self, rest: bool, how: &Guarding) -> bool {
        let mut ended = self.ended.lock();
        let is = |state| self.state.load(Ordering::Acquire) == state;
        if rest {
            let _ = self.state.compare_exchange(HELD, RESTING, Ordering::AcqRel, Ordering::Acquire);
            while !*ended && is(RESTING) {
                self.woken.wait(&mut ended);
            }
        }
        let until = Deadline::after(how.look);
        while !*ended && !until.is_over() {
            let _ = self.woken.wait_for(&mut ended, until.left());
        }
        !*ended && !is(LOST)
    }
}
