//! `holdfast cp` with pipes and devices in the place of files: what they give is copied, and what they take is written in order.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::process::{Command, Stdio};

use crate::common::{Said, TestMount, said};

/// Runs a script of bash beside the image; `$H` is the program.
fn bash(place: &TestMount, script: &str) -> Said {
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).current_dir(place.root.path()).stdin(Stdio::null());
    said(bash.env("H", crate::common::PROGRAM).output().unwrap())
}

fn make_pipe(at: &str) {
    assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
}

#[test]
fn a_pipe_or_device_that_is_named_is_read() {
    let place = TestMount::with_volume();
    fs::write(place.path("old"), "old").unwrap();
    place.run(&["cp", &place.path("old"), &place.inside("/dump")]).fine();
    bash(&place, "$H cp <(echo new) volume.img:/dump").fine();
    assert_eq!(place.run(&["cat", &place.inside("/dump")]).fine(), "new\n");
    bash(&place, "echo piped | $H cp /dev/stdin volume.img:/dump").fine();
    assert_eq!(place.run(&["cat", &place.inside("/dump")]).fine(), "piped\n");
    let long = place.run(&["ls", "-l", &place.inside("/")]).fine();
    assert!(long.starts_with("-rw-r--r--"), "{long}");
    // Without any bytes it is a file all the same; and so it is on the host.
    place.run(&["cp", "/dev/null", &place.inside("/dump")]).fine();
    assert_eq!(place.run(&["cat", &place.inside("/dump")]).fine(), "");
    bash(&place, "$H cp <(echo here) old").fine();
    assert_eq!(fs::read_to_string(place.path("old")).unwrap(), "here\n");
    assert_eq!(bash(&place, "$H cp <(echo out) -").fine(), "out\n");
    place.fsck();
}

#[test]
fn a_file_of_proc_says_that_it_is_empty_and_is_not() {
    let place = TestMount::with_volume();
    let version = fs::read_to_string("/proc/version").unwrap();
    place.run(&["cp", "/proc/version", &place.inside("/version")]).fine();
    assert_eq!(place.run(&["cat", &place.inside("/version")]).fine(), version);
    assert_eq!(place.run(&["cp", "/proc/version", "-"]).fine(), version);
    fs::write(place.path("empty"), "").unwrap();
    place.run(&["cp", &place.path("empty"), &place.inside("/version")]).fine();
    assert_eq!(place.run(&["cat", &place.inside("/version")]).fine(), "");
}

#[test]
fn what_gives_no_bytes_is_refused_and_a_tree_has_it_as_it_is() {
    let place = TestMount::with_volume();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    let (pipe, socket) = (format!("{tree}/pipe"), format!("{tree}/socket"));
    make_pipe(&pipe);
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    place.run(&["cp", &socket, &place.inside("/x")]).fails(1, "is a socket");
    assert_eq!(place.run(&["ls", place.image()]).fine(), "");
    place.run(&["cp", &pipe, &pipe]).fails(1, "same file");
    place.run(&["cp", "-r", &tree, &place.inside("/")]).fine();
    place.run(&["cp", "-a", &pipe, &place.inside("/named")]).fine();
    let long = place.run(&["ls", "-lR", place.image()]).fine();
    let of = |kind: char| long.lines().filter(|line| line.starts_with(kind)).count();
    assert_eq!((of('p'), of('s')), (2, 1), "{long}");
    // Behind one in a volume there is nothing.
    let out = place.path("out");
    fs::write(&out, "kept").unwrap();
    place.run(&["cp", &place.inside("/named"), &out]).fails(1, "is a pipe");
    place.run(&["cp", &place.inside("/named"), "-"]).fails(1, "is a pipe");
    assert_eq!(fs::read_to_string(&out).unwrap(), "kept");
    place.run(&["cp", "-r", &place.inside("/named"), &out]).fine();
    assert!(fs::symlink_metadata(&out).unwrap().file_type().is_fifo());
}

#[test]
fn a_pipe_takes_a_file_in_order_with_zeros_for_holes() {
    let place = TestMount::with_volume();
    let file = fs::File::create(place.path("holes")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"middle", 1_000_000).unwrap();
    file.set_len(2_000_003).unwrap();
    place.run(&["cp", &place.path("holes"), &place.inside("/holes")]).fine();
    let same = "$H cp volume.img:/holes /dev/stdout | cmp - holes && \
        mkfifo pipe && { cmp pipe holes & $H cp volume.img:/holes pipe && wait $!; }";
    bash(&place, same).fine();
    assert!(fs::symlink_metadata(place.path("pipe")).unwrap().file_type().is_fifo());
    place.run(&["cp", &place.inside("/holes"), "/dev/null"]).fine();
    place.run(&["cp", &place.inside("/holes"), "/dev/full"]).fails(1, "/dev/full: No space");
}
