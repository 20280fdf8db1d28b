//! Nodes of which one of the two places is bad: the same bytes at the same place.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::reading::VolumeReading;
use holdfast_check::{Issue, Report};
use holdfast_device::Device;

use crate::error::RepairError;
use crate::overlay::Overlay;

/// Writes each bad place that was found again from the sound one. That it is sound was found with it; the check of the result is the
/// proof that nothing else was meant.
pub(crate) fn mend(
    device: &dyn Device,
    report: &Report,
    overlay: &Overlay<'_>,
) -> Result<(), RepairError> {
    let found = report.findings.iter().filter(|it| it.issue() == Issue::NodeCopyBad);
    let bad: Vec<_> = found.filter_map(|it| it.block).collect();
    // What lies in a bad place may be data of a file that has the same blocks. It gets others in this round; the place waits for the next.
    let is_shared = report.findings.iter().any(|it| it.issue() == Issue::BlocksShared);
    if bad.is_empty() || is_shared {
        return Ok(());
    }
    let is_far = report.findings.iter().any(|it| it.issue() == Issue::NewestSuperblockLost);
    let geometry = VolumeReading::open(device, is_far)?.mark().geometry;
    for block in bad {
        let Some(sound) = geometry.copy_of(block) else { continue };
        let mut bytes = vec![0; geometry.node_size];
        device.read(sound.0.saturating_mul(BLOCK_BYTES), &mut bytes)?;
        overlay.put(block, &bytes);
    }
    Ok(())
}
