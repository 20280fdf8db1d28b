//! What a program does between an answer and its next call of the device.

use holdfast_base::clock::SimulatedClock;
use holdfast_device::sim::SharedDevice;
use holdfast_device::{Flushed, MemoryDevice};
use uuid::Uuid;

use super::*;

/// A volume that others reach, and the calls that reach it.
#[derive(Debug)]
struct Told {
    under: SharedDevice,
    calls: Mutex<Vec<&'static str>>,
}

impl Told {
    fn tells(&self, at: u64, of_guard: &'static str, other: &'static str) {
        self.calls.lock().push(if at == place() { of_guard } else { other });
    }
}

impl Device for Told {
    forward!(under: discard, room, take_room, len, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.tells(at, "look", "read");
        self.under.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.tells(at, "answer", "write");
        self.under.write(at, bytes)
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.calls.lock().push("flush");
        self.under.flush()
    }
}

/// A program that has the volume, whose looks hold for a millisecond, and where its calls go.
fn holder() -> (Arc<Guarded>, Arc<Told>) {
    let memory = Arc::new(MemoryDevice::new(1 << 20));
    let under = SharedDevice::new(memory, Reach::Host);
    let told = Arc::new(Told { under, calls: Mutex::default() });
    let soon = Duration::from_millis(1);
    let how = Guarding { host: Some(machine(1)), look: soon, wait: soon, rest: 1 };
    let shared: Arc<dyn Device> = told.clone();
    let guarded = Guarded::over(&shared, false, &how).unwrap();
    guarded.claim(&*told, Uuid::nil(), &how).unwrap();
    guarded.write(0, &[1; 512]).unwrap();
    (guarded, told)
}

fn machine(number: u8) -> Host {
    Host { boot: [number; 16], machine: vec![number; 8], name: format!("machine-{number}") }
}

/// Another machine asks.
fn ask(told: &Told) {
    let mut guard = Guard::decode(&read(&told.under).unwrap()).unwrap();
    guard.nonce ^= 1;
    guard.state = GuardState::Asking;
    write(&told.under, &guard.encode()).unwrap();
}

/// What reaches the device while the holder writes something.
fn calls_of_a_write(guarded: &Guarded, told: &Told) -> Vec<&'static str> {
    told.calls.lock().clear();
    guarded.write(0, &[1; 512]).unwrap();
    std::mem::take(&mut *told.calls.lock())
}

#[test]
fn an_answer_that_may_come_too_late_is_looked_for_before_the_next_call() {
    let clock = SimulatedClock::new();
    let _entered = clock.enter();
    let (guarded, told) = holder();
    assert_eq!(calls_of_a_write(&guarded, &told), ["write"]);
    clock.advance(Duration::from_secs(60));
    assert_eq!(calls_of_a_write(&guarded, &told), ["look", "write"], "no program came");
    clock.advance(Duration::from_secs(60));
    ask(&told);
    let calls = ["look", "answer", "flush", "look", "write"];
    assert_eq!(calls_of_a_write(&guarded, &told), calls);
    assert_eq!(calls_of_a_write(&guarded, &told), ["write"]);
    // The watch wakes up first.
    clock.advance(Duration::from_secs(60));
    ask(&told);
    guarded.look().unwrap();
    assert_eq!(calls_of_a_write(&guarded, &told), ["flush", "look", "write"]);
    assert_eq!(calls_of_a_write(&guarded, &told), ["write"]);
}

#[test]
fn an_answer_in_time_is_read_for_certain_and_keeps_no_call_waiting() {
    let clock = SimulatedClock::new();
    let _entered = clock.enter();
    let (guarded, told) = holder();
    ask(&told);
    guarded.look().unwrap();
    guarded.flush_answer().unwrap();
    assert_eq!(calls_of_a_write(&guarded, &told), ["write"]);
}

#[test]
fn a_program_that_asks_again_and_again_keeps_no_call_waiting_for_longer() {
    let clock = SimulatedClock::new();
    let _entered = clock.enter();
    let (guarded, told) = holder();
    clock.advance(Duration::from_secs(60));
    ask(&told);
    guarded.look().unwrap();
    ask(&told);
    let calls = ["flush", "look", "answer", "flush", "write"];
    assert_eq!(calls_of_a_write(&guarded, &told), calls);
    assert_eq!(calls_of_a_write(&guarded, &told), ["write"]);
}

/// What answers late and cannot look again does not go on.
#[test]
fn a_late_answer_is_in_doubt_until_a_look_has_seen_it() {
    let clock = SimulatedClock::new();
    let _entered = clock.enter();
    let (guarded, told) = holder();
    clock.advance(Duration::from_secs(60));
    ask(&told);
    guarded.look().unwrap();
    let mut other = Guard::decode(&read(&told.under).unwrap()).unwrap();
    other.nonce ^= 2;
    write(&told.under, &other.encode()).unwrap();
    let refused = guarded.write(0, &[2; 512]).unwrap_err();
    assert!(matches!(refused, DeviceError::TakenOver { .. }), "{refused}");
    assert!(!told.calls.lock().ends_with(&["write"]));
}

/// A program that repairs a volume holds it as a mount does: another machine is refused until it is left.
#[test]
fn a_hold_keeps_others_out_until_it_is_left() {
    let memory = Arc::new(MemoryDevice::new(1 << 20));
    let device = || -> Arc<dyn Device> { Arc::new(SharedDevice::new(memory.clone(), Reach::Host)) };
    let how = |number| {
        // A waiter gets its answer.
        let (look, wait) = (Duration::from_millis(5), Duration::from_secs(3600));
        Guarding { host: Some(machine(number)), look, wait, rest: 1000 }
    };
    let first = Hold::take(device(), [0; 16], &how(1)).unwrap();
    first.device().write(0, &[1; 512]).unwrap();
    assert!(Hold::take(device(), [0; 16], &how(2)).is_err(), "the first one answers");
    first.device().write(0, &[2; 512]).unwrap();
    first.leave();
    let stood = memory.to_image();
    // One that does nothing leaves what stood there.
    let second = Hold::take(device(), [0; 16], &how(2)).unwrap();
    assert!(memory.to_image() != stood);
    drop(second);
    assert!(memory.to_image() == stood);
    // A device out of others' reach has no guard.
    let alone: Arc<dyn Device> = memory.clone();
    Hold::take(alone, [0; 16], &how(3)).unwrap().leave();
    assert!(memory.to_image() == stood);
}
