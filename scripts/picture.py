#!/usr/bin/env python3
"""Makes docs/tour.svg: a short real session in a terminal, as the README shows it.

usage: scripts/picture.py [HOLDFAST] [FILE.svg]     default: target/release/holdfast, docs/tour.svg
Needs /dev/fuse, jq, and rich from PyPI (python3 -m venv v && v/bin/pip install rich && v/bin/python scripts/picture.py).

Every command runs in a shell, and what it prints is what the picture shows. A command that fails ends
the script, and no picture is written.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDTH = 106

# A comment in the picture, or a command. The tree of this repository is the content.
SESSION = [
    "# one file is the volume; a mount needs no root",
    "holdfast mkfs -q --size 1G work.img && holdfast mount work.img mnt",
    "tar -xf repository.tar -C mnt && holdfast snapshot create mnt start",
    "# one command gets a fork of it all, which goes when the command ends",
    "holdfast run mnt -- sh -c 'rm -r crates docs && ls | wc -l'; ls mnt | wc -l",
    "# a transaction is done as a whole, or not at all: this one fails",
    "holdfast txn mnt -- sh -c 'rm -r mnt/docs && false' || ls mnt/docs | wc -l",
    "holdfast txn mnt -- sh -c 'rm -r mnt/fuzz && echo held fast > mnt/notes'",
    "# the daemon is killed; the next mount has the transaction",
    "kill -9 $(holdfast stats --json mnt | jq .pid)",
    "holdfast umount mnt && holdfast mount work.img mnt && cat mnt/notes",
    "holdfast diff mnt@start mnt --stat",
    "# back to the snapshot, beneath programs that use the mount",
    "holdfast snapshot rollback mnt start && ls -d mnt/fuzz",
    "# fsck is a second reader that shares no code with the engine",
    "holdfast umount mnt && holdfast fsck work.img",
]

THEME = TerminalTheme(
    (22, 27, 34),
    (222, 227, 232),
    [(22, 27, 34), (248, 113, 113), (126, 211, 133), (230, 190, 90), (121, 184, 255), (200, 160, 250), (90, 210, 220), (222, 227, 232)],
)

# The frame of rich without its fonts from the network: a reader of the README should ask nobody else.
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<!-- Made by scripts/picture.py from a real session. -->
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run(command: str, work: pathlib.Path, path: str) -> str:
    """What the command prints. It has a shell of its own, and the program under the name that people type."""
    environment = {"PATH": path, "HOME": str(work), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=work, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def session(repository: pathlib.Path, holdfast: pathlib.Path, work: pathlib.Path) -> list[tuple[str, str]]:
    """Each line of the session with its output."""
    (work / "bin").mkdir()
    (work / "bin/holdfast").symlink_to(holdfast)
    (work / "mnt").mkdir()
    with open(work / "repository.tar", "wb") as tar:
        subprocess.run(["git", "archive", "HEAD"], cwd=repository, stdout=tar, check=True)
    path = f"{work}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    try:
        return [(line, "" if line.startswith("#") else run(line, work, path)) for line in SESSION]
    finally:
        # Nothing is mounted at the end of a session that went well.
        subprocess.run([holdfast, "umount", work / "mnt"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    repository = pathlib.Path(__file__).resolve().parent.parent
    holdfast = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else repository / "target/release/holdfast").resolve()
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else repository / "docs/tour.svg"
    if not shutil.which("jq"):
        raise SystemExit("needs jq")
    with tempfile.TemporaryDirectory() as work:
        lines = session(repository, holdfast, pathlib.Path(work))
    screen = Console(record=True, width=WIDTH, file=open("/dev/null", "w"), force_terminal=True, color_system="truecolor")
    for index, (line, output) in enumerate(lines):
        if line.startswith("#"):
            if index > 0:
                screen.print()
            screen.print(Text(line, style="color(2)"))
            continue
        screen.print(Text.assemble(("$ ", "color(4)"), (line, "bold")))
        if output:
            screen.print(Text(output.rstrip("\n")))
    out.write_text(screen.export_svg(title="holdfast", theme=THEME, code_format=FRAME, unique_id="tour"))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
