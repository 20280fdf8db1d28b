//! Options as the kernel and the transport of its requests take them.

use std::path::Path;

use holdfast::Atime;
use holdfast_fuse::FuseOptions;

use super::DaemonOptions;

impl DaemonOptions {
    /// How the volume at `path` is shown to the kernel.
    pub fn fuse(&self, path: &Path) -> FuseOptions {
        let is_root = rustix::process::geteuid().is_root();
        // mount(8) leaves labels out as well where the system does not know them.
        let labels = match Path::new("/sys/fs/selinux/enforce").exists() {
            true => self.labels.clone(),
            false => Vec::new(),
        };
        FuseOptions {
            source: path.into(),
            read_only: self.read_only,
            allow_other: self.allow_other.unwrap_or(is_root && !self.nodefault_permissions),
            default_permissions: !self.nodefault_permissions,
            owners: self.owners,
            nodev: self.nodev,
            nosuid: self.nosuid,
            noexec: self.noexec,
            nosymfollow: self.nosymfollow,
            noatime: self.atime == Some(Atime::Never),
            strictatime: self.atime == Some(Atime::Always),
            nodiratime: self.nodiratime,
            sync: self.sync,
            dirsync: self.dirsync,
            handover: self.handover,
            labels,
            threads: self.threads,
            spin: self.spin.unwrap_or(FuseOptions::default().spin),
            noxattr: self.noxattr,
            transport: self.transport,
            opens: self.opens,
            snapdir: self.snapdir,
            slow_fsync: self.slow_fsync(),
            ..FuseOptions::default()
        }
    }
}
