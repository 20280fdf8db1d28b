//! Random scripts that must end alike on the engine and on the model; the shortest that still fails is printed with its seed.

use std::ops::Range;

use holdfast_script::{Profile, Script, generate, shrink};
use holdfast_sim::Setup;

use crate::seeds::seeds;

/// Runs a script on both, and says where they differ.
pub(crate) type Run = fn(&Script, &Setup) -> Result<(), String>;

/// Makes a panic a failure like any other, so that it is shrunk too.
pub(crate) fn caught(run: Run, script: &Script, setup: &Setup) -> Result<(), String> {
    std::panic::catch_unwind(|| run(script, setup)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("panic: {}\nscript: {script}", words.unwrap_or_default()))
    })
}

/// One script for each seed, changed after it was made. `HOLDFAST_SEEDS=20` runs twenty times as many.
pub(crate) fn agree(
    run: Run,
    usual: Range<u64>,
    profile: &Profile,
    setup: &Setup,
    change: impl Fn(Script) -> Script,
) {
    for seed in seeds(usual) {
        let script = change(generate(seed, profile));
        if let Err(first) = caught(run, &script, setup) {
            let small = shrink(&script, |script| caught(run, script, setup).is_err());
            let again = caught(run, &small, setup).err().unwrap_or(first);
            panic!(
                "seed {seed}, {} ops, nodes of {}, {} idle inodes: {again}",
                profile.ops, setup.mkfs.node_size, setup.mount.inode_cache
            );
        }
    }
}
