//! The difference of two snapshots against a plain comparison of all that both hold, after random scripts (P13, P15).
//!
//! Once by inode: what became of each, and which of its bytes differ. And once by path: applied to the listing of the first,
//! the difference gives the listing of the second.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_device::{Device, MemoryDevice};
use holdfast_posix::{Caller, Change, ChangeKind, FileSystem, FileType, Moment, OpenFlags, Parts};
use holdfast_script::{Profile, Target, generate};
use holdfast_sim::{Engine, Setup};

/// All of a file but its names.
#[derive(Clone, Debug, PartialEq)]
struct File {
    file_type: FileType,
    perm: u32,
    owner: (u32, u32),
    times: (Timestamp, Timestamp),
    size: u64,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Directories and the names there.
    names: BTreeSet<(InodeNo, Vec<u8>)>,
}

/// What a snapshot holds, and where.
#[derive(Debug, Default)]
struct Listing {
    files: BTreeMap<InodeNo, File>,
    paths: BTreeMap<Vec<u8>, InodeNo>,
}

fn listing(fs: &FileSystem) -> Listing {
    let mut found = Listing::default();
    let mut todo = vec![(Vec::new(), InodeNo::ROOT, None)];
    while let Some((path, no, name)) = todo.pop() {
        found.paths.insert(path.clone(), no);
        if let Some(known) = found.files.get_mut(&no) {
            known.names.extend(name);
            continue;
        }
        let attr = fs.getattr(no).unwrap();
        let mut content = Vec::new();
        match attr.file_type {
            FileType::Regular => {
                let flags = OpenFlags::READ | OpenFlags::NOATIME;
                let file = fs.open(&Caller::root(), no, flags).unwrap();
                content = vec![0; attr.size as usize];
                assert_eq!(fs.read(&file, 0, &mut content).unwrap(), content.len());
            }
            FileType::Symlink => content = fs.readlink(no).unwrap(),
            FileType::Directory => fs
                .readdir(no, 0, &mut |entry| {
                    if entry.name != b"." && entry.name != b".." {
                        let path = match path.is_empty() {
                            true => entry.name.to_vec(),
                            false => [&path, &b"/"[..], entry.name].concat(),
                        };
                        todo.push((path, entry.inode, Some((no, entry.name.to_vec()))));
                    }
                    true
                })
                .unwrap(),
            _ => {}
        }
        let names = fs.listxattr(&Caller::root(), no).unwrap();
        let value = |name: Vec<u8>| {
            let value = fs.getxattr(&Caller::root(), no, &name).unwrap();
            (name, value)
        };
        let file = File {
            file_type: attr.file_type,
            perm: attr.perm,
            owner: (attr.uid, attr.gid),
            times: (attr.mtime, attr.btime),
            size: if attr.file_type == FileType::Directory { 0 } else { attr.size },
            content,
            xattrs: names.into_iter().map(value).collect(),
            names: name.into_iter().collect(),
        };
        found.files.insert(no, file);
    }
    found
}

impl Listing {
    /// The names in a directory.
    fn entries(&self, dir: InodeNo) -> BTreeSet<(&[u8], InodeNo)> {
        let named = self
            .files
            .iter()
            .flat_map(|(no, file)| file.names.iter().map(|(dir, name)| (*dir, &name[..], *no)));
        named.filter(|(of, ..)| *of == dir).map(|(_, name, no)| (name, no)).collect()
    }

    /// The path of a name.
    fn path(&self, (dir, name): &(InodeNo, Vec<u8>)) -> Vec<u8> {
        let dir = self.paths.iter().find(|(_, no)| *no == dir).unwrap().0;
        if dir.is_empty() { name.clone() } else { [dir, &b"/"[..], name].concat() }
    }
}

/// What a difference says, without ranges; of a file of several names its path is any.
type ToldChange = (ChangeKind, InodeNo, bool, Option<Vec<u8>>, Option<Vec<u8>>);

fn wanted(old: &Listing, new: &Listing) -> BTreeMap<ToldChange, Parts> {
    let mut wanted = BTreeMap::new();
    let numbers: BTreeSet<InodeNo> = old.files.keys().chain(new.files.keys()).copied().collect();
    for no in numbers {
        let (before, after) = (old.files.get(&no), new.files.get(&no));
        let none = BTreeSet::new();
        let names = |of: Option<&File>| of.map_or(none.clone(), |of| of.names.clone());
        let (from, to) = (names(before), names(after));
        let is_link = from.len() > 1 || to.len() > 1;
        let mut parts = Parts::default();
        if let (Some(before), Some(after)) = (before, after) {
            let same_names = old.entries(no) == new.entries(no);
            let times = |of: &File| (of.times.0.secs, of.times.0.nanos);
            parts.content = before.content != after.content;
            parts.mode = before.perm != after.perm;
            parts.owner = before.owner != after.owner;
            parts.times = times(before) != times(after) && same_names;
            parts.xattrs = before.xattrs != after.xattrs;
        }
        if is_link {
            for gone in from.difference(&to) {
                let said = (ChangeKind::Removed, no, true, Some(old.path(gone)), None);
                wanted.insert(said, Parts::default());
            }
            for come in to.difference(&from) {
                let said = (ChangeKind::Created, no, true, None, Some(new.path(come)));
                wanted.insert(said, Parts::default());
            }
        }
        let path = |of: &Listing, names: &BTreeSet<_>| names.first().map(|name| of.path(name));
        let here = (path(old, &from), path(new, &to).or((no == InodeNo::ROOT).then(Vec::new)));
        let moved = !is_link && from != to;
        let (kind, was, is) = match (before, after) {
            (None, Some(_)) if !is_link => (ChangeKind::Created, None, here.1),
            (Some(_), None) if !is_link => (ChangeKind::Removed, here.0, None),
            (Some(_), Some(_)) if moved => (ChangeKind::Renamed, here.0, here.1),
            (Some(_), Some(_)) if parts.content => (ChangeKind::Changed, None, here.1),
            (Some(_), Some(_)) if !parts.is_empty() => (ChangeKind::Attributes, None, here.1),
            _ => continue,
        };
        // Any of several names will do.
        let is = if is_link { None } else { is };
        wanted.insert((kind, no, is_link, was, is), parts);
    }
    wanted
}

fn compare(fs: &FileSystem, old: &[u8], new: Option<&[u8]>, lists: (&Listing, &Listing)) {
    let moment = |snapshot| Moment { branch: b"main", snapshot };
    let mut changes = fs.changes(moment(Some(old)), moment(new), true).unwrap();
    let mut all = Vec::new();
    while let Some(change) = fs.next_change(&mut changes).unwrap() {
        all.push(change);
    }
    fs.end_changes(changes);
    let mut said = BTreeMap::new();
    for change in &all {
        let Change { kind, inode, is_link, old_path, new_path, parts, .. } = change.clone();
        let of_content = matches!(kind, ChangeKind::Changed | ChangeKind::Attributes);
        let new_path = match is_link && of_content {
            true => {
                let path = new_path.unwrap();
                assert_eq!(lists.1.paths.get(&path), Some(&inode), "{change:?}");
                None
            }
            false => new_path,
        };
        let was_elsewhere = matches!(kind, ChangeKind::Removed | ChangeKind::Renamed);
        if let Some(old_path) = &old_path {
            assert_eq!(lists.0.paths.get(old_path), Some(&inode), "{change:?}");
        }
        let old_path = old_path.filter(|_| was_elsewhere);
        let twice = said.insert((kind, inode, is_link, old_path, new_path), parts);
        assert_eq!(twice, None, "{change:?} is told twice");
        // Of a file of several names its content is told once, and not with each of them.
        if of_content || !is_link {
            judge_ranges(change, lists);
        }
    }
    assert_eq!(said, wanted(lists.0, lists.1));
    assert_eq!(applied(&lists.0.paths, &all), lists.1.paths, "{all:#?}");
}

/// Each block of the ranges differs, and nothing else.
fn judge_ranges(change: &Change, (old, new): (&Listing, &Listing)) {
    let content = |of: &Listing| of.files.get(&change.inode).map(|file| file.content.clone());
    let (Some(mut old), Some(mut new)) = (content(old), content(new)) else {
        assert!(change.ranges.is_empty(), "{change:?}");
        return;
    };
    let sizes = (old.len(), new.len());
    let size = sizes.0.max(sizes.1);
    old.resize(size, 0);
    new.resize(size, 0);
    let mut at = 0;
    let same = |range: Range<usize>| old[range.clone()] == new[range];
    for range in &change.ranges {
        let (start, end) = (range.start as usize, range.end as usize);
        assert!(start < end && end <= size && same(at..start), "{change:?}");
        for block in (start / 4096)..end.div_ceil(4096) {
            let here = start.max(block * 4096)..end.min((block + 1) * 4096);
            assert!(!same(here.clone()) || here.end > sizes.0.min(sizes.1), "{change:?} {here:?}");
        }
        at = end;
    }
    assert!(same(at..size), "{change:?}");
}

/// The listing that comes out when changes are applied to one.
fn applied(listing: &BTreeMap<Vec<u8>, InodeNo>, changes: &[Change]) -> BTreeMap<Vec<u8>, InodeNo> {
    let named = |kind| {
        let of = changes.iter().filter(move |change| change.kind == kind);
        of.filter_map(|change| change.old_path.clone().map(|path| (path, change)))
    };
    let removed: BTreeMap<Vec<u8>, &Change> = named(ChangeKind::Removed).collect();
    let renamed: BTreeMap<Vec<u8>, &Change> = named(ChangeKind::Renamed).collect();
    let mut after = BTreeMap::new();
    for (path, no) in listing.iter().filter(|(path, _)| !removed.contains_key(*path)) {
        // Below the nearest directory that was renamed, all goes with it.
        let mut here = (path.clone(), Vec::new());
        let place = loop {
            if let Some(change) = renamed.get(&here.0) {
                break [change.new_path.clone().unwrap(), here.1].concat();
            }
            match here.0.iter().rposition(|byte| *byte == b'/') {
                None => break path.clone(),
                Some(slash) => {
                    here.1 = [&here.0[slash..], &here.1].concat();
                    here.0.truncate(slash);
                }
            }
        };
        assert_eq!(after.insert(place, *no), None, "two files at one path");
    }
    for change in changes.iter().filter(|change| change.kind == ChangeKind::Created) {
        let twice = after.insert(change.new_path.clone().unwrap(), change.inode);
        assert_eq!(twice, None, "{change:?}");
    }
    after
}

/// Runs a script with snapshots between, and compares all of them.
fn run(seed: u64, node_size: usize) {
    let profile = Profile { ops: 120, far: 0, names: 4, remounts: 2, ..Profile::default() };
    let script = generate(seed, &profile);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(48 << 20));
    let mut engine = Engine::create(device, Setup::new(node_size, 8)).unwrap();
    let mut names: Vec<Vec<u8>> = Vec::new();
    for (index, step) in script.steps.iter().enumerate() {
        engine.apply(&step.op);
        if index % 30 == 29 {
            let name = format!("s{index}").into_bytes();
            engine.filesystem().unwrap().snapshot(&name).unwrap();
            names.push(name);
        }
    }
    let fs = engine.filesystem().unwrap();
    let options = fs.options().clone();
    let shown: Vec<Listing> = names
        .iter()
        .map(|name| {
            let snapshot = fs.open_snapshot(b"main", name, options.clone()).unwrap();
            let found = listing(&snapshot);
            snapshot.unmount().unwrap();
            found
        })
        .collect();
    for (old, before) in names.iter().zip(&shown) {
        for (new, after) in names.iter().zip(&shown) {
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            println!("seed {seed}, nodes of {node_size}: {} and {}", text(old), text(new));
            compare(fs, old, Some(new), (before, after));
        }
        // The branch as it is now, which is open.
        compare(fs, old, None, (before, &listing(fs)));
    }
    fs.finish_deletions().unwrap();
    assert_eq!(fs.all_snapshots().unwrap().len(), names.len(), "nothing is left of comparisons");
}

/// `HOLDFAST_SEEDS=20` runs twenty times as many scripts.
#[test]
fn a_difference_is_what_a_comparison_of_everything_finds() {
    let times = std::env::var("HOLDFAST_SEEDS").ok().and_then(|times| times.parse().ok());
    // In seed 550 the last block of a file differs behind its end.
    for seed in (0..60 * times.unwrap_or(1)).chain([550]) {
        run(seed, if seed % 2 == 0 { 4096 } else { 16384 });
    }
}
