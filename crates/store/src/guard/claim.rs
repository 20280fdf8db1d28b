//! Opening and making a volume that another program may have: see the head of this module.

use std::sync::Arc;

use holdfast_base::clock::Deadline;
use holdfast_base::{BLOCK_SIZE, Timestamp, prng};
use holdfast_device::host::Host;
use holdfast_device::{Device, DeviceError, Reach};
use holdfast_format::checksum::crc64;
use holdfast_format::guard::{Guard, GuardState};
use parking_lot::{Condvar, Mutex};
use uuid::Uuid;

use super::{Answer, Guarded, Guarding, program, read, write};
use crate::Result;

/// So often between two looks of the other one a program that asks looks whether it was answered.
const LOOKS: u32 = 4;

impl Guarded {
    /// Takes the volume, or is refused by the program that has it. `device`: this one, with flushes that are believed
    /// (P7). Gives what stood there.
    pub(super) fn claim(
        &self,
        device: &dyn Device,
        uuid: Uuid,
        how: &Guarding,
    ) -> Result<Box<[u8; BLOCK_SIZE]>> {
        let host = how.host.clone().unwrap_or_else(Host::this);
        // What cannot be read is written over: no guard keeps a volume from being opened.
        let before = read(device).unwrap_or_else(|error| {
            tracing::warn!("the guard of the volume cannot be read: {error}");
            Box::new([0; BLOCK_SIZE])
        });
        let mut mine = guard_of(uuid, &host);
        let other = Guard::decode(&before).ok().filter(|guard| guard.uuid == uuid);
        let may_live = |other: &Guard| !has_ended(other, &mine, self.reach());
        if let Some(other) = other.filter(may_live) {
            tracing::info!(
                "{} did not close the volume; it is asked whether it still runs, for {} s",
                program(&other),
                how.wait.as_secs_f64()
            );
            mine.state = GuardState::Asking;
            write(device, &mine.encode())?;
            let _ = device.flush()?;
            wait_for_answer(device, &mine, how)?;
        }
        mine.state = GuardState::Open;
        write(device, &mine.encode())?;
        let _ = device.flush()?;
        // Of two that come at once one sees the other here; if not, at its next look.
        expect_own(device, &mine)?;
        *self.own.lock() = Some(mine);
        Ok(before)
    }

    /// The volume was not opened: puts back what stood in the guard.
    pub(super) fn give_back(&self, before: &[u8; BLOCK_SIZE]) {
        let own = self.own.lock().take();
        let is_own = |mine: &Guard| expect_own(&*self.under, mine).is_ok();
        if own.as_ref().is_some_and(is_own)
            && let Err(error) = write(&*self.under, before)
        {
            tracing::warn!("the guard of the volume cannot be put back: {error}");
        }
    }

    /// The volume is left in order.
    pub(super) fn leave(&self, device: &dyn Device) {
        let mut own = self.own.lock();
        let looked = self.look_as(own.as_ref(), Answer::MayBeLate);
        let looked = looked.and_then(|()| self.settle(own.as_ref()));
        let own = own.take();
        let Some(mine) = own.filter(|_| looked.is_ok() && self.lost.get().is_none()) else {
            return;
        };
        let closed = Guard { state: GuardState::Closed, time: now(), ..mine };
        let left = write(device, &closed.encode()).and_then(|()| device.flush());
        if let Err(error) = left {
            // Everything is durable: the next program waits, and no more.
            tracing::warn!("the guard of the volume cannot say that it was left: {error}");
        }
    }
}

/// Whether a program of this machine has opened what is there and has not closed it, as far as its guard tells.
pub(super) fn is_taken_here(device: &dyn Device, how: &Guarding) -> bool {
    let found = read(device).ok().and_then(|block| Guard::decode(&block).ok());
    found.filter(|guard| guard.state != GuardState::Closed).is_some_and(|guard| {
        let host = how.host.clone().unwrap_or_else(Host::this);
        guard.boot == host.boot
    })
}

/// Before a volume is made where another program may have one: refuses if it answers.
pub(crate) fn before_mkfs(device: &Arc<dyn Device>) -> Result<()> {
    let how = Guarding::default();
    let Some(guarded) = Guarded::over(device, false, &how) else {
        return Ok(());
    };
    if let Ok(found) = read(&**device).map(|block| Guard::decode(&block))
        && let Ok(other) = found
        && other.state != GuardState::Closed
    {
        guarded.claim(&**device, other.uuid, &how)?;
    }
    Ok(())
}

/// A volume was made: a program that has had another one there until now is told.
pub(crate) fn after_mkfs(device: &Arc<dyn Device>, uuid: Uuid) -> Result<()> {
    if device.reach() != Reach::Alone {
        let made = Guard { state: GuardState::Closed, ..guard_of(uuid, &Host::this()) };
        write(&**device, &made.encode())?;
    }
    Ok(())
}

fn guard_of(uuid: Uuid, host: &Host) -> Guard {
    // Keyed with the volume: a reader of the disk does not learn ids of machines.
    let machine = [&host.machine[..], uuid.as_bytes()].concat();
    Guard {
        uuid,
        nonce: prng::entropy(),
        boot: host.boot,
        machine: if host.machine.is_empty() { 0 } else { crc64(&machine).max(1) },
        process: std::process::id(),
        state: GuardState::Open,
        time: now(),
        name: host.name.clone(),
    }
}

fn now() -> u64 {
    u64::try_from(Timestamp::now().secs).unwrap_or(0)
}

/// Whether the program that wrote `other` cannot be running any more.
fn has_ended(other: &Guard, mine: &Guard, reach: Reach) -> bool {
    if other.state == GuardState::Closed {
        return true;
    }
    match other.boot == mine.boot {
        // It held a lock that is held here now. A file out of others' reach has a guard by another name alone.
        true => reach == Reach::Host,
        // This machine was started again since.
        false => other.machine != 0 && other.machine == mine.machine,
    }
}

/// Waits until the time is over, or another program has answered.
fn wait_for_answer(device: &dyn Device, mine: &Guard, how: &Guarding) -> Result<()> {
    let until = Deadline::after(how.wait);
    let (nobody, never) = (Mutex::new(()), Condvar::new());
    while !until.is_over() {
        never.wait_for(&mut nobody.lock(), until.left().min(how.look / LOOKS));
        expect_own(device, mine)?;
    }
    expect_own(device, mine)
}

/// Fails if the guard is not `mine`.
fn expect_own(device: &dyn Device, mine: &Guard) -> Result<()> {
    match Guard::decode(&*read(device)?) {
        Ok(found) if found.nonce == mine.nonce => Ok(()),
        Ok(other) => Err(in_use(program(&other))),
        // Another program writes there at this moment, or has written something else.
        Err(_) => Err(in_use("a program that has changed its guard".into())),
    }
}

fn in_use(holder: String) -> crate::StoreError {
    DeviceError::InUse { path: "the volume".into(), holder }.into()
}
