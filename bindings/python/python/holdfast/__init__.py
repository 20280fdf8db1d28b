"""A crash-safe filesystem in one file or block device, without a mount.

>>> import holdfast
>>> with holdfast.Volume.in_memory(64 << 20) as volume:
...     notes = volume / "notes"
...     notes.mkdir()
...     with (notes / "today").open("w") as file:
...         _ = file.write("held fast")
...         file.fsync()  # survives any crash from here on
...     (notes / "today").rename(notes / "yesterday")
...     (notes / "yesterday").read_text()
Path('/notes/yesterday')
'held fast'

What the calls promise about crashes is in docs/DURABILITY.md. Errors are OSError with errno. Every call that may
wait releases the interpreter's lock; volumes and files may be used by many threads. After os.fork() the child has
none of it: its calls fail with EBADF.
"""

from ._file import File, TextFile
from ._native import __version__
from ._path import Path
from ._volume import Branch, Change, Snapshot, Space, Volume

__all__ = [
    "Branch",
    "Change",
    "File",
    "Path",
    "Snapshot",
    "Space",
    "TextFile",
    "Volume",
    "__version__",
]
