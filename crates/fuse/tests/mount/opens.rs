//! Files that the kernel opens and closes without a message.
//!
//! The other tests run this way, too, with `HOLDFAST_OPEN=kernel`, but for those that count messages or handles.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use holdfast_fuse::{Opens, RequestKind};

use crate::common::{Mount, can_mount, open_to_write, options, volume, wait_for};

fn mount() -> Option<Mount> {
    can_mount().then(|| Mount::opened_by(Opens::Kernel))
}

#[test]
fn open_and_close_cost_no_message() {
    let Some(mount) = mount() else { return };
    // The kernel learns once that it need not ask.
    fs::write(mount.path("warm"), b"warm").unwrap();
    assert_eq!((mount.count(RequestKind::Open), mount.count(RequestKind::Create)), (1, 1));
    fs::write(mount.path("f"), vec![1; 10_000]).unwrap();
    // The second time the kernel looks whether the access time has changed.
    for _ in 0..2 {
        assert_eq!(fs::read(mount.path("f")).unwrap(), vec![1; 10_000]);
    }
    let again = mount.messages(|| {
        for _ in 0..10 {
            assert_eq!(fs::read(mount.path("f")).unwrap().len(), 10_000);
            drop(OpenOptions::new().append(true).open(mount.path("f")).unwrap());
        }
    });
    assert_eq!(again, [], "what is in memory costs nothing");
    let created = mount.messages(|| {
        for n in 0..10 {
            drop(File::create(mount.path(&format!("c{n}"))).unwrap());
        }
    });
    let made = created.iter().find(|(kind, _)| *kind == "mknod");
    assert_eq!(made, Some(&("mknod", 10)), "{created:?}");
    let told: Vec<_> = created.iter().map(|(kind, _)| *kind).collect();
    assert!(told.iter().all(|kind| ["lookup", "getattr", "mknod"].contains(kind)), "{created:?}");
    assert_eq!((mount.count(RequestKind::Open), mount.count(RequestKind::Create)), (1, 1));
    assert_eq!(mount.count(RequestKind::Release), 0);
}

/// The kernel hears of the access time once for each change of a file, not with each open.
#[test]
fn where_the_server_opens_a_warm_read_costs_one_message() {
    if !can_mount() {
        return;
    }
    let mount = Mount::opened_by(Opens::Server);
    fs::write(mount.path("f"), vec![1; 8192]).unwrap();
    let read = || assert_eq!(fs::read(mount.path("f")).unwrap().len(), 8192);
    read();
    // The kernel asks for the time that the first one has moved.
    read();
    let again = mount.messages(|| (0..10).for_each(|_| read()));
    assert_eq!(again, [("open", 10), ("release", 10)]);
}

/// What is not in the kernel's memory is asked for, and only that counts.
#[test]
fn where_the_kernel_opens_access_times_move_with_reads_that_it_asks_for() {
    let Some(mount) = mount() else { return };
    fs::write(mount.path("warm"), b"warm").unwrap();
    let accessed = |name: &str| fs::metadata(mount.path(name)).unwrap().accessed().unwrap();
    // Of the last page, which is not whole, the kernel has only what was written.
    for (name, len, moves) in [("whole", 8192, false), ("part", 10_000, true)] {
        fs::write(mount.path(name), vec![1; len]).unwrap();
        let before = accessed(name);
        std::thread::sleep(std::time::Duration::from_millis(10));
        assert_eq!(fs::read(mount.path(name)).unwrap().len(), len);
        match moves {
            true => wait_for("the access time stays", || accessed(name) > before),
            false => assert_eq!(accessed(name), before),
        }
    }
}

#[test]
fn a_file_without_a_name_exists_until_it_is_closed() {
    let Some(mount) = mount() else { return };
    let free = || mount.fs().statfs().blocks_free;
    let before = free();
    let open = || OpenOptions::new().read(true).write(true).open(mount.path("f")).unwrap();
    fs::write(mount.path("f"), vec![1; 8 << 20]).unwrap();
    let (mut one, other) = (open(), open());
    fs::remove_file(mount.path("f")).unwrap();
    other.write_all_at(&[2; 4096], 0).unwrap();
    other.sync_all().unwrap();
    assert_eq!(other.metadata().unwrap().nlink(), 0);
    drop(other);
    let mut bytes = Vec::new();
    one.read_to_end(&mut bytes).unwrap();
    assert!(
        bytes.len() == 8 << 20
            && bytes[..4096] == [2; 4096]
            && bytes[4096..] == [1; 8 << 20][4096..]
    );
    assert!(free() + 2000 < before, "its blocks are in use");
    drop(one);
    // The kernel tells of it when it likes.
    wait_for("its blocks do not become free", || {
        mount.fs().commit().unwrap();
        free() + 100 > before
    });
}

#[test]
fn what_open_does_beside_opening() {
    let Some(mount) = mount() else { return };
    fs::create_dir(mount.path("d")).unwrap();
    fs::set_permissions(mount.path("d"), fs::Permissions::from_mode(0o777)).unwrap();
    let f = mount.path("d/f");
    fs::write(&f, b"a longer text").unwrap();
    fs::write(&f, b"short").unwrap();
    assert_eq!(fs::read(&f).unwrap(), b"short", "O_TRUNC");
    let error = File::create_new(&f).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "O_EXCL");
    let mut end = OpenOptions::new().append(true).open(&f).unwrap();
    end.write_all(b"er").unwrap();
    fs::write(mount.path("d/g"), b"").unwrap();
    end.write_all(b"!").unwrap();
    assert_eq!(fs::read(&f).unwrap(), b"shorter!", "O_APPEND");
    // The process that makes a file may write into it, whatever its mode says.
    let nobody = |script: &str| {
        let mut shell = Command::new("sh");
        let done = shell.args(["-c", script]).current_dir(mount.path("d")).uid(65534).gid(65534);
        done.output().unwrap()
    };
    let made = nobody("umask 333 && echo once >locked && cat locked");
    assert_eq!(String::from_utf8_lossy(&made.stdout), "once\n", "{made:?}");
    assert!(!nobody("echo twice >locked").status.success(), "a mode of 0444");
    assert!(!nobody("echo no >f").status.success(), "the file of another user");
    let tmp = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(mount.path("d"))
        .unwrap();
    tmp.write_all_at(b"nameless", 0).unwrap();
    rustix::fs::linkat(
        &tmp,
        "",
        rustix::fs::CWD,
        mount.path("d/named"),
        rustix::fs::AtFlags::EMPTY_PATH,
    )
    .unwrap();
    drop(tmp);
    assert_eq!(fs::read(mount.path("d/named")).unwrap(), b"nameless", "O_TMPFILE");
}

/// P1.
#[test]
fn synchronous_writes_survive_a_crash() {
    let Some(mount) = mount() else { return };
    let all = [libc::O_SYNC, libc::O_DSYNC].map(|sync| [sync, sync | libc::O_DIRECT]);
    for flags in all.as_flattened() {
        let file = open_to_write(&mount.path(&flags.to_string()), *flags);
        file.write_all_at(&[5; 12288], 0).unwrap();
        file.write_all_at(&[6; 4096], 12288).unwrap();
    }
    let mount = mount.crash();
    for flags in all.as_flattened() {
        let bytes = fs::read(mount.path(&flags.to_string())).unwrap();
        assert!(bytes[..12288] == [5; 12288] && bytes[12288..] == [6; 4096], "{flags:#o}");
    }
}

/// Nothing else would check what may be opened.
#[test]
fn a_kernel_that_does_not_check_permissions_has_to_ask() {
    if !can_mount() {
        return;
    }
    let mount = Mount::with(volume(64), options(), |fuse| {
        (fuse.opens, fuse.default_permissions) = (Opens::Kernel, false);
        fuse.allow_other = false;
    });
    fs::write(mount.path("f"), b"x").unwrap();
    fs::read(mount.path("f")).unwrap();
    assert_eq!((mount.count(RequestKind::Create), mount.count(RequestKind::Open)), (1, 1));
    wait_for("the kernel closes nothing", || mount.count(RequestKind::Release) == 2);
}
