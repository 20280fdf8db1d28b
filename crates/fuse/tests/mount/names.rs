//! Names and directories through the kernel.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use crate::common::{Mount, can_mount};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

#[test]
fn every_kind_of_name_comes_and_goes_and_survives_a_remount() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let at = |name: &str| mount.path(name);
    fs::write(at("file"), b"content").unwrap();
    fs::create_dir_all(at("dir/below")).unwrap();
    symlink("file", at("link")).unwrap();
    fs::hard_link(at("file"), at("second")).unwrap();
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    let null = rustix::fs::makedev(1, 3);
    mknodat(CWD, at("null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), null).unwrap();

    assert_eq!(fs::read_link(at("link")).unwrap().as_os_str(), "file");
    assert_eq!(fs::read(at("link")).unwrap(), b"content");
    assert_eq!(fs::metadata(at("file")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(at("dir")).unwrap().nlink(), 3);
    assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
    let meta = fs::metadata(at("null")).unwrap();
    assert!(meta.file_type().is_char_device());
    assert_eq!(meta.rdev(), null);
    // The device works: it is not mounted nodev.
    fs::write(at("null"), b"nowhere").unwrap();

    assert_eq!(fs::create_dir(at("dir")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::remove_dir(at("dir")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::metadata(at("absent")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        fs::hard_link(at("dir"), at("dir2")).unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );

    fs::remove_file(at("second")).unwrap();
    assert_eq!(fs::metadata(at("file")).unwrap().nlink(), 1);
    fs::remove_dir(at("dir/below")).unwrap();
    assert_eq!(fs::metadata(at("dir")).unwrap().nlink(), 2);

    let mount = mount.remount();
    let names: HashSet<_> = fs::read_dir(mount.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected = ["file", "dir", "link", "pipe", "null"];
    assert_eq!(names, expected.map(String::from).into());
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"content");
    assert_eq!(fs::metadata(mount.path("null")).unwrap().rdev(), null);
}

#[test]
fn names_of_255_bytes_work_and_longer_ones_do_not() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let longest = "x".repeat(255);
    let too_long = "x".repeat(256);
    fs::write(mount.path(&longest), b"1").unwrap();
    fs::create_dir(mount.path("d")).unwrap();
    fs::rename(mount.path(&longest), mount.path("d").join(&longest)).unwrap();
    for result in [
        fs::write(mount.path(&too_long), b"1"),
        fs::metadata(mount.path(&too_long)).map(drop),
        fs::create_dir(mount.path(&too_long)),
        fs::rename(mount.path("d"), mount.path(&too_long)),
    ] {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));
    }
    let mount = mount.remount();
    assert_eq!(fs::read(mount.path("d").join(&longest)).unwrap(), b"1");
    // Any byte but NUL and slash.
    let odd = std::ffi::OsStr::from_encoded_bytes(b"\n\xff\x01 \\");
    fs::write(mount.dir.path().join(odd), b"2").unwrap();
    let found =
        fs::read_dir(mount.dir.path()).unwrap().any(|entry| entry.unwrap().file_name() == odd);
    assert!(found);
}

/// `OsStr` from bytes, without the unsafe constructor.
trait FromBytes {
    fn from_encoded_bytes(bytes: &[u8]) -> &Self;
}

impl FromBytes for std::ffi::OsStr {
    fn from_encoded_bytes(bytes: &[u8]) -> &Self {
        std::os::unix::ffi::OsStrExt::from_bytes(bytes)
    }
}

#[test]
fn renames_replace_refuse_exchange_and_whiteout() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let at = |name: &str| mount.path(name);
    fs::create_dir(at("a")).unwrap();
    fs::create_dir(at("b")).unwrap();
    fs::write(at("a/one"), b"1").unwrap();
    fs::write(at("b/two"), b"22").unwrap();
    let one = fs::metadata(at("a/one")).unwrap().ino();
    let two = fs::metadata(at("b/two")).unwrap().ino();

    let refused = renameat_with(CWD, at("a/one"), CWD, at("b/two"), RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));

    renameat_with(CWD, at("a/one"), CWD, at("b/two"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::metadata(at("a/one")).unwrap().ino(), two);
    assert_eq!(fs::metadata(at("b/two")).unwrap().ino(), one);
    assert_eq!(fs::read(at("a/one")).unwrap(), b"22");

    // A directory for a file: the link counts of both parents move with it.
    fs::create_dir(at("a/sub")).unwrap();
    assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 3);
    renameat_with(CWD, at("a/sub"), CWD, at("b/two"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(at("b")).unwrap().nlink(), 3);
    assert_eq!(fs::read(at("a/sub")).unwrap(), b"1");
    assert!(at("b/two").is_dir());

    // Replacing drops a link of what was there, also for handles still open on it.
    fs::hard_link(at("a/one"), at("kept")).unwrap();
    let open = File::open(at("a/one")).unwrap();
    fs::rename(at("a/sub"), at("a/one")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 1);
    assert_eq!(fs::metadata(at("kept")).unwrap().nlink(), 1);
    assert_eq!(fs::read(at("a/one")).unwrap(), b"1");
    assert!(!at("a/sub").exists());

    assert_eq!(
        fs::rename(at("b"), at("b/two/inside")).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );

    renameat_with(CWD, at("kept"), CWD, at("moved"), RenameFlags::WHITEOUT).unwrap();
    let whiteout = fs::metadata(at("kept")).unwrap();
    assert!(whiteout.file_type().is_char_device());
    assert_eq!(whiteout.rdev(), 0);
    assert_eq!(fs::read(at("moved")).unwrap(), b"22");
}

#[test]
fn a_file_without_a_name_exists_as_long_as_it_is_open() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let mut file =
        OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("f")).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    fs::remove_file(mount.path("f")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(&[8; 100_000]).unwrap();
    file.sync_all().unwrap();
    let mut again =
        File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap();
    let mut bytes = Vec::new();
    again.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 200_000);
    assert!(bytes[..100_000].iter().all(|byte| *byte == 7));
    assert!(bytes[100_000..].iter().all(|byte| *byte == 8));
    fs::write(mount.path("f"), b"another").unwrap();
    drop((file, again));
    let mount = mount.remount();
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"another");
}

#[test]
fn a_directory_of_20000_can_be_read_while_it_shrinks() {
    if !can_mount() {
        return;
    }
    const ALL: usize = 20_000;
    let mount = Mount::fresh();
    let dir = mount.path("many");
    fs::create_dir(&dir).unwrap();
    for n in 0..ALL {
        File::create(dir.join(format!("file-{n:05}"))).unwrap();
    }
    let count = fs::read_dir(&dir).unwrap().count();
    assert_eq!(count, ALL);

    // Every second one is removed by another thread while this one reads.
    let mut reader = fs::read_dir(&dir).unwrap();
    let mut seen = HashSet::new();
    let first: Vec<_> = reader.by_ref().take(10).collect();
    let remover = std::thread::spawn({
        let dir = dir.clone();
        move || {
            for n in (0..ALL).step_by(2) {
                fs::remove_file(dir.join(format!("file-{n:05}"))).unwrap();
            }
        }
    });
    for entry in first.into_iter().chain(reader) {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(seen.insert(name.clone()), "{name} twice");
    }
    remover.join().unwrap();
    for n in (1..ALL).step_by(2) {
        assert!(seen.contains(&format!("file-{n:05}")), "file-{n:05} missed");
    }

    // What rm -r does: remove what the same stream has just shown.
    fs::remove_dir_all(&dir).unwrap();
    assert!(!dir.exists());
}

#[test]
fn threads_that_make_and_remove_the_same_names_never_see_nonsense() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let mount = &mount;
            scope.spawn(move || {
                for round in 0..300 {
                    let path = mount.path(&format!("n{}", (round + worker) % 5));
                    match OpenOptions::new().write(true).create(true).truncate(false).open(&path) {
                        Ok(mut file) => file.write_all(b"x").unwrap(),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                    match fs::remove_file(&path) {
                        Ok(()) => {}
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_dir(mount.dir.path()).unwrap().count(), 0);
}
