//! What a power cut leaves: everything that was synced, and of the rest a prefix of history (P1, P3).
//!
//! `cargo run --example crash`

use std::io::{self, Write};
use std::sync::Arc;

use holdfast::device::{Device, MemoryDevice};
use holdfast::{CreateOptions, VolumeOptions};

pub(crate) fn main() -> io::Result<()> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    CreateOptions::new().format(&device)?;
    // No background commits, so that only what is synced here is durable.
    let options = VolumeOptions::new().commit_secs(0);

    let volume = options.open_device(device.clone())?;
    volume.create_dir("/mail")?;
    let mut letter = volume.create("/mail/letter")?;
    letter.write_all(b"important")?;
    letter.sync_all()?; // the file, its name, and the directory above it
    volume.write("/mail/notes", "never synced")?;
    volume.abandon(); // the power goes out

    let volume = options.open_device(device)?;
    assert_eq!(volume.read_to_string("/mail/letter")?, "important");
    println!(
        "the letter is there; the notes are {}",
        match volume.exists("/mail/notes")? {
            true => "there as well",
            false => "not, and nobody promised them",
        }
    );
    volume.close()
}
