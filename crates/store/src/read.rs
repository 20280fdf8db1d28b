//! Reading the trees: under the lock as long as all nodes are in memory, and without it while one
//! is read from the device (R4).

use std::ops::ControlFlow;

use holdfast_base::{BlockRange, TreeId};
use holdfast_format::node::Expected;
use holdfast_format::{Key, Malformed, NodePointer, NodeView};

use crate::tree::{Bound, Forest, Missing};
use crate::{Inner, Result, StoreError};

/// The last node that could not be read.
///
/// Between the moment a node was missed and the moment it was read, the tree may have changed and
/// its home may have been given to others. So it is an error only if the tree still wants it
/// at the next try.
#[derive(Debug, Default)]
pub(crate) struct Failed(Option<(NodePointer, StoreError)>);

fn damage(expected: &Expected, source: Malformed) -> StoreError {
    StoreError::Node { block: expected.pointer.block, tree: expected.tree, source }
}

/// Fails if a leaf has an item of the other tree, or of a snapshot: whoever lists and removes what is there
/// would hand keys to the log that it has no words for (P10).
fn judge_keys(node: &NodeView<'_>, tree: TreeId) -> std::result::Result<(), Malformed> {
    let count = if node.level() == 0 { node.count() } else { 0 };
    let wrong = |key: &Key| key.kind.tree() != tree || key.snapshot.0 != 0;
    match (0..count).map(|index| node.key(index)).find(wrong) {
        None => Ok(()),
        Some(key) => Err(Malformed::new("node", format!("{key:?} does not belong into it"))),
    }
}

impl Inner {
    /// Reads a missing node and takes it into memory, without holding the lock meanwhile.
    pub(crate) fn load(&self, missing: Missing, failed: &mut Failed) -> Result<()> {
        let expected = &missing.expected;
        let pointer = expected.pointer;
        if let Some((wanted, error)) = failed.0.take()
            && wanted == pointer
        {
            return Err(error);
        }
        if let Err(error) = self.try_load(&missing) {
            failed.0 = Some((pointer, error));
        }
        Ok(())
    }

    fn try_load(&self, missing: &Missing) -> Result<()> {
        let expected = &missing.expected;
        let pointer = expected.pointer;
        let bytes = self.read_node(expected)?;
        let parent = {
            let mut forest = self.forest.write();
            let in_use = {
                let space = self.space.lock();
                !space.loaded || space.is_used(self.node_range(pointer))
            };
            // What is in memory counts, if another thread was faster.
            let known = forest.node(expected.tree, pointer, expected.level);
            let is_known = known.is_some();
            match forest.fits(missing, &known.unwrap_or(NodeView::trusted(&bytes))) {
                Ok(true) if in_use => {
                    if is_known || forest.cache.insert_clean(pointer, bytes) {
                        return Ok(());
                    }
                    return Err(damage(
                        expected,
                        Malformed::new("node", "its home has a newer node"),
                    ));
                }
                Ok(fits) => {
                    let why = if fits {
                        "its blocks are not marked as in use"
                    } else {
                        "it is not what its parent says"
                    };
                    return Err(damage(expected, Malformed::new("node", why)));
                }
                Err(parent) => parent,
            }
        };
        // A node above it is missing as well, of a higher level: so this ends.
        self.try_load(&parent)
    }

    pub(crate) fn node_range(&self, pointer: NodePointer) -> BlockRange {
        BlockRange::new(pointer.block, self.geometry.node_blocks())
    }

    fn read_node(&self, expected: &Expected) -> Result<Vec<u8>> {
        let block = expected.pointer.block;
        if !self.geometry.holds_node(block) {
            let why = Malformed::new("node pointer", "it leads outside the data zone");
            return Err(damage(expected, why));
        }
        let bytes = match self.overlay.get(&block) {
            Some(replayed) => replayed.clone(),
            None => {
                let mut bytes = vec![0; self.geometry.node_size];
                let at = block.byte_offset().expect("the node lies inside the volume");
                self.device.read(at, &mut bytes)?;
                bytes
            }
        };
        self.counters.nodes_read.increment();
        let node = NodeView::open(&bytes, expected).map_err(|why| damage(expected, why))?;
        judge_keys(&node, expected.tree).map_err(|why| damage(expected, why))?;
        Ok(bytes)
    }

    /// Runs `look` under the shared lock until it misses nothing.
    fn look<R>(
        &self,
        mut look: impl FnMut(&Forest) -> std::result::Result<R, Missing>,
    ) -> Result<R> {
        let mut failed = Failed::default();
        let mut loaded = false;
        loop {
            let found = look(&self.forest.read());
            match found {
                Ok(found) => {
                    if loaded {
                        self.forest.write().cache.evict();
                    } else {
                        self.counters.node_hits.increment();
                    }
                    return Ok(found);
                }
                Err(missing) => self.load(missing, &mut failed)?,
            }
            loaded = true;
        }
    }

    pub(crate) fn get(&self, tree: TreeId, key: &Key) -> Result<Option<Vec<u8>>> {
        self.look(|forest| Ok(forest.get(tree, key)?.map(<[u8]>::to_vec)))
    }

    pub(crate) fn scan(
        &self,
        tree: TreeId,
        from: &Key,
        to: &Key,
        visit: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut at = Some(*from);
        while let Some(from) = at {
            if from > *to {
                break;
            }
            at = self.look(|forest| forest.scan_leaf(tree, &from, to, visit))?;
        }
        Ok(())
    }

    pub(crate) fn scan_back(
        &self,
        tree: TreeId,
        from: &Key,
        to: &Key,
        visit: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut at = Some(Bound::Included(*to));
        while let Some(to) = at {
            let next = self.look(|forest| forest.scan_leaf_back(tree, from, &to, visit))?;
            at = next.map(Bound::Excluded);
        }
        Ok(())
    }
}
