//! The transport of requests in words: what it costs, and how root allows rings of io_uring for good.

use std::fs;

use holdfast_fuse::Transport;

use crate::activity;
use crate::mount_options::DaemonOptions;

/// Whether the kernel offers rings to mounts.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// How requests come, and what that costs. `transport` is a daemon's word for it.
pub fn words(transport: &str) -> &str {
    match transport {
        "rings" => "rings of io_uring: served on the processor that asks",
        "device" => "/dev/fuse",
        other => other,
    }
}

/// The sentence for mounts without rings; nothing where they are allowed, or where the kernel has none.
fn hint_here() -> Option<String> {
    let parameter = fs::read_to_string(PARAMETER).ok()?;
    // The kernel may also have FUSE built in, and then reads no options of modules.
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    hint_for(parameter.trim(), modules.lines().any(|line| line.starts_with("fuse ")))
}

fn hint_for(parameter: &str, is_module: bool) -> Option<String> {
    let for_good = match is_module {
        true => "echo options fuse enable_uring=1 >/etc/modprobe.d/fuse-rings.conf".into(),
        false => format!("echo w {PARAMETER} - - - - Y >/etc/tmpfiles.d/fuse-rings.conf"),
    };
    (parameter == "N").then(|| {
        format!(
            "requests come through /dev/fuse; root allows rings of io_uring, which help several threads that do \
             not fsync, now and for good: echo Y >{PARAMETER}; {for_good}"
        )
    })
}

/// How rings are allowed, for users who did not decline them; `None` if there is nothing to gain.
pub fn hint(options: &DaemonOptions) -> Option<String> {
    // Where a supervisor keeps the mount there are none.
    let may_have = options.transport == Transport::Auto && !options.supervised;
    may_have.then(hint_here).flatten()
}

/// How requests come stands in the log, and how they could come faster.
pub(crate) fn tell_transport(options: &DaemonOptions) {
    let transport = activity::transport();
    tracing::info!("requests come through {}", words(transport));
    if transport == "device"
        && let Some(hint) = hint(options)
    {
        tracing::info!("{hint}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_may_have_rings_are_told_how() {
        assert_eq!([hint_for("Y", true), hint_for("Y", false)], [None, None]);
        for (is_module, file) in [(true, "/etc/modprobe.d/"), (false, "/etc/tmpfiles.d/")] {
            let hint = hint_for("N", is_module).unwrap();
            assert!(hint.contains(file) && hint.contains("echo Y >/sys/"), "{hint}");
            assert!(!hint.contains('\n') && !hint.contains("  "), "{hint}");
            assert!(hint.contains("help several threads that do not fsync"), "{hint}");
        }
    }
}
