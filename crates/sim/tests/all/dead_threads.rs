//! A thread dies while several of them write a checkpoint's nodes, at any of its writes and flushes. Then the
//! volume is closed, as a daemon does whatever happened before.
//!
//! The volume has stopped as soon as the panic is known, and nothing is written behind it: neither a superblock over
//! the present one, nor a commit, nor a batch. What was synced is there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use holdfast_device::sim::{Call, Event, Faults};
use holdfast_device::{Device, SimDevice};
use holdfast_posix::FileSystem;
use holdfast_sim::judge;

use crate::many_nodes::{formatted, look, options, touch, work};

#[test]
fn a_thread_that_dies_in_a_checkpoint_of_many_nodes_takes_nothing_with_it() {
    let base = formatted();
    {
        let fs = FileSystem::mount(base.clone() as Arc<dyn Device>, options()).unwrap();
        work(&fs).unwrap();
        // As a kill leaves it: most nodes are dirty again in the recovery of the next mount.
        std::mem::drop(fs);
    }
    let mut table = Vec::new();
    for call in [Call::Write, Call::Flush] {
        let mut sites = 0;
        for nth in 1.. {
            let device = Arc::new(SimDevice::new(&base));
            let fs = FileSystem::mount(device.clone() as Arc<dyn Device>, options()).unwrap();
            touch(&fs);
            device.set_faults(Faults::panic_once(call, nth));
            let done = catch_unwind(AssertUnwindSafe(|| fs.checkpoint()));
            if device.faults_fired() == 0 {
                assert!(done.is_ok_and(|done| done.is_ok()));
                break;
            }
            let place = format!("{} {nth}", call.name());
            let events = device.recording().events.len();
            assert!(fs.stop_reason().is_some(), "{place}: the volume goes on");
            assert!(fs.sync().is_err() || fs.is_durable(), "{place}");
            let closed = catch_unwind(AssertUnwindSafe(|| fs.unmount()));
            assert!(
                closed.is_ok_and(|closed| closed.is_err()),
                "{place}: it says that all is well"
            );
            let later = &device.recording().events[events..];
            assert!(
                later.iter().all(|event| matches!(event, Event::Read { .. })),
                "{place}: something was written behind the stop"
            );
            sites += 1;
            let left = Arc::new(device.image());
            let fs = FileSystem::mount(left.clone() as Arc<dyn Device>, options());
            look(&fs.unwrap_or_else(|why| panic!("{place}: {why}")));
            judge(&*left).unwrap_or_else(|why| panic!("{place}: {why}"));
        }
        table.push((call, sites));
    }
    println!("| while | call | panics | the volume stopped | lost |");
    println!("| --- | --- | --- | --- | --- |");
    for (call, sites) in &table {
        println!("| a checkpoint of many nodes | {} | {sites} | {sites} | nothing |", call.name());
        assert!(*sites > 1, "{}", call.name());
    }
}
