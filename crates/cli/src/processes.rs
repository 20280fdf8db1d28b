//! Processes of this program, as /proc shows them.

use std::fs;
use std::path::PathBuf;

/// The command that a process of this program was started with: the first word behind its name. `None`: it is another program.
pub(crate) fn command_of(process: &str) -> Option<Vec<u8>> {
    let words = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let mut words = words.split(|byte| *byte == 0);
    let path = words.next()?;
    let is_ours = path.ends_with(b"holdfast") || path.ends_with(b"holdfast-dev");
    words.next().filter(|_| is_ours).map(<[u8]>::to_vec)
}

/// Whether a process is just ending: its memory is gone, its descriptors go next. One that nobody has asked for its end has none any more.
pub(crate) fn is_ending(process: u32) -> bool {
    let file = |name: &str| fs::read(format!("/proc/{process}/{name}"));
    let is_over = |stat: Vec<u8>| [&b") Z "[..], b") X "].iter().any(|it| contains(&stat, it));
    file("cmdline").is_ok_and(|words| words.is_empty()) && !file("stat").is_ok_and(is_over)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The mount namespace of a process, if this user may know it.
pub(crate) fn mount_namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}
