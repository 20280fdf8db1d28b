//! Walks of whole trees: each ends, in bounded memory, whatever the names of a volume lead to (P10).
//!
//! Everything that goes through a tree by itself does it here once: the library's walk, an archive, a stream, a difference, a removal. A
//! directory that lies in itself, or two in one another, would let each of them go on for ever.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use holdfast::device::Device;
use holdfast::{Snapshot, Volume, VolumeOptions};
use holdfast_archive::{Form, export, export_difference};
use holdfast_format::ItemKind;
use holdfast_format::item::{Dentry, FileType, InodeItem};
use holdfast_stream::{Sending, send};

use crate::edited::Edited;
use crate::golden::{golden, pinned};
use crate::image::{Sort, records};
use crate::program::Program;
use crate::volume::fail;
use crate::watched::Watched;

/// Names that a walk gives at most; golden volumes have some dozens.
const NAMES_MAX: usize = 20_000;
/// Files of so many bytes may fill what takes them.
const FILES_BYTES_MAX: u64 = 16 << 20;
/// Bytes that come out of a tree of smaller files at most.
const OUT_MAX: usize = 64 << 20;
/// What a walk may remember, besides the way down.
const KEPT_MAX: usize = 1 << 20;

/// Takes what comes out of a tree, and rings the alarm if that is without an end.
struct Out<'a> {
    left: usize,
    edited: &'a Edited,
    is_small: bool,
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len()) {
            Some(left) => self.left = left,
            None if self.is_small => fail(self.edited, "what comes out of a tree has no end"),
            None => return Err(ErrorKind::StorageFull.into()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Walks through an edited volume in every way.
pub fn walkers(data: &[u8]) {
    let _pinned = pinned();
    let edited = Edited::of(&mut Program::new(data));
    let device: Arc<dyn Device> = Arc::new(Watched::new(edited.snapshot(), edited.len, true));
    let Ok(volume) = VolumeOptions::new().commit_secs(0).open_device(device) else { return };
    let is_small = look(&edited, &volume) <= FILES_BYTES_MAX;
    let out = || Out { left: OUT_MAX, edited: &edited, is_small };
    let _ = export(&volume, Form::Tar, KEPT_MAX, out());
    let taken = |name| volume.first_branch()?.snapshot(name);
    if let Ok(before) = taken("before the removal") {
        let _ = send(&volume, Sending::Whole(before.clone()), out(), &mut |_| {});
        remove(&edited, &volume);
        if let Ok(behind) = taken("behind the removal") {
            let what = Sending::Changes(before.clone(), behind.clone());
            let _ = send(&volume, what, out(), &mut |_| {});
            differ(&edited, (&before, &behind), out());
        }
    }
    let _ = volume.close();
}

/// Bytes of all files that a walk gives.
fn look(edited: &Edited, volume: &Volume) -> u64 {
    let mut bytes: u64 = 0;
    for (count, entry) in volume.walk("/").into_iter().flatten().enumerate() {
        if count > NAMES_MAX {
            fail(edited, "a walk has no end");
        }
        let found = entry.and_then(|entry| entry.metadata());
        bytes = bytes.saturating_add(found.map_or(0, |found| found.len()));
    }
    bytes
}

/// Removes what can be removed.
fn remove(edited: &Edited, volume: &Volume) {
    for (count, entry) in volume.read_dir("/").into_iter().flatten().enumerate() {
        if count > NAMES_MAX {
            fail(edited, "a directory has no end");
        }
        let Ok(entry) = entry else { continue };
        let path = std::path::Path::new("/").join(entry.file_name());
        let done = match entry.file_type() {
            FileType::Directory => volume.remove_dir_all(path),
            _ => volume.remove_file(path),
        };
        // Each one more would wait a while for space that never comes.
        if done.is_err_and(|error| error.kind() == ErrorKind::StorageFull) {
            return;
        }
    }
}

/// Looks at what differs, in both directions.
fn differ(edited: &Edited, (before, behind): (&Snapshot, &Snapshot), out: Out<'_>) {
    let count = before.diff(behind).into_iter().flatten().take(NAMES_MAX + 1).count();
    if count > NAMES_MAX {
        fail(edited, "a difference has no end");
    }
    if let (Ok(old), Ok(new), Ok(changes)) = (behind.open(), before.open(), behind.diff(before)) {
        let _ = export_difference(&old, &new, changes, KEPT_MAX, out);
        let _ = [old, new].map(Volume::close);
    }
}

/// The edit of eight bytes of a value: of the item at `at` in the structure that is chosen.
fn edit(chosen: u8, at: usize, offset: usize, number: u64) -> Vec<u8> {
    let mut program = vec![3, chosen, 4];
    program.extend((at as u16).to_le_bytes());
    program.push(2);
    program.extend((offset as u16).to_le_bytes());
    program.extend([3, 3]);
    program.extend(number.to_le_bytes());
    program
}

fn place_of(field: &str) -> usize {
    let fields = InodeItem::fields();
    fields.iter().find(|it| it.name == field).expect("the format has it").offset
}

/// Programs after which a directory lies in itself, in one below it or in two: once as the name alone says, and once as the directory says
/// too, which is then not found where it was.
pub fn circles() -> Vec<Vec<u8>> {
    let mut programs = BTreeSet::new();
    for volume in [0, 3, 5] {
        let image = golden(volume);
        let lists =
            image.structures.iter().filter(|it| matches!(it.sort, Sort::Node | Sort::Batch));
        let lists: Vec<_> = lists.collect();
        for (chosen, structure) in lists.into_iter().rev().enumerate() {
            let Ok(chosen) = u8::try_from(chosen) else { break };
            // Leaves of files.
            if structure.sort != Sort::Node || structure.bytes[4..6] != [0, 1] {
                continue;
            }
            let items = records::of_node(&structure.bytes);
            let names =
                items.iter().enumerate().filter(|(_, (key, _))| key.kind == ItemKind::Dentry);
            let names: Vec<_> = names.collect();
            let directories: BTreeSet<_> = names.iter().map(|(_, (key, _))| key.inode).collect();
            for (at, (key, value)) in &names {
                let name = Dentry::decode(value).expect("the golden volume is sound");
                if name.file_type != FileType::Directory {
                    continue;
                }
                for other in &directories {
                    let alone = edit(chosen, *at, 0, other.0);
                    let item = |(key, _): &records::Item| {
                        key.kind == ItemKind::Inode && key.inode == *other
                    };
                    if let Some(item) = items.iter().position(item) {
                        let parent = edit(chosen, item, place_of("parent"), key.inode.0);
                        let slot = edit(chosen, item, place_of("parent_slot"), key.offset);
                        let both = [&[volume as u8, 0], &alone[..], &parent, &slot].concat();
                        programs.insert(both);
                    }
                    programs.insert([&[volume as u8, 0], &alone[..]].concat());
                }
            }
        }
    }
    programs.into_iter().collect()
}

/// Circles, and what is tried with volumes elsewhere.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = circles();
    seeds.extend(crate::volume::seeds());
    seeds
}

#[cfg(test)]
mod tests {
    use holdfast_check::Options;

    use super::*;

    /// What fsck says of a directory in a wrong place, in itself and in two.
    const FOUND: [&str; 3] = ["parent-wrong", "directory-cycle", "directory-names"];

    #[test]
    fn circles_are_what_they_are_meant_to_be() {
        let _pinned = pinned();
        let circles = circles();
        assert!(circles.len() > 20, "{}", circles.len());
        let mut found = BTreeSet::new();
        for program in &circles {
            let edited = Edited::of(&mut Program::new(program));
            let report = holdfast_check::check(&edited.snapshot(), &Options::default());
            let report = report.expect("the superblock is whole");
            found.extend(report.findings.iter().map(|finding| finding.slug));
        }
        for name in FOUND {
            assert!(found.contains(name), "{name} is not in {found:?}");
        }
    }
}
