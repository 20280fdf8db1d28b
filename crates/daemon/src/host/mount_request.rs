//! What a caller asks for with a mount, and whether it may have that.

use holdfast_fuse::Transport;
use holdfast_service::rights::{Requirement, judge};

use super::{Host, No};
use crate::bounds::{MOUNTS_OF_ONE, bound};
use crate::callers::is_trusted;
use crate::control_socket::message::Join;
use crate::mount_options::DaemonOptions;

impl Host {
    /// What a mount that joins asks for.
    pub(super) fn options_of(&self, join: &Join) -> Result<DaemonOptions, String> {
        let lists = join.options.iter().map(String::as_str);
        let mut options = DaemonOptions::parse(lists, false)?;
        let differs = self.options.of_volume_differing(join.options.iter().map(String::as_str))?;
        if !differs.is_empty() {
            let differs = differs.join(",");
            return Err(format!(
                "{differs}: this holds for the whole volume, which is mounted otherwise already; leave it out, or unmount all first"
            ));
        }
        options.branch = join.branch.clone();
        options.snapshot = join.snapshot.clone();
        options.read_only |= options.snapshot.is_some();
        if options.transport == Transport::Auto {
            // Rings take threads and memory for each processor.
            options.transport = Transport::Device;
        }
        // That was decided when it was mounted, by the user who has mounted.
        options.allow_other =
            Some(!options.nodefault_permissions && options.allow_other == Some(true));
        Ok(options)
    }

    /// A stranger takes no more of the daemon than the first mount does.
    pub(super) fn expect_modest(
        &self,
        join: &Join,
        options: &mut DaemonOptions,
        user: u32,
    ) -> Result<(), No> {
        if is_trusted(user) {
            return Ok(());
        }
        if join.linger {
            return Err("--linger: only root and the user of the process that serves the volume can end it, so only they may keep it".into());
        }
        let mounts = self.table.lock().mounts.values().filter(|it| it.user == user).count();
        if mounts >= MOUNTS_OF_ONE {
            let why = format!(
                "another user's process serves this volume, and has {mounts} mounts of yours already; unmount some"
            );
            return Err(No::Refused(why));
        }
        bound(options, &self.options, self.dirty_bytes).map_err(No::Refused)
    }

    pub(super) fn expect_allowed(
        &self,
        options: &DaemonOptions,
        may_write: Option<bool>,
    ) -> Result<(), No> {
        let needs = if options.read_only { Requirement::Read } else { Requirement::Write };
        judge(needs, may_write, false)?;
        if needs.changes() && self.options.read_only {
            let pid = std::process::id();
            return Err(No::Refused(format!(
                "it is open read-only by process {pid}; mount it read-only (-o ro), or unmount that first"
            )));
        }
        Ok(())
    }
}
