"""File handles as a server of network filesystems keeps them: by number, without a name.

`keep FILE PATH...` writes the handles of some files to FILE; `use FILE MOUNT` opens them again and prints what is there.
"""
import ctypes, errno, os, pickle, stat, sys

libc = ctypes.CDLL(None, use_errno=True)
MOST = 128
CONNECTABLE = 2


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("handle", ctypes.c_ubyte * MOST)]


def keep(path, flags):
    handle, mount = Handle(bytes=MOST), ctypes.c_int()
    done = libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), flags)
    if done != 0:
        return None
    return bytes(handle)


def use(mount, kept):
    handle = Handle.from_buffer_copy(kept)
    fd = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDWR)
    if fd < 0 and ctypes.get_errno() == errno.EISDIR:
        fd = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY)
    if fd < 0:
        return errno.errorcode[ctypes.get_errno()]
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        said = " ".join(["directory", *sorted(os.listdir(fd))])
    else:
        said = "file " + os.pread(fd, 100, 0).decode()
    os.close(fd)
    return said


if sys.argv[1] == "keep":
    with open(sys.argv[2], "wb") as file:
        # The second time with the number of the directory, where the kernel gives that.
        kept = [(path, keep(path, flags)) for flags in [0, CONNECTABLE] for path in sys.argv[3:]]
        pickle.dump(kept, file)
else:
    mount = os.open(sys.argv[3], os.O_RDONLY)
    with open(sys.argv[2], "rb") as file:
        for path, kept in pickle.load(file):
            if kept is not None:
                print(os.path.basename(path), use(mount, kept))
