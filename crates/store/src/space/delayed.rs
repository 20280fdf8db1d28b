//! Data that was accepted and is not in the tree yet, and the nodes that its items may need (P8).
//!
//! Where its items will go is not known before they do: the leaf of a file may be full of other things by then. So what
//! is kept is the most that can be needed, and it is counted anew whenever another caller wants space. A volume that has
//! less is not full: a writeback of what waits takes what it really needs, and the rest is free again.

use std::ops::{Add, AddAssign, SubAssign};

use holdfast_format::Key;
use holdfast_format::item::extent::ExtentHead;
use holdfast_format::node::{POINTER_SIZE, SLOT_SIZE};

use super::slots::NodesNeeded;

/// Bytes of a leaf for each page: it may be an extent with a checksum, and cut what lay there in two.
const PAGE_BYTES: u64 = (2 * (Key::SIZE + ExtentHead::SIZE + SLOT_SIZE) + 8) as u64;
/// Bytes of a leaf for each run of pages beside those: a content that lies in the tree as a whole, or extents that are
/// joined and move from one leaf to another.
const RUN_BYTES: u64 = 2048 + (Key::SIZE + SLOT_SIZE) as u64;
/// Bytes that each new node takes in the one above.
const POINTER_BYTES: u64 = (Key::SIZE + POINTER_SIZE + SLOT_SIZE) as u64;

/// Pages of files that are not in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delayed {
    /// Runs of consecutive pages of one file.
    pub runs: u64,
    /// Pages.
    pub pages: u64,
}

impl Delayed {
    /// Nodes that may be needed for good in a tree of so many levels and nodes.
    ///
    /// The items of a run lie side by side, in at most two leaves that hold anything else. Each of these may be full, and
    /// be cut twice for a long item. Above them two nodes of each level may be full, and the root. So it is for each run, but
    /// no node can be full and cut more often than that, whatever the number of runs. From then on a node is
    /// at least a quarter empty, and only the bytes count that are added.
    pub(crate) fn needs(self, levels: u64, nodes: u64, node_size: u64) -> NodesNeeded {
        let of_tree = 2 * nodes + 2 * levels;
        let full = |of_run| self.runs.saturating_mul(of_run).min(of_tree);
        let bytes = self.pages.saturating_mul(PAGE_BYTES).saturating_add(self.runs * RUN_BYTES);
        let quarter = node_size / 4;
        let leaves = bytes.div_ceil(quarter);
        let above = (leaves * POINTER_BYTES).div_ceil(quarter - POINTER_BYTES);
        NodesNeeded {
            leaves: full(4) + leaves,
            above: full(2 * levels - 1) + above,
            all: full(2 * levels + 3) + leaves + above,
        }
    }
}

impl Add for Delayed {
    type Output = Delayed;

    fn add(self, more: Delayed) -> Delayed {
        Delayed { runs: self.runs + more.runs, pages: self.pages + more.pages }
    }
}

impl AddAssign for Delayed {
    fn add_assign(&mut self, more: Delayed) {
        *self = *self + more;
    }
}

impl SubAssign for Delayed {
    fn sub_assign(&mut self, less: Delayed) {
        self.runs -= less.runs;
        self.pages -= less.pages;
    }
}
