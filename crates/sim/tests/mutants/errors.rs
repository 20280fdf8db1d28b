//! Which callers hear of a write that failed (P7), and what is left of the file (P5).

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::prng::Prng;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_posix::{Caller, FileSystem, FsError, OpenFlags, WriteHow};
use holdfast_script::Data;
use holdfast_sim::Setup;

/// Of the writes into the data zone, so many succeed.
fn refuse_data(fs: &FileSystem, skip: u64) -> Faults {
    let geometry = fs.superblock().geometry;
    let (start, end) = (geometry.first_data_block().0 * 4096, geometry.volume_blocks * 4096);
    let inside = When::Inside { start, end, skip, times: u64::MAX };
    Faults::none().with(Call::Write, inside, Action::Fail)
}

/// A file whose data goes out in many writes, which the device refuses from one of them on: what is there
/// afterwards is the beginning of what was written, and no size lies behind it.
pub(crate) fn half_written(_: u64) -> Result<(), String> {
    let text = |error: FsError| error.to_string();
    let setup = Setup::new(4096, 16);
    let stream = Data::Pattern { len: 20 << 20, seed: 1 }.bytes();
    let base = Arc::new(MemoryDevice::new(64 << 20));
    FileSystem::mkfs(&(base.clone() as Arc<dyn Device>), &setup.mkfs).map_err(text)?;
    for skip in (0..90).step_by(10) {
        let device = Arc::new(SimDevice::new(&base));
        let mount = || {
            FileSystem::mount(device.clone() as Arc<dyn Device>, setup.mount.clone()).map_err(text)
        };
        let fs = mount()?;
        let root = Caller::root();
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        let (attr, file) =
            fs.create(&root, InodeNo::ROOT, b"f", 0o644, flags, true).map_err(text)?;
        fs.write(&root, &file, 0, &stream, WriteHow::default()).map_err(text)?;
        device.set_faults(refuse_data(&fs, skip));
        let answer = fs.fsync(&file, false);
        if device.faults_fired() > 0 && answer.is_ok() {
            return Err(format!("write {skip}: fsync says that refused data is durable (P1)"));
        }
        device.set_faults(Faults::none());
        // The first sync reports the loss, once. The second one makes durable what is left.
        if fs.sync().is_err() != answer.is_err() {
            return Err(format!(
                "write {skip}: fsync says {answer:?}, and the sync of all the other (P7)"
            ));
        }
        fs.sync().map_err(text)?;
        drop((file, fs));
        let fs = mount()?;
        let mut bytes = vec![0; fs.getattr(attr.inode).map_err(text)?.size as usize];
        let file = fs.open(&root, attr.inode, OpenFlags::READ).map_err(text)?;
        fs.read(&file, 0, &mut bytes).map_err(text)?;
        if !stream.starts_with(&bytes) {
            let len = bytes.len();
            return Err(format!("write {skip}: {len} bytes hold what was never written (P5)"));
        }
    }
    Ok(())
}

/// Data that the device refuses is lost: a sync reports it, and each fsync of either handle until it is written again.
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
    device.set_faults(refuse_data(&fs, 0));
    // In the background: no handle has asked.
    let background = fs.sync();
    device.set_faults(Faults::none());
    if background.is_ok() {
        return Err("a sync says that data is durable which the device refused (P7)".into());
    }
    let fails = |file| match fs.fsync(file, false) {
        Ok(_) => Ok(false),
        Err(FsError::Io(_)) => Ok(true),
        Err(error) => Err(format!("fsync answers {error}")),
    };
    // It is lost until it is written again.
    let seen = [fails(&first)?, fails(&second)?, fails(&first)?, fails(&second)?];
    fs.write(&root, &first, at, &vec![8; len], WriteHow::default()).unwrap();
    let again = [fails(&first)?, fails(&second)?];
    match (seen, again) {
        ([true, true, true, true], [false, false]) => Ok(()),
        other => Err(format!("which handles were told of the lost data (P1, P7): {other:?}")),
    }
}
