"""Runs a program as root, and another user exchanges two names in its midst: before the N-th system call that names something.

exchange.py UID N NAMES ONE OTHER -- PROGRAM ARGUMENTS...

NAMES are last parts of paths, with commas. Where one of the two is not there yet, the exchange comes before the next such call. Prints how
many such calls there were until then, and "exchanged" if it was made; ends with the code of the program.
"""

import ctypes
import os
import signal
import struct
import sys

TRACEME, CONT, SYSCALL, SETOPTIONS, SYSCALL_INFO = 0, 7, 24, 0x4200, 0x420E
SYSGOOD, EXITKILL = 1, 1 << 20
AT_FDCWD, EXCHANGE = -100, 2

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request, pid, address=None, data=None):
    if libc.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def names_in(pid):
    """The last parts of the paths that a call was given, which is about to be made."""
    info = ctypes.create_string_buffer(88)
    ptrace(SYSCALL_INFO, pid, len(info), ctypes.addressof(info))
    is_entry = info.raw[0] == 1
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for address in struct.unpack_from("<4Q", info.raw, 32) if is_entry else ():
            try:
                memory.seek(address)
                path = memory.read(256).split(b"\0")[0]
            except (OSError, ValueError, OverflowError):
                continue
            yield path.rstrip(b"/").rsplit(b"/")[-1]


def exchange(user, one, other):
    os.setegid(user)
    os.seteuid(user)
    paths = os.fsencode(one), os.fsencode(other)
    made = libc.renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], EXCHANGE) == 0
    os.seteuid(0)
    os.setegid(0)
    return made


user, turn, names, one, other = sys.argv[1:6]
names = {os.fsencode(name) for name in names.split(",")}
pid = os.fork()
if pid == 0:
    ptrace(TRACEME, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.execv(sys.argv[7], sys.argv[7:])
os.waitpid(pid, 0)
ptrace(SETOPTIONS, pid, None, SYSGOOD | EXITKILL)
seen, made, pending = 0, False, 0
while True:
    ptrace(CONT if made else SYSCALL, pid, None, pending)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) or os.WIFSIGNALED(status):
        break
    stopped, pending = os.WSTOPSIG(status), 0
    if stopped == signal.SIGTRAP | 0x80:
        if any(name in names for name in names_in(pid)):
            seen += 1
            made = seen > int(turn) and exchange(int(user), one, other)
    elif stopped != signal.SIGTRAP:
        pending = stopped
print(seen, "exchanged" if made else "")
sys.exit(os.waitstatus_to_exitcode(status))
