//! Prints any structure of a volume as text, one thing on a line, `field=value` throughout.
//!
//! Damage is printed where it stands, and what can be read after it is printed
//! too. A single node is printed even if its checksum is wrong. Nodes are those
//! that the commits of the journal make; what the log changed stands behind those
//! of a whole tree, and among the items of an inode.

mod journal;
mod lineage;
mod log;

use std::io::Write;
use std::ops::ControlFlow;

use holdfast_base::{BlockNo, Epoch, InodeNo, TreeId};
use holdfast_device::Device;
use holdfast_format::codec::Reader;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::node::{self, Expected, NodeHeader};
use holdfast_format::{JournalMark, NodePointer, NodeView, Superblock};

use crate::CheckError;
use crate::bounds::Bounds;
use crate::met_nodes::MetNodes;
use crate::recovered::Recovered;
use crate::superblocks::Slots;
use crate::text;
use crate::text::tree_name;
use crate::volume::Volume;
use crate::walk::{Step, WalkPart};

/// What to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Both superblock slots and the zones.
    Superblocks,
    /// Every commit of the journal, and where and why it ends.
    Journal,
    /// Every batch of the fsync log, and where and why it ends.
    Log,
    /// The node whose first block this is.
    Node(BlockNo),
    /// Every node and item of a tree: of files, that of `main`.
    Tree(TreeId),
    /// Every branch and snapshot, with its root, and how far deletions have come.
    Lineage,
    /// Every node and item of the files tree of the branch or snapshot with this number.
    Branch(u64),
    /// All items of an inode.
    Inode(InodeNo),
    /// All items of the inode that an absolute path leads to. Symbolic links are not followed.
    Path {
        /// The branch; `None`: `main`.
        branch: Option<Vec<u8>>,
        /// A snapshot of it; `None`: the branch itself.
        snapshot: Option<Vec<u8>>,
        /// The path.
        path: Vec<u8>,
    },
}

impl Subject {
    /// All items of the inode that an absolute path of `main` leads to.
    pub fn path(path: &[u8]) -> Subject {
        Subject::Path { branch: None, snapshot: None, path: path.into() }
    }
}

/// Prints `what` of the volume on `device`.
pub fn dump(device: &dyn Device, what: &Subject, out: &mut dyn Write) -> Result<(), CheckError> {
    let slots = Slots::read(device)?;
    if slots.newest().is_none() && !slots.has_magic() {
        return Err(CheckError::NotHoldfast { found: crate::foreign::identify(device) });
    }
    if *what == Subject::Superblocks {
        return superblocks(&slots, out);
    }
    let superblock = slots.into_newest()?;
    if *what == Subject::Journal {
        return journal::print(device, &superblock, out);
    }
    let recovered = Recovered::read(device, &superblock);
    if *what == Subject::Log {
        return log::print(device, &recovered, out);
    }
    let volume = recovered.volume(device);
    match what {
        Subject::Superblocks | Subject::Journal | Subject::Log => Ok(()),
        Subject::Lineage => lineage::print(&volume, &recovered, out),
        Subject::Branch(id) => {
            let tree = lineage::find(&volume, &recovered, *id)?;
            let volume = recovered.volume_of(device, &tree);
            let way = WalkPart { of: tree.id, cursor: tree.cursor, ..WalkPart::default() };
            print_tree(&volume, TreeId::Files, way, out)
        }
        Subject::Node(block) => print_node(&volume, *block, out),
        Subject::Tree(tree) => {
            print_tree(&volume, *tree, WalkPart::default(), out)?;
            log::print_items(&recovered, *tree, out)
        }
        Subject::Inode(inode) => print_inode(&volume, *inode, out),
        Subject::Path { branch, snapshot, path } => {
            let tree = lineage::named(&volume, &recovered, branch.as_deref(), snapshot.as_deref())?;
            let volume = recovered.volume_of(device, &tree);
            let inode = resolve(&volume, path)?;
            print_inode(&volume, inode, out)
        }
    }
}

/// The inode that an absolute path leads to.
fn resolve(volume: &Volume<'_>, path: &[u8]) -> Result<InodeNo, CheckError> {
    let mut inode = InodeNo::ROOT;
    let names = path.split(|&byte| byte == b'/');
    for name in names.filter(|name| !name.is_empty() && *name != b".") {
        inode = volume.look_up(inode, name).ok_or_else(|| {
            let (path, name) = (text::printable(path), text::printable(name));
            CheckError::Missing(format!("{path}: there is no {name:?} in inode {inode}"))
        })?;
    }
    Ok(inode)
}

fn superblocks(slots: &Slots, out: &mut dyn Write) -> Result<(), CheckError> {
    let newest = slots.newest().map(|superblock| superblock.epoch);
    for (slot, judged) in slots.judged.iter().enumerate() {
        let block = SUPERBLOCK_SLOTS[slot];
        match judged {
            Ok(superblock) => {
                let counts = newest == Some(superblock.epoch);
                writeln!(out, "superblock slot={slot} block={block} valid=true counts={counts}")?;
                for (name, value) in fields(superblock) {
                    writeln!(out, "superblock slot={slot} {name}={value}")?;
                }
            }
            Err(malformed) => {
                let why = &malformed.why;
                writeln!(out, "superblock slot={slot} block={block} valid=false why={why:?}")?;
            }
        }
    }
    let Some(superblock) = slots.newest() else { return Ok(()) };
    let geometry = &superblock.geometry;
    let data = holdfast_base::BlockRange::new(geometry.first_data_block(), geometry.data_blocks());
    let zones = [("log", geometry.log()), ("journal", geometry.journal()), ("data", data)];
    for (name, range) in zones {
        writeln!(out, "zone name={name} block={} count={}", range.start, range.count)?;
    }
    writeln!(out, "zone name=groups count={}", geometry.group_count())?;
    Ok(())
}

fn mark(mark: &JournalMark) -> String {
    format!("commit={} next={} sum={:016x}", mark.commit, mark.next, mark.sum)
}

fn fields(superblock: &Superblock) -> Vec<(&'static str, String)> {
    let root = |pointer: NodePointer, level| {
        format!("block={} epoch={} level={level}", pointer.block, pointer.epoch)
    };
    vec![
        ("epoch", superblock.epoch.to_string()),
        ("uuid", superblock.uuid.to_string()),
        ("label", format!("{:?}", superblock.label)),
        ("node_size", superblock.geometry.node_size.to_string()),
        ("volume_blocks", superblock.geometry.volume_blocks.to_string()),
        ("hash_seed", format!("{:#018x}", superblock.hash_seed)),
        ("features_compat", format!("{:#x}", superblock.features_compat)),
        ("features_ro_compat", format!("{:#x}", superblock.features_ro_compat)),
        ("copy_mask", superblock.geometry.copy_mask.to_string()),
        ("ring_distance", superblock.geometry.ring_distance.to_string()),
        ("files root", root(superblock.files, superblock.files_level)),
        ("space root", root(superblock.space, superblock.space_level)),
        ("lsn", superblock.lsn.to_string()),
        ("inode_next", superblock.inode_next.to_string()),
        ("inode_count", superblock.inode_count.to_string()),
        ("used_blocks", superblock.used_blocks.to_string()),
        ("referenced_blocks", superblock.referenced_blocks.to_string()),
        ("journal", mark(&superblock.journal)),
        ("log", log::mark(&superblock.log)),
    ]
}

fn print_node(volume: &Volume<'_>, block: BlockNo, out: &mut dyn Write) -> Result<(), CheckError> {
    let mut bytes = Vec::new();
    volume.read_node(block, &mut bytes)?;
    let header = NodeHeader::read(&mut Reader::new(NodeHeader::TITLE, &bytes))
        .map_err(|malformed| CheckError::Missing(malformed.to_string()))?;
    if header.magic != node::MAGIC {
        return Err(CheckError::Missing(format!("block {block} holds no node: no magic")));
    }
    // Expects what the node says of itself; what it should be, its parent knows.
    let expected = Expected {
        pointer: NodePointer { block, epoch: Epoch(header.epoch) },
        tree: TreeId::from_raw(header.tree).unwrap_or(TreeId::Files),
        level: header.level,
        volume: volume.superblock.nodes(),
    };
    let judged = NodeView::open(&bytes, &expected);
    head_line(block, &header, out)?;
    if let Err(malformed) = &judged {
        writeln!(out, "DAMAGED node={block} why={:?}", malformed.why)?;
    }
    // With a wrong sum the body may be sound all the same.
    let view = NodeView::trusted(&bytes);
    match judged.or_else(|_| view.check_body(&header, expected.volume.carried).map(|()| view)) {
        Ok(node) => body(block, &node, out),
        Err(_) => Ok(write!(out, "{}", holdfast_base::hex::dump(&bytes))?),
    }
}

fn head_line(
    block: BlockNo,
    header: &NodeHeader,
    out: &mut dyn Write,
) -> Result<(), std::io::Error> {
    let tree = TreeId::from_raw(header.tree).map_or("unknown", tree_name);
    let NodeHeader { level, count, epoch, heap_start, garbage, sum, .. } = header;
    writeln!(
        out,
        "node={block} tree={tree} level={level} count={count} epoch={epoch} \
         heap_start={heap_start} garbage={garbage} sum={sum:016x}"
    )
}

fn body(block: BlockNo, node: &NodeView<'_>, out: &mut dyn Write) -> Result<(), CheckError> {
    for index in 0..node.count() {
        let key = node.key(index);
        if node.level() == 0 {
            let item = text::item(&key, node.value(index));
            writeln!(out, "item node={block} index={index} {item}")?;
        } else {
            let child = node.child(index);
            writeln!(
                out,
                "child node={block} index={index} from={key:?} block={} epoch={}",
                child.block, child.epoch
            )?;
        }
    }
    Ok(())
}

fn print_tree(
    volume: &Volume<'_>,
    tree: TreeId,
    way: WalkPart,
    out: &mut dyn Write,
) -> Result<(), CheckError> {
    let mut outcome = Ok(());
    let _ = volume.walk_unseen(tree, way, &mut MetNodes::default(), &mut |step| {
        let printed = match step {
            Step::Node { pointer, node, .. } => {
                let mut reader = Reader::new(NodeHeader::TITLE, node.bytes());
                let header = NodeHeader::read(&mut reader);
                let head = header.map(|header| head_line(pointer.block, &header, out));
                head.unwrap_or(Ok(()))
                    .map_err(CheckError::from)
                    .and_then(|()| body(pointer.block, &node, out))
            }
            Step::Lost { pointer, level, problem, .. } => {
                let (block, tree) = (pointer.block, tree_name(tree));
                let why = problem.to_string();
                writeln!(out, "DAMAGED node={block} tree={tree} level={level} why={why:?}")
                    .map_err(CheckError::from)
            }
        };
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        }
    });
    outcome
}

fn print_inode(volume: &Volume<'_>, inode: InodeNo, out: &mut dyn Write) -> Result<(), CheckError> {
    let mut outcome = Ok(());
    let mut found = false;
    let range = Bounds::inode(inode);
    let _ = volume.items(TreeId::Files, range, &mut |block, key, value| {
        found = true;
        match writeln!(out, "item node={block} {}", text::item(&key, value)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                outcome = Err(CheckError::Output(error));
                ControlFlow::Break(())
            }
        }
    });
    outcome?;
    if !found {
        return Err(CheckError::Missing(format!("inode {inode} has no items that can be read")));
    }
    Ok(())
}
