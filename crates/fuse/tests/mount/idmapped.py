"""Mounts DIR once more at PLACE, with other owners: what is there N is N + 100000 on the volume.

Prints what becomes of some calls through PLACE, and unmounts it.
"""
import ctypes, errno, os, sys

OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
CLONE_NEWUSER = 0x10000000
AT_EMPTY_PATH, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, ATTR_IDMAP = 0x1000, 1, 4, 0x100000
SHIFT = 100000
libc = ctypes.CDLL(None, use_errno=True)


class Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ["set", "clear", "propagation", "userns_fd"]]


def check(done, what):
    if done < 0:
        code = ctypes.get_errno()
        print(what, errno.errorcode[code])
        sys.exit(1)
    return done


def user_namespace():
    """A descriptor of one in which our N is SHIFT + N."""
    (ours, theirs), (word, give) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(give)
        if libc.unshare(CLONE_NEWUSER) == 0:
            os.write(theirs, b".")
        os.read(word, 1)
        os._exit(0)
    assert os.read(ours, 1) == b"."
    for kind in ["uid_map", "gid_map"]:
        with open(f"/proc/{child}/{kind}", "w") as file:
            file.write(f"{SHIFT} 0 65536")
    fd = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.close(give)
    os.waitpid(child, 0)
    return fd


def said(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


def owner(path):
    found = os.lstat(path)
    return f"{found.st_uid}:{found.st_gid} {found.st_mode:o}"


def as_user(uid, call):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.write(write, str(said(call)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    return os.read(read, 1000).decode()


def main(source, place):
    tree = check(libc.syscall(OPEN_TREE, -100, source.encode(), OPEN_TREE_CLONE), "open_tree")
    attributes = Attributes(set=ATTR_IDMAP, userns_fd=user_namespace())
    size = ctypes.sizeof(attributes)
    check(
        libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(attributes), size),
        "mount_setattr",
    )
    check(
        libc.syscall(MOVE_MOUNT, tree, b"", -100, place.encode(), MOVE_MOUNT_F_EMPTY_PATH),
        "move_mount",
    )
    try:
        calls(source, place)
    finally:
        libc.umount2(place.encode(), 2)


def calls(source, place):
    os.umask(0o022)

    def both(name):
        return f"{owner(f'{place}/{name}')}, on the volume {owner(f'{source}/{name}')}"

    print("seen", both("given"))
    os.mkdir(f"{place}/d")
    open(f"{place}/d/f", "w").close()
    os.symlink("f", f"{place}/d/s")
    os.mkfifo(f"{place}/d/p")
    fd = os.open(f"{place}/d", os.O_TMPFILE | os.O_RDWR, 0o640)
    libc.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, f"{place}/d/t".encode(), 0x400)
    os.close(fd)
    libc.renameat2(-100, f"{place}/d/f".encode(), -100, f"{place}/d/g".encode(), 4)
    for name in ["d", "d/g", "d/s", "d/p", "d/t", "d/f"]:
        print("made", name, both(name))
    os.chown(f"{place}/d/g", 7, 8)
    print("chown", both("d/g"))
    print("chown beyond", said(lambda: os.chown(f"{place}/d/g", 70000, -1)))
    os.chmod(f"{place}/d/g", 0o4711)
    os.chmod(f"{place}/d", 0o777)

    def write():
        with open(f"{place}/d/mine", "w") as file:
            file.write("x")
        return both("d/mine")

    def change():
        fd = os.open(f"{place}/d/g", os.O_WRONLY)
        os.write(fd, b"x")
        return both("d/g")

    print("user makes", as_user(7, write))
    print("owner writes", as_user(7, change))
    print("stranger writes", as_user(9, change))
    print("stranger removes", as_user(9, lambda: os.rmdir(f"{place}/given")))
    os.chmod(f"{place}/d/g", 0o4711)
    with open(f"{place}/d/g", "r+") as file:
        os.posix_fallocate(file.fileno(), 0, 5000)
        file.truncate(10)
    print("root keeps", both("d/g"))
    os.setxattr(f"{place}/d/g", "trusted.a", b"1")
    print("root lists", os.listxattr(f"{place}/d/g"))
    print("user lists", as_user(9, lambda: os.listxattr(f"{place}/d/g")))
    print("other user", said(lambda: os.mkdir(f"{source}/d/direct")), owner(f"{source}/d/direct"))
    print("not mapped", as_user(7, lambda: os.mkdir(f"{source}/given/x")))
    print("unmapped", owner(f"{place}/root"))
    print("unmapped refuses", said(lambda: os.mkdir(f"{place}/root/x")))


main(sys.argv[1], sys.argv[2])
