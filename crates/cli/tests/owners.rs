//! Whose files are: volumes that go through the wall of a sandbox, and mounts that show and make other owners.
//!
//! A program of its own: its tests make mount namespaces, which keep the mounts of all others until they end.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use common::users::{OTHER, USER, place_of_user, shell};
use common::{TestMount, can_mount};

/// Tells this program to make a volume there by the library, and a file in it.
const BY_LIBRARY: &str = "HOLDFAST_TEST_MAKES";

/// Not a test: what a program of a user does that uses the library.
#[test]
fn makes_a_volume_by_the_library_if_asked_to() {
    let Some(image) = std::env::var_os(BY_LIBRARY) else { return };
    let volume = holdfast::Volume::create_new(image, 64 << 20).unwrap();
    volume.create_dir("/made").unwrap();
    volume.close().unwrap();
}

/// In which world a command of the user is run: how it begins, and its name.
const WORLDS: [(&str, &str); 3] = [
    ("outside", ""),
    ("in a sandbox as its root", "unshare -Urm "),
    ("in a sandbox under the own number", "unshare -Um --map-current-user --keep-caps "),
];

#[test]
fn a_volume_can_be_written_by_its_maker_on_both_sides_of_a_sandbox() {
    let Some(place) = place_of_user() else { return };
    let can = shell(USER, "unshare -Urm true");
    if can.code != 0 {
        return holdfast_base::skip::skipped(&can.err);
    }
    let itself = std::env::current_exe().unwrap();
    common::copy_program(itself.to_str().unwrap(), &place.path("test"));
    let (program, image, dir) = (place.path("holdfast"), place.image(), place.dir());
    let library = format!(
        "{BY_LIBRARY}={image} {} -q --exact makes_a_volume_by_the_library_if_asked_to >&2",
        place.path("test")
    );
    let mkfs = format!("{program} mkfs -q --size 64M {image}");
    let mut makers: Vec<(String, String)> = Vec::new();
    for (world, enter) in WORLDS {
        makers.push((format!("mkfs {world}"), format!("{enter}{mkfs}")));
        makers.push((format!("the library {world}"), format!("{enter}env {library}")));
    }
    if Command::new("fakeroot").arg("true").status().is_ok_and(|it| it.success()) {
        makers.push(("mkfs as fake root".into(), format!("fakeroot {mkfs}")));
    } else {
        holdfast_base::skip::skipped("there is no fakeroot(1) here");
    }
    for (maker, make) in makers {
        let _ = fs::remove_file(&place.image);
        let made = shell(USER, &make);
        assert_eq!(made.code, 0, "{maker}: {made:?}");
        // Twice around: what each world has left, the next one changes and removes.
        for (world, enter) in WORLDS.iter().chain(&WORLDS) {
            let work = format!(
                "set -e
                {program} mount {image} {dir} >/dev/null
                trap '{program} umount {dir}' EXIT
                cd {dir}
                for d in * made/*; do [ ! -d $d ] || touch $d/in; done
                [ ! -e old ] || {{ echo more >>old; chmod 640 old; mv old older; rm older; rm -r dir; }}
                echo x >old; mkdir dir; chmod 600 old
                [ $(stat -c %u old) = $(id -u) ] || stat old >&2
                cd /"
            );
            fs::write(place.path("work.sh"), work).unwrap();
            let done = shell(USER, &format!("{enter}sh {}", place.path("work.sh")));
            assert_eq!((done.code, &*done.err), (0, ""), "{maker}, then {world}");
            // At rest as well, and what is copied in belongs to the same user.
            let cp = format!("{enter}{program} cp -p {image}:/old {dir}.out");
            let back = format!("{enter}{program} cp {dir}.out {image}:/copied");
            let done = shell(USER, &format!("{cp} && {back} && rm -f {dir}.out"));
            assert_eq!((done.code, &*done.err), (0, ""), "{maker}, then {world}: cp");
        }
        let mounted = place.run(&["mount", "-o", "ro", image, dir]);
        assert_eq!(mounted.code, 0, "{mounted:?}");
        for name in ["", "old", "dir", "copied"] {
            let found = fs::metadata(place.dir.join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (USER, USER), "{maker}: {name}");
        }
        place.umount();
        place.fsck();
    }
}

/// Mounted by root with `options`, a volume of `USER` with a file of `OTHER`.
fn shown_with(options: &str) -> Option<TestMount> {
    let place = place_of_user()?;
    let owner = format!("{USER}:{USER}");
    place.run(&["mkfs", "-q", "--size", "64M", "--owner", &owner, place.image()]).fine();
    place.run(&["mount", place.image(), place.dir()]).fine();
    let at = |name: &str| place.dir.join(name);
    fs::write(at("other"), "x").unwrap();
    fs::set_permissions(at("other"), fs::Permissions::from_mode(0o644)).unwrap();
    chown(at("other"), Some(OTHER), Some(OTHER)).unwrap();
    fs::copy("/bin/true", at("suid")).unwrap();
    fs::set_permissions(at("suid"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("dir/in"), "x").unwrap();
    for made in ["dir", "dir/in"] {
        chown(at(made), Some(USER), Some(USER)).unwrap();
    }
    fs::create_dir(at("private")).unwrap();
    fs::write(at("private/secret"), "x").unwrap();
    fs::set_permissions(at("private"), fs::Permissions::from_mode(0o700)).unwrap();
    let taken = place.run(&["snapshot", "create", place.dir(), "s"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    place.umount();
    place.run(&["mount", "-o", options, place.image(), place.dir()]).fine();
    Some(place)
}

fn ids(path: impl AsRef<Path>) -> (u32, u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

/// What lies on the volume, whatever a mount shows.
fn stored(place: &TestMount, name: &str) -> (u32, u32, u32) {
    place.umount();
    place.run(&["mount", "-o", "ro", place.image(), place.dir()]).fine();
    ids(place.dir.join(name))
}

#[test]
fn everything_is_shown_as_one_users_and_what_is_made_is_the_volumes() {
    let Some(place) = shown_with(&format!("uid={OTHER},gid=1234,umask=027")) else { return };
    let at = |name: &str| place.dir.join(name);
    assert_eq!(ids(&place.dir), (OTHER, 1234, 0o750));
    assert_eq!(ids(at("other")), (OTHER, 1234, 0o640));
    assert_eq!(ids(at("suid")), (OTHER, 1234, 0o750), "no program runs as who is shown");
    assert_eq!(ids(at(".snapshots")), (OTHER, 1234, 0o750));
    assert_eq!(ids(at(".snapshots/s/suid")), (OTHER, 1234, 0o750));
    // By a listing with attributes, too.
    let listed =
        shell(OTHER, &format!("find {} -mindepth 1 ! -uid {OTHER} -o ! -gid 1234", place.dir()));
    assert_eq!(listed.fine(), "");
    // The owner shown may do what an owner may, and what is made looks like everything else.
    let script = format!(
        "set -e; cd {}; umask 0; echo x >new; mkdir d; ln -s x link; chmod 604 other; chmod 4777 new; touch other
        ! chown {USER} new 2>/dev/null
        ! setfacl -m u:1:rwx new 2>/dev/null",
        place.dir()
    );
    shell(OTHER, &script).fine();
    assert_eq!(ids(at("new")), (OTHER, 1234, 0o750));
    assert_eq!(ids(at("d")), (OTHER, 1234, 0o750));
    assert_eq!(ids(at("link")), (OTHER, 1234, 0o777));
    // Root gives nothing away either, but to the present owner.
    assert_eq!(chown(at("new"), Some(USER), None).unwrap_err().raw_os_error(), Some(libc_eperm()));
    chown(at("new"), Some(OTHER), Some(1234)).unwrap();
    // Others have what is shown.
    assert_ne!(shell(USER, &format!("cat {}/other", place.dir())).code, 0);
    // On the volume all of it is the volume's owner's; what is not shown has stayed.
    assert_eq!(stored(&place, "new"), (USER, USER, 0o750));
    assert_eq!(ids(at("d")), (USER, USER, 0o750));
    assert_eq!(ids(at("link")), (USER, USER, 0o777));
    assert_eq!(ids(at("other")), (OTHER, OTHER, 0o604));
    assert_eq!(ids(at("suid")).2, 0o6755);
    place.umount();
    place.fsck();
}

fn libc_eperm() -> i32 {
    rustix::io::Errno::PERM.raw_os_error()
}

#[test]
fn lists_give_nobody_what_a_mount_takes_away() {
    let Some(place) = shown_with("commit=5") else { return };
    let other = place.dir.join("other");
    let list = Command::new("setfacl").args(["-m", &format!("u:{USER}:rw")]).arg(&other).status();
    if !list.is_ok_and(|it| it.success()) {
        return holdfast_base::skip::skipped("needs setfacl(1)");
    }
    let write = format!("echo y >>{}", other.display());
    shell(USER, &write).fine();
    place.umount();
    place.run(&["mount", "-o", "umask=022", place.image(), place.dir()]).fine();
    assert_ne!(shell(USER, &write).code, 0, "the list would allow it");
    let names = Command::new("getfattr").args(["-m-", "-d"]).arg(&other).output().unwrap();
    assert!(!String::from_utf8_lossy(&names.stdout).contains("posix_acl"));
    place.umount();
}

#[test]
fn root_that_is_squashed_acts_as_the_owner_of_the_volume() {
    let Some(place) = shown_with("squash=root") else { return };
    let at = |name: &str| place.dir.join(name);
    fs::write(at("new"), "x").unwrap();
    fs::create_dir(at("d")).unwrap();
    assert_eq!(ids(at("new")), (USER, USER, 0o644));
    assert_eq!(ids(at("d")), (USER, USER, 0o755));
    // It may do no more than that: not what is another's, nor what only root may.
    for refused in [
        fs::write(at("other"), "y"),
        fs::set_permissions(at("other"), fs::Permissions::from_mode(0o666)),
        chown(at("new"), Some(OTHER), None),
        fs::read_dir(at("private")).and_then(|mut all| all.next().transpose()).map(drop),
        fs::read(at("private/secret")).map(drop),
    ] {
        let why = refused.unwrap_err();
        assert_eq!(why.kind(), std::io::ErrorKind::PermissionDenied, "{why}");
    }
    assert_ne!(shell(0, &format!("mknod {} c 1 3", at("null").display())).code, 0);
    // Others are themselves.
    shell(OTHER, &format!("echo y >{}", at("other").display())).fine();
    assert_ne!(shell(OTHER, &format!("echo y >{}", at("new").display())).code, 0);
    place.umount();
    place.fsck();
}

#[test]
fn whoever_comes_acts_as_the_owner_where_all_are_squashed() {
    let Some(place) = shown_with("squash=all,uid=23401,gid=23402") else { return };
    let at = |name: &str| place.dir.join(name);
    let script = format!(
        "set -e; cd {}; echo x >new; chmod 600 new; mkdir d; cat new dir/in; rm -r dir; ls -l >/dev/null
        ! echo y >other; ! ls private; ! cat private/secret; ! ls .snapshots/s/private; cat .snapshots/s/dir/in",
        place.dir()
    );
    let done = shell(OTHER, &script);
    assert_eq!((done.code, &*done.out), (0, "x\nxx"), "{done:?}");
    assert_eq!(ids(at("new")), (23401, 23402, 0o600));
    // Another one is the same.
    shell(OTHER + 1, &format!("cat {0}/new; echo z >{0}/new; rmdir {0}/d", place.dir())).fine();
    assert_ne!(shell(0, &format!("ls {}/private", place.dir())).code, 0, "root as well");
    assert_eq!(stored(&place, "new"), (USER, USER, 0o600));
    place.umount();
    place.fsck();
}

#[test]
fn what_nobody_would_check_is_refused() {
    let place = TestMount::with_volume();
    let mount = |options: &str| place.run(&["mount", "-o", options, place.image(), place.dir()]);
    mount("uid=1,nodefault_permissions").fails(1, "need default_permissions");
    mount("squash=all,umask=022").fails(1, "exclude each other");
    mount("squash=some").fails(1, "squash");
    mount("umask=rwx").fails(1, "octal");
    mount("uid=no-such-user-here").fails(1, "no user");
    mount("uid").fails(1, "uid=...");
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    mount("uid=1,squash=root").fine();
    mount("remount,uid=1,squash=root,noatime").fine();
    mount("remount,uid=2").fails(32, "uid=2 cannot change");
    place.umount();
}
