//! A volume in a file: made, used, closed, opened again.
//!
//! `cargo run --example quickstart`

use std::io::{self, Read, Seek, SeekFrom, Write};

use holdfast::{CreateOptions, OpenOptions, Volume};

pub(crate) fn main() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("quickstart-{}.holdfast", std::process::id()));
    let volume = CreateOptions::new().size(64 << 20).label("quickstart").create(&path)?;

    volume.create_dir_all("/projects/bridge")?;
    let plan = OpenOptions::new().read(true).append(true).create(true);
    let mut plan = plan.open(&volume, "/projects/bridge/plan")?;
    plan.write_all(b"1. measure the river\n")?;
    plan.write_all(b"2. build\n")?;
    plan.sync_all()?; // durable from here on, whatever happens (P1)

    plan.seek(SeekFrom::Start(3))?;
    let mut text = String::new();
    plan.read_to_string(&mut text)?;
    println!("{text}");
    volume.close()?;

    let volume = Volume::open(&path)?;
    for entry in volume.read_dir("/projects")? {
        println!("{}", entry?.path().display());
    }
    println!("{} bytes of plan", volume.metadata("/projects/bridge/plan")?.len());
    volume.close()?;
    std::fs::remove_file(path)
}
