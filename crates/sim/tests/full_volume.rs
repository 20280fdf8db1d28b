//! A full volume (P8): what is refused for lack of space has changed nothing, and what makes the
//! volume emptier is never refused.

use std::sync::Arc;

use holdfast_device::{Device, MemoryDevice};
use holdfast_script::{
    Data, Errno, Model, Op, Outcome, Profile, Rules, Script, Target, compare_trees, generate,
    shrink,
};
use holdfast_sim::{Engine, Setup};

/// Bytes of a volume: hardly more than the smallest.
const VOLUME: u64 = 9 << 20;

/// Whether `op` may be refused for lack of space.
fn may_need_space(op: &Op) -> bool {
    !matches!(
        op,
        Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Read { .. }
            | Op::Sum { .. }
            | Op::Seek { .. }
            | Op::Stat { .. }
            | Op::Ls { .. }
            | Op::Readlink { .. }
            | Op::Getxattr { .. }
            | Op::Removexattr { .. }
            | Op::Listxattr { .. }
            | Op::Close { .. }
            | Op::Fsync { .. }
            | Op::Fdatasync { .. }
            | Op::Fsyncdir { .. }
            | Op::Sync
            | Op::Evict
            | Op::Remount
            | Op::Tree
    )
}

/// The write that brought in only the first `count` bytes, if `op` is a write and that is any.
fn part_of(op: &Op, count: usize) -> Option<Op> {
    let cut = |data: &Data| Data::Literal(data.bytes()[..count].to_vec());
    match op {
        _ if count == 0 => None,
        Op::Write { place, offset, data } => {
            Some(Op::Write { place: place.clone(), offset: *offset, data: cut(data) })
        }
        Op::Append { path, data } => Some(Op::Append { path: path.clone(), data: cut(data) }),
        _ => None,
    }
}

/// Runs `script`; what is refused for lack of space is not done to the model. Answers how often that was.
fn run(script: &Script, setup: &Setup, bytes: u64) -> Result<u32, String> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    let mut engine = Engine::create(device, setup.clone()).map_err(|error| error.to_string())?;
    let mut model = Model::new();
    let mut refused = 0;
    for (index, op) in script.ops().enumerate() {
        let found = engine.apply(op);
        if found == Outcome::Err(Errno::ENOSPC) && may_need_space(op) {
            refused += 1;
            // A write may have come half way, as on any filesystem.
            if let Some(part) = part_of(op, engine.written()) {
                model.apply(&part);
            }
            continue;
        }
        let expected = model.apply(op);
        if !expected.agrees(&found, op, Rules::LENIENT) {
            return Err(format!(
                "step {}: {op}\n  expected: {expected}\n  found:    {found}\nscript: {script}",
                index + 1
            ));
        }
    }
    compare_trees(script, &mut model, &mut engine).map_err(|mismatch| mismatch.to_string())?;
    engine.unmount().map_err(|error| format!("unmount: {error}\nscript: {script}"))?;
    Ok(refused)
}

/// `HOLDFAST_SEEDS=20` runs twenty times as many scripts.
fn fill(first: u64, setup: &Setup, profile: &Profile) {
    let times = std::env::var("HOLDFAST_SEEDS").ok().and_then(|times| times.parse().ok());
    let mut refused = 0;
    for seed in first..first + 12 * times.unwrap_or(1) {
        let script = generate(seed, profile);
        match run(&script, setup, VOLUME) {
            Ok(count) => refused += count,
            Err(error) => {
                let small = shrink(&script, |script| run(script, setup, VOLUME).is_err());
                let again = run(&small, setup, VOLUME).err().unwrap_or(error);
                panic!("seed {seed}, {} ops: {again}", profile.ops);
            }
        }
    }
    assert!(refused > 20, "the volume was hardly full: {refused} refusals");
}

/// Many large writes, few removals.
fn profile() -> Profile {
    Profile {
        ops: 400,
        names: 12,
        write_max: 700_000,
        offset_max: 5_000_000,
        remounts: 1,
        ..Profile::default()
    }
}

#[test]
fn a_full_volume_with_small_nodes() {
    fill(0, &Setup::new(4096, 1).checked(), &profile());
}

#[test]
fn a_full_volume_with_large_nodes() {
    fill(1_000_000, &Setup::new(65536, 100).checked(), &profile());
}

#[test]
fn a_full_volume_of_small_files() {
    let profile = Profile { ops: 3000, names: 26, depth: 4, write_max: 100_000, ..profile() };
    fill(2_000_000, &Setup::new(16384, 100).checked(), &profile);
}
