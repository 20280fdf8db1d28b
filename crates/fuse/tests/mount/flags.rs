//! Flags of files, as chattr(1) and lsattr(1) ask for them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::common::{Mount, can_mount};

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
