"""File objects: what `io.open` returns, for files of a volume."""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    from ._volume import Volume

    class DurableIO(IO[Any]):
        """What `open` returns, for those who check types."""

        def fsync(self) -> None: ...
        def fdatasync(self) -> None: ...


class File(io.RawIOBase):
    """An open file without a buffer. Volume.open wraps it as `open` wraps its files.

    Threads may share it. pread and pwrite have no position and do not wait for each other.
    """

    def __init__(self, volume: Volume, handle: _native.Handle, path: str, mode: str, readable: bool, writable: bool):
        super().__init__()
        # A volume that is let go of while its files are used would close under them.
        self._volume = volume
        self._handle: _native.Handle | None = handle
        self._readable = readable
        self._writable = writable
        self.name = path
        self.mode = mode

    def __repr__(self):
        return f"<holdfast.File {self.name!r} mode={self.mode!r}{' closed' if self.closed else ''}>"

    def _open(self) -> _native.Handle:
        handle = self._handle
        if handle is None:
            raise ValueError("I/O operation on closed file")
        return handle

    def _for(self, allowed: bool, what: str) -> _native.Handle:
        handle = self._open()
        if not allowed:
            raise io.UnsupportedOperation(what)
        return handle

    def readable(self):
        self._open()
        return self._readable

    def writable(self):
        self._open()
        return self._writable

    def seekable(self):
        self._open()
        return True

    def readinto(self, buffer, /):
        handle = self._for(self._readable, "not readable")
        with memoryview(buffer) as view, view.cast("B") as flat:
            # Not straight into the buffer: other threads may use it while this one waits without the interpreter's lock.
            found = handle.read(len(flat))
            flat[: len(found)] = found
            return len(found)

    def read(self, size=-1, /):
        if size is None or size < 0:
            return self.readall()
        return self._for(self._readable, "not readable").read(size)

    def readall(self):
        return self._for(self._readable, "not readable").readall()

    def write(self, data, /):
        handle = self._for(self._writable, "not writable")
        if type(data) is bytes:
            return handle.write(data)
        with memoryview(data) as view, view.cast("B") as flat:
            return handle.write(flat)

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset` on; fewer only at the end, or above 16 MiB."""
        return self._for(self._readable, "not readable").pread(size, offset)

    def pwrite(self, data, offset: int) -> int:
        """Writes at `offset`; returns how many bytes."""
        return self._for(self._writable, "not writable").pwrite(data, offset)

    def seek(self, offset, whence=os.SEEK_SET, /):
        return self._open().seek(offset, whence)

    def tell(self):
        return self._open().seek(0, os.SEEK_CUR)

    def truncate(self, size=None, /):
        handle = self._for(self._writable, "not writable")
        size = self.tell() if size is None else size
        handle.truncate(size)
        return size

    def fsync(self) -> None:
        """Data, size, attributes and every name of the file survive any crash once this returns (P1)."""
        self._open().sync_all()

    def fdatasync(self) -> None:
        """Data and size of the file survive any crash once this returns (P1)."""
        self._open().sync_data()

    def receipt(self) -> str | None:
        """What the last fsync of the file cost, and why, in sentences."""
        return self._open().last_receipt()

    def stat(self) -> os.stat_result:
        """Its attributes."""
        from ._path import stat_result

        return stat_result(self._open().stat())

    def allocate(self, offset: int, length: int) -> None:
        """Takes space, so that writing there cannot fail for lack of it."""
        self._for(self._writable, "not writable").allocate(offset, length)

    def punch_hole(self, offset: int, length: int) -> None:
        """Makes a hole: the range reads as zeros and its blocks are free."""
        self._for(self._writable, "not writable").punch_hole(offset, length)

    def lock(self, shared: bool = False, blocking: bool = True) -> None:
        """Waits for a lock of the whole file among the handles of this process, or raises BlockingIOError. A signal ends
        the wait with what its handler raises; a lock that it had before is gone then."""
        self._open().lock(shared, blocking)

    def unlock(self) -> None:
        """Gives the lock back."""
        self._open().unlock()

    def close(self):
        if not self.closed:
            try:
                super().close()
            finally:
                handle, self._handle = self._handle, None
                # Not with the last reference: a traceback may keep that.
                if handle is not None:
                    try:
                        handle.close()
                    except OSError:
                        pass  # of a parent process


class _Durable:
    """What buffered and text files have beside those of `io`."""

    def fsync(self: Any) -> None:
        """Writes what is in the buffer, and makes the file durable (P1)."""
        self.flush()
        _raw(self).fsync()

    def fdatasync(self: Any) -> None:
        """Writes what is in the buffer, and makes data and size durable (P1)."""
        self.flush()
        _raw(self).fdatasync()


def _raw(file: Any) -> File:
    while not isinstance(file, File):
        file = getattr(file, "buffer", None) or file.raw
    return file


class BufferedReader(io.BufferedReader):
    """As `open(path, "rb")` makes it."""


class BufferedWriter(_Durable, io.BufferedWriter):
    """As `open(path, "wb")` makes it, with fsync."""


class BufferedRandom(_Durable, io.BufferedRandom):
    """As `open(path, "r+b")` makes it, with fsync."""


class TextFile(_Durable, io.TextIOWrapper):
    """As `open(path, "w")` makes it, with fsync."""


def open_file(
    volume: Volume,
    path: str,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    permissions: int = 0o644,
) -> DurableIO:
    """As `io.open`, for the file at `path` of a volume."""
    kinds = set(mode)
    if len(kinds) != len(mode) or not kinds <= set("rwaxbt+") or len(kinds & set("rwax")) != 1 or kinds >= set("bt"):
        raise ValueError(f"invalid mode: {mode!r}")
    binary = "b" in kinds
    if binary and (encoding is not None or errors is not None or newline is not None):
        raise ValueError("binary mode takes no encoding, errors or newline")
    if not binary and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    reads = "r" in kinds or "+" in kinds
    writes = "r" not in kinds or "+" in kinds
    how = ("r" if reads else "") + {"r": "w" if writes else "", "w": "wtc", "a": "ac", "x": "wx"}[
        next(iter(kinds & set("rwax")))
    ]
    raw = File(volume, volume._native.open_file(path, how, permissions), path, mode, reads, writes)
    try:
        if "a" in kinds:
            raw.seek(0, os.SEEK_END)
        if buffering == 0:
            return raw  # type: ignore[return-value]
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        wrap = BufferedRandom if reads and writes else BufferedWriter if writes else BufferedReader
        file: Any = wrap(raw, size)
        if not binary:
            file = TextFile(file, io.text_encoding(encoding), errors, newline, line_buffering=buffering == 1)
            file.mode = mode
        if writes:
            volume._buffered(file)
        return file
    except BaseException:
        raw.close()
        raise
