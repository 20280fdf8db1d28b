//! Random scripts under power cuts. A failure names its seed and shows the shortest script that still fails.
//!
//! `HOLDFAST_SEEDS=from..to` tries others than the few of every day, `HOLDFAST_SEEDS=20` twenty times as many.

use holdfast_script::{Profile, Script, generate, shrink};
use holdfast_sim::{Policy, Setup, power_cut};

use crate::seeds::seeds;

fn survive(seeds: std::ops::Range<u64>, profile: &Profile, policy: &Policy) {
    let mut opened = 0;
    for seed in seeds {
        let script = generate(seed, profile);
        match power_cut(&script, policy) {
            Ok(stats) => opened += stats.opened,
            Err(first) => {
                let fails = |script: &Script| power_cut(script, policy).is_err();
                let small = shrink(&script, fails);
                let last = power_cut(&small, policy).err().unwrap_or(first);
                panic!("script seed {seed} of {} operations: {last}", profile.ops);
            }
        }
    }
    println!("{opened} images opened");
    assert!(opened > 100);
}

fn profile() -> Profile {
    Profile { ops: 25, syncs: 25, remounts: 2, evicts: 0, ..Profile::default() }
}

#[test]
fn everything() {
    survive(seeds(0..15), &profile(), &Policy::default());
}

#[test]
fn bytes_of_one_file() {
    let profile = Profile { names: 1, depth: 1, specials: false, ..profile() };
    let policy = Policy { setup: Setup::new(16384, 1), ..Policy::default() };
    survive(seeds(100..110), &profile, &policy);
}

#[test]
fn names_and_few_fsyncs() {
    let profile = Profile { ops: 60, syncs: 8, write_max: 3000, ..profile() };
    survive(seeds(200..210), &profile, &Policy { sector: 4096, ..Policy::default() });
}
