//! What is held is what was found, whatever others do to names meanwhile.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::rc::Rc;

use holdfast_service::work::files::message::Attributes;

use super::{Dir, HostEntry, NewFile, There};

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_there_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("file");
    fs::write(&at, "old").unwrap();
    let link = dir.path().join("link");
    symlink("file", &link).unwrap();
    let mut writing = NewFile::begin(&HostEntry::named(&link), true).unwrap();
    writing.write_all_at(b"new", 4).unwrap();
    assert_eq!((fs::read(&at).unwrap(), names(dir.path()).len()), (b"old".to_vec(), 2));
    let attributes = Attributes { mode: Some(0o640), ..Attributes::default() };
    writing.end(9, &attributes, true).unwrap();
    assert_eq!(fs::read(&at).unwrap(), b"\0\0\0\0new\0\0");
    assert_eq!(fs::metadata(&at).unwrap().mode() & 0o7777, 0o640);
    // What is given up leaves what was, and nothing else.
    drop(NewFile::begin(&HostEntry::named(&at), false).unwrap());
    assert_eq!(names(dir.path()), ["file", "link"]);
    NewFile::begin(&HostEntry::named(dir.path()), true).unwrap_err();
    // Where the user has not named it, a link is replaced.
    NewFile::begin(&HostEntry::named(&link), false).unwrap().end(0, &attributes, false).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
    assert_eq!(fs::metadata(&at).unwrap().len(), 9);
}

#[test]
fn what_is_made_takes_the_place_of_what_is_there_or_leaves_it() {
    let dir = tempfile::tempdir().unwrap();
    let held = Dir::named(dir.path());
    let place = |name: &str| HostEntry::of(&held, OsStr::new(name));
    fs::write(dir.path().join("a"), "a").unwrap();
    fs::write(dir.path().join("b"), "b").unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    let id = place("a").look(false).unwrap().id;
    for _ in 0..2 {
        place("b").link(&place("a"), id, There::Goes).unwrap();
    }
    assert_eq!(fs::read(dir.path().join("b")).unwrap(), b"a");
    let none = Attributes::default();
    let exists = |error: std::io::Error| error.kind() == std::io::ErrorKind::AlreadyExists;
    assert!(exists(place("b").symlink("x".as_ref(), &none, There::Stays).unwrap_err()));
    place("b").symlink("x".as_ref(), &none, There::Goes).unwrap();
    place("dir").symlink("x".as_ref(), &none, There::Goes).unwrap_err();
    assert_eq!(fs::read_link(dir.path().join("b")).unwrap(), Path::new("x"));
    // The file that was meant has another name by now.
    fs::rename(dir.path().join("a"), dir.path().join("c")).unwrap();
    fs::write(dir.path().join("a"), "other").unwrap();
    place("d").link(&place("a"), id, There::Goes).unwrap_err();
    place("d").link(&place("c"), id, There::Goes).unwrap();
    assert_eq!(names(dir.path()), ["a", "b", "c", "d", "dir"]);
}

#[test]
fn what_was_found_is_opened_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let held = Dir::named(dir.path());
    let place = HostEntry::of(&held, OsStr::new("it"));
    fs::write(at("it"), "found").unwrap();
    let seen = place.look(false).unwrap();
    place.open(&seen, false).unwrap();
    for other in ["link", "pipe", "file", "directory"] {
        fs::rename(at("it"), at("kept")).unwrap();
        match other {
            "link" => symlink("kept", at("it")).unwrap(),
            "pipe" => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mkfifoat(rustix::fs::CWD, at("it"), mode).unwrap();
            }
            "file" => fs::write(at("it"), "other").unwrap(),
            _ => fs::create_dir(at("it")).unwrap(),
        }
        place.open(&seen, false).unwrap_err();
        place.hold(&seen, false).unwrap_err();
        place.enter(&seen, false).unwrap_err();
        fs::rename(at("kept"), at("it"))
            .or_else(|_| fs::remove_dir(at("it")).and_then(|()| fs::rename(at("kept"), at("it"))))
            .unwrap();
    }
    assert_eq!(place.open(&seen, false).unwrap().1.id, seen.id);
}

/// More levels than are open at once: on the way back they are opened again.
#[test]
fn a_deep_tree_is_walked_and_left_again() {
    let top = tempfile::tempdir().unwrap();
    let mut dirs = vec![Dir::named(top.path())];
    for level in 0..300 {
        let made = dirs[level].make(OsStr::new("d")).unwrap();
        dirs.push(made);
    }
    assert_eq!(dirs.iter().filter(|dir| dir.is_held()).count(), 65);
    while let Some(dir) = dirs.pop() {
        assert_eq!(dir.names().unwrap(), if dirs.len() == 300 { vec![] } else { vec!["d"] });
        if dirs.len() == 150 {
            break;
        }
    }
    // One that others put elsewhere, with a link to it in its place, is not entered again.
    let (name, kept) = (dirs[5].path(), top.path().join("kept"));
    fs::rename(&name, &kept).unwrap();
    symlink(&kept, &name).unwrap();
    dirs[60].names().unwrap_err();
    assert_eq!(dirs[4].names().unwrap(), ["d"]);
    let last = Rc::clone(dirs.last().unwrap());
    drop(dirs);
    assert!(last.path().starts_with(&name));
}

#[test]
fn a_path_is_taken_as_it_was_written() {
    for (path, shown, last) in [
        ("none", "none", "none"),
        ("a/b", "a/b", "b"),
        ("a/b//", "a/b//", "b//"),
        ("/", "/", "/"),
        ("/etc", "/etc", "etc"),
        ("..", "..", ".."),
        ("", "", ""),
    ] {
        let place = HostEntry::named(Path::new(path));
        assert_eq!((place.to_string().as_str(), place.name.to_str().unwrap()), (shown, last));
    }
    assert!(HostEntry::named(Path::new("")).look(true).is_err());
    assert_eq!(
        HostEntry::named(Path::new("/")).look(false).unwrap().found.mode & 0o170_000,
        0o040_000
    );
}
