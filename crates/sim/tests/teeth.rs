//! The alarm works: devices that break their word are found out, and the failure can be repeated.

use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_script::Script;
use holdfast_sim::{Failure, Policy, power_cut};

const SCRIPT: &str = "mkfile /a; write /a 0 9000 1; fsync /a; mkdir /d; rename /a /d/a; fsync /d/a; \
                      write /d/a 9000 9000 2; mkfile /b; fsync /b; unlink /b; fsyncdir /";

fn run(faults: Faults, only: Option<(usize, usize)>) -> Result<(), Failure> {
    let script: Script = SCRIPT.parse().expect("the script is well formed");
    let policy = Policy { faults, only, ..Policy::default() };
    power_cut(&script, &policy).map(|stats| println!("{stats:?}"))
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
    // A mount makes two, for what an earlier life may have left behind: here there was none, and the
    // store's own power cuts over several lives hold them. Then each fsync makes one, for its commit.
    // The unmount makes three, and only the middle one must be there: it covers the commit before
    // it, and the nodes that the superblock behind it reaches (R1). A superblock that is lost at the
    // very end leaves the one before it and the journal, where everything is as well.
    let mut silent = Vec::new();
    let (mount, fsyncs, unmount) = (2, 4, 3);
    let count = fsyncs + unmount;
    for nth in mount + 1..=mount + count {
        let lying = Faults::none().with(Call::Flush, When::Nth(nth), Action::Ignore);
        match run(lying, None) {
            Ok(()) => silent.push(nth),
            Err(failure) => println!("flush {nth}: {failure}"),
        }
    }
    assert_eq!(silent, [mount + fsyncs + 1, mount + fsyncs + 3]);
}

#[test]
fn lost_rotten_and_stray_writes_are_found_out() {
    // A bit in the header of a frame, where a sum sees it: behind a frame's end it would mean nothing.
    for action in [Action::Ignore, Action::FlipBit(Some(300)), Action::Misdirect(None)] {
        let mut found = 0;
        // The first one is the superblock, as it was, that a mount makes durable.
        for nth in 2..=7 {
            let faults = Faults::seeded(nth).with(Call::Write, When::Nth(nth), action);
            if let Err(failure) = run(faults, None) {
                found += 1;
                println!("{action:?} of write {nth}: {failure}");
            }
        }
        assert!(found >= 5, "{action:?} was found out {found} times of 6");
    }
}
