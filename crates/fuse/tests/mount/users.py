"""Every call that a permission decides, by several users, on a tree made below a directory.

Prints a line for each call: who, what, and what came of it. Run on two filesystems, the lines must be the same.
"""
import ctypes, errno, fcntl, os, stat, struct, sys, traceback

OWNER, MEMBER, STRANGER = 54321, 54322, 54323
GROUP = 54400
libc = ctypes.CDLL(None, use_errno=True)


def acl(*entries):
    """An access control list: (tag, permissions, id) each."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF
LIST = acl((1, 6, NOBODY), (2, 4, STRANGER), (4, 4, NOBODY), (16, 6, NOBODY), (32, 0, NOBODY))
PLAIN = acl((1, 7, NOBODY), (4, 5, NOBODY), (32, 5, NOBODY))


def put(path, mode, owner=OWNER, group=OWNER, text=b"#!/bin/true\n"):
    with open(path, "wb") as file:
        file.write(text)
    os.chown(path, owner, group)
    os.chmod(path, mode)


def folder(path, mode, owner=OWNER, group=OWNER):
    os.mkdir(path)
    os.chown(path, owner, group)
    os.chmod(path, mode)


def tree():
    os.umask(0)
    folder("priv", 0o700)
    folder("open", 0o755)
    folder("sticky", 0o1777)
    folder("group", 0o2770, OWNER, GROUP)
    folder("drop", 0o733)
    folder("all", 0o777)
    for at in ["priv", "open", "sticky", "group", "drop", "all"]:
        put(f"{at}/f", 0o644)
        put(f"{at}/mine", 0o600)
        put(f"{at}/ro", 0o444)
        put(f"{at}/x", 0o711)
        put(f"{at}/grp", 0o660, OWNER, GROUP)
        put(f"{at}/wide", 0o666)
        put(f"{at}/setid", 0o6777)
        put(f"{at}/setgid", 0o2775, OWNER, GROUP)
        put(f"{at}/listed", 0o640)
        os.setxattr(f"{at}/listed", "system.posix_acl_access", LIST)
        os.setxattr(f"{at}/f", "user.a", b"1")
        os.setxattr(f"{at}/f", "trusted.a", b"1")
        os.symlink("f", f"{at}/s")
        folder(f"{at}/d", 0o755)
        folder(f"{at}/gd", 0o2775, OWNER, GROUP)
        os.mkfifo(f"{at}/p", 0o600)
        os.chown(f"{at}/p", OWNER, OWNER)
        os.chmod(f"{at}/p", 0o600)


def closing(fd):
    os.close(fd)


def opened(flags):
    return lambda path: closing(os.open(path, flags))


def mode_of(path):
    found = os.lstat(path)
    return f"{found.st_mode:o} {found.st_uid}:{found.st_gid}"


def rename2(old, new, flags):
    if libc.renameat2(-100, old.encode(), -100, new.encode(), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def run(path):
    child = os.fork()
    if child == 0:
        try:
            os.execv(path, [path])
        except OSError as error:
            os._exit(error.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, "execv")


def made(call):
    """A name of the caller's own, its mode, and away with it."""
    def do(at):
        path = f"{at}/new"
        call(path)
        said = mode_of(path)
        (os.rmdir if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink)(path)
        return said
    return do


def chdir(path):
    back = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(path)
        os.fchdir(back)
    finally:
        os.close(back)


def allocated(path):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.posix_fallocate(fd, 0, 20000)
    finally:
        os.close(fd)
    return mode_of(path)


def written(path):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, b"changed")
    finally:
        os.close(fd)
    return mode_of(path)


def copied(path):
    source = os.open("all/wide", os.O_RDONLY)
    target = os.open(path, os.O_WRONLY)
    try:
        os.copy_file_range(source, target, 4)
    finally:
        os.close(source)
        os.close(target)
    return mode_of(path)


def tmpfile(at):
    fd = os.open(at, os.O_TMPFILE | os.O_RDWR, 0o640)
    found = os.fstat(fd)
    os.close(fd)
    return f"{found.st_mode:o} {found.st_uid}:{found.st_gid}"


def then_mode(call):
    def do(path):
        call(path)
        return mode_of(path)
    return do


def inside(call):
    """What becomes of a set-gid directory."""
    return lambda at: then_mode(call)(f"{at}/gd")


FILES = {
    "stat": lambda path: mode_of(path),
    "access-r": lambda path: os.access(path, os.R_OK, effective_ids=True),
    "access-w": lambda path: os.access(path, os.W_OK, effective_ids=True),
    "access-x": lambda path: os.access(path, os.X_OK, effective_ids=True),
    "open-r": opened(os.O_RDONLY | os.O_NONBLOCK),
    "open-w": opened(os.O_WRONLY | os.O_NONBLOCK),
    "open-rw": opened(os.O_RDWR | os.O_NONBLOCK),
    "open-path": opened(os.O_PATH),
    "open-creat": opened(os.O_RDWR | os.O_CREAT | os.O_NONBLOCK),
    "open-excl": opened(os.O_RDWR | os.O_CREAT | os.O_EXCL),
    "open-noatime": opened(os.O_RDONLY | os.O_NOATIME | os.O_NONBLOCK),
    "run": run,
    "getxattr": lambda path: os.getxattr(path, "user.a"),
    "getxattr-trusted": lambda path: os.getxattr(path, "trusted.a"),
    "getxattr-acl": lambda path: len(os.getxattr(path, "system.posix_acl_access")),
    "listxattr": lambda path: sorted(os.listxattr(path)),
    "setfacl-first": then_mode(lambda path: os.setxattr(path, "system.posix_acl_access", PLAIN)),
    "utime-now": lambda path: os.utime(path),
    "utime-at": lambda path: os.utime(path, (5, 5)),
    "setxattr": lambda path: os.setxattr(path, "user.b", b"2"),
    "removexattr": lambda path: os.removexattr(path, "user.b"),
    "setxattr-trusted": lambda path: os.setxattr(path, "trusted.b", b"2"),
    "setxattr-security": lambda path: os.setxattr(path, "security.b", b"2"),
    "write": written,
    "chmod-setid": then_mode(lambda path: os.chmod(path, 0o6775)),
    "fallocate": allocated,
    "chmod-setid2": then_mode(lambda path: os.chmod(path, 0o6775)),
    "copy": copied,
    "chmod-setid3": then_mode(lambda path: os.chmod(path, 0o6775)),
    "truncate": then_mode(lambda path: os.truncate(path, 3)),
    "chmod-setid4": then_mode(lambda path: os.chmod(path, 0o6775)),
    "open-trunc": then_mode(opened(os.O_WRONLY | os.O_TRUNC)),
    "chmod-setid5": then_mode(lambda path: os.chmod(path, 0o6775)),
    "open-r-trunc": then_mode(opened(os.O_RDONLY | os.O_TRUNC)),
    "chmod-setid6": then_mode(lambda path: os.chmod(path, 0o6775)),
    "creat": then_mode(opened(os.O_WRONLY | os.O_CREAT | os.O_TRUNC)),
    "chmod-setid7": then_mode(lambda path: os.chmod(path, 0o6775)),
    "setfacl": then_mode(lambda path: os.setxattr(path, "system.posix_acl_access", LIST)),
    "setfacl-plain": then_mode(lambda path: os.setxattr(path, "system.posix_acl_access", PLAIN)),
    "setfacl-none": then_mode(lambda path: os.removexattr(path, "system.posix_acl_access")),
    "chgrp-group": then_mode(lambda path: os.chown(path, -1, GROUP)),
    "chgrp-other": then_mode(lambda path: os.chown(path, -1, 3)),
    "chown": then_mode(lambda path: os.chown(path, 3, -1)),
    "link": lambda path: os.link(path, "all/linked"),
    "unlink-link": lambda path: os.unlink("all/linked"),
    "rename": lambda path: os.rename(path, path + "2"),
    "rename-back": lambda path: os.rename(path + "2", path),
    "rename-away": lambda path: os.rename(path, "all/moved"),
    "rename-home": lambda path: os.rename("all/moved", path),
    "exchange": lambda path: rename2(path, "all/other", 2),
    "exchange-back": lambda path: rename2(path, "all/other", 2),
}
FOLDERS = {
    "list": lambda at: sorted(os.listdir(at)),
    "chdir": chdir,
    "statvfs": lambda at: os.statvfs(at).f_namemax,
    "absent": lambda at: os.stat(f"{at}/absent"),
    "readlink": lambda at: os.readlink(f"{at}/s"),
    "mkdir": made(lambda path: os.mkdir(path, 0o755)),
    "mkfifo": made(lambda path: os.mkfifo(path, 0o640)),
    "mknod": made(lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))),
    "symlink": made(lambda path: os.symlink("target", path)),
    "create": made(opened(os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
    "tmpfile": tmpfile,
    "fsync": lambda at: fsynced(at),
    "setfacl-dir": inside(lambda path: os.setxattr(path, "system.posix_acl_access", LIST)),
    "chmod-dir": inside(lambda path: os.chmod(path, 0o2775)),
    "setfacl-default": lambda at: os.setxattr(at + "/d", "system.posix_acl_default", LIST),
    "rmdir": lambda at: os.rmdir(f"{at}/d"),
    "unlink": lambda at: os.unlink(f"{at}/ro"),
    "rename-over": lambda at: os.rename(f"{at}/wide", f"{at}/f"),
}


def fsynced(at):
    fd = os.open(at, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def attempt(who, what, path, call):
    try:
        said = call(path)
    except OSError as error:
        said = errno.errorcode.get(error.errno, error.errno)
    print(who, what, path, "->", said, flush=True)


def all_calls(who):
    places = ["priv", "open", "sticky", "group", "drop", "all"]
    names = ["f", "mine", "ro", "x", "grp", "wide", "setid", "setgid", "listed", "s", "p"]
    for at in places:
        for name in names:
            for what, call in FILES.items():
                if name == "p" and what in ["write", "run", "open-w", "creat"]:
                    continue
                if name == "p" and "open" in what and "path" not in what:
                    continue
                if name == "p" and what in ["fallocate", "copy", "truncate"]:
                    continue
                attempt(who, what, f"{at}/{name}", call)
        for what, call in FOLDERS.items():
            attempt(who, what, at, call)


def main(root):
    os.chdir(root)
    os.chmod(".", 0o755)
    users = [
        ("stranger", STRANGER, STRANGER, []),
        ("member", MEMBER, MEMBER, [GROUP]),
        ("owner", OWNER, OWNER, []),
        ("root", 0, 0, []),
    ]
    for who, uid, gid, groups in users:
        at = who
        folder(at, 0o777, 0, 0)
        os.chdir(at)
        tree()
        # Something that belongs to the caller, to exchange with.
        put("all/other", 0o644, uid, gid)
        child = os.fork()
        if child == 0:
            try:
                os.setgroups(groups)
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
                all_calls(who)
                code = 0
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            os._exit(code)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"{who} did not come to an end")
        os.chdir("..")


main(sys.argv[1])
