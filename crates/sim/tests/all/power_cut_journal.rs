//! Power fails over commits and checkpoints: checkpoints behind and beside operations, a ring that is
//! full after a few commits, every position of the switches, and recoveries that are cut as well.
//!
//! The volumes are the smallest there are: their rings have 64 blocks.

use holdfast_base::switch::{Accounting, Batching, Dirty, RenameLog};
use holdfast_posix::MountOptions;
use holdfast_script::{Profile, Script, generate, shrink};
use holdfast_sim::{Checkpoints, Policy, Setup, Stats, power_cut};

use crate::seeds::seeds;

const SMALLEST: u64 = 8 << 20;

const SCRIPTS: [&str; 4] = [
    "mkfile /a; write /a 0 9000 1; fsync /a; mkdir /d; rename /a /d/a; fsyncdir /d; append /d/a 5000 2; \
     mkfile /b; write /b 0 100 3; fsync /b; unlink /b; sync; write /d/a 0 20k 4; fdatasync /d/a; sync",
    "mkfile /f; write /f 0 9000 1; fsync /f; mkfile /g; write /g 0 9000 2; rename /g /f; unlink /f; \
     mkfile /h; fsync /h; write /h 0 9000 3; fsync /h; mkfile /i; write /i 0 9000 3; fsync /i; sync",
    "mkfile /a; write /a 0 40k 1; fsync /a; punch /a 4096 8192; fsync /a; write /a 8k 4k 2; fsync /a; \
     truncate /a 5000; fsync /a; mkfile /b; write /b 0 30k 3; fsync /b; unlink /a; fsyncdir /; sync",
    "mkdir /a; mkdir /a/b; mkfile /a/b/f; fsync /a/b/f; rename /a /z; fsyncdir /; setxattr /z user.a 3000 1; \
     mkfile /z/g; fsync /z/g; unlink /z/b/f; rmdir /z/b; fsyncdir /z; remount; mkfile /z/h; fsync /z/h",
];

fn policy(node_size: usize, checkpoints: Checkpoints) -> Policy {
    let setup = Setup { checkpoints, ..Setup::new(node_size, 4) };
    Policy { volume: SMALLEST, setup, recovery: 40, ..Policy::default() }
}

fn switched(policy: Policy, dirty: Dirty, accounting: Accounting) -> Policy {
    let mount = MountOptions { dirty, accounting, ..policy.setup.mount.clone() };
    Policy { setup: Setup { mount, ..policy.setup }, ..policy }
}

fn logged(policy: Policy, batching: Batching, rename_log: RenameLog) -> Policy {
    let mount = MountOptions { batching, rename_log, ..policy.setup.mount.clone() };
    Policy { setup: Setup { mount, ..policy.setup }, ..policy }
}

fn parse(text: &str) -> Script {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn survives(script: &Script, policy: &Policy) -> Stats {
    power_cut(script, policy).unwrap_or_else(|failure| panic!("{:?}: {failure}", policy.setup))
}

/// All scripts; there are at least so many images of each.
fn all_survive(policy: &Policy) {
    for text in SCRIPTS {
        let stats = survives(&parse(text), policy);
        assert!(stats.opened >= 20, "{stats:?}");
    }
}

#[test]
fn a_checkpoint_behind_every_operation() {
    all_survive(&policy(4096, Checkpoints::After(1)));
}

#[test]
fn a_checkpoint_behind_some_operations() {
    for (node_size, count) in [(4096, 3), (16384, 4), (65536, 7)] {
        all_survive(&policy(node_size, Checkpoints::After(count)));
    }
}

#[test]
fn checkpoints_beside_the_script() {
    all_survive(&policy(4096, Checkpoints::Beside));
    all_survive(&policy(16384, Checkpoints::Beside));
}

#[test]
fn every_position_of_the_switches() {
    for (&dirty, count) in Dirty::ALL.iter().zip([5, 6, 7]) {
        for &accounting in Accounting::ALL {
            let policy = policy(16384, Checkpoints::After(count));
            all_survive(&switched(policy, dirty, accounting));
        }
    }
}

#[test]
fn every_position_of_the_switches_of_the_log() {
    let names = "mkdir /d; mkfile /d/a; mkfile /d/b; fsyncdir /d; rename /d/a /d/c; link /d/c /d/e; fsyncdir /d; \
                 unlink /d/b; rename /d/c /x; rename /d/e /d/b; fsyncdir /; rename /x /d/b; fsyncdir /d";
    for &batching in Batching::ALL {
        for &rename_log in RenameLog::ALL {
            let policy = logged(policy(4096, Checkpoints::After(9)), batching, rename_log);
            let stats = survives(&parse(names), &policy);
            assert!(stats.opened >= 20, "{stats:?}");
            all_survive(&policy);
        }
    }
}

#[test]
fn commits_as_large_as_the_ring() {
    // Whole nodes of 64 KiB: two commits fill the ring, and hardly one does not wrap around its end.
    let policy = policy(65536, Checkpoints::Never);
    all_survive(&switched(policy, Dirty::Whole, Accounting::Always));
}

#[test]
fn recovery_is_cut_in_every_image() {
    for (text, checkpoints) in [
        (
            "mkfile /a; write /a 0 9000 1; fsync /a; mkdir /d; rename /a /d/a; sync",
            Checkpoints::Never,
        ),
        (
            "mkfile /a; fsync /a; write /a 0 5000 1; fsync /a; unlink /a; sync",
            Checkpoints::After(2),
        ),
    ] {
        let policy = Policy { recovery: 1, ..policy(4096, checkpoints) };
        let stats = survives(&parse(text), &policy);
        println!("{stats:?}");
        assert!(stats.recoveries.0 >= 20 && stats.recoveries.1 > 200, "{stats:?}");
    }
}

#[test]
fn the_recovery_of_a_cut_recovery_is_cut() {
    let script = parse("mkfile /a; write /a 0 5000 1; fsync /a; mkfile /b; fsync /b");
    let mut policy = Policy { recovery: 4, deep: 2, ..policy(4096, Checkpoints::Never) };
    (policy.images.each, policy.images.samples, policy.images.torn) = (2, 2, 2);
    let stats = survives(&script, &policy);
    println!("{stats:?}");
    assert!(stats.recoveries.0 >= 3 && stats.recoveries.1 > 300, "{stats:?}");
}

fn random(usual: std::ops::Range<u64>, policy: impl Fn(u64) -> Policy) {
    let profile = Profile { ops: 30, syncs: 25, remounts: 2, evicts: 0, ..Profile::default() };
    for seed in seeds(usual) {
        let (script, policy) = (generate(seed, &profile), policy(seed));
        if let Err(first) = power_cut(&script, &policy) {
            let small = shrink(&script, |script| power_cut(script, &policy).is_err());
            let last = power_cut(&small, &policy).err().unwrap_or(first);
            panic!("script seed {seed} with {:?}: {last}", policy.setup);
        }
    }
}

#[test]
fn random_scripts_and_checkpoints() {
    random(0..12, |seed| {
        let node_size = [4096, 16384, 65536][seed as usize % 3];
        let policy = policy(node_size, Checkpoints::After(2 + seed % 7));
        let dirty = Dirty::ALL[(seed / 3) as usize % Dirty::ALL.len()];
        let policy =
            switched(policy, dirty, Accounting::ALL[seed as usize % Accounting::ALL.len()]);
        logged(policy, Batching::ALL[seed as usize / 2 % 2], RenameLog::ALL[seed as usize % 2])
    });
}

#[test]
fn random_scripts_beside_checkpoints() {
    random(1000..1006, |_| policy(4096, Checkpoints::Beside));
}
