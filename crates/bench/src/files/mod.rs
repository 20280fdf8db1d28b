//! What people do with files, on any directory of any filesystem, measured.
//!
//! A [`Workload`] is a function that prepares what it needs and then measures
//! one [`Phase`] or several. It knows a directory, see [`Host`], and never
//! what filesystem that is. Programs that people use themselves (tar, git, rm)
//! are the programs; everything else is done here, so that each call is timed.
//!
//! Always true: the same seed does the same things; with `durable: false`
//! exactly the fsyncs are left out.

mod directory;
mod flat;
mod floor;
mod git;
mod mail;
mod material;
mod report;
mod run;
mod save;
pub(crate) mod sqlite;
mod stream;
#[cfg(test)]
mod tests;
mod tree;
mod writes;

pub use directory::Directory;
pub(crate) use floor::on_bed as floors;
pub use material::Material;
pub use report::{Candidate, Runs};
pub use run::{Host, Phase, Reading, Run, Shares, Unit};

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How much is done.
#[derive(Clone, Debug)]
pub struct Scale {
    /// How long a phase takes that is not over by itself.
    pub time: Duration,
    /// The most files that such a phase makes.
    pub files_max: u64,
    /// Files of the large directory that is renamed, listed and looked at.
    pub files: u64,
    /// Bytes of the file of each job that is overwritten.
    pub job_bytes: u64,
    /// Bytes of the file that is written and read as a stream.
    pub stream_bytes: u64,
    /// Packages of the tree that is removed, some 20 files each.
    pub packages: u64,
    /// The tree that is unpacked.
    pub archive: Option<PathBuf>,
    /// The repository that is cloned.
    pub repository: Option<PathBuf>,
    /// Decides contents, sizes and offsets.
    pub seed: u64,
}

impl Scale {
    /// What `bench peers` does without options.
    pub fn usual(time: Duration) -> Scale {
        Scale {
            time,
            files_max: 200_000,
            files: 10_000,
            job_bytes: 64 << 20,
            stream_bytes: 1 << 30,
            packages: 1_000,
            archive: None,
            repository: None,
            seed: 1,
        }
    }

    /// Enough to see that everything works.
    pub fn tiny() -> Scale {
        Scale {
            time: Duration::from_millis(20),
            files_max: 200,
            files: 100,
            job_bytes: 256 << 10,
            stream_bytes: 2 << 20,
            packages: 5,
            ..Scale::usual(Duration::ZERO)
        }
    }
}

/// Something that people do.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// A word for options.
    pub name: &'static str,
    /// Whether it calls fsync, so that leaving that out makes a difference.
    pub has_fsyncs: bool,
    /// Whether it needs what [`Scale::archive`] or [`Scale::repository`] name.
    pub needs: Needs,
    work: fn(&mut Run<'_>) -> io::Result<()>,
}

/// What has to be there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// [`Scale::archive`].
    Archive,
    /// [`Scale::repository`].
    Repository,
}

const fn plain(
    name: &'static str,
    has_fsyncs: bool,
    work: fn(&mut Run<'_>) -> io::Result<()>,
) -> Workload {
    Workload { name, has_fsyncs, needs: Needs::Nothing, work }
}

impl Workload {
    /// Every one, in the order in which they are shown.
    pub const ALL: &'static [Workload] = &[
        plain("create-fsync", true, flat::create_fsync),
        plain("append", true, save::append),
        plain("save", true, save::safe_save),
        plain("mail", true, mail::deliver),
        plain("sqlite", true, sqlite::inserts),
        plain("fsync-sequential", true, writes::sequential),
        plain("fsync-random", true, writes::random),
        plain("create", false, flat::create),
        plain("rename", false, flat::rename),
        plain("stat", false, flat::look),
        Workload { needs: Needs::Archive, ..plain("tree", false, tree::unpack) },
        plain("modules", false, tree::modules),
        Workload { needs: Needs::Repository, ..plain("git", false, git::clone_and_checkout) },
        plain("stream", false, stream::stream),
    ];

    /// The one called `name`.
    pub fn named(name: &str) -> Option<Workload> {
        Workload::ALL.iter().find(|workload| workload.name == name).copied()
    }

    /// Does it in a new directory below that of `host`, and says what was measured. Without `durable` fsyncs are
    /// left out. What was made stays, unless `remove`.
    pub fn run(
        &self,
        host: &dyn Host,
        scale: &Scale,
        durable: bool,
        remove: bool,
    ) -> io::Result<Vec<Phase>> {
        let ceiling = if durable { "" } else { "-ceiling" };
        let place = host.dir().join(format!("{}{ceiling}", self.name));
        std::fs::create_dir(&place)?;
        let mut run = Run::new(host, scale, place.clone(), durable);
        (self.work)(&mut run)?;
        if remove {
            std::fs::remove_dir_all(&place)?;
        }
        Ok(run.phases())
    }
}
