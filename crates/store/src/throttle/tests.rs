//! What is wanted under which pressure.

use super::*;
use crate::lineage::lies_tests;
use crate::tree::TreeNo;
use holdfast_base::InodeNo;
use holdfast_base::recover::FIXED;
use holdfast_format::Key;

fn throttle(recover: Duration) -> Throttle {
    let geometry = Geometry::for_device(1 << 30, 16384).unwrap();
    let options = OpenOptions { recover, ..OpenOptions::default() };
    Throttle::new(&geometry, &options, &Counters::default(), Arc::default())
}

/// A byte in each of many nodes is little to write, and much to search.
#[test]
fn a_commit_is_wanted_before_a_freeze_has_too_many_nodes() {
    let (_, store) = lies_tests::made_of(1 << 30);
    let key = |number: u64| Key::inode(InodeNo(100 + number));
    let put = |number: u64, value: &[u8]| {
        lies_tests::put(&store, TreeNo::MAIN, &[(key(number), value.to_vec())]);
    };
    // Less than four of the long ones stand in a node.
    for number in (0..8 * COMMIT_NODES).step_by(2) {
        put(number, &[1; 1000]);
        put(number + 1, &[1]);
    }
    store.checkpoint().unwrap();
    let counters = &store.inner.counters;
    let (commits, nodes) = (counters.commits.get(), counters.commit_nodes.get());
    // One in each of other nodes.
    let mut changed = (1..8 * COMMIT_NODES).step_by(6);
    while counters.commits.get() == commits {
        put(changed.next().expect("a commit comes before the last node"), &[2]);
    }
    let nodes = counters.commit_nodes.get() - nodes;
    assert!(nodes > COMMIT_NODES && nodes < COMMIT_NODES + 64, "{nodes} nodes");
}

#[test]
fn the_log_is_a_part_of_the_estimate_and_never_most_of_it() {
    let (throttle, counters) = (throttle(Duration::from_secs(1)), Counters::default());
    let log_is = |log_bytes, log_blocks| {
        let logged = RecoveryWork { log_bytes, log_blocks, ..RecoveryWork::default() };
        throttle.log_is(logged, logged, &counters);
    };
    assert_eq!(throttle.levels.read().recovery, Duration::ZERO);
    log_is(512, 0);
    assert!(counters.recovery_estimate_ns.get() >= nanos(FIXED));
    assert!(!throttle.state.lock().commit);
    log_is(throttle.log_ring() / 2 + 512, 0);
    assert!(throttle.state.lock().commit, "a commit makes it dead");
    assert_eq!(throttle.levels.read().pressure, 0.0, "no checkpoint is needed");
    let before = throttle.levels.read().recovery;
    log_is(throttle.log_ring() / 2 + 512, 256);
    assert!(throttle.levels.read().recovery > before, "data in the log goes to its place");
    log_is(0, 0);
    assert_eq!((counters.log_bytes_used.get(), counters.recovery_estimate_ns.get()), (0, 0));
}

#[test]
fn data_in_the_log_stays_there_while_a_recovery_has_time_for_it() {
    let counters = Counters::default();
    let log_is = |throttle: &Throttle, batches: u64, of_data: u64, blocks: u64| {
        let log_data_bytes = batches * of_data;
        let log_bytes = batches * 512 + log_data_bytes;
        let logged = RecoveryWork {
            log_bytes,
            log_data_bytes,
            log_blocks: blocks,
            ..RecoveryWork::default()
        };
        throttle.log_is(logged, logged, &counters);
        std::mem::take(&mut throttle.state.lock().commit)
    };
    let of_a_second = throttle(Duration::from_secs(1));
    assert!(!log_is(&of_a_second, 1500, 4096, 1500), "6 MiB of blocks");
    assert!(log_is(&of_a_second, 3000, 4096, 3000));
    assert!(!of_a_second.levels.read().is_over_budget);
    // The same blocks again and again go to few locations.
    assert!(!log_is(&of_a_second, 1800, 4096, 1));
    // A few bytes of many blocks make a short log, and much to do.
    assert!(log_is(&of_a_second, 4000, 100, 4000));
    assert!(log_is(&throttle(Duration::from_millis(300)), 1500, 4096, 1500), "a smaller budget");
    let of_an_hour = throttle(Duration::from_secs(3600));
    assert!(!log_is(&of_an_hour, 4000, 100, 4000));
    assert!(log_is(&of_an_hour, 4100, 100, 4100), "they are in memory, too");
}

#[test]
fn a_commit_that_is_being_made_is_not_wanted_again() {
    let (throttle, counters) = (throttle(Duration::from_secs(1)), Counters::default());
    let logged = |log_blocks: u64| {
        let log_data_bytes = log_blocks * 4096;
        let log_bytes = log_data_bytes + log_blocks * 512;
        RecoveryWork { log_bytes, log_data_bytes, log_blocks, ..RecoveryWork::default() }
    };
    throttle.log_is(logged(3010), logged(10), &counters);
    assert!(!throttle.state.lock().commit);
    assert_eq!(counters.log_bytes_used.get(), logged(3010).log_bytes);
    assert!(
        throttle.levels.read().recovery - FIXED > throttle.log_time(),
        "but a crash now would find all of it"
    );
    throttle.log_is(logged(6000), logged(3000), &counters);
    assert!(throttle.state.lock().commit);
    throttle.commit_begins();
    assert!(!throttle.state.lock().commit);
    // Commits that do not come to their end.
    assert!(!throttle.levels.read().is_over_budget);
    throttle.log_is(logged(12_000), logged(10), &counters);
    assert!(
        throttle.levels.read().is_over_budget && throttle.levels.read().pressure == 0.0,
        "changers wait for a commit"
    );
}
