//! Daemons of another user that hand over what was not asked for, and what they say of mounts that are not theirs.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::process::{Command, Stdio};
use std::sync::PoisonError;

use crate::common::users::{OTHER, place_of_user};
use crate::common::{PROGRAM, TestMount, signal, wait_for, wait_until_ended};
use crate::{Hostile, InTmp, LISTS, lists, their_directory};

/// A daemon in our name whose every word has a descriptor beside it, of a file on a server that never answers FLUSH: its close waits for
/// ever.
const MUTE: &str = r#"
directory, image, dir, socket_name = sys.argv[1:]
ours, theirs = socket.socketpair()
helper = subprocess.Popen(
    ['fusermount3', '-o', 'fsname=%s.other,subtype=holdfast' % image, '--', dir],
    pass_fds=[theirs.fileno()], env=dict(os.environ, _FUSE_COMMFD=str(theirs.fileno())))
_, fds, _, _ = socket.recv_fds(ours, 1, 1)
helper.wait()
fuse = fds[0]
attr = lambda ino, mode: struct.pack('<6Q10I', ino, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 2, 2, 0, 4096, 0)
def serve():
    while True:
        try:
            request = os.read(fuse, 1 << 21)
        except OSError:
            return
        _, opcode, unique, node = struct.unpack('<IIQQ', request[:24])
        error, answer = -38, b''
        if opcode == 26:
            error, answer = 0, struct.pack('<IIIIHHIIHHI7I', 7, 31, 0, 0, 16, 12, 131072, 1, 0, 0, 0, *[0] * 7)
        elif opcode == 1:
            error, answer = 0, struct.pack('<4Q2I', 2, 0, 9, 9, 0, 0) + attr(2, 0o100644)
        elif opcode == 3:
            error, answer = 0, struct.pack('<QII', 9, 0, 0) + attr(node, 0o40755 if node == 1 else 0o100644)
        elif opcode == 14:
            error, answer = 0, struct.pack('<QII', 0, 0, 0)
        elif opcode in (2, 25, 42):
            continue
        try:
            os.write(fuse, struct.pack('<IiQ', 16 + len(answer), error, unique) + answer)
        except OSError:
            pass
threading.Thread(target=serve, daemon=True).start()
mute = os.open(dir + '/file', os.O_RDONLY)
os.mkdir(directory, 0o755)
s = socket.socket(socket.AF_UNIX)
s.bind('%s/%s' % (directory, socket_name)); s.listen(50); os.chmod('%s/%s' % (directory, socket_name), 0o777)
held = []
def say(c, thing):
    text = json.dumps(thing).encode()
    socket.send_fds(c, [struct.pack('<I', len(text)) + text], [mute])
def listen():
    while True:
        c, _ = s.accept()
        held.append(c)
        try:
            say(c, dict(hello=dict(protocol=1)))
            c.recv(65536)
            say(c, dict(refused=dict(why='no')))
        except OSError:
            pass
threading.Thread(target=listen, daemon=True).start()
print('ready', flush=True)
sys.stdin.read()
"#;

/// The mount of a server that does not answer: aborted first, since its program could not end while it waits for itself.
struct Mute(String);

impl Drop for Mute {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        let _ = umount.args(["-f", "-l", &self.0]).stderr(Stdio::null()).status();
    }
}

#[test]
fn what_another_user_hands_over_unasked_holds_up_no_command_of_root() {
    let Some(place) = place_of_user() else { return };
    let _alone = LISTS.write().unwrap_or_else(PoisonError::into_inner);
    let planted = InTmp::of(OTHER);
    let (image, dir) = (place.path("theirs.img"), place.path("theirs"));
    place.run(&["mkfs", "-q", "--size", "64M", &image]).fine();
    chown(&image, Some(OTHER), Some(OTHER)).unwrap();
    their_directory(&dir);
    let found = fs::metadata(&image).unwrap();
    let socket = format!("file-{:x}-{:x}.sock", found.dev(), found.ino());
    let directory = planted.0.to_str().unwrap();
    let hostile = Hostile::start(MUTE, &[directory, &image, &dir, &socket]);
    let mute = Mute(dir.clone());
    for args in [
        &["list"][..],
        &["restart", &image],
        &["umount", "--timeout", "5", &image],
        &["umount", "--timeout", "5", &dir],
    ] {
        let mut command = Command::new(PROGRAM);
        let command = command.args(args).stdin(Stdio::null());
        let mut command = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // One that hangs ends when the server has: when this test has failed.
        wait_for(&format!("{args:?} hangs"), || command.try_wait().unwrap().is_some());
    }
    drop(mute);
    drop(hostile);
}

/// A mount that names root's volume, by the user whom its image belongs to, is asked beside root's own and answers nothing.
#[test]
fn what_another_user_mounts_by_the_same_name_holds_up_no_sync() {
    let Some(place) = place_of_user() else { return };
    let _alone = LISTS.write().unwrap_or_else(PoisonError::into_inner);
    let planted = InTmp::of(OTHER);
    let dir = place.path("theirs");
    place.run(&["mkfs", "-q", "--size", "64M", place.image()]).fine();
    place.mount();
    chown(place.image(), Some(OTHER), Some(OTHER)).unwrap();
    their_directory(&dir);
    // By the same name, and without an answer to an open of its directory or a question for its size.
    let mute = MUTE.replace("%s.other", "%s").replace("(2, 25, 42)", "(2, 22, 25, 27, 42)");
    let directory = planted.0.to_str().unwrap();
    let hostile = Hostile::start(&mute, &[directory, place.image(), &dir, "file-0-0.sock"]);
    let mute = Mute(dir.clone());
    fs::write(place.dir.join("kept"), "kept").unwrap();
    let mut sync = Command::new(PROGRAM);
    let sync = sync.args(["sync", place.dir()]).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut sync = sync.spawn().unwrap();
    wait_for("the sync hangs", || sync.try_wait().unwrap().is_some());
    let done = sync.wait_with_output().unwrap();
    drop(mute);
    drop(hostile);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("may not be durable"), "{said}");
    place.umount();
}

/// A daemon that says of this volume that it has it, mounted there by root; and it listens where no directory of its user is called so.
const CLAIMS: &str = r#"
directory, image, dir = sys.argv[1:]
mount = dict(dir=dir, branch='main', snapshot=None, options='rw', read_only=False, user=0)
served = dict(volume=image, uuid='', label='', read_only=False, linger=False, stopped=None, mounts=[mount])
def frame(thing):
    text = json.dumps(thing).encode()
    return struct.pack('<I', len(text)) + text
def serve(s, touched):
    while True:
        c, _ = s.accept()
        if touched:
            open(touched, 'w').close()
        c.sendall(frame(dict(hello=dict(protocol=1))))
        c.recv(65536)
        c.sendall(frame(dict(served=served)))
def listen(directory, touched=None):
    os.mkdir(directory, 0o755)
    s = socket.socket(socket.AF_UNIX); path = directory + '/file-1-1.sock'
    s.bind(path); s.listen(5); os.chmod(path, 0o777)
    threading.Thread(target=serve, args=(s, touched), daemon=True).start()
listen(directory)
for other in ['x', '0', '4711', '02']:
    listen('/tmp/holdfast-' + other, '/tmp/holdfast-%s/touched' % other)
print('ready', flush=True)
sys.stdin.read()
"#;

#[test]
fn another_users_daemon_is_believed_of_that_users_mounts_alone_and_heard_in_its_own_directory() {
    let Some(_) = place_of_user() else { return };
    let _alone = LISTS.write().unwrap_or_else(PoisonError::into_inner);
    let planted = InTmp::of(OTHER);
    let others = ["x", "0", "4711", "02"].map(|name| InTmp(format!("/tmp/holdfast-{name}").into()));
    others.iter().for_each(InTmp::remove);
    let place = TestMount::with_volume();
    place.mount();
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    let (image, dir) = (place.image(), place.dir());
    let hostile = Hostile::start(CLAIMS, &[planted.0.to_str().unwrap(), image, dir]);
    let list = place.run(&["list"]).fine();
    let rows: Vec<_> = list.lines().filter(|line| line.starts_with(image)).collect();
    let is_dead = |row: &&&str| row.contains(dir) && row.contains(" dead ");
    let is_claim = |row: &&&str| row.contains("(elsewhere)") && row.contains(&format!(" {OTHER} "));
    assert_eq!(rows.iter().filter(is_dead).count(), 1, "{list}");
    assert_eq!((rows.len(), rows.iter().filter(is_claim).count()), (2, 1), "{list}");
    let json = place.run(&["list", "--json"]).fine();
    assert!(json.contains(r#""state":"dead""#) && json.contains(r#""mounts":[]"#), "{json}");
    for other in &others {
        assert!(!other.0.join("touched").exists(), "{} was asked", other.0.display());
    }
    drop(hostile);
}

#[test]
fn a_link_in_another_users_directory_has_roots_daemon_do_nothing() {
    let Some(_) = place_of_user() else { return };
    let _lists = lists();
    let planted = InTmp::of(OTHER);
    let socket = |image: &str| {
        let found = fs::metadata(image).unwrap();
        format!("file-{:x}-{:x}.sock", found.dev(), found.ino())
    };
    let place = TestMount::with_volume();
    place.run(&["mount", "--linger", place.image(), place.dir()]).fine();
    let daemon = place.daemon();
    place.umount();
    let theirs = place.path("theirs.img");
    place.run(&["mkfs", "-q", "--size", "64M", &theirs]).fine();
    chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
    their_directory(planted.0.to_str().unwrap());
    let of_root = format!("/run/holdfast/{}", socket(place.image()));
    symlink(&of_root, planted.0.join(socket(&theirs))).unwrap();
    place.run(&["umount", &theirs]).fails(32, "is not a mounted Holdfast volume");
    place.run(&["restart", &theirs]).fails(1, "no process serves it");
    let list = place.run(&["list"]).fine();
    assert!(list.contains(&format!(" {daemon} ")), "{list}");
    place.run(&["umount", place.image()]).fine();
    wait_until_ended(daemon);
}

#[test]
fn a_stranger_who_unmounts_is_told_whose_mount_it_is() {
    let Some(place) = place_of_user() else { return };
    let _lists = lists();
    place.run(&["mkfs", "-q", "--size", "64M", place.image()]).fine();
    place.mount();
    let program = place.path("holdfast");
    let said = crate::common::users::as_user(OTHER, &program, &["umount", place.dir()]);
    said.fails(32, "was mounted by user 0: that user and root may unmount it");
    assert!(place.is_mounted());
}
