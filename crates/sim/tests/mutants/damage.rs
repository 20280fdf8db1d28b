//! What was durable and is damaged or gone must be noticed (P6), and both replays must say so.

use std::sync::Arc;

use holdfast_base::prng::Prng;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::Geometry;
use holdfast_script::{Answer, Outcome, Script, Target};
use holdfast_sim::{Checkpoints, Engine, Setup, Verdict, agree, agree_on_log};

const VOLUME: u64 = 16 << 20;

/// A bit turns over in each block in turn that holds something, or with a seed in some of them: reads answer
/// with an error, or with what was written.
pub(crate) fn rot(seed: u64) -> Result<(), String> {
    let mut prng = Prng::seeded(seed);
    let device = Arc::new(MemoryDevice::new(VOLUME));
    let mut engine = Engine::create(device.clone(), Setup::new(4096, 16)).unwrap();
    let text = "mkfile /a; write /a 0 60k 1; write /a 9000 100 2; fsync /a";
    let script: Script = text.parse().unwrap();
    script.ops().for_each(|op| drop(engine.apply(op)));
    let look: Script = "sum /a".parse().unwrap();
    let sum = look.ops().next().unwrap();
    let told = engine.apply(sum);
    engine.unmount().unwrap();
    let geometry = Geometry::for_device(VOLUME, 4096).unwrap();
    let mut noticed = 0;
    for block in geometry.first_data_block().0..geometry.volume_blocks {
        let mut bytes = [0; 4096];
        device.read(block * 4096, &mut bytes).unwrap();
        if bytes == [0; 4096] || seed > 0 && !prng.one_in(3) {
            continue;
        }
        let image = device.snapshot();
        bytes[prng.below(4096) as usize] ^= 1 << prng.below(8);
        image.write(block * 4096, &bytes).unwrap();
        // A node may be hit as well: then nothing opens.
        let Ok(mut engine) = Engine::open(Arc::new(image), Setup::new(4096, 16)) else {
            continue;
        };
        match engine.apply(sum) {
            found if found == told => {}
            Outcome::Ok(Answer::Sum(..)) => {
                return Err(format!("block {block}: rotten data is returned (P6)"));
            }
            _ => noticed += 1,
        }
        engine.kill();
    }
    match noticed {
        0..10 if seed == 0 => Err(format!("only {noticed} rotten blocks were noticed")),
        _ => Ok(()),
    }
}

/// What is left when the device forgets the write number `skip` into a zone, and much is made durable after it.
fn lost(zone: std::ops::Range<u64>, skip: u64, checkpoints: Checkpoints) -> MemoryDevice {
    let setup = Setup { checkpoints, ..Setup::new(4096, 16) };
    let base = Arc::new(MemoryDevice::new(VOLUME));
    drop(Engine::create(base.clone(), Setup::new(4096, 16)).unwrap().unmount());
    let inside = When::Inside { start: zone.start, end: zone.end, skip, times: 1 };
    let faults = Faults::none().with(Call::Write, inside, Action::Ignore);
    let device = Arc::new(SimDevice::with_faults(&base, faults));
    let mut engine = Engine::open(device.clone(), setup).unwrap();
    for number in 0..8 {
        let text = format!(
            "mkfile /f{number}; write /f{number} 0 900 1; fsync /f{number}; mkfile /g{number}"
        );
        let script: Script = text.parse().unwrap();
        script.ops().for_each(|op| drop(engine.apply(op)));
    }
    engine.kill();
    device.image()
}

/// Refused for writing, and both replays say that something is gone.
fn is_missed(image: MemoryDevice, verdict: Verdict, what: &str) -> Result<(), String> {
    if !matches!(verdict, Verdict::Hole(_)) {
        return Err(format!("{what}: {verdict:?}, though a write in the middle was lost (P3)"));
    }
    match Engine::open(Arc::new(image), Setup::new(4096, 16)) {
        Ok(_) => Err(format!("{what}: opened for writing without a word (P3)")),
        Err(_) => Ok(()),
    }
}

/// Which writes are lost: some, or with a seed one.
fn which(seed: u64) -> std::ops::Range<u64> {
    // The first write into the journal is none of a commit: it says that commits follow.
    let one = 1 + seed % 5;
    if seed == 0 { 1..5 } else { one..one + 1 }
}

pub(crate) fn lost_batches(seed: u64) -> Result<(), String> {
    let log = Geometry::for_device(VOLUME, 4096).unwrap().log();
    for skip in which(seed) {
        let zone = log.start.0 * 4096..(log.start.0 + log.count) * 4096;
        let image = lost(zone, skip, Checkpoints::Never);
        let verdict = agree_on_log(&image)?;
        is_missed(image, verdict, &format!("batch {skip}"))?;
    }
    Ok(())
}

pub(crate) fn lost_commits(seed: u64) -> Result<(), String> {
    let journal = Geometry::for_device(VOLUME, 4096).unwrap().journal();
    for skip in which(seed) {
        let zone = journal.start.0 * 4096..(journal.start.0 + journal.count) * 4096;
        let image = lost(zone, skip, Checkpoints::CommitsAfter(3));
        let verdict = agree(&image)?;
        is_missed(image, verdict, &format!("commit {skip}"))?;
    }
    Ok(())
}

/// The commit of a rollback is lost, and an fsync comes behind it: its batch is not applied to the tree from before.
pub(crate) fn a_lost_rollback() -> Result<(), String> {
    let apply = |engine: &mut Engine, text: &str| {
        let script: Script = text.parse().unwrap();
        script.ops().for_each(|op| drop(engine.apply(op)));
    };
    let base = Arc::new(MemoryDevice::new(VOLUME));
    let mut engine = Engine::create(base.clone(), Setup::new(4096, 16)).unwrap();
    apply(&mut engine, "mkfile /a; write /a 0 900 1; fsync /a; snapshot s; append /a 900 2");
    engine.unmount().unwrap();
    // Nothing has changed since a checkpoint: the rollback is a commit alone.
    let device = Arc::new(SimDevice::new(&base));
    let setup = Setup { checkpoints: Checkpoints::Never, ..Setup::new(4096, 16) };
    let mut engine = Engine::open(device.clone(), setup).unwrap();
    let journal = Geometry::for_device(VOLUME, 4096).unwrap().journal();
    let (start, end) = (journal.start.0 * 4096, (journal.start.0 + journal.count) * 4096);
    let inside = When::Inside { start, end, skip: 0, times: u64::MAX };
    device.set_faults(Faults::none().with(Call::Write, inside, Action::Ignore));
    apply(&mut engine, "rollback s");
    device.set_faults(Faults::none());
    apply(&mut engine, "mkfile /b; fsync /b");
    engine.kill();
    let image = device.image();
    let verdict = agree_on_log(&image)?;
    is_missed(image, verdict, "the commit of a rollback")
}

/// Each place of the rings is lost in turn, behind fsyncs and a commit: what was acknowledged is there.
pub(crate) fn a_place_of_the_rings() -> Result<(), String> {
    let mut setup = Setup { checkpoints: Checkpoints::Never, ..Setup::new(4096, 16) };
    setup.mkfs.metadata_copies = 2;
    let device = Arc::new(MemoryDevice::new(VOLUME));
    let mut engine = Engine::create(device.clone(), setup.clone()).unwrap();
    let mut apply = |text: &str| {
        let script: Script = text.parse().unwrap();
        script.ops().for_each(|op| drop(engine.apply(op)));
    };
    apply("mkfile /a; write /a 0 900 1; fsync /a; mkfile /b; write /b 0 900 2; sync");
    apply("mkfile /c; write /c 0 900 3; fsync /c");
    let told = engine.walk().unwrap();
    engine.kill();
    let geometry = Geometry::for_device(VOLUME, 4096).unwrap().with_copies().unwrap();
    let rings = (geometry.log_blocks + geometry.journal_blocks) * 4096;
    for distance in geometry.ring_places() {
        let image = device.snapshot();
        let first = (geometry.log().start.0 + distance) * 4096;
        image.write(first, &vec![0; rings as usize]).unwrap();
        let Ok(mut engine) = Engine::open(Arc::new(image), setup.clone()) else {
            return Err("without one place of its rings the volume does not open (P1)".into());
        };
        let found = engine.walk();
        engine.kill();
        let Ok(found) = found else {
            return Err("without one place of its rings the volume does not read (P1)".into());
        };
        let lost = told.differences(&found);
        if !lost.is_empty() {
            return Err(format!("lost with one place of the rings (P1): {}", lost.join("; ")));
        }
    }
    Ok(())
}
