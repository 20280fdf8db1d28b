//! Copies of a mount in the mount namespaces of other processes. The kernel keeps a filesystem as long as one namespace has it, so its
//! daemon goes on though it is unmounted here.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use holdfast_service::outcome::printable;

use super::{Mount, parse};

/// A process in another mount namespace that has something of the mount's filesystem. Those of other users are not seen, but by root.
pub fn holder(mount: &Mount) -> Option<String> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let mut seen: HashSet<PathBuf> = namespace("self").into_iter().collect();
    // Numbers of devices are given again: what has this one and another source is another filesystem.
    let is_it = |it: &Mount| it.device == mount.device && it.source == mount.source;
    let processes =
        fs::read_dir("/proc").ok()?.filter_map(|it| it.ok()?.file_name().into_string().ok());
    for process in processes {
        let Ok(number) = process.parse::<u32>() else { continue };
        // One that has ended meanwhile, or may not be looked at.
        let Some(of_it) = namespace(&process) else { continue };
        if !seen.insert(of_it) {
            continue;
        }
        let Ok(there) = fs::read(format!("/proc/{process}/mountinfo")) else { continue };
        if parse(&there).iter().any(is_it) {
            let name = fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
            let name = printable(String::from_utf8_lossy(&name).trim_end()).into_owned();
            return Some(format!("process {number} ({name})"));
        }
    }
    None
}
