"""Paths of a volume, as `pathlib` has those of the host."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from time import time_ns
from typing import TYPE_CHECKING, Any

from ._file import open_file

if TYPE_CHECKING:
    from ._file import DurableIO
    from ._volume import Volume


def stat_result(found) -> os.stat_result:
    """What the native side says of a file, as `os.stat` would."""
    mode, ino, nlink, uid, gid, size, accessed, modified, changed, _, blocks, rdev = found
    seconds = [time // 1_000_000_000 for time in (accessed, modified, changed)]
    times = [time / 1e9 for time in (accessed, modified, changed)]
    more = {
        "st_atime": times[0], "st_mtime": times[1], "st_ctime": times[2],
        "st_atime_ns": accessed, "st_mtime_ns": modified, "st_ctime_ns": changed,
        "st_blocks": blocks, "st_blksize": 4096, "st_rdev": rdev,
    }
    return os.stat_result((mode, ino, 0, nlink, uid, gid, size, *seconds), more)


def beside(path: Path, mark: str) -> Path:
    """A name in the same directory that is new, and no longer than a name can be: names are counted in bytes."""
    return path.with_name(f".{os.fsdecode(os.fsencode(path.name)[:200])}.{mark}")


class Path:
    """A path of a volume, from its root on. As `pathlib.Path` in its names, but no `os.PathLike`: what opens host
    files does not take it by mistake."""

    __slots__ = ("_pure", "volume")

    _pure: PurePosixPath
    volume: Volume

    def __init__(self, volume: Volume, *parts: str | PurePosixPath | Path):
        self.volume = volume
        pure = PurePosixPath("/", *(part._pure if isinstance(part, Path) else part for part in parts))
        # `//a` is a path of its own in POSIX, and none here.
        self._pure = PurePosixPath("/", *pure.parts[1:])

    def _with(self, pure: PurePosixPath) -> Path:
        return Path(self.volume, pure)

    def __str__(self):
        return str(self._pure)

    def __repr__(self):
        return f"Path({str(self)!r})"

    def __eq__(self, other):
        if not isinstance(other, Path):
            return NotImplemented
        return self.volume is other.volume and self._pure == other._pure

    def __hash__(self):
        return hash((id(self.volume), self._pure))

    def __lt__(self, other):
        return self._pure < other._pure if isinstance(other, Path) else NotImplemented

    def __le__(self, other):
        return self._pure <= other._pure if isinstance(other, Path) else NotImplemented

    def __truediv__(self, part):
        return Path(self.volume, self, part)

    def _target(self, target, same: bool = True) -> Path:
        """Where a call is to lead to: a path of its own volume, or a text about this one."""
        if not isinstance(target, Path):
            return self.volume.path(target)
        if same and target.volume is not self.volume:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(self), None, str(target))
        return target

    # What the path says of itself.

    @property
    def parts(self) -> tuple[str, ...]:
        return self._pure.parts

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def stem(self) -> str:
        return self._pure.stem

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        return self._pure.suffixes

    @property
    def parent(self) -> Path:
        return self._with(self._pure.parent)

    @property
    def parents(self) -> list[Path]:
        return [self._with(pure) for pure in self._pure.parents]

    def as_posix(self) -> str:
        return str(self)

    def joinpath(self, *parts) -> Path:
        return Path(self.volume, self, *parts)

    def with_name(self, name: str) -> Path:
        return self._with(self._pure.with_name(name))

    def with_stem(self, stem: str) -> Path:
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> Path:
        return self._with(self._pure.with_suffix(suffix))

    def relative_to(self, other) -> PurePosixPath:
        return self._pure.relative_to(str(other))

    def is_relative_to(self, other) -> bool:
        return self._pure.is_relative_to(str(other))

    def match(self, pattern: str) -> bool:
        return self._pure.match(pattern)

    # What is there.

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return stat_result(self.volume._native.stat(str(self), follow_symlinks))

    def created_ns(self) -> int:
        """When it was made, in nanoseconds since 1970; os.stat_result has no place for it on Linux."""
        return self.volume._native.stat(str(self), False)[9]

    def lstat(self) -> os.stat_result:
        return self.stat(follow_symlinks=False)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self._mode(follow_symlinks) != 0

    def _mode(self, follow: bool = True) -> int:
        try:
            return self.stat(follow_symlinks=follow).st_mode
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return 0
            raise

    def is_dir(self) -> bool:
        return stat.S_ISDIR(self._mode())

    def is_file(self) -> bool:
        return stat.S_ISREG(self._mode())

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self._mode(follow=False))

    def samefile(self, other) -> bool:
        other = self._target(other, same=False)
        return other.volume is self.volume and self.stat().st_ino == other.stat().st_ino

    def resolve(self, strict: bool = False) -> Path:
        """Without symbolic links and `..`; what is not there, as it is written."""
        try:
            return self._with(PurePosixPath(self.volume._native.canonicalize(str(self))))
        except FileNotFoundError:
            if strict:
                raise
        if self._pure == self._pure.parent:
            return self
        # Upwards until something is there.
        above = self.parent.resolve()
        return self._with(PurePosixPath(posixpath.normpath(str(above._pure / self._pure.name))))

    def readlink(self) -> PurePosixPath:
        return PurePosixPath(self.volume._native.readlink(str(self)))

    def iterdir(self) -> Iterator[Path]:
        for name, _ in self.volume._native.scandir(str(self)):
            yield self / name

    def walk(
        self, top_down: bool = True, on_error: Callable[[OSError], Any] | None = None, follow_symlinks: bool = False
    ) -> Iterator[tuple[Path, list[str], list[str]]]:
        """As pathlib.Path.walk: (path, names of directories, names of all else), without recursion."""
        waiting: list = [self]
        while waiting:
            at = waiting.pop()
            if isinstance(at, tuple):
                yield at
                continue
            try:
                entries = self.volume._native.scandir(str(at))
            except OSError as error:
                if on_error is not None:
                    on_error(error)
                continue
            directories: list[str] = []
            files: list[str] = []
            for name, mode in entries:
                linked = follow_symlinks and stat.S_ISLNK(mode) and (at / name).is_dir()
                (directories if stat.S_ISDIR(mode) or linked else files).append(name)
            if top_down:
                yield at, directories, files
            else:
                waiting.append((at, directories, files))
            waiting.extend(at / name for name in reversed(directories))

    def glob(self, pattern: str) -> Iterator[Path]:
        """As pathlib.Path.glob; `**` is any number of directories, and goes into no symbolic link."""
        parts = PurePosixPath(pattern).parts
        if not parts or pattern.startswith("/"):
            raise ValueError(f"unacceptable pattern: {pattern!r}")
        seen: set[Path] = set()
        for found in self._glob(parts):
            if found not in seen:
                seen.add(found)
                yield found

    def _glob(self, parts: tuple[str, ...]) -> Iterator[Path]:
        first, rest = parts[0], parts[1:]
        if first == "**":
            for at, _, files in self.walk():
                if rest:
                    yield from at._glob(rest)
                else:
                    yield at
            return
        for name, mode in self._entries():
            if not PurePosixPath(name).match(first):
                continue
            found = self / name
            if not rest:
                yield found
            elif stat.S_ISDIR(mode) or (stat.S_ISLNK(mode) and found.is_dir()):
                yield from found._glob(rest)

    def _entries(self):
        try:
            return self.volume._native.scandir(str(self))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def rglob(self, pattern: str) -> Iterator[Path]:
        return self.glob(f"**/{pattern}")

    # Content.

    def open(self, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
             newline: str | None = None) -> DurableIO:
        """As the built-in `open`. What is written survives a crash after the file's fsync()."""
        return open_file(self.volume, str(self), mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        with self.open("rb", buffering=0) as file:
            return file.read()

    def read_text(self, encoding=None, errors=None, newline=None) -> str:
        with self.open("r", encoding=encoding, errors=errors, newline=newline) as file:
            return file.read()

    def write_bytes(self, data) -> int:
        with self.open("wb") as file:
            return file.write(memoryview(data))

    def write_text(self, data: str, encoding=None, errors=None, newline=None) -> int:
        if not isinstance(data, str):
            raise TypeError(f"data must be str, not {type(data).__name__}")
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(data)

    def replace_bytes(self, data) -> None:
        """Replaces the file by one with this content, in one step and durably: after a crash it has the old content or
        the new one (P1, P4). Owner, group and permission bits stay; a symbolic link is itself replaced."""
        new = beside(self, f"{os.getpid()}-{os.urandom(6).hex()}.new")
        try:
            with new.open("xb") as file:
                file.write(data)
                file.flush()
            new._take_after(self)
            new.fsync()
            new.rename(self)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        self.parent.fsync()

    def _take_after(self, other: Path) -> None:
        """Has owner, group and permission bits of a regular file, if that is what is there."""
        try:
            found = other.lstat()
        except FileNotFoundError:
            return
        if stat.S_ISREG(found.st_mode):
            own = self.lstat()
            if (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
                self.chown(found.st_uid, found.st_gid)
            # Last: a change of the owner takes bits away.
            self.chmod(found.st_mode)

    def copy(self, target) -> Path:
        """Copies content and permission bits, holes as holes; also to a path of another volume."""
        target = self._target(target, same=False)
        self.volume._native.copy_to(str(self), target.volume._native, str(target))
        return target

    def fsync(self) -> None:
        """Makes the file, or the names of the directory, durable (P1, P2)."""
        if self.is_dir():
            self.volume._native.sync_dir(str(self))
            return
        self.volume._native.open_file(str(self), "r", 0).sync_all()

    # Names.

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Makes the file, or sets the times of what is there, symbolic links followed."""
        if not exist_ok:
            self.volume._native.open_file(str(self), "wx", mode).close()
            return
        now = time_ns()
        try:
            file = self.volume._native.open_file(str(self), "wc", mode)
        except IsADirectoryError:
            self.resolve(strict=True).utime(now, now)
            return
        file.utime(now, now)
        file.close()

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        try:
            self.volume._native.mkdir(str(self), mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        self.volume._native.rmdir(str(self))

    def rmtree(self) -> None:
        """Removes the directory and everything under it; symbolic links are removed, not followed."""
        self.volume._native.rmtree(str(self))

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self.volume._native.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target, *, replace: bool = True, exchange: bool = False) -> Path:
        """Moves it in one step (P4), replacing what is there unless `replace` is False; or exchanges both."""
        target = self._target(target)
        self.volume._native.rename(str(self), str(target), replace, exchange)
        return target

    def replace(self, target) -> Path:
        return self.rename(target)

    def symlink_to(self, target, target_is_directory: bool = False) -> None:
        self.volume._native.symlink(str(target), str(self))

    def hardlink_to(self, target) -> None:
        self.volume._native.link(str(self._target(target)), str(self))

    # Attributes.

    def chmod(self, mode: int) -> None:
        self.volume._native.chmod(str(self), stat.S_IMODE(mode))

    def chown(self, uid: int | None = None, gid: int | None = None) -> None:
        self.volume._native.chown(str(self), uid, gid)

    def utime(self, accessed_ns: int, modified_ns: int) -> None:
        """Sets the times, in nanoseconds since 1970."""
        self.volume._native.utime(str(self), accessed_ns, modified_ns)

    def getxattr(self, name: str) -> bytes:
        return self.volume._native.getxattr(str(self), name)

    def setxattr(self, name: str, value: bytes) -> None:
        self.volume._native.setxattr(str(self), name, value)

    def listxattr(self) -> list[str]:
        return self.volume._native.listxattr(str(self))

    def removexattr(self, name: str) -> None:
        self.volume._native.removexattr(str(self), name)
