//! Flags of files, as chattr(1) and lsattr(1) ask for them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use holdfast_fuse::Opens;

use crate::common::{Mount, can_mount};
use crate::programs;

#[test]
fn flags_are_kept_and_obeyed() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("left out: only root sets flags");
        return;
    }
    let mount = Mount::fresh();
    let path = mount.path("f");
    fs::write(&path, b"as it was").unwrap();
    let set = |mount: &Mount, name: &str, flags| {
        let file = File::open(mount.path(name)).unwrap();
        ioctl_setflags(&file, flags)?;
        assert_eq!(ioctl_getflags(&file)?, flags);
        Ok::<_, rustix::io::Errno>(())
    };
    let before = OpenOptions::new().write(true).open(&path).unwrap();
    set(&mount, "f", IFlags::IMMUTABLE).unwrap();
    let refused = |done: std::io::Result<()>| {
        assert_eq!(done.unwrap_err().raw_os_error(), Some(libc::EPERM));
    };
    refused((&before).write_all(b"bytes"));
    refused(before.set_len(3));
    refused(fs::write(&path, b"other"));
    refused(fs::remove_file(&path));
    refused(fs::hard_link(&path, mount.path("g")));
    refused(fs::rename(&path, mount.path("g")));
    drop(before);
    let mount = mount.remount();
    let path = mount.path("f");
    assert_eq!(ioctl_getflags(File::open(&path).unwrap()).unwrap(), IFlags::IMMUTABLE);
    set(&mount, "f", IFlags::APPEND).unwrap();
    let append = || OpenOptions::new().append(true).open(&path);
    append().unwrap().write_all(b" and more").unwrap();
    refused(fs::write(&path, b"other"));
    assert_eq!(fs::read(&path).unwrap(), b"as it was and more");
    // Of others nothing is kept.
    assert_eq!(set(&mount, "f", IFlags::NODUMP), Err(rustix::io::Errno::OPNOTSUPP));
    set(&mount, "f", IFlags::empty()).unwrap();
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("d/f"), b"").unwrap();
    set(&mount, "d", IFlags::IMMUTABLE).unwrap();
    refused(fs::remove_file(mount.path("d/f")));
    refused(fs::write(mount.path("d/g"), b""));
    set(&mount, "d", IFlags::empty()).unwrap();
    fs::remove_dir_all(mount.path("d")).unwrap();
    fs::remove_file(&path).unwrap();
}

/// Linux maps what it has open and writes what was stored, and clears capabilities by a call of its own.
#[test]
fn what_linux_lets_pass_changes_nothing_that_others_read() {
    if !can_mount() {
        return;
    }
    for opens in [Opens::Server, Opens::Kernel] {
        let mount = Mount::opened_by(opens);
        // The kernel learns at the first file that it need not ask.
        fs::write(mount.path("warm"), b"warm").unwrap();
        let word = if opens == Opens::Kernel { "kernel" } else { "server" };
        programs::told(include_str!("flags.py"), &[mount.dir.path().to_str().unwrap(), word]);
    }
}
