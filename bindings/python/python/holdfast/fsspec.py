"""Volumes for fsspec, and so for pandas, pyarrow, dask and their kin: `holdfast://path/in/the/volume`.

The volume is named by `fo`, as archives have it: fsspec.open("holdfast://notes/today", fo="work.img"), or in the URL:
"holdfast://notes/today::work.img". Two filesystems of one image in one process are one: a volume has one opener.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import io
import os
import stat
import threading
import warnings
import weakref
from datetime import UTC, datetime

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from ._path import Path, beside, stat_result
from ._volume import Volume


class _Shared:
    """A volume that filesystems have opened, and how many have it."""

    def __init__(self, volume: Volume, read_only: bool):
        self.volume = volume
        self.read_only = read_only
        self.users = 0


# What is open, by what it shows.
_shared: dict[tuple, _Shared] = {}
_lock = threading.Lock()
# What forgotten filesystems have had: they are forgotten at any moment, also while this thread has the lock.
_given_back: collections.deque[_Shared] = collections.deque()


def _after_fork():
    global _lock
    _lock = threading.Lock()
    _shared.clear()
    _given_back.clear()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def _locked():
    try:
        with _lock:
            _close_unused()
            yield
    finally:
        _close_unused_soon()


def _drop(entry: _Shared):
    """One filesystem has it no more; the last one closes it. With the lock."""
    entry.users -= 1
    if entry.users > 0:
        return
    for key in [key for key, found in _shared.items() if found is entry]:
        del _shared[key]
    entry.volume.close()


def _close_unused():
    """Closes what no filesystem has any more. With the lock."""
    while _given_back:
        try:
            _drop(_given_back.popleft())
        except OSError as error:
            # Nobody is there who could be told otherwise.
            warnings.warn(f"the volume of a forgotten filesystem: {error}", RuntimeWarning, stacklevel=2)


def _close_unused_soon():
    # Who has the lock does it when it gives the lock back.
    while _given_back and _lock.acquire(blocking=False):
        try:
            _close_unused()
        finally:
            _lock.release()


def _give_back(entry: _Shared):
    """Called when a filesystem is forgotten: never waits."""
    _given_back.append(entry)
    _close_unused_soon()


def _acquire(path, branch, snapshot, read_only, create) -> _Shared:
    """The volume of this name, which all filesystems of this process share."""
    real = os.path.realpath(path)
    key = (real, branch or "main", snapshot)
    with _locked():
        entry = _shared.get(key)
        if entry is None or entry.volume.closed:
            entry = _Shared(*_open(real, branch, snapshot, read_only, create))
            _shared[key] = entry
        elif entry.read_only and not read_only and not snapshot:
            raise _in_use_read_only(real)
        entry.users += 1
        return entry


def _in_use_read_only(real):
    why = "it is open to be read only by another filesystem of this program; close that one first"
    return OSError(errno.EBUSY, why, real)


def _open(real, branch, snapshot, read_only, create) -> tuple[Volume, bool]:
    """Opens a volume, and whether it is to be read only. With the lock."""
    # Another branch of the same image is opened through what has the image.
    there = (entry for key, entry in _shared.items() if key[0] == real and not entry.volume.closed)
    by = next(there, None)
    if by is not None:
        if by.read_only and not read_only and not snapshot:
            raise _in_use_read_only(real)
        at = by.volume.branch(branch or "main")
        return (at[snapshot] if snapshot else at).open(), by.read_only
    try:
        return Volume.open(real, branch=branch, snapshot=snapshot, read_only=read_only), read_only
    except FileNotFoundError:
        if create is None or branch or snapshot or read_only:
            raise
        return Volume.create(real, create), False


class HoldfastFileSystem(AbstractFileSystem):
    """A volume as a filesystem of fsspec. With `create=SIZE` a volume that is not there is made. With `read_only`
    whatever would change something fails with EROFS, also where another filesystem has the volume for writing; who wants to
    write to what another one has opened to be read only is refused with EBUSY."""

    protocol = "holdfast"
    root_marker = ""
    local_file = False

    def __init__(self, fo=None, *, volume: Volume | None = None, branch=None, snapshot=None, read_only=False, create=None,
                 target_protocol=None, target_options=None, **options):
        if self._cached:
            return
        super().__init__(**options)
        if target_protocol not in (None, "file", "local"):
            raise ValueError(f"a volume is in a file or device of this host, not at {target_protocol}://")
        if (fo is None) == (volume is None):
            raise ValueError("say which volume: fo=PATH, or volume=")
        self._finalize = None
        self._read_only = read_only
        if volume is None:
            entry = _acquire(fo, branch, snapshot, read_only, create)
            # Whoever forgets the filesystem gives the volume back. At the end of the program volumes are closed by themselves.
            self._finalize = weakref.finalize(self, _give_back, entry)
            self._finalize.atexit = False
            volume = entry.volume
        self.volume = volume

    def close(self) -> None:
        """Forgets this filesystem, and closes its volume if no other one has it."""
        cache = type(self)._cache
        for key in [key for key, found in cache.items() if found is self]:
            del cache[key]
        given = self._finalize and self._finalize.detach()
        if given:
            (entry,) = given[2]
            with _locked():
                _drop(entry)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = str(path)
        for protocol in ("holdfast://", "holdfast::"):
            path = path.removeprefix(protocol)
        return path.strip("/")

    def _path(self, path) -> Path:
        return self.volume.path(self._strip_protocol(path))

    def _change(self, path) -> Path:
        """The path of something that is to be changed."""
        path = self._path(path)
        if self._read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return path

    def _describe(self, path: Path, name: str, follow: bool) -> dict:
        """What is there. The type of a link is that of what it leads to if it is followed, otherwise `link`, so that nobody goes
        into what it leads to; its size is that of what it leads to, if that is there."""
        raw = self.volume._native.stat(str(path), False)
        found = stat_result(raw)
        islink, size = stat.S_ISLNK(found.st_mode), found.st_size
        if islink:
            try:
                behind = path.stat()
            # It may lead nowhere, in a circle, or where nobody may look, and is there all the same.
            except OSError:
                pass
            else:
                size = behind.st_size
                found = behind if follow else found
        kinds = ((stat.S_ISDIR, "directory"), (stat.S_ISREG, "file"), (stat.S_ISLNK, "link"))
        kind = next((kind for test, kind in kinds if test(found.st_mode)), "other")
        return {
            "name": name, "size": 0 if kind == "directory" else size, "type": kind,
            "created": raw[9] / 1e9, "mtime": found.st_mtime, "mode": found.st_mode,
            "uid": found.st_uid, "gid": found.st_gid, "ino": found.st_ino, "nlink": found.st_nlink,
            "islink": islink,
        }

    def info(self, path, **_):
        return self._describe(self._path(path), self._strip_protocol(path), True)

    def ls(self, path, detail=True, **_):
        path = self._strip_protocol(path)
        at = self._path(path)
        if not at.is_dir():
            found = self._describe(at, path, True)
            return [found] if detail else [path]
        all = []
        for entry in sorted(at.iterdir()):
            name = str(entry).lstrip("/")
            if not detail:
                all.append(name)
                continue
            # What has gone since the names were read is left out.
            with contextlib.suppress(FileNotFoundError):
                all.append(self._describe(entry, name, False))
        return all

    def mkdir(self, path, create_parents=True, **_):
        self._change(path).mkdir(parents=create_parents)

    def makedirs(self, path, exist_ok=False):
        self._change(path).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path):
        self._change(path).rmdir()

    def rm_file(self, path):
        self._change(path).unlink()

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        """Removes files, and directories with `recursive`: with `maxdepth` what is no deeper than that, and the directories that
        are empty then. Paths may be patterns; links are removed, not followed."""
        self._change("")
        # What is in a directory before the directory.
        for one in reversed(self.expand_path(path)):
            at = self._path(one)
            if not stat.S_ISDIR(at.lstat().st_mode):
                at.unlink()
            elif not recursive:
                raise IsADirectoryError(errno.EISDIR, "it is a directory; say recursive=True", str(at))
            elif maxdepth is not None:
                self._rm_to_depth(one, maxdepth)
            elif at.name:
                at.rmtree()
            else:
                for entry in at.iterdir():
                    entry.rmtree() if stat.S_ISDIR(entry.lstat().st_mode) else entry.unlink()

    def _rm_to_depth(self, path, maxdepth):
        found = self.find(path, maxdepth=maxdepth, withdirs=True, detail=True)
        for name in sorted(found, reverse=True):
            at = self._path(name)
            if found[name]["type"] != "directory":
                at.unlink(missing_ok=True)
            elif at.name:
                try:
                    at.rmdir()
                except OSError as error:
                    # There is more below.
                    if error.errno != errno.ENOTEMPTY:
                        raise

    def cp_file(self, path1, path2, **_):
        source, target = self._path(path1), self._change(path2)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        source.copy(target)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **_):
        """In one step (P4)."""
        target = self._change(path2)
        source = self._path(path1)
        source.rename(target / source.name if target.is_dir() else target)

    mv_file = mv

    def touch(self, path, truncate=True, **_):
        at = self._change(path)
        at.write_bytes(b"") if truncate else at.touch()

    def created(self, path):
        return datetime.fromtimestamp(self.info(path)["created"], tz=UTC)

    def modified(self, path):
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=UTC)

    def open(self, path, mode="rb", *arguments, **named):
        file = super().open(path, mode, *arguments, **named)
        # fsspec puts a text file of its own around ours.
        if isinstance(file, io.TextIOWrapper) and file.writable():
            self.volume._buffered(file)
        return file

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **_):
        mode = mode if "b" in mode else mode + "b"
        at = self._change(path) if set(mode) & set("wax+") else self._path(path)
        if autocommit or mode == "rb":
            file = at.open(mode)
            # Otherwise the filesystem could be forgotten, and its volume closed, while the file is written to.
            file._filesystem = self  # type: ignore[attr-defined]
            return file
        if mode != "wb":
            raise ValueError(f"a transaction makes whole files: mode {mode!r} is none of its")
        return _InTransaction(self, at)

    def sync(self) -> None:
        """Everything so far is durable when this returns."""
        self.volume.sync()


class _InTransaction:
    """A file of a transaction of fsspec: it gets its name when the transaction ends."""

    def __init__(self, filesystem: HoldfastFileSystem, path: Path):
        self._filesystem = filesystem
        self._target = path
        self._new = beside(path, f"{os.getpid()}-{os.urandom(6).hex()}.new")
        self._file = self._new.open("xb")

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def commit(self):
        self._file.close()
        self._new._take_after(self._target)
        self._new.fsync()
        self._new.rename(self._target)
        self._target.parent.fsync()

    def discard(self):
        self._file.close()
        self._new.unlink(missing_ok=True)
