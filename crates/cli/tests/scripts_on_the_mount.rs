//! Random scripts through the kernel: mounted with the real program, unmounted as the scripts
//! say, held against the plain model, and checked by fsck in the end. Branches and snapshots are those of
//! the program's commands; going to another branch is another mount.
//!
//! Needs root and /dev/fuse; says so and passes where they are missing.
//!
//! A program of its own: scripts/test.sh runs it again, on the other way of requests and with files that the kernel opens.

mod mounted;

use holdfast_script::{
    Host, Mismatch, Op, Profile, Rules, Script, Target, VolumeModel, closing, compare,
    compare_trees, generate,
};
use mounted::{Mounted, holdfast, unable};

fn run(script: &Script, node_size: &str) -> Result<(), Mismatch> {
    run_on(script, Mounted::new(node_size))
}

fn run_on(script: &Script, mounted: Mounted) -> Result<(), Mismatch> {
    let dir = mounted.dir.clone();
    let mut host = Host::with_hooks(dir, mounted).expect("the mount is there");
    let mut model = VolumeModel::new();
    compare(script, &mut model, &mut host, Rules::LENIENT)?;
    // What a script without branches leaves was compared, and no remount is due.
    if script.ops().any(|op| matches!(op, Op::Branch(_))) {
        model.apply(&Op::Remount);
        host.apply(&Op::Remount);
        compare_trees(script, &mut model, &mut host)?;
    }
    let mut mounted = host.into_hooks();
    mounted.end().expect("nothing is open any more");
    let fsck = holdfast(&["fsck", "-n", "-f", "-d"], &[&mounted.volume]);
    let said = [fsck.stdout, fsck.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(fsck.status.code(), Some(0), "fsck says: {said}\nscript: {script}");
    Ok(())
}

/// What the kernel lets through: nothing asks it to drop its caches.
fn profile() -> Profile {
    Profile { ops: 120, remounts: 2, evicts: 0, ..Profile::default() }
}

/// The same with branches and snapshots. Each step into another branch is a mount, and so is each look at a snapshot.
fn with_branches() -> Profile {
    Profile { remounts: 1, evicts: 0, new_branches: false, ..Profile::branches() }
}

/// `HOLDFAST_SEEDS=20` runs twenty times as many scripts.
fn agree(first: u64, count: u64, node_size: &str, change: fn(Script) -> Script) {
    agree_with(&profile(), first, count, node_size, change);
}

fn agree_with(
    profile: &Profile,
    first: u64,
    count: u64,
    node_size: &str,
    change: fn(Script) -> Script,
) {
    if let Some(reason) = unable() {
        holdfast_base::skip::skipped(reason);
        return;
    }
    let times = std::env::var("HOLDFAST_SEEDS").ok().and_then(|times| times.parse().ok());
    for seed in first..first + count * times.unwrap_or(1) {
        let script = change(generate(seed, profile));
        if let Err(mismatch) = run(&script, node_size) {
            panic!("nodes of {node_size}: {}", mismatch.from_seed(seed));
        }
    }
}

/// Instead of a clean unmount the daemon is killed, right after everything was made durable: nothing may be lost
/// (P1, P2). The kernel does not pass sync on to FUSE; the program has a command for it.
fn killed(script: Script) -> Script {
    let killed = |op: &Op| match op {
        Op::Remount => vec![Op::Sync, Op::Crash],
        op => vec![op.clone()],
    };
    script.ops().flat_map(killed).collect()
}

#[test]
fn the_mount_agrees_with_the_model() {
    agree(0, 12, "16k", |script| script);
}

#[test]
fn the_mount_agrees_with_the_model_with_small_nodes() {
    agree(1_000_000, 6, "4k", |script| script);
}

#[test]
fn the_mount_agrees_with_the_model_with_large_nodes() {
    agree(2_000_000, 6, "64k", |script| script);
}

#[test]
fn a_killed_daemon_loses_nothing_that_was_synced() {
    agree(3_000_000, 12, "16k", killed);
}

/// In a fork, beside fifty other mounts of the same daemon: a remount is one more join, and a crash ends all of them. None of
/// them has anything of the scripts (P12), and what was synced is there.
#[test]
fn a_fork_beside_fifty_mounts_agrees_with_the_model() {
    if let Some(reason) = unable() {
        holdfast_base::skip::skipped(reason);
        return;
    }
    let times = std::env::var("HOLDFAST_SEEDS").ok().and_then(|times| times.parse().ok());
    for seed in 7_000_000..7_000_000 + 2 * times.unwrap_or(1) {
        let script = generate(seed, &profile());
        let script = if seed % 2 == 0 { script } else { killed(script) };
        if let Err(mismatch) = run_on(&script, Mounted::beside("16k", 50)) {
            panic!("beside fifty mounts: {}", mismatch.from_seed(seed));
        }
    }
}

#[test]
fn branches_of_a_mount_agree_with_the_model() {
    agree_with(&with_branches(), 4_000_000, 4, "4k", |script| closing(&script));
    agree_with(&with_branches(), 5_000_000, 3, "16k", |script| closing(&script));
}

/// The daemon is killed right behind what has returned: a change of branches needs no sync (P12).
#[test]
fn a_killed_daemon_loses_no_branch() {
    agree_with(&with_branches(), 6_000_000, 4, "16k", |script| killed(closing(&script)));
}

/// The script of the golden volume: rollbacks, forks of forks, and what only the log holds when the daemon is killed.
#[test]
fn the_golden_script_on_a_mount_agrees_with_the_model() {
    if let Some(reason) = unable() {
        holdfast_base::skip::skipped(reason);
        return;
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/branches-5/script");
    let text = std::fs::read_to_string(path).expect("the script is there");
    let script: Script = text.parse().expect("it is a script");
    let ends: Script = "sync; crash; rmbranch young; rmsnapshot large".parse().expect("it is one");
    let script = script.ops().chain(ends.ops()).cloned().collect();
    if let Err(mismatch) = run(&closing(&script), "4k") {
        panic!("{mismatch}");
    }
}
