//! Every single write, flush and read of a script fails, once or from then on: nothing that was promised
//! before is lost, nothing panics, and no flush is said to have worked after one has failed (P7, P9).

use holdfast_device::sim::Call;
use holdfast_script::{Profile, Script, generate};
use holdfast_sim::{Checkpoints, Policy, Setup, fail_each};

const SCRIPTS: [&str; 3] = [
    "mkfile /a; write /a 0 9000 1; fsync /a; mkdir /d; rename /a /d/a; fsyncdir /d; append /d/a 5000 2; \
     mkfile /b; write /b 0 100 3; fsync /b; unlink /b; sync; write /d/a 0 20k 4; fdatasync /d/a; sync",
    "mkfile /f; write /f 0 9000 1; fsync /f; mkfile /g; write /g 0 9000 2; rename /g /f; fsync /f; \
     truncate /f 5000; punch /f 0 4096; fsync /f; link /f /h; setxattr /h user.a 3000 1; fsync /h",
    "mkdir /a; mkdir /a/b; mkfile /a/b/f; fsync /a/b/f; remount; sum /a/b/f; write /a/b/f 0 30k 1; \
     fsync /a/b/f; rename /a /z; remount; sum /z/b/f; unlink /z/b/f; fsyncdir /z/b",
];

/// Runs every script with every call of this kind failing; there are at least so many runs in all.
fn fails(call: Call, least: u64) {
    let policy = Policy { setup: Setup::new(4096, 0), ..Policy::default() };
    let mut runs = 0;
    let mut scripts: Vec<Script> =
        SCRIPTS.map(|text| text.parse().expect("the script is well formed")).into();
    let profile = Profile { ops: 20, syncs: 30, remounts: 4, evicts: 0, ..Profile::default() };
    scripts.extend((0..10).map(|seed| generate(seed, &profile)));
    for script in &scripts {
        for forever in [false, true] {
            runs += fail_each(script, call, forever, &policy)
                .unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
    println!("{runs} runs in which a {} failed", call.name());
    assert!(runs >= least);
}

/// A checkpoint behind or beside the operations meets the failure as well as a commit does.
fn fails_with(checkpoints: Checkpoints, call: Call, scripts: u64) -> u64 {
    let setup = Setup { checkpoints, ..Setup::new(4096, 0) };
    let policy = Policy { volume: 8 << 20, setup, ..Policy::default() };
    let profile = Profile { ops: 20, syncs: 30, remounts: 1, evicts: 0, ..Profile::default() };
    let scripts = (0..scripts).map(|seed| generate(seed, &profile));
    let runs = scripts.map(|script| {
        fail_each(&script, call, false, &policy)
            .unwrap_or_else(|failure| panic!("{checkpoints:?}: {failure}"))
    });
    runs.sum()
}

#[test]
fn every_call_of_a_checkpoint() {
    for call in [Call::Write, Call::Flush] {
        assert!(fails_with(Checkpoints::After(3), call, 3) > 40);
        assert!(fails_with(Checkpoints::Beside, call, 3) > 0);
    }
}

/// The calls that write log-resident data to its location are included.
#[test]
fn every_call_of_a_commit() {
    for call in [Call::Write, Call::Flush] {
        assert!(fails_with(Checkpoints::CommitsAfter(2), call, 3) > 20);
        assert!(fails_with(Checkpoints::CommitsBeside, call, 3) > 0);
    }
}

#[test]
fn every_write() {
    fails(Call::Write, 200);
}

#[test]
fn every_flush() {
    fails(Call::Flush, 150);
}

#[test]
fn every_read() {
    fails(Call::Read, 30);
}
