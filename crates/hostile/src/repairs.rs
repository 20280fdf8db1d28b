//! Edited volumes, repaired.
//!
//! What must hold for every image (P10): a plan is made or refused, without a panic and without a write; what was carried out is clean for the
//! check, opens for writing and can be used on without an error; and what it overwrote can be put back, bit for bit.

use std::io::Cursor;
use std::sync::Arc;

use holdfast_check::{Options, Report, check};
use holdfast_device::Device;
use holdfast_posix::FileSystem;
use holdfast_repair::{Planned, RepairOptions, Undo, is_repaired, plan};

use crate::edited::Edited;
use crate::golden::pinned;
use crate::program::Program;
use crate::use_on::use_on;
use crate::volume::{after, fail, options};
use crate::watched::Watched;

fn found(device: &dyn Device, data: bool) -> Option<Report> {
    check(device, &Options { data, ..Options::default() }).ok()
}

/// Plans a repair of an edited volume, carries it out, and uses the volume on. The byte behind that of the volume says what the repair may
/// do, and whether everything is removed in the end.
pub fn repair(data: &[u8]) {
    let _pinned = pinned();
    let edited = Edited::of(&mut Program::new(data));
    let how = data.get(1).copied().unwrap_or(0) >> 3 & 7;
    let may = RepairOptions { data: how & 1 == 1, accept_loss: how & 2 == 0 };
    let untouched = Watched::new(edited.snapshot(), edited.len, false);
    let Some(report) = found(&untouched, may.data) else { return };
    let Ok(planned) = plan(&untouched, &report, &may) else { return };
    if edited.is_small() {
        undo(&edited, &planned);
    }
    let device: Arc<dyn Device> = Arc::new(Watched::new(edited.snapshot(), edited.len, true));
    match planned.write(&*device) {
        Ok(left) if left.is_empty() => {}
        Ok(left) => fail(&edited, &format!("a repair leaves what memory takes: {left:?}")),
        Err(error) => fail(&edited, &format!("a repair is not written: {error}")),
    }
    let left = found(&*device, may.data).unwrap_or_else(|| fail(&edited, "no volume is left"));
    if !is_repaired(&left) {
        fail(&edited, &format!("repaired, and then: {:?}", left.findings));
    }
    // Damaged data stays: its readers hear of that.
    let is_clean = found(&*device, true).is_some_and(|of| of.is_clean());
    let filesystem = match FileSystem::mount(Arc::clone(&device), options(false)) {
        Ok(filesystem) => filesystem,
        Err(error) => fail(&edited, &format!("repaired, mount says: {error}")),
    };
    let errors = use_on(&filesystem, how & 4 == 4);
    let unmounted = filesystem.unmount();
    if is_clean {
        after(&edited, &errors.0, unmounted, &device);
    }
}

/// What a repair overwrites comes back, bit for bit.
fn undo(edited: &Edited, planned: &Planned) {
    let (device, before) = (edited.snapshot(), edited.snapshot().to_image());
    let mut kept = Vec::new();
    let done = planned
        .keep(&device, &mut kept)
        .and_then(|()| Ok(planned.write(&device)?))
        .and_then(|_| Undo::open(Cursor::new(kept))?.write(&device));
    if let Err(error) = done {
        fail(edited, &format!("a repair is not undone: {error}"));
    }
    if device.to_image() != before {
        fail(edited, "a repair is undone, and the volume is not what it was");
    }
}
