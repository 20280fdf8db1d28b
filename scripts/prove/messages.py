#!/usr/bin/env python3
"""How many messages the kernel sends for what programs do, and the time that takes, with the mount options that decide it.

usage: messages.py HOLDFAST [--tar /usr/src/linux-source-6.1.tar.xz] [--part fs] [--files 1000] [--rounds 3] [--json FILE]     (root)

Each mode is a mount of its own, of a volume in a file, in turns, with an ext4 behind them; the tree is `--part` of the archive. Counts
are those of the filesystem process (RELEASE and FORGET, for which no program waits, are counted apart), for each file that the step works
on, and how often its threads slept (voluntary context switches: for a request, a lock or the device). In tar, one GETXATTR asks for
capabilities before the first write of a file, one for a list at fchmod(2): `noxattr` alone ends them, as Linux keeps no answer beyond the
inode. Times are medians of the rounds, in microseconds for each file, and only to be compared within a row.
"""

import argparse
import contextlib
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MODES = {
    "default": "",
    "noxattr": "noxattr",
    "open=kernel": "open=kernel",
    "open=kernel, noxattr": "open=kernel,noxattr",
    "unchecked": "nodefault_permissions",
    "unchecked, noxattr": "nodefault_permissions,noxattr",
    "ext4": None,
}
# Programs go on while these are under way.
UNWAITED = {"release", "releasedir", "forget"}
PAGE = b"x" * 4096


def run(*words, **how):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def create(path):
    with open(path, "wb", buffering=0) as file:
        file.write(PAGE)


def read(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 16):
            pass


def in_two(work, names):
    """Half of it in another process."""
    half = len(names) // 2
    other = os.fork()
    if other == 0:
        status = 1
        try:
            [work(name) for name in names[:half]]
            status = 0
        finally:
            os._exit(status)
    [work(name) for name in names[half:]]
    if os.waitpid(other, 0)[1] != 0:
        sys.exit("the other client failed")


def files_below(folder):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]


class Steps:
    """The steps of one round, in their order, in one mounted directory: a name, what is done, and for how many files."""

    def __init__(self, at, archive, entries, files):
        self.at, self.archive, self.entries = at, archive, entries
        flat = os.path.join(at, "flat")
        self.made = [os.path.join(flat, f"file-{number:05}") for number in range(files)]
        # In directories of their own.
        sides = [os.path.join(at, side) for side in ("left", "right")]
        self.made_by_two = [os.path.join(side, f"file-{number:05}") for side in sides for number in range(files // 2)]
        self.moved = [name + "-moved" for name in self.made]
        for each in flat, *sides:
            os.mkdir(each)

    def list(self):
        tree, copy = os.path.join(self.at, "tree"), os.path.join(self.at, "copy")
        each = lambda work, *names: lambda: [work(*name) for name in zip(*names)]
        quiet = dict(stdout=subprocess.DEVNULL)
        flat = len(self.made)
        os.makedirs(tree, exist_ok=True)
        return [
            ("create 4 KiB", each(create, self.made), flat),
            ("create 4 KiB, 2 clients", lambda: in_two(create, self.made_by_two), flat),
            ("stat, warm", each(os.stat, self.made), flat),
            ("read 4 KiB, again", each(read, self.made), flat),
            ("rename", each(os.rename, self.made, self.moved), flat),
            ("unlink", each(os.unlink, self.moved), flat),
            ("tar x", lambda: run("tar", "-C", tree, "-xf", self.archive), self.entries),
            ("cp -r", lambda: run("cp", "-r", tree, copy), self.entries),
            ("grep -r, again", lambda: subprocess.run(["grep", "-r", "no such line", tree], check=False, **quiet), self.entries),
            ("find -size", lambda: run("find", tree, "-size", "+1G"), self.entries),
            ("rm -r", lambda: run("rm", "-r", tree, copy), 2 * self.entries),
        ]


def mount(holdfast, options, image, at):
    if options is None:
        with open(image, "wb") as file:
            file.truncate(2 << 30)
        run("mkfs.ext4", "-q", "-F", image)
        run("mount", "-o", "loop", image, at)
    else:
        run(holdfast, "mkfs", "-q", "-f", "--size", "2G", image)
        run(holdfast, "mount", image, at, *(["-o", options] if options else []))


def umount(holdfast, options, at):
    """The words that end a mount."""
    return [*([] if options is None else [holdfast]), "umount", at]


def counts(holdfast, options, at):
    """Requests so far by kind, and times that each thread of the filesystem process slept."""
    if options is None:
        return {}, {}
    stats = json.loads(run(holdfast, "stats", "--json", at))
    slept = {}
    for status in glob.glob(f"/proc/{stats['pid']}/task/*/status"):
        # A thread may have ended.
        with contextlib.suppress(OSError), open(status, encoding="utf-8") as lines:
            slept[status] = sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return stats["all"]["requests"], slept


def main():
    asks = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asks.add_argument("holdfast")
    asks.add_argument("--tar", default="/usr/src/linux-source-6.1.tar.xz")
    asks.add_argument("--part", default="fs")
    asks.add_argument("--files", type=int, default=1000)
    asks.add_argument("--rounds", type=int, default=3)
    asks.add_argument("--json")
    asked = asks.parse_args()
    folder, options = tempfile.mkdtemp(prefix="holdfast-messages."), None
    at, image, mounted = os.path.join(folder, "mnt"), os.path.join(folder, "volume.img"), False
    os.mkdir(at)
    try:
        source = os.path.join(folder, "source")
        os.mkdir(source)
        run("tar", "-C", source, "--strip-components=1", "--wildcards", "-xf", asked.tar, f"*/{asked.part}")
        entries = len(files_below(source))
        archive = os.path.join(folder, "part.tar")
        run("tar", "-C", source, "-cf", archive, ".")
        shutil.rmtree(source)
        sums, sleeps, times = {}, {}, {}
        for _ in range(asked.rounds):
            for mode, options in MODES.items():
                mount(asked.holdfast, options, image, at)
                mounted = True
                for name, work, of in Steps(at, archive, entries, asked.files).list():
                    if "again" in name:
                        # Behind the first time fstat(2) asks for the access times that reads have moved.
                        work()
                        work()
                    (before, awake), began = counts(asked.holdfast, options, at), time.perf_counter()
                    work()
                    took = time.perf_counter() - began
                    # What no program waits for comes a moment later.
                    time.sleep(0.05)
                    after, asleep = counts(asked.holdfast, options, at)
                    sums[name, mode] = {kind: (after[kind] - before[kind]) / of for kind in after if after[kind] > before[kind]}
                    sleeps.setdefault((name, mode), []).append(sum(asleep[thread] - awake.get(thread, 0) for thread in asleep) / of)
                    times.setdefault((name, mode), []).append(1e6 * took / of)
                run(*umount(asked.holdfast, options, at))
                mounted = False
    finally:
        if mounted:
            subprocess.run(umount(asked.holdfast, options, at), check=False)
        if not os.path.ismount(at):
            shutil.rmtree(folder)
    steps = list(dict.fromkeys(name for name, _ in sums))
    print(f"{asked.files} files in a directory, or {entries} of {asked.part}; messages that a program waits for + others, sleeps, and us, for each file\n")
    print("| step | " + " | ".join(MODES) + " |")
    print("| --- |" + " ---: |" * len(MODES))
    for name in steps:
        cells = []
        for mode in MODES:
            of = sums[name, mode]
            unwaited = sum(count for kind, count in of.items() if kind in UNWAITED)
            waited = sum(of.values()) - unwaited
            slept = statistics.median(sleeps[name, mode])
            cells.append(f"{waited:.2f} + {unwaited:.2f}, {slept:.2f}, {statistics.median(times[name, mode]):.0f} us")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\nby default:")
    for name in steps:
        of = sorted(sums[name, "default"].items(), key=lambda pair: -pair[1])
        print(f"  {name}: " + ", ".join(f"{kind} {count:.2f}" for kind, count in of if count >= 0.01))
    if asked.json:
        rows = [{"step": name, "mode": mode, "messages": of, "sleeps": sleeps[name, mode], "us": times[name, mode]} for (name, mode), of in sums.items()]
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump({"entries": entries, "files": asked.files, "part": asked.part, "rows": rows}, file, indent=1)


main()
