//! Two programs with one device, and no lock between them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::clock::SimulatedClock;
use holdfast_base::counters::Counters;
use holdfast_device::host::Host;
use holdfast_device::sim::{Call, Faults, Policy, SharedDevice};
use holdfast_device::{Device, DeviceError, Reach, SimDevice, forward};
use holdfast_format::geometry::GUARD;
use holdfast_format::guard::{Guard, GuardState};
use holdfast_store::{Branch, Guarding, Need, OpenOptions, Result, Store, StoreError, Transaction};

use crate::small::{self, first, put, sync};

/// Longer than any test: one that waits for so long hangs, and is seen.
const FOREVER: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(20);

fn machine(number: u8, boot: u8) -> Host {
    Host { boot: [boot; 16], machine: vec![number; 8], name: format!("machine-{number}") }
}

/// Opens under a name of its own, as a program on `host` that waits so long for an answer.
fn open_as<D: Device + 'static>(
    device: &Arc<D>,
    reach: Reach,
    host: Host,
    wait: Duration,
) -> Result<Branch> {
    let guard = Guarding { host: Some(host), look: Duration::from_millis(2), wait, rest: u32::MAX };
    open_how(device, reach, OpenOptions { guard, ..OpenOptions::default() })
}

fn open_how<D: Device + 'static>(
    device: &Arc<D>,
    reach: Reach,
    options: OpenOptions,
) -> Result<Branch> {
    let name: Arc<dyn Device> = Arc::new(SharedDevice::new(device.clone(), reach));
    Store::open(name, &options, Arc::new(Counters::default())).map(Store::into_main)
}

fn guard_on(device: &dyn Device) -> Option<Guard> {
    let mut block = [0; 4096];
    device.read(GUARD.byte_offset().unwrap(), &mut block).unwrap();
    Guard::decode(&block).ok()
}

fn expect_refusal(opened: Result<Branch>, by: &str) {
    match opened.map(drop) {
        Err(StoreError::Device(DeviceError::InUse { holder, .. })) => {
            assert!(holder.contains(by), "{holder}");
        }
        other => panic!("it was let in, or refused for something else: {other:?}"),
    }
}

#[test]
fn a_second_machine_is_refused_and_the_first_one_goes_on() {
    let device = small::formatted();
    let one = open_as(&device, Reach::Host, machine(1, 1), FOREVER).unwrap();
    put(&one, 0..5, 1, 9);
    sync(&one);
    for _ in 0..3 {
        expect_refusal(open_as(&device, Reach::Host, machine(2, 2), FOREVER), "machine-1");
    }
    put(&one, 5..10, 2, 9);
    sync(&one);
    one.close().unwrap();
    assert_eq!(guard_on(&*device).unwrap().state, GuardState::Closed);
    // It was left in order: the opening does not wait.
    let two = open_as(&device, Reach::Host, machine(2, 2), FOREVER).unwrap();
    assert_eq!((first(&two, 0), first(&two, 9)), (Some(1), Some(2)));
}

/// Two names of a device on one machine, and no lock that both take.
#[test]
fn a_second_program_of_the_machine_is_refused_where_locks_do_not_tell() {
    let device = small::formatted();
    let one = open_as(&device, Reach::Unknown, machine(1, 1), FOREVER).unwrap();
    expect_refusal(open_as(&device, Reach::Unknown, machine(1, 1), FOREVER), "machine-1");
    put(&one, 0..5, 1, 9);
    sync(&one);
    drop(one);
    let two = open_as(&device, Reach::Unknown, machine(1, 1), SOON).unwrap();
    assert_eq!(first(&two, 4), Some(1));
}

#[test]
fn after_a_crash_a_program_does_not_wait_if_the_other_one_is_known_to_have_ended() {
    let device = small::formatted();
    let crashed = |reach, host| drop(open_as(&device, reach, host, FOREVER).unwrap());
    crashed(Reach::Host, machine(1, 1));
    // The lock proves it.
    crashed(Reach::Host, machine(1, 1));
    // The machine was started again.
    crashed(Reach::Host, machine(1, 2));
    crashed(Reach::Unknown, machine(1, 3));
    // Another one asks, and gets no answer.
    drop(open_as(&device, Reach::Host, machine(2, 4), SOON).unwrap());
    // A machine that is not known is any machine.
    let unknown = |boot| Host { machine: Vec::new(), ..machine(3, boot) };
    drop(open_as(&device, Reach::Host, unknown(5), SOON).unwrap());
    drop(open_as(&device, Reach::Host, unknown(6), SOON).unwrap());
}

/// A mount that is not used costs the device nothing, and must not write over one that has taken its volume.
#[test]
fn a_mount_at_rest_that_has_lost_its_volume_writes_nothing() {
    let device = small::formatted();
    let guard = Guarding {
        host: Some(machine(1, 1)),
        look: Duration::from_millis(1),
        wait: FOREVER,
        rest: 2,
    };
    let one =
        open_how(&device, Reach::Host, OpenOptions { guard, ..OpenOptions::default() }).unwrap();
    put(&one, 0..5, 1, 9);
    sync(&one);
    let two = loop {
        while !one.is_at_rest() {
            std::thread::yield_now();
        }
        match open_as(&device, Reach::Host, machine(2, 2), SOON) {
            Ok(two) => break two,
            Err(error) => println!("it was not at rest yet: {error}"),
        }
    };
    assert_eq!(first(&two, 4), Some(1), "what it had made durable");
    put(&two, 5..10, 2, 9);
    sync(&two);
    let before = device.snapshot();
    put(&one, 0..5, 7, 7);
    let refused = one.sync(one.latest(), holdfast_base::InodeNo(20)).unwrap_err().to_string();
    assert!(refused.contains("machine-2"), "{refused}");
    assert!(one.stop_reason().is_some());
    one.close().unwrap_err();
    assert!(device.to_image() == before.to_image(), "it wrote to a volume that is another's");
    put(&two, 10..12, 3, 9);
    sync(&two);
    two.close().unwrap();
    let three = small::open(&device);
    assert_eq!(
        (first(&three, 0), first(&three, 9), first(&three, 11)),
        (Some(1), Some(2), Some(3))
    );
}

/// One that is used again before another takes its volume just goes on.
#[test]
fn a_mount_at_rest_goes_on_when_no_other_program_came() {
    let device = small::formatted();
    let guard = Guarding { look: Duration::from_millis(1), rest: 1, ..Guarding::default() };
    let one =
        open_how(&device, Reach::Host, OpenOptions { guard, ..OpenOptions::default() }).unwrap();
    for round in 0..5 {
        while !one.is_at_rest() {
            std::thread::yield_now();
        }
        put(&one, round..round + 1, 1, 9);
        sync(&one);
    }
    one.close().unwrap();
    assert_eq!(guard_on(&*device).unwrap().state, GuardState::Closed);
}

/// A mkfs elsewhere takes the volume away, and is refused while it is used.
#[test]
fn a_volume_that_is_made_anew_elsewhere_is_not_written_to() {
    let device = small::formatted();
    let one = open_as(&device, Reach::Host, machine(1, 1), FOREVER).unwrap();
    let make = || {
        let name: Arc<dyn Device> = Arc::new(SharedDevice::new(device.clone(), Reach::Host));
        let options = holdfast_store::CreateOptions {
            geometry: small::geometry(),
            uuid: uuid::Uuid::from_u128(99),
            label: String::new(),
            hash_seed: 1,
            node_tag: *b"of nodes",
            created: Default::default(),
        };
        Store::create(&name, &options)
    };
    let refused = make().unwrap_err();
    assert!(refused.to_string().contains("machine-1"), "{refused}");
    put(&one, 0..5, 1, 9);
    sync(&one);
    one.close().unwrap();
    make().unwrap();
    assert_eq!(guard_on(&*device).unwrap().uuid.as_u128(), 99);
}

/// P9, and the guard is never in the way: power fails at every write and flush of two openings, the guard torn in any
/// way. Another machine opens what is left, and finds what was durable.
#[test]
fn power_fails_at_every_call_of_generations_with_a_guard() {
    let device = small::formatted();
    let sim = Arc::new(SimDevice::new(&device));
    let mut durable = Vec::new();
    for opening in 0..2u64 {
        let guard =
            Guarding { host: Some(machine(1, 1)), wait: Duration::ZERO, ..Guarding::default() };
        let options = OpenOptions { threads: false, guard, ..OpenOptions::default() };
        let store = open_how(&sim, Reach::Host, options).unwrap();
        for number in opening * 3..opening * 3 + 3 {
            put(&store, number..number + 1, 1, 9);
            sync(&store);
            durable.push((sim.recording().events.len(), number));
        }
        if opening == 0 { store.close().unwrap() } else { drop(store) }
    }
    let recording = sim.recording();
    let policy = Policy { exhaustive: 3, each: 4, samples: 2, torn: 9, ..Policy::default() };
    let mut images = 0;
    for index in 0..=recording.events.len() {
        for image in recording.cut_at(index).images(&policy) {
            let left = Arc::new(image.device());
            let guard =
                Guarding { host: Some(machine(2, 2)), wait: Duration::ZERO, ..Guarding::default() };
            let options = OpenOptions { threads: false, guard, ..OpenOptions::default() };
            let store = open_how(&left, Reach::Host, options).unwrap();
            for (since, number) in &durable {
                assert!(
                    *since > index || first(&store, *number) == Some(1),
                    "{}",
                    image.describe()
                );
            }
            store.close().unwrap();
            images += 1;
        }
    }
    println!("{images} images of {} events", recording.events.len());
    assert!(images > recording.events.len());
}

/// The guard's sector is damaged, or cannot be read: the volume opens. A call that fails is an error or is got over,
/// and the volume is what it was.
#[test]
fn a_guard_that_is_damaged_or_refused_takes_no_volume_down() {
    let device = small::formatted();
    let one = open_as(&device, Reach::Host, machine(1, 1), FOREVER).unwrap();
    put(&one, 0..5, 1, 9);
    one.close().unwrap();
    for damage in [vec![0; 4096], vec![0xff; 512], b"hfGuard\n".repeat(64)] {
        device.write(GUARD.byte_offset().unwrap(), &damage).unwrap();
        let store = open_as(&device, Reach::Unknown, machine(2, 2), FOREVER).unwrap();
        store.close().unwrap();
    }
    for call in [Call::Read, Call::Write, Call::Flush] {
        for nth in 1.. {
            let sim = Arc::new(SimDevice::new(&device));
            sim.set_faults(Faults::fail_once(call, nth));
            let guard =
                Guarding { host: Some(machine(3, 3)), wait: FOREVER, ..Guarding::default() };
            let options = OpenOptions { threads: false, guard, ..OpenOptions::default() };
            let done = open_how(&sim, Reach::Host, options).and_then(|store| {
                let mut room = store.reserve(Need::Grow { changes: 1, blocks: 0 })?;
                let mut transaction = Transaction::new();
                transaction.put(small::key(5), vec![1; 900]);
                store.apply(transaction, &mut room)?;
                store.commit()?;
                store.close()
            });
            let fired = sim.faults_fired();
            sim.set_faults(Faults::none());
            let store = open_as(&sim, Reach::Host, machine(3, 3), FOREVER).unwrap();
            assert!((0..5).all(|number| first(&store, number) == Some(1)));
            assert!(done.is_err() || first(&store, 5) == Some(1));
            if fired == 0 {
                done.unwrap();
                break;
            }
        }
    }
}

/// A filesystem that shows a file again, as those of FUSE and overlays do, has locks of its own. An opener by it has a guard.
#[test]
fn a_name_that_needs_no_guard_asks_a_program_of_this_machine_that_has_one() {
    let device = small::formatted();
    let shown = open_as(&device, Reach::Unknown, machine(1, 1), FOREVER).unwrap();
    expect_refusal(open_as(&device, Reach::Alone, machine(1, 1), FOREVER), "machine-1");
    put(&shown, 0..5, 1, 9);
    sync(&shown);
    shown.close().unwrap();
    drop(open_as(&device, Reach::Alone, machine(1, 1), FOREVER).unwrap());
    assert_eq!(guard_on(&*device).unwrap().state, GuardState::Closed, "it has none of its own");
    // It died. Another machine, or another start of this one, is none that could have it.
    drop(open_as(&device, Reach::Unknown, machine(1, 1), FOREVER).unwrap());
    drop(open_as(&device, Reach::Alone, machine(1, 2), FOREVER).unwrap());
    let alone = open_as(&device, Reach::Alone, machine(1, 1), SOON).unwrap();
    assert_eq!(first(&alone, 0), Some(1));
    expect_refusal(open_as(&device, Reach::Unknown, machine(1, 1), FOREVER), "machine-1");
    alone.close().unwrap();
}

/// P9: a volume that is refused for its damage is left as it was, its guard too.
#[test]
fn a_refused_volume_keeps_its_guard() {
    let device = small::formatted();
    let one = open_as(&device, Reach::Host, machine(1, 1), FOREVER).unwrap();
    put(&one, 0..5, 1, 9);
    one.checkpoint().unwrap();
    let root = one.superblock().space.block;
    drop(one);
    device.write(root.byte_offset().unwrap(), &[7; 4096]).unwrap();
    let before = device.to_image();
    let refused = open_as(&device, Reach::Host, machine(1, 1), FOREVER).map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Node { .. }), "{refused}");
    assert!(device.to_image() == before);
}

/// A device that no other machine reaches has no guard, and an opening for reading writes none.
#[test]
fn no_guard_where_none_is_needed() {
    let device = small::formatted();
    let alone = open_as(&device, Reach::Alone, machine(1, 1), FOREVER).unwrap();
    assert_eq!(guard_on(&*device), None);
    drop(alone);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    drop(open_how(&device, Reach::Unknown, options).unwrap());
    assert_eq!(guard_on(&*device), None);
}

/// Opens without threads, so that no watcher looks meanwhile: as on a machine that is asleep.
fn open_asleep(name: SharedDevice, host: Host) -> Branch {
    let guard = Guarding { host: Some(host), wait: SOON, ..Guarding::default() };
    let options = OpenOptions { threads: false, guard, ..OpenOptions::default() };
    Store::open(Arc::new(name), &options, Arc::new(Counters::default()))
        .map(Store::into_main)
        .unwrap()
}

/// Another machine takes the volume of one that is suspended, and works. The first one wakes up and writes nothing,
/// also where each of them reads through a cache of its own.
#[test]
fn a_machine_that_was_asleep_looks_before_it_writes() {
    let clock = SimulatedClock::new();
    let _entered = clock.enter();
    for name in [SharedDevice::new, SharedDevice::cached] {
        let device = small::formatted();
        let one = open_asleep(name(device.clone(), Reach::Host), machine(1, 1));
        put(&one, 0..5, 1, 9);
        sync(&one);
        // No other program came: it goes on.
        clock.advance(Duration::from_secs(60));
        put(&one, 5..6, 1, 9);
        sync(&one);
        clock.advance(Duration::from_secs(60));
        let two = open_asleep(name(device.clone(), Reach::Host), machine(2, 2));
        put(&two, 6..9, 2, 9);
        sync(&two);
        let before = device.to_image();
        put(&one, 9..10, 3, 9);
        let refused = one.sync(one.latest(), InodeNo(20)).map(drop).unwrap_err();
        assert!(matches!(refused, StoreError::Device(DeviceError::TakenOver { .. })), "{refused}");
        drop(one);
        assert!(device.to_image() == before, "it has written into a volume that another one has");
        put(&two, 9..10, 2, 9);
        sync(&two);
        two.close().unwrap();
        let left = open_asleep(name(device, Reach::Host), machine(2, 2));
        assert_eq!((first(&left, 5), first(&left, 9)), (Some(1), Some(2)));
    }
}

/// What is done before a read, or a write of these bytes, at a place.
type Before = Box<dyn Fn(Call, u64, &[u8]) + Send + Sync>;

/// A name of the device under which each call first does what the test wants.
struct Steered {
    under: SharedDevice,
    before: Before,
}

impl std::fmt::Debug for Steered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Steered")
    }
}

impl Device for Steered {
    forward!(under: flush, discard, room, take_room, len, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> std::result::Result<(), DeviceError> {
        (self.before)(Call::Read, at, &[]);
        self.under.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> std::result::Result<(), DeviceError> {
        (self.before)(Call::Write, at, bytes);
        self.under.write(at, bytes)
    }
}

/// A machine wakes up and answers just after the other one, that asks, has looked for the last time. The other one opens
/// the volume over that answer. The one that woke up writes nothing behind it.
#[test]
fn an_answer_that_comes_after_the_last_look_is_given_up() {
    let clock = SimulatedClock::new();
    let _entered = clock.enter();
    let device = small::formatted();
    let at = GUARD.byte_offset().unwrap();
    // The second machine stops before it writes that the volume is its own, and says when it has the volume.
    let (arrive, arrived) = channel();
    let (go_on, may_go_on) = channel();
    let (open, opened) = channel();
    let is_awake = Arc::new(AtomicBool::new(false));
    let looks = AtomicU32::new(0);
    let written = Arc::new(AtomicU32::new(0));
    let (go_on_too, opened) = (go_on.clone(), Mutex::new(opened));
    let before = {
        let (is_awake, written) = (is_awake.clone(), written.clone());
        move |call, place, _: &[u8]| match (call, place == at) {
            _ if !is_awake.load(Relaxed) => {}
            // Its first look finds the question, the second one comes behind the other machine's opening.
            (Call::Read, true) if looks.fetch_add(1, Relaxed) == 1 => {
                go_on_too.send(()).unwrap();
                opened.lock().unwrap().recv().unwrap();
            }
            (Call::Write, false) => drop(written.fetch_add(1, Relaxed)),
            _ => {}
        }
    };
    let name = |before: Before| {
        let under = SharedDevice::new(device.clone(), Reach::Host);
        Arc::new(Steered { under, before })
    };
    let options = |number| {
        let (look, wait) = (Duration::from_millis(1), SOON);
        let guard = Guarding { host: Some(machine(number, number)), look, wait, rest: 1 };
        OpenOptions { threads: false, guard, ..OpenOptions::default() }
    };
    let one = Store::open(name(Box::new(before)), &options(1), Arc::default())
        .map(Store::into_main)
        .unwrap();
    put(&one, 0..5, 1, 9);
    sync(&one);
    clock.advance(Duration::from_secs(60));
    put(&one, 5..6, 3, 9);
    std::thread::scope(|scope| {
        let (name, options) = (&name, &options);
        let other = scope.spawn(move || {
            let may_go_on = Mutex::new(may_go_on);
            let before = move |call, place, bytes: &[u8]| {
                let is_guard = matches!(call, Call::Write) && place == at;
                let block = bytes.try_into().ok().filter(|_| is_guard);
                let guard = block.and_then(|block| Guard::decode(block).ok());
                if guard.is_some_and(|guard| guard.state == GuardState::Open) {
                    arrive.send(()).unwrap();
                    may_go_on.lock().unwrap().recv().unwrap();
                }
            };
            let two = Store::open(name(Box::new(before)), &options(2), Arc::default())
                .map(Store::into_main)
                .unwrap();
            open.send(()).unwrap();
            two
        });
        arrived.recv().unwrap();
        is_awake.store(true, Relaxed);
        let refused = one.sync(one.latest(), InodeNo(20)).map(drop);
        // If it has not looked again the other one still stands there.
        go_on.send(()).unwrap();
        let two = other.join().unwrap();
        let Err(StoreError::Device(DeviceError::TakenOver { .. })) = refused else {
            panic!("it went on: {refused:?}");
        };
        assert_eq!(written.load(Relaxed), 0, "it wrote into a volume that another one has");
        drop(one);
        put(&two, 6..9, 2, 9);
        sync(&two);
        assert_eq!((first(&two, 4), first(&two, 5), first(&two, 8)), (Some(1), None, Some(2)));
        two.close().unwrap();
    });
}
