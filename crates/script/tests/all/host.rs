//! The model against Linux: how we know that the model is right.

use std::path::Path;

use holdfast_script::{Host, Model, Profile, Rules, Script, compare, generate, shrink};

fn run(script: &Script, under: &Path) -> Result<(), holdfast_script::Mismatch> {
    let dir = tempfile::Builder::new()
        .prefix("holdfast-script")
        .tempdir_in(under)
        .expect("a directory for the script");
    let mut host = Host::new(dir.path()).expect("the directory was just made");
    // tempdir makes the root 700.
    let start: Script = "chmod / 755".parse().expect("one operation");
    compare(&start, &mut Model::new(), &mut host, Rules::LENIENT)?;
    compare(script, &mut Model::new(), &mut host, Rules::LENIENT)
}

/// `HOLDFAST_SEEDS=20` runs twenty times as many scripts.
fn agree(under: &Path, first: u64, count: u64, profile: &Profile) {
    if !rustix::process::geteuid().is_root() {
        holdfast_base::skip::skipped("scripts change owners and make devices, which needs root");
        return;
    }
    let times = std::env::var("HOLDFAST_SEEDS").ok().and_then(|times| times.parse().ok());
    for seed in first..first + count * times.unwrap_or(1) {
        let script = generate(seed, profile);
        if let Err(mismatch) = run(&script, under) {
            let small = shrink(&mismatch.script, |script| run(script, under).is_err());
            let small = run(&small, under).err().unwrap_or(mismatch);
            panic!("{} in {}: {}", seed, under.display(), small.from_seed(seed));
        }
    }
}

#[test]
fn the_model_agrees_with_the_host_filesystem() {
    // A busy disk makes an fsync slow, and tmpfs answers it just as well.
    let profile = Profile { ops: 150, syncs: 0, ..Profile::default() };
    agree(&std::env::temp_dir(), 0, 200, &profile);
}

#[test]
fn the_model_agrees_with_tmpfs() {
    let profile = Profile { ops: 150, zero: false, ..Profile::default() };
    agree(Path::new("/dev/shm"), 1_000_000, 300, &profile);
}
