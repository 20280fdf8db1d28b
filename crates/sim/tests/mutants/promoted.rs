//! A fork takes no change of its branch away that came while it was worked on (S6a).

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_device::{Device, MemoryDevice};
use holdfast_posix::{Caller, FileSystem, FsError, OpenFlags, WriteHow};
use holdfast_sim::Setup;

/// A file of the branch is written again, or a new one is made, open or not; then a fork of before is to be promoted.
pub(crate) fn a_branch_that_has_changed() -> Result<(), String> {
    let text = |error: FsError| error.to_string();
    let setup = Setup::new(4096, 16);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    FileSystem::mkfs(&device, &setup.mkfs).map_err(text)?;
    let fs = FileSystem::mount(device, setup.mount.clone()).map_err(text)?;
    let write = |fs: &FileSystem, name: &[u8], bytes: &[u8]| {
        let (root, flags) = (Caller::root(), OpenFlags::READ | OpenFlags::WRITE);
        let (_, file) = fs.create(&root, InodeNo::ROOT, name, 0o644, flags, false)?;
        fs.write(&root, &file, 0, bytes, WriteHow::default())
    };
    fs.fork(b"work", None).map_err(text)?;
    for (round, is_open) in [(0, true), (1, true), (2, false), (3, false)] {
        let work = fs.open_branch(b"work", setup.mount.clone()).map_err(text)?;
        write(&work, b"f", &[round; 9000]).map_err(text)?;
        let fork = format!("try-{round}").into_bytes();
        work.fork(&fork, None).map_err(text)?;
        let name: &[u8] = if round % 2 == 0 { b"f" } else { b"new" };
        write(&work, name, &[100 + round; 5000]).map_err(text)?;
        let work =
            if is_open { Some(work) } else { work.unmount().map_err(text).map(|()| None)? };
        match fs.promote(b"work", &fork[..], None, true) {
            Err(FsError::Diverged(_)) => {}
            done => return Err(format!("round {round}: {done:?}, and a write is gone (S6a)")),
        }
        work.map_or(Ok(()), FileSystem::unmount).map_err(text)?;
    }
    fs.unmount().map_err(text)
}
