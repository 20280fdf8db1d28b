//! The first call of the device fails, then the second, until a run has none left to fail: reads, writes,
//! flushes and discards, once or from then on, in everything that a volume lives through (P6 to P9).
//!
//! What an fsync has promised is there when the device is healed, whichever call failed; nothing
//! panics; no reader gets other data; fsck is never content with what it could not read. The table says how many calls
//! failed, and what became of that.
//!
//! Then each call panics once, as a bug in its thread would: nothing that was acknowledged is lost, nothing panics a
//! second time, and if the thread was writing or flushing, the volume has stopped.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_check::Options;
use holdfast_device::sim::{Call, Faults, Policy as Images};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_posix::FileSystem;
use holdfast_script::{Script, Target, Tree};
use holdfast_sim::{Checkpoints, Engine, FaultKind, Outcomes, Policy, Setup, count_each, judge};

const SMALLEST: u64 = 8 << 20;
const CALLS: [Call; 4] = [Call::Read, Call::Write, Call::Flush, Call::Discard];

/// Fsyncs of small and larger data, names that move, files that go, and a remount, so that things are read.
const SCRIPT: &str = "mkfile /a; write /a 0 9000 1; fsync /a; mkdir /d; rename /a /d/a; fsyncdir /d; write /d/a 100 50 2; fdatasync /d/a; \
    remount; sum /d/a; append /d/a 5000 3; mkfile /b; write /b 0 60k 4; fsync /b; setxattr /b user.a 900 5; truncate /b 5000; fsync /b; \
    unlink /d/a; fsyncdir /d; sync";

#[derive(Default)]
struct Table(BTreeMap<(&'static str, &'static str, FaultKind), Outcomes>);

impl Table {
    fn add(&mut self, what: &'static str, call: Call, how: FaultKind, outcomes: Outcomes) {
        let row = self.0.entry((what, call.name(), how)).or_default();
        row.reported += outcomes.reported;
        row.survived += outcomes.survived;
        row.stopped += outcomes.stopped;
    }

    fn print(&self) {
        println!(
            "| while | call | it | calls | an error was told | everything worked | the volume stopped |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- |");
        for ((what, call, how), outcomes) in &self.0 {
            let Outcomes { reported, survived, stopped } = outcomes;
            println!(
                "| {what} | {call} | {} | {} | {reported} | {survived} | {stopped} |",
                how.name(),
                outcomes.sites()
            );
        }
    }
}

fn ways(all: &[FaultKind]) -> impl Iterator<Item = (Call, FaultKind)> {
    CALLS.into_iter().flat_map(|call| all.iter().map(move |how| (call, *how)))
}

/// A device that answers with an error.
const FAILS: &[FaultKind] = &[FaultKind::FailsOnce, FaultKind::FailsForEver];

fn setup() -> Setup {
    Setup::new(4096, 0)
}

#[test]
fn every_call_of_operations_commits_and_checkpoints() {
    let script: Script = SCRIPT.parse().unwrap();
    let mut table = Table::default();
    for (what, checkpoints) in [
        ("fsyncs", Checkpoints::Never),
        ("fsyncs and commits", Checkpoints::CommitsAfter(2)),
        ("fsyncs and checkpoints", Checkpoints::After(3)),
        ("fsyncs and rests", Checkpoints::RestsAfter(2)),
        ("fsyncs, checkpoints and discards", Checkpoints::After(2)),
    ] {
        let setup = if what.contains("discards") { setup().discarding() } else { setup() };
        let images = Images { exhaustive: 2, each: 3, samples: 2, torn: 2, ..Images::default() };
        let policy = Policy {
            volume: SMALLEST,
            setup: Setup { checkpoints, ..setup },
            images,
            ..Policy::default()
        };
        for (call, how) in ways(&FaultKind::ALL) {
            let outcomes = count_each(&Script::default(), &script, call, how, &policy)
                .unwrap_or_else(|failure| panic!("{what}: {failure}"));
            table.add(what, call, how, outcomes);
        }
    }
    table.print();
    for (&(what, call, how), outcomes) in &table.0 {
        let forever = how == FaultKind::FailsForEver;
        match call {
            // Not reported: nothing but space is lost. One that panics takes the operation with it behind which it was made.
            "discard" => assert!(
                (outcomes.sites() > 2) == what.contains("discards")
                    && (outcomes.reported == 0 || how == FaultKind::Panics),
                "{what}: {outcomes:?}"
            ),
            // A write of data may be tried elsewhere; one that fails for ever has nowhere to go.
            "write" => assert!(
                outcomes.reported > 8 && (!forever || outcomes.survived < 3),
                "{what}: {outcomes:?}"
            ),
            "flush" => {
                assert!(outcomes.reported > 8 && outcomes.survived == 0, "{what}: {outcomes:?}")
            }
            _ => assert!(outcomes.reported > 2, "{what}: {outcomes:?}"),
        }
    }
}

/// A volume that was killed behind commits and fsyncs, and what it holds.
fn crashed() -> (MemoryDevice, Tree) {
    let base = Arc::new(MemoryDevice::new(SMALLEST));
    let checkpoints = Checkpoints::CommitsAfter(7);
    let mut engine = Engine::create(base.clone(), Setup { checkpoints, ..setup() }).unwrap();
    let script: Script =
        format!("{SCRIPT}; mkfile /c; write /c 0 30k 1; fsync /c; write /c 10 10 2; fsync /c")
            .parse()
            .unwrap();
    script.ops().for_each(|op| drop(engine.apply(op)));
    engine.kill();
    let mut engine = Engine::open(Arc::new(base.snapshot()), setup()).unwrap();
    (base.snapshot(), engine.walk().unwrap())
}

fn tree(device: Arc<dyn Device>, read_only: bool) -> Result<Tree, String> {
    let mut setup = setup();
    setup.mount.read_only = read_only;
    let mut engine = Engine::open(device, setup).map_err(|error| error.to_string())?;
    engine.walk()
}

/// Opening for writing, and for reading: an error, or everything; and everything on the healed device.
#[test]
fn every_call_of_a_recovery_and_of_a_read_only_mount() {
    let (image, told) = crashed();
    let mut table = Table::default();
    for (read_only, what) in [(false, "recovery"), (true, "read-only mount and walk")] {
        for (call, how) in ways(FAILS) {
            let mut outcomes = Outcomes::default();
            for nth in 1.. {
                let device = Arc::new(SimDevice::with_faults(&image, how.at(call, nth)));
                let place = format!("{what}: {} {nth} {}", call.name(), how.name());
                let seen = tree(device.clone(), read_only);
                if device.faults_fired() == 0 {
                    break;
                }
                match &seen {
                    Ok(seen) => {
                        assert!(told.differences(seen).is_empty(), "{place}: another tree");
                        outcomes.survived += 1;
                    }
                    Err(_) => outcomes.reported += 1,
                }
                device.set_faults(Faults::none());
                if read_only {
                    assert_eq!(device.stats().writes, 0, "{place}");
                    continue;
                }
                let few =
                    Images { exhaustive: 2, each: 2, samples: 2, torn: 2, ..Images::default() };
                let left =
                    device.cut().images(&few).map(|image| image.device()).collect::<Vec<_>>();
                for image in left.into_iter().chain([device.image()]) {
                    let found =
                        tree(Arc::new(image), false).unwrap_or_else(|why| panic!("{place}: {why}"));
                    let different = told.differences(&found);
                    assert!(different.is_empty(), "{place}:\n{}", different.join("\n"));
                }
            }
            table.add(what, call, how, outcomes);
        }
    }
    table.print();
    let recovery = |call| table.0[&("recovery", call, FaultKind::FailsOnce)];
    assert!(recovery("write").reported > 1 && recovery("read").sites() > 5);
    assert!(recovery("flush").reported > 1 && recovery("flush").survived == 0);
}

/// Of what it cannot read, fsck says so: it is never content, but where nothing counts there.
#[test]
fn every_read_of_a_check() {
    let (image, _) = crashed();
    let options = Options { data: true, ..Options::default() };
    let told = holdfast_check::check(&image, &options).unwrap();
    assert!(told.is_clean());
    let mut table = Table::default();
    for how in FAILS.iter().copied() {
        let mut outcomes = Outcomes::default();
        for nth in 1.. {
            let device = SimDevice::with_faults(&image, how.at(Call::Read, nth));
            let report = holdfast_check::check(&device, &options);
            if device.faults_fired() == 0 {
                break;
            }
            match report {
                Ok(report) if report.findings.is_empty() => {
                    let (found, expected) =
                        (format!("{:?}", report.facts), format!("{:?}", told.facts));
                    assert_eq!(found, expected, "read {nth} {}: content with less", how.name());
                    outcomes.survived += 1;
                }
                _ => outcomes.reported += 1,
            }
        }
        table.add("fsck", Call::Read, how, outcomes);
    }
    table.print();
    assert!(table.0.values().all(|outcomes| outcomes.reported > 5), "fsck read hardly anything");
}

/// A mkfs that fails says so; what it leaves is no volume, or a whole one.
#[test]
fn every_call_of_a_mkfs() {
    let blank = MemoryDevice::new(SMALLEST);
    let mut table = Table::default();
    for (call, how) in ways(FAILS) {
        let mut outcomes = Outcomes::default();
        for nth in 1.. {
            let device = Arc::new(SimDevice::with_faults(&blank, how.at(call, nth)));
            let made = FileSystem::mkfs(&(device.clone() as Arc<dyn Device>), &setup().mkfs);
            if device.faults_fired() == 0 {
                break;
            }
            let place = format!("{} {nth} {}", call.name(), how.name());
            device.set_faults(Faults::none());
            match made {
                Ok(()) => {
                    judge(&device.image()).unwrap_or_else(|why| panic!("{place}: {why}"));
                    outcomes.survived += 1;
                }
                Err(_) => outcomes.reported += 1,
            }
            let image = device.image();
            if holdfast_check::probe(&image).is_some() {
                judge(&image).unwrap_or_else(|why| panic!("{place}: {why}"));
            }
        }
        table.add("mkfs", call, how, outcomes);
    }
    table.print();
    let mkfs = |call| table.0[&("mkfs", call, FaultKind::FailsOnce)];
    assert!(mkfs("write").reported > 2 && mkfs("write").survived == 0);
    assert!(mkfs("flush").reported > 0 && mkfs("flush").survived == 0);
}
