//! `fsck -z FILE` keeps what a repair overwrites; `fsck --undo FILE` puts it back.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use holdfast::Hold;
use holdfast::device::Device;
use holdfast_daemon::opening;
use holdfast_repair::{Planned, Undo, UndoError};

use super::{Args, ERRORS_LEFT, OPERATIONAL, printed};
use crate::outcome::{Context, Failure, Outcome, shown};

/// Writes what a repair will overwrite to a new file. When this returns, the file and its name are durable.
pub(super) fn keep(path: &Path, planned: &Planned, device: &dyn Device) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        let what = format!("{}: {error}; nothing was written to the volume", path.display());
        Failure::new(OPERATIONAL, what)
    };
    // What was in the volume is in there.
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            failed(&"it exists, and may be needed to undo another repair")
        }
        _ => failed(&error),
    })?;
    fill(file, path, planned, device).map_err(|error| {
        // It undoes nothing, and would be in the way of the next try.
        let _ = std::fs::remove_file(path);
        failed(&error)
    })
}

fn fill(file: File, path: &Path, planned: &Planned, device: &dyn Device) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    planned.keep(device, &mut out).map_err(io::Error::other)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Puts back what a file keeps.
pub(super) fn run(args: &Args, path: &Path) -> Outcome {
    let operational = |failure: Failure| failure.with_code(OPERATIONAL);
    let failed = |error: UndoError| {
        let (code, at) = match &error {
            UndoError::File(_) | UndoError::Malformed(_) => (OPERATIONAL, path),
            UndoError::Device(_) => (OPERATIONAL, &*args.target),
            UndoError::Changed(_) | UndoError::Length { .. } | UndoError::Opened => {
                (ERRORS_LEFT, &*args.target)
            }
        };
        Failure::new(code, format!("{}: {error}", at.display()))
    };
    let file = File::open(path).map_err(|error| failed(error.into()))?;
    let mut undo = Undo::open(BufReader::with_capacity(1 << 16, file)).map_err(failed)?;
    let device = opening::open_device(&args.target, false).map_err(operational)?;
    // Before anything is written, the guard included: the volume that is there may be another one, and in use.
    undo.expect_of(&*device).map_err(failed)?;
    let hold = Hold::take(device, undo.uuid()).context(args.target.display());
    let hold = hold.map_err(operational)?;
    let undone = undo.write(&**hold.device()).map_err(failed)?;
    hold.leave();
    let mut out = io::stdout().lock();
    if args.json {
        let line = serde_json::json!({
            "undone_bytes": undone.bytes,
            "unread_blocks": undone.unread,
            "unwritten_blocks": undone.unwritten,
        });
        printed(writeln!(out, "{}", holdfast_service::json::text(&line)))?;
        return Ok(0);
    }
    let bytes = holdfast_base::show::bytes(undone.bytes);
    let mut rest = match undone.unread {
        0 => "bit for bit".to_string(),
        blocks => format!("but for {blocks} blocks that did not read then, and are zeros"),
    };
    if undone.unwritten > 0 {
        let blocks = undone.unwritten;
        rest += &format!("; {blocks} blocks neither read nor write, now as then");
    }
    printed(writeln!(
        out,
        "{}: {bytes} were put back, and it is what it was before the repair, {rest}",
        shown(&args.target)
    ))?;
    Ok(0)
}
