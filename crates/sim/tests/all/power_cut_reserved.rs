//! Power fails while reserved blocks are written in place, on a volume that has no others.

use std::sync::Arc;

use holdfast_device::sim::Call;
use holdfast_device::{Device, MemoryDevice};
use holdfast_script::{Op, Outcome, Script, Target};
use holdfast_sim::{Checkpoints, Engine, FaultKind, Policy, Setup, count_each, power_cut_after};

use crate::full::{BEFORE, SCRIPTS};

fn parse(text: &str) -> Script {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Runs a script on a volume in memory: everything but the first write of all, which fills the volume, is done.
fn run(script: &str, policy: &Policy) -> u64 {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(policy.volume));
    let mut engine = Engine::create(device, policy.setup.clone()).expect("it is large enough");
    for op in parse(BEFORE).ops() {
        engine.apply(op);
    }
    for op in parse(script).ops() {
        let fills = matches!(op, Op::Append { .. });
        let found = engine.apply(op);
        assert!(matches!(found, Outcome::Ok(_)) != fills, "{op}: {found}, in {script}");
    }
    let counters = engine.filesystem().expect("it is mounted").counters().clone();
    engine.unmount().expect("it can be left");
    counters.reserved_bytes_written.get()
}

#[test]
fn a_power_cut_leaves_zeros_or_the_new_bytes_in_reserved_space() {
    for checkpoints in [Checkpoints::Never, Checkpoints::After(3)] {
        for script in SCRIPTS {
            let setup = Setup { checkpoints, ..Setup::new(4096, 16) };
            let policy = Policy { volume: 8 << 20, setup, ..Policy::default() };
            let in_place = run(script, &policy);
            // Commits and checkpoints between may make room for other blocks.
            let is_meant = !matches!(checkpoints, Checkpoints::Never) || in_place >= 32 << 10;
            assert!(is_meant, "only {in_place} bytes were written in place: {script}");
            let stats = power_cut_after(&parse(BEFORE), &parse(script), &policy)
                .unwrap_or_else(|failure| panic!("{failure}"));
            println!("{stats:?}");
            assert!(stats.cuts >= 8 && stats.opened >= 10, "{stats:?}");
        }
    }
}

/// A device that refuses reserved blocks is asked for others; there are none, and the file's handles hear of it (P7).
#[test]
fn what_a_device_refuses_of_reserved_blocks_is_told() {
    let policy = Policy { volume: 8 << 20, setup: Setup::new(4096, 16), ..Policy::default() };
    for (script, call) in [(SCRIPTS[0], Call::Write), (SCRIPTS[1], Call::Flush)] {
        let told = count_each(&parse(BEFORE), &parse(script), call, FaultKind::FailsOnce, &policy);
        let told = told.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(told.sites() > 3, "{told:?}");
    }
}
