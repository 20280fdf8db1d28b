"""Calls on files with flags that Linux lets pass, as it does not know of them: what others read is what the file has.

Arguments: a directory; `kernel`, if the kernel opens files without asking. As root.
"""
import ctypes, errno, fcntl, mmap, os, struct, sys, time

directory, kernel_opens = sys.argv[1], sys.argv[2] == "kernel"
SETFLAGS, IMMUTABLE, APPEND = 0x40086602, 0x10, 0x20
CAPABILITIES = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
libc = ctypes.CDLL(None, use_errno=True)

def chattr(path, flags):
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(file, SETFLAGS, struct.pack("l", flags))
    finally:
        os.close(file)

def made(name, content=b"as it was" + bytes(9000)):
    path = os.path.join(directory, name)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, 0o666)
    return path

def refused(expected, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == expected, error
    else:
        raise AssertionError("it is allowed")

def expect_read(path, content):
    "The kernel drops pages soon, and when it likes."
    until = time.monotonic() + 60
    while True:
        with open(path, "rb") as file:
            found = file.read(len(content))
        if found == content:
            return
        assert time.monotonic() < until, found
        time.sleep(0.005)

def expect_no_store(path, file, memory, content):
    "What is stored is gone as soon as the kernel has written it, and no call of others fails for that."
    for at, byte in [(0, b"X"), (4096, b"Y")]:
        memory[at:at + 1] = byte
    memory.flush()
    expect_read(path, content)
    memory[0:1] = b"Z"
    assert libc.syncfs(file) == 0, ctypes.get_errno()
    expect_read(path, content)
    os.fsync(file)

# What was stored before the flags came stays, and nothing that comes later.
for name, flags in [("immutable", IMMUTABLE), ("grows", APPEND)]:
    path = made(name)
    file = os.open(path, os.O_RDWR)
    memory = mmap.mmap(file, 8192)
    memory[0:2] = b"AS"
    chattr(path, flags)
    expect_read(path, b"AS it was\0")
    expect_no_store(path, file, memory, b"AS it was\0")
    refused(errno.EPERM, os.pwrite, file, b"x", 0)
    refused(errno.EPERM, os.ftruncate, file, 1)
    source = os.open(made("source", b"other"), os.O_RDONLY)
    refused(errno.EPERM, os.copy_file_range, source, file, 5, 0, 0)
    # What is allowed again is so at once.
    chattr(path, 0)
    memory[0:2] = b"is"
    memory.flush()
    expect_read(path, b"is it was\0")
    memory.close()
    os.close(file)

# Files that are opened behind the flags.
path = made("log")
chattr(path, APPEND)
if kernel_opens:
    for name in ["log", "fixed"]:
        path = made(name) if name == "fixed" else path
        chattr(path, IMMUTABLE if name == "fixed" else APPEND)
        file = os.open(path, os.O_RDWR | os.O_APPEND)
        with mmap.mmap(file, 8192) as memory:
            expect_no_store(path, file, memory, b"as it was\0")
        os.close(file)
    path = os.path.join(directory, "log")
else:
    refused(errno.EPERM, os.open, path, os.O_RDWR | os.O_APPEND)
    refused(errno.EPERM, os.open, path, os.O_RDWR)
with open(path, "ab", buffering=0) as log:
    log.write(b"more")
    log.write(b" and more")
with open(path, "rb") as log:
    assert log.read() == b"as it was" + bytes(9000) + b"more and more"

# Capabilities go with an append, by root as well.
path = made("prog", b"#!")
os.setxattr(path, "security.capability", CAPABILITIES)
chattr(path, APPEND)
refused(errno.EPERM, os.setxattr, path, "security.capability", CAPABILITIES)
with open(path, "ab", buffering=0) as prog:
    prog.write(b"more")
refused(errno.ENODATA, os.getxattr, path, "security.capability")
path = made("fixed prog", b"#!")
os.setxattr(path, "security.capability", CAPABILITIES)
chattr(path, IMMUTABLE)
refused(errno.EPERM, os.removexattr, path, "security.capability")
refused(errno.EPERM, os.truncate, path, 0)
assert os.getxattr(path, "security.capability") == CAPABILITIES

# Nobody but root sets flags, nor takes them away; not of a file of one's own either.
mine = made("mine")
os.chown(mine, 65534, 65534)
for before, wanted in [(0, IMMUTABLE), (0, APPEND), (IMMUTABLE, 0)]:
    chattr(mine, before)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            refused(errno.EPERM, chattr, mine, wanted)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, (before, wanted)
