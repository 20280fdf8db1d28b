//! Two programs that do not see each other's locks, on two machines or behind two names of a device, must not write
//! to one volume. The guard is a sector in which the one that writes has its number.
//!
//! ```text
//!  B opens:  reads the guard - A's, not closed -> writes "B asks", waits -> still there? -> writes "B", goes on
//!  A works:                looks once a second:  "B asks" -> writes "A"         "B" -> writes nothing more, ever
//!  A rests:  after a minute without a call: no looks; before its next call it looks first
//!  A sleeps: its last look is older than half of what B waits: before its next call it looks first
//!  A was late: it answered behind a sleep, and B may have looked its last: half of what B waits later it looks again
//! ```
//!
//! So a mount that is used keeps its volume, and the other one is refused. One that was not used for a minute
//! costs the device nothing, and loses its volume to one that asks: it notices before it reads or writes again.
//! B does not wait if A left in order, if A ran on this machine before it was started again, or if locks prove that
//! nothing on this machine has the device. Only devices that others can reach have a guard ([`Reach`]); and a file of this machine that a
//! program here has open by another name, where it met no lock, which its guard says.

mod claim;
mod hold;
mod watch;

pub(crate) use claim::{after_mkfs, before_mkfs};
pub use hold::Hold;
pub(crate) use watch::Keeper;

use holdfast_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_base::clock::{Deadline, since_boot};
use holdfast_base::{BLOCK_SIZE, wait};
use holdfast_device::host::Host;
use holdfast_device::{Device, DeviceError, Reach, forward};
use holdfast_format::geometry::GUARD;
use holdfast_format::guard::{Guard, GuardState};
use parking_lot::{Condvar, Mutex};

/// How the guard of a volume is kept.
#[derive(Clone, Debug)]
pub struct Guarding {
    /// The machine that opens the volume; `None`: this machine.
    pub host: Option<Host>,
    /// Between two looks of a program that has the volume.
    pub look: Duration,
    /// A program that finds a guard waits so long for an answer: several looks, so that a slow device is in time.
    pub wait: Duration,
    /// After so many looks without any call of the device a program rests.
    pub rest: u32,
}

impl Default for Guarding {
    fn default() -> Guarding {
        Guarding {
            host: None,
            look: Duration::from_secs(1),
            wait: Duration::from_secs(5),
            rest: 60,
        }
    }
}

impl Guarding {
    /// How long the result of a look holds. The other half of an asking program's wait is for the calls of the device
    /// that began in this time.
    fn term(&self) -> Duration {
        self.look.max(self.wait / 2)
    }
}

/// The guard is looked at in time.
const HELD: u8 = 0;
/// It was not looked at for a while: it is before the next call.
const RESTING: u8 = 1;
/// Another program has the volume.
const LOST: u8 = 2;

/// Whether the program that is answered may have looked for the last time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// If the look before this one was not in time.
    MayBeLate,
    /// It asks since a moment ago: what it asked before was answered then.
    InTime,
}

/// A device that is asked nothing more once another program has taken the volume.
#[derive(Debug)]
pub(crate) struct Guarded {
    under: Arc<dyn Device>,
    /// What stands in the guard while this program has the volume; held while it is looked at.
    own: Mutex<Option<Guard>>,
    state: AtomicU8,
    /// A call has come since the last look.
    used: AtomicBool,
    /// Another program was answered, and that is not flushed yet.
    answered: AtomicBool,
    /// It was answered so late that it may not look any more. Changes under the lock of `own`.
    in_doubt: AtomicBool,
    /// When the last look began, see [`since_boot`].
    looked: AtomicU64,
    /// What was seen there holds for so many nanoseconds.
    term: u64,
    /// Why nothing more is asked.
    lost: OnceLock<String>,
    /// Whether the watch ends.
    ended: Mutex<bool>,
    woken: Condvar,
}

impl Guarded {
    /// `device` with a guard, if it needs one: others reach it, or may have it, and it is opened for writing.
    pub(crate) fn over(
        device: &Arc<dyn Device>,
        read_only: bool,
        how: &Guarding,
    ) -> Option<Arc<Guarded>> {
        let is_needed = || device.reach() != Reach::Alone || claim::is_taken_here(&**device, how);
        if read_only || !is_needed() {
            return None;
        }
        Some(Arc::new(Guarded {
            under: device.clone(),
            own: Mutex::new(None),
            state: AtomicU8::new(HELD),
            used: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            looked: AtomicU64::new(since_boot()),
            term: u64::try_from(how.term().as_nanos()).unwrap_or(u64::MAX),
            lost: OnceLock::new(),
            ended: Mutex::new(false),
            woken: Condvar::new(),
        }))
    }

    /// Whether the last look is in time, and all was well. A machine that was suspended, or a process that was stopped,
    /// finds here that it was not.
    fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD && self.is_in_time(since_boot())
    }

    /// Whether what the last look has seen still holds. A program that has begun to ask since then goes on to look for an
    /// answer for half of its time at least.
    fn is_in_time(&self, now: u64) -> bool {
        now.saturating_sub(self.looked.load(Ordering::Relaxed)) <= self.term
    }

    /// Fails if another program has the volume.
    fn sure(&self) -> Result<(), DeviceError> {
        if !self.is_held() {
            return self.find_out();
        }
        // Read first: one cache line for all threads.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    #[cold]
    fn find_out(&self) -> Result<(), DeviceError> {
        self.used.store(true, Ordering::Relaxed);
        let arrived = since_boot();
        let own = self.own.lock();
        // A look that another thread began behind this call is as good, also if it took so long that it is old by now:
        // otherwise all calls would look in turn where a device is slow.
        if !self.is_held() && self.looked.load(Ordering::Relaxed) < arrived {
            self.look_as(own.as_ref(), Answer::MayBeLate)?;
        }
        self.settle(own.as_ref())?;
        if let Some(why) = self.lost.get() {
            return Err(DeviceError::TakenOver { why: why.clone() });
        }
        let woken = self.state.compare_exchange(RESTING, HELD, Ordering::AcqRel, Ordering::Acquire);
        drop(own);
        if woken.is_ok() {
            let _ended = self.ended.lock();
            self.woken.notify_all();
        }
        Ok(())
    }

    /// Reads the guard: answers a program that asks, and stops if another one has the volume. Fails if the device does
    /// not tell which program has the volume, once it is too late to go on without knowing.
    fn look(&self) -> Result<(), DeviceError> {
        self.look_as(self.own.lock().as_ref(), Answer::MayBeLate)
    }

    /// The last answer is read by the program that it is for, or was written over by it, which is found here.
    fn settle(&self, own: Option<&Guard>) -> Result<(), DeviceError> {
        self.flush_answer()?;
        if self.in_doubt.load(Ordering::Relaxed) && self.lost.get().is_none() {
            wait::will_wait();
            let until = Deadline::after(Duration::from_nanos(self.term));
            while !until.is_over() {
                holdfast_sync::thread::sleep(until.left());
            }
            self.look_as(own, Answer::InTime)?;
            self.in_doubt.store(false, Ordering::Relaxed);
            self.flush_answer()?;
        }
        Ok(())
    }

    /// Another machine must read the answer before this one writes what that would not know of.
    fn flush_answer(&self) -> Result<(), DeviceError> {
        if self.answered.swap(false, Ordering::AcqRel) {
            let _answered = self.under.flush()?;
        }
        Ok(())
    }

    fn look_as(&self, own: Option<&Guard>, answer: Answer) -> Result<(), DeviceError> {
        let Some(mine) = own.filter(|_| self.lost.get().is_none()) else {
            return Ok(());
        };
        // Before the read: what another program writes behind it is seen by the next look.
        let (now, is_held) = (since_boot(), self.is_held());
        let is_late = answer == Answer::MayBeLate && !self.is_in_time(now);
        let found = match read(&*self.under) {
            Ok(block) => Guard::decode(&block),
            Err(error) => {
                tracing::warn!("the guard of the volume cannot be read: {error}");
                if !is_held {
                    return Err(error);
                }
                // A rotten sector takes no volume down that was looked after in time.
                self.looked.store(now, Ordering::Relaxed);
                return Ok(());
            }
        };
        self.looked.store(now, Ordering::Relaxed);
        match found {
            Ok(guard) if guard.nonce == mine.nonce => return Ok(()),
            Ok(guard) if guard.uuid == mine.uuid && guard.state == GuardState::Asking => {
                tracing::warn!("{} wants to write to this volume and was refused", program(&guard));
            }
            Ok(guard) => {
                self.lose(format!(
                    "{} has opened the volume for writing meanwhile",
                    program(&guard)
                ));
                return Ok(());
            }
            // Torn or rotten, and mended.
            Err(_) => {}
        }
        match write(&*self.under, &mine.encode()) {
            Ok(()) => {
                self.answered.store(true, Ordering::Release);
                if is_late {
                    // Before the next call of the device this is settled.
                    self.in_doubt.store(true, Ordering::Relaxed);
                    self.state.store(RESTING, Ordering::Release);
                }
            }
            Err(error) => self.lose(format!("the guard of the volume cannot be kept: {error}")),
        }
        Ok(())
    }

    fn lose(&self, why: String) {
        tracing::error!("{why}; nothing more is written to it here");
        let _ = self.lost.set(why);
        self.state.store(LOST, Ordering::Release);
    }
}

impl Device for Guarded {
    forward!(under: room, sector_size, reach, stats);
    forward!(under if sure: read, write, flush, discard, take_room, len);
}

/// The program that wrote a guard, in messages.
fn program(guard: &Guard) -> String {
    format!("process {} on machine {:?}", guard.process, guard.name)
}

fn place() -> u64 {
    GUARD.byte_offset().expect("the guard lies at the start of the volume")
}

fn read(device: &dyn Device) -> Result<Box<[u8; BLOCK_SIZE]>, DeviceError> {
    let mut block = Box::new([0; BLOCK_SIZE]);
    // A cache of this machine keeps what stood there before another one wrote.
    device.drop_cache(place(), BLOCK_SIZE as u64);
    device.read(place(), &mut block[..])?;
    Ok(block)
}

fn write(device: &dyn Device, block: &[u8; BLOCK_SIZE]) -> Result<(), DeviceError> {
    device.write(place(), &block[..])
}

#[cfg(test)]
mod tests;
