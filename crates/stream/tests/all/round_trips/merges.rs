//! What was done in a fork is done in what the branch is by now, if both have touched no common path: against a plain merge of
//! two lists of all files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use holdfast::{Branch, FileType, Permissions, Snapshot, Volume, XattrFlags};
use holdfast_base::prng::Prng;
use holdfast_stream::{Merge, Merged};

use crate::common::{File, device, expect_clean, listing, listing_of, open};

/// A name in a tree, and what it leads to.
#[derive(Clone, Debug, PartialEq)]
struct Named {
    inode: u64,
    file: File,
}

type Tree = BTreeMap<PathBuf, Named>;

/// Numbers of links, and times of directories, follow from the names.
fn named(volume: &Volume) -> (Tree, BTreeMap<PathBuf, SystemTime>) {
    let (mut tree, mut times) = (Tree::new(), BTreeMap::new());
    for (paths, mut file) in listing(volume) {
        (file.nlink, file.data) = (0, Vec::new());
        for path in paths {
            let inode = volume.symlink_metadata(&path).unwrap().ino();
            if file.kind == FileType::Directory {
                times.insert(path.clone(), file.modified);
                file.modified = SystemTime::UNIX_EPOCH;
            }
            tree.insert(path, Named { inode, file: file.clone() });
        }
    }
    (tree, times)
}

/// Paths at which two trees differ.
fn differing(a: &Tree, b: &Tree) -> BTreeSet<PathBuf> {
    let all = a.keys().chain(b.keys());
    all.filter(|path| a.get(*path) != b.get(*path)).cloned().collect()
}

/// The plain merge: each path is as in the tree that has changed it. `Err`: a path that both have changed.
fn plain(base: &Tree, mine: &Tree, theirs: &Tree) -> Result<Tree, PathBuf> {
    let (by_me, by_them) = (differing(base, mine), differing(base, theirs));
    if let Some(both) = by_me.intersection(&by_them).next() {
        return Err(both.clone());
    }
    let mut tree = theirs.clone();
    for path in by_me {
        match mine.get(&path) {
            Some(named) => tree.insert(path, named.clone()),
            None => tree.remove(&path),
        };
    }
    Ok(tree)
}

/// Whether there is a reason to say that both have touched the same: one path at or below another, or one file.
fn are_near(base: &Tree, mine: &Tree, theirs: &Tree) -> bool {
    let (by_me, by_them) = (differing(base, mine), differing(base, theirs));
    let lies = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
    let inodes = |paths: &BTreeSet<PathBuf>, tree: &Tree| -> BTreeSet<u64> {
        let of = paths.iter().flat_map(|path| [base.get(path), tree.get(path)]);
        of.flatten().map(|named| named.inode).collect()
    };
    by_me.iter().any(|mine| by_them.iter().any(|theirs| lies(mine, theirs)))
        || !inodes(&by_me, mine).is_disjoint(&inodes(&by_them, theirs))
}

/// What was found is what was wanted, with files of the same names being the same file.
fn expect_equal(wanted: &Tree, found: &Tree, what: &str) {
    let paths = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(wanted), paths(found), "{what}");
    let (mut there, mut back) = (HashMap::new(), HashMap::new());
    for (path, named) in wanted {
        let other = &found[path];
        let mut files = [named.file.clone(), other.file.clone()];
        // New files are made anew.
        files.iter_mut().for_each(|file| file.content.truncate(1 << 16));
        assert_eq!(files[0], files[1], "{what}: {}", path.display());
        let same = *there.entry(named.inode).or_insert(other.inode) == other.inode
            && *back.entry(other.inode).or_insert(named.inode) == named.inode;
        assert!(same, "{what}: {} is another file", path.display());
    }
}

fn merge(base: &Snapshot, fork: &Branch, theirs: &Snapshot, into: &Branch) -> Merged {
    let merge = Merge {
        base: base.view().unwrap(),
        mine: fork.view().unwrap(),
        theirs: theirs.view().unwrap(),
        into: into.open().unwrap(),
    };
    merge.run(usize::MAX, &|| Ok(())).unwrap()
}

/// Random changes of one side; `salt` tells sides apart.
fn change(volume: &Volume, rng: &mut Prng, salt: u64, count: u64) {
    let top = |rng: &mut Prng| format!("/d{}", rng.below(8));
    let dir = |rng: &mut Prng| match rng.one_in(3) {
        true => format!("/d{}/sub", rng.below(8)),
        false => format!("/d{}", rng.below(8)),
    };
    for turn in 0..count {
        let (from, to) = (dir(rng), dir(rng));
        let old = format!("{from}/f{}", rng.below(3));
        let new = format!("{to}/n{}", salt * 100 + turn);
        // Names may be gone by now: then nothing happens.
        let _ = match rng.below(14) {
            0 | 1 => volume.write(&new, vec![salt as u8; 5000]),
            2 => volume.create_dir(&new).and_then(|()| volume.write(format!("{new}/x"), b"x")),
            3 => volume.rename(&old, &new),
            4 => volume.rename(&old, format!("{to}/f{}", rng.below(3))),
            5 => volume.rename(&from, &new),
            6 => volume.rename(top(rng), format!("/d{}", rng.below(8))),
            7 => volume.remove_file(&old),
            8 => volume.remove_dir_all(&from),
            9 => volume.hard_link(&old, &new),
            10 => volume.set_permissions(&from, Permissions::from_mode(0o700 + salt as u32)),
            11 => volume.set_xattr(&old, "user.by", &[salt as u8], XattrFlags::empty()),
            12 => volume.symlink(&old, &new),
            _ => {
                volume.open_with(&old, &holdfast::OpenOptions::new().write(true)).and_then(|file| {
                    file.write_all_at(&[salt as u8; 100], rng.below(20_000))?;
                    file.punch_hole(4096, 4096)
                })
            }
        };
    }
}

fn filled() -> Volume {
    let volume = open(&device(32 << 20));
    for n in 0..8 {
        for dir in [format!("/d{n}"), format!("/d{n}/sub")] {
            volume.create_dir(&dir).unwrap();
            (0..3).for_each(|f| volume.write(format!("{dir}/f{f}"), [n; 9000]).unwrap());
        }
    }
    for n in 0..8 {
        volume.hard_link(format!("/d{n}/f0"), format!("/d{}/sub/l{n}", (n + 1) % 8)).unwrap();
    }
    volume
}

/// `HOLDFAST_SEEDS=20` makes twenty times as many.
#[test]
fn disjoint_changes_are_put_together_and_others_are_named() {
    let times = std::env::var("HOLDFAST_SEEDS").ok().and_then(|times| times.parse().ok());
    let (mut done, mut overlaps) = (0, 0);
    for seed in 0..150 * times.unwrap_or(1) {
        let mut rng = Prng::seeded(seed);
        let volume = filled();
        let main = volume.branch("main").unwrap();
        let base = main.snapshot("base").unwrap();
        let fork = base.fork("fork").unwrap();
        let opened = fork.open().unwrap();
        let count = 1 + rng.below(7);
        change(&opened, &mut rng, 1, count);
        let (mine, my_times) = named(&opened);
        opened.close().unwrap();
        let count = 1 + rng.below(7);
        change(&volume, &mut rng, 2, count);
        let (theirs, their_times) = named(&volume);
        let now = main.snapshot("now").unwrap();
        let into = now.fork("into").unwrap();
        let was = base.view().unwrap();
        let (base_tree, base_times) = named(&was);
        was.close().unwrap();
        let what = format!(
            "seed {seed}: HOLDFAST_SEEDS={} cargo test -p holdfast-stream --test all round_trips::merges",
            seed / 150 + 1
        );
        let merged = merge(&base, &fork, &now, &into);
        let view = into.view().unwrap();
        let (found, times) = named(&view);
        let links: Vec<_> = listing(&view).into_iter().collect();
        view.close().unwrap();
        match (merged, plain(&base_tree, &mine, &theirs)) {
            (Merged::Done, Ok(wanted)) => {
                expect_equal(&wanted, &found, &what);
                for (names, file) in links {
                    let is_right =
                        file.kind == FileType::Directory || file.nlink as usize == names.len();
                    assert!(is_right, "{what}: {names:?} has {} links", file.nlink);
                }
                for (path, time) in times {
                    let [was, here, there] =
                        [&base_times, &my_times, &their_times].map(|of| of.get(&path));
                    if let (Some(was), Some(here), Some(there)) = (was, here, there)
                        && [&mine, &theirs]
                            .iter()
                            .all(|of| of[&path].inode == base_tree[&path].inode)
                    {
                        let wanted = if here == was { *there } else { *here.max(there) };
                        assert_eq!(time, wanted, "{what}: the time of {}", path.display());
                    }
                }
                done += 1;
                main.promote(into, None).unwrap();
                assert_eq!(named(&volume).0, found, "{what}");
            }
            (Merged::Overlap { paths, .. }, plain) => {
                assert!(
                    are_near(&base_tree, &mine, &theirs),
                    "{what}: {paths:?} are no reason; {plain:?}"
                );
                assert!((1..=10).contains(&paths.len()) && paths.is_sorted(), "{what}: {paths:?}");
                assert_eq!(found, theirs, "{what}: it has changed");
                overlaps += 1;
            }
            (Merged::Done, Err(both)) => panic!("{what}: both have changed {}", both.display()),
        }
        volume.close().unwrap();
    }
    println!("{done} done, {overlaps} overlaps");
    assert!(done > 30 && overlaps > 30, "{done} done, {overlaps} overlaps");
}

/// What both do, and the paths that are named if they have touched the same.
fn told(mine: impl FnOnce(&Volume), theirs: impl FnOnce(&Volume)) -> Result<Tree, Vec<String>> {
    let device = device(32 << 20);
    let volume = open(&device);
    for dir in ["/a", "/a/b", "/c"] {
        volume.create_dir(dir).unwrap();
    }
    for file in ["/f", "/a/f", "/a/b/f", "/c/f"] {
        volume.write(file, file).unwrap();
    }
    volume.hard_link("/f", "/c/link").unwrap();
    let main = volume.branch("main").unwrap();
    let base = main.snapshot("base").unwrap();
    let fork = base.fork("fork").unwrap();
    let opened = fork.open().unwrap();
    mine(&opened);
    opened.close().unwrap();
    theirs(&volume);
    let now = main.snapshot("now").unwrap();
    let into = now.fork("into").unwrap();
    let merged = merge(&base, &fork, &now, &into);
    let view = into.view().unwrap();
    let tree = named(&view).0;
    view.close().unwrap();
    volume.close().unwrap();
    expect_clean(&device, "a merge");
    match merged {
        Merged::Done => Ok(tree),
        Merged::Overlap { paths, more } => {
            assert_eq!(more, 0);
            Err(paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect())
        }
    }
}

#[test]
fn each_kind_of_common_path_is_found_and_nothing_else() {
    let write = |path: &'static str| move |volume: &Volume| volume.write(path, b"other").unwrap();
    let mode = |path: &'static str, mode: u32| {
        move |volume: &Volume| volume.set_permissions(path, Permissions::from_mode(mode)).unwrap()
    };
    let rename = |from: &'static str, to: &'static str| {
        move |volume: &Volume| volume.rename(from, to).unwrap()
    };
    let overlap =
        |paths: &[&str]| Err(paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>());
    let text = |tree: &Tree, path: &str| tree[Path::new(path)].file.content.clone();
    // New names in one directory, whose permission bits one has changed.
    let both = told(write("/a/mine"), |volume| {
        volume.write("/a/theirs", b"x").unwrap();
        mode("/a", 0o711)(volume);
    });
    let both = both.unwrap();
    assert_eq!((text(&both, "/a/mine"), text(&both, "/a/theirs")), (b"other".into(), b"x".into()));
    assert_eq!(both[Path::new("/a")].file.mode & 0o777, 0o711);
    // A directory of either goes elsewhere, with all below it.
    let both = told(rename("/a/b", "/moved"), rename("/c", "/a/c")).unwrap();
    assert_eq!(
        (text(&both, "/moved/f"), text(&both, "/a/c/f")),
        (b"/a/b/f".into(), b"/c/f".into())
    );
    assert!(!both.contains_key(Path::new("/a/b")) && !both.contains_key(Path::new("/c")));
    // A new name of a file that the other one leaves alone.
    let both = told(|volume| volume.hard_link("/a/f", "/second").unwrap(), write("/f")).unwrap();
    assert_eq!(both[Path::new("/second")].inode, both[Path::new("/a/f")].inode);
    assert_eq!(both[Path::new("/f")].inode, both[Path::new("/c/link")].inode);
    assert_eq!(text(&both, "/c/link"), b"other");
    // The same file by two of its names, told by the newest; its attributes, its names.
    assert_eq!(told(write("/f"), write("/c/link")), overlap(&["c/link"]));
    let replace = |path: &'static str| {
        move |volume: &Volume| {
            volume.write("/a/temporary", b"anew").unwrap();
            volume.rename("/a/temporary", path).unwrap();
        }
    };
    assert_eq!(told(replace("/a/f"), replace("/a/f")), overlap(&["a/f"]));
    // Two files of one directory, each replaced as editors do it: only the times of the directory are common.
    let second = |volume: &Volume| replace("/a/b/f")(volume);
    let both = told(replace("/a/f"), second).unwrap();
    assert_eq!((text(&both, "/a/f"), text(&both, "/a/b/f")), (b"anew".into(), b"anew".into()));
    let gone = |volume: &Volume| volume.remove_dir_all("/a").unwrap();
    assert!(told(replace("/a/f"), gone).is_err());
    assert_eq!(told(mode("/a/f", 0o600), write("/a/f")), overlap(&["a/f"]));
    assert_eq!(
        told(|volume| volume.hard_link("/a/f", "/x").unwrap(), write("/a/f")),
        overlap(&["x"])
    );
    assert_eq!(told(write("/new"), write("/new")), overlap(&["new"]));
    assert_eq!(told(mode("/a", 0o700), mode("/a", 0o711)), overlap(&["a"]));
    // Below what the other one has renamed or removed.
    assert_eq!(told(write("/a/b/new"), rename("/a", "/z")), overlap(&["a/b/new"]));
    assert_eq!(told(rename("/a", "/z"), write("/a/b/f")), overlap(&["a"]));
    assert_eq!(
        told(write("/c/f"), |volume| volume.remove_dir_all("/c").unwrap()),
        overlap(&["c/f"])
    );
    // Each in the other: neither would be reached from the root any more.
    assert_eq!(told(rename("/a", "/c/a"), rename("/c", "/a/c")), overlap(&["a"]));
    // More than are named.
    let many =
        |volume: &Volume| (0..25).for_each(|n| volume.write(format!("/n{n:02}"), b"x").unwrap());
    let device = device(32 << 20);
    let volume = open(&device);
    let main = volume.branch("main").unwrap();
    let base = main.snapshot("base").unwrap();
    let fork = base.fork("fork").unwrap();
    let opened = fork.open().unwrap();
    many(&opened);
    opened.close().unwrap();
    many(&volume);
    let now = main.snapshot("now").unwrap();
    let Merged::Overlap { paths, more } = merge(&base, &fork, &now, &now.fork("into").unwrap())
    else {
        panic!("both made the same names")
    };
    let wanted: Vec<Vec<u8>> = (0..10).map(|n| format!("n{n:02}").into_bytes()).collect();
    assert_eq!((paths, more), (wanted, 15));
    // What cannot be remembered is refused, and work that is not wanted any more ends.
    let of = |into: &str| Merge {
        base: base.view().unwrap(),
        mine: fork.view().unwrap(),
        theirs: now.view().unwrap(),
        into: now.fork(into).unwrap().open().unwrap(),
    };
    let said = of("few").run(24, &|| Ok(())).unwrap_err().to_string();
    assert!(said.contains("more than 24 files"), "{said}");
    of("ended").run(25, &|| Err(std::io::ErrorKind::BrokenPipe.into())).unwrap_err();
    let before = listing_of(&now);
    for name in ["into", "few", "ended"] {
        let view = volume.branch(name).unwrap().view().unwrap();
        assert_eq!(listing(&view), before, "{name}");
        view.close().unwrap();
    }
    volume.close().unwrap();
}
