//! Two ordinary users on one machine, one of whom means harm: `OTHER` tries to read, hold up, lead astray or speak for `USER`, and root.
//! Callers of root's daemon who mean harm are in `hostile_callers.rs`.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::users::{OTHER, USER, place_of_user, shell};
use common::{Said, TestMount};

/// Longer than any command may be held up by whoever, and shorter than for ever.
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

/// The same, without an own directory for temporary files.
fn shared(place: &TestMount, args: &str) -> Said {
    user(place, &format!("unset TMPDIR; {}", program(place, args)))
}

/// A volume that `USER` has mounted.
fn mounted() -> Option<TestMount> {
    let place = place_of_user()?;
    run(&place, &format!("mkfs -q --size 64M {}", place.image())).fine();
    let mounted = run(
        &place,
        &format!("mount -o log={}.log {} {}", place.image(), place.image(), place.dir()),
    );
    assert_eq!(mounted.code, 0, "{mounted:?}");
    user(&place, &format!("echo mine >{}/secret", place.dir())).fine();
    Some(place)
}

fn daemon(place: &TestMount) -> u32 {
    let said = run(place, &format!("stats --json {}", place.dir())).fine();
    u32::try_from(common::number(&said, "pid")).unwrap()
}

/// Names that a user of this kind may find taken in `/tmp`; removed again.
struct InTmp(PathBuf);

impl InTmp {
    fn of(user: u32) -> InTmp {
        let path = PathBuf::from(format!("/tmp/holdfast-{user}"));
        let it = InTmp(path);
        it.remove();
        it
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for InTmp {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A program of `OTHER` that goes on until this is dropped.
struct Hostile(Child);

impl Hostile {
    /// Python that says "ready" when it has done its worst. It becomes `OTHER` by itself, who need not be allowed to start it.
    fn start(script: &str, args: &[&str]) -> Hostile {
        let (hostile, said) = Hostile::start_saying(script, args);
        assert_eq!(said, "ready");
        hostile
    }

    /// The same, and the line that it says.
    fn start_saying(script: &str, args: &[&str]) -> (Hostile, String) {
        let change = format!(
            "import json, os, socket, struct, subprocess, sys, threading
os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER})"
        );
        let mut python = Command::new("python3");
        python.args(["-c", &format!("{change}\n{script}")]).args(args).current_dir("/");
        let python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut hostile = Hostile(python.unwrap());
        let mut line = String::new();
        BufReader::new(hostile.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        (hostile, line.trim_end().to_owned())
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_one_user_has_another_neither_reads_nor_ends() {
    let Some(place) = mounted() else { return };
    let (image, dir, holdfast) = (place.image(), place.dir(), place.path("holdfast"));
    let daemon = daemon(&place);
    let runtime = PathBuf::from(place.path(&format!("u/holdfast-{USER}")));
    let found = fs::metadata(image).unwrap();
    let socket = runtime.join(format!("file-{:x}-{:x}.sock", found.dev(), found.ino()));
    assert!(socket.exists(), "the attack on it means something");
    let connects = "import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('reached')
except OSError:
    print('refused')
sys.stdin.read()";
    let connected = Hostile::start_saying(connects, &[socket.to_str().unwrap()]).1;
    assert_eq!(connected, "refused");
    let open = |path: &dyn std::fmt::Display| format!(": <{path}");
    let write = |path: &dyn std::fmt::Display| format!(": >>{path}");
    // What is attacked is there, and its owner may.
    for fine in [open(&image), write(&format!("{image}.log")), format!("ls {}", runtime.display())]
    {
        user(&place, &fine).fine();
    }
    let attacks = [
        format!("cat {dir}/secret"),
        format!("ls {dir}"),
        format!("touch {dir}/planted"),
        open(&image),
        write(&image),
        format!("flock -n {image} true"),
        open(&format!("{image}.log")),
        write(&format!("{image}.log")),
        format!("ls {}", runtime.display()),
        write(&format!("{}/lock", runtime.display())),
        format!("rm {}", socket.display()),
        format!("mv {} {}.gone", runtime.display(), runtime.display()),
        format!("{holdfast} umount {dir}"),
        format!("{holdfast} umount {image}"),
        format!("{holdfast} umount --dead {dir} && ! grep -q ' {dir} ' /proc/self/mounts"),
        format!("fusermount3 -u {dir}"),
        format!("fusermount3 -uz {dir}"),
        format!("kill {daemon}"),
        format!("kill -STOP {daemon}"),
        format!("{holdfast} stats {dir}"),
        format!("{holdfast} info {image}"),
        format!("{holdfast} ls {image}:/"),
        format!("{holdfast} mount -o ro {image} /mnt"),
        format!("{holdfast} snapshot create {dir} planted"),
        format!("{holdfast} list | grep -F {image}"),
        format!("{holdfast} metrics | grep -F {image}"),
        format!("cat /proc/{daemon}/environ"),
        format!("ls /proc/{daemon}/fd/"),
        format!("cat /proc/{daemon}/cwd/../{image}"),
        format!("echo 1 >/sys/fs/fuse/connections/{}/abort", fuse_number(&place)),
    ];
    for attack in attacks {
        for (how, world) in [("as a user", ""), ("as root of a sandbox", "unshare -Urm ")] {
            fs::write(place.path("attack.sh"), &attack).unwrap();
            let done =
                shell(OTHER, &format!("{world}timeout {PATIENCE} sh {}", place.path("attack.sh")));
            assert!(done.code != 0 && done.code != 124, "{attack} {how}: {done:?}");
        }
    }
    assert_eq!(user(&place, &format!("cat {dir}/secret")).fine(), "mine\n");
    assert_eq!(
        run(&place, &format!("snapshot list --json {dir}")).fine().matches("planted").count(),
        0
    );
    run(&place, &format!("umount {dir}")).fine();
    place.fsck();
}

/// The number of the mount below /sys/fs/fuse/connections.
fn fuse_number(place: &TestMount) -> String {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = text.lines().find(|line| line.contains(&format!(" {} ", place.dir()))).unwrap();
    line.split([' ', ':']).nth(3).unwrap().into()
}

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
        let began = Instant::now();
        let mounted = shared(&place, &format!("mount {image} {dir}"));
        assert_eq!((mounted.code, &*mounted.err), (0, ""), "{what}: {mounted:?}");
        // Another mount joins, both are found, and the volume can be unmounted as one.
        let joined = shared(&place, &format!("mount {image}:work {second}"));
        assert_eq!((joined.code, &*joined.err), (0, ""), "{what}: {joined:?}");
        let list = shared(&place, "list").fine();
        assert!(list.contains(dir) && list.contains(&second), "{what}: {list}");
        shared(&place, &format!("umount {image}")).fine();
        assert!(began.elapsed() < Duration::from_secs(50), "{what} holds a user up");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{what} was followed");
        assert!(!Path::new(&place.path("u/nothing")).exists(), "{what} was followed");
    }
    place.fsck();
}

/// Daemons of another user, which say what they like.
const LIARS: &str = r#"
import json, os, socket, struct, sys, threading
directory, image, directory_of_user, kind = sys.argv[1:]
os.mkdir(directory, 0o755)
words = "\x1b[2J\x1b]0;owned\x07\u009b31m"
def frame(thing):
    text = json.dumps(thing).encode()
    return struct.pack('<I', len(text)) + text
mount = dict(dir=words + directory_of_user, branch=words, snapshot=words, options=words, read_only=False, user=0)
served = dict(volume=image, uuid=words, label=words, read_only=False, linger=True, stopped=None, mounts=[mount])
def serve(s):
    while True:
        c, _ = s.accept()
        try:
            c.sendall(frame(dict(hello=dict(protocol=1))))
            if kind == 'mute':
                held.append(c)
                continue
            c.recv(65536)
            if kind == 'lies':
                c.sendall(frame(dict(served=served)))
            elif kind == 'endless':
                c.sendall(struct.pack('<I', 0xffffffff) + b'x' * 100)
            elif kind == 'slow':
                c.sendall(struct.pack('<I', 1000) + b'{')
            held.append(c)
        except OSError:
            pass
held = []
for name in ['file-1-%x.sock' % at for at in range(30)]:
    s = socket.socket(socket.AF_UNIX); s.bind(directory + '/' + name); s.listen(5)
    os.chmod(directory + '/' + name, 0o777)
    threading.Thread(target=serve, args=(s,), daemon=True).start()
os.mkfifo(directory + '/file-2-1.sock'); os.symlink('/etc/passwd', directory + '/file-2-2.sock')
print('ready', flush=True)
sys.stdin.read()
"#;

#[test]
fn daemons_of_another_user_hold_up_neither_user_nor_root_and_put_nothing_on_a_terminal() {
    let Some(place) = mounted() else { return };
    let planted = InTmp::of(OTHER);
    let (image, dir) = (place.image(), place.dir());
    for kind in ["lies", "mute", "endless", "slow"] {
        planted.remove();
        let directory = planted.0.to_str().unwrap();
        let _hostile = Hostile::start(LIARS, &[directory, image, dir, kind]);
        for list in ["list", "list --json"] {
            let said = run(&place, list);
            assert_eq!((said.code, &*said.err), (0, ""), "{kind}: {said:?}");
            assert_eq!(said.out.matches(image).count(), 1, "{kind} is believed: {}", said.out);
            let of_root = place.command(&["list"]).args(list.split(' ').skip(1)).output().unwrap();
            let shown = String::from_utf8_lossy(&of_root.stdout).into_owned();
            let unseen = |c: char| c.is_control() && c != '\n';
            assert!(!shown.contains(unseen) && shown.contains(dir), "{kind}: {shown:?}");
        }
        let metrics = place.run(&["metrics"]);
        assert!(metrics.code == 0 && !metrics.out.contains('\x1b'), "{kind}: {metrics:?}");
    }
    // None of them was taken for the daemon of this volume.
    run(&place, &format!("umount {image}")).fine();
    assert!(!place.is_mounted());
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

/// A mount that another user has made of a filesystem of their own, which says that it is of this volume.
#[test]
fn a_mount_that_another_has_made_in_our_name_is_neither_asked_nor_unmounted() {
    let Some(place) = mounted() else { return };
    let theirs = place.path("theirs\x1b[2J");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
    let script = "
import os, socket, subprocess, sys
image, directory = sys.argv[1:]
ours, sent = socket.socketpair()
helper = subprocess.Popen(
    ['fusermount3', '-o', 'fsname=%s,subtype=holdfast' % image, '--', directory],
    pass_fds=[sent.fileno()], env=dict(os.environ, _FUSE_COMMFD=str(sent.fileno())))
_, fds, _, _ = socket.recv_fds(ours, 1, 1)
print('ready', flush=True)
sys.stdin.read()";
    let hostile = Hostile::start(script, &[place.image(), &theirs]);
    let (image, dir) = (place.image(), place.dir());
    let began = Instant::now();
    for command in
        [format!("info {image}"), format!("stats {dir}"), "list".into(), "metrics".into()]
    {
        let said = run(&place, &command);
        assert_eq!((said.code, &*said.err), (0, ""), "{command}");
        assert!(!said.out.contains('\x1b') && !said.out.contains("theirs"), "{command}: {said:?}");
    }
    let of_root = place.run(&["metrics"]);
    assert!(of_root.code == 0 && !of_root.out.contains('\x1b'), "{of_root:?}");
    let unmounted = run(&place, &format!("umount {image}"));
    assert!(!unmounted.out.contains('\x1b') && !unmounted.err.contains('\x1b'), "{unmounted:?}");
    assert!(!place.is_mounted());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(mounts.contains("theirs"), "a mount of another user was unmounted");
    assert!(began.elapsed() < Duration::from_secs(100), "it holds a user up");
    drop(hostile);
    let _ = Command::new("umount").arg("-l").arg(&theirs).status();
    place.fsck();
}
