//! Each workload does what it says: counted on a directory of the host afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use super::sqlite::Journal;
use super::*;

/// A temporary directory with a place to work in.
struct Ground {
    root: tempfile::TempDir,
    scale: Scale,
}

impl Ground {
    fn new() -> Ground {
        Ground { root: tempfile::tempdir().unwrap(), scale: Scale::tiny() }
    }

    /// A made tree of 60 files, and a repository of it.
    fn gather(&mut self) -> Material {
        let dir = std::env::temp_dir();
        let material = Material::gather(Workload::ALL, None, None, &dir, 60, 1).unwrap();
        self.scale = material.on(self.scale.clone());
        material
    }

    /// Runs the workload called `name`: where it worked, its place as long as it is kept, and what was measured.
    fn run(&self, name: &str, durable: bool, check: impl FnOnce(&Path, &[Phase])) {
        let host = Directory::below(self.root.path(), Path::new("/no/program"), false).unwrap();
        let workload = Workload::named(name).unwrap();
        let phases = workload.run(&host, &self.scale, durable, false).unwrap();
        assert!(!phases.is_empty());
        for phase in phases.iter().filter(|phase| phase.skipped.is_none()) {
            assert!(phase.amount > 0 && phase.seconds > 0.0, "{phase:?}");
            assert!(phase.operations <= phase.amount, "{phase:?}");
            assert_eq!(phase.name.ends_with("fsync left out"), !durable, "{phase:?}");
            assert_eq!(phase.shares, None);
            assert!(phase.latency.is_none_or(|(p50, p99)| p50 <= p99));
        }
        for phase in phases.iter().filter(|phase| phase.skipped.is_some()) {
            assert!(phase.name.ends_with("cold"), "{phase:?}");
        }
        let ceiling = if durable { "" } else { "-ceiling" };
        check(&host.dir().join(format!("{name}{ceiling}")), &phases);
        drop(host);
        assert_eq!(count(self.root.path()), 0);
    }
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

/// Every regular file below `dir`, without those of git.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with(".git") {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found
}

fn len(path: impl AsRef<Path>) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn creates_make_as_many_files_as_are_counted() {
    for (name, durable) in [("create", true), ("create-fsync", true), ("create-fsync", false)] {
        Ground::new().run(name, durable, |dir, phases| {
            assert_eq!(phases.iter().map(|phase| phase.jobs).collect::<Vec<_>>(), [1, 2, 16]);
            // Three of each thread are not counted.
            let counted: u64 = phases.iter().map(|phase| phase.amount + 3 * phase.jobs).sum();
            let made = files(dir);
            assert_eq!(made.len() as u64, counted);
            assert!(made.iter().all(|file| len(file) == 4096));
        });
    }
}

#[test]
fn appends_and_saves_leave_what_was_saved() {
    Ground::new().run("append", true, |dir, phases| {
        assert_eq!(len(dir.join("log")), 4096 * (phases[0].amount + 3));
    });
    Ground::new().run("save", true, |dir, _| {
        let documents = files(dir);
        assert_eq!(documents.len(), 100);
        assert!(documents.iter().all(|document| len(document) == 4096));
        assert!(!dir.join("temporary").exists());
    });
}

#[test]
fn mail_is_delivered_read_and_sometimes_removed() {
    Ground::new().run("mail", true, |dir, phases| {
        let mailbox = dir.join("mailbox-1-0");
        let delivered = phases[0].amount + 3;
        let in_dir = |name| count(&mailbox.join(name)) as u64;
        assert_eq!(in_dir("tmp"), 0);
        assert_eq!(in_dir("new"), delivered - delivered / 2);
        assert_eq!(in_dir("cur"), delivered / 2 - delivered / 4);
    });
}

#[test]
fn sqlite_keeps_the_rows() {
    Ground::new().run("sqlite", true, |dir, phases| {
        for (journal, phase) in Journal::ALL.into_iter().zip(phases) {
            assert_eq!(phase.name, journal.name());
            let path = dir.join(journal.file());
            let database = rusqlite::Connection::open(&path).unwrap();
            let count = database.query_row("select count(*) from t", [], |row| row.get(0));
            assert_eq!(count, Ok(phase.amount as i64 + 3), "{journal:?}");
        }
    });
}

#[test]
fn writes_stay_inside_their_files() {
    for name in ["fsync-sequential", "fsync-random"] {
        let ground = Ground::new();
        ground.run(name, true, |dir, phases| {
            assert_eq!(phases.iter().map(|phase| phase.jobs).collect::<Vec<_>>(), [1, 8]);
            let files = files(dir);
            assert_eq!(files.len(), 9);
            assert!(files.iter().all(|file| len(file) == ground.scale.job_bytes));
            assert!(phases.iter().all(|phase| phase.amount == phase.operations * 65536));
        });
    }
}

#[test]
fn names_change_and_what_was_looked_at_is_removed() {
    Ground::new().run("rename", true, |dir, phases| {
        assert_eq!(phases[0].amount, 100);
        let names = files(&dir.join("names"));
        let renamed =
            |path: &&PathBuf| path.file_name().unwrap().to_string_lossy().starts_with('g');
        assert_eq!((names.len(), names.iter().filter(renamed).count()), (101, 100));
    });
    Ground::new().run("stat", true, |dir, phases| {
        assert_eq!(phases.len(), 5);
        assert!(phases[2..].iter().all(|phase| phase.amount == 100), "{phases:?}");
        assert_eq!(count(&dir.join("many")), 0);
    });
}

#[test]
fn trees_are_unpacked_and_gone_in_the_end() {
    let mut ground = Ground::new();
    let _material = ground.gather();
    ground.run("tree", true, |dir, phases| {
        let looked =
            phases.iter().find(|phase| phase.name.starts_with("stat") && phase.skipped.is_none());
        assert_eq!(looked.unwrap().amount, 60);
        assert_eq!(count(dir), 0);
    });
    ground.run("modules", true, |dir, phases| {
        assert_eq!((phases[0].amount, phases.len()), (100, 2));
        assert_eq!(count(dir), 0);
    });
}

#[test]
fn git_ends_on_the_other_branch() {
    let mut ground = Ground::new();
    let _material = ground.gather();
    ground.run("git", true, |dir, phases| {
        assert_eq!(phases.len(), 4);
        assert_eq!(files(&dir.join("clone")).len(), 40, "a third is gone there");
    });
}

#[test]
fn streams_are_as_long_as_they_were() {
    Ground::new().run("stream", true, |dir, phases| {
        assert_eq!(phases[0].amount, 2 << 20);
        assert_eq!(len(dir.join("stream")), 2 << 20);
        assert_eq!(phases.last().unwrap().amount, 64);
    });
}

#[test]
fn what_was_not_named_is_skipped_with_a_reason() {
    let root = tempfile::tempdir().unwrap();
    let host = Directory::below(root.path(), Path::new("/no/program"), false).unwrap();
    for name in ["tree", "git"] {
        let phases = Workload::named(name).unwrap();
        let phases = phases.run(&host, &Scale::tiny(), true, true).unwrap();
        assert!(phases[0].skipped.as_ref().unwrap().contains("there is no"), "{phases:?}");
    }
    assert_eq!(count(host.dir()), 0);
}
