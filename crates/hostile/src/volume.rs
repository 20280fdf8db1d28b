//! Edited volumes: looked at without a write, and recovered, used on and left.
//!
//! What must hold for every image, whatever is in it (P10): no panic, no read or
//! write without an end, nothing written when it is only read. What the second
//! opinion finds nothing wrong with, the engine must mount, show without an error,
//! go on with and leave clean; what check refuses of journal and log, the engine
//! must refuse as well. So every gap between the two is found from either side.

use std::sync::Arc;

use holdfast_base::{BlockNo, InodeNo, TreeId};
use holdfast_check::{Options, Report, Subject, dump, probe, view};
use holdfast_device::{Device, MemoryDevice};
use holdfast_posix::{FileSystem, FsError, MountOptions};
use holdfast_sim::{agree, agree_on_log};

use crate::edited::Edited;
use crate::golden::{COUNT, pinned};
use crate::program::Program;
use crate::use_on::use_on;
use crate::walk::walk;
use crate::watched::Watched;

/// Memory for tree nodes: little, so that nodes leave it and are judged again.
const CACHE_BYTES: usize = 4 << 20;
/// Branches, and snapshots of each, that are looked at.
const TREES_MAX: usize = 5;

pub(crate) fn options(read_only: bool) -> MountOptions {
    MountOptions {
        read_only,
        commit_secs: 0,
        cache_bytes: CACHE_BYTES,
        dirty_bytes: 8 << 20,
        inode_cache: 8,
        ..MountOptions::default()
    }
}

/// A check with all data, if there is a volume. The image is only read.
fn judge(edited: &Edited) -> Option<Report> {
    let device = Watched::new(edited.snapshot(), edited.len, false);
    holdfast_check::check(&device, &Options { data: true, ..Options::default() }).ok()
}

/// Whether check finds nothing wrong. A note is nothing wrong, but that features are unknown is a reason
/// not to write.
fn is_clean(report: &Option<Report>) -> bool {
    report.as_ref().is_some_and(|report| {
        report.is_clean() && report.findings.iter().all(|finding| finding.id != 105)
    })
}

pub(crate) fn fail(edited: &Edited, why: &str) -> ! {
    panic!("P10: {why}\n  {}", edited.story.join("\n  "))
}

/// Check, dump and a read-only mount of an edited volume.
pub fn look(data: &[u8]) {
    let _pinned = pinned();
    let edited = Edited::of(&mut Program::new(data));
    let report = judge(&edited);
    let device = Arc::new(Watched::new(edited.snapshot(), edited.len, false));
    let _ = probe(&*device);
    let sound = view(&*device);
    print(&*device, &edited);
    if edited.is_small() {
        both_replays(&edited, is_clean(&report));
    }
    if is_clean(&report)
        && let Err(error) = sound
    {
        fail(&edited, &format!("check finds nothing, its view says: {error}"));
    }
    match FileSystem::mount(device, options(true)) {
        Ok(filesystem) => {
            let mut seen = walk(&filesystem);
            seen.errors.extend(trees(&filesystem));
            let unmounted = filesystem.unmount();
            if is_clean(&report) {
                if let Some(error) = seen.errors.first() {
                    fail(&edited, &format!("check finds nothing, a walk says: {error}"));
                }
                unmounted.unwrap_or_else(|error| {
                    fail(&edited, &format!("check finds nothing, unmount says: {error}"));
                });
            }
        }
        Err(error) if is_clean(&report) => {
            fail(&edited, &format!("check finds nothing, mount -o ro says: {error}"));
        }
        Err(_) => {}
    }
}

/// Walks through branches and snapshots; what failed, and why.
fn trees(filesystem: &FileSystem) -> Vec<String> {
    let mut errors = Vec::new();
    let mut note = |what: &str, opened: Result<FileSystem, FsError>| match opened {
        Ok(tree) => errors.extend(walk(&tree).errors),
        Err(error) => errors.push(format!("{what}: {error}")),
    };
    let branches = match filesystem.branches() {
        Ok(branches) => branches,
        Err(error) => return vec![format!("branches: {error}")],
    };
    for branch in branches.into_iter().take(TREES_MAX) {
        if !branch.is_open {
            note("a branch", filesystem.open_branch(&branch.name, options(true)));
        }
        match filesystem.snapshots_of(&branch.name) {
            Ok(snapshots) => {
                let named = snapshots.into_iter().filter(|of| !of.name.is_empty());
                for of in named.take(TREES_MAX) {
                    let (branch, name) = (&branch.name, &of.name);
                    note("a snapshot", filesystem.open_snapshot(branch, name, options(true)));
                }
            }
            Err(error) => note("snapshots", Err(error)),
        }
    }
    errors
}

/// Every way to print it.
fn print(device: &dyn Device, edited: &Edited) {
    let first = edited.golden.superblock.files.block;
    for what in [
        Subject::Superblocks,
        Subject::Journal,
        Subject::Log,
        Subject::Lineage,
        Subject::Branch(1),
        Subject::Branch(2),
        Subject::Tree(TreeId::Files),
        Subject::Tree(TreeId::Space),
        Subject::Node(first),
        Subject::Node(BlockNo(u64::MAX)),
        Subject::Inode(InodeNo::ROOT),
        Subject::path(b"/d/sub"),
    ] {
        let _ = dump(device, &what, &mut std::io::sink());
    }
}

/// The engine's replay of journal and log, and the other one.
fn both_replays(edited: &Edited, is_clean: bool) {
    let image = edited.snapshot();
    if let Err(why) = agree(&image) {
        fail(edited, &format!("the journal: {why}"));
    }
    match agree_on_log(&image) {
        Ok(_) => {}
        // What is wrong elsewhere stops the one or the other: then they need not say the same.
        Err(why) if is_clean || why.starts_with("the engine recovers what check refuses") => {
            fail(edited, &format!("the log: {why}"));
        }
        Err(_) => {}
    }
}

/// Mounts an edited volume for writing, uses it on, and leaves it in one of three ways. The byte behind
/// that of the volume says how.
pub fn recover(data: &[u8]) {
    let _pinned = pinned();
    let mut program = Program::new(data);
    let edited = Edited::of(&mut program);
    let how = data.get(1).copied().unwrap_or(0) >> 3 & 3;
    let report = judge(&edited);
    let clean = is_clean(&report);
    let content = edited.snapshot();
    let device = Arc::new(Watched::new(content, edited.len, true));
    let under: Arc<dyn Device> = Arc::clone(&device) as Arc<dyn Device>;
    let again = Arc::clone(&under);
    match FileSystem::mount(under, options(false)) {
        Ok(filesystem) => {
            let errors = use_on(&filesystem, how & 1 == 1);
            let left = match how & 2 {
                0 => filesystem.unmount(),
                _ => {
                    drop(filesystem);
                    Ok(())
                }
            };
            if clean {
                after(&edited, &errors.0, left, &again);
            } else {
                // Whatever it was: what was made of it can be looked at again.
                let _ = holdfast_check::check(&*again, &Options::default());
                let _ =
                    FileSystem::mount(again, options(false)).map(|filesystem| walk(&filesystem));
            }
        }
        Err(error) if clean => fail(&edited, &format!("check finds nothing, mount says: {error}")),
        Err(_) => {}
    }
}

/// A volume that was clean has been used: without an error, and it is clean.
pub(crate) fn after(
    edited: &Edited,
    errors: &[String],
    left: Result<(), FsError>,
    device: &Arc<dyn Device>,
) {
    if let Some(error) = errors.first() {
        fail(edited, &format!("check finds nothing, using it says: {error}"));
    }
    if let Err(error) = left {
        fail(edited, &format!("check finds nothing, unmount says: {error}"));
    }
    let report = holdfast_check::check(&**device, &Options { data: true, ..Options::default() });
    match report {
        Ok(report) if report.is_clean() => {}
        Ok(report) => fail(edited, &format!("clean, used, not clean: {}", report.findings[0])),
        Err(error) => fail(edited, &format!("clean, used, no volume: {error}")),
    }
    match FileSystem::mount(Arc::clone(device), options(false)) {
        Ok(filesystem) => {
            let seen = walk(&filesystem);
            if let Some(error) = seen.errors.first() {
                fail(edited, &format!("clean, used, mounted again, a walk says: {error}"));
            }
        }
        Err(error) => fail(edited, &format!("clean, used, does not mount again: {error}")),
    }
}

/// One program of each sort of edit for each golden volume, in each way.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for volume in 0..COUNT as u8 {
        for how in [0, 8, 16, 24] {
            seeds.push(vec![volume, how]);
        }
        for edit in 0..16 {
            for structure in 0..6 {
                let numbers = [0, 0, structure, 4, 1, 7, structure, 2, 3];
                let at = [structure, edit, structure * 3, 0, 4];
                seeds.push([&[volume, 8 * (edit % 4), edit], &at[..], &numbers].concat());
            }
        }
    }
    seeds
}

/// The image that a program makes: to look at it with other tools.
pub fn image(data: &[u8]) -> (MemoryDevice, Vec<String>) {
    let edited = Edited::of(&mut Program::new(data));
    (edited.snapshot(), edited.story)
}
