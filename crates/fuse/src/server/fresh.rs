//! For tests: volumes in memory and servers of them.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::switch::SnapDir;
use holdfast_device::{Device, MemoryDevice};
use holdfast_posix::{FileSystem, MkfsOptions, MountOptions};

use super::Server;
use crate::options::FuseOptions;

/// An empty volume with nodes of 4 KiB.
pub(crate) fn volume() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let options = MkfsOptions {
        node_size: 4096,
        label: String::new(),
        uuid: None,
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    FileSystem::mkfs(&device, &options).expect("memory takes a volume");
    device
}

/// The volume on `device`, without commits in the background.
pub(crate) fn mount(device: &Arc<dyn Device>) -> Arc<FileSystem> {
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    Arc::new(FileSystem::mount(Arc::clone(device), options).expect("the volume is a good one"))
}

/// A server whose kernel checks permissions and believes nothing for long.
pub(crate) fn server(fs: &Arc<FileSystem>) -> Server {
    let options = FuseOptions {
        ttl: Duration::ZERO,
        slow_fsync: None,
        snapdir: SnapDir::Off,
        ..FuseOptions::default()
    };
    Server::new(Arc::clone(fs), options)
}
