//! Floor 7: what Holdfast costs, measured and printed as it is.
//!
//! A workload is a function that is timed as a whole; its figures come with
//! what the device was asked meanwhile. Nothing here asserts a time, and
//! nothing is left out because it looks bad. Every workload does the same
//! things for the same seed; only the clock and the timers differ.
//!
//! Knows the public library, and of other filesystems what their users know.

pub mod files;
pub mod library;
pub mod locks;
pub mod mechanisms;
pub mod ops;
pub mod peers;
pub mod result;
pub mod scaling;
pub mod systems;

mod counts;
mod folder;
mod device_source;
mod undo;
mod work;

pub use counts::Counts;
pub use device_source::DeviceSource;

/// What makes a volume: it stores metadata once, as ext4 and XFS do.
fn new_volume() -> holdfast::CreateOptions {
    holdfast::CreateOptions::new().metadata_copies(1)
}

/// Bytes of a tree node, from the words that mkfs takes.
pub fn node_size(text: &str) -> Result<usize, String> {
    match text {
        "4k" => Ok(4096),
        "16k" => Ok(16384),
        "64k" => Ok(65536),
        _ => Err(format!("{text} is no node size; 4k, 16k and 64k are")),
    }
}
