//! `holdfast-dev dump`: any structure of a volume as text, to find the cause of a problem.

use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

use holdfast_base::{BlockNo, InodeNo, TreeId};
use holdfast_check::{CheckError, Subject};

use crate::outcome::{Failure, Outcome, printed};
use crate::peek::Peek;
use crate::target::Target;

/// Print the structures of a volume.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Every node and item of a tree: files, that of main, or space.
    #[arg(long, value_parser = tree, group = "what")]
    tree: Option<TreeId>,
    /// The tree node that begins at this block.
    #[arg(long, group = "what")]
    node: Option<u64>,
    /// All items of this inode.
    #[arg(long, group = "what")]
    inode: Option<u64>,
    /// Every branch and snapshot, with its root, and how far deletions have come.
    #[arg(long, group = "what")]
    lineage: bool,
    /// Every node and item of the files tree of the branch or snapshot with this number.
    #[arg(long, value_name = "NUMBER", group = "what")]
    branch: Option<u64>,
    /// Every commit of the journal, and where and why it ends.
    #[arg(long, group = "what")]
    journal: bool,
    /// Every batch of the fsync log with its records, and where and why it ends.
    #[arg(long, group = "what")]
    log: bool,
    /// A file or block device for its superblocks, or IMAGE:/path for all of that file, also IMAGE:BRANCH@SNAPSHOT:/path; it
    /// may be mounted.
    target: std::ffi::OsString,
}

fn tree(name: &str) -> Result<TreeId, String> {
    match name {
        "files" => Ok(TreeId::Files),
        "space" => Ok(TreeId::Space),
        _ => Err("the trees are files and space".into()),
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (place, path) = Target::inside(&args.target)?;
    let names_path = matches!(Target::parse(&args.target), Target::Inside { .. });
    let what = match (args.tree, args.node, args.inode) {
        (Some(tree), _, _) => Subject::Tree(tree),
        (_, Some(block), _) => Subject::Node(BlockNo(block)),
        (_, _, Some(inode)) => Subject::Inode(InodeNo(inode)),
        _ if args.lineage => Subject::Lineage,
        _ if args.branch.is_some() => Subject::Branch(args.branch.unwrap_or_default()),
        _ if args.journal => Subject::Journal,
        _ if args.log => Subject::Log,
        _ if names_path => Subject::Path {
            branch: place.branch.as_ref().map(|name| name.bytes().to_vec()),
            snapshot: place.snapshot.as_ref().map(|name| name.bytes().to_vec()),
            path: path.as_os_str().as_bytes().to_vec(),
        },
        _ => Subject::Superblocks,
    };
    let is_one_tree = place.branch.is_some() || place.snapshot.is_some();
    if is_one_tree && !matches!(what, Subject::Path { .. }) {
        let sentence =
            format!("{place}: only a path is looked for there; for all of it use --branch");
        return Err(Failure::plain(sentence));
    }
    let peek = Peek::open(&place.path)?;
    let mut out = BufWriter::new(io::stdout().lock());
    match holdfast_check::dump(&peek, &what, &mut out) {
        Ok(()) => {}
        Err(CheckError::Output(error)) => printed(Err(error))?,
        Err(error) => return Err(Failure::plain(format!("{}: {error}", place.path.display()))),
    }
    printed(out.flush())?;
    Ok(0)
}
