//! The sample with a snapshot and a branch that grew out of it, as the engine makes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, InodeNo, Timestamp, TreeId};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::{Extent, InodeItem, RootItem};
use holdfast_format::{ItemKind, Key, NodePointer, NodeView, Superblock, node};
use holdfast_store::{Branch, Need, OpenOptions, Store, Transaction};

use super::{DATA, Maker, NODE, PIPE, node_bytes, put};

/// Items of the space tree.
pub(crate) type Items = BTreeMap<Key, Vec<u8>>;

/// A volume with branches that was closed.
pub(crate) struct Grown {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) superblock: Superblock,
}

pub(crate) fn moment() -> Timestamp {
    Timestamp { secs: 1_700_000_001, nanos: 0 }
}

/// The engine on a volume.
pub(crate) fn open(device: &Arc<MemoryDevice>) -> Arc<Store> {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    let store = Store::open(Arc::clone(device) as Arc<dyn Device>, &options, Arc::default());
    Arc::new(store.expect("the volume is sound"))
}

/// Carries out what `change` makes of a transaction.
pub(crate) fn apply(branch: &Branch, change: impl FnOnce(&mut Transaction)) {
    let mut room = branch.reserve(Need::Grow { changes: 8, blocks: 8 }).expect("there is room");
    let mut transaction = Transaction::new();
    change(&mut transaction);
    branch.apply(transaction, &mut room).expect("memory does not fail");
}

/// The item of an inode.
pub(crate) fn item(branch: &Branch, number: InodeNo) -> InodeItem {
    let bytes = branch.get(&Key::inode(number)).expect("it reads").expect("it is there");
    InodeItem::decode(&bytes).expect("it is sound")
}

/// Another owner for an inode.
pub(crate) fn chown(branch: &Branch, number: InodeNo) {
    let now = item(branch, number);
    let uid = now.uid + 1;
    apply(branch, |transaction| {
        transaction.put(Key::inode(number), InodeItem { uid, ..now }.encode());
    });
}

/// New data for the first two blocks of a file, in new blocks.
pub(crate) fn overwrite(branch: &Branch, byte: u8) {
    let key = Key::new(DATA, ItemKind::Extent, 0);
    let old = branch.get(&key).expect("it reads").expect("it is there");
    let old = Extent::decode(&old).expect("it is sound");
    let mut room = branch.reserve(Need::Grow { changes: 8, blocks: 8 }).expect("there is room");
    let placed = branch.allocate(&mut room, old.blocks.count, None).expect("there is room");
    let bytes = vec![byte; placed.blocks().count as usize * BLOCK_SIZE];
    let written = branch.write(placed, &bytes).expect("memory does not fail");
    let mut transaction = Transaction::new();
    transaction.free(old.blocks, old.birth, key);
    let extent = transaction.publish(written);
    transaction.put(key, extent.encode());
    branch.apply(transaction, &mut room).expect("memory does not fail");
}

/// The sample, the snapshot `main@before` (2), and the branch `agent` (3) that grew out of it. All of them differ.
pub(crate) fn grown() -> Grown {
    grown_behind(usize::MAX, true)
}

/// The same with so many items to a leaf; `main` may still be as the snapshot is.
pub(crate) fn grown_behind(leaf_items: usize, changes_main: bool) -> Grown {
    let mut maker = Maker::sample();
    maker.leaf_items = leaf_items;
    let device = Arc::new(maker.make().device);
    let store = open(&device);
    let main = Branch::main(Arc::clone(&store));
    chown(&main, PIPE);
    let snapshot = store.snapshot(1, b"before", moment()).expect("it can be taken");
    let fork = store.fork(snapshot, b"agent", moment()).expect("it can be made");
    assert_eq!((snapshot, fork), (2, 3));
    let agent = Branch::open(Arc::clone(&store), b"agent", None).expect("it is there");
    if changes_main {
        overwrite(&main, 1);
    }
    overwrite(&agent, 2);
    chown(&agent, PIPE);
    drop((main, agent));
    Arc::into_inner(store).expect("nothing else has it").close().expect("memory does not fail");
    let superblock = newest(&*device);
    Grown { device, superblock }
}

/// The same; `agent` is promoted, and its snapshot `kept` (4) is one of `main`, though its item says otherwise.
pub(crate) fn joined() -> Grown {
    let Grown { device, .. } = grown();
    let store = open(&device);
    let taken = store.snapshot(3, b"kept", moment()).expect("it can be taken");
    assert_eq!(taken, 4);
    store.promote(1, 3, None, moment()).expect("none of its names is main's");
    Arc::into_inner(store).expect("nothing else has it").close().expect("memory does not fail");
    let superblock = newest(&*device);
    Grown { device, superblock }
}

/// The superblock that counts.
pub(crate) fn newest(device: &dyn Device) -> Superblock {
    let slots = SUPERBLOCK_SLOTS.map(|slot| {
        let mut block = [0; BLOCK_SIZE];
        device.read(slot.0 * BLOCK_BYTES, &mut block).expect("memory reads");
        Superblock::decode(&block, slot).ok()
    });
    let valid = slots.into_iter().flatten();
    valid.max_by_key(|superblock| superblock.epoch).expect("one is valid")
}

impl Grown {
    fn node(&self, at: NodePointer) -> Vec<u8> {
        let mut bytes = vec![0; NODE];
        self.device.read(at.block.0 * BLOCK_BYTES, &mut bytes).expect("memory reads");
        bytes
    }

    /// Changes the value of a key in a tree.
    pub(crate) fn poke_item(&self, root: NodePointer, key: &Key, change: impl FnOnce(&mut [u8])) {
        let (mut at, mut bytes) = (root, self.node(root));
        loop {
            let view = NodeView::trusted(&bytes);
            if view.level() == 0 {
                break;
            }
            at = view.child(view.child_index(&key.raw()));
            bytes = self.node(at);
        }
        let view = NodeView::trusted(&bytes);
        let (start, len) = view.record(view.search(&key.raw()).expect("the key is there"));
        change(&mut bytes[start + Key::SIZE..start + len]);
        node::seal(&mut bytes);
        put(&*self.device, at.block, &bytes);
    }

    /// The root of the branch `agent`.
    pub(crate) fn agent_root(&self) -> NodePointer {
        let bytes = self.node(self.superblock.space);
        let view = NodeView::trusted(&bytes);
        let at = view.search(&RootItem::key(3).raw()).expect("it has a root");
        RootItem::decode(view.value(at)).expect("it is sound").pointer()
    }

    /// The first child of a node.
    pub(crate) fn first_child(&self, of: NodePointer) -> NodePointer {
        let bytes = self.node(of);
        let view = NodeView::trusted(&bytes);
        assert!(view.level() == 1);
        view.child(0)
    }

    /// Changes the items of the space tree, which is one leaf.
    pub(crate) fn patch(&self, change: impl FnOnce(&mut Items)) {
        assert_eq!(self.superblock.space_level, 0);
        let at = self.superblock.space;
        let bytes = self.node(at);
        let view = NodeView::trusted(&bytes);
        let mut items: Items =
            (0..view.count()).map(|index| (view.key(index), view.value(index).to_vec())).collect();
        change(&mut items);
        let items: Vec<_> = items.into_iter().collect();
        put(&*self.device, at.block, &node_bytes(TreeId::Space, 0, at, &items));
    }
}
