//! `holdfast info`: what a volume is, from its superblock.

use std::path::PathBuf;

use crate::outcome::{Context, Failure, Outcome, printed};
use crate::peek::Peek;
use crate::{mounts, size};

/// Show what a volume is.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One JSON object.
    #[arg(long)]
    json: bool,
    /// A file or a block device; it may be mounted.
    target: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let device = Peek::open(&args.target)?;
    let summary = holdfast_check::probe(&device).ok_or_else(|| {
        Failure::plain(format!("{} is not a Holdfast volume", args.target.display()))
    })?;
    let mount = mounts::find(&args.target).context("/proc/self/mountinfo")?;
    let mounted_at = mount.map(|mount| mount.dir.to_string_lossy().into_owned());
    let mut out = std::io::stdout().lock();
    use std::io::Write;
    if args.json {
        let mut object =
            serde_json::to_value(&summary).expect("a summary is plain numbers and strings");
        object["mounted_at"] = mounted_at.into();
        return printed(writeln!(out, "{object}")).map(|()| 0);
    }
    let block = holdfast_base::units::BLOCK_BYTES;
    let used = size::show(summary.used_blocks.saturating_mul(block));
    let all = size::show(summary.data_blocks.saturating_mul(block));
    let lines = [
        ("uuid", summary.uuid),
        ("label", summary.label),
        ("size", size::show(summary.volume_bytes)),
        ("node size", size::show(summary.node_size)),
        ("log ring", size::show(summary.log_bytes)),
        ("journal ring", size::show(summary.journal_bytes)),
        ("used", format!("{used} of {all}")),
        ("inodes", summary.inodes.to_string()),
        ("checkpoint", summary.epoch.to_string()),
        ("mounted at", mounted_at.unwrap_or_else(|| "not mounted".into())),
    ];
    for (name, value) in lines {
        printed(writeln!(out, "{name:<13} {value}"))?;
    }
    Ok(0)
}
