//! Locks of whole files, as flock(2) has them: advisory, and between the handles of this program; through a mount it is flock(2), and
//! between all programs of this machine.
//!
//! A lock belongs to what clones of a [`File`] share, and goes with the last of them. It is in memory alone: a volume that is no mount has
//! one program at a time, so no other one needs to hear of it.

use std::fs::TryLockError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_base::clock::Deadline;

use crate::file::{File, Handle, Opened};
use crate::locks::{Kind, Locks};

impl Handle {
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.locked.load(Ordering::Relaxed) {
            self.shared.locks.take(self.inode(), self.number());
        }
    }
}

impl File {
    /// Waits until this handle alone has a lock of the file. As [`std::fs::File::lock`], but among the handles of this program,
    /// which has the volume for itself: nothing else is kept from the file. (Through a mount it is among all programs of this machine.) A shared lock that it has becomes an exclusive one; while it waits
    /// for that it has none. The lock is there until [`File::unlock`], or until the last clone of the handle is dropped.
    ///
    /// # Errors
    /// EBADF when the volume is closed, also for waiters, but not those through a mount.
    pub fn lock(&self) -> io::Result<()> {
        self.lock_until(Kind::Exclusive, None).map(drop)
    }

    /// As [`File::lock`], for a lock that other handles may share.
    pub fn lock_shared(&self) -> io::Result<()> {
        self.lock_until(Kind::Shared, None).map(drop)
    }

    /// As [`File::lock`], for a caller that cannot wait for ever. A lock that the handle had before is gone, too, when the time is over.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another handle has a lock all the time.
    pub fn try_lock_for(&self, time: Duration) -> Result<(), TryLockError> {
        self.lock_within(Kind::Exclusive, time)
    }

    /// As [`File::try_lock_for`], for a lock that other handles may share.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another handle has an exclusive lock all the time.
    pub fn try_lock_shared_for(&self, time: Duration) -> Result<(), TryLockError> {
        self.lock_within(Kind::Shared, time)
    }

    /// As [`File::lock`], without waiting. A lock that the handle had before it keeps; through a mount a shared one is lost when the exclusive one is
    /// refused, as flock(2) has it.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another handle has a lock.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.try_lock_as(Kind::Exclusive)
    }

    /// As [`File::try_lock`], for a lock that other handles may share.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another handle has an exclusive lock.
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.try_lock_as(Kind::Shared)
    }

    /// Gives the lock of the handle back. Without one nothing happens.
    pub fn unlock(&self) -> io::Result<()> {
        self.is_open()?;
        if let Opened::Mounted(open) = &self.handle.open {
            return open.unlock();
        }
        self.handle.shared.locks.take(self.handle.inode(), self.handle.number());
        Ok(())
    }

    fn is_open(&self) -> io::Result<()> {
        self.handle.shared.mount().map(drop)
    }

    fn lock_within(&self, kind: Kind, time: Duration) -> Result<(), TryLockError> {
        match self.lock_until(kind, Some(Deadline::after(time))) {
            Ok(true) => Ok(()),
            Ok(false) => Err(TryLockError::WouldBlock),
            Err(error) => Err(TryLockError::Error(error)),
        }
    }

    /// Whether it has the lock: without a deadline it does.
    fn lock_until(&self, kind: Kind, until: Option<Deadline>) -> io::Result<bool> {
        let handle: &Arc<Handle> = &self.handle;
        if let Opened::Mounted(open) = &handle.open {
            self.is_open()?;
            return open.lock_until(kind == Kind::Exclusive, until);
        }
        let (inode, locks) = (handle.inode(), &handle.shared.locks);
        let mut holders = locks.holders.lock();
        self.is_open()?;
        if !Locks::give(&mut holders, inode, handle.number(), kind) {
            // Two that have a shared lock and want an exclusive one would wait for each other. Others are told once: those that wait
            // would otherwise wake each other for ever.
            if Locks::take_of(&mut holders, inode, handle.number()) {
                locks.changed.notify_all();
            }
            loop {
                if until.is_some_and(Deadline::is_over) {
                    return Ok(false);
                }
                locks.wait(&mut holders, until);
                self.is_open()?;
                if Locks::give(&mut holders, inode, handle.number(), kind) {
                    break;
                }
            }
        }
        handle.locked.store(true, Ordering::Relaxed);
        // A lock that became a shared one lets others in.
        locks.changed.notify_all();
        Ok(true)
    }

    fn try_lock_as(&self, kind: Kind) -> Result<(), TryLockError> {
        let (handle, locks) = (&self.handle, &self.handle.shared.locks);
        if let Opened::Mounted(open) = &handle.open {
            let locked = self.is_open().and_then(|()| open.try_lock(kind == Kind::Exclusive));
            return match locked.map_err(TryLockError::Error)? {
                true => Ok(()),
                false => Err(TryLockError::WouldBlock),
            };
        }
        let mut holders = locks.holders.lock();
        self.is_open().map_err(TryLockError::Error)?;
        if !Locks::give(&mut holders, handle.inode(), handle.number(), kind) {
            return Err(TryLockError::WouldBlock);
        }
        handle.locked.store(true, Ordering::Relaxed);
        locks.changed.notify_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;

    #[test]
    fn those_that_wait_leave_each_other_asleep() {
        let v = Volume::in_memory(32 << 20).unwrap();
        v.write("/f", "").unwrap();
        let [holder, one, two] = [(); 3].map(|()| v.open_file("/f").unwrap());
        holder.lock().unwrap();
        let waits = || holder.handle.shared.locks.waits.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for waiter in [&one, &two] {
                scope.spawn(|| waiter.lock().and_then(|()| waiter.unlock()).unwrap());
            }
            while waits() < 2 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(100));
            let seen = waits();
            // Before the check, or a failure would leave the threads waiting.
            holder.unlock().unwrap();
            assert_eq!(seen, 2);
        });
        holder.try_lock().unwrap();
    }

    #[test]
    fn who_waits_for_a_time_is_told_when_it_is_over() {
        let v = Volume::in_memory(32 << 20).unwrap();
        v.write("/f", "").unwrap();
        let [one, two] = [(); 2].map(|()| v.open_file("/f").unwrap());
        one.lock_shared().unwrap();
        let time = Duration::from_millis(5);
        two.try_lock_shared_for(time).unwrap();
        assert!(matches!(two.try_lock_for(time), Err(TryLockError::WouldBlock)));
        // What it had it has given up.
        one.try_lock_for(time).unwrap();
        assert!(matches!(two.try_lock_shared_for(time), Err(TryLockError::WouldBlock)));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| two.try_lock_for(Duration::from_secs(600)));
            one.unlock().unwrap();
            waiter.join().unwrap().unwrap();
        });
    }
}
