//! Edited volumes, and some of their superblocks and nodes gone: salvaged.
//!
//! What must hold for every image (P10): no panic, an end, no name that leads out of a directory, nothing that is entered and not
//! left; and what a check finds nothing wrong with is whole. The same of a copy of its metadata: where that is clean, it is with other
//! names as well.

use std::collections::BTreeSet;
use std::io;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::{Options, check};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::dentry::is_valid_name;
use holdfast_salvage::{
    Attributes, Choice, CopyOptions, Destination, FileNote, HowMuch, Salvaged, Scan, Tolerant,
    image,
};

use crate::edited::Edited;
use crate::golden::pinned;
use crate::program::Program;
use crate::watched::Watched;

/// Trees that are copied.
const TREES_MAX: usize = 6;
/// Bytes that may be written for one tree: data that many extents name is copied as often.
const WRITTEN_MAX: u64 = 8 << 30;

/// Holds a destination's side of the bargain, and watches the other.
#[derive(Default)]
struct Judge {
    /// Names that are taken, for each directory on the way.
    levels: Vec<BTreeSet<Vec<u8>>>,
    is_writing: bool,
    written: u64,
    left: bool,
}

impl Judge {
    fn take(&mut self, name: &[u8]) -> io::Result<()> {
        assert!(is_valid_name(name), "P10: the name {name:?} leads elsewhere");
        assert!(!self.is_writing && !self.left, "P10: something is made at a wrong moment");
        let names = self.levels.last_mut().expect("there is a first directory");
        match names.insert(name.to_vec()) {
            true => Ok(()),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }
}

impl Destination for Judge {
    fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        self.take(name)?;
        self.levels.push(BTreeSet::new());
        Ok(())
    }

    fn leave(&mut self, _: &Attributes) -> io::Result<()> {
        self.levels.pop().expect("P10: no directory is left twice");
        self.left = self.levels.is_empty();
        Ok(())
    }

    fn begin(&mut self, name: &[u8]) -> io::Result<()> {
        self.take(name)?;
        self.is_writing = true;
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(self.is_writing, "P10: bytes of no file");
        let end = at.checked_add(bytes.len() as u64).expect("P10: no file is so long");
        assert!(i64::try_from(end).is_ok(), "P10: no file is so long");
        self.written += bytes.len() as u64;
        assert!(self.written < WRITTEN_MAX, "P10: it does not end");
        Ok(())
    }

    fn end(&mut self, len: u64, _: &Attributes) -> io::Result<()> {
        assert!(i64::try_from(len).is_ok(), "P10: no file is so long");
        self.is_writing = false;
        Ok(())
    }

    fn symlink(&mut self, name: &[u8], _: &[u8], _: &Attributes) -> io::Result<()> {
        self.take(name)
    }

    fn node(&mut self, name: &[u8], _: u64, _: &Attributes) -> io::Result<()> {
        self.take(name)
    }

    fn link(&mut self, name: &[u8], old: &[Vec<u8>]) -> io::Result<()> {
        assert!(!old.is_empty() && old.iter().all(|name| is_valid_name(name)), "P10: {old:?}");
        self.take(name)
    }

    fn report(&mut self, found: &FileNote) -> io::Result<()> {
        let _ = found.words();
        Ok(())
    }
}

/// Salvages an edited volume as it is, and once more with some of its blocks gone.
pub fn salvage(data: &[u8]) {
    let _pinned = pinned();
    let mut program = Program::new(data);
    let gone: Vec<usize> = (0..4).map(|_| program.below(1 << 16)).collect();
    let edited = Edited::of(&mut program);
    let device = edited.snapshot();
    let options = Options { data: true, ..Options::default() };
    // Where a slot is not valid the check may go on from an older one that leads to whole trees; a salvage begins with the newest.
    let is_clean = check(&device, &options).is_ok_and(|report| report.findings.is_empty());
    copy(&device, is_clean, &edited.story);
    copy_metadata(&device, &edited.story);
    for slot in SUPERBLOCK_SLOTS.into_iter().filter(|_| gone[0].is_multiple_of(2)) {
        lose(&device, slot.0);
    }
    if gone[0].is_multiple_of(4) {
        lose(&device, device.len() / BLOCK_BYTES - 16);
    }
    let structures = &edited.golden.structures;
    for index in &gone {
        if let Some(structure) = structures.get(index % structures.len().max(1)) {
            lose(&device, structure.at / BLOCK_BYTES);
        }
    }
    copy(&device, false, &edited.story);
}

fn lose(device: &MemoryDevice, block: u64) {
    device.write(block * BLOCK_BYTES, &[0; BLOCK_BYTES as usize]).expect("it lies on the device");
}

/// Copies metadata with its names and with others.
fn copy_metadata(device: &MemoryDevice, story: &[String]) {
    let watched = Watched::new(device.snapshot(), device.len(), false);
    let tolerant = Tolerant::new(&watched);
    let scan = Scan::read(&tolerant, &|_| ());
    let is_clean = [HowMuch::Names, HowMuch::Shape].map(|kept| {
        let copy = MemoryDevice::new(device.len());
        let mut write = |block: u64, bytes: &[u8]| {
            copy.write(block * BLOCK_BYTES, bytes).map_err(io::Error::other)
        };
        let choice = Choice::default();
        let imaged = image(&tolerant, &scan, &choice, kept, &|_| (), &mut write);
        let report = imaged.ok().and_then(|_| check(&copy, &Options::default()).ok());
        report.is_some_and(|report| report.findings.is_empty())
    });
    let what = "P10: a copy is clean, and with other names it is not";
    assert!(!is_clean[0] || is_clean[1], "{what}\n  {}", story.join("\n  "));
}

fn copy(device: &MemoryDevice, is_clean: bool, story: &[String]) {
    let watched = Watched::new(device.snapshot(), device.len(), false);
    let tolerant = Tolerant::new(&watched);
    let scan = Scan::read(&tolerant, &|_| ());
    let _ = scan.volumes();
    let salvaged: Salvaged<'_> = match scan.open(&tolerant, &Choice::default()) {
        Ok(salvaged) => salvaged,
        Err(error) => {
            assert!(
                !is_clean,
                "P10: check finds nothing, a salvage says: {error}\n  {}",
                story.join("\n  ")
            );
            return;
        }
    };
    let _ = salvaged.epochs();
    for tree in salvaged.trees().iter().take(TREES_MAX) {
        let mut judge = Judge { levels: vec![BTreeSet::new()], ..Judge::default() };
        let counts = salvaged.copy(tree, &mut judge, &CopyOptions::default());
        let counts = counts.expect("nothing is refused");
        assert!(judge.left, "P10: a directory was not left\n  {}", story.join("\n  "));
        let is_whole = counts.is_whole() || !is_clean;
        assert!(
            is_whole,
            "P10: check finds nothing, of {} is missing: {counts:?}\n  {}",
            tree.name,
            story.join("\n  ")
        );
    }
}
