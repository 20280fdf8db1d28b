//! What another user has put where this one writes, reads or listens by name.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use crate::common::users::{OTHER, USER, place_of_user, shell};
use crate::{Hostile, InTmp, PATIENCE, run, shared, user};

/// What stands at the name that `USER`'s directory of sockets would have.
#[test]
fn a_name_that_another_has_taken_keeps_nobody_from_being_served_or_found() {
    let Some(place) = place_of_user() else { return };
    let taken = InTmp::of(USER);
    let (image, dir) = (place.image(), place.dir());
    shared(&place, &format!("mkfs -q --size 64M {image}")).fine();
    shared(&place, &format!("fork {image} work")).fine();
    let second = place.path("u/second");
    user(&place, &format!("mkdir {second}")).fine();
    let found = fs::metadata(image).unwrap();
    let socket = format!("file-{:x}-{:x}.sock", found.dev(), found.ino());
    let name = taken.0.display().to_string();
    let mute = format!(
        "import os, socket, sys; os.mkdir('{name}'); os.chmod('{name}', 0o755)
s = socket.socket(socket.AF_UNIX); s.bind('{name}/{socket}'); os.chmod('{name}/{socket}', 0o777); s.listen(1)
print('ready', flush=True); sys.stdin.read()"
    );
    let victim = place.path("u/victim");
    user(&place, &format!("mkdir -m 755 {victim}")).fine();
    let squats: [(&str, String); 6] = [
        ("a directory", format!("mkdir -m 777 {name}")),
        ("a file", format!("echo x >{name}")),
        ("a pipe", format!("mkfifo -m 666 {name}")),
        ("a link to a directory of the user", format!("ln -s {victim} {name}")),
        ("a link to nothing", format!("ln -s {} {name}", place.path("u/nothing"))),
        ("a socket that never answers", String::new()),
    ];
    for (what, squat) in squats {
        taken.remove();
        let _hostile = match squat.is_empty() {
            true => Some(Hostile::start(&mute, &[])),
            false => {
                shell(OTHER, &squat).fine();
                None
            }
        };
        let mounted = shared(&place, &format!("mount {image} {dir}"));
        assert_eq!((mounted.code, &*mounted.err), (0, ""), "{what}: {mounted:?}");
        // Another mount joins, both are found, and the volume can be unmounted as one.
        let joined = shared(&place, &format!("mount {image}:work {second}"));
        assert_eq!((joined.code, &*joined.err), (0, ""), "{what}: {joined:?}");
        let list = shared(&place, "list").fine();
        assert!(list.contains(dir) && list.contains(&second), "{what}: {list}");
        shared(&place, &format!("umount {image}")).fine();
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{what} was followed");
        assert!(!Path::new(&place.path("u/nothing")).exists(), "{what} was followed");
    }
    place.fsck();
}

#[test]
fn a_log_is_this_users_alone_and_never_what_another_has_put_in_its_place() {
    let Some(place) = place_of_user() else { return };
    let (image, dir) = (place.image(), place.dir());
    run(&place, &format!("mkfs -q --size 64M {image}")).fine();
    let shared = place.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let log = format!("{shared}/log");
    let precious = place.path("u/precious");
    fs::write(&precious, "mine\n").unwrap();
    chown(&precious, Some(USER), Some(USER)).unwrap();
    let mount = || run(&place, &format!("mount -o log={log} {image} {dir}"));
    let plants: [(&str, &dyn Fn()); 4] = [
        ("symbolic link", &|| symlink(&precious, &log).unwrap()),
        ("pipe", &|| drop(shell(OTHER, &format!("mkfifo -m 666 {log}")).fine())),
        ("file", &|| drop(shell(OTHER, &format!("umask 0; echo x >{log}")).fine())),
        // Where fs.protected_hardlinks is off.
        ("hard link", &|| fs::hard_link(&precious, &log).unwrap()),
    ];
    for (what, plant) in plants {
        plant();
        let owner = if what == "hard link" { USER } else { OTHER };
        std::os::unix::fs::lchown(&log, Some(owner), Some(owner)).unwrap();
        let refused = mount();
        assert!(refused.code != 0 && refused.code != 124, "{what}: {refused:?}");
        assert!(refused.err.contains(&log), "{what}: {refused:?}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "mine\n", "{what}");
        assert!(!place.is_mounted(), "{what}");
        fs::remove_file(&log).unwrap();
    }
    let fine = mount();
    assert_eq!((fine.code, &*fine.err), (0, ""));
    assert_eq!(fs::metadata(&log).unwrap().mode() & 0o7777, 0o600);
    run(&place, &format!("umount {dir}")).fine();
    // A link of one's own is fine, and so is what is no user's file.
    user(&place, &format!("ln -s {precious} {shared}/own")).fine();
    for log in [format!("{shared}/own"), "/dev/null".into()] {
        let fine = run(&place, &format!("mount -o log={log} {image} {dir}"));
        assert_eq!((fine.code, &*fine.err), (0, ""), "{log}");
        run(&place, &format!("umount {dir}")).fine();
    }
    assert!(fs::read_to_string(&precious).unwrap().lines().count() > 1);
}

#[test]
fn a_pipe_in_the_place_of_a_volume_or_directory_holds_nobody_up() {
    let Some(place) = place_of_user() else { return };
    let pipe = place.path("pipe");
    shell(0, &format!("mkfifo -m 666 {pipe}")).fine();
    chown(&pipe, Some(OTHER), Some(OTHER)).unwrap();
    let dir = place.dir();
    for command in [
        format!("mount {pipe} {dir}"),
        format!("mount -o ro {pipe} {dir}"),
        format!("umount {pipe}"),
        format!("info {pipe}"),
        format!("fsck -n {pipe}"),
        format!("ls {pipe}:/"),
        format!("cat {pipe}:/x"),
        format!("mkfs --size 64M {pipe}"),
        format!("mkfs --force --size 64M {pipe}"),
        format!("stats {pipe}"),
        format!("snapshot list {pipe}"),
        format!("resize {pipe} 1G"),
        format!("scrub {pipe}"),
        format!("salvage --list {pipe}"),
        format!("trim {pipe}"),
        format!("sync {pipe}"),
    ] {
        let said = run(&place, &command);
        assert!(said.code != 0 && said.code != 124, "{command}: {said:?}");
    }
}

/// Directories that `XDG_RUNTIME_DIR` may name, and whether sockets of `USER` go there.
#[test]
fn sockets_go_where_this_user_alone_makes_names() {
    let Some(place) = place_of_user() else { return };
    let (image, dir) = (place.image(), place.dir());
    run(&place, &format!("mkfs -q --size 64M {image}")).fine();
    let runtime = |name: &str, owner: u32, mode: u32| {
        let path = place.path(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let link = place.path("link");
    let own = runtime("own", USER, 0o700);
    symlink(&own, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(OTHER), Some(OTHER)).unwrap();
    let cases = [
        (own, true),
        (runtime("open", USER, 0o777), false),
        (runtime("group", USER, 0o770), false),
        (runtime("of-other", OTHER, 0o777), false),
        (runtime("sticky", 0, 0o1777), false),
        (link, false),
        (place.path("missing"), false),
    ];
    for (runtime, is_used) in &cases {
        let there = |args: &str| {
            let with = format!("export XDG_RUNTIME_DIR={runtime}; timeout {PATIENCE}");
            user(&place, &format!("{with} {} {args}", place.path("holdfast")))
        };
        there(&format!("mount {image} {dir}")).fine();
        let sockets = fs::read_dir(format!("{runtime}/holdfast")).map_or(0, |all| {
            all.flatten()
                .filter(|it| it.path().extension().is_some_and(|end| end == "sock"))
                .count()
        });
        let through_link = runtime.ends_with("/link");
        assert_eq!(sockets == 1 && !through_link, *is_used, "{runtime}");
        assert!(there("list").fine().contains(dir), "{runtime}");
        there(&format!("umount {image}")).fine();
        assert!(!place.is_mounted(), "{runtime}");
    }
}

/// What is written to a new file, by name, in a directory where all users make names.
#[test]
fn what_another_has_put_in_the_place_of_a_file_is_neither_followed_nor_written() {
    let Some(place) = place_of_user() else { return };
    let image = place.image();
    run(&place, &format!("mkfs -q --size 64M {image}")).fine();
    let shared = place.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let (file, nothing) = (format!("{shared}/file"), place.path("u/nothing"));
    let precious = place.path("u/precious");
    let keep = || {
        fs::write(&precious, "mine\n").unwrap();
        chown(&precious, Some(USER), Some(USER)).unwrap();
    };
    keep();
    let plants = [
        ("link", format!("ln -s {precious} {file}")),
        ("link to nothing", format!("ln -s {nothing} {file}")),
        ("pipe", format!("mkfifo -m 666 {file}")),
        ("file", format!("umask 0; echo x >{file}")),
    ];
    let commands = [
        format!("salvage --report {file} {image} out"),
        format!("image {image} {file}"),
        format!("mkfs --size 64M {file}"),
    ];
    for (what, plant) in &plants {
        for command in &commands {
            shell(OTHER, plant).fine();
            let said = run(&place, command);
            assert!(said.code != 0 && said.code != 124, "{what}: {command}: {said:?}");
            assert_eq!(fs::read_to_string(&precious).unwrap(), "mine\n", "{what}: {command}");
            assert!(!Path::new(&nothing).exists(), "{what}: {command}");
            fs::remove_file(&file).unwrap();
            let _ = fs::remove_dir_all(place.path("u/out"));
        }
    }
    // Where nothing was put, they work.
    for command in &commands {
        let said = run(&place, command);
        assert_eq!(said.code, 0, "{command}: {said:?}");
        fs::remove_file(&file).unwrap();
    }
}
