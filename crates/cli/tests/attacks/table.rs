//! Lines of shell by which one user attacks what another has. Each is tried by that one too, who may: so what would let a stranger
//! in would be seen.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use crate::common::users::{OTHER, USER, as_user, place_of_user};
use crate::common::{Said, TestMount, signal, wait_for};
use crate::{PATIENCE, lists, mounted, run, user};

/// An attack, and which other user may do that.
struct Attack {
    script: &'static str,
    /// Root of a mount namespace of its own changes nothing for others when it does that.
    is_harmless_elsewhere: bool,
}

const fn attack(script: &'static str) -> Attack {
    Attack { script, is_harmless_elsewhere: false }
}

const fn harmless_elsewhere(script: &'static str) -> Attack {
    Attack { script, is_harmless_elsewhere: true }
}

/// What leaves a mount of the owner as it was, when the owner does it.
const STAYS: [Attack; 43] = [
    attack("cat $DIR/secret"),
    attack("ls $DIR"),
    attack("stat $DIR"),
    attack("touch $DIR/planted"),
    attack(": <$IMAGE"),
    attack(": >>$IMAGE"),
    attack("ln $IMAGE $IMAGE.other"),
    attack(": <$LOG"),
    attack(": >>$LOG"),
    attack("ls $RUNTIME"),
    attack(": >>$RUNTIME/lock"),
    attack("mkdir $RUNTIME/planted"),
    attack(CONNECTS),
    attack("$H stats $DIR"),
    attack("$H info $IMAGE"),
    attack("$H ls $IMAGE:/"),
    attack("$H cat $IMAGE:/secret"),
    attack("$H explain $DIR/secret"),
    attack("$H list | grep -F $IMAGE"),
    attack("$H list --json | grep -F $IMAGE"),
    attack("$H metrics | grep -F $IMAGE"),
    attack("$H snapshot create $DIR planted"),
    attack("$H snapshot create $IMAGE other"),
    attack("$H snapshot list $DIR"),
    attack("$H snapshot hold $DIR first && $H snapshot unhold $DIR first"),
    attack("$H fork $DIR forked"),
    attack("$H branch list $DIR"),
    attack("$H branch delete $DIR forked"),
    attack("$H snapshot rollback --discard $DIR first"),
    attack("$H snapshot delete $DIR other"),
    attack("$H diff $IMAGE@first $IMAGE; test $? -le 1"),
    attack("$H send $IMAGE@first >/dev/null"),
    attack("$H export --tar $DIR >/dev/null"),
    attack("$H chmod 777 $IMAGE:/secret"),
    attack("$H mkdir $IMAGE:/made"),
    attack("$H scrub $DIR"),
    attack("$H trim $DIR"),
    attack("$H resize $DIR 80M"),
    attack("$H tune --label theirs $DIR"),
    attack("$H txn $DIR -- true"),
    attack("$H mount -o ro $IMAGE:work $OWN && $H umount $OWN"),
    attack("kill -STOP $DAEMON && kill -CONT $DAEMON"),
    attack("cat /proc/$DAEMON/environ && ls /proc/$DAEMON/fd/ && ls /proc/$DAEMON/cwd/"),
];

/// Reaches the daemon by its socket.
const CONNECTS: &str = "python3 -c 'import socket, sys
socket.socket(socket.AF_UNIX).connect(sys.argv[1])' $SOCKET";

/// Where the kernel lets connections be aborted.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// What ends it.
const ENDS: [Attack; 10] = [
    attack("$H umount $DIR"),
    attack("$H umount $IMAGE"),
    attack("$H umount --lazy $DIR"),
    attack("fusermount3 -u $DIR"),
    attack("fusermount3 -uz $DIR"),
    attack("echo 1 >/sys/fs/fuse/connections/$NUMBER/abort"),
    attack("kill $DAEMON"),
    attack("kill -KILL $DAEMON"),
    attack("rm $SOCKET"),
    attack("mv $RUNTIME $RUNTIME.gone"),
];

/// What takes a mount away whose daemon has died. It may say that there was nothing to do.
const TAKES_DEAD: [Attack; 4] = [
    attack("$H umount --dead $DIR && ! grep -qF \" $DIR \" /proc/self/mounts"),
    attack("$H umount $DIR"),
    attack("$H umount $IMAGE"),
    attack("fusermount3 -uz $DIR"),
];

/// What root's mount lets no other user do, although it lets all of them in.
const OF_ROOT: [Attack; 16] = [
    harmless_elsewhere("$H mount -o remount,noatime $IMAGE $DIR"),
    attack("cat $DIR/secret"),
    attack("touch $DIR/planted"),
    attack("$H stats $DIR"),
    attack("$H info $IMAGE"),
    attack("$H list | grep -F $IMAGE"),
    attack("$H metrics | grep -F $IMAGE"),
    attack("$H snapshot create $DIR planted"),
    attack("$H snapshot list $DIR"),
    attack("$H fork $DIR forked"),
    attack("$H snapshot rollback $DIR first"),
    attack("$H scrub $DIR"),
    attack("$H resize $DIR 80M"),
    attack("$H chmod 777 $IMAGE:/secret"),
    attack("kill -STOP $DAEMON && kill -CONT $DAEMON"),
    attack("$H umount $DIR"),
];

/// What a volume in use lets nobody else do who may write the image. At rest its owner does it.
const IN_USE: [Attack; 6] = [
    attack("$H tune --label theirs $IMAGE"),
    attack("$H snapshot create $IMAGE planted"),
    attack("$H fsck -y $IMAGE"),
    attack("$H resize $IMAGE 80M"),
    attack("$H mount $IMAGE $OWN && $H umount $OWN"),
    attack("$H mkfs --force --size 64M $IMAGE"),
];

/// What is attacked, as variables for the lines.
fn variables(place: &TestMount) -> String {
    let (image, dir) = (place.image(), place.dir());
    let runtime = place.path(&format!("u/holdfast-{USER}"));
    let found = fs::metadata(image).unwrap();
    let socket = format!("{runtime}/file-{:x}-{:x}.sock", found.dev(), found.ino());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(&format!(" {dir} "))).unwrap();
    let number = line.split([' ', ':']).nth(3).unwrap();
    // The image is locked by the process that serves it.
    let daemon = holdfast_device::holding_process(Path::new(image)).unwrap();
    format!(
        "H={} IMAGE={image} DIR={dir} RUNTIME={runtime} SOCKET={socket} LOG={} DAEMON={daemon} NUMBER={number}",
        place.path("holdfast"),
        place.path("u/log"),
    )
}

/// A line as a user does it.
fn done(place: &TestMount, who: u32, world: &str, variables: &str, attack: &Attack) -> Said {
    let own = match who {
        OTHER => place.path("other"),
        _ => place.path("u/second"),
    };
    let file = place.path(&format!("attack-{who}.sh"));
    // The home is where the owner's sockets are.
    let home = place.path(if who == OTHER { "other" } else { "u" });
    let script = format!(
        "unset XDG_RUNTIME_DIR; export HOME={home} TMPDIR={home}\n{variables} OWN={own}\n{}\n",
        attack.script
    );
    fs::write(&file, script).unwrap();
    as_user(who, "sh", &["-c", &format!("{world} timeout {PATIENCE} sh {file}")])
}

/// `OTHER` tries, as it is and as root of namespaces of its own.
#[track_caller]
fn fails(place: &TestMount, variables: &str, attack: &Attack) {
    let worlds: &[&str] = if attack.is_harmless_elsewhere { &[""] } else { &["", "unshare -Urm"] };
    for world in worlds {
        let said = done(place, OTHER, world, variables, attack);
        assert!(said.code != 0 && said.code != 124, "`{}` {world}: {said:?}", attack.script);
    }
}

/// And a user who may do it does: the line is one that would have been noticed.
#[track_caller]
fn succeeds(place: &TestMount, who: u32, variables: &str, attack: &Attack) {
    let said = done(place, who, "", variables, attack);
    assert_eq!(said.code, 0, "the owner: `{}`: {said:?}", attack.script);
}

/// Directories in which each of both may mount.
fn prepare(place: &TestMount) {
    for (dir, owner) in [("u/second", USER), ("other", OTHER)] {
        let dir = place.path(dir);
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(owner), Some(owner)).unwrap();
    }
}

/// Mounts again. What was taken away at once stays in a namespace that another test makes until that ends.
fn remount(place: &TestMount) {
    let log = place.path("u/log");
    let mount = format!("mount -o log={log} {} {}", place.image(), place.dir());
    let mut said = None;
    wait_for("it cannot be mounted again", || {
        said.insert(run(place, &mount)).code == 0 || place.is_mounted()
    });
    said.unwrap().fine();
}

/// Mounted by `USER`, with a branch, a snapshot, and a file that was synced.
fn target() -> Option<TestMount> {
    let place = mounted()?;
    run(&place, &format!("umount {}", place.dir())).fine();
    prepare(&place);
    remount(&place);
    for command in ["fork DIR work", "snapshot create DIR first"] {
        run(&place, &command.replace("DIR", place.dir())).fine();
    }
    user(&place, &format!("sync {}/secret", place.dir())).fine();
    Some(place)
}

#[test]
fn what_one_user_has_another_neither_reads_nor_changes_nor_ends() {
    let Some(place) = target() else { return };
    let _lists = lists();
    let now = variables(&place);
    for attack in STAYS.iter().chain(&ENDS) {
        fails(&place, &now, attack);
    }
    assert_eq!(user(&place, &format!("cat {}/secret", place.dir())).fine(), "mine\n");
    assert_eq!(user(&place, &format!("ls -A {}", place.dir())).fine(), "secret\n");
    for attack in &STAYS {
        succeeds(&place, USER, &now, attack);
    }
    for attack in &ENDS {
        if attack.script.contains(CONNECTIONS)
            && !fs::read_dir(CONNECTIONS).is_ok_and(|mut all| all.next().is_some())
        {
            holdfast_base::skip::skipped(
                "there is no fusectl here, so its owner cannot abort a connection",
            );
            continue;
        }
        succeeds(&place, USER, &variables(&place), attack);
        let _ = run(&place, &format!("umount {}", place.dir()));
        let _ = fs::remove_dir_all(place.path(&format!("u/holdfast-{USER}.gone")));
        remount(&place);
    }
    run(&place, &format!("umount {}", place.dir())).fine();
    place.fsck();
}

#[test]
fn a_mount_whose_daemon_has_died_is_its_users_all_the_same() {
    let Some(place) = target() else { return };
    for attack in &TAKES_DEAD {
        let now = variables(&place);
        signal(holdfast_device::holding_process(&place.image).unwrap(), "KILL");
        wait_for("the daemon does not die", || {
            holdfast_device::holding_process(&place.image).is_none()
        });
        fails(&place, &now, attack);
        assert!(place.is_mounted(), "`{}`", attack.script);
        succeeds(&place, USER, &now, attack);
        assert!(!place.is_mounted(), "the owner: `{}`", attack.script);
        remount(&place);
    }
    run(&place, &format!("umount {}", place.dir())).fine();
    place.fsck();
}

/// What a supervisor and the daemon below it do for nobody but their user. The owner does the last ones last.
const SUPERVISED: [Attack; 7] = [
    attack("ls -l /proc/$DAEMON/fd/ | grep memfd"),
    attack("ls -l /proc/$SERVER/fd/ | grep memfd"),
    attack("kill -STOP $DAEMON && kill -CONT $DAEMON"),
    attack("$H restart $IMAGE"),
    attack("$H restart $DIR"),
    attack("kill -KILL $SERVER"),
    attack("kill -KILL $DAEMON $SERVER"),
];

#[test]
fn a_supervisor_and_what_it_keeps_are_its_users_alone() {
    let Some(place) = target() else { return };
    run(&place, &format!("umount {}", place.dir())).fine();
    let mounted = run(&place, &format!("mount -o supervised {} {}", place.image(), place.dir()));
    if mounted.code != 0 {
        return holdfast_base::skip::skipped(&mounted.err);
    }
    // Between two daemons there is none.
    let server = || {
        let supervisor = holdfast_device::holding_process(&place.image).unwrap();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let all = fs::read_to_string(children).unwrap();
        all.split_whitespace().next_back().unwrap_or_default().to_owned()
    };
    let now = || format!("{} SERVER={}", variables(&place), server());
    let first = server();
    for attack in &SUPERVISED {
        fails(&place, &now(), attack);
    }
    assert_eq!(server(), first, "another user has ended it");
    for attack in &SUPERVISED {
        let ends = attack.script.contains("$SERVER") && attack.script.starts_with("kill");
        let before = server();
        succeeds(&place, USER, &now(), attack);
        if ends && !attack.script.contains("$DAEMON") {
            wait_for("no other daemon comes", || !["", &before].contains(&&*server()));
            assert_eq!(user(&place, &format!("cat {}/secret", place.dir())).fine(), "mine\n");
        }
    }
    run(&place, &format!("umount --dead {}", place.dir()));
    assert!(!place.is_mounted());
}

#[test]
fn what_root_shows_to_all_users_none_of_them_rules() {
    let Some(place) = place_of_user() else { return };
    let _lists = lists();
    prepare(&place);
    place.run(&["mkfs", "-q", "--size", "64M", place.image()]).fine();
    place.mount();
    let secret = place.dir.join("secret");
    fs::write(&secret, "mine\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    place.run(&["snapshot", "create", place.dir(), "first"]).fine();
    let now = variables(&place);
    assert!(as_user(OTHER, "stat", &[place.dir()]).code == 0, "it lets them in");
    for attack in &OF_ROOT {
        fails(&place, &now, attack);
    }
    for attack in &OF_ROOT {
        succeeds(&place, 0, &now, attack);
    }
    place.fsck();
}

#[test]
fn who_may_write_an_image_that_another_has_mounted_does_not_with_our_program() {
    let Some(place) = target() else { return };
    fs::set_permissions(&place.image, fs::Permissions::from_mode(0o666)).unwrap();
    let now = variables(&place);
    for attack in &IN_USE {
        fails(&place, &now, attack);
    }
    assert_eq!(user(&place, &format!("cat {}/secret", place.dir())).fine(), "mine\n");
    run(&place, &format!("umount {}", place.dir())).fine();
    place.fsck();
    for attack in &IN_USE {
        succeeds(&place, OTHER, &now, attack);
    }
}
