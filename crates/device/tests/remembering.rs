//! What a device did not read is asked for once, and no other answer changes by that.

#![allow(missing_docs, unreachable_pub)]

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::prng::Prng;
use holdfast_device::{Device, DeviceError, MemoryDevice, Remembering, forward};
use parking_lot::Mutex;

const UNIT: u64 = 512;
const SECTORS: u64 = 64;

/// Sectors that do not read until they are written, and how often that was tried.
#[derive(Debug)]
struct Bad {
    under: MemoryDevice,
    sectors: Mutex<BTreeSet<u64>>,
    failed: AtomicU64,
}

fn of(at: u64, len: u64) -> std::ops::Range<u64> {
    at / UNIT..(at + len).div_ceil(UNIT)
}

impl Device for Bad {
    forward!(under: flush, discard, len, room, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if self.sectors.lock().range(of(at, into.len() as u64)).next().is_some() {
            self.failed.fetch_add(1, Ordering::Relaxed);
            let source = io::Error::other("a bad sector");
            return Err(DeviceError::Io { call: "read", at, len: into.len() as u64, source });
        }
        self.under.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.sectors.lock().retain(|sector| !of(at, bytes.len() as u64).contains(sector));
        self.under.write(at, bytes)
    }
}

/// Every answer is that of the device, and none of its failures is asked for again.
#[test]
fn what_is_remembered_is_so() {
    for seed in 0..200 {
        let mut prng = Prng::seeded(seed);
        let sectors = (0..prng.below(6)).map(|_| prng.below(SECTORS)).collect();
        let under = MemoryDevice::new(SECTORS * UNIT);
        let bad = Arc::new(Bad { under, sectors: Mutex::new(sectors), failed: 0.into() });
        let device = Remembering::over(bad.clone());
        for _ in 0..200 {
            let at = prng.below(SECTORS * UNIT - 1);
            let len = 1 + prng.below((SECTORS * UNIT - at).min(9 * UNIT));
            if prng.one_in(20) {
                let at = at / UNIT * UNIT;
                device.write(at, &[1; UNIT as usize]).expect("memory takes it");
            }
            let is_bad = bad.sectors.lock().range(of(at, len)).next().is_some();
            let mut into = vec![0; len as usize];
            let failed = || bad.failed.load(Ordering::Relaxed);
            let before = failed();
            let first = device.read(at, &mut into);
            assert_eq!(first.is_err(), is_bad, "seed {seed}: {len} bytes at {at}");
            let after = failed();
            let again = device.read(at, &mut into);
            assert!(after <= before + 1 && failed() == after, "seed {seed}");
            assert_eq!(first.map_err(|of| of.to_string()), again.map_err(|of| of.to_string()));
        }
        // Sector by sector, and from then on all is known.
        let mut sector = [0; UNIT as usize];
        (0..SECTORS).for_each(|at| drop(device.read(at * UNIT, &mut sector)));
        let before = bad.failed.load(Ordering::Relaxed);
        for at in 0..SECTORS {
            let mut all = vec![0; ((SECTORS - at) * UNIT) as usize];
            drop(device.read(at * UNIT, &mut all));
        }
        assert_eq!(bad.failed.load(Ordering::Relaxed), before, "seed {seed}");
    }
}
