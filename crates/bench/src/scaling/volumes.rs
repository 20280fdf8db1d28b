//! Making, opening and using volumes of all sizes, sparse in memory.

use std::io;

use holdfast::VolumeOptions;

use super::curves::Curves;
use crate::mechanisms::{Devices, Progress, Scale, rounds_text};
use crate::result::{Section, Unit};
use crate::work::{fill_dirs, quiesce};

pub(super) fn run(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let gibibytes: &[u64] = scale.pick(&[1, 16], &[1, 8, 64, 256, 1024], &[1, 8, 64, 256, 1024]);
    let files = scale.pick(50, 2_000, 5_000);
    let mut curves =
        Curves::new("scaling-volume", "Bytes of the volume", "bytes of the volume", Unit::Bytes);
    for _ in 0..scale.rounds() {
        for bytes in gibibytes.iter().map(|gibibytes| gibibytes << 30) {
            let device = devices(bytes)?;
            let mut add = |operation, times: u64, work: &mut dyn FnMut() -> io::Result<()>| {
                curves.measure(operation, (bytes as f64, times), &*device, work, || Ok(()))
            };
            add("mkfs", 1, &mut || crate::new_volume().format(&device))?;
            let mut volume = None;
            add("open", 1, &mut || {
                volume = Some(VolumeOptions::new().commit_secs(0).open_device(device.clone())?);
                Ok(())
            })?;
            if let Some(volume) = &volume {
                let dir = fill_dirs(volume, 1, 100)?.remove(0);
                quiesce(volume)?;
                add("create, and a commit", files, &mut || {
                    (0..files).try_for_each(|file| dir.create(format!("file-{file}")).map(drop))?;
                    volume.commit()
                })?;
                add("create + fsync", files / 10, &mut || {
                    let mut names = (0..files / 10).map(|file| format!("durable-{file}"));
                    names.try_for_each(|name| dir.create(name)?.sync_all())
                })?;
            }
            add("close", 1, &mut || volume.take().map_or(Ok(()), |volume| volume.close()))?;
            seen(format!("volume of {} GiB", bytes >> 30));
        }
    }
    let about = format!(
        "In memory, which is taken only for what is written; {} creates, {}. mkfs and opening may take longer for a \
         larger volume, operations may not.",
        Unit::Count.show(files as f64),
        rounds_text(scale.rounds())
    );
    Ok(curves.section(&about))
}
