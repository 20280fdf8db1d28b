//! A tree, or what changed in it, as an archive.

use std::io::{self, BufWriter};

use holdfast::Volume;
use holdfast_archive::{Exported, Form};

use super::{Ends, Out, Tree};
use crate::outcome::{Context, Failure, Outcome};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

pub(super) fn run(
    door: &Volume,
    volume: &str,
    (tree, since): (&Tree, Option<&Tree>),
    layer: bool,
    ends: &dyn Ends,
) -> Outcome {
    let form = if layer { Form::Layer } else { Form::Tar };
    let before = since.map(|since| since.view(door, volume)).transpose()?;
    let now = tree.view(door, volume)?;
    let to = BufWriter::with_capacity(BUFFER, Out(ends));
    let done = match &before {
        None => holdfast_archive::export(&now, form, ends.most_bytes(), to)
            .map_err(|error| said(&error)),
        Some(before) => {
            let most = ends.most_bytes();
            let changes = now.diff_from(before, false).context(volume)?;
            // Nothing is written before all of them are known.
            let changes = changes.map(|change| ends.check().and(change));
            let done = holdfast_archive::export_difference(before, &now, changes, most, to);
            done.map_err(|error| said(&error))
        }
    };
    [before, Some(now)].into_iter().flatten().try_for_each(Volume::close).context(volume)?;
    if let Exported { sockets: sockets @ 1.., .. } = done? {
        let are = if sockets == 1 { "socket was" } else { "sockets were" };
        ends.note(&format!("{sockets} {are} left out: no archive has a place for them"));
    }
    Ok(0)
}

/// A reader that has gone (`| head`) is told nothing, but it is no success: the archive is not whole.
pub(super) fn said(error: &holdfast_archive::Error) -> Failure {
    match error.io() {
        Some(io) if io.kind() == io::ErrorKind::BrokenPipe => Failure::new(1, ""),
        _ => Failure::plain(crate::outcome::without_number(&error.to_string())),
    }
}
