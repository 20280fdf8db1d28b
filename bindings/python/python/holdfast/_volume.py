"""Volumes, their branches and snapshots."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from . import _native
from ._file import open_file
from ._path import Path

if TYPE_CHECKING:
    from ._file import DurableIO

_open: weakref.WeakSet[Volume] = weakref.WeakSet()


@atexit.register
def _close_all():
    """An interpreter that ends frees nothing, so what is open is closed here."""
    for volume in list(_open):
        try:
            volume.close()
        except OSError:
            pass


class Space(NamedTuple):
    """How full a volume is, in bytes."""

    total: int
    free: int
    available: int


class Change(NamedTuple):
    """What became of a file between two moments: `created`, `removed`, `renamed`, `changed` or `attributes`, and its
    paths before and after."""

    kind: str
    old: str | None
    new: str | None


class Volume:
    """An open volume, at one of its branches or at a snapshot. A context manager: it closes the volume.

    One process has a volume at a time; OSError with EBUSY says which has it. A volume that is mounted is reached through its mount, as long as this
    process may use that: files, directories and locks, and branches and snapshots for root and the user who has mounted. Rollbacks, promotions,
    differences, and Branch.open and Snapshot.open of what no mount shows fail with EOPNOTSUPP there, and a sentence; Volume.open of it with EBUSY. Calls
    about branches and snapshots wait for the daemon without an end, also for one that is stopped.
    """

    def __init__(self, native: _native.Volume):
        self._native = native
        self._closed = False
        self._process = os.getpid()
        # Open files that may have something in their buffers.
        self._files: weakref.WeakSet = weakref.WeakSet()
        self._files_lock = threading.Lock()
        _open.add(self)

    @classmethod
    def create(cls, path: str | os.PathLike[str], size: int) -> Volume:
        """Makes a file of the host with an empty volume in it; it must not exist."""
        return cls(_native.Volume.create(path, size))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, branch: str | None = None, snapshot: str | None = None,
             read_only: bool = False, through_mount: bool = True) -> Volume:
        """Opens the volume in a file or block device of the host. After a crash this recovers it first. With
        `through_mount=False` one that is mounted is not reached through its mount, and refused with EBUSY as all that is in use."""
        return cls(_native.Volume.open(path, branch, snapshot, read_only, through_mount))

    @classmethod
    def in_memory(cls, size: int) -> Volume:
        """A volume that is gone when it is closed, for tests."""
        return cls(_native.Volume.in_memory(size))

    def close(self) -> None:
        """Makes everything durable and closes the volume, what is in the buffers of its files as well; those that are
        still open fail with EBADF from then on."""
        # The volume of a parent is the parent's.
        if self._process != os.getpid():
            self._closed = True
            return
        wrong = None if self._closed else self._flush()
        self._closed = True
        _open.discard(self)
        # Once more does nothing, but waits for another thread that is closing it.
        self._native.close()
        if wrong is not None:
            raise wrong

    def _buffered(self, file) -> None:
        with self._files_lock:
            self._files.add(file)

    def _flush(self) -> Exception | None:
        """Writes what is in the buffers of open files; the first failure of that."""
        with self._files_lock:
            files = list(self._files)
        wrong = None
        for file in files:
            try:
                if not file.closed:
                    file.flush()
            except (OSError, ValueError, RuntimeError) as error:
                # Another thread may have closed it meanwhile.
                wrong = wrong or (None if file.closed else error)
        return wrong

    @property
    def mounted_at(self) -> str | None:
        """Where the volume is mounted, if it is reached through that; None if it is open in this process."""
        there = self._native.mounted_at()
        return None if there is None else os.fspath(there)

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> Volume:
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if not getattr(self, "_closed", True):
            warnings.warn(f"unclosed volume {self!r}", ResourceWarning, source=self)
            self.close()

    def __truediv__(self, part) -> Path:
        return Path(self, part)

    def path(self, *parts) -> Path:
        """A path of this volume."""
        return Path(self, *parts)

    @property
    def root(self) -> Path:
        return Path(self)

    def open_file(self, path: str | Path, mode: str = "r", buffering: int = -1, encoding: str | None = None,
                  errors: str | None = None, newline: str | None = None, permissions: int = 0o644) -> DurableIO:
        """As the built-in `open`."""
        return open_file(self, str(self.root._target(path)), mode, buffering, encoding, errors, newline, permissions)

    def sync(self) -> None:
        """Everything so far is durable when this returns."""
        self._native.sync()

    def space(self) -> Space:
        block, total, free, available = self._native.statfs()
        return Space(total * block, free * block, available * block)

    @property
    def label(self) -> str:
        return self._native.info()[1]

    @property
    def uuid(self) -> bytes:
        return self._native.info()[0]

    @property
    def size(self) -> int:
        return self._native.info()[2]

    def branch(self, name: str | None = None) -> Branch:
        """A branch; without a name, the one that is open."""
        there = self._native.branches()
        name = self._native.branch_here() if name is None else name
        if name not in there:
            raise FileNotFoundError(2, "there is no branch of this name", name)
        return Branch(self, name)

    def branches(self) -> list[Branch]:
        """All branches, in the order in which they were made."""
        return [Branch(self, name) for name in self._native.branches()]

    def snapshot(self, name: str) -> Snapshot:
        """Takes a snapshot of the branch that is open."""
        return self.branch().snapshot(name)

    def fork(self, name: str) -> Branch:
        """Makes a branch out of the one that is open."""
        return self.branch().fork(name)

    def diff(self, old: Branch | Snapshot, new: Branch | Snapshot) -> list[Change]:
        """What became of each file from one moment to another. It costs what changed."""
        return [Change(*found) for found in self._native.diff(old._moment(), new._moment())]


class Branch:
    """A branch of a volume, by its name. Each call is durable when it returns."""

    def __init__(self, volume: Volume, name: str):
        self.volume = volume
        self.name = name

    def __repr__(self):
        return f"Branch({self.name!r})"

    def __eq__(self, other):
        return isinstance(other, Branch) and (self.volume, self.name) == (other.volume, other.name)

    def __hash__(self):
        return hash((id(self.volume), self.name))

    def _moment(self):
        return self.name, None

    def open(self) -> Volume:
        """Opens it beside what is open."""
        return Volume(self.volume._native.open_branch(self.name, None))

    def snapshot(self, name: str) -> Snapshot:
        """Takes a snapshot. It costs the same for any tree."""
        self.volume._native.snapshot(self.name, name)
        return self[name]

    def snapshots(self) -> list[Snapshot]:
        """Its snapshots, in the order in which they were taken."""
        return [Snapshot(self, name, taken) for name, taken in self.volume._native.snapshots(self.name)]

    def __getitem__(self, name: str) -> Snapshot:
        for snapshot in self.snapshots():
            if snapshot.name == name:
                return snapshot
        raise KeyError(name)

    def fork(self, name: str) -> Branch:
        """Makes a branch out of it as it is now."""
        self.volume._native.fork(self.name, None, name)
        return Branch(self.volume, name)

    def rollback(self, to: Snapshot | str, keep: str | None = None) -> None:
        """Goes back to a snapshot. What it was is kept as the snapshot `keep`, or deleted."""
        name = to if isinstance(to, str) else to.name
        self.volume._native.rollback(self.name, name, keep)

    def promote(self, fork: Branch | str, keep: str | None = None, *, replace: bool = False) -> None:
        """Becomes what its fork is, in one step; the fork is a branch no more. BlockingIOError if it has changed since,
        unless `replace`."""
        name = fork if isinstance(fork, str) else fork.name
        self.volume._native.promote(self.name, name, keep, replace)

    def rename(self, name: str) -> None:
        self.volume._native.rename_branch(self.name, None, name)
        self.name = name

    def delete(self) -> None:
        """Deletes it and its snapshots."""
        self.volume._native.delete(self.name, None)


class Snapshot:
    """The files of a branch at one moment. They never change."""

    def __init__(self, branch: Branch, name: str, taken_ns: int):
        self.branch = branch
        self.name = name
        self.created = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=taken_ns // 1000)

    def __repr__(self):
        return f"Snapshot({self.branch.name!r}, {self.name!r})"

    def __eq__(self, other):
        return isinstance(other, Snapshot) and (self.branch, self.name) == (other.branch, other.name)

    def __hash__(self):
        return hash((self.branch, self.name))

    def _moment(self):
        return self.branch.name, self.name

    def open(self) -> Volume:
        """Opens it, to be read only."""
        return Volume(self.branch.volume._native.open_branch(self.branch.name, self.name))

    def fork(self, name: str) -> Branch:
        """Makes a branch out of it."""
        self.branch.volume._native.fork(self.branch.name, self.name, name)
        return Branch(self.branch.volume, name)

    def rename(self, name: str) -> None:
        self.branch.volume._native.rename_branch(self.branch.name, self.name, name)
        self.name = name

    def delete(self) -> None:
        """Deletes it. Its space comes back in the background."""
        self.branch.volume._native.delete(self.branch.name, self.name)
