//! A snapshot is deleted of which the device does not read a node, or which is damaged there: the volume goes on, says what is
//! wrong, and the deletion goes on when that is over.
//!
//! The device that does not read is a file of another volume of ours, of which one block is damaged: each read of that is EIO, and
//! nothing else is.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use holdfast_device::{Device, FileDevice, OpenMode};
use holdfast_format::item::{Extent, TreeKind};
use holdfast_format::{ItemKind, Key, NodeView};
use holdfast_store::{Branch, OpenOptions, Store};

use crate::common::{TestMount, can_mount, number, wait_for};

const FILES: usize = 600;

/// The program that serves a mount, and what it says.
struct Daemon<'p> {
    place: &'p TestMount,
    child: Child,
}

impl<'p> Daemon<'p> {
    fn start(place: &'p TestMount) -> Daemon<'p> {
        let said = File::create(place.path("said")).unwrap();
        // A commit tries again what has failed.
        let args = ["mount", "--foreground", "-o", "commit=1", place.image(), place.dir()];
        let mut command = place.command(&args);
        let child = command.stdout(Stdio::null()).stderr(said).spawn().unwrap();
        let daemon = Daemon { place, child };
        wait_for("it is mounted", || place.is_mounted());
        daemon
    }

    fn said(&self) -> String {
        fs::read_to_string(self.place.path("said")).unwrap()
    }

    fn end(mut self) {
        self.place.umount();
        assert!(self.child.wait().unwrap().success(), "{}", self.said());
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if self.place.is_mounted() {
            self.place.run(&["umount", self.place.dir()]);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(image: &Path) -> (Arc<dyn Device>, Arc<Store>) {
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(image, OpenMode::ReadOnly).unwrap());
    let options = OpenOptions { read_only: true, threads: false, ..OpenOptions::default() };
    let store = Store::open(Arc::clone(&device), &options, Arc::default()).unwrap();
    (device, Arc::new(store))
}

/// Where a leaf of the only snapshot begins that its branch has not: behind the names, which both have.
fn leaf(image: &Path) -> u64 {
    let (device, store) = open(image);
    let trees = store.trees().unwrap();
    let of = trees.iter().find(|of| of.item.kind == TreeKind::Snapshot).unwrap().item.clone();
    assert_eq!(of.level, 1, "{FILES} files have several leaves");
    let mut bytes = vec![0; store.superblock().geometry.node_size];
    device.read(of.root.block.byte_offset().unwrap(), &mut bytes).unwrap();
    let root = NodeView::trusted(&bytes);
    root.child(root.count() * 2 / 3).block.byte_offset().unwrap()
}

/// Where the byte `at` of the largest file of a volume lies.
fn within(image: &Path, at: u64) -> u64 {
    let (_, store) = open(image);
    let main = Branch::main(store);
    let mut found = None;
    let scan = main.scan(&Key::MIN, &Key::MAX, |key, value| {
        if key.kind == ItemKind::Extent {
            let extent = Extent::decode(value).unwrap();
            let start = extent.blocks.start.byte_offset().unwrap();
            let inside = at.checked_sub(key.offset);
            let inside = inside.filter(|inside| inside / 4096 < extent.blocks.count);
            found = found.or(inside.map(|inside| start + inside));
        }
        std::ops::ControlFlow::Continue(())
    });
    scan.unwrap();
    found.expect("the leaf was written")
}

/// Another byte, at a place of a file that a mount has open.
fn flip(image: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
    file.sync_data().unwrap();
}

/// A volume with the snapshot `s`, all of whose inodes have changed since. Closed.
fn fill(place: &TestMount) {
    place.run(&["mkfs", "-q", "--size", "32M", place.image()]).fine();
    place.mount();
    let all: Vec<_> = (0..FILES).map(|number| place.dir.join(format!("file {number}"))).collect();
    all.iter().for_each(|file| fs::write(file, "content").unwrap());
    place.run(&["snapshot", "create", place.dir(), "s"]).fine();
    all.iter().for_each(|file| fs::set_permissions(file, Permissions::from_mode(0o640)).unwrap());
    place.umount();
}

fn failed(place: &TestMount) -> String {
    let list = place.run(&["snapshot", "list", "--json", place.dir()]).fine();
    let at = list.find("\"failed_deletions\":").expect("it is told") + 19;
    list[at..at + list[at..].find(']').unwrap() + 1].to_string()
}

/// The deletion fails, and everything else works.
fn delete(place: &TestMount, daemon: &Daemon<'_>) {
    place.run(&["snapshot", "delete", place.dir(), "s"]).fine();
    wait_for("the deletion has failed", || failed(place) != "[]");
    let why = failed(place);
    assert!(why.contains("the deletion of snapshot 2 does not go on"), "{why}");
    let info = place.run(&["info", place.image()]).fine();
    let line = info.lines().find(|line| line.starts_with("not deleted")).unwrap();
    assert!(line.contains("the deletion of snapshot 2 does not go on"), "{info}");
    let list = place.run(&["snapshot", "list", place.dir()]);
    assert!(list.out.contains("takes its space on"), "{list:?}");
    wait_for("the log tells of it", || daemon.said().contains("does not go on"));
    // Programs work, what they write is durable, and other snapshots come and go.
    let file = place.dir.join("new");
    fs::write(&file, "after").unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    assert_eq!(fs::read_to_string(place.dir.join("file 300")).unwrap(), "content");
    place.run(&["snapshot", "create", place.dir(), "t"]).fine();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    place.run(&["snapshot", "delete", place.dir(), "t"]).fine();
    assert_ne!(failed(place), "[]");
}

fn is_deleted(place: &TestMount) -> bool {
    let stats = place.run(&["stats", "--json", "--all", place.dir()]).fine();
    failed(place) == "[]" && number(&stats, "deletions_left") == 0
}

#[test]
fn a_deletion_goes_on_when_the_device_reads_again() {
    if !can_mount() {
        return;
    }
    let outer = TestMount::with_volume();
    outer.mount();
    let mut place = TestMount::new();
    place.image = outer.dir.join("volume.img");
    fill(&place);
    let at = leaf(&place.image);
    outer.umount();
    let at = within(&outer.image, at);
    outer.mount();
    let daemon = Daemon::start(&place);
    flip(&outer.image, at);
    delete(&place, &daemon);
    let said = daemon.said();
    assert!(said.contains("is tried again") && !said.contains("damaged"), "{said}");
    let info = place.run(&["info", "--json", place.image()]).fine();
    assert!(info.contains("\"fault\":null"), "a device that does not read is no damage: {info}");
    flip(&outer.image, at);
    wait_for("the deletion goes on by itself", || is_deleted(&place));
    daemon.end();
    place.fsck();
    drop(place);
    outer.umount();
}

#[test]
fn a_deletion_goes_on_with_the_next_mount_when_damage_is_gone() {
    if !can_mount() {
        return;
    }
    let place = TestMount::new();
    fill(&place);
    let at = leaf(&place.image);
    let daemon = Daemon::start(&place);
    flip(&place.image, at);
    delete(&place, &daemon);
    let said = daemon.said();
    assert!(said.contains("it is tried again when the volume is opened next"), "{said}");
    daemon.end();
    flip(&place.image, at);
    let info = place.run(&["info", place.image()]).fine();
    let damage = info.lines().find(|line| line.starts_with("damage ")).unwrap();
    assert!(damage.contains("of the Files tree is damaged"), "it is remembered: {info}");
    let daemon = Daemon::start(&place);
    wait_for("the deletion goes on", || is_deleted(&place));
    daemon.end();
    let forgotten = place.run(&["fsck", "-y", "-d", place.image()]);
    assert_eq!((forgotten.code, forgotten.err.as_str()), (1, ""), "{forgotten:?}");
    place.fsck();
}
