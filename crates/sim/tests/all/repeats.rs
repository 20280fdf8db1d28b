//! A script does the same each time: the same calls of the device with the same bytes, in the same order. Without
//! that a seed would find a bug once and never again.
//!
//! Where another thread makes commits beside the script, its moments are its own; that is left out here.

use std::sync::Arc;

use holdfast_base::clock::pin;
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_script::{Profile, Script, Target, generate};
use holdfast_sim::{Checkpoints, Engine, Setup};

/// What the device was asked while the volume was made and the script ran, and what is on it then.
fn run(script: &Script, setup: &Setup) -> (Vec<String>, Vec<u8>) {
    let _pinned = pin(1_700_000_000_000_000_000);
    let base = MemoryDevice::new(8 << 20);
    let device = Arc::new(SimDevice::new(&base));
    let under = Arc::clone(&device) as Arc<dyn Device>;
    let mut engine = Engine::create(under, setup.clone()).expect("it is large enough");
    script.ops().for_each(|op| drop(engine.apply(op)));
    engine.unmount().expect("the device works");
    let events = device.recording().events.iter().map(|event| format!("{event:?}")).collect();
    let mut bytes = vec![0; 8 << 20];
    device.image().read(0, &mut bytes).expect("the device works");
    (events, bytes)
}

#[test]
fn a_script_writes_the_same_bytes_each_time() {
    for seed in 0..12 {
        let checkpoints = match seed % 3 {
            0 => Checkpoints::Never,
            1 => Checkpoints::CommitsAfter(3),
            _ => Checkpoints::After(4),
        };
        let setup = Setup { checkpoints, ..Setup::new([4096, 16384][seed as usize / 3 % 2], 3) };
        let profile = Profile { ops: 60, syncs: 30, remounts: 1, evicts: 1, ..Profile::default() };
        let script = generate(seed, &profile);
        let (first, second) = (run(&script, &setup), run(&script, &setup));
        let differ = first.0.iter().zip(&second.0).find(|(first, second)| first != second);
        assert_eq!(differ, None, "seed {seed}");
        assert!(first == second, "seed {seed}: as many calls and the same bytes");
    }
}
