//! Reading the trees: under the lock as long as all nodes are in memory, and without it while one
//! is loaded (R4).

use std::ops::ControlFlow;

use holdfast_format::Key;

use crate::tree::{Bound, Forest, Missing, TreeNo};
use crate::{Inner, Result};

impl Inner {
    /// Runs `look` under the shared lock until it misses nothing.
    pub(crate) fn look<R>(
        &self,
        mut look: impl FnMut(&Forest) -> std::result::Result<R, Missing>,
    ) -> Result<R> {
        let mut loading = self.loading();
        let mut loaded = false;
        loop {
            let found = look(&self.forest.read());
            match found {
                Ok(found) => {
                    let counters = &self.counters;
                    if loaded { &counters.node_misses } else { &counters.node_hits }.increment();
                    return Ok(found);
                }
                Err(missing) => loading.load(missing)?,
            }
            loaded = true;
        }
    }

    pub(crate) fn get(&self, tree: TreeNo, key: &Key) -> Result<Option<Vec<u8>>> {
        self.look(|forest| Ok(forest.get(tree, key)?.map(<[u8]>::to_vec)))
    }

    pub(crate) fn is_in_memory(&self, tree: TreeNo, key: &Key) -> bool {
        self.forest.read().get(tree, key).is_ok()
    }

    pub(crate) fn scan(
        &self,
        tree: TreeNo,
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
        tree: TreeNo,
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
