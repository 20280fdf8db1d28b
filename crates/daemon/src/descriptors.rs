//! Which descriptors the programs get that a process starts.

use std::sync::OnceLock;

/// A program that is started next inherits only its standard streams. Otherwise a reader of a pipe of the caller, up to
/// its end, or a process waiting for a lock, would wait for the daemon.
pub(crate) fn keep_descriptors() {
    close_fds::set_fds_cloexec(3, PASSED_ON.get().map(Vec::as_slice).unwrap_or_default());
}

/// Descriptors that all programs get which this process starts.
static PASSED_ON: OnceLock<Vec<i32>> = OnceLock::new();

/// What the caller has opened, all programs get that this process starts from now on, also behind `keep_descriptors`. Those who ask
/// a daemon get it too, and keep it if they get stuck.
pub fn pass_on_descriptors() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut numbers: Vec<i32> =
        open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    // It is called once.
    let _ = PASSED_ON.set(numbers);
}
