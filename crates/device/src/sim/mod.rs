//! The device that lies, within what real disks do.
//!
//! A [`SimDevice`] keeps bytes in memory and writes down every call in the
//! order in which it took effect, also those of many threads. From that list a
//! [`Recording`] yields, for a power cut after any call, every image that the
//! contract of [`crate::Device`] allows: unflushed writes lost, torn at
//! sectors, or with the physical sector that they wrote a part of, in any combination ([`Cut::images`]). [`Faults`] make calls fail,
//! vanish, rot or land in the wrong place.
//!
//! Always true: the same base, events, policy and seed give the same images in
//! the same order. Discarded sectors read as junk at once, but those that hold
//! only zeros stay as they are, so that images stay small. Both are allowed.
//! Knows nothing of what the bytes mean.

pub mod event;
pub mod faults;
pub mod host;
pub mod images;
pub mod pending;
pub mod recording;
mod shared;
mod timed;

pub use event::Event;
pub use faults::{Action, Call, Fault, Faults, When};
pub use host::HostedDevice;
pub use images::{CrashImage, CrashImages, Policy};
pub use pending::Cut;
pub use recording::Recording;
pub use shared::SharedDevice;
pub use timed::TimedDevice;

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use parking_lot::Mutex;

use self::faults::Verdict;
use crate::memory::MemoryDevice;
use crate::range;
use crate::tally::Tally;
use crate::{Device, DeviceError, DeviceStats, Discards, Flushed};

/// A device in memory that records its calls and fails on demand.
pub struct SimDevice {
    base: MemoryDevice,
    state: Mutex<SimState>,
    tally: Tally,
}

struct SimState {
    /// What reads see: every write that took effect.
    current: MemoryDevice,
    events: Vec<Event>,
    faults: Faults,
}

impl SimDevice {
    /// A device that starts as a copy of `base`, durable, and obeys.
    pub fn new(base: &MemoryDevice) -> SimDevice {
        SimDevice::with_faults(base, Faults::none())
    }

    /// A device that starts as a copy of `base`, durable, and misbehaves as `faults` say.
    pub fn with_faults(base: &MemoryDevice, faults: Faults) -> SimDevice {
        SimDevice {
            base: base.snapshot(),
            state: Mutex::new(SimState { current: base.snapshot(), events: Vec::new(), faults }),
            tally: Tally::default(),
        }
    }

    /// Misbehaves as `faults` say, which count calls from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// How many calls have been treated badly since the faults were set.
    pub fn faults_fired(&self) -> u64 {
        self.state.lock().faults.fired()
    }

    /// Writes `mark` into the list of calls: says how far the caller is.
    pub fn mark(&self, mark: u64) {
        self.state.lock().events.push(Event::Mark(mark));
    }

    /// Everything that happened so far.
    pub fn recording(&self) -> Recording {
        Recording { base: self.base.snapshot(), events: self.state.lock().events.clone() }
    }

    /// What reads see now, as a device of its own: the image of a clean end.
    pub fn image(&self) -> MemoryDevice {
        self.state.lock().current.snapshot()
    }

    /// What may be left if power fails now.
    pub fn cut(&self) -> Cut {
        let recording = self.recording();
        recording.cut_at(recording.events.len())
    }

    /// Applies a write; returns the index of its event.
    fn begin(&self, at: u64, bytes: &[u8], event: impl FnOnce(Arc<[u8]>) -> Event) -> usize {
        let mut state = self.state.lock();
        state.current.put(at, bytes);
        state.events.push(event(Arc::from(bytes)));
        state.events.len() - 1
    }

    /// Notes that the call returns now. Between the two another thread's flush may have begun,
    /// which then does not cover this call.
    fn end(&self, event: usize) {
        let mut state = self.state.lock();
        let now = state.events.len();
        if let Event::Write { returned, .. } | Event::Discard { returned, .. } =
            &mut state.events[event]
        {
            *returned = Some(now);
        }
    }

    fn failed(&self, call: Call, at: u64, len: usize) -> DeviceError {
        let mut state = self.state.lock();
        let len = len as u64;
        let began = state.events.len();
        state.events.push(match call {
            Call::Flush => Event::FlushFailed { began },
            _ => Event::Failed { call, at, len },
        });
        DeviceError::Io {
            call: call.name(),
            at,
            len,
            source: io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()),
        }
    }
}

impl Device for SimDevice {
    crate::private!();

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.tally.read(into.len());
        let len = into.len() as u64;
        range::inside("read", at, len, self.len())?;
        let mut state = self.state.lock();
        let geometry = (self.len(), self.sector_size());
        let verdict = state.faults.judge(Call::Read, at, len, geometry);
        state.events.push(Event::Read { at, len });
        match verdict {
            Verdict::Fail { .. } => {
                drop(state);
                return Err(self.failed(Call::Read, at, into.len()));
            }
            Verdict::Panic { .. } => {
                drop(state);
                panics(Call::Read, at);
            }
            Verdict::Misdirect { to } => state.current.get(to, into),
            _ => state.current.get(at, into),
        }
        if let Verdict::Flip { bit } = verdict {
            flip(into, bit);
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.tally.write(bytes.len());
        let len = bytes.len() as u64;
        range::writable(at, len, self.len(), self.sector_size())?;
        let geometry = (self.len(), self.sector_size());
        let verdict = self.state.lock().faults.judge(Call::Write, at, len, geometry);
        let put = |at: u64, bytes: &[u8]| {
            let event = self.begin(at, bytes, |bytes| Event::Write { at, bytes, returned: None });
            // Lets other threads in, so that flushes fall between the two now and then.
            holdfast_sync::thread::yield_now();
            self.end(event);
        };
        match verdict {
            Verdict::Obey => put(at, bytes),
            Verdict::Fail { kept } => {
                put(at, &bytes[..kept as usize]);
                return Err(self.failed(Call::Write, at, bytes.len()));
            }
            Verdict::Panic { kept } => {
                put(at, &bytes[..kept as usize]);
                panics(Call::Write, at);
            }
            Verdict::Ignore => self.ignored(Call::Write, at, len),
            Verdict::Flip { bit } => {
                let mut rotten = bytes.to_vec();
                flip(&mut rotten, bit);
                put(at, &rotten);
            }
            Verdict::Misdirect { to } => put(to, bytes),
        }
        Ok(())
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.tally.flush();
        let geometry = (self.len(), self.sector_size());
        let (began, verdict) = {
            let mut state = self.state.lock();
            let verdict = state.faults.judge(Call::Flush, 0, 0, geometry);
            (state.events.len(), verdict)
        };
        match verdict {
            Verdict::Fail { .. } => return Err(self.failed(Call::Flush, 0, 0)),
            Verdict::Panic { .. } => panics(Call::Flush, 0),
            Verdict::Ignore => self.ignored(Call::Flush, 0, 0),
            _ => self.state.lock().events.push(Event::Flush { began }),
        }
        Ok(Flushed::new())
    }

    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.tally.discard();
        range::inside("discard", at, len, self.len())?;
        let sector = u64::from(self.sector_size());
        let verdict = self.state.lock().faults.judge(
            Call::Discard,
            at,
            len,
            (self.len(), self.sector_size()),
        );
        match verdict {
            Verdict::Fail { .. } => return Err(self.failed(Call::Discard, at, len as usize)),
            Verdict::Panic { .. } => panics(Call::Discard, at),
            Verdict::Ignore => {
                self.ignored(Call::Discard, at, len);
                return Ok(());
            }
            _ => {}
        }
        let first = at.next_multiple_of(sector);
        let end = ((at + len) / sector * sector).max(first);
        let events = {
            let mut state = self.state.lock();
            let begun = state.events.len();
            let mut runs = with_content(&state.current, first, end);
            if runs.is_empty() {
                runs.push((first, Vec::new()));
            }
            for (at, junk) in runs {
                state.current.put(at, &junk);
                state.events.push(Event::Discard { at, len, junk: junk.into(), returned: None });
            }
            begun..state.events.len()
        };
        holdfast_sync::thread::yield_now();
        events.for_each(|event| self.end(event));
        Ok(())
    }

    fn discards(&self) -> Discards {
        Discards::OfDevice { unit: BLOCK_BYTES }
    }

    fn len(&self) -> u64 {
        self.base.len()
    }

    fn sector_size(&self) -> u32 {
        self.base.sector_size()
    }

    fn physical_sector_size(&self) -> u32 {
        self.base.physical_sector_size()
    }

    fn stats(&self) -> DeviceStats {
        self.tally.stats()
    }
}

impl SimDevice {
    fn ignored(&self, call: Call, at: u64, len: u64) {
        let event = Event::Ignored { call, at, len };
        self.state.lock().events.push(event);
    }
}

/// How the words of [`Action::Panic`] end.
const INJECTED: &str = "panics: injected by the simulated device";

/// What [`Action::Panic`] does.
fn panics(call: Call, at: u64) -> ! {
    panic!("{} at {at} {INJECTED}", call.name())
}

/// Whether this is what `catch_unwind` or a thread's end has given for a panic of [`Action::Panic`], and for no other.
pub fn is_injected(panic: &(dyn Any + Send)) -> bool {
    panic.downcast_ref::<String>().is_some_and(|words| words.ends_with(INJECTED))
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimDevice")
            .field("events", &state.events.len())
            .field("faults", &state.faults)
            .field("current", &state.current)
            .finish()
    }
}

/// Turns one bit of `bytes` over; none if there are no bytes.
fn flip(bytes: &mut [u8], bit: u64) {
    if !bytes.is_empty() {
        let bit = bit % (bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

/// The parts of a range that hold more than zeros, and what they read as when they are discarded; not those that read so
/// already.
fn with_content(device: &MemoryDevice, mut at: u64, end: u64) -> Vec<(u64, Vec<u8>)> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut page = [0; BLOCK_BYTES as usize];
    while at < end {
        let next = ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(end);
        let bytes = &mut page[..(next - at) as usize];
        device.get(at, bytes);
        let junk = junk(at, bytes.len());
        if bytes.iter().any(|byte| *byte != 0) && *bytes != junk[..] {
            match runs.last_mut() {
                Some((from, run)) if *from + run.len() as u64 == at => run.extend(junk),
                _ => runs.push((at, junk)),
            }
        }
        at = next;
    }
    runs
}

/// What a discarded range reads as: neither zeros nor anything that was there.
fn junk(at: u64, len: usize) -> Vec<u8> {
    let word = (at / 512).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut junk = word.to_le_bytes().repeat(len.div_ceil(8));
    junk.truncate(len);
    junk
}

#[cfg(test)]
mod tests;
