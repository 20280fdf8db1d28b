//! `holdfast resize`: a volume becomes larger, while it is used or at rest, or smaller at rest.

use std::io;
use std::path::Path;
use std::sync::Arc;

use holdfast::Shrinking;
use holdfast::device::{Device, FileDevice};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_daemon::opening;
use holdfast_device::{HostFile, open_bytes};
use holdfast_service::work::Work;
use holdfast_service::work::resize::{Resized, To};
use holdfast_service::{json, size};
use rustix::fs::OFlags;

use crate::branches::{TreeLocation, arguments};
use crate::outcome::{Context, Failure, Outcome, complain, plain_words, printed, shown};
use crate::peek::Peek;
use crate::pipes::{Bar, answer};

/// Make a volume larger, or smaller.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An image file becomes longer, and takes no more of its host than before, but for a part that the
volume keeps for removals. A block device or a partition must be larger already: grow it first, then
say max. Mounts of the volume go on; df shows the new size when this returns.

Power may fail at any moment: the volume has its old size then, or the new one. After an old size
the image file may be longer than the volume; the same command, or max, goes on from there.

A volume becomes smaller only while nobody uses it. What lies behind the new end moves in front of
it; branches and snapshots share what they have shared. An image file is cut to the new size. If too
much is in use, the command says how small the volume can be, and changes nothing.

  holdfast resize mnt 64G
  holdfast resize volume.img +10G
  truncate -s 1.5T volume.img && holdfast resize volume.img max
  holdfast resize volume.img 2G
  holdfast resize volume.img -8M")]
pub(crate) struct Args {
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume.
    #[arg(value_parser = arguments::volume_place())]
    place: TreeLocation,
    /// The new size, such as 64G or 1.5T; +10G or -10G for so much more or less than now; or max: all that the file or the device has.
    #[arg(value_name = "SIZE", value_parser = wanted, allow_hyphen_values = true)]
    size: Wanted,
}

/// How large it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    To(To),
    /// So much less than it has.
    Less(u64),
}

fn wanted(text: &str) -> Result<Wanted, String> {
    match text.as_bytes().first() {
        _ if text == "max" => Ok(Wanted::To(To::Max)),
        Some(b'+') => size::parse(&text[1..]).map(To::More).map(Wanted::To),
        Some(b'-') => size::parse(&text[1..]).map(Wanted::Less),
        _ => size::parse(text).map(To::Bytes).map(Wanted::To),
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let located = args.place.located()?;
    let now =
        || holdfast_check::probe(&Peek::open(located.image()).ok()?).map(|it| it.volume_bytes);
    let to = match args.size {
        Wanted::To(to) => to,
        Wanted::Less(less) => {
            let image = located.image().display();
            let now =
                now().ok_or_else(|| Failure::plain(format!("{image}: its size cannot be read")))?;
            let left = now
                .checked_sub(less)
                .ok_or_else(|| Failure::plain(format!("{image} has {} only", size::show(now))))?;
            To::Bytes(left)
        }
    };
    if let To::Bytes(bytes) = to
        && located.is_at_rest()
        && let Some(now) = now().filter(|now| bytes / BLOCK_BYTES * BLOCK_BYTES < *now)
    {
        return shrink(&args.place.path, bytes, now, args.json);
    }
    located.run(Work::Resize(to), answer(args.json))
}

/// Makes a volume at rest smaller, and its file shorter.
fn shrink(path: &Path, bytes: u64, before: u64, as_json: bool) -> Outcome {
    use std::io::Write;
    let file = opening::open_file(path, false).map_err(|failure| failure.with_code(1))?;
    let device: Arc<dyn Device> = file.clone();
    let bar = Bar::new(true, "{wide_bar} {bytes}/{total_bytes}");
    let done = holdfast::shrink(&device, bytes, |at: Shrinking| bar.show(at.done, at.all, ""));
    drop(bar);
    let now = done.context(path.display())?;
    if !file.is_block_device()
        && let Err(error) = cut(path, &file, now)
    {
        complain(&format!("{} keeps its length: {}", path.display(), plain_words(&error)));
    }
    drop((device, file));
    let volume = &shown(path);
    let answer = Resized { volume, volume_bytes: now, volume_bytes_before: before };
    printed(writeln!(io::stdout(), "{}", json::answer(&answer, as_json)))?;
    Ok(0)
}

/// Cuts the file that is open, which is locked still. Another one may have its name by now.
fn cut(path: &Path, open: &FileDevice, bytes: u64) -> io::Result<()> {
    let file = open_bytes(path, OFlags::WRONLY)?;
    if HostFile::of(&file)? != open.id()? {
        return Err(io::Error::other("another file has its name"));
    }
    file.set_len(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_relative_or_all_there_is() {
        assert_eq!(wanted("1.5G"), Ok(Wanted::To(To::Bytes(3 << 29))));
        assert_eq!(wanted("+10G"), Ok(Wanted::To(To::More(10 << 30))));
        assert_eq!(wanted("-10G"), Ok(Wanted::Less(10 << 30)));
        assert_eq!(wanted("max"), Ok(Wanted::To(To::Max)));
        for wrong in ["", "+", "-", "--1G", "maximum", "+max", "-max", "1.G", "é"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
    }
}
