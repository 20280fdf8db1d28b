//! Paths mean what they mean to a system call: links, `..`, slashes, and the right errno.

use std::path::Path;

use holdfast::{FileType, OpenOptions, RenameFlags, VolumeOptions};

use crate::common::{errno, volume};

#[test]
fn dots_and_slashes() {
    let v = volume();
    v.create_dir("/a").unwrap();
    v.create_dir("a//b/").unwrap();
    v.write("/a/./b/../b/f", "x").unwrap();
    assert_eq!(v.read_to_string("//a/b/f").unwrap(), "x");
    let root = v.metadata("/").unwrap();
    assert_eq!(v.metadata("/../../..").unwrap(), root);
    assert_eq!(v.metadata(".").unwrap().ino(), root.ino());
    errno(v.metadata(""), libc::ENOENT);
    errno(v.metadata("/a/b/f/"), libc::ENOTDIR);
    errno(v.metadata("/a/b/f/."), libc::ENOTDIR);
    errno(v.metadata("/a/x/../b"), libc::ENOENT);
    errno(v.create_dir("/"), libc::EEXIST);
    errno(v.create_dir("/a/.."), libc::EEXIST);
    errno(v.create("/a/new/"), libc::EISDIR);
    errno(v.open_file("/a"), libc::EISDIR);
    errno(v.remove_file("/a/b"), libc::EISDIR);
    errno(v.remove_dir("/a/b/f"), libc::ENOTDIR);
    errno(v.remove_dir("/a"), libc::ENOTEMPTY);
    errno(v.create(format!("/{}", "n".repeat(256))), libc::ENAMETOOLONG);
    v.create(format!("/{}", "n".repeat(255))).unwrap();
}

#[test]
fn links_are_followed_where_they_should_be() {
    let v = volume();
    v.create_dir_all("/real/deep").unwrap();
    v.write("/real/deep/f", "content").unwrap();
    v.symlink("real/deep", "/dir").unwrap();
    v.symlink("/dir/f", "/real/abs").unwrap();
    v.symlink("../real/abs", "/real/rel").unwrap();
    assert_eq!(v.read_to_string("/real/rel").unwrap(), "content");
    assert_eq!(v.read_to_string("/dir/../deep/f").unwrap(), "content");
    assert_eq!(v.read_link("/dir").unwrap(), Path::new("real/deep"));
    assert!(v.metadata("/dir").unwrap().is_dir());
    assert!(v.symlink_metadata("/dir").unwrap().is_symlink());
    // A slash at the end follows in any case.
    assert!(v.symlink_metadata("/dir/").unwrap().is_dir());
    errno(v.read_link("/real"), libc::EINVAL);

    // Removing and renaming take the link, not what it leads to.
    v.rename("/real/rel", "/moved").unwrap();
    assert!(v.symlink_metadata("/moved").unwrap().is_symlink());
    v.remove_file("/moved").unwrap();
    v.hard_link("/real/abs", "/second").unwrap();
    assert_eq!(v.symlink_metadata("/second").unwrap().nlink(), 2);

    // Without following, a link at the end is ELOOP to open.
    let options = OpenOptions::new().read(true).follow(false);
    errno(options.open(&v, "/second"), libc::ELOOP);
}

#[test]
fn forty_links_are_a_path_and_forty_one_a_loop() {
    let v = volume();
    v.write("/0", "end").unwrap();
    for n in 1..=41 {
        v.symlink(format!("{}", n - 1), format!("/{n}")).unwrap();
    }
    assert_eq!(v.read_to_string("/40").unwrap(), "end");
    errno(v.read_to_string("/41"), libc::ELOOP);
    v.symlink("self", "/self").unwrap();
    errno(v.metadata("/self"), libc::ELOOP);
    errno(v.metadata("/self/x"), libc::ELOOP);
    assert!(v.symlink_metadata("/self").unwrap().is_symlink());
}

#[test]
fn creating_through_a_link_makes_what_it_points_at() {
    let v = volume();
    v.create_dir("/d").unwrap();
    v.symlink("d/target", "/link").unwrap();
    errno(v.open_file("/link"), libc::ENOENT);
    let create = OpenOptions::new().write(true);
    errno(create.create_new(true).open(&v, "/link"), libc::EEXIST);
    v.write("/link", "made").unwrap();
    assert_eq!(v.read_to_string("/d/target").unwrap(), "made");
    errno(create.create_new(true).open(&v, "/d/target"), libc::EEXIST);
}

#[test]
fn handles_follow_their_directory() {
    let v = volume();
    v.create_dir_all("/a/b").unwrap();
    let b = v.open_dir("/a/b").unwrap();
    b.write("f", "1").unwrap();
    v.rename("/a/b", "/c").unwrap();
    assert_eq!(b.read_to_string("f").unwrap(), "1");
    assert_eq!(v.read_to_string("/c/f").unwrap(), "1");
    b.rename_with("f", &v, "g", RenameFlags::empty()).unwrap();
    assert_eq!(v.read_to_string("/g").unwrap(), "1");
    // An absolute path begins at the root of the volume.
    assert_eq!(b.read_to_string("/g").unwrap(), "1");
    v.remove_dir("/c").unwrap();
    errno(b.create("late"), libc::ENOENT);
    assert_eq!(b.entries().count(), 0);

    let other = volume();
    other.write("/x", "").unwrap();
    errno(v.rename_with("/g", &other, "/y", RenameFlags::empty()), libc::EXDEV);
}

#[test]
fn whole_trees_come_and_go() {
    let v = volume();
    v.create_dir_all("/t/x/y/z").unwrap();
    v.create_dir_all("/t/x/y/z").unwrap();
    for n in 0..600 {
        v.write(format!("/t/x/file-{n}"), "").unwrap();
        v.create_dir(format!("/t/dir-{n}")).unwrap();
    }
    v.create_dir("/keep").unwrap();
    v.write("/keep/f", "").unwrap();
    v.symlink("/keep", "/t/x/link").unwrap();
    errno(v.create_dir_all("/keep/f/g"), libc::ENOTDIR);
    errno(v.create_dir_all("/keep/f"), libc::ENOTDIR);
    let names: std::collections::HashSet<_> =
        v.read_dir("/t").unwrap().map(|e| e.unwrap().file_name().to_os_string()).collect();
    assert_eq!(names.len(), 601);
    v.remove_dir_all("/t").unwrap();
    assert!(!v.exists("/t").unwrap());
    assert!(v.exists("/keep/f").unwrap());
    errno(v.remove_dir_all("/keep/f"), libc::ENOTDIR);
}

#[test]
fn depth_is_no_problem() {
    let v = volume();
    let mut dir = v.open_dir("/").unwrap();
    for _ in 0..2000 {
        dir.create_dir("d").unwrap();
        dir = dir.open_dir("d").unwrap();
    }
    drop(dir);
    v.remove_dir_all("/d").unwrap();
    assert_eq!(v.entries().count(), 0);
}

#[test]
fn permissions_count_for_a_caller_other_than_root() {
    use holdfast::device::{Device, MemoryDevice};
    let device: std::sync::Arc<dyn Device> = std::sync::Arc::new(MemoryDevice::new(32 << 20));
    holdfast::CreateOptions::new().format(&device).unwrap();
    let v = VolumeOptions::new().open_device(device.clone()).unwrap();
    v.create_dir_with_mode("/closed", 0o700).unwrap();
    v.write("/closed/f", "").unwrap();
    v.create_dir_with_mode("/open", 0o777).unwrap();
    v.close().unwrap();

    let v = VolumeOptions::new().caller(1000, 1000, &[]).open_device(device).unwrap();
    errno(v.metadata("/closed/f"), libc::EACCES);
    errno(v.write("/f", ""), libc::EACCES);
    v.write("/open/f", "").unwrap();
    assert_eq!(v.metadata("/open/f").unwrap().uid(), 1000);
    errno(v.chown("/open/f", Some(0), None), libc::EPERM);
}

#[test]
fn special_files_keep_their_type() {
    let v = volume();
    v.create_node("/pipe", FileType::Fifo, 0o600, 0).unwrap();
    v.create_node("/null", FileType::CharDevice, 0o666, 259).unwrap();
    assert_eq!(v.metadata("/pipe").unwrap().file_type(), FileType::Fifo);
    let null = v.metadata("/null").unwrap();
    assert_eq!((null.file_type(), null.rdev()), (FileType::CharDevice, 259));
}
