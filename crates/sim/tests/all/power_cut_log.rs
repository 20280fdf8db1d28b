//! Power fails over the fsync log: fsyncs behind fsyncs, commits and checkpoints behind and beside them, a
//! ring of 256 KiB that wraps, evictions, every position of the switches, and recoveries that are cut as
//! well (P1 to P5, P9).
//!
//! The volumes are the smallest there are. A failure prints one line with the script, the seed and the
//! numbers for `Policy::only`.

use std::sync::Arc;

use holdfast_base::switch::{Batching, FsyncWait, RenameLog};
use holdfast_device::{Device, MemoryDevice};
use holdfast_posix::MountOptions;
use holdfast_script::{Model, Profile, Rules, Script, compare, compare_trees, generate, shrink};
use holdfast_sim::{
    Checkpoints, Engine, Policy, Setup, Stats, Verdict, agree_on_log, judge, power_cut,
    power_cut_after,
};

use crate::seeds::seeds;

const SMALLEST: u64 = 8 << 20;

const SCRIPTS: [&str; 5] = [
    // What careful programs do: append, replace, a journal that is written and truncated.
    "mkfile /a; append /a 100 1; fsync /a; append /a 4000 2; fsync /a; append /a 4096 3; fdatasync /a; \
     mkfile /t; write /t 0 3000 4; fsync /t; rename /t /a; fsyncdir /; mkfile /t; write /t 0 9000 5; \
     rename /t /a; fsyncdir /; truncate /a 0; fsync /a; write /a 0 50 6; fsync /a",
    // Data inside the log over data inside the log, over data at its location; freed, and taken again.
    "mkfile /a; write /a 0 20k 1; fsync /a; write /a 4100 10 2; fsync /a; write /a 4100 20 3; fsync /a; \
     write /a 4000 200 4; mkfile /b; fsync /b; write /a 4090 4 5; fsync /a; punch /a 4096 4096; fsync /a; \
     write /a 4096 100 6; fsync /a; unlink /a; fsyncdir /; write /b 0 4000 7; fsync /b; sync",
    // Names that come and go, and replace one another.
    "mkdir /d; mkdir /e; mkfile /d/f; fsync /d/f; rename /d /e/d; fsyncdir /e; mkdir /d; mkfile /d/f; \
     fsync /d/f; rename /e/d/f /d/g exchange; rename /d/f /d/g; fsyncdir /d; rename /e/d /d/d; \
     unlink /d/g; fsyncdir /d; rmdir /e; mkfile /e; fsync /e; rename /e /d/f; rename /d /e; fsyncdir /e",
    // Fsyncs of other files between: everything before them is there as well, data only of their own.
    "mkfile /a; write /a 0 3000 1; mkfile /b; fsync /b; chmod /a 600; write /b 0 9000 2; fsync /a; \
     link /a /c; setxattr /b user.x 3000 3; fsync /c; unlink /a; tmpfile t / 600; write @t 0 4096 4; \
     fsync @t; link @t /t; fsyncdir /; close t; utimes /t 5 6; fsync /t; removexattr /b user.x; fsync /b",
    // Mixed with commits of all that is there, and with what lies behind them.
    "mkfile /a; write /a 0 4000 1; fsync /a; sync; write /a 10 10 2; fsync /a; remount; write /a 20 10 3; \
     fsync /a; mkfile /b; write /b 0 60k 4; fsync /b; truncate /b 30001; fsync /b; zero /b 5000 10000; \
     fsync /b; fallocate /b 100k 20k; write /b 110k 100 5; fsync /b; truncate /a 5; fsync /a; unlink /b",
];

fn policy(checkpoints: Checkpoints) -> Policy {
    let mut setup = Setup { checkpoints, ..Setup::new(4096, 4) };
    setup.mount.cache_bytes = 256 << 10;
    Policy { volume: SMALLEST, setup, recovery: 60, ..Policy::default() }
}

fn mounted(policy: Policy, change: impl FnOnce(&mut MountOptions)) -> Policy {
    let mut policy = policy;
    change(&mut policy.setup.mount);
    policy
}

fn parse(text: &str) -> Script {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn survives_after(before: &str, text: &str, policy: &Policy) -> Stats {
    let stats = power_cut_after(&parse(before), &parse(text), policy)
        .unwrap_or_else(|failure| panic!("{:?}: {failure}", policy.setup));
    assert!(stats.opened >= 12, "{stats:?}");
    stats
}

fn all_survive(policy: &Policy) {
    let mut opened = 0;
    for text in SCRIPTS {
        opened += survives_after("", text, policy).opened;
    }
    println!("{opened} images opened");
}

#[test]
fn nothing_but_fsyncs() {
    all_survive(&policy(Checkpoints::Never));
}

#[test]
fn with_one_inode_in_memory_and_few_nodes() {
    all_survive(&mounted(policy(Checkpoints::Never), |mount| {
        mount.inode_cache = 0;
        mount.cache_bytes = 64 << 10;
        mount.dirty_bytes = 16 << 10;
    }));
}

#[test]
fn on_sectors_of_4096_and_large_nodes() {
    let policy = policy(Checkpoints::Never);
    let setup = Setup { mkfs: Setup::new(65536, 1).mkfs, ..policy.setup };
    all_survive(&Policy { sector: 4096, setup, ..policy });
}

/// What is pending is appended without a flush, and what is durable confirmed, behind any operation and beside all.
#[test]
fn on_volumes_that_rest() {
    for rests in [Checkpoints::RestsAfter(1), Checkpoints::RestsAfter(3), Checkpoints::RestsBeside]
    {
        all_survive(&policy(rests));
    }
}

/// A torn write takes what lies in its physical sector, flushed or not.
#[test]
fn on_sectors_of_512_in_physical_ones_of_4096() {
    for checkpoints in [Checkpoints::Never, Checkpoints::CommitsAfter(3), Checkpoints::After(4)] {
        all_survive(&Policy { physical_sector: 4096, ..policy(checkpoints) });
    }
}

#[test]
fn every_position_of_the_switches() {
    for &rename_log in RenameLog::ALL {
        for (&batching, log_data_bytes) in Batching::ALL.iter().zip([0, 64 << 10]) {
            all_survive(&mounted(policy(Checkpoints::Never), |mount| {
                (mount.rename_log, mount.batching) = (rename_log, batching);
                mount.log_data_bytes = Some(log_data_bytes);
            }));
        }
    }
}

#[test]
fn data_that_is_completed_behind_its_fsync() {
    all_survive(&mounted(policy(Checkpoints::CommitsAfter(4)), |mount| {
        (mount.fsync_wait, mount.log_data_bytes) = (FsyncWait::Completion, Some(0));
    }));
}

#[test]
fn commits_and_checkpoints_behind_operations() {
    for checkpoints in [
        Checkpoints::CommitsAfter(1),
        Checkpoints::CommitsAfter(3),
        Checkpoints::After(2),
        Checkpoints::After(5),
    ] {
        all_survive(&policy(checkpoints));
    }
}

#[test]
fn commits_and_checkpoints_beside_operations() {
    // Zeroed ranges are several steps, between which the other thread may make history durable.
    for checkpoints in [Checkpoints::CommitsBeside, Checkpoints::Beside] {
        for text in &SCRIPTS[..4] {
            survives_after("", text, &policy(checkpoints));
        }
    }
}

/// Fsyncs enough to bring the log near the end of its ring.
#[test]
fn the_ring_wraps() {
    let before = "mkfile /w; write /w 0 4096 1; fsync /w; ".to_string()
        + &"write /w 0 4096 2; fsync /w; write /w 0 4096 3; fsync /w; ".repeat(26);
    let text = "mkfile /a; append /a 4096 1; fsync /a; append /a 4096 2; fsync /a; append /a 4096 3; \
                fsync /a; write /a 0 4096 4; fsync /a; mkfile /b; fsync /b; write /a 100 4000 5; fsync /a; \
                rename /a /w; fsyncdir /; write /b 0 4096 6; fsync /b; unlink /w; fsyncdir /; sync";
    for checkpoints in [Checkpoints::Never, Checkpoints::CommitsAfter(5)] {
        survives_after(before.trim_end_matches("; "), text, &policy(checkpoints));
    }
}

/// A crashed volume is copied to a disk with other sectors, again and again: its batches begin where no
/// batch of the new disk may, and the other way round.
#[test]
fn the_sectors_change_between_crashes() {
    let setup = policy(Checkpoints::Never).setup;
    let script = |round: u64| {
        let text = format!(
            "append /a 100 {round}; fsync /a; append /a 3000 {round}; fsync /a; mkfile /f{round}; fsyncdir /; \
             write /a 50 60 {round}; fsync /a"
        );
        parse(&text)
    };
    let mut model = Model::new();
    let mut image = Arc::new(MemoryDevice::new(SMALLEST));
    let mut engine = Engine::create(image.clone(), setup.clone()).expect("the device works");
    let make = parse("mkfile /a; fsync /a");
    compare(&make, &mut model, &mut engine, Rules::LENIENT).expect("it works");
    for round in 1..40 {
        compare(&script(round), &mut model, &mut engine, Rules::LENIENT).expect("it works");
        engine.kill();
        let copy = MemoryDevice::with_sector_size(SMALLEST, [512, 4096][round as usize % 2]);
        copy.write(0, &image.to_image()).expect("it is as large");
        assert!(matches!(agree_on_log(&copy), Ok(Verdict::Whole(_))), "round {round}");
        image = Arc::new(copy);
        engine.mount_on(image.clone()).expect("the volume is whole");
    }
    compare_trees(&make, &mut model, &mut engine).expect("nothing is missing");
    engine.unmount().expect("the device works");
    judge(&*image).expect("the volume is whole");
}

/// More is pending than the ring has room for: the fsync becomes a commit.
#[test]
fn a_ring_that_is_full() {
    survives_after(
        "mkfile /a; mkfile /b",
        "setxattr /a user.a 60000 1; fsync /a; setxattr /a user.b 60000 2; fsync /a; \
         setxattr /b user.a 60000 3; setxattr /b user.b 60000 4; setxattr /b user.c 60000 5; fsync /b; \
         mkfile /c; write /c 0 4000 6; fsync /c; removexattr /a user.a; fsync /a",
        &policy(Checkpoints::Never),
    );
}

#[test]
fn recovery_is_cut_in_every_image() {
    let policy = Policy { recovery: 1, ..policy(Checkpoints::Never) };
    for text in [
        "mkfile /a; write /a 0 5000 1; fsync /a; write /a 10 10 2; fsync /a; rename /a /b; fsyncdir /",
        "mkfile /a; write /a 0 9000 1; fsync /a; sync; write /a 4090 10 2; fsync /a; unlink /a; mkfile /a; \
         write /a 0 9000 3; fsync /a",
    ] {
        let stats = survives_after("", text, &policy);
        println!("{stats:?}");
        assert!(stats.recoveries.0 >= 20 && stats.recoveries.1 > 200, "{stats:?}");
    }
}

#[test]
fn the_recovery_of_a_cut_recovery_is_cut() {
    let mut policy = Policy { recovery: 4, deep: 2, ..policy(Checkpoints::Never) };
    (policy.images.each, policy.images.samples, policy.images.torn) = (2, 2, 2);
    let text = "mkfile /a; write /a 0 3000 1; fsync /a; write /a 100 9 2; mkfile /b; fsync /a";
    let stats = survives_after("", text, &policy);
    println!("{stats:?}");
    assert!(stats.recoveries.0 >= 3 && stats.recoveries.1 > 300, "{stats:?}");
}

fn random(usual: std::ops::Range<u64>, profile: &Profile, policy: impl Fn(u64) -> Policy) {
    for seed in seeds(usual) {
        let (script, policy) = (generate(seed, profile), policy(seed));
        if let Err(first) = power_cut(&script, &policy) {
            let small = shrink(&script, |script| power_cut(script, &policy).is_err());
            let last = power_cut(&small, &policy).err().unwrap_or(first);
            panic!("script seed {seed} with {:?}: {last}", policy.setup);
        }
    }
}

fn profile() -> Profile {
    Profile { ops: 30, syncs: 60, remounts: 1, evicts: 0, write_max: 9000, ..Profile::default() }
}

#[test]
fn random_scripts() {
    random(0..15, &profile(), |seed| {
        mounted(policy(Checkpoints::Never), |mount| {
            mount.inode_cache = [0, 1, 100][seed as usize % 3];
            mount.log_data_bytes = Some([0, 16384, 65536][seed as usize / 3 % 3]);
            mount.rename_log = RenameLog::ALL[seed as usize % 2];
            mount.batching = Batching::ALL[seed as usize / 2 % 2];
        })
    });
}

#[test]
fn random_scripts_and_commits() {
    random(1000..1010, &profile(), |seed| match seed % 2 {
        0 => policy(Checkpoints::CommitsAfter(2 + seed % 7)),
        _ => policy(Checkpoints::After(2 + seed % 7)),
    });
}

#[test]
fn random_scripts_beside_commits() {
    random(2000..2006, &profile(), |_| policy(Checkpoints::CommitsBeside));
}

/// Few operations, a name for a few files, an fsync behind every second one: what has found lost names in
/// filesystems for many years.
#[test]
fn short_random_scripts_about_names() {
    let profile = Profile { ops: 9, syncs: 90, names: 2, depth: 2, write_max: 3000, ..profile() };
    random(3000..3040, &profile, |_| policy(Checkpoints::Never));
}

/// Hardly any space: recoveries copy nodes, and give blocks back, on a full volume.
#[test]
fn random_scripts_on_a_full_volume() {
    let profile = Profile {
        ops: 60,
        syncs: 30,
        names: 8,
        write_max: 900_000,
        offset_max: 4_000_000,
        ..profile()
    };
    random(4000..4002, &profile, |seed| match seed % 2 {
        0 => policy(Checkpoints::Never),
        _ => policy(Checkpoints::CommitsAfter(7)),
    });
}
