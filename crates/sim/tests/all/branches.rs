//! Scripts with branches and snapshots on the engine: every answer is the model's, all trees are, and after power cuts all
//! branches are of one moment (P3, P12 to P14), in which each snapshot and branch can be removed.
//!
//! A failure prints its seed and the shortest script that still fails.

use std::sync::Arc;

use holdfast_device::sim::Call;
use holdfast_device::{Device, MemoryDevice};
use holdfast_script::{
    Mismatch, Op, Profile, Rules, Script, Target, VolumeModel, compare, compare_trees,
};
use holdfast_sim::{
    Campaign, Checkpoints, Engine, FaultKind, Policy, Setup, Source, count_each, judge,
};

use crate::agree;
use crate::seeds::seeds;

/// Bytes of a volume: small, so that space is reused.
const VOLUME: u64 = 48 << 20;

fn engine(setup: &Setup) -> (Arc<dyn Device>, Engine) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(VOLUME));
    let engine = Engine::create(Arc::clone(&device), setup.clone());
    (device, engine.expect("the device is large enough"))
}

/// Runs `script` on both; in the end the volume is unmounted, checked, mounted and looked at again, before and after all
/// removals have come to their end.
fn run_on_both(script: &Script, setup: &Setup) -> Result<(), String> {
    let (device, mut engine) = engine(setup);
    let mut model = VolumeModel::new();
    let text = |mismatch: Mismatch| mismatch.to_string();
    let failed = |what: &str, error: String| format!("{what}: {error}\nscript: {script}");
    compare(script, &mut model, &mut engine, Rules::LENIENT).map_err(text)?;
    for finished in [false, true] {
        if finished {
            engine.finish_removals().map_err(|error| failed("removals", error.to_string()))?;
            compare_trees(script, &mut model, &mut engine).map_err(text)?;
        }
        engine.unmount().map_err(|error| failed("unmount", error.to_string()))?;
        model.apply(&Op::Remount);
        judge(&*device).map_err(|findings| failed("check", findings))?;
        let again = engine.mount_on(Arc::clone(&device));
        again.map_err(|error| failed("mount again", error.to_string()))?;
        compare_trees(script, &mut model, &mut engine).map_err(text)?;
    }
    engine.unmount().map_err(|error| failed("unmount", error.to_string()))
}

fn agree(first: u64, count: u64, profile: &Profile, setup: &Setup, change: fn(Script) -> Script) {
    agree::agree(run_on_both, first..first + count, profile, setup, change);
}

/// Everything, with frequent remounts.
fn everything() -> Profile {
    Profile { ops: 120, remounts: 4, ..Profile::branches() }
}

#[test]
fn small_nodes_and_no_idle_inodes() {
    agree(0, 40, &everything(), &Setup::new(4096, 0).checked(), |script| script);
}

#[test]
fn large_nodes_and_many_idle_inodes() {
    agree(1_000_000, 40, &everything(), &Setup::new(65536, 10_000).checked(), |script| script);
}

/// Ranges move in files that snapshots and other branches have as well.
#[test]
fn ranges_that_move() {
    let profile = Profile { remounts: 4, ..Profile::shifts() };
    agree(9_000_000, 60, &profile, &Setup::new(4096, 4).checked(), |script| script);
    let setup = Setup { checkpoints: Checkpoints::CommitsAfter(3), ..Setup::new(16384, 100) };
    agree(9_100_000, 40, &profile, &setup.checked(), |script| script);
}

#[test]
fn long_lives_without_a_remount() {
    let profile = Profile { ops: 600, remounts: 0, names: 8, ..everything() };
    agree(2_000_000, 8, &profile, &Setup::new(4096, 10).checked(), |script| script);
}

#[test]
fn commits_and_checkpoints_between_any_two_operations() {
    for (first, checkpoints) in [
        (3_000_000, Checkpoints::After(2)),
        (3_100_000, Checkpoints::CommitsAfter(1)),
        (3_200_000, Checkpoints::CommitsAfter(3)),
        (3_300_000, Checkpoints::RestsAfter(2)),
    ] {
        let setup = Setup { checkpoints, ..Setup::new(4096, 1).checked() };
        agree(first, 10, &everything(), &setup, |script| script);
    }
}

#[test]
fn commits_and_checkpoints_beside() {
    for (first, checkpoints) in
        [(4_000_000, Checkpoints::Beside), (4_100_000, Checkpoints::CommitsBeside)]
    {
        let setup = Setup { checkpoints, ..Setup::new(4096, 1).checked() };
        agree(first, 10, &everything(), &setup, |script| script);
    }
}

/// As SIGKILL right behind what has returned: a change of branches needs no sync (P12).
#[test]
fn an_engine_that_is_dropped_behind_a_change_of_branches_loses_nothing() {
    let setup = Setup::new(4096, 1).checked();
    agree(5_000_000, 30, &everything(), &setup, |script| {
        let killed = |op: &Op| match op {
            Op::Remount => vec![Op::Sync, Op::Crash],
            op => vec![op.clone()],
        };
        script.ops().flat_map(killed).collect()
    });
}

fn survives(source: Source) {
    for seed in seeds(1..2) {
        let campaign = Campaign {
            seed,
            workers: 2,
            sector: 512,
            physical_sector: 512,
            copies: None,
            sources: vec![source.clone()],
            time: None,
            states: None,
            failures: 1,
            cases: None,
        };
        let (rows, violations) =
            campaign.run(&mut |_| ()).unwrap_or_else(|failure| panic!("{failure}"));
        if let Some(violation) = violations.first() {
            let found_by = &violation.case.facts.found_by;
            panic!("campaign seed {seed}, {found_by}: {}", violation.small);
        }
        println!("seed {seed}: {rows:?}");
        assert!(rows[0].stats.images > 1000, "{rows:?}");
    }
}

#[test]
fn power_cuts_in_stories_of_branches_and_by_chance() {
    survives(Source::Branches(Some(3 * 4)));
}

#[test]
fn power_cuts_on_full_volumes() {
    survives(Source::FullBranches(Some(4)));
}

/// Each call of the device fails or panics, one run each: what had returned is there, and the volume is whole (P7, P12).
#[test]
fn the_device_fails_in_every_change_of_branches() {
    let script: Script = "mkfile /a; write /a 0 9000 1; snapshot s; write /a 0 5000 2; fork b s; switch b; append /a 100 3; \
        snapshot t; switch main; rollback s was; fork c; rmsnapshot was; write /a 0 100 4; fsync /a; rmbranch b; rmsnapshot s"
        .parse()
        .expect("it is well formed");
    let policy = Policy { volume: 8 << 20, ..Policy::default() };
    for call in [Call::Write, Call::Flush, Call::Read] {
        for how in FaultKind::ALL {
            let met = count_each(&Script::default(), &script, call, how, &policy);
            let met = met.unwrap_or_else(|failure| panic!("{failure}"));
            println!("{} {}: {met:?}", call.name(), how.name());
            assert!(met.sites() > 3 || call == Call::Read, "{met:?}");
        }
    }
}

#[test]
fn power_cuts_in_all_sequences_of_length_1() {
    survives(Source::BranchSequences(1));
}
