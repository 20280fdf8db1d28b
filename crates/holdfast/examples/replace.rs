//! Replacing a file so that every reader, and every crash, sees the old or the new content whole (P4).
//!
//! `cargo run --example replace`

use std::io::{self, Write};
use std::path::Path;

use holdfast::{Dir, OpenOptions, Volume};

/// Replaces the content of `path`. Durable when it returns.
fn replace(dir: &Dir, path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let mut file = options.open(dir, &new)?;
    file.write_all(content)?;
    file.sync_all()?;
    dir.rename(&new, path)?;
    // The rename is atomic already; this makes it durable too.
    dir.sync_all()
}

pub(crate) fn main() -> io::Result<()> {
    let volume = Volume::in_memory(64 << 20)?;
    volume.create_dir("/etc")?;
    let etc = volume.open_dir("/etc")?;
    for generation in 1..=3 {
        replace(&etc, Path::new("config"), format!("generation = {generation}\n").as_bytes())?;
    }
    println!("{}", etc.read_to_string("config")?);
    assert!(!etc.exists("config.new")?);
    volume.close()
}
