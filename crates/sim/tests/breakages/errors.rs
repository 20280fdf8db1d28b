//! Who hears of a write that failed (P7).

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::prng::Prng;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_posix::{Caller, FileSystem, FsError, OpenFlags, WriteHow};
use holdfast_sim::Setup;

/// Data that the device refuses is lost: each of two handles hears of it, once.
pub(crate) fn handles(seed: u64) -> Result<(), String> {
    let mut prng = Prng::seeded(seed);
    let (at, len) = (prng.below(5000), 20_000 + prng.below(100_000) as usize);
    let setup = Setup::new(4096, 16);
    let base = Arc::new(MemoryDevice::new(16 << 20));
    FileSystem::mkfs(&(base.clone() as Arc<dyn Device>), &setup.mkfs).unwrap();
    let device = Arc::new(SimDevice::new(&base));
    let fs = FileSystem::mount(device.clone() as Arc<dyn Device>, setup.mount).unwrap();
    let root = Caller::root();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (attr, first) = fs.create(&root, InodeNo::ROOT, b"f", 0o644, flags, true).unwrap();
    let second = fs.open(&root, attr.inode, flags).unwrap();
    fs.sync().unwrap();
    fs.write(&root, &first, at, &vec![7; len], WriteHow::default()).unwrap();
    let geometry = fs.superblock().geometry;
    let start = geometry.first_data_block().0 * 4096;
    let inside =
        When::Inside { start, end: geometry.volume_blocks * 4096, skip: 0, times: u64::MAX };
    device.set_faults(Faults::none().with(Call::Write, inside, Action::Fail));
    // In the background: no handle has asked.
    let background = fs.sync();
    device.set_faults(Faults::none());
    if background.is_ok() {
        return Err("a sync says that data is durable which the device refused (P7)".into());
    }
    let heard = |file| match fs.fsync(file, false) {
        Ok(_) => Ok(false),
        Err(FsError::Io(_)) => Ok(true),
        Err(error) => Err(format!("fsync answers {error}")),
    };
    let seen = [heard(&first)?, heard(&second)?, heard(&first)?, heard(&second)?];
    match seen {
        [true, true, false, false] => Ok(()),
        other => Err(format!("who heard of the lost data (P7): {other:?}")),
    }
}
