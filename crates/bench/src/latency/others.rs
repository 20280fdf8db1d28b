//! Those who are busy while fsyncs are measured, each a function for a thread of its own.
//!
//! They go on until they are told to stop, and count what they did. An error
//! ends them early and is what the whole measurement answers.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast::{File, Volume};
use holdfast_device::Device;

use super::{APPEND, BARE_BYTES, DIRS, Plan, SMALL_BYTES, Stage};
use crate::work::pattern;

/// Bytes of a write of the strangers.
const CHUNK: u64 = 1 << 20;
/// Between two creates: a load that goes on, not one that takes all processors.
const PACE: Duration = Duration::from_micros(200);
/// One in so many commits is a checkpoint at once.
const CHECKPOINT_EVERY: u64 = 4;

/// What they work on, and what they say.
pub(super) struct Others<'a> {
    pub(super) volume: &'a Volume,
    pub(super) bare: &'a dyn Device,
    pub(super) plan: &'a Plan,
    stop: AtomicBool,
    done: AtomicU64,
}

/// What one of them does until he is stopped.
pub(super) type Work<'a> = fn(&Others<'a>) -> io::Result<()>;

impl<'a> Others<'a> {
    pub(super) fn new(volume: &'a Volume, bare: &'a dyn Device, plan: &'a Plan) -> Others<'a> {
        Others { volume, bare, plan, stop: AtomicBool::new(false), done: AtomicU64::new(0) }
    }

    /// Tells all of them to stop.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// How much they did, counted in what [`Stage::unit`] says.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// One function for each thread.
    pub(super) fn of(stage: Stage) -> Vec<Work<'a>> {
        match stage {
            Stage::Bare | Stage::Alone => vec![],
            Stage::BareWrites => vec![Others::writes],
            Stage::Commits => vec![Others::creates, Others::commits],
            Stage::Fsyncs => vec![Others::fsyncs],
            Stage::Renames => vec![Others::renames],
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Large writes to the bare device, and a flush after as many as a large file has.
    fn writes(&self) -> io::Result<()> {
        let chunk = pattern(CHUNK as usize);
        let (places, file) = ((BARE_BYTES - SMALL_BYTES) / CHUNK, self.plan.large_bytes / CHUNK);
        for number in 0.. {
            if !self.goes_on() {
                break;
            }
            let at = SMALL_BYTES + number % places * CHUNK;
            self.bare.write(at, &chunk).map_err(io::Error::other)?;
            if (number + 1) % file.max(1) == 0 {
                let _ = self.bare.flush().map_err(io::Error::other)?;
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn creates(&self) -> io::Result<()> {
        let chunk = pattern(APPEND);
        let mut number = 0;
        while self.goes_on() {
            let file = self.volume.create(format!("/d{}/new{number}", number % DIRS))?;
            file.write_all_at(&chunk, 0)?;
            number += 1;
            std::thread::sleep(PACE);
        }
        (0..number).try_for_each(|n| self.volume.remove_file(format!("/d{}/new{n}", n % DIRS)))
    }

    fn commits(&self) -> io::Result<()> {
        let engine = self.volume.engine()?;
        let mut number = 0;
        while self.goes_on() {
            number += 1;
            match number % CHECKPOINT_EVERY {
                0 => {
                    engine.checkpoint().map_err(io::Error::other)?;
                    self.done.fetch_add(1, Ordering::Relaxed);
                }
                _ => engine.commit().map_err(io::Error::other)?,
            }
        }
        Ok(())
    }

    fn fsyncs(&self) -> io::Result<()> {
        let chunk = pattern(CHUNK as usize);
        while self.goes_on() {
            let file = self.volume.create("/large")?;
            if !self.fill(&file, &chunk, self.plan.large_bytes)? {
                break;
            }
            file.sync_all()?;
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn renames(&self) -> io::Result<()> {
        let chunk = pattern(CHUNK as usize);
        while self.goes_on() {
            let file = self.volume.create("/new")?;
            if !self.fill(&file, &chunk, self.plan.renamed_bytes)? {
                break;
            }
            self.volume.rename("/new", "/old")?;
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes `bytes` bytes; false if it was told to stop before.
    fn fill(&self, file: &File, chunk: &[u8], bytes: u64) -> io::Result<bool> {
        let mut at = 0;
        while at < bytes {
            if !self.goes_on() {
                return Ok(false);
            }
            let len = CHUNK.min(bytes - at);
            file.write_all_at(&chunk[..len as usize], at)?;
            at += len;
        }
        Ok(true)
    }
}
