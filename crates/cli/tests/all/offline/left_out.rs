//! What the other side does not take: the content comes, what it lacks is told once of each file, and the exit code is 1.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use holdfast::{Volume, XattrFlags};

use crate::common::users::{OTHER, USER, as_user, place_of_user};
use crate::common::{Said, TestMount, can_mount};
use crate::host::SmallHost;

const LIST: &str = "system.posix_acl_access";

/// An access control list: owner rw, user 1000 r, group r, mask r, others r.
fn list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 4, u32::MAX)];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend([&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    value
}

/// Files with an attribute, with a list, with an attribute that no ext4 has room for, and with none.
fn filled() -> TestMount {
    let place = TestMount::with_volume();
    let volume = Volume::open(place.image()).unwrap();
    volume.create_dir("/dir").unwrap();
    for (name, attribute, value) in [
        ("attr", "user.a", b"value".to_vec()),
        ("acl", LIST, list()),
        ("big", "user.big", vec![b'a'; 9000]),
    ] {
        let path = format!("/dir/{name}");
        volume.write(&path, name).unwrap();
        volume.set_xattr(&path, attribute, &value, XattrFlags::empty()).unwrap();
    }
    volume.set_xattr("/dir", "user.of-dir", b"value", XattrFlags::empty()).unwrap();
    volume.write("/dir/plain", "plain").unwrap();
    volume.close().unwrap();
    place
}

/// All is there, and what is missing is told in so many lines.
fn expect_told(said: &Said, code: u8, lines: &[(&str, &str)]) {
    assert_eq!(i32::from(code), said.code, "{said:?}");
    assert_eq!(said.err.lines().count(), lines.len(), "{said:?}");
    for (path, name) in lines {
        let words = format!("{path}: is copied without {name}, which cannot be set there");
        assert!(said.err.lines().any(|line| line.ends_with(&words)), "{words}: {said:?}");
    }
}

fn expect_contents(dir: &Path) {
    for name in ["attr", "acl", "big", "plain"] {
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), name);
    }
}

#[test]
fn what_the_host_does_not_take_is_told_and_the_rest_is_copied() {
    if !can_mount() {
        return;
    }
    let place = filled();
    let none =
        [("to", "user.of-dir"), ("to/attr", "user.a"), ("to/acl", LIST), ("to/big", "user.big")];
    for (host, told) in
        [(SmallHost::ramfs(), &none[..]), (SmallHost::ext4(20), &[("to/big", "user.big")])]
    {
        let Some(host) = host else { continue };
        let to = host.path("to");
        let copy = |how| place.run(&["cp", how, &place.inside("/dir"), to.to_str().unwrap()]);
        expect_told(&copy("-a"), 1, told);
        expect_contents(&to);
        fs::remove_dir_all(&to).unwrap();
        // A caller that has not asked for them does not hear of them.
        expect_told(&copy("-r"), 0, &[]);
        expect_contents(&to);
        // The same of what is salvaged.
        let out = host.path("out");
        let said = place.run(&["salvage", place.image(), out.to_str().unwrap()]);
        assert_eq!(said.code, 1, "{said:?}");
        for (path, name) in told {
            let path = path.replacen("to", "/dir", 1);
            assert!(said.out.contains(&format!("{path}: whole; not set: {name}\n")), "{said:?}");
        }
        assert_eq!(said.out.lines().count(), told.len() + 1, "{said:?}");
        expect_contents(&out.join("dir"));
    }
}

/// As with cp(1): a user who may not give files away is not told of each.
#[test]
fn owners_are_left_out_without_a_word_for_those_who_give_none_away() {
    let Some(place) = place_of_user() else { return };
    place.run(&["mkfs", "-q", "--size", "64M", "--owner", "1:1", place.image()]).fine();
    fs::write(place.path("given"), "content").unwrap();
    std::os::unix::fs::chown(place.path("given"), Some(OTHER), Some(OTHER)).unwrap();
    place.run(&["cp", "-a", &place.path("given"), &place.inside("/")]).fine();
    std::os::unix::fs::chown(place.image(), Some(USER), Some(USER)).unwrap();
    let out = place.path("u/given");
    for how in ["-a", "-p", "-r"] {
        let said =
            as_user(USER, &place.path("holdfast"), &["cp", how, &place.inside("/given"), &out]);
        expect_told(&said, 0, &[]);
        assert_eq!(fs::metadata(&out).unwrap().uid(), USER);
    }
}
