//! The alarm works: devices that break their word are found out, and the failure can be repeated.

use std::ops::Range;

use holdfast_base::BlockRange;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_format::Geometry;
use holdfast_script::Script;
use holdfast_sim::{Checkpoints, Failure, Policy, power_cut};

const SCRIPT: &str = "mkfile /a; write /a 0 9000 1; fsync /a; mkdir /d; rename /a /d/a; fsync /d/a; \
                      write /d/a 9000 9000 2; mkfile /b; fsync /b; unlink /b; fsyncdir /";

fn cut(script: &str, policy: &Policy) -> Result<(), Failure> {
    let script: Script = script.parse().expect("the script is well formed");
    power_cut(&script, policy).map(|stats| println!("{stats:?}"))
}

fn run(faults: Faults, only: Option<(usize, usize)>) -> Result<(), Failure> {
    cut(SCRIPT, &Policy { faults, only, ..Policy::default() })
}

#[test]
fn an_honest_device_keeps_every_promise() {
    run(Faults::none(), None).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn flushes_that_do_nothing_are_found_out_and_the_failure_repeats() {
    let lying = || Faults::none().with(Call::Flush, When::From(1), Action::Ignore);
    let failure = run(lying(), None).unwrap_err();
    println!("{failure}");
    let again = run(lying(), failure.place).unwrap_err();
    assert_eq!((failure.place, failure.what), (again.place, again.what));
}

#[test]
fn any_single_flush_that_does_nothing_is_found_out() {
    // A mount makes two, for what an earlier opening may have left behind: here there was none, and the
    // store's own power cuts over several openings hold them. Then each fsync makes one, for its commit.
    // The unmount makes three, and only the middle one must be there: it covers the commit before
    // it, and the nodes that the superblock behind it reaches (R1). A superblock that is lost at the
    // very end leaves the one before it and the journal, where everything is as well.
    //
    // Log-resident data has a flush more for its location, before the commit that makes the log dead (R5).
    let (mount, fsyncs) = (2, 4);
    for (log_data_bytes, unmount, needed) in [(0, 3, vec![2]), (16 << 10, 4, vec![1, 3])] {
        let count = fsyncs + unmount;
        let mut silent = Vec::new();
        for nth in mount + 1..=mount + count {
            let faults = Faults::none().with(Call::Flush, When::Nth(nth), Action::Ignore);
            let mut policy = Policy { faults, ..Policy::default() };
            policy.setup.mount.log_data_bytes = Some(log_data_bytes);
            match cut(SCRIPT, &policy) {
                Ok(()) => silent.push(nth - mount - fsyncs),
                Err(failure) => println!("flush {nth}: {failure}"),
            }
        }
        let others: Vec<u64> = (1..=unmount).filter(|nth| !needed.contains(nth)).collect();
        assert_eq!(silent, others, "with {log_data_bytes} bytes of data in the log");
    }
}

#[test]
fn lost_rotten_and_stray_writes_are_found_out() {
    // A bit in the header of a frame, where a sum sees it: behind a frame's end it would mean nothing.
    for action in [Action::Ignore, Action::FlipBit(Some(300)), Action::Misdirect(None)] {
        let mut found = 0;
        // The first ones are the superblock and its far copy, as they were, that a mount makes durable.
        for nth in 3..=8 {
            let faults = Faults::seeded(nth).with(Call::Write, When::Nth(nth), action);
            if let Err(failure) = run(faults, None) {
                found += 1;
                println!("{action:?} of write {nth}: {failure}");
            }
        }
        assert!(found >= 5, "{action:?} was found out {found} times of 6");
    }
}

/// Small data and names: nothing but batches is written before the unmount, or a commit.
const LOGGED: &str = "mkfile /a; write /a 0 3000 1; fsync /a; write /a 100 50 2; fsync /a; rename /a /b; \
                      fsyncdir /; append /b 4000 3; fsync /b; setxattr /b user.a 900 4; fsync /b";

fn geometry() -> Geometry {
    Geometry::for_device(Policy::default().volume, 4096).expect("the default is large enough")
}

fn bytes(blocks: BlockRange) -> Range<u64> {
    blocks.start.0 * 4096..(blocks.start.0 + blocks.count) * 4096
}

/// The write number `skip` of those into a zone goes wrong.
fn one_in(zone: &Range<u64>, skip: u64, action: Action) -> Faults {
    let inside = When::Inside { start: zone.start, end: zone.end, skip, times: 1 };
    Faults::seeded(skip).with(Call::Write, inside, action)
}

fn run_logged(faults: Faults, checkpoints: Checkpoints) -> Result<(), Failure> {
    let mut policy = Policy { faults, ..Policy::default() };
    policy.setup.checkpoints = checkpoints;
    cut(LOGGED, &policy)
}

#[test]
fn any_batch_of_the_log_that_is_lost_rotten_or_astray_is_found_out() {
    run_logged(Faults::none(), Checkpoints::Never).unwrap_or_else(|failure| panic!("{failure}"));
    let log = bytes(geometry().log());
    for action in [Action::Ignore, Action::FlipBit(Some(900)), Action::Misdirect(None)] {
        for nth in 0..5 {
            let failure = run_logged(one_in(&log, nth, action), Checkpoints::Never)
                .expect_err("an fsync had returned");
            println!("{action:?} of batch {nth}: {failure}");
        }
    }
}

/// A commit makes the log before it dead, so what only the log held must be at its location by then (R5).
#[test]
fn data_of_the_log_that_never_reaches_its_place_is_found_out() {
    let commits = Checkpoints::CommitsAfter(3);
    run_logged(Faults::none(), commits).unwrap_or_else(|failure| panic!("{failure}"));
    let geometry = geometry();
    let start = geometry.first_data_block();
    let data = bytes(BlockRange::new(start, geometry.data_blocks()));
    for nth in 0..3 {
        let failure = run_logged(one_in(&data, nth, Action::Ignore), commits)
            .expect_err("the log is dead, and the data is not at its place");
        println!("write {nth} of data: {failure}");
    }
}
