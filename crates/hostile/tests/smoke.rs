//! Each target on everything that is kept, and on seeded mutations of it (P10).
//!
//! The alarm is tried as well: a planted mistake must be found by the same mutations
//! within a known number of runs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_base::prng::Prng;
use holdfast_hostile::{corpus, random, target};

/// Most memory that this process may ever have held, in KiB. Honest work needs about a tenth.
const MEMORY_KIB_MAX: u64 = 1 << 20;

/// Runs all that is kept, then `runs` mutations. The first failure tells how to repeat it.
fn smoke(name: &str, runs: u64) {
    let target = target(name).expect("the tests name targets that exist");
    let inputs = corpus::all(target);
    for input in &inputs {
        attempt(target.run, input, &format!("kept: {name}"));
    }
    for seed in 0..runs {
        let input = random::mutate(&inputs, &mut Prng::seeded(seed));
        attempt(target.run, &input, &format!("{name}, seed {seed}"));
    }
    let peak = peak_kib();
    println!("{name}: {} kept, {runs} mutations, {peak} KiB at most", inputs.len());
    assert!(peak < MEMORY_KIB_MAX, "P10: {peak} KiB of memory were needed");
}

fn attempt(run: fn(&[u8]), input: &[u8], what: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
        let digits = corpus::print(input);
        eprintln!("{what}: echo {digits} | xxd -r -p >input; hostile run TARGET input");
        std::panic::resume_unwind(panic);
    }
}

/// The largest resident size of this process so far.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse().expect("it is a number")
}

#[test]
fn superblocks() {
    smoke("superblock", 3000);
}

#[test]
fn nodes() {
    smoke("node", 3000);
}

#[test]
fn items() {
    smoke("item", 20_000);
}

#[test]
fn frames() {
    smoke("frame", 3000);
}

#[test]
fn batches() {
    smoke("batch", 5000);
}

#[test]
fn other_content() {
    smoke("foreign", 200);
}

#[test]
fn messages() {
    smoke("message", 20_000);
}

#[test]
fn looking() {
    smoke("look", 600);
}

#[test]
fn recovering() {
    smoke("recover", 400);
}

#[test]
fn salvaging() {
    smoke("salvage", 300);
}

#[test]
fn repairing() {
    smoke("repair", 150);
}

#[test]
fn requests() {
    smoke("requests", 600);
}

#[test]
fn streams() {
    smoke("stream", 400);
}

#[test]
fn archives() {
    smoke("archive", 400);
}

#[test]
fn the_alarm_rings() {
    // As if a decoder forgot one rule of the format: `durable` is below `number`.
    let is_caught = |input: &[u8]| {
        let number = |at: usize| {
            let eight = input.get(at..at + 8).and_then(|bytes| bytes.first_chunk());
            eight.map(|eight| u64::from_le_bytes(*eight))
        };
        number(40).zip(number(32)).is_some_and(|(durable, own)| durable >= own)
    };
    let inputs = corpus::all(target("batch").unwrap());
    assert!(!inputs.iter().any(|input| is_caught(input)), "honest batches break no rule");
    let mutated = |seed| random::mutate(&inputs, &mut Prng::seeded(seed));
    let found = (0..5000).find(|seed| is_caught(&mutated(*seed)));
    assert!(found.is_some(), "5000 mutations did not find a planted mistake");
}
