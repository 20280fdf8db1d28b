//! Two ordinary users on one machine, one of whom means harm: what `OTHER` has put where `USER` writes or reads by name.
//! Callers of root's daemon who mean harm are in `hostile_callers.rs`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use crate::common::users::{OTHER, USER, place_of_user, shell};
use crate::common::{Said, TestMount};

/// Seconds that a command has: no other user may hold it up so long.
const PATIENCE: &str = "60";

/// A shell of `USER`, who has no session: a home, and an own directory for temporary files.
fn user(place: &TestMount, script: &str) -> Said {
    let home = place.path("u");
    let own = format!("unset XDG_RUNTIME_DIR; export HOME={home} TMPDIR={home}; cd {home}");
    shell(USER, &format!("{own}; {script}"))
}

/// The program as `USER` calls it, which ends.
fn program(place: &TestMount, args: &str) -> String {
    format!("timeout {PATIENCE} {} {args}", place.path("holdfast"))
}

fn run(place: &TestMount, args: &str) -> Said {
    user(place, &program(place, args))
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
    // A link of one's own is fine, and so is what is no file of anybody's.
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
