//! Random scripts on the engine and on the plain model: every answer and the whole tree must agree, with remounts between.
//!
//! A failure prints its seed and the shortest script that still fails.

use std::sync::Arc;

use holdfast_base::switch::{Accounting, Dirty};
use holdfast_device::{Device, MemoryDevice};
use holdfast_script::{
    Data, Mismatch, Model, Op, Profile, Rules, Script, Target, compare, compare_trees,
};
use holdfast_sim::{Checkpoints, Engine, Setup, judge};

use crate::agree;

/// Bytes of a volume: small, so that space is reused.
const VOLUME: u64 = 48 << 20;

/// Runs `script` on both; in the end the volume is unmounted, checked, mounted and looked at again.
fn run_on_both(script: &Script, setup: &Setup) -> Result<(), String> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(VOLUME));
    let mut engine = Engine::create(Arc::clone(&device), setup.clone())
        .map_err(|error| format!("mkfs or mount: {error}"))?;
    let mut model = Model::new();
    let text = |mismatch: Mismatch| mismatch.to_string();
    compare(script, &mut model, &mut engine, Rules::LENIENT).map_err(text)?;
    engine.unmount().map_err(|error| format!("unmount: {error}\nscript: {script}"))?;
    model.apply(&Op::Remount);
    let facts = judge(&*device)?.facts;
    if (facts.orphans, facts.inodes) != (0, model.inode_count()) {
        return Err(format!("{} inodes: {facts:?}\nscript: {script}", model.inode_count()));
    }
    engine.mount_on(device).map_err(|error| format!("mount again: {error}\nscript: {script}"))?;
    // Handles are gone; so are the files that only they kept.
    compare_trees(script, &mut model, &mut engine).map_err(text)?;
    engine.unmount().map_err(|error| format!("unmount: {error}\nscript: {script}"))
}

fn agree(first: u64, count: u64, profile: &Profile, setup: &Setup) {
    agree_changed(first, count, profile, setup, |script| script);
}

/// Like [`agree`], with scripts that were changed after they were made.
fn agree_changed(
    first: u64,
    count: u64,
    profile: &Profile,
    setup: &Setup,
    change: impl Fn(Script) -> Script,
) {
    agree::agree(run_on_both, first..first + count, profile, setup, change);
}

/// Everything, with frequent remounts.
fn everything() -> Profile {
    Profile { ops: 150, remounts: 3, ..Profile::default() }
}

#[test]
fn small_nodes_and_no_idle_inodes() {
    agree(0, 60, &everything(), &Setup::new(4096, 0).checked());
}

#[test]
fn middle_nodes_and_one_idle_inode() {
    agree(1_000_000, 60, &everything(), &Setup::new(16384, 1).checked());
}

#[test]
fn large_nodes_and_many_idle_inodes() {
    agree(2_000_000, 60, &everything(), &Setup::new(65536, 10_000).checked());
}

#[test]
fn an_engine_that_is_dropped_after_a_sync_loses_nothing() {
    // As SIGKILL right after a sync: the state is the model's, and orphans are collected (P1, P2).
    let setup = Setup::new(4096, 1).checked();
    let killed = |op: &Op| match op {
        Op::Remount => vec![Op::Sync, Op::Crash],
        op => vec![op.clone()],
    };
    agree_changed(7_000_000, 40, &everything(), &setup, |script| {
        script.ops().flat_map(killed).collect()
    });
}

#[test]
fn hardly_any_memory() {
    let mut setup = Setup::new(4096, 0).checked();
    setup.mount.cache_bytes = 64 << 10;
    setup.mount.dirty_bytes = 16 << 10;
    agree(6_000_000, 40, &Profile { ops: 300, names: 12, ..everything() }, &setup);
}

#[test]
fn checkpoints_beside_and_every_position_of_the_switches() {
    for (first, &dirty) in (8_000_000..).step_by(1000).zip(Dirty::ALL) {
        for (&accounting, node_size) in Accounting::ALL.iter().zip([4096, 65536]) {
            let mut setup = Setup::new(node_size, 1).checked();
            setup.checkpoints = Checkpoints::Beside;
            (setup.mount.dirty, setup.mount.accounting) = (dirty, accounting);
            agree(first, 5, &everything(), &setup);
        }
    }
}

#[test]
fn one_file_and_its_bytes() {
    let profile = Profile { ops: 250, names: 1, depth: 1, specials: false, ..everything() };
    agree(3_000_000, 40, &profile, &Setup::new(4096, 1).checked());
}

#[test]
fn many_names_in_deep_directories() {
    let profile = Profile { ops: 600, names: 26, depth: 8, write_max: 5000, ..everything() };
    agree(4_000_000, 20, &profile, &Setup::new(4096, 1).checked());
}

#[test]
fn without_a_remount_everything_stays_in_memory() {
    let profile = Profile { ops: 300, remounts: 0, syncs: 0, ..everything() };
    agree(5_000_000, 30, &profile, &Setup::new(16384, 10_000).checked());
}

#[test]
fn the_second_opinion_sees_one_flipped_bit() {
    let device = Arc::new(MemoryDevice::new(VOLUME));
    let shared: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&device);
    let mut engine =
        Engine::create(shared, Setup::new(16384, 1).checked()).expect("the device is large enough");
    let script: Script = "mkfile /f; write /f 0 64k 7".parse().expect("two operations");
    compare(&script, &mut Model::new(), &mut engine, Rules::LENIENT).expect("they work");
    engine.unmount().expect("the volume is healthy");
    let mut image = device.to_image();
    judge(&MemoryDevice::from_image(&image)).expect("the volume is healthy");
    let data = Data::Pattern { len: 4096, seed: 7 }.bytes();
    let at = image.chunks(4096).position(|block| block == data).expect("the data is there") * 4096;
    image[at + 99] ^= 4;
    let findings = judge(&MemoryDevice::from_image(&image)).expect_err("a sum is wrong");
    assert!(findings.contains("/f"), "the file is not named: {findings}");
}

/// Ranges are collapsed and inserted; with snapshots beside it: `branches.rs`.
#[test]
fn ranges_that_move() {
    let profile = Profile { branches: 0, ..Profile::shifts() };
    let mut setup = Setup::new(4096, 4).checked();
    setup.mount.cache_bytes = 1 << 20;
    agree(9000, 60, &profile, &setup);
    let setup = Setup { checkpoints: Checkpoints::CommitsAfter(3), ..Setup::new(16384, 100) };
    agree(9100, 40, &profile, &setup.checked());
}
