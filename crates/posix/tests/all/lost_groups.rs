//! A volume of which nothing is free, as its bitmaps are damaged: it is left all the same, and before long (P8, P10).

use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, InodeNo, TreeId};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::ItemKind;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::node::{self, Expected};
use holdfast_format::{NodeView, Superblock};
use holdfast_posix::{Caller, FileSystem, MkfsOptions, MountOptions, OpenFlags, WriteHow};

const FILES: u64 = 20;

fn mount(device: &Arc<MemoryDevice>) -> FileSystem {
    // As behind a daemon that died: what programs may have open is kept.
    let options =
        MountOptions { resumed: 1, commit_secs: 0, threads: false, ..MountOptions::default() };
    FileSystem::mount(Arc::clone(device) as Arc<dyn Device>, options).unwrap()
}

/// Files without a name that a crash has left, with all nodes where they belong.
fn with_orphans() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let shared: Arc<dyn Device> = device.clone();
    let mkfs = MkfsOptions { node_size: BLOCK_SIZE, ..MkfsOptions::default() };
    FileSystem::mkfs(&shared, &mkfs).unwrap();
    let fs = mount(&device);
    let (root, flags) = (Caller::root(), OpenFlags::READ | OpenFlags::WRITE);
    let mut open = Vec::new();
    for number in 0..FILES {
        let name = format!("f{number}").into_bytes();
        let file = fs.create(&root, InodeNo::ROOT, &name, 0o644, flags, true).unwrap().1;
        fs.write(&root, &file, 0, &[7; 3 * BLOCK_SIZE], WriteHow::default()).unwrap();
        fs.unlink(&root, InodeNo::ROOT, &name).unwrap();
        open.push(file);
    }
    fs.sync().unwrap();
    let crashed = Arc::new(device.snapshot());
    drop(open);
    drop(fs);
    let recovered = mount(&crashed);
    let image = Arc::new(crashed.snapshot());
    drop(recovered);
    image
}

/// The bitmap of the only group says of one block something else than the record of the group counts.
fn forge(device: &MemoryDevice) {
    let mut block = [0; BLOCK_SIZE];
    let slots = SUPERBLOCK_SLOTS.into_iter().filter_map(|slot| {
        device.read(slot.0 * BLOCK_BYTES, &mut block).unwrap();
        Superblock::decode(&block, slot).ok()
    });
    let superblock = slots.max_by_key(|superblock| superblock.epoch).unwrap();
    let (pointer, level) = (superblock.space, superblock.space_level);
    assert_eq!(level, 0, "its space tree is a leaf");
    let at = pointer.block.0 * BLOCK_BYTES;
    let mut bytes = vec![0; BLOCK_SIZE];
    device.read(at, &mut bytes).unwrap();
    let volume = superblock.nodes();
    let view =
        NodeView::open(&bytes, &Expected { pointer, tree: TreeId::Space, level, volume }).unwrap();
    let bitmap = (0..view.count()).find(|index| view.key(*index).kind == ItemKind::Bitmap).unwrap();
    let value = view.value(bitmap);
    let place = value.as_ptr() as usize - bytes.as_ptr() as usize + value.len() - 1;
    bytes[place] ^= 0x80;
    node::seal(&mut bytes);
    device.write(at, &bytes).unwrap();
}

/// What finds no room is tried again while others may hold it for a moment. Of a group that is lost none comes.
#[test]
fn a_volume_whose_groups_are_lost_is_left_before_long() {
    let device = with_orphans();
    forge(&device);
    let fs = mount(&device);
    let counters = Arc::clone(fs.counters());
    let _ = fs.unmount();
    let refused = counters.no_space.get();
    assert!((FILES..10 * FILES).contains(&refused), "{refused} times for {FILES} files");
}
