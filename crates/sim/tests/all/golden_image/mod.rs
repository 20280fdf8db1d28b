//! Images as files: the blocks that are not zero, each behind its number, compressed.
//!
//! A volume of megabytes becomes a file of some KiB. The length of the device comes first.

#![allow(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use holdfast_base::BLOCK_SIZE;
use holdfast_device::MemoryDevice;

/// The folder of golden and broken images.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

/// Folders of golden volumes with their format versions.
pub(crate) fn volumes() -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder()).expect("the images are there") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(version) = name.strip_prefix("volume-") {
            found.push((version.parse().expect("a version is a number"), path));
        }
    }
    found.sort();
    found
}

/// The folder of the volume with branches, of the current version.
pub(crate) fn branches() -> PathBuf {
    folder().join(format!("branches-{}", holdfast_format::superblock::VERSION))
}

/// The folder of the volume that has grown, of the current version.
pub(crate) fn grown() -> PathBuf {
    folder().join(format!("grown-{}", holdfast_format::superblock::VERSION))
}

/// A device with the content of an image.
pub(crate) fn load(path: &Path) -> Arc<MemoryDevice> {
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).expect("the image is whole");
    let number = |at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("it has eight bytes")) as usize
    };
    let mut image = vec![0; number(0)];
    for at in (8..bytes.len()).step_by(8 + BLOCK_SIZE) {
        let start = number(at) * BLOCK_SIZE;
        image[start..start + BLOCK_SIZE].copy_from_slice(&bytes[at + 8..at + 8 + BLOCK_SIZE]);
    }
    Arc::new(MemoryDevice::from_image(&image))
}

/// Writes an image.
pub(crate) fn save(path: &Path, device: &MemoryDevice) {
    let image = device.to_image();
    let mut bytes = (image.len() as u64).to_le_bytes().to_vec();
    for (number, block) in image.chunks(BLOCK_SIZE).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            bytes.extend((number as u64).to_le_bytes());
            bytes.extend(block);
        }
    }
    let file = fs::File::create(path).expect("the image can be made");
    let mut encoder = GzEncoder::new(file, Compression::best());
    encoder.write_all(&bytes).and_then(|()| encoder.finish()).expect("the image can be written");
}

/// Whether expected texts are to be written.
pub(crate) fn is_update() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}
