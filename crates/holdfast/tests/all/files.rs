//! Files behave like those of `std::fs`, and a volume's life is what its documentation says.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast::device::{Device, MemoryDevice};
use holdfast::{
    CreateOptions, FileTimes, OpenOptions, Permissions, RenameFlags, Volume, VolumeOptions,
    XattrFlags,
};

use crate::common::errno;

fn device() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    CreateOptions::new().format(&device).unwrap();
    device
}

/// Only what is synced is durable.
fn open(device: &Arc<dyn Device>) -> Volume {
    VolumeOptions::new().commit_secs(0).open_device(device.clone()).unwrap()
}

#[test]
fn reading_writing_and_seeking() {
    let v = open(&device());
    let mut file = v.create("/f").unwrap();
    file.write_all(b"hello, world").unwrap();
    assert_eq!(file.stream_position().unwrap(), 12);
    file.seek(SeekFrom::End(-5)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "world");
    errno(file.seek(SeekFrom::Current(-100)), libc::EINVAL);
    file.seek(SeekFrom::Start(20)).unwrap();
    (&file).write_all(b"!").unwrap();
    assert_eq!(v.read("/f").unwrap(), b"hello, world\0\0\0\0\0\0\0\0!");
    file.set_len(5).unwrap();
    assert_eq!(v.read("/f").unwrap(), b"hello");
    let mut exact = [0; 6];
    let short = file.read_exact_at(&mut exact, 0).unwrap_err();
    assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn options_that_make_no_sense_are_refused_as_by_std() {
    let v = open(&device());
    v.write("/f", "x").unwrap();
    let o = OpenOptions::new();
    for (wrong, why) in [
        (o, "nothing"),
        (o.create(true), "create alone"),
        (o.read(true).create(true), "read and create"),
        (o.read(true).truncate(true), "read and truncate"),
        (o.append(true).truncate(true), "append and truncate"),
    ] {
        assert_eq!(wrong.open(&v, "/f").unwrap_err().raw_os_error(), Some(libc::EINVAL), "{why}");
    }
    let reader = v.open_file("/f").unwrap();
    errno(reader.write_at(b"y", 0), libc::EBADF);
    let writer = o.write(true).open(&v, "/f").unwrap();
    errno(writer.read_at(&mut [0], 0), libc::EBADF);
    assert_eq!(v.read("/f").unwrap(), b"x");
}

#[test]
fn appends_of_several_handles_all_go_to_the_end() {
    let v = open(&device());
    let append = OpenOptions::new().append(true).create(true);
    let mut one = append.open(&v, "/log").unwrap();
    let mut two = append.open(&v, "/log").unwrap();
    for _ in 0..3 {
        one.write_all(b"1").unwrap();
        two.write_all(b"22").unwrap();
    }
    assert_eq!(v.read_to_string("/log").unwrap(), "122122122");
    assert_eq!(two.stream_position().unwrap(), 9);
}

#[test]
fn holes_and_space() {
    let v = open(&device());
    let file = v.create("/f").unwrap();
    file.write_all_at(&[1; 8192], 1 << 30).unwrap();
    assert_eq!(file.seek_data(0).unwrap(), Some(1 << 30));
    assert_eq!(file.seek_hole(1 << 30).unwrap(), (1 << 30) + 8192);
    assert_eq!(file.seek_data((1 << 30) + 8192).unwrap(), None);
    file.punch_hole(1 << 30, 4096).unwrap();
    let mut bytes = [9; 8192];
    file.read_exact_at(&mut bytes, 1 << 30).unwrap();
    assert!(bytes[..4096].iter().all(|&b| b == 0) && bytes[4096..].iter().all(|&b| b == 1));
    file.allocate((1 << 30) + 8192, 4096).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 30) + 12288);
    file.zero_range((1 << 30) + 4096, 4096).unwrap();
    file.read_exact_at(&mut bytes[4096..], (1 << 30) + 4096).unwrap();
    assert!(bytes.iter().all(|&b| b == 0));
}

#[test]
fn attributes_are_set_and_kept() {
    let device = device();
    let v = open(&device);
    v.write("/f", "x").unwrap();
    v.set_permissions("/f", Permissions::from_mode(0o4751)).unwrap();
    v.chown("/f", Some(7), Some(8)).unwrap();
    v.set_permissions("/f", Permissions::from_mode(0o640)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let before_1970 = SystemTime::UNIX_EPOCH - Duration::new(5, 5);
    v.set_times("/f", FileTimes::new().set_modified(then).set_accessed(before_1970)).unwrap();
    v.set_xattr("/f", "user.colour", b"green", XattrFlags::CREATE).unwrap();
    errno(v.set_xattr("/f", "user.colour", b"red", XattrFlags::CREATE), libc::EEXIST);
    errno(v.xattr("/f", "user.none"), libc::ENODATA);
    v.close().unwrap();

    let v = open(&device);
    let found = v.metadata("/f").unwrap();
    assert_eq!((found.mode(), found.uid(), found.gid()), (0o100640, 7, 8));
    assert_eq!((found.modified(), found.accessed()), (then, before_1970));
    assert_eq!(v.xattr("/f", "user.colour").unwrap(), b"green");
    assert_eq!(v.xattrs("/f").unwrap(), ["user.colour"]);
    v.remove_xattr("/f", "user.colour").unwrap();
    assert_eq!(v.xattrs("/f").unwrap().len(), 0);
}

#[test]
fn rename_refuses_exchanges_and_replaces() {
    let v = open(&device());
    v.write("/a", "a").unwrap();
    v.write("/b", "b").unwrap();
    errno(v.rename_with("/a", &v, "/b", RenameFlags::NOREPLACE), libc::EEXIST);
    v.rename_with("/a", &v, "/b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(v.read_to_string("/a").unwrap(), "b");
    v.rename("/a", "/b").unwrap();
    assert_eq!(v.read_to_string("/b").unwrap(), "b");
    errno(v.rename("/a", "/b"), libc::ENOENT);
    errno(v.rename("/b/", "/c"), libc::ENOTDIR);
    v.create_dir("/d").unwrap();
    errno(v.rename("/d", "/d/e"), libc::EINVAL);
}

#[test]
fn a_file_without_a_name_can_be_given_one() {
    let v = open(&device());
    let temp = OpenOptions::new().read(true).write(true);
    let file = temp.tmpfile(&v, "/").unwrap();
    file.write_all_at(b"ready", 0).unwrap();
    assert_eq!(v.entries().count(), 0);
    v.link_file(&file, "/now").unwrap();
    assert_eq!(v.read_to_string("/now").unwrap(), "ready");
    drop(temp.tmpfile(&v, "/").unwrap());
    assert_eq!(v.entries().count(), 1);
}

#[test]
fn an_unlinked_file_exists_as_long_as_its_handle() {
    let v = open(&device());
    let file = v.create("/f").unwrap();
    file.write_all_at(b"still", 0).unwrap();
    v.remove_file("/f").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut text = [0; 5];
    file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"still");
}

#[test]
fn closing_keeps_everything_and_abandoning_what_was_synced() {
    let device = device();
    let v = open(&device);
    v.write("/closed", "kept").unwrap();
    v.close().unwrap();

    let v = open(&device);
    let file = v.create("/synced").unwrap();
    file.write_all_at(b"kept too", 0).unwrap();
    file.sync_all().unwrap();
    v.write("/not synced", "perhaps").unwrap();
    v.abandon();

    let v = open(&device);
    assert_eq!(v.read_to_string("/closed").unwrap(), "kept");
    assert_eq!(v.read_to_string("/synced").unwrap(), "kept too");
    v.write("/dropped", "kept as well").unwrap();
    drop(v);
    let v = open(&device);
    assert_eq!(v.read_to_string("/dropped").unwrap(), "kept as well");
}

#[test]
fn handles_of_a_closed_volume_say_so() {
    let device = device();
    let v = open(&device);
    let file = v.create("/f").unwrap();
    let dir = v.open_dir("/").unwrap();
    let mut entries = v.read_dir("/").unwrap();
    file.write_all_at(b"x", 0).unwrap();
    v.close().unwrap();
    errno(file.write_at(b"y", 0), libc::EBADF);
    errno(file.sync_all(), libc::EBADF);
    errno(dir.metadata("f"), libc::EBADF);
    errno(entries.next().unwrap(), libc::EBADF);
    assert!(entries.next().is_none());
    // And they do not keep it from being opened again.
    let v = open(&device);
    assert_eq!(v.read("/f").unwrap(), b"x");
    errno(file.read_at(&mut [0], 0), libc::EBADF);
}

#[test]
fn a_read_only_volume_changes_nothing() {
    let device = device();
    let v = open(&device);
    v.write("/f", "x").unwrap();
    v.close().unwrap();
    let v = VolumeOptions::new().read_only(true).open_device(device.clone()).unwrap();
    let before = device.stats();
    assert_eq!(v.read("/f").unwrap(), b"x");
    errno(v.write("/g", ""), libc::EROFS);
    errno(v.remove_file("/f"), libc::EROFS);
    v.close().unwrap();
    let after = device.stats();
    assert_eq!((before.writes, before.flushes), (after.writes, after.flushes));
}

#[test]
fn volumes_in_files() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("v");
    let kind = |result: io::Result<Volume>| result.unwrap_err().kind();
    assert_eq!(kind(Volume::open(&path)), io::ErrorKind::NotFound);
    assert_eq!(kind(CreateOptions::new().create(&path)), io::ErrorKind::InvalidInput);
    let v = Volume::create_new(&path, 64 << 20).unwrap();
    assert_eq!(v.info().unwrap().size, 64 << 20);
    assert_eq!(kind(Volume::create_new(&path, 64 << 20)), io::ErrorKind::AlreadyExists);
    let busy = Volume::open(&path).unwrap_err();
    assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
    assert!(busy.to_string().contains("in use"), "{busy}");
    v.close().unwrap();
    Volume::open(&path).unwrap().close().unwrap();

    let small = place.path().join("small");
    assert!(Volume::create_new(&small, 1 << 20).is_err());
    assert!(!small.exists(), "a failed creation left a file");
    std::fs::write(&small, vec![b'x'; 1 << 20]).unwrap();
    assert_eq!(kind(Volume::open(&small)), io::ErrorKind::InvalidData);
}

#[test]
fn many_threads_at_once() {
    let v = open(&device());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let v = &v;
            scope.spawn(move || {
                v.create_dir(format!("/{thread}")).unwrap();
                for n in 0..100 {
                    let path = format!("/{thread}/{n}");
                    v.write(&path, path.repeat(50)).unwrap();
                    if n % 20 == 0 {
                        v.open_file(&path).unwrap().sync_all().unwrap();
                    }
                    assert_eq!(v.read_to_string(&path).unwrap(), path.repeat(50));
                }
            });
        }
    });
    for thread in 0..4 {
        assert_eq!(v.read_dir(format!("/{thread}")).unwrap().count(), 100);
    }
    v.close().unwrap();
}

#[test]
fn a_full_volume_says_so_and_can_be_emptied() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
    CreateOptions::new().format(&device).unwrap();
    let v = open(&device);
    let mut n = 0;
    let full = loop {
        match v.write(format!("/{n}"), vec![n as u8; 256 << 10]) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
        assert!(n < 100, "it does not get full");
    };
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    for kept in 0..n {
        assert_eq!(v.read(format!("/{kept}")).unwrap(), vec![kept as u8; 256 << 10]);
    }
    for gone in 0..n {
        v.remove_file(format!("/{gone}")).unwrap();
    }
    v.sync().unwrap();
    v.write("/again", vec![1; 256 << 10]).unwrap();
    v.close().unwrap();
}

#[test]
fn attributes_are_set_together_and_keep_set_id_bits() {
    let v = open(&device());
    v.write("/f", b"x").unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(5, 6);
    let all = holdfast::Attributes::new()
        .owner(7, 8)
        .permissions(Permissions::from_mode(0o4755))
        .times(FileTimes::new().set_modified(time));
    v.symlink("f", "/l").unwrap();
    v.set_attributes("/l", all).unwrap();
    v.open_file("/f").unwrap().set_attributes(all).unwrap();
    for path in ["/f", "/l"] {
        let found = v.symlink_metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid(), found.modified()), (7, 8, time), "{path}");
    }
    assert_eq!(v.metadata("/f").unwrap().permissions().mode(), 0o4755);
    let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"user.\xff");
    v.set_xattr("/f", odd, b"1", XattrFlags::empty()).unwrap();
    assert_eq!(v.xattr("/f", odd).unwrap(), b"1");
}
