//! What programs do in a branch: they write, reserve, make unwritten and remove. And a checkpoint, which ends an epoch.

use super::*;

impl Volume {
    /// The node of a branch, for a change: of this epoch, or a copy that is.
    fn own_node(&mut self, branch: usize, hand: &mut Hand<'_>) -> &mut Node {
        let of = self.branches[branch].expect("the branch is there");
        if of.root.birth == self.epoch {
            return self.nodes[of.root.block as usize].as_mut().expect("a root is there");
        }
        let old = *self.node(of.root).expect("a root is there");
        let root = self.take(hand);
        let tag = hand.next_tag();
        hand.device[root.block as usize] = tag;
        self.drop_at(branch, NODE, of.root, hand);
        self.branches[branch] = Some(Branch { root, ..of });
        self.nodes[root.block as usize].insert(Node { tag, ..old })
    }

    fn put(&mut self, branch: usize, key: usize, extent: Option<Extent>, hand: &mut Hand<'_>) {
        let node = self.own_node(branch, hand);
        let old = std::mem::replace(&mut node.items[key], extent);
        let moved = |old: &Extent| extent.is_none_or(|new| new.at != old.at);
        if let Some(old) = old.filter(moved) {
            self.drop_at(branch, key, old.at, hand);
        }
        if let Some(of) = &mut self.branches[branch] {
            of.truth[key] = extent.and_then(|extent| extent.content).unwrap_or(0);
        }
    }

    /// New data for a key, in a block of its own.
    pub(in crate::lineage) fn write(&mut self, branch: usize, key: usize, hand: &mut Hand<'_>) {
        let (at, tag) = (self.take(hand), hand.next_tag());
        hand.device[at.block as usize] = tag;
        self.put(branch, key, Some(Extent { at, content: Some(tag) }), hand);
    }

    /// A block for a key, which is not written.
    pub(in crate::lineage) fn reserve(&mut self, branch: usize, key: usize, hand: &mut Hand<'_>) {
        let at = self.take(hand);
        self.put(branch, key, Some(Extent { at, content: None }), hand);
    }

    fn extent(&self, branch: usize, key: usize) -> Extent {
        let of = self.branches[branch].expect("the branch is there");
        self.node(of.root).and_then(|node| node.items[key]).expect("the key has a value")
    }

    /// Whether a snapshot has the blocks as well. What a deletion of the parent has passed counts, too: that is no
    /// mistake, only a block more.
    fn is_shared(&self, branch: usize, extent: Extent) -> bool {
        let of = self.branches[branch].expect("the branch is there");
        extent.at.birth <= self.epoch_of(of.parent)
    }

    /// The data of a key is gone, and its block stays reserved: the same block, if no snapshot has it.
    pub(in crate::lineage) fn unwrite(&mut self, branch: usize, key: usize, hand: &mut Hand<'_>) {
        let old = self.extent(branch, key);
        if self.is_shared(branch, old) && !hand.is(Mutant::SharedUnwritten) {
            return self.reserve(branch, key, hand);
        }
        *hand.unwritten |= bit(old.at.block);
        self.put(branch, key, Some(Extent { content: None, ..old }), hand);
    }

    /// The first data of a reserved block is on its way, in place; nothing if it has to go to a block of its own, because
    /// a snapshot has the block or a crash may bring back what it held.
    pub(in crate::lineage) fn send(
        &self,
        branch: usize,
        key: usize,
        hand: &mut Hand<'_>,
    ) -> Option<Tag> {
        let old = self.extent(branch, key);
        let is_shared = self.is_shared(branch, old) && !hand.is(Mutant::ReservedFilledInPlace);
        let may_come_back =
            *hand.unwritten & bit(old.at.block) != 0 && !hand.is(Mutant::FilledBeforeDurable);
        if is_shared || may_come_back {
            return None;
        }
        let tag = hand.next_tag();
        hand.device[old.at.block as usize] = tag;
        Some(tag)
    }

    /// The data that was sent to a reserved block belongs to the key.
    pub(in crate::lineage) fn publish(
        &mut self,
        branch: usize,
        key: usize,
        tag: Tag,
        hand: &mut Hand<'_>,
    ) {
        let old = self.extent(branch, key);
        self.put(branch, key, Some(Extent { content: Some(tag), ..old }), hand);
    }

    /// Nothing for a key.
    pub(in crate::lineage) fn remove(&mut self, branch: usize, key: usize, hand: &mut Hand<'_>) {
        self.put(branch, key, None, hand);
    }

    /// A checkpoint: what changes from now on is younger.
    pub(in crate::lineage) fn checkpoint(&mut self) {
        self.epoch += 1;
    }
}
