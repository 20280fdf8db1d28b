//! Each target on everything that is kept, and on seeded mutations of it (P10).
//!
//! The alarm is tried as well: a planted mistake must be found by the same mutations
//! within a known number of runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use holdfast_base::prng::Prng;
use holdfast_hostile::watched::most_read;
use holdfast_hostile::{corpus, random, target};

/// One target after the other: what a target costs, the process tells of all that it does.
static ONE: Mutex<()> = Mutex::new(());

/// Runs all that is kept, then `runs` mutations, and looks whether that cost no more than it may. The first failure tells how to repeat it.
fn smoke(name: &str, runs: u64) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let target = target(name).expect("the tests name targets that exist");
    let before = fresh_peak_kib();
    most_read();
    let inputs = corpus::all(target);
    for input in &inputs {
        attempt(target.run, input, &format!("kept: {name}"));
    }
    for seed in 0..runs {
        let input = random::mutate(&inputs, &mut Prng::seeded(seed));
        attempt(target.run, &input, &format!("{name}, seed {seed}"));
    }
    let (memory, read) = (peak_kib().saturating_sub(before) >> 10, most_read() >> 20);
    let count = inputs.len();
    println!("{name}: {count} kept, {runs} mutations, {memory} MiB of memory, {read} MiB read");
    let most = target.most;
    assert!(memory <= most.memory, "P10: {memory} MiB of memory were needed: {most:?}");
    assert!(read <= most.read, "P10: {read} MiB were read of one device: {most:?}");
}

/// Forgets the largest resident size, and returns that of now.
fn fresh_peak_kib() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux has it");
    peak_kib()
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
fn layouts() {
    smoke("layout", 100);
}

#[test]
fn walks() {
    smoke("walkers", 200);
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
