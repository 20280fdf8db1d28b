//! Each call of the device goes wrong once in the story of a volume that two machines reach: fails, fails from then on,
//! or panics. So do the calls that read, write and flush its guard.
//!
//! The story: a machine has crashed. The first one asks, waits and opens; works; sleeps; is asked and answers; works;
//! sleeps; the second one takes the volume. From then on the first one writes nothing, whatever its callers ask. What
//! it made durable before is there. A fault in the calls of the second machine is its own affair.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::clock::SimulatedClock;
use holdfast_base::counters::Counters;
use holdfast_device::host::Host;
use holdfast_device::sim::{self, Call, SharedDevice};
use holdfast_device::{Device, MemoryDevice, Reach, SimDevice};
use holdfast_format::geometry::GUARD;
use holdfast_format::guard::{Guard, GuardState};
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_sim::FaultKind;
use holdfast_store::{
    Branch, CreateOptions, Guarding, Need, OpenOptions, Result, Store, Transaction,
};

const BYTES: u64 = 8 << 20;
const SLEEP: Duration = Duration::from_secs(60);

fn machine(number: u8) -> Host {
    Host { boot: [number; 16], machine: vec![number; 8], name: format!("machine-{number}") }
}

/// Without threads: each call of the device is made here, the looks at the guard too, after a sleep.
fn open(device: &Arc<SimDevice>, number: u8) -> Result<Branch> {
    let wait = Duration::from_millis(1);
    let guard = Guarding { host: Some(machine(number)), look: wait, wait, ..Guarding::default() };
    let options = OpenOptions { threads: false, guard, ..OpenOptions::default() };
    let name = SharedDevice::cached(device.clone(), Reach::Host);
    Store::open(Arc::new(name), &options, Arc::new(Counters::default())).map(Store::into_main)
}

fn key(number: u64) -> Key {
    Key::new(InodeNo(1000), ItemKind::Extent, number)
}

/// Puts one value and makes it durable.
fn put(store: &Branch, number: u64) -> Result<()> {
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 0 })?;
    let mut transaction = Transaction::new();
    transaction.put(key(number), vec![7; 100]);
    let lsn = store.apply(transaction, &mut room)?;
    store.sync(lsn, InodeNo(1000)).map(drop)
}

/// Another machine writes its guard, if the device lets it. Says whether it did.
fn foreign(device: &SimDevice, state: GuardState) -> bool {
    let act = || {
        let mut block = [0; 4096];
        device.read(GUARD.byte_offset().unwrap(), &mut block).ok()?;
        let found = Guard::decode(&block).ok()?;
        let (nonce, boot) = (found.nonce ^ 1, machine(2).boot);
        let mine = Guard { nonce, boot, machine: 2, state, name: machine(2).name, ..found };
        device.write(GUARD.byte_offset().unwrap(), &mine.encode()[..]).ok()?;
        device.flush().map(drop).ok()
    };
    catch_unwind(AssertUnwindSafe(act)).is_ok_and(|done| done.is_some())
}

#[derive(Default)]
struct StoryFacts {
    /// Values that were acknowledged.
    durable: Vec<u64>,
    is_refused: bool,
    /// What the device held when the second machine had taken it.
    taken: Option<MemoryDevice>,
}

fn story(device: &Arc<SimDevice>, clock: SimulatedClock, seen: &mut StoryFacts) {
    let one = match open(device, 1) {
        Ok(one) => one,
        Err(_) => return seen.is_refused = true,
    };
    let work = |store: &Branch, numbers: std::ops::Range<u64>, seen: &mut StoryFacts| {
        for number in numbers {
            // A panic of the device ends the call; the volume is used on.
            match catch_unwind(AssertUnwindSafe(|| put(store, number))) {
                Ok(Ok(())) => seen.durable.push(number),
                Ok(Err(_)) | Err(_) => seen.is_refused = true,
            }
        }
    };
    work(&one, 0..2, seen);
    clock.advance(SLEEP);
    foreign(device, GuardState::Asking);
    work(&one, 2..4, seen);
    clock.advance(SLEEP);
    if foreign(device, GuardState::Open) {
        seen.taken = Some(device.image());
    }
    let before = seen.durable.len();
    work(&one, 4..6, seen);
    if seen.taken.is_some() {
        assert_eq!(seen.durable.len(), before, "an fsync said 0 behind the takeover");
    }
    let _ = catch_unwind(AssertUnwindSafe(|| one.close()));
}

#[test]
fn every_call_of_a_volume_that_another_machine_takes() {
    let clock = SimulatedClock::new();
    let _entered = clock.enter();
    let base = Arc::new(MemoryDevice::new(BYTES));
    let options = CreateOptions {
        geometry: Geometry::for_device(BYTES, 4096).unwrap(),
        uuid: uuid::Uuid::from_u128(4),
        label: String::new(),
        hash_seed: 1,
        node_tag: *b"of nodes",
        created: Default::default(),
    };
    Store::create(&(base.clone() as Arc<dyn Device>), &options).unwrap();
    // A machine that crashed: its guard stands open.
    let crashed = Arc::new(SimDevice::new(&base));
    drop(open(&crashed, 9).unwrap());
    let base = crashed.image();

    let mut table: BTreeMap<(&str, FaultKind), [u64; 3]> = BTreeMap::new();
    for call in [Call::Read, Call::Write, Call::Flush] {
        for how in FaultKind::ALL {
            for nth in 1.. {
                let place = format!("{} {nth} {}", call.name(), how.name());
                let device = Arc::new(SimDevice::with_faults(&base, how.at(call, nth)));
                let mut seen = StoryFacts::default();
                let told = catch_unwind(AssertUnwindSafe(|| story(&device, clock, &mut seen)));
                if let Err(panic) = told {
                    let text = panic.downcast_ref::<String>().map_or("", String::as_str);
                    // A claim that dies takes the opening with it.
                    assert!(sim::is_injected(&*panic), "{place}: {text}");
                    seen.is_refused = true;
                }
                if let Some(taken) = &seen.taken {
                    let is_left = device.image().to_image() == taken.to_image();
                    assert!(is_left, "{place}: it wrote behind the takeover");
                }
                let fired = device.faults_fired();
                let healed = Arc::new(SimDevice::new(&device.image()));
                let left = open(&healed, 3).unwrap_or_else(|why| panic!("{place}: {why}"));
                for number in &seen.durable {
                    let value = left.get(&key(*number)).unwrap();
                    assert!(value.is_some(), "{place}: {number} is lost");
                }
                drop(left);
                let row = table.entry((call.name(), how)).or_default();
                if fired == 0 {
                    assert_eq!(seen.durable, [0, 1, 2, 3], "{place}");
                    assert!(seen.taken.is_some());
                    break;
                }
                row[0] += 1;
                row[1] += u64::from(seen.durable.len() < 4);
                row[2] += u64::from(seen.taken.is_some());
            }
        }
    }
    println!("| call | it | calls | something was refused before the takeover | taken over |");
    println!("| --- | --- | --- | --- | --- |");
    for ((call, how), [calls, refused, taken]) in &table {
        println!("| {call} | {} | {calls} | {refused} | {taken} |", how.name());
    }
    for ((call, how), [calls, refused, _]) in &table {
        assert!(*calls > 4 && *refused > 0, "{call} {}: {calls} calls", how.name());
    }
}
