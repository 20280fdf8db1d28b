//! Access times that cannot be written: a bounded number waits, and readers do not retry each time.

use holdfast_device::SimDevice;
use holdfast_device::sim::{Call, Faults};
use holdfast_store::Need;

use super::*;

const FILES: u64 = 600;
/// Inodes that are kept, and access times that may wait.
const KEPT: usize = 64;

fn how() -> MountOptions {
    MountOptions { atime: Atime::Always, inode_cache: KEPT, ..options() }
}

/// Files with something to read.
fn fill(fs: &FileSystem) -> Vec<InodeNo> {
    let both = OpenFlags::READ | OpenFlags::WRITE;
    let files = (0..FILES).map(|n| {
        let name = format!("f{n}");
        let (_, file) = fs.create(&root(), ROOT, name.as_bytes(), 0o644, both, true).unwrap();
        fs.write(&root(), &file, 0, b"content", WriteHow::default()).unwrap();
        file.inode()
    });
    let files = files.collect();
    fs.commit().unwrap();
    files
}

fn read_all(fs: &FileSystem, files: &[InodeNo]) {
    for &no in files {
        let file = fs.open(&root(), no, OpenFlags::READ).unwrap();
        assert_eq!(fs.read(&file, 0, &mut [0; 7]).unwrap(), 7);
    }
}

#[test]
fn on_a_stopped_volume_no_access_time_is_collected() {
    let memory = Arc::new(MemoryDevice::new(64 << 20));
    let mkfs = MkfsOptions {
        node_size: 4096,
        label: String::new(),
        uuid: None,
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    FileSystem::mkfs(&(memory.clone() as Arc<dyn Device>), &mkfs).unwrap();
    let fs = FileSystem::mount(memory.clone(), how()).unwrap();
    let files = fill(&fs);
    fs.unmount().unwrap();
    let device = Arc::new(SimDevice::new(&memory));
    let fs = FileSystem::mount(device.clone(), how()).unwrap();
    device.set_faults(Faults::fail_from(Call::Flush, 1));
    fs.mkdir(&root(), ROOT, b"d", 0o755).unwrap();
    fs.sync().unwrap_err();
    assert!(fs.stop_reason().is_some());
    let waiting = fs.core.atimes.lock().len();
    for _ in 0..3 {
        read_all(&fs, &files);
        assert_eq!(fs.core.atimes.lock().len(), waiting, "they would wait for ever");
        let kept = fs.core.inodes.len();
        assert!(kept <= 2 * KEPT + waiting, "{kept} inodes stay in memory");
    }
}

#[test]
fn on_a_full_volume_access_times_are_bounded_and_tried_once_for_each_commit() {
    let v = Volume::with(64 << 20, 4096, how());
    let files = fill(&v.fs);
    let v = v.remount_with(how());
    let (core, refused) = (&v.fs.core, || v.fs.counters().no_space.get());
    let mut hold = Vec::new();
    for changes in [100_000, 10_000, 1000, 100, 10, 1] {
        while let Ok(taken) = core.store.reserve(Need::Writeback { changes }) {
            hold.push(taken);
        }
    }
    let before = refused();
    for _ in 0..3 {
        read_all(&v.fs, &files);
        assert!(core.atimes.lock().len() <= KEPT, "{} wait", core.atimes.lock().len());
        assert!(core.inodes.len() <= 3 * KEPT, "{} inodes", core.inodes.len());
    }
    assert!(refused() - before <= 2, "tried {} times", refused() - before);
    // There is room again: nothing is stuck after the next commit.
    drop(hold);
    v.dir(ROOT, "d");
    v.fs.commit().unwrap();
    let atime = v.stat(files[FILES as usize - 1]).atime;
    read_all(&v.fs, &files);
    assert!(v.stat(files[FILES as usize - 1]).atime > atime, "noted again");
    v.fs.unmount().unwrap();
}
