#!/usr/bin/env python3
"""A workspace for a task: a copy of a large tree in which programs change files, which is compared with the original and thrown away.
Holdfast's forks beside btrfs subvolumes, `cp -a --reflink` on XFS and `cp -a` on ext4, each on a loop device with direct I/O over a
file of its own, in turns.

usage: workspaces.py HOLDFAST [--tar /usr/src/linux.tar] [--times 5] [--changed 1000] [--gib 8]     (root; btrfs-progs, xfsprogs)

Each step is durable when its time ends, and is done by the system's own programs, so the start of a process is in each time. `make`: the
workspace is there and can be worked in (with Holdfast it is mounted). `compare`: the names of all files that differ. `throw away`: its
space is free again. Bytes are what statvfs(3) says is used: of a new workspace, and of one in which the files have changed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

STEPS = ["make", "first write", "compare", "throw away", "new, KiB", "changed, KiB"]


def run(*words, ends=(0,), shell=False):
    done = subprocess.run(words[0] if shell else words, shell=shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in ends:
        sys.exit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def timed(work):
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


class System:
    def __init__(self, folder, gib):
        self.image = os.path.join(folder, self.name + ".img")
        self.mount = os.path.join(folder, self.name)
        os.mkdir(self.mount)
        with open(self.image, "wb") as image:
            image.truncate(gib << 30)
        self.device = run("losetup", "--find", "--show", "--direct-io=on", self.image).strip()
        self.base = os.path.join(self.mount, "base")
        self.work = os.path.join(self.mount, "work")

    def gone(self):
        run("umount", self.mount)
        run("losetup", "-d", self.device)
        os.unlink(self.image)

    def sync(self):
        run("sync", "-f", self.mount)

    def fill(self, archive):
        os.mkdir(self.base)
        run("tar", "-C", self.base, "-xf", archive)
        self.sync()

    def used(self):
        self.sync()
        said = os.statvfs(self.mount)
        return (said.f_blocks - said.f_bfree) * said.f_frsize // 1024


class Copies(System):
    """A tree is copied."""

    def make(self):
        run("cp", "-a", *self.how, self.base, self.work)
        self.sync()

    def compare(self):
        return len(run("diff", "-rq", "--no-dereference", self.base, self.work, ends=(0, 1)).splitlines())

    def throw_away(self):
        run("rm", "-rf", self.work)
        self.sync()


class Ext4(Copies):
    name, title, how = "ext4", "ext4, cp -a", ["--reflink=never"]

    def __init__(self, folder, gib):
        super().__init__(folder, gib)
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.device)
        run("mount", self.device, self.mount)


class Xfs(Copies):
    name, title, how = "xfs", "XFS, cp -a --reflink", ["--reflink=always"]

    def __init__(self, folder, gib):
        super().__init__(folder, gib)
        run("mkfs.xfs", "-q", "-f", self.device)
        run("mount", self.device, self.mount)


class Btrfs(System):
    name = title = "btrfs"

    def __init__(self, folder, gib):
        super().__init__(folder, gib)
        run("mkfs.btrfs", "-q", "-f", "-K", "-m", "single", self.device)
        run("mount", self.device, self.mount)

    def fill(self, archive):
        tree = os.path.join(self.mount, "tree")
        run("btrfs", "subvolume", "create", tree)
        run("tar", "-C", tree, "-xf", archive)
        run("btrfs", "subvolume", "snapshot", "-r", tree, self.base)
        self.sync()

    def make(self):
        run("btrfs", "subvolume", "snapshot", self.base, self.work)
        run("btrfs", "filesystem", "sync", self.mount)

    def compare(self):
        # A read-only snapshot is what it compares.
        end = os.path.join(self.mount, "end")
        run("btrfs", "subvolume", "snapshot", "-r", self.work, end)
        said = run(f"btrfs send --quiet --no-data -p {self.base} {end} | btrfs receive --dump", shell=True)
        run("btrfs", "subvolume", "delete", end)
        return sum(line.startswith("update_extent") for line in said.splitlines())

    def throw_away(self):
        run("btrfs", "subvolume", "delete", "--commit-each", self.work)
        run("btrfs", "subvolume", "sync", "-s", "1", self.mount)


class Holdfast(System):
    name = title = "Holdfast"

    def __init__(self, folder, gib, program, options=""):
        super().__init__(folder, gib)
        self.program = program
        run(program, "mkfs", "-q", "--force", "--copies", "metadata=1", self.device)
        run(program, "mount", *(["-o", options] if options else []), self.device, self.mount)
        self.work = os.path.join(folder, "work")
        os.mkdir(self.work)

    def gone(self):
        run(self.program, "umount", self.mount)
        run("losetup", "-d", self.device)
        os.unlink(self.image)

    def fill(self, archive):
        super().fill(archive)
        run(self.program, "snapshot", "create", self.mount, "base")

    def sync(self):
        run(self.program, "sync", self.mount)

    def make(self):
        run(self.program, "fork", self.mount, "--from", "main@base", "work")
        run(self.program, "mount", self.device + ":work", self.work)

    def used(self):
        # Small files may lie in the log still: a snapshot has them in their place.
        for at in (self.mount, self.work):
            if os.path.ismount(at):
                run(self.program, "snapshot", "create", at, "measured")
                run(self.program, "snapshot", "delete", at, "measured")
        self.settle()
        return super().used()

    def settle(self):
        # A deletion goes on behind the command.
        while json.loads(run(self.program, "stats", "--json", self.mount))["all"]["counters"]["deletions_left"]:
            time.sleep(0.002)

    def compare(self):
        said = run(self.program, "diff", self.mount, "main@base", "work", "--name-only")
        return len(said.splitlines())

    def throw_away(self):
        run(self.program, "umount", self.work)
        run(self.program, "branch", "delete", self.mount, "work")
        self.settle()


def change(system, paths, number):
    top = system.work if isinstance(system, Holdfast) else None
    for path in paths:
        at = os.path.join(top, "base", path) if top else os.path.join(system.work, path)
        with open(at, "ab") as file:
            file.write(b"// %d\n" % number)


def main():
    reader = argparse.ArgumentParser(usage=__doc__)
    reader.add_argument("holdfast")
    reader.add_argument("--tar", default="/usr/src/linux.tar")
    reader.add_argument("--times", type=int, default=5)
    reader.add_argument("--changed", type=int, default=1000)
    reader.add_argument("--gib", type=int, default=8)
    asked = reader.parse_args()
    taken, systems = {}, []
    with tempfile.TemporaryDirectory(prefix="holdfast-workspaces.") as folder:
        try:
            systems.append(Holdfast(folder, asked.gib, os.path.abspath(asked.holdfast)))
            systems += [kind(folder, asked.gib) for kind in (Btrfs, Xfs, Ext4)]
            for system in systems:
                system.fill(asked.tar)
            top = systems[-1].base
            files = sorted(os.path.relpath(os.path.join(at, name), top) for at, _, names in os.walk(top) for name in names
                           if name.endswith((".c", ".h")) and not os.path.islink(os.path.join(at, name)))
            paths = files[:: max(1, len(files) // asked.changed)][: asked.changed]
            print(f"{len(files)} sources, {len(paths)} of them change", flush=True)

            def first_write(system):
                with open(os.path.join(system.work, "first"), "wb") as file:
                    file.write(b"first")
                    os.fsync(file.fileno())

            for number in range(asked.times):
                for system in systems:
                    def note(step, value):
                        taken.setdefault((system.title, step), []).append(value)
                    before = system.used()
                    note("make", timed(system.make))
                    note("new, KiB", system.used() - before)
                    note("first write", timed(lambda: first_write(system)))
                    change(system, paths, number)
                    note("changed, KiB", system.used() - before)
                    found = []
                    note("compare", timed(lambda: found.append(system.compare())))
                    if found[0] < len(paths):
                        sys.exit(f"{system.title}: {len(paths)} files have changed, {found[0]} were named")
                    note("throw away", timed(system.throw_away))
            print(f"{'median, ms':22}" + "".join(f"{step:>14}" for step in STEPS))
            for system in systems:
                row = (statistics.median(taken[system.title, step]) for step in STEPS)
                print(f"{system.title:22}" + "".join(f"{value:14.1f}" if value < 1000 else f"{value:14.0f}" for value in row))
        finally:
            for system in reversed(systems):
                system.gone()


if __name__ == "__main__":
    main()
