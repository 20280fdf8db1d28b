//! Volumes that the engine wrote: after any work, each durable state is clean.
//!
//! A seeded mixture of calls on volumes of every node size. The device is
//! copied after each sync and judged as a crash would leave it, and again after
//! unmount. What check makes of journal and log is compared with what the engine's
//! recovery leaves. Every failure prints its seed.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::prng::Prng;
use holdfast_check::{Facts, Subject, dump, view};
use holdfast_device::MemoryDevice;
use holdfast_format::item::FileType;
use holdfast_posix::{
    Caller, FallocateFlags, FileSystem, FsError, MkfsOptions, MountOptions, NewNode, OpenFile,
    OpenFlags, RenameFlags, Result, SetAttr, StoreError, WriteHow, XattrFlags,
};

use crate::common::check_all;
use crate::common::log::expect_engine;

/// A volume under work, and what names it may have.
struct Work {
    fs: FileSystem,
    prng: Prng,
    caller: Caller,
    directories: Vec<InodeNo>,
    open: Vec<Arc<OpenFile>>,
    /// Different names in a directory.
    names: u64,
    /// Largest file, in bytes.
    size_max: u64,
    refused: u64,
    full: u64,
}

fn options(node_size: usize) -> MkfsOptions {
    MkfsOptions {
        node_size,
        label: "work".into(),
        uuid: Some([7; 16]),
        owner: (0, 0),
        ..MkfsOptions::default()
    }
}

fn mount(device: &Arc<MemoryDevice>) -> FileSystem {
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    FileSystem::mount(device.clone(), options).expect("a clean volume mounts")
}

fn make(bytes: u64, node_size: usize) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let target: Arc<dyn holdfast_device::Device> = device.clone();
    FileSystem::mkfs(&target, &options(node_size)).expect("the device is large enough");
    device
}

/// Fails unless the device holds a clean volume.
fn expect_clean(device: &MemoryDevice, when: &str) -> Facts {
    let report = check_all(device);
    if !report.findings.is_empty() {
        for finding in &report.findings {
            eprintln!("{finding}");
        }
        panic!("not clean {when}");
    }
    assert!(report.facts.complete);
    expect_recovery(device, when);
    report.facts
}

/// Fails unless the engine's recovery leaves just what the second opinion sees before it.
fn expect_recovery(device: &MemoryDevice, when: &str) {
    let ours = view(device).unwrap_or_else(|error| panic!("{when}: {error}"));
    expect_engine(device, &ours);
}

impl Work {
    fn new(fs: FileSystem, seed: u64) -> Work {
        Work {
            fs,
            prng: Prng::seeded(seed),
            caller: Caller::root(),
            directories: vec![InodeNo::ROOT],
            open: Vec::new(),
            names: 24,
            size_max: 300_000,
            refused: 0,
            full: 0,
        }
    }

    fn name(&mut self) -> Vec<u8> {
        let number = self.prng.below(self.names);
        // One in eight names is long.
        let len = if number.is_multiple_of(8) { 200 } else { 0 };
        format!("{number}{}", "n".repeat(len)).into_bytes()
    }

    fn directory(&mut self) -> InodeNo {
        *self.prng.pick(&self.directories)
    }

    fn bytes(&mut self, max: u64) -> Vec<u8> {
        // Small, medium or large, each as likely.
        let max = *self.prng.pick(&[300.min(max), 5_000.min(max), max]);
        let mut bytes = vec![0; 1 + self.prng.below(max) as usize];
        self.prng.fill(&mut bytes);
        bytes
    }

    /// Carries out one call. Being refused is fine; damage is not.
    fn step(&mut self) {
        match self.try_step() {
            Ok(()) => {}
            Err(FsError::Io(why)) => panic!("input/output error: {why}"),
            Err(FsError::Store(StoreError::NoSpace)) => self.full += 1,
            Err(FsError::Store(error)) => panic!("the store says: {error}"),
            Err(_) => self.refused += 1,
        }
    }

    fn open(&mut self) -> Result<Arc<OpenFile>> {
        if !self.open.is_empty() && self.prng.one_in(2) {
            return Ok(self.prng.pick(&self.open).clone());
        }
        let (directory, name) = (self.directory(), self.name());
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        let (_, file) = self.fs.create(&self.caller, directory, &name, 0o644, flags, false)?;
        if self.open.len() < 8 {
            self.open.push(file.clone());
        }
        Ok(file)
    }

    fn try_step(&mut self) -> Result<()> {
        let caller = self.caller.clone();
        let (directory, name) = (self.directory(), self.name());
        let (other, new_name) = (self.directory(), self.name());
        let offset = self.prng.below(self.size_max);
        match self.prng.below(21) {
            0 | 1 if self.directories.len() < 12 => {
                let attr = self.fs.mkdir(&caller, directory, &name, 0o755)?;
                self.directories.push(attr.inode);
            }
            0..=5 => {
                let file = self.open()?;
                let bytes = self.bytes(self.size_max / 4);
                let offset = if self.prng.one_in(2) { 0 } else { offset };
                let sync = self.prng.one_in(20);
                let how = WriteHow { sync, append: self.prng.one_in(4), ..WriteHow::default() };
                self.fs.write(&caller, &file, offset, &bytes, how)?;
            }
            6 => {
                let file = self.open()?;
                let size = if self.prng.one_in(2) { offset } else { self.prng.below(3000) };
                let change = SetAttr { size: Some(size), ..SetAttr::default() };
                self.fs.setattr(&caller, file.inode(), Some(&file), change)?;
            }
            7 => {
                let file = self.open()?;
                let flags = *self.prng.pick(&[
                    FallocateFlags::empty(),
                    FallocateFlags::KEEP_SIZE,
                    FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
                    FallocateFlags::ZERO_RANGE,
                    FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                ]);
                let len = 1 + self.prng.below(self.size_max / 2);
                self.fs.fallocate(&file, flags, offset, len)?;
            }
            8 => {
                let inode = self.fs.lookup(&caller, directory, &name)?.inode;
                self.fs.link(&caller, inode, other, &new_name)?;
            }
            9 => {
                let long = if self.prng.one_in(3) { 3000 } else { 10 };
                let target = vec![b't'; 1 + self.prng.below(long) as usize];
                self.fs.symlink(&caller, directory, &name, &target)?;
            }
            10 | 11 => {
                let flags = *self.prng.pick(&[
                    RenameFlags::empty(),
                    RenameFlags::NOREPLACE,
                    RenameFlags::EXCHANGE,
                    RenameFlags::WHITEOUT,
                ]);
                self.fs.rename(&caller, directory, &name, other, &new_name, flags)?;
            }
            12 | 13 => self.fs.unlink(&caller, directory, &name)?,
            14 => {
                let inode = self.fs.lookup(&caller, directory, &name)?.inode;
                self.fs.rmdir(&caller, directory, &name)?;
                self.directories.retain(|&directory| directory != inode);
            }
            15 | 16 => {
                let inode = self.fs.lookup(&caller, directory, &name)?.inode;
                let attribute = format!("user.{}", self.prng.below(6));
                if self.prng.one_in(3) {
                    self.fs.removexattr(&caller, inode, attribute.as_bytes())?;
                } else {
                    let value = self.bytes(9000);
                    let flags = XattrFlags::empty();
                    self.fs.setxattr(&caller, inode, attribute.as_bytes(), &value, flags)?;
                }
            }
            17 => {
                let file_type = *self.prng.pick(&[
                    FileType::Fifo,
                    FileType::Socket,
                    FileType::CharDevice,
                    FileType::BlockDevice,
                ]);
                let device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
                let new = NewNode { file_type, perm: 0o600, rdev: if device { 0x501 } else { 0 } };
                self.fs.mknod(&caller, directory, &name, new)?;
            }
            18 => {
                let file = self.open()?;
                self.fs.fsync(&file, self.prng.one_in(2))?;
                if self.prng.one_in(4) {
                    self.fs.commit()?;
                }
            }
            19 => {
                let flags = OpenFlags::READ | OpenFlags::WRITE;
                let (attr, file) = self.fs.tmpfile(&caller, directory, 0o600, flags)?;
                let bytes = self.bytes(20_000);
                self.fs.write(&caller, &file, 0, &bytes, WriteHow::default())?;
                if self.prng.one_in(2) {
                    self.fs.link(&caller, attr.inode, other, &new_name)?;
                } else {
                    self.open.push(file);
                }
            }
            _ => {
                if !self.open.is_empty() {
                    let at = self.prng.below(self.open.len() as u64) as usize;
                    self.open.swap_remove(at);
                }
            }
        }
        Ok(())
    }
}

/// Runs `body` and prints the seed if it panics.
fn with_seed(seed: u64, body: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        eprintln!("seed {seed}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_new_volume_is_clean() {
    for node_size in holdfast_format::limits::NODE_SIZES {
        let device = make(8 << 20, node_size);
        expect_clean(&device, "after mkfs");
        mount(&device).unmount().expect("an empty volume unmounts");
        expect_clean(&device, "after mounting");
    }
}

#[test]
fn every_durable_state_of_mixed_work_is_clean() {
    let mut seen = [0; 10];
    for seed in 0..12 {
        with_seed(seed, || {
            let node_size = holdfast_format::limits::NODE_SIZES[seed as usize % 3];
            let device = make(96 << 20, node_size);
            let mut work = Work::new(mount(&device), seed);
            for round in 0..4 {
                for _ in 0..250 {
                    work.step();
                }
                work.fs.sync().expect("memory takes every write");
                let facts = expect_clean(&device.snapshot(), &format!("after sync {round}"));
                seen[0] += facts.files;
                seen[1] += facts.symlinks;
                seen[2] += facts.specials;
                seen[3] += facts.xattrs;
                seen[4] += facts.orphans;
                seen[5] += facts.unwritten_blocks;
                seen[6] += facts.verified_bytes;
                seen[7] += facts.journal_commits;
                seen[8] += facts.log_batches;
                seen[9] += facts.log_records;
            }
            assert!(work.refused < 500, "{} of 1000 calls were refused", work.refused);
            assert_eq!(work.full, 0);
            // Some handles are dropped first, some after the volume.
            work.open.truncate(2);
            let Work { fs, open, .. } = work;
            fs.unmount().expect("memory takes every write");
            expect_clean(&device, "after unmount");
            drop(open);
            let fs = mount(&device);
            fs.unmount().expect("memory takes every write");
            let facts = expect_clean(&device, "after mounting again");
            assert_eq!(facts.orphans, 0);
        });
    }
    // The work must have made everything that a check judges.
    assert!(seen.iter().all(|&count| count > 20), "{seen:?}");
}

/// P8: also what a full volume holds is whole, and making room works.
#[test]
fn a_full_volume_is_clean() {
    for seed in 0..6 {
        with_seed(seed, || {
            let node_size = holdfast_format::limits::NODE_SIZES[seed as usize % 3];
            // Large nodes need a volume that holds some hundreds of them.
            let bytes = if node_size > 16384 { 40 << 20 } else { 8 << 20 };
            let device = make(bytes, node_size);
            let mut work = Work::new(mount(&device), seed);
            work.names = 200;
            work.size_max = bytes / 8;
            let mut steps = 0;
            while work.full < 60 && steps < 6000 {
                work.step();
                steps += 1;
            }
            assert!(work.full >= 60, "only {} calls met a full volume", work.full);
            work.fs.sync().expect("a full volume syncs");
            expect_clean(&device.snapshot(), "when full");
            work.open.clear();
            work.fs.unmount().expect("a full volume unmounts");
            expect_clean(&device, "after unmount");
        });
    }
}

/// The device as a crash leaves it while a background commit may be anywhere.
#[test]
fn a_crash_without_sync_leaves_a_clean_volume() {
    for seed in 100..104 {
        with_seed(seed, || {
            let device = make(64 << 20, 4096);
            let mut work = Work::new(mount(&device), seed);
            for round in 0..20 {
                for _ in 0..20 {
                    work.step();
                }
                let crashed = Arc::new(device.snapshot());
                expect_clean(&crashed, &format!("after crash {round}"));
                mount(&crashed).unmount().expect("memory takes every write");
                expect_clean(&crashed, &format!("after crash {round} and a mount"));
            }
        });
    }
}

#[test]
fn a_large_directory_is_clean_and_can_be_printed() {
    let device = make(64 << 20, 4096);
    let fs = mount(&device);
    let caller = Caller::root();
    let attr = fs.mkdir(&caller, InodeNo::ROOT, b"large", 0o755).expect("there is room");
    for index in 0..20_000u32 {
        let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
        let name = format!("file {index}");
        fs.mknod(&caller, attr.inode, name.as_bytes(), new).expect("there is room");
    }
    fs.unmount().expect("memory takes every write");
    expect_clean(&device, "with 20,000 files");
    let mut out = Vec::new();
    let path = b"/large/file 12345".to_vec();
    dump(&*device, &Subject::path(&path), &mut out).expect("the file exists");
    let text = String::from_utf8(out).expect("a dump is text");
    assert!(text.contains("type=Regular"), "{text}");
}
