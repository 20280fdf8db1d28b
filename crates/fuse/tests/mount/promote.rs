//! What programs find whose branch becomes what a fork of it is.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use holdfast_fuse::{CONTROL, Control, Opens};
use holdfast_posix::{
    Caller, FileSystem, FileType, MountOptions, NewHead, NewNode, OpenFlags, Told, WriteHow,
};

use crate::common::{Mount, can_mount, options, volume};

/// A mount that makes forks of its branch, has something done in them, and becomes one of them.
fn mount(opens: Opens) -> Mount {
    let control = Control::new(|mount, command| {
        let words: Vec<&str> = std::str::from_utf8(command).unwrap().split(' ').collect();
        let done = match words[..] {
            ["fork", name] => mount.fs().fork(name.as_bytes(), None).map(drop),
            ["work", name] => work(mount.fs(), name.as_bytes()),
            [how, name] => {
                let (fork, unchanged) = (name.as_bytes(), how == "unchanged");
                let head = NewHead::Fork { fork: fork.into(), keep: None, unchanged };
                mount.give_head(head).map(|told| assert_eq!(told, Told::All))
            }
            _ => panic!("{words:?}"),
        };
        done.map_or_else(|error| error.to_string(), |()| "done".into()).into_bytes()
    });
    Mount::with(volume(256), options(), |fuse| {
        fuse.opens = opens;
        fuse.control = Some(control);
    })
}

/// Changes one file of a fork, removes one and makes one.
fn work(fs: &FileSystem, fork: &[u8]) -> holdfast_posix::Result<()> {
    let root = Caller::root();
    let options = MountOptions { read_only: false, ..fs.options().clone() };
    let fork = fs.open_branch(fork, options)?;
    let find = |name: &[u8]| fork.lookup(&root, holdfast_base::InodeNo::ROOT, name);
    let changed = fork.open(&root, find(b"changed")?.inode, OpenFlags::WRITE)?;
    fork.write(&root, &changed, 0, b"by the fork, and longer", WriteHow::default())?;
    drop(changed);
    fork.unlink(&root, holdfast_base::InodeNo::ROOT, b"removed")?;
    let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
    fork.mknod(&root, holdfast_base::InodeNo::ROOT, b"made", new)?;
    fork.unmount()
}

fn command(mount: &Mount, words: &str) -> String {
    let dir = File::open(mount.dir.path()).unwrap();
    let said = holdfast_fuse::attribute(dir, &[CONTROL, words.as_bytes()].concat()).unwrap();
    String::from_utf8(said).unwrap()
}

/// P12, P14: nothing of the fork shows before, and all of it does behind.
#[test]
fn a_mount_shows_the_fork_that_its_branch_has_become() {
    if !can_mount() {
        return;
    }
    for opens in [Opens::Server, Opens::Kernel] {
        let mount = mount(opens);
        let path = |name: &str| mount.dir.path().join(name);
        for name in ["changed", "removed", "same"] {
            fs::write(path(name), "as it was").unwrap();
        }
        assert_eq!(command(&mount, "fork try"), "done");
        let [changed, removed, same] =
            ["changed", "removed", "same"].map(|name| File::open(path(name)).unwrap());
        assert_eq!(command(&mount, "work try"), "done");
        let read = |file: &File| {
            let mut bytes = vec![0; 100];
            file.read_at(&mut bytes, 0).map(|len| bytes[..len].to_vec())
        };
        for file in [&changed, &removed, &same] {
            assert_eq!(read(file).unwrap(), b"as it was");
        }
        assert!(!path("made").exists());
        let inode = fs::metadata(path("same")).unwrap().ino();

        assert_eq!(command(&mount, "unchanged try"), "done");
        assert_eq!(fs::read_to_string(path("changed")).unwrap(), "by the fork, and longer");
        assert_eq!(fs::read_to_string(path("same")).unwrap(), "as it was");
        assert!(path("made").exists() && !path("removed").exists());
        assert_eq!(fs::metadata(path("same")).unwrap().ino(), inode);
        assert_eq!(read(&changed).unwrap(), b"by the fork, and longer");
        assert_eq!(read(&same).unwrap(), b"as it was");
        assert_eq!(read(&removed).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        assert!(command(&mount, "unchanged try").contains("there is no"));
        // It is a branch as any other.
        fs::write(path("changed"), "later").unwrap();
        assert_eq!(read(&changed).unwrap(), b"later");
    }
}

#[test]
fn a_branch_that_has_changed_meanwhile_stays_as_it_is() {
    if !can_mount() {
        return;
    }
    let mount = mount(Opens::Server);
    let path = |name: &str| mount.dir.path().join(name);
    for name in ["changed", "removed"] {
        fs::write(path(name), "as it was").unwrap();
    }
    assert_eq!(command(&mount, "fork try"), "done");
    assert_eq!(command(&mount, "work try"), "done");
    // That it was read is no change.
    fs::read(path("changed")).unwrap();
    fs::write(path("other"), "meanwhile").unwrap();
    assert!(command(&mount, "unchanged try").contains("has changed since"));
    assert_eq!(fs::read_to_string(path("changed")).unwrap(), "as it was");
    fs::remove_file(path("other")).unwrap();
    // The times of a directory are a change as well.
    assert!(command(&mount, "unchanged try").contains("has changed since"));
    assert_eq!(command(&mount, "anyway try"), "done");
    assert_eq!(fs::read_to_string(path("changed")).unwrap(), "by the fork, and longer");
}

/// What the kernel has in memory of files and names that are the same behind it, it keeps.
#[test]
fn a_promotion_costs_a_mount_what_has_changed() {
    if !can_mount() {
        return;
    }
    let mount = mount(Opens::Server);
    let path = |name: &str| mount.dir.path().join(name);
    fs::create_dir(path("d")).unwrap();
    for name in ["changed", "removed", "d/0", "d/1"] {
        fs::write(path(name), vec![1; 9000]).unwrap();
    }
    let files: Vec<_> = (0..200).map(|n| path(&format!("d/file-{n}"))).collect();
    files.iter().for_each(|file| fs::write(file, vec![1; 9000]).unwrap());
    let read_all = || {
        files.iter().for_each(|file| assert_eq!(fs::read(file).unwrap(), [1; 9000]));
        assert_eq!(fs::read_dir(path("d")).unwrap().count(), 202);
        fs::read(path("changed")).unwrap();
        assert!(!path("none").exists());
    };
    // The first moves access times, and the second asks for them.
    (0..2).for_each(|_| read_all());
    let warm = mount.messages(read_all);
    assert_eq!(warm, [("open", 201), ("release", 201)]);

    assert_eq!(command(&mount, "fork nothing"), "done");
    let again = mount.messages(|| {
        assert_eq!(command(&mount, "unchanged nothing"), "done");
        read_all();
    });
    let of = |list: &[(&str, u64)], kind: &str| {
        list.iter().find(|(name, _)| *name == kind).map_or(0, |(_, count)| *count)
    };
    for kind in ["lookup", "getattr", "statx", "read", "readdir", "readdirplus", "forget"] {
        assert_eq!(of(&again, kind), 0, "nothing has changed: {again:?}");
    }

    assert_eq!(command(&mount, "fork one"), "done");
    assert_eq!(command(&mount, "work one"), "done");
    let again = mount.messages(|| {
        assert_eq!(command(&mount, "unchanged one"), "done");
        read_all();
        assert!(path("made").exists() && !path("removed").exists());
    });
    assert_eq!(fs::read(path("changed")).unwrap()[..23], *b"by the fork, and longer");
    for (kind, most) in
        [("lookup", 3), ("getattr", 3), ("statx", 3), ("read", 2), ("readdir", 0), ("forget", 1)]
    {
        assert!(of(&again, kind) <= most, "one file was changed: {again:?}");
    }
}
