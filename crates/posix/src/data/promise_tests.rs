//! Accepted data keeps its space, whatever fails on its way (P8): while a writeback is refused, others take all that is
//! left; when it is retried, it must find its own.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_base::{BlockNo, BlockRange, InodeNo, Timestamp};
use holdfast_device::{Device, DeviceError, MemoryDevice, Page, forward};
use holdfast_format::item::Extent;
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Need, Reservation, Transaction};
use holdfast_sync::atomic::{AtomicU64, Ordering};

use super::insert::insert_extents;
use super::place::{Item, write_all};
use super::tests::{BOTH, open, volume, write};
use crate::delayed::ordered::Target;
use crate::*;

/// A device that refuses writes behind this byte of the volume, with this error.
#[derive(Debug)]
pub(super) struct Host {
    under: Arc<MemoryDevice>,
    pub(super) refuses_from: AtomicU64,
    pub(super) errno: i32,
}

impl Device for Host {
    forward!(under: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> std::result::Result<(), DeviceError> {
        if at >= self.refuses_from.load(Ordering::Relaxed) {
            let source = std::io::Error::from_raw_os_error(self.errno);
            return Err(DeviceError::Io { call: "write", at, len: bytes.len() as u64, source });
        }
        self.under.write(at, bytes)
    }
}

pub(super) fn mount(under: Arc<MemoryDevice>, errno: i32) -> (Arc<Host>, FileSystem) {
    let host = Arc::new(Host { under, refuses_from: AtomicU64::new(u64::MAX), errno });
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    (host.clone(), FileSystem::mount(host, options).unwrap())
}

/// Whether data is refused from now on, but no log and no commit.
pub(super) fn refuse(host: &Host, fs: &FileSystem, data: bool) {
    let from = fs.core.store.geometry().first_data_block().byte_offset().unwrap();
    host.refuses_from.store(if data { from } else { u64::MAX }, Ordering::Relaxed);
}

/// Takes all the space that can still be promised.
fn take_the_rest(fs: &FileSystem, need: impl Fn(u32) -> Need) -> Vec<Reservation> {
    let mut held = Vec::new();
    for count in [64, 1] {
        while let Ok(reservation) = fs.core.store.reserve(need(count)) {
            held.push(reservation);
        }
    }
    held
}

fn blocks(count: u32) -> Need {
    Need::Grow { changes: 0, blocks: count.into() }
}

/// Dirty pages, each an extent of its own.
fn write_torn(fs: &FileSystem, file: &OpenFile, count: u64) {
    (0..count).for_each(|n| write(fs, file, 2 * n * BLOCK_BYTES, &[7; BLOCK_SIZE]));
}

#[test]
fn what_the_host_had_no_room_for_finds_its_own_space_on_a_full_volume() {
    for files in [1, 10] {
        let (host, fs) = mount(volume(), libc::ENOSPC);
        let root = Caller::root();
        let create = |n: u64| {
            let name = n.to_string();
            fs.create(&root, InodeNo::ROOT, name.as_bytes(), 0o644, BOTH, false).unwrap().1
        };
        let open: Vec<_> = (0..files).map(create).collect();
        open.iter().for_each(|file| write_torn(&fs, file, 200 / files));
        refuse(&host, &fs, true);
        assert_eq!(fs.core.write_back().unwrap_err().errno(), libc::ENOSPC);
        refuse(&host, &fs, false);
        let strangers = take_the_rest(&fs, blocks);
        assert!(strangers.len() > 10);
        fs.core.write_back().unwrap();
        assert_eq!(fs.dirty_bytes(), 0, "{files} files");
    }
}

#[test]
fn what_found_no_homes_for_its_extents_finds_its_own_space_on_a_full_volume() {
    let (_, fs) = mount(volume(), libc::ENOSPC);
    let file = open(&fs);
    write_torn(&fs, &file, 100);
    let nodes = take_the_rest(&fs, |changes| Need::Shrink { changes });
    assert_eq!(fs.core.write_back().unwrap_err().errno(), libc::ENOSPC);
    drop(nodes);
    let strangers = take_the_rest(&fs, blocks);
    assert!(strangers.len() > 10);
    fs.core.write_back().unwrap();
    assert_eq!(fs.dirty_bytes(), 0);
}

#[test]
fn the_rest_of_a_round_that_fails_in_the_middle_keeps_its_promise() {
    let (_, fs) = mount(volume(), libc::ENOSPC);
    let core = &fs.core;
    let file = open(&fs);
    let inode = &file.inode;
    let mut reservation = core.store.reserve(blocks(100)).unwrap();
    let page = Page::from(&[7; BLOCK_SIZE]);
    let items: Vec<Item> =
        (0..100).map(|n| Item { owner: 0, block: 2 * n, page: page.clone() }).collect();
    let (extents, _) = write_all(core, &items, &mut reservation, None, None).unwrap();
    assert_eq!((extents.len(), reservation.blocks()), (100, 0));
    let round: VecDeque<_> = extents.into_iter().map(|(_, extent)| extent).collect();
    // The second transaction of extents meets an invalid extent.
    let outside = Extent::new(BlockRange::new(BlockNo(3), 1), vec![1]);
    let mut transaction = Transaction::new();
    transaction.put(Key::new(inode.no, ItemKind::Extent, 150 * BLOCK_BYTES), outside.encode());
    let mut room = core.store.reserve(Need::Writeback { changes: 1 }).unwrap();
    core.store.apply(transaction, &mut room).unwrap();
    let now = Timestamp::now();
    let target = Target { size: 200 * BLOCK_BYTES, mtime: now, ctime: now, whole: true };
    let map = inode.data.lock_map();
    assert!(insert_extents(core, inode, &map, round, target, true).is_err());
    assert_eq!(inode.state.read().disk.blocks, 64, "the first transaction is in the tree");
    let reserved = inode.data.lock_content().reserved.take();
    assert_eq!(reserved.map_or(0, |reserved| reserved.blocks()), 36);
}
