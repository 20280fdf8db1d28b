//! A superblock that was durable and is gone (P6): the one before it never passes for the newest.
//!
//! After every sync the newest superblock rots, or cannot be read. Journal and log behind the other one lead to
//! what was acknowledged.

use std::sync::Arc;

use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::Superblock;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_script::{Answer, FileRef, Op, Outcome, Script, Target};
use holdfast_sim::{Checkpoints, Engine, Setup};

const VOLUME: u64 = 8 << 20;

/// Names with attributes, some to each sync.
fn script() -> Script {
    let name =
        |at| format!("mkfile /f{at}; setxattr /f{at} user.a 2000 {at}; write /f{at} 0 5000 {at}; ");
    let step = |at| name(2 * at) + &name(2 * at + 1) + "sync; ";
    (0..4).map(step).collect::<String>().parse().unwrap()
}

/// The byte at which the newest superblock lies.
fn newest(image: &MemoryDevice) -> u64 {
    let slots = SUPERBLOCK_SLOTS.into_iter().filter_map(|slot| {
        let at = slot.byte_offset().unwrap();
        let mut block = [0; 4096];
        image.read(at, &mut block).unwrap();
        Some((Superblock::decode(&block, slot).ok()?.epoch, at))
    });
    slots.max().unwrap().1
}

/// What a volume shows: the files with their sums.
fn shown(engine: &mut Engine, script: &Script) -> Vec<Outcome> {
    let mut told = Vec::new();
    for op in script.ops() {
        let Op::Write { place, .. } = op else { continue };
        let FileRef::Path(_) = place else { continue };
        told.push(engine.apply(&Op::Sum { place: place.clone() }));
    }
    told
}

/// Opens what is left of `image` when its newest superblock has rotted, or cannot be read.
fn visit(image: &MemoryDevice, told: &[Outcome], script: &Script, setup: &Setup) {
    let at = newest(image);
    let rotten = image.snapshot();
    let mut block = [0; 512];
    rotten.read(at, &mut block).unwrap();
    block[100] ^= 4;
    rotten.write(at, &block).unwrap();
    let mut engine = Engine::open(Arc::new(rotten), setup.clone()).unwrap();
    assert_eq!(shown(&mut engine, script), told, "an older state passes for the newest (P6)");
    engine.unmount().unwrap();
    let inside = When::Inside { start: at, end: at + 512, skip: 0, times: u64::MAX };
    let faults = Faults::none().with(Call::Read, inside, Action::Fail);
    let device = || Arc::new(SimDevice::with_faults(image, faults.clone()));
    let writer = Engine::open(device(), setup.clone()).map(drop);
    assert!(writer.is_err(), "it may be read another time, and be the newer one");
    let mut reader = setup.clone();
    reader.mount.read_only = true;
    let mut engine = Engine::open(device(), reader).unwrap();
    assert_eq!(shown(&mut engine, script), told, "an older state passes for the newest (P6)");
}

#[test]
fn journal_and_log_lead_to_the_same_without_the_newest_superblock() {
    let setup = Setup { checkpoints: Checkpoints::After(7), ..Setup::new(4096, 16) };
    let base = Arc::new(MemoryDevice::new(VOLUME));
    let mut engine = Engine::create(base.clone(), setup.clone()).unwrap();
    let script = script();
    for op in script.ops() {
        assert_eq!(engine.apply(op), Outcome::Ok(Answer::Done), "{op}");
        if *op == Op::Sync {
            let told = shown(&mut engine, &script);
            visit(&base.snapshot(), &told, &script, &setup);
        }
    }
    let told = shown(&mut engine, &script);
    engine.unmount().unwrap();
    visit(&base.snapshot(), &told, &script, &setup);
}
