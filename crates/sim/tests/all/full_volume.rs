//! A full volume (P8): what is refused for lack of space has changed nothing, and what makes the
//! volume emptier is never refused.

use std::sync::Arc;

use holdfast_device::sim::HostedDevice;
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
            | Op::Grow { .. }
            | Op::Shrink { .. }
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
    let refused = run_on(script, &mut engine, &mut model)?;
    compare_trees(script, &mut model, &mut engine).map_err(|mismatch| mismatch.to_string())?;
    engine.unmount().map_err(|error| format!("unmount: {error}\nscript: {script}"))?;
    Ok(refused)
}

/// As [`run`], on volumes that are there.
fn run_on(script: &Script, engine: &mut Engine, model: &mut Model) -> Result<u32, String> {
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

/// Everything that takes space, each step once.
const TAKES_SPACE: &str = "mkfile /a; write /a 0 9000 1; fsync /a; mkdir /d; mkfile /d/b; append /d/b 100 2; fsync /d/b; \
    setxattr /a user.a 3000 3; rename /a /d/a; link /d/a /c; symlink some/where /s; write /d/a 100 50 4; fsync /d/a; \
    fallocate /d/b 0 30k; punch /d/a 4096 100; truncate /d/b 20000; write /d/b 8k 9000 5; sync; mkfile /e; write /e 0 5000 6; \
    rename /e /d/b; fsyncdir /d; remount; append /c 20000 7; removexattr /c user.a; sync; unlink /c; unlink /d/b; sync";

/// A script meets the end of the space at each of its allocations: with no block left, with one, and so on
/// until it never does. What is refused has changed nothing, and in the end everything can be removed (P8).
#[test]
fn every_allocation_of_a_script_meets_the_end_of_the_space() {
    let script: Script = TAKES_SPACE.parse().expect("the script is well formed");
    let setup = Setup::new(4096, 1).checked();
    let full = Arc::new(MemoryDevice::new(8 << 20));
    let mut engine =
        Engine::create(full.clone(), setup.clone()).expect("the volume is large enough");
    let fill: Script = "mkfile /fill; write /fill 0 8M 9; sync".parse().expect("it is well formed");
    let filled: Vec<Outcome> = fill.ops().map(|op| engine.apply(op)).collect();
    assert_eq!(filled[1], Outcome::Err(Errno::ENOSPC));
    let size = engine.written() as u64;
    engine.unmount().expect("a full volume can be left");
    let (mut calls, mut refused) = (0, 0);
    for left in 0.. {
        let device: Arc<dyn Device> = Arc::new(full.snapshot());
        let mut engine = Engine::open(Arc::clone(&device), setup.clone()).expect("it is whole");
        let mut model = Model::new();
        // The model knows what the volume took of the filling, less what is given back now.
        let kept = size / 4096 * 4096 - left * 4096;
        let made = format!("mkfile /fill; write /fill 0 {kept} 9");
        made.parse::<Script>()
            .expect("it is well formed")
            .ops()
            .for_each(|op| drop(model.apply(op)));
        let give_back = format!("truncate /fill {kept}; sync");
        let give_back: Script = give_back.parse().expect("it is well formed");
        for op in give_back.ops() {
            let found = engine.apply(op);
            assert!(matches!(found, Outcome::Ok(_)), "{left} blocks left: {op}: {found} (P8)");
            model.apply(op);
        }
        let here = run_on(&script, &mut engine, &mut model)
            .unwrap_or_else(|why| panic!("{left} blocks left: {why}"));
        calls += script.ops().count();
        refused += here;
        let empty: Script = "unlink /fill; sync; remount".parse().expect("it is well formed");
        for op in empty.ops() {
            let found = engine.apply(op);
            assert!(matches!(found, Outcome::Ok(_)), "{left} blocks left: {op}: {found} (P8)");
            model.apply(op);
        }
        compare_trees(&script, &mut model, &mut engine)
            .unwrap_or_else(|mismatch| panic!("{left} blocks left: {mismatch}"));
        engine.unmount().unwrap_or_else(|error| panic!("{left} blocks left: {error}"));
        if here == 0 {
            println!("0 to {left} blocks left: {calls} operations, {refused} refused");
            assert!(left > 5 && refused > 20, "{left} {refused}");
            return;
        }
    }
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

/// A sparse image: an empty volume of so many bytes, and hardly anything given by its host. It is new, or a program has
/// written to it.
fn sparse(bytes: u64, setup: &Setup, is_new: bool) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(bytes));
    let mut engine = Engine::create(device.clone(), setup.clone()).expect("it is large enough");
    if !is_new {
        fine(&mut engine, &mut Model::new(), "mkdir /d; rmdir /d; sync", "before");
    }
    engine.unmount().expect("an empty volume can be left");
    device.snapshot()
}

fn fine(engine: &mut Engine, model: &mut Model, script: &str, when: &str) {
    for op in script.parse::<Script>().expect("it is well formed").ops() {
        let (found, expected) = (engine.apply(op), model.apply(op));
        assert!(expected.agrees(&found, op, Rules::LENIENT), "{when}: {op}: {found}");
    }
}

/// The host of a sparse image is full sooner or later: what is refused has changed nothing, nothing that was accepted
/// is refused later, and as soon as the host has room the same mount goes on.
#[test]
fn a_full_host_is_a_full_volume_that_goes_on_when_there_is_room() {
    let setup = Setup::new(4096, 16).checked();
    let bases = [true, false].map(|is_new| sparse(64 << 20, &setup, is_new));
    let profile = Profile { ops: 300, remounts: 0, ..profile() };
    let (mut closed, mut refused, mut whole) = (0, 0, 0);
    for (seed, left) in (0..).zip((0..48u64).step_by(3)) {
        let when = format!("seed {seed}, {left} MiB left");
        let is_new = seed % 2 == 0;
        let base = &bases[usize::from(!is_new)];
        let device = Arc::new(HostedDevice::new(base, left << 20));
        let mut engine = match Engine::open(device.clone(), setup.clone()) {
            Ok(engine) => engine,
            Err(error) => {
                assert!(!is_new, "{when}: a new volume takes nothing of the host before a change");
                assert!(error.to_string().contains("the host has no room"), "{when}: {error}");
                closed += 1;
                continue;
            }
        };
        let mut model = Model::new();
        let script = generate(seed, &profile);
        let here =
            run_on(&script, &mut engine, &mut model).unwrap_or_else(|why| panic!("{when}: {why}"));
        refused += here;
        whole += u32::from(here == 0);
        let space = engine.filesystem().expect("it is mounted").statfs();
        let room = device.room().expect("the image is sparse");
        let taken = device.image().allocated_bytes();
        assert!(space.blocks_available * 4096 <= room + (64 << 20) - taken, "{when}: {space:?}");
        fine(&mut engine, &mut model, "sync", &when);
        assert_eq!(device.refused(), 0, "{when}: a write was refused that had been accepted");
        compare_trees(&script, &mut model, &mut engine)
            .unwrap_or_else(|mismatch| panic!("{when}: {mismatch}"));
        device.give(64 << 20);
        fine(&mut engine, &mut model, "mkfile /now; write /now 0 9M 3; fsync /now; sync", &when);
        assert_eq!(engine.filesystem().expect("it is mounted").stop_reason(), None, "{when}");
        fine(&mut engine, &mut model, "remount; sum /now", &when);
        compare_trees(&script, &mut model, &mut engine)
            .unwrap_or_else(|mismatch| panic!("{when}: {mismatch}"));
        engine.unmount().unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    println!("{closed} not opened, {refused} operations refused, {whole} scripts to the end");
    assert!(refused > 20 && whole > 0, "{closed} {refused} {whole}");
}

/// A host that gives nothing ahead of need refuses writes of data that was accepted. That is kept, and tried again.
#[test]
fn what_a_silent_host_refuses_is_kept_and_tried_again() {
    let setup = Setup::new(4096, 16).checked();
    let base = sparse(64 << 20, &setup, true);
    let (mut kept, mut stopped, mut fine_at_once) = (0, 0, 0);
    for left in (0..6000u64).step_by(96) {
        let device = Arc::new(HostedDevice::new(&base, left << 10).silent());
        let Ok(mut engine) = Engine::open(device.clone(), setup.clone()) else { continue };
        let (mut model, mut durable) = (Model::new(), Model::new());
        let when = format!("{left} KiB left");
        let mut is_kept = false;
        // A new version of the file each time, and what fsync says to it.
        for version in 1..4 {
            let made = format!("write /f 0 1500k {version}");
            let made = if version == 1 { format!("mkfile /f; {made}") } else { made };
            for op in made.parse::<Script>().expect("it is well formed").ops() {
                let found = engine.apply(op);
                if matches!(found, Outcome::Ok(_)) {
                    model.apply(op);
                }
            }
            let fsync: Script = "fsync /f; fsync /f".parse().expect("it is well formed");
            for op in fsync.ops() {
                match engine.apply(op) {
                    Outcome::Ok(_) => durable = model.clone(),
                    Outcome::Err(Errno::ENOSPC) => is_kept = true,
                    Outcome::Err(errno) => {
                        let reason = engine.filesystem().expect("mounted").stop_reason();
                        assert!(reason.is_some(), "{when}: {op}: {errno}");
                    }
                }
            }
            // Read is what was written, whatever became of it.
            fine(&mut engine, &mut model, "sum /f", &when);
        }
        let is_stopped = engine.filesystem().expect("mounted").stop_reason().is_some();
        device.give(64 << 20);
        if is_stopped {
            stopped += 1;
            engine.kill();
            engine = Engine::open(device.clone(), setup.clone()).expect("there is room");
            let seen = engine.walk().expect("it can be read");
            let (told, last) = (durable.walk().expect("a model"), model.walk().expect("a model"));
            // The stop may have come after an fsync whose result was lost.
            assert!(
                told.differences(&seen).is_empty() || last.differences(&seen).is_empty(),
                "{when}: {:?}",
                told.differences(&seen)
            );
        } else {
            kept += u32::from(is_kept);
            fine_at_once += u32::from(!is_kept);
            fine(&mut engine, &mut model, "fsync /f; remount; sum /f", &when);
        }
        engine.unmount().unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    println!("{kept} kept and written later, {stopped} stopped, {fine_at_once} fine at once");
    assert!(kept > 3 && fine_at_once > 3, "{kept} {stopped} {fine_at_once}");
}
