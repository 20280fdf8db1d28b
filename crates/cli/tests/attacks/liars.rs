//! Daemons and mounts of another user, which say what they like.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::PoisonError;

use crate::common::users::{OTHER, place_of_user};
use crate::common::{PROGRAM, TestMount, said as said_by, wait_for};
use crate::{Hostile, InTmp, LISTS, PATIENCE, TheirMount, lists, mounted, run, their_directory};

/// Daemons of another user, which say what they like: each of five kinds twice.
const LIARS: &str = r#"
directory, image, dir = sys.argv[1:]
os.mkdir(directory, 0o755)
words = "\x1b[2J\x1b]0;owned\x07\u009b31m"
def frame(thing):
    text = json.dumps(thing).encode()
    return struct.pack('<I', len(text)) + text
mount = dict(dir=words + dir, branch=words, snapshot=words, options=words, read_only=False, user=0)
served = dict(volume=image + words, uuid=words, label=words, read_only=False, linger=True, stopped=None, mounts=[mount])
held = []
def serve(s, kind):
    while True:
        c, _ = s.accept()
        held.append(c)
        try:
            if kind == 'silent':
                continue
            c.sendall(frame(dict(hello=dict(protocol=1))))
            c.recv(65536)
            if kind == 'lies':
                c.sendall(frame(dict(served=served)))
            elif kind == 'endless':
                c.sendall(struct.pack('<I', 0xffffffff) + b'x' * 100)
            elif kind == 'slow':
                c.sendall(struct.pack('<I', 1000) + b'{')
            elif kind == 'nested':
                c.sendall(struct.pack('<I', 1000000) + b'[' * 1000000)
        except OSError:
            pass
for at in range(10):
    s = socket.socket(socket.AF_UNIX); path = '%s/file-1-%x.sock' % (directory, at)
    s.bind(path); s.listen(5); os.chmod(path, 0o777)
    kind = ['lies', 'silent', 'endless', 'slow', 'nested'][at % 5]
    threading.Thread(target=serve, args=(s, kind), daemon=True).start()
os.mkfifo(directory + '/file-2-1.sock'); os.symlink('/etc/passwd', directory + '/file-2-2.sock')
print('ready', flush=True)
sys.stdin.read()
"#;

#[test]
fn daemons_of_another_user_hold_up_neither_user_nor_root_and_put_nothing_on_a_terminal() {
    let Some(place) = mounted() else { return };
    let _alone = LISTS.write().unwrap_or_else(PoisonError::into_inner);
    let planted = InTmp::of(OTHER);
    let (image, dir) = (place.image(), place.dir());
    let roots = TestMount::with_volume();
    roots.mount();
    let directory = planted.0.to_str().unwrap();
    let _hostile = Hostile::start(LIARS, &[directory, image, dir]);
    for list in ["list", "list --json"] {
        let said = run(&place, list);
        assert_eq!((said.code, &*said.err), (0, ""), "{said:?}");
        assert_eq!(said.out.matches(image).count(), 1, "a liar is believed: {}", said.out);
    }
    // Root looks at the daemons of all users, for some seconds of one user: at the same time here.
    let of_root = [&["list"][..], &["list", "--json"], &["metrics"]].map(|args| {
        let mut command = Command::new("timeout");
        command.args([PATIENCE, PROGRAM]).args(args).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for (at, said) in of_root.into_iter().enumerate() {
        let said = said_by(said.wait_with_output().unwrap());
        assert_eq!(said.code, 0, "{at}: {said:?}");
        let shown = format!("{}{}", said.out, said.err);
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{at}: {shown:?}");
        assert!(shown.contains(roots.dir()), "{at}: {shown}");
        // What it says, if there was time for it, is shown as what it is: a claim, about no mount of root's.
        let claims = shown.lines().filter(|line| line.contains("u{1b}[2J"));
        claims.for_each(|line| assert!(line.contains("(elsewhere)"), "{at}: {shown}"));
    }
    // None of them was taken for the daemon of this volume.
    run(&place, &format!("umount {image}")).fine();
    assert!(!place.is_mounted());
    place.fsck();
}

/// What root's daemon hears from `OTHER`; it says "ready" when a question that makes sense is answered beside all that.
const NONSENSE: &str = r#"
path, held = sys.argv[1], []
def connected():
    s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(path); held.append(s)
    return s
for bytes in [b'', b'\0\0\0\0', struct.pack('<I', 0xffffffff) + b'x' * 100000, struct.pack('<I', 60000) + b'[' * 60000,
        struct.pack('<I', 10) + b'"li', struct.pack('<I', 4) + b'\xff\xfe\x1b[', struct.pack('<I', 6) + b'"none"']:
    try:
        connected().sendall(bytes)
    except OSError:
        pass
# Descriptors that it has not asked for, more than it takes.
s = connected()
socket.send_fds(s, [struct.pack('<I', 6) + b'"list"'], [0] * 200)
s = connected()
s.sendall(struct.pack('<I', 6) + b'"list"')
heard = b''
while b'served' not in heard:
    more = s.recv(65536)
    if not more:
        break
    heard += more
print('ready' if b'served' in heard else heard, flush=True)
sys.stdin.read()
"#;

#[test]
fn nonsense_from_another_user_keeps_roots_daemon_from_nothing() {
    let Some(_) = place_of_user() else { return };
    let place = TestMount::with_volume();
    place.mount();
    let found = fs::metadata(&place.image).unwrap();
    let socket = format!("/run/holdfast/file-{:x}-{:x}.sock", found.dev(), found.ino());
    let count = || fs::read_dir(format!("/proc/{}/fd", place.daemon())).unwrap().count();
    let before = count();
    let hostile = Hostile::start(NONSENSE, &[&socket]);
    assert!(place.run(&["list"]).fine().contains(place.dir()));
    fs::write(place.dir.join("file"), "content").unwrap();
    drop(hostile);
    wait_for("descriptors of callers that are gone stay", || count() <= before);
    place.umount();
    place.fsck();
}

/// A mount that another user has made of a filesystem of their own, which says that it is of this volume.
#[test]
fn a_mount_that_another_has_made_in_our_name_is_neither_asked_nor_unmounted() {
    let Some(place) = mounted() else { return };
    let _lists = lists();
    let theirs = place.path("theirs\x1b[2J");
    their_directory(&theirs);
    let _theirs = TheirMount(theirs.clone());
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
    drop(hostile);
    place.fsck();
}
