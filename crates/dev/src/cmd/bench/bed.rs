//! What benchmarks beside the kernel's filesystems have in common: the loop device and our mounts on it.

use std::path::PathBuf;

use holdfast_bench::systems::{self, Bed, Ours, System};

use crate::outcome::{Context, Failure};

/// How the loop device is made, and how Holdfast is mounted on it.
#[derive(Debug, clap::Args)]
pub(crate) struct BedOptions {
    /// Bytes of a sector of the devices: 512 or 4096.
    #[arg(long, default_value_t = 512)]
    pub(crate) sector: u32,
    /// Options of Holdfast's mounts, as of `holdfast mount -o`.
    #[arg(short = 'o', long, value_name = "OPTIONS", default_value = "")]
    options: String,
    /// The program whose mounts are measured, as one without what was done before [default: this one].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Where the device's file and the mount point are made meanwhile.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,
}

impl BedOptions {
    /// A loop device of so many bytes, and how Holdfast is put on it.
    pub(crate) fn make(&self, bytes: u64) -> Result<(Bed, Ours), Failure> {
        let program = match &self.program {
            Some(program) => program.canonicalize().context(program.display())?,
            None => std::env::current_exe().context("this program")?,
        };
        let bed = Bed::new(&self.dir, bytes, self.sector).context("a loop device")?;
        Ok((bed, Ours { program, options: self.options.clone(), ..Ours::default() }))
    }
}

/// One command that installs what is left out otherwise.
pub(crate) fn say_what_is_missing(systems: &[System]) {
    if let Some(command) = systems::install_command(systems) {
        eprintln!("holdfast-dev: some systems are left out; to have them, run: {command}");
    }
}
