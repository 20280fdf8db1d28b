//! What a user of `std::fs` looks for: copies, real paths, locks, clones, vectored and positioned calls, walks.

use std::collections::BTreeSet;
use std::fs::TryLockError;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use holdfast::{File, FileType, OpenOptions, Permissions};

use crate::common::{errno, volume};

/// A name means one thing: what opens a host file is no name of a method on paths in the volume.
#[test]
fn no_function_of_a_volume_shares_its_name_with_a_method_of_a_directory() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut associated, mut methods) = (BTreeSet::new(), BTreeSet::new());
    let mut paths = vec![sources];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let inside = std::fs::read_dir(path).unwrap();
            paths.extend(inside.map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let mut of = "";
        for (at, line) in text.lines().enumerate() {
            if line.starts_with("impl ") {
                of = line;
            }
            let Some(rest) = line.strip_prefix("    pub fn ") else { continue };
            let name = rest.split(['(', '<']).next().unwrap().to_string();
            let head: String = text.lines().skip(at).take(3).collect();
            let takes_self = head.split(')').next().unwrap().contains("self");
            match of {
                "impl Volume {" if !takes_self => associated.insert(name),
                "impl Volume {" | "impl Dir {" => methods.insert(name),
                _ => false,
            };
        }
    }
    let is_found = associated.contains("open")
        && ["create", "metadata"].iter().all(|name| methods.contains(*name));
    assert!(is_found, "{associated:?}, {methods:?}");
    let both: Vec<_> = associated.intersection(&methods).collect();
    assert!(both.is_empty(), "{both:?}");
}

#[test]
fn a_copy_has_content_holes_and_permission_bits() {
    let v = volume();
    let file = v.create("/f").unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(&[7; 5000], 8 << 20).unwrap();
    file.set_len(1 << 40).unwrap();
    v.set_permissions("/f", Permissions::from_mode(0o640)).unwrap();
    v.write("/g", vec![1; 100_000]).unwrap();
    assert_eq!(v.copy("/f", "/g").unwrap(), 1 << 40);
    let copy = v.open_file("/g").unwrap();
    assert_eq!(v.metadata("/g").unwrap().permissions().mode(), 0o640);
    assert_eq!(copy.metadata().unwrap().len(), 1 << 40);
    assert_eq!(copy.seek_data(4096).unwrap(), Some(8 << 20));
    let mut bytes = vec![0; 5000];
    copy.read_exact_at(&mut bytes, 8 << 20).unwrap();
    assert!(bytes.iter().all(|&b| b == 7));
    copy.read_exact_at(&mut bytes[..9], 0).unwrap();
    assert_eq!(&bytes[..9], b"begin\0\0\0\0");

    // A copy onto itself loses nothing, whatever name it has.
    v.write("/text", "text").unwrap();
    v.hard_link("/text", "/same").unwrap();
    errno(v.copy("/text", "/same"), libc::EINVAL);
    errno(v.copy("/text", "/text"), libc::EINVAL);
    assert_eq!(v.read("/text").unwrap(), b"text");
    v.create_dir("/d").unwrap();
    errno(v.copy("/text", "/d"), libc::EISDIR);
    errno(v.copy("/d", "/e"), libc::EISDIR);
    errno(v.copy("/none", "/e"), libc::ENOENT);
    assert!(!v.exists("/e").unwrap());
}

#[test]
fn a_file_comes_back_out_of_a_snapshot() {
    let v = volume();
    v.write("/f", "as it was").unwrap();
    let before = v.branch("main").unwrap().snapshot("before").unwrap().open().unwrap();
    v.write("/f", "spoilt").unwrap();
    assert_eq!(before.copy_to("/f", &v, "/f").unwrap(), 9);
    assert_eq!(v.read("/f").unwrap(), b"as it was");
}

#[test]
fn real_paths_have_no_links_and_begin_at_the_root() {
    let v = volume();
    v.create_dir_all("/a/b").unwrap();
    v.write("/a/b/f", "").unwrap();
    v.symlink("/a/b", "/a/absolute").unwrap();
    v.symlink("../b/f", "/a/b/up").unwrap();
    v.symlink("absolute/up", "/a/chain").unwrap();
    let b = v.open_dir("/a/b").unwrap();
    for (path, real) in [
        ("/", "/"),
        ("/..", "/"),
        ("a//b/.", "/a/b"),
        ("/a/absolute/", "/a/b"),
        ("/a/chain", "/a/b/f"),
        ("/a/absolute/../b/up", "/a/b/f"),
    ] {
        assert_eq!(v.canonicalize(path).unwrap(), Path::new(real), "{path}");
    }
    assert_eq!(b.canonicalize("up").unwrap(), Path::new("/a/b/f"));
    assert_eq!(b.canonicalize("../..").unwrap(), Path::new("/"));
    errno(v.canonicalize("/a/none"), libc::ENOENT);
    errno(v.canonicalize("/a/b/f/"), libc::ENOTDIR);
    v.symlink("loop", "/loop").unwrap();
    errno(v.canonicalize("/loop"), libc::ELOOP);
    // The handle follows its directory, and a removed one is nowhere.
    v.rename("/a", "/moved").unwrap();
    assert_eq!(b.canonicalize(".").unwrap(), Path::new("/moved/b"));
    v.remove_dir_all("/moved").unwrap();
    errno(b.canonicalize("."), libc::ENOENT);
}

#[test]
fn types_are_asked_as_those_of_std() {
    let v = volume();
    v.write("/f", "").unwrap();
    v.symlink("f", "/l").unwrap();
    let of = |path: &str| v.symlink_metadata(path).unwrap().file_type();
    assert!(of("/").is_dir() && !of("/").is_file() && !of("/").is_symlink());
    assert!(of("/f").is_file() && !of("/f").is_dir());
    assert!(of("/l").is_symlink() && !of("/l").is_file());
    assert!(FileType::Fifo.is_fifo() && FileType::Socket.is_socket());
    assert!(FileType::CharDevice.is_char_device() && FileType::BlockDevice.is_block_device());
    let mut permissions = Permissions::from_mode(0o644);
    permissions.set_readonly(true);
    assert_eq!((permissions.mode(), permissions.readonly()), (0o444, true));
    permissions.set_mode(0o17777);
    assert_eq!((permissions.mode(), permissions.readonly()), (0o7777, false));
}

#[test]
fn clones_share_position_and_lock() {
    let v = volume();
    let mut file = v.create("/f").unwrap();
    let mut clone = file.try_clone().unwrap();
    file.write_all(b"one ").unwrap();
    clone.write_all(b"two").unwrap();
    assert_eq!(v.read("/f").unwrap(), b"one two");
    clone.seek(SeekFrom::Start(4)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "two");

    let other = v.open_file("/f").unwrap();
    file.lock().unwrap();
    clone.try_lock().unwrap();
    drop(file);
    assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
    drop(clone);
    other.try_lock().unwrap();
}

#[test]
fn locks_are_shared_or_exclusive_and_become_each_other() {
    let v = volume();
    v.write("/f", "").unwrap();
    v.write("/g", "").unwrap();
    let [one, two] = [(); 2].map(|()| v.open_file("/f").unwrap());
    let blocked = |result| matches!(result, Err(TryLockError::WouldBlock));
    one.lock_shared().unwrap();
    two.try_lock_shared().unwrap();
    assert!(blocked(one.try_lock()));
    // What it had it still has.
    two.unlock().unwrap();
    assert!(blocked(two.try_lock()));
    one.try_lock().unwrap();
    assert!(blocked(two.try_lock_shared()));
    v.open_file("/g").unwrap().try_lock().unwrap();
    one.lock_shared().unwrap();
    two.try_lock_shared().unwrap();
    drop(one);
    two.try_lock().unwrap();
    two.unlock().unwrap();
    two.unlock().unwrap();
}

/// Runs `wait` on a thread that must be waiting after a moment, then `act`, behind which it must end.
fn released_by(wait: impl FnOnce() -> io::Result<()> + Send, act: impl FnOnce()) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (done, ended) = mpsc::channel();
        scope.spawn(move || done.send(wait()).unwrap());
        assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "it does not wait");
        act();
        ended.recv_timeout(Duration::from_secs(60)).expect("it is released")
    })
}

#[test]
fn who_waits_for_a_lock_is_released() {
    let v = volume();
    v.write("/f", "").unwrap();
    let open = || v.open_file("/f").unwrap();
    let holder = open();
    holder.lock().unwrap();
    let waiter = open();
    released_by(|| waiter.lock(), || holder.unlock().unwrap()).unwrap();
    // A handle that is dropped, whatever drops it.
    released_by(|| holder.lock_shared(), || drop(waiter)).unwrap();
    // An exclusive lock that becomes a shared one.
    holder.lock().unwrap();
    let waiter = open();
    released_by(|| waiter.lock_shared(), || holder.lock_shared().unwrap()).unwrap();
    // Two shared ones that both want to be exclusive: neither waits for the other for ever.
    // Each gives back what it got, or the one that comes late would keep the other waiting.
    let pass = |file: &File| file.lock().and_then(|()| file.unlock());
    released_by(|| pass(&holder), || pass(&waiter).unwrap()).unwrap();
    holder.lock().unwrap();
    let waiter = open();
    let closed = released_by(|| waiter.lock(), || v.close().unwrap());
    errno(closed, libc::EBADF);
    errno(holder.unlock(), libc::EBADF);
}

#[test]
fn vectored_calls_are_one_step() {
    let v = volume();
    let append = OpenOptions::new().append(true).create(true);
    let mut file = append.open(&v, "/f").unwrap();
    let written = file
        .write_vectored(&[IoSlice::new(b""), IoSlice::new(b"one "), IoSlice::new(b"two")])
        .unwrap();
    assert_eq!((written, v.read("/f").unwrap()), (7, b"one two".to_vec()));
    assert_eq!(file.write_vectored(&[]).unwrap(), 0);
    // Of much the first part, never more than it says.
    let (small, large) = (vec![1; 10], vec![2; 3 << 20]);
    let mut file = v.create("/g").unwrap();
    let written = file.write_vectored(&[IoSlice::new(&small), IoSlice::new(&large)]).unwrap();
    assert!(written >= 1 << 20);
    let content = v.read("/g").unwrap();
    assert_eq!(content.len(), written);
    assert!(content[..10].iter().all(|&b| b == 1) && content[10..].iter().all(|&b| b == 2));

    let (mut one, mut none, mut two) = ([0; 4], [0; 0], [0; 9]);
    let mut parts =
        [IoSliceMut::new(&mut one), IoSliceMut::new(&mut none), IoSliceMut::new(&mut two)];
    let mut file = v.open_file("/f").unwrap();
    assert_eq!(file.read_vectored(&mut parts).unwrap(), 7);
    assert_eq!((&one, &two[..3]), (b"one ", &b"two"[..]));
    assert_eq!(file.stream_position().unwrap(), 7);
    let writer = OpenOptions::new().write(true).open(&v, "/f").unwrap();
    errno((&writer).read_vectored(&mut [IoSliceMut::new(&mut one)]), libc::EBADF);
}

/// What is written for files of the host.
fn stamp(file: &impl FileExt) -> io::Result<[u8; 4]> {
    let mut read = [0; 4];
    file.write_all_at(b"mark", 3)?;
    file.read_exact_at(&mut read, 3)?;
    Ok(read)
}

#[test]
fn positioned_calls_are_those_of_std() {
    let v = volume();
    assert_eq!(&stamp(&v.create("/f").unwrap()).unwrap(), b"mark");
    let file: File = v.open_file("/f").unwrap();
    errno(FileExt::write_at(&file, b"x", 0), libc::EBADF);
    let mut all = Vec::new();
    assert_eq!((&file).read_to_end(&mut all).unwrap(), 7);
}

#[test]
fn a_walk_gives_everything_once_and_directories_first() {
    let v = volume();
    let mut wanted = BTreeSet::new();
    for n in 0..300 {
        let dir = format!("/top/{}/{}", n % 7, n % 31);
        v.create_dir_all(&dir).unwrap();
        v.write(format!("{dir}/{n}"), "").unwrap();
        wanted.extend([format!("/top/{}", n % 7), dir.clone(), format!("{dir}/{n}")]);
    }
    v.symlink("/top", "/top/again").unwrap();
    wanted.insert("/top/again".into());
    let mut seen = BTreeSet::new();
    for entry in v.walk("/top").unwrap() {
        let path = entry.unwrap().path();
        let parent = path.parent().unwrap().to_str().unwrap().to_string();
        assert!(parent == "/top" || seen.contains(&parent), "{parent} is before {path:?}");
        assert!(seen.insert(path.into_os_string().into_string().unwrap()));
    }
    assert_eq!(seen, wanted);
    errno(v.walk("/top/0/0/0"), libc::ENOTDIR);

    // Relative, and without what is left out.
    let top = v.open_dir("/top").unwrap();
    let mut walk = top.walk(".").unwrap();
    let mut count = 0;
    while let Some(entry) = walk.next().transpose().unwrap() {
        assert!(entry.path().starts_with("."));
        count += 1;
        walk.skip_directory();
    }
    assert_eq!(count, 8);
}

#[test]
fn a_walk_does_not_go_where_a_directory_was() {
    let v = volume();
    v.create_dir_all("/top/dir/in").unwrap();
    v.create_dir("/elsewhere").unwrap();
    v.write("/elsewhere/secret", "").unwrap();
    let mut walk = v.walk("/top").unwrap();
    assert_eq!(walk.next().unwrap().unwrap().path(), Path::new("/top/dir"));
    v.remove_dir_all("/top/dir").unwrap();
    v.symlink("/elsewhere", "/top/dir").unwrap();
    let rest: Vec<PathBuf> = walk.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(rest, Vec::<PathBuf>::new());
    assert_eq!(v.read_dir("/elsewhere").unwrap().count(), 1);
}

#[test]
fn the_path_of_a_volume_is_refused_with_the_number_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "no volume").unwrap();
    std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
    for (path, number) in [
        (file.join("below"), libc::ENOTDIR),
        (dir.path().to_path_buf(), libc::EISDIR),
        (dir.path().join("loop"), libc::ELOOP),
        (dir.path().join("n".repeat(256)), libc::ENAMETOOLONG),
        (dir.path().join("none"), libc::ENOENT),
    ] {
        for read_only in [false, true] {
            let options = holdfast::VolumeOptions::new().read_only(read_only);
            let refused = options.open(&path).unwrap_err();
            assert_eq!(holdfast::errno(&refused), number, "{refused}");
            assert_eq!(refused.kind(), io::Error::from_raw_os_error(number).kind());
            assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
        }
    }
}
