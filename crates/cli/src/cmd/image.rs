//! `holdfast image`: a copy of a volume's metadata as a sparse file, to be sent in search of a mistake.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_salvage::{Choice, HowMuch, SalvageError, Scan, Tolerant, image};

use super::salvage::{bar, device, show};
use crate::outcome::{Context, Failure, Outcome, plain_words, printed, shown};

/// Copy the metadata of a volume, without the content of its files.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The copy is a sparse file as long as the volume, for people who look for a mistake: `holdfast fsck
-n` finds in it what it finds in the volume, but for data. It has the superblocks, and the nodes
that they lead to. The content of files, targets of links and values of attributes stay behind, and
so do journal, log and damaged nodes, as these hold some of it: the copy is in the state of its
superblocks. What can still be learnt from it: names of files, branches and attributes, sizes,
times, owners, and the checksum of each block of data, which tells whether a file has a known
content.

  holdfast image broken.img metadata.img && tar -cSf - metadata.img | zstd > metadata.tar.zst")]
pub(crate) struct Args {
    /// Copy journal, log, damaged nodes and what of files lies in nodes as well, as they are.
    #[arg(long)]
    content: bool,
    /// Put other names of the same length in place of all names, and leave out checksums of data.
    #[arg(long, conflicts_with = "content")]
    scramble_names: bool,
    /// Show no progress bar. Elsewhere than on a terminal there is none anyway.
    #[arg(short, long)]
    quiet: bool,
    /// A file or a block device.
    volume: PathBuf,
    /// The file that is made.
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let device = device(&args.volume)?;
    // A place that takes no file is told of before all of the device is read for nothing; and an interrupt in that leaves none.
    drop(new_file(&args.out)?);
    std::fs::remove_file(&args.out).context(args.out.display())?;
    let tolerant = Tolerant::new(&*device);
    let bar = bar(args.quiet);
    let show = |at| show(&bar, at);
    let scan = Scan::read(&tolerant, &show);
    let file = new_file(&args.out)?;
    let mut write = |block: u64, bytes: &[u8]| match block.checked_mul(BLOCK_BYTES) {
        Some(at) => file.write_all_at(bytes, at),
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    let kept = match (args.content, args.scramble_names) {
        (true, _) => HowMuch::Content,
        (_, true) => HowMuch::Shape,
        _ => HowMuch::Names,
    };
    let imaged = image(&tolerant, &scan, &Choice::default(), kept, &show, &mut write);
    bar.clear();
    let imaged = imaged.map_err(|error| {
        let _ = std::fs::remove_file(&args.out);
        match error {
            SalvageError::Destination(error) => {
                Failure::plain(format!("{}: {}", args.out.display(), plain_words(&error)))
            }
            error => Failure::plain(format!("{}: {error}", args.volume.display())),
        }
    })?;
    file.set_len(imaged.len)
        .and_then(|()| file.sync_all())
        .context(args.out.display())
        .inspect_err(|_| {
            let _ = std::fs::remove_file(&args.out);
        })?;
    let mut out = io::stdout().lock();
    let (nodes, damaged) = (imaged.nodes, imaged.damaged);
    printed(writeln!(out, "{}: {nodes} nodes, {damaged} damaged", shown(&args.out)))?;
    Ok(0)
}

/// Names of files are in it: private until its owner says otherwise.
fn new_file(path: &Path) -> Result<File, Failure> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    file.context(path.display())
}
