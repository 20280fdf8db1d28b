//! Two ordinary users. fusermount3 mounts for nobody who has no name, and each system has these.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};

use super::{PROGRAM, Said, TestMount, can_mount, said};

pub const USER: u32 = 1;
pub const OTHER: u32 = 2;

/// A program as an ordinary user.
pub fn as_user(user: u32, program: &str, args: &[&str]) -> Said {
    let ids = [format!("--reuid={user}"), format!("--regid={user}")];
    let mut command = Command::new("setpriv");
    command.args(ids).args(["--clear-groups", program]).args(args).current_dir("/");
    said(command.stdin(Stdio::null()).output().unwrap())
}

pub fn shell(user: u32, script: &str) -> Said {
    as_user(user, "sh", &["-c", script])
}

/// A place of an ordinary user, with the program; `None`, and a message, where there can be none.
pub fn place_of_user() -> Option<TestMount> {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        holdfast_base::skip::skipped("needs root to become other users");
        return None;
    }
    let mut place = TestMount::new();
    fs::set_permissions(place.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    super::copy_program(PROGRAM, &place.path("holdfast"));
    fs::create_dir(place.path("u")).unwrap();
    fs::rename(&place.dir, place.path("u/mnt")).unwrap();
    (place.image, place.dir) = (place.path("u/volume.img").into(), place.path("u/mnt").into());
    for path in [place.path("u").as_ref(), place.dir.as_path()] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    Some(place)
}
