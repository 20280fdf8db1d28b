//! Hunts with a seed: each tries one random run of its kind.

use std::sync::Arc;

use holdfast_base::prng::Prng;
use holdfast_base::switch::{Accounting, Batching, Dirty, RenameLog};
use holdfast_device::sim::Call;
use holdfast_device::{Device, MemoryDevice};
use holdfast_script::{
    Answer, Data, Errno, Model, Op, Outcome, Profile, Rules, Script, Target, compare_trees,
    generate,
};
use holdfast_sim::{Checkpoints, Engine, Policy, Setup, fail_each, power_cut};

use crate::crash_generations::{Conditions, run};
use crate::{Hunt, damage, errors, fixed, threads};

pub(crate) const HUNTS: &[Hunt] = &[
    Hunt { name: "power cuts", run: power_cuts },
    Hunt { name: "handles", run: |seed| errors::handles(seed + 1) },
    Hunt { name: "rot", run: |seed| damage::rot(seed + 1) },
    Hunt { name: "lost batches", run: |seed| damage::lost_batches(seed + 1) },
    Hunt { name: "lost commits", run: |seed| damage::lost_commits(seed + 1) },
    Hunt { name: "much data", run: much_data },
    Hunt { name: "crash generations", run: crash_generations },
    Hunt { name: "device errors", run: device_errors },
    Hunt { name: "a full volume", run: full_volume },
    Hunt { name: "threads", run: threads::threads },
];

fn profile(seed: u64) -> Profile {
    let usual = Profile {
        ops: 30,
        syncs: 60,
        remounts: 1,
        evicts: 0,
        write_max: 9000,
        ..Profile::default()
    };
    match seed % 4 {
        0 => usual,
        1 => Profile { ops: 25, syncs: 25, remounts: 2, write_max: 60_000, ..usual },
        2 => Profile { ops: 12, syncs: 90, names: 2, depth: 2, write_max: 3000, ..usual },
        _ => Profile { ops: 50, syncs: 10, names: 6, ..usual },
    }
}

/// A random script under conditions that change with the seed.
fn power_cuts(seed: u64) -> Result<(), String> {
    let checkpoints = match seed % 6 {
        0 | 4 => Checkpoints::Never,
        1 => Checkpoints::CommitsAfter(2 + seed % 5),
        2 => Checkpoints::After(2 + seed % 5),
        3 => Checkpoints::CommitsBeside,
        _ => Checkpoints::Beside,
    };
    let mut setup = Setup {
        checkpoints,
        ..Setup::new([4096, 16384][seed as usize / 2 % 2], [0, 1, 100][seed as usize % 3])
    };
    setup.mount.cache_bytes = 256 << 10;
    setup.mount.log_data_bytes = Some([16384, 0, 65536][seed as usize / 3 % 3]);
    setup.mount.dirty = Dirty::ALL[seed as usize / 5 % Dirty::ALL.len()];
    setup.mount.accounting = Accounting::ALL[seed as usize / 7 % Accounting::ALL.len()];
    setup.mount.rename_log = RenameLog::ALL[seed as usize / 2 % 2];
    setup.mount.batching = Batching::ALL[seed as usize / 4 % 2];
    let sector = if seed % 5 == 4 { 4096 } else { 512 };
    let physical_sector = if seed % 5 == 2 { 4096 } else { sector };
    let (volume, recovery) = (8 << 20, 30);
    let policy = Policy { volume, sector, physical_sector, setup, recovery, ..Policy::default() };
    let script = generate(seed, &profile(seed));
    power_cut(&script, &policy).map(drop).map_err(|failure| failure.to_string())
}

/// Crash generations of the store, on what the one before could read and may lose.
fn crash_generations(seed: u64) -> Result<(), String> {
    let (fsyncs, commits) = (Conditions::fsyncs(), Conditions::default());
    let how = match seed % 11 {
        10 => Conditions { rests: 2, openings: 2, steps: 30, ..fsyncs },
        9 => Conditions { physical_sector: 4096, generations: 3, steps: 12, ..fsyncs },
        0 => Conditions { openings: 8, steps: 10, checkpoints: 1, neither: 2, ..fsyncs },
        1 => Conditions { openings: 6, steps: 12, log_data: 0, checkpoints: 4, ..commits },
        2 => Conditions { generations: 6, steps: 8, ..fsyncs },
        3 => Conditions { commits_beside: true, commits: 0, checkpoints: 0, openings: 2, ..fsyncs },
        4 => Conditions { sector: 4096, openings: 3, steps: 20, log_data: 1, ..fsyncs },
        5 => Conditions { openings: 10, steps: 5, log_data: 0, checkpoints: 0, ..fsyncs },
        6 => Conditions { commits: 0, checkpoints: 0, steps: 120, log_data: 1, ..fsyncs },
        7 => Conditions { generations: 6, steps: 8, ..commits },
        _ => Conditions {
            generations: 10,
            steps: 6,
            commits_beside: true,
            commits: 0,
            log_data: 1,
            ..fsyncs
        },
    };
    run(7000 + seed, &how, 50);
    Ok(())
}

/// Files of some MiB, for which one flush must not wait, and small ones beside them.
fn much_data(seed: u64) -> Result<(), String> {
    let mut prng = Prng::seeded(seed);
    let mut text = String::from("mkfile /a; mkfile /b; fsync /b");
    for _ in 0..4 {
        let (at, len, pattern) = (prng.below(300), 1 + prng.below(6), prng.below(99));
        text += &match prng.below(4) {
            0 => format!("; append /b 900 {pattern}; fsync /b"),
            1 => format!("; write /a {at}k {len}M {pattern}; append /b 100 1; fsync /b; fsync /a"),
            _ => {
                format!("; write /a {at}k {len}M {pattern}; chmod /b 6{}0; fsync /a", prng.below(8))
            }
        };
    }
    fixed::cut("", &text, fixed::whole_images())
}

/// One kind of call fails, each in turn.
fn device_errors(seed: u64) -> Result<(), String> {
    let calls = [Call::Write, Call::Flush, Call::Read];
    let checkpoints = match seed / 3 % 3 {
        0 => Checkpoints::Never,
        1 => Checkpoints::CommitsAfter(3),
        _ => Checkpoints::After(4),
    };
    let setup = Setup { checkpoints, ..Setup::new(4096, 0) };
    let policy = Policy { volume: 8 << 20, setup, ..Policy::default() };
    let profile = Profile { ops: 10, ..profile(seed) };
    let script = generate(seed, &profile);
    let done = fail_each(&script, calls[seed as usize % 3], seed / 9 % 2 == 1, &policy);
    done.map(drop).map_err(|failure| failure.to_string())
}

/// What is refused for lack of space has changed nothing.
fn full_volume(seed: u64) -> Result<(), String> {
    let profile = Profile {
        ops: 250,
        names: 10,
        write_max: 900_000,
        offset_max: 5_000_000,
        remounts: 1,
        ..Profile::default()
    };
    let script: Script = generate(seed, &profile);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8 << 20));
    let setup = Setup::new([4096, 16384][seed as usize % 2], 10).checked();
    let mut engine = Engine::create(device, setup).map_err(|error| error.to_string())?;
    let mut model = Model::new();
    for op in script.ops() {
        let found = engine.apply(op);
        let part = |data: &Data| Data::Literal(data.bytes()[..engine.written()].to_vec());
        let done = match (&found, op) {
            (Outcome::Err(Errno::ENOSPC), _) if engine.written() == 0 => continue,
            (Outcome::Err(Errno::ENOSPC), Op::Write { place, offset, data }) => {
                Op::Write { place: place.clone(), offset: *offset, data: part(data) }
            }
            (Outcome::Err(Errno::ENOSPC), Op::Append { path, data }) => {
                Op::Append { path: path.clone(), data: part(data) }
            }
            (Outcome::Err(Errno::ENOSPC), _) => continue,
            _ => {
                let expected = model.apply(op);
                if !expected.agrees(&found, op, Rules::LENIENT) {
                    return Err(format!("{op}: {found} instead of {expected}"));
                }
                continue;
            }
        };
        model.apply(&done);
    }
    compare_trees(&script, &mut model, &mut engine).map_err(|mismatch| mismatch.to_string())?;
    engine.unmount().map_err(|error| format!("unmount: {error}"))
}

/// A write that finds no space at all leaves its file as it was (P8).
pub(crate) fn no_space() -> Result<(), String> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8 << 20));
    let mut engine =
        Engine::create(device, Setup::new(4096, 10)).map_err(|error| error.to_string())?;
    let text = "mkfile /a; mkfile /b; write /a 0 8M 1; write /b 0 4096 2; stat /b";
    let script: Script = text.parse().map_err(|error| format!("{error}"))?;
    let answers: Vec<Outcome> = script.ops().map(|op| engine.apply(op)).collect();
    let refused = answers[3] == Outcome::Err(Errno::ENOSPC);
    match &answers[4] {
        Outcome::Ok(Answer::Stat(stat)) if refused && stat.size == 0 => Ok(()),
        other => Err(format!("{}, and then {other} (P8)", answers[3])),
    }
}
