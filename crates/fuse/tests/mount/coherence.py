"""Asynchronous direct writes while others read through the page cache.

When a write has ended, every reader sees it. Prints how often that was not so.
Arguments: a file, and the numbers of the system calls io_setup, io_submit and io_getevents.
"""
import ctypes, mmap, os, signal, sys

SIZE = 640 << 10
ROUNDS = 150
READERS = 2
PWRITE = 1

path, setup, submit, getevents = sys.argv[1], *map(int, sys.argv[2:5])
libc = ctypes.CDLL(None, use_errno=True)


class Control(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16), ("priority", ctypes.c_int16), ("fd", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("event_fd", ctypes.c_uint32),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64), ("object", ctypes.c_uint64),
        ("result", ctypes.c_int64), ("result2", ctypes.c_int64),
    ]


def call(*arguments):
    done = libc.syscall(*arguments)
    if done < 0:
        raise OSError(ctypes.get_errno(), f"system call {arguments[0]}")
    return done


with open(path, "wb") as file:
    file.write(bytes(SIZE))
    os.fsync(file.fileno())
buffered = os.open(path, os.O_RDONLY)
readers = []
for reader in range(READERS):
    child = os.fork()
    if child == 0:
        # Their parent ends them.
        at = reader * SIZE // READERS
        while True:
            os.pread(buffered, 65536, at)
            at = (at + 65536) % SIZE
    readers.append(child)
stale = 0
try:
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    memory = mmap.mmap(-1, SIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    context = ctypes.c_ulong()
    call(setup, 1, ctypes.byref(context))
    for number in range(1, ROUNDS + 1):
        content = bytes([number]) * SIZE
        memory[:] = content
        control = Control(opcode=PWRITE, fd=direct, buffer=start, bytes=SIZE)
        one = (ctypes.c_void_p * 1)(ctypes.addressof(control))
        assert call(submit, context, 1, one) == 1
        event = Event()
        assert call(getevents, context, 1, 1, ctypes.byref(event), None) == 1
        assert event.result == SIZE, event.result
        stale += os.pread(buffered, SIZE, 0) != content
finally:
    for child in readers:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
print(stale, "of", ROUNDS, "rounds read what was there before")
sys.exit(stale > 0)
