//! The operations, one row each: what is prepared, and what one of them does.

use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use holdfast_base::prng::Prng;

use super::Plan;

use crate::files::sqlite::{Database, Journal};
use crate::folder::{Folder, Handle};
use crate::work::pattern;

/// One operation; it is given its number.
pub(super) type Work = Box<dyn FnMut(u64) -> io::Result<()>>;

/// A row of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// So many hundredths of the plan's operations are done.
    pub(super) percent: u64,
    /// It is a program that knows no library.
    pub(super) needs_mount: bool,
    pub(super) prepare: fn(&Folder, &Plan) -> io::Result<Work>,
}

/// The one that costs nothing if a filesystem knows that nothing changed.
pub(super) const CLEAN: &str = "fsync of a clean file";
/// Bytes of a data block.
const BLOCK: usize = 4096;
/// Kernels note times in ticks: within one, a second overwrite changes no time.
const TICK: Duration = Duration::from_millis(5);

const fn row(name: &'static str, prepare: fn(&Folder, &Plan) -> io::Result<Work>) -> Row {
    Row { name, percent: 100, needs_mount: false, prepare }
}

/// All of them.
pub(crate) const ROWS: &[Row] = &[
    row("append 4 KiB + fsync", |place, _| append(place, "log", BLOCK)),
    row("append 100 B + fsync", |place, _| append(place, "small-log", 100)),
    row("overwrite 4 KiB, 5 ms apart + fsync", |place, plan| {
        overwrite(place, plan, TICK, Handle::sync_all)
    }),
    row("overwrite 4 KiB + fdatasync", |place, plan| {
        overwrite(place, plan, Duration::ZERO, Handle::sync_data)
    }),
    row("create empty + fsync(file)", create_empty),
    row("create 4 KiB + fsync(file) + fsync(dir)", create),
    row("atomic replace (tmp, fsync, rename, fsync dir)", replace),
    row("rename in a large directory + fsync(dir)", |place, plan| {
        let files = plan.files / 2;
        in_dir(place, "a", move |place, op| {
            place.rename(&format!("a/{}", one(op, files)), &format!("a/renamed-{op}"))
        })
    }),
    row("unlink in a large directory + fsync(dir)", |place, plan| {
        let files = plan.files / 2;
        in_dir(place, "b", move |place, op| place.unlink(&format!("b/{}", one(op, files))))
    }),
    row("mkdir + fsync(parent)", |place, _| {
        place.create_dir("parent")?;
        in_dir(place, "parent", |place, op| place.create_dir(&format!("parent/dir-{op}")))
    }),
    row("chmod + fsync", |place, _| {
        let file = place.open("large")?;
        Ok(Box::new(move |op| {
            file.chmod(0o600 | (op as u32 & 0o77))?;
            file.sync_all()
        }))
    }),
    Row { percent: 0, ..row("many renames, then one fsync(dir): total", many_renames) },
    row(CLEAN, |place, _| {
        let file = place.open("large")?;
        Ok(Box::new(move |_| file.sync_all()))
    }),
    Row { needs_mount: true, ..row(Journal::Wal.name(), |place, _| insert(place, Journal::Wal)) },
    Row {
        percent: 30,
        needs_mount: true,
        ..row(Journal::Rollback.name(), |place, _| insert(place, Journal::Rollback))
    },
];

/// The name of a file of the tree.
pub(super) fn file(number: u64) -> String {
    format!("file-{number:05}")
}

/// A file of a directory with so many, another one for each operation: the step is a prime that divides no number of files.
fn one(op: u64, files: u64) -> String {
    file(op * 7919 % files)
}

fn append(place: &Folder, name: &str, len: usize) -> io::Result<Work> {
    let (log, bytes) = (place.create(name)?, pattern(len));
    log.sync_all()?;
    Ok(Box::new(move |op| {
        log.write_all_at(&bytes, op * bytes.len() as u64)?;
        log.sync_all()
    }))
}

fn overwrite(
    place: &Folder,
    plan: &Plan,
    pause: Duration,
    sync: fn(&Handle) -> io::Result<()>,
) -> io::Result<Work> {
    let (large, mut bytes) = (place.open("large")?, pattern(BLOCK));
    let (mut prng, places) = (Prng::seeded(7), plan.large_bytes / BLOCK as u64);
    Ok(Box::new(move |op| {
        std::thread::sleep(pause);
        bytes[..8].copy_from_slice(&op.to_le_bytes());
        large.write_all_at(&bytes, prng.below(places) * BLOCK as u64)?;
        sync(&large)
    }))
}

fn create_empty(place: &Folder, _: &Plan) -> io::Result<Work> {
    place.create_dir("empty")?;
    let place = place.clone();
    Ok(Box::new(move |op| place.create(&format!("empty/new-{op}"))?.sync_all()))
}

fn create(place: &Folder, _: &Plan) -> io::Result<Work> {
    place.create_dir("full")?;
    let (place, dir, bytes) = (place.clone(), place.open_dir("full")?, pattern(BLOCK));
    Ok(Box::new(move |op| {
        let file = place.create(&format!("full/new-{op}"))?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        dir.sync_all()
    }))
}

fn replace(place: &Folder, _: &Plan) -> io::Result<Work> {
    place.create_dir("saved")?;
    let (place, dir, bytes) = (place.clone(), place.open_dir("saved")?, pattern(BLOCK));
    Ok(Box::new(move |_| {
        let file = place.create("saved/temporary")?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        place.rename("saved/temporary", "saved/document")?;
        dir.sync_all()
    }))
}

/// A change of a directory, and an fsync of that.
fn in_dir(
    place: &Folder,
    dir: &str,
    change: impl Fn(&Folder, u64) -> io::Result<()> + 'static,
) -> io::Result<Work> {
    let (place, dir) = (place.clone(), place.open_dir(dir)?);
    Ok(Box::new(move |op| {
        change(&place, op)?;
        dir.sync_all()
    }))
}

/// One operation renames as many files as the plan says, the same ones each time.
fn many_renames(place: &Folder, plan: &Plan) -> io::Result<Work> {
    place.create_dir("many")?;
    let renames = plan.renames;
    for number in 0..renames {
        place.create(&format!("many/0-{number}"))?;
    }
    let (place, dir) = (place.clone(), place.open_dir("many")?);
    dir.sync_all()?;
    Ok(Box::new(move |op| {
        for number in 0..renames {
            place.rename(&format!("many/{op}-{number}"), &format!("many/{}-{number}", op + 1))?;
        }
        dir.sync_all()
    }))
}

fn insert(place: &Folder, journal: Journal) -> io::Result<Work> {
    let path = place.host()?.join(journal.file());
    let mut database = Database::create(&path, journal, true)?;
    Ok(Box::new(move |_| database.insert()))
}
