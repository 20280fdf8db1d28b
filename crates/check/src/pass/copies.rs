//! Of pass 2: nodes that are stored twice, both places of each read and compared.
//!
//! The walk has found each node in one of its places at least; what it has found in none is lost, and not in here.

use holdfast_base::{BlockNo, BlockRange, TreeId};
use holdfast_format::{NodePointer, NodeView, Stored};

use super::Context;
use crate::issue::Issue;
use crate::nodes::read_plain;
use crate::report::BadPlace;
use crate::volume::Volume;

/// Nodes that are compared at a time.
const STRIDE: usize = 64;

/// The nodes that walks have met on the device.
#[derive(Default)]
pub(super) struct Copies(Vec<Node>);

#[derive(Clone, Copy)]
struct Node {
    pointer: NodePointer,
    tree: TreeId,
    level: u8,
}

impl Copies {
    /// A walk has met a sound node.
    pub(super) fn meets(
        &mut self,
        volume: &Volume<'_>,
        tree: TreeId,
        pointer: NodePointer,
        level: u8,
    ) {
        let is_twice = volume.superblock.geometry.stored(tree, level) == Stored::Twice;
        if is_twice && volume.is_on_device(pointer.block) {
            self.0.push(Node { pointer, tree, level });
        }
    }

    /// Reports the places that do not hold their nodes.
    pub(super) fn compare(mut self, context: &mut Context<'_>) {
        self.0.sort_unstable_by_key(|node| node.pointer.block);
        self.0.dedup_by_key(|node| node.pointer.block);
        let volume = context.volume;
        let geometry = &volume.superblock.geometry;
        for some in self.0.chunks(STRIDE) {
            let first: Vec<BlockNo> = some.iter().map(|node| node.pointer.block).collect();
            let copy_of = |node: &Node| geometry.copy_of(node.pointer.block, Stored::Twice);
            let mut second: Vec<_> = some.iter().filter_map(copy_of).collect();
            second.sort_unstable();
            let nodes = read_plain(volume.device, &first, geometry.node_size);
            let copies = read_plain(volume.device, &second, geometry.node_size);
            for (node, bytes) in some.iter().zip(nodes) {
                let Some(at) = copy_of(node) else { continue };
                let copy = second.binary_search(&at).ok().and_then(|index| copies[index].as_ref());
                if let Some((bad, sound, why)) = judge(&volume, node, at, bytes.as_ref(), copy) {
                    let what = format!(
                        "node {} of level {} in the {} tree: block {bad} does not hold it: {why}; block {sound} does",
                        node.pointer.block,
                        node.level,
                        crate::text::tree_name(node.tree)
                    );
                    context.findings.add(Issue::NodeCopyBad, what).block(bad);
                    let place = |block| BlockRange::new(block, geometry.node_blocks());
                    let found = BadPlace { bad: place(bad), sound: place(sound) };
                    context.findings.bad_places.push(found);
                }
            }
        }
    }
}

/// Which of the two places is bad, which is sound, and why; `None` if both are sound. Where neither is, the walk has said so.
fn judge(
    volume: &Volume<'_>,
    node: &Node,
    copy: BlockNo,
    first: Option<&Vec<u8>>,
    second: Option<&Vec<u8>>,
) -> Option<(BlockNo, BlockNo, String)> {
    let expected = volume.expected(node.tree, node.pointer, node.level);
    let wrong = |bytes: Option<&Vec<u8>>| match bytes {
        None => Some("the device could not read it".into()),
        Some(bytes) => NodeView::open(bytes, &expected).err().map(|malformed| malformed.why),
    };
    match (wrong(first), wrong(second)) {
        (Some(why), None) => Some((node.pointer.block, copy, why)),
        (None, Some(why)) => Some((copy, node.pointer.block, why)),
        (None, None) if first != second => {
            Some((copy, node.pointer.block, "it holds another version of it".into()))
        }
        _ => None,
    }
}
