//! A filesystem that was just made on a bed and is mounted until it is dropped.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::MountFlags;

use super::bed::Bed;
use super::cleanup::{Cleanup, CleanupGuard, run};
use super::meter;
use super::served::Served;
use super::{System, find_program};

/// Whether the kernel offers rings to FUSE servers.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// What Holdfast's daemon has counted, by name; the device's counts begin with `device.`.
pub type Stats = BTreeMap<String, u64>;

/// How Holdfast is mounted.
#[derive(Clone, Debug)]
pub struct Ours {
    /// Its program.
    pub program: PathBuf,
    /// Options of the mount, separated by commas; may be empty.
    pub options: String,
}

/// A mount, until it is ended.
#[derive(Debug)]
enum Mount {
    /// Of the kernel, or ours.
    Plain(CleanupGuard),
    /// Of a server that is not ours.
    Served(Served),
}

/// A mounted filesystem, empty at first.
#[derive(Debug)]
pub struct Mounted<'a> {
    system: System,
    bed: &'a Bed,
    ours: Ours,
    mount: RefCell<Option<Mount>>,
    /// The process that serves it.
    daemon: Cell<Option<u32>>,
    dir: PathBuf,
    _place: CleanupGuard,
    _setting: Option<CleanupGuard>,
}

impl<'a> Mounted<'a> {
    /// Makes `system` on `bed` and mounts it.
    pub fn new(system: System, bed: &'a Bed, ours: &Ours) -> io::Result<Mounted<'a>> {
        let mut make = match system.recipe() {
            Some(recipe) => {
                let name = recipe.program;
                let found = find_program(name);
                let found = found.ok_or_else(|| io::Error::other(format!("{name} is missing")))?;
                let mut command = Command::new(found);
                command.args(recipe.args);
                command
            }
            None if system.is_ours() => {
                let mut command = Command::new(&ours.program);
                // Metadata once, as most of the others store it, and as in an image.
                command.args(["mkfs", "-q", "--force", "--copies", "metadata=1"]);
                command
            }
            None => return Err(io::Error::other("the bare device cannot be mounted")),
        };
        run(make.arg(bed.device()))?;
        let dir = bed.dir().join(format!("holdfast-bench-{}.mnt", std::process::id()));
        let (dir, place) = CleanupGuard::make(|| {
            std::fs::create_dir(&dir)?;
            Ok((dir.clone(), Cleanup::MountPoint(dir)))
        })?;
        let setting = if system == System::Rings { Some(allow_rings()?) } else { None };
        let mounted = Mounted {
            system,
            bed,
            ours: ours.clone(),
            mount: RefCell::new(None),
            daemon: Cell::new(None),
            dir,
            _place: place,
            _setting: setting,
        };
        mounted.enter()?;
        mounted.quiesce()?;
        Ok(mounted)
    }

    fn enter(&self) -> io::Result<()> {
        let device = self.bed.device();
        if self.system.server().is_some() {
            let below = self.dir.with_extension("below");
            let served = Served::start(self.system, device, &self.dir, &below)?;
            self.daemon.set(Some(served.pid()));
            self.mount.replace(Some(Mount::Served(served)));
            return Ok(());
        }
        let ((), guard) = CleanupGuard::make(|| match self.system.recipe() {
            Some(recipe) => {
                rustix::mount::mount(device, &self.dir, recipe.kind, MountFlags::NOATIME, None)?;
                Ok(((), Cleanup::Mount(self.dir.clone())))
            }
            None => {
                let transport = if self.system == System::Rings { "rings" } else { "auto" };
                let mut command = Command::new(&self.ours.program);
                let own = &self.ours.options;
                let options = format!("noatime,transport={transport},{own}");
                command.args(["mount", "-o", options.trim_end_matches(',')]);
                run(command.arg(device).arg(&self.dir))?;
                Ok(((), Cleanup::OurMount(self.dir.clone(), self.ours.program.clone())))
            }
        })?;
        self.mount.replace(Some(Mount::Plain(guard)));
        if self.system.is_ours() {
            self.daemon.set(self.ask()?.map(|(pid, _)| pid));
        }
        Ok(())
    }

    /// What is mounted.
    pub fn system(&self) -> System {
        self.system
    }

    /// Where.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The device below.
    pub fn bed(&self) -> &Bed {
        self.bed
    }

    /// The process that serves it, if it is one.
    pub fn daemon(&self) -> Option<u32> {
        self.daemon.get()
    }

    /// Everything so far is durable and at its location, as far as the filesystem says.
    pub fn quiesce(&self) -> io::Result<()> {
        quiesce(&self.dir, self.system.is_ours())
    }

    /// Unmounts it for a while: everything is at its location then.
    pub fn pause(&self) -> io::Result<()> {
        self.daemon.set(None);
        match self.mount.take() {
            None => Ok(()),
            Some(Mount::Plain(guard)) => guard.finish(),
            Some(Mount::Served(served)) => served.end(),
        }
    }

    /// Mounts it again after [`Mounted::pause`].
    pub fn resume(&self) -> io::Result<()> {
        self.enter()
    }

    /// Nothing of it is in memory any more: it is unmounted, and mounted again.
    pub fn cool(&self) -> io::Result<()> {
        self.pause()?;
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        self.resume()
    }

    /// What the daemon has counted, for ours.
    pub fn stats(&self) -> io::Result<Option<Stats>> {
        Ok(self.ask()?.map(|(_, stats)| stats))
    }

    fn ask(&self) -> io::Result<Option<(u32, Stats)>> {
        match self.system.is_ours() {
            true => ask(&self.ours.program, &self.dir).map(Some),
            false => Ok(None),
        }
    }

    /// Unmounts, and says whether that went well; what is ours must be in order then.
    pub fn leave(self) -> io::Result<()> {
        self.pause()?;
        if self.system.is_ours() {
            run(Command::new(&self.ours.program).args(["fsck", "-n"]).arg(self.bed.device()))?;
        }
        Ok(())
    }
}

/// Makes everything below `dir` durable. The kernel passes no syncfs to a FUSE server, so ours is asked directly.
pub(crate) fn quiesce(dir: &Path, is_ours: bool) -> io::Result<()> {
    let root = File::open(dir)?;
    rustix::fs::syncfs(&root)?;
    if is_ours {
        rustix::fs::fgetxattr(&root, "system.holdfast.sync", &mut [0; 0][..])?;
    }
    Ok(())
}

/// Process and statistics of the daemon that serves `dir`.
pub(crate) fn ask(program: &Path, dir: &Path) -> io::Result<(u32, Stats)> {
    let said = run(Command::new(program).args(["stats", "--json"]).arg(dir))?;
    understand(&said).map_err(|error| io::Error::other(format!("{}: {error}", dir.display())))
}

/// What `holdfast stats --json` says. A program that is measured beside ours may be older.
fn understand(said: &str) -> io::Result<(u32, Stats)> {
    let value: serde_json::Value = serde_json::from_str(said)?;
    let pid = value["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let pid = pid.ok_or_else(|| io::Error::other("no process serves it"))?;
    // Programs from before the summary have no level above the counters.
    let all = value.get("all").unwrap_or(&value);
    let mut stats = Stats::new();
    for (group, prefix) in [("counters", ""), ("device", "device.")] {
        let of_group = all[group].as_object().into_iter().flatten();
        let numbers = of_group.filter_map(|(name, value)| Some((name, value.as_u64()?)));
        stats.extend(numbers.map(|(name, value)| (format!("{prefix}{name}"), value)));
    }
    // All figures made of them would be 0.
    if stats.is_empty() {
        return Err(io::Error::other("its process tells of no counters"));
    }
    Ok((pid, stats))
}

/// Rings are offered until this is dropped.
fn allow_rings() -> io::Result<CleanupGuard> {
    let ((), guard) = CleanupGuard::make(|| {
        let before = std::fs::read_to_string(RINGS)?;
        std::fs::write(RINGS, "Y")?;
        Ok(((), Cleanup::Setting(RINGS.into(), before)))
    })
    .map_err(|error| io::Error::new(error.kind(), format!("{RINGS}: {error}")))?;
    Ok(guard)
}

/// Nanoseconds that this process and the daemon have worked so far.
pub(crate) fn processor_ns(daemon: Option<u32>) -> io::Result<(u64, Option<u64>)> {
    Ok((meter::own_ns()?, daemon.map(meter::process_ns).transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_programs_with_and_without_a_summary_are_found() {
        let counters = r#""counters":{"commits":3,"note":"no number"},"device":{"flushes":5}"#;
        let wanted = Stats::from([("commits".into(), 3), ("device.flushes".into(), 5)]);
        let of_today = format!(r#"{{"schema":1,"pid":7,"fsync":null,"all":{{{counters}}}}}"#);
        let older = format!(r#"{{"pid":7,"volume":"/img",{counters}}}"#);
        for said in [of_today, older] {
            assert_eq!(understand(&said).unwrap(), (7, wanted.clone()), "{said}");
        }
        for (said, why) in [
            (r#"{"pid":7,"statistics":{"commits":3}}"#, "no counters"),
            (r#"{"all":{"counters":{"commits":3}}}"#, "no process"),
        ] {
            let error = understand(said).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
