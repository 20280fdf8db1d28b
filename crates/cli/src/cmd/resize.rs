//! `holdfast resize`: a volume becomes larger, while it is used or at rest.

use crate::branches::{Place, arguments};
use crate::dispatch::{Located, Pipes};
use crate::outcome::Outcome;
use crate::size;
use crate::work::Work;
use crate::work::resize::To;

/// Make a volume larger.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An image file becomes longer, and takes no more of its host than before, but for a part that the
volume keeps for removals. A block device or a partition must be larger already: grow it first, then
say max. Mounts of the volume go on; df shows the new size when this returns.

Power may fail at any moment: the volume has its old size then, or the new one. After an old size
the image file may be longer than the volume; the same command, or max, goes on from there.

  holdfast resize mnt 64G
  holdfast resize volume.img +10G
  truncate -s 1.5T volume.img && holdfast resize volume.img max")]
pub(crate) struct Args {
    /// A mounted directory or a volume.
    #[arg(value_parser = arguments::volume_place())]
    place: Place,
    /// The new size, such as 64G or 1.5T; +10G for so much more than now; or max: all that the file or the device has.
    #[arg(value_name = "SIZE", value_parser = to, allow_hyphen_values = true)]
    size: To,
}

fn to(text: &str) -> Result<To, String> {
    match text.strip_prefix('+') {
        _ if text == "max" => Ok(To::Max),
        Some(more) => size::parse(more).map(To::More),
        None => size::parse(text).map(To::Bytes),
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    Located::of(&args.place)?.run(Work::Resize(args.size), Pipes::out())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_relative_or_all_there_is() {
        assert_eq!(to("1.5G"), Ok(To::Bytes(3 << 29)));
        assert_eq!(to("+10G"), Ok(To::More(10 << 30)));
        assert_eq!(to("max"), Ok(To::Max));
        for wrong in ["", "+", "-1G", "maximum", "+max", "1.G"] {
            assert!(to(wrong).is_err(), "{wrong}");
        }
    }
}
