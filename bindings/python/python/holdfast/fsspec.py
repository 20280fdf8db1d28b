"""Volumes for fsspec, and so for pandas, pyarrow, dask and their kin: `holdfast://path/in/the/volume`.

The volume is named by `fo`, as archives have it: fsspec.open("holdfast://notes/today", fo="work.img"), or in the URL:
"holdfast://notes/today::work.img". Two filesystems of one image in one process are one: a volume has one opener.
"""

from __future__ import annotations

import os
import stat
import threading
import weakref
from datetime import UTC, datetime

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from ._path import Path
from ._volume import Volume


# Volumes that filesystems have opened, by what they show, with the number of those filesystems.
_shared: dict[tuple, list] = {}
_lock = threading.Lock()


def _acquire(path, branch, snapshot, read_only, create):
    """The volume of this name, which all filesystems of this process share, and its key."""
    real = os.path.realpath(path)
    key = (real, branch or "main", snapshot, read_only)
    with _lock:
        if key in _shared and not _shared[key][0].closed:
            _shared[key][1] += 1
            return _shared[key][0], key
        # Another branch of the same image is opened through what has the image.
        beside = next((volume for other, (volume, _) in _shared.items() if other[0] == real and not volume.closed), None)
        if beside is not None:
            volume = beside.branch(branch or "main")
            volume = (volume[snapshot] if snapshot else volume).open()
        else:
            try:
                volume = Volume.open(real, branch=branch, snapshot=snapshot, read_only=read_only)
            except FileNotFoundError:
                if create is None or branch or snapshot:
                    raise
                volume = Volume.create(real, create)
        _shared[key] = [volume, 1]
        return volume, key


def _release(key):
    with _lock:
        entry = _shared[key]
        entry[1] -= 1
        if entry[1] == 0:
            del _shared[key]
            entry[0].close()


class HoldfastFileSystem(AbstractFileSystem):
    """A volume as a filesystem of fsspec. With `create=SIZE` a volume that is not there is made."""

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
        if volume is None:
            volume, key = _acquire(fo, branch, snapshot, read_only, create)
            # Whoever forgets the filesystem gives the volume back.
            self._finalize = weakref.finalize(self, _release, key)
        self.volume = volume

    def close(self) -> None:
        """Forgets this filesystem, and closes its volume if no other one has it."""
        cache = type(self)._cache
        for key in [key for key, found in cache.items() if found is self]:
            del cache[key]
        if self._finalize is not None:
            self._finalize()

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

    def _describe(self, path: Path, name: str, follow: bool = True) -> dict:
        try:
            found = path.stat(follow_symlinks=follow)
        except FileNotFoundError:
            # A link that leads nowhere is there all the same.
            found = path.lstat()
        kinds = ((stat.S_ISDIR, "directory"), (stat.S_ISREG, "file"), (stat.S_ISLNK, "link"))
        kind = next((kind for test, kind in kinds if test(found.st_mode)), "other")
        return {
            "name": name, "size": 0 if kind == "directory" else found.st_size, "type": kind,
            "created": path.created_ns() / 1e9, "mtime": found.st_mtime, "mode": found.st_mode,
            "uid": found.st_uid, "gid": found.st_gid, "ino": found.st_ino, "nlink": found.st_nlink,
            "islink": path.is_symlink(),
        }

    def info(self, path, **_):
        return self._describe(self._path(path), self._strip_protocol(path))

    def ls(self, path, detail=True, **_):
        path = self._strip_protocol(path)
        at = self._path(path)
        if at.is_dir():
            entries = sorted(at.iterdir())
            found = [(entry, str(entry).lstrip("/")) for entry in entries]
        else:
            found = [(at, path)]
        if not detail:
            for entry, _ in found:
                entry.lstat()
            return [name for _, name in found]
        return [self._describe(entry, name) for entry, name in found]

    def mkdir(self, path, create_parents=True, **_):
        self._path(path).mkdir(parents=create_parents)

    def makedirs(self, path, exist_ok=False):
        self._path(path).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path):
        self._path(path).rmdir()

    def rm_file(self, path):
        self._path(path).unlink()

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        for one in [path] if isinstance(path, str) else path:
            at = self._path(one)
            if at.is_dir() and not at.is_symlink():
                if not recursive:
                    raise IsADirectoryError(21, "it is a directory; say recursive=True", str(at))
                for entry in at.iterdir() if not at.name else [at]:
                    entry.rmtree() if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            else:
                at.unlink()

    def cp_file(self, path1, path2, **_):
        source, target = self._path(path1), self._path(path2)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        source.copy(target)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **_):
        """In one step (P4)."""
        target = self._path(path2)
        source = self._path(path1)
        source.rename(target / source.name if target.is_dir() else target)

    mv_file = mv

    def touch(self, path, truncate=True, **_):
        at = self._path(path)
        at.write_bytes(b"") if truncate else at.touch()

    def created(self, path):
        return datetime.fromtimestamp(self.info(path)["created"], tz=UTC)

    def modified(self, path):
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=UTC)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **_):
        at = self._path(path)
        if autocommit or "w" not in mode:
            return at.open(mode if "b" in mode else mode + "b")
        return _InTransaction(at)

    def sync(self) -> None:
        """Everything so far is durable when this returns."""
        self.volume.sync()


class _InTransaction:
    """A file of a transaction of fsspec: it gets its name when the transaction ends."""

    def __init__(self, path: Path):
        self._target = path
        self._new = path.with_name(f".{path.name[:200]}.new-{id(self):x}")
        self._file = self._new.open("xb")

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def commit(self):
        self._file.close()
        self._new.fsync()
        self._new.rename(self._target)
        self._target.parent.fsync()

    def discard(self):
        self._file.close()
        self._new.unlink(missing_ok=True)
