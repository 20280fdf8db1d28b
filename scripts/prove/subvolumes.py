#!/usr/bin/env python3
"""Snapshots beside subvolumes: Holdfast and btrfs, each on a loop device with direct I/O over a file of its own, in turns.

usage: subvolumes.py HOLDFAST [--files 100,1000,10000] [--snapshots 1,10,100,1000] [--times 20]     (root; btrfs-progs)

One file changes before each operation, and each operation is durable when its time ends. All are carried out by the systems'
own programs, so the start of a process is in each time; how long that takes alone stands in front. A deletion ends when all of
its space is free. Rolling back with btrfs: a rename, a writable snapshot in its place, a sync. The last column is the power that
fits the growth best: 0 is flat, 1 is in proportion.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

DIR_FILES = 1000


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stdout}")
    return done.stdout


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class System:
    def __init__(self, folder, gib):
        self.image = os.path.join(folder, self.name + ".img")
        self.mount = os.path.join(folder, self.name)
        os.mkdir(self.mount)
        with open(self.image, "wb") as image:
            os.posix_fallocate(image.fileno(), 0, gib << 30)
        self.device = run("losetup", "--find", "--show", "--direct-io=on", self.image).strip()
        self.count, self.files = 0, 0

    def gone(self):
        self.unmount()
        run("losetup", "-d", self.device)
        os.unlink(self.image)

    def grow(self, files):
        while self.files < files:
            folder = os.path.join(self.tree, str(self.files // DIR_FILES))
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, str(self.files)), "wb") as file:
                file.write(bytes(4096))
            self.files += 1
        os.sync()

    def change(self):
        number = self.count * 7919 % self.files
        with open(os.path.join(self.tree, str(number // DIR_FILES), str(number)), "wb") as file:
            file.write(os.urandom(4096))

    def fresh(self, word):
        self.count += 1
        return f"{word}-{self.count}"


class Holdfast(System):
    name = "holdfast"

    def __init__(self, folder, gib, program):
        self.program = program
        super().__init__(folder, gib)
        run(program, "mkfs", "-q", "--force", "--copies", "metadata=1", self.device)
        self.remount()
        self.tree = os.path.join(self.mount, "tree")

    def remount(self):
        return timed(lambda: run(self.program, "mount", self.device, self.mount))

    def unmount(self):
        run(self.program, "umount", self.mount)

    def start(self):
        run(self.program, "--version")

    def snapshot(self, name):
        run(self.program, "snapshot", "create", self.mount, name)

    def fork(self, snapshot, name):
        run(self.program, "fork", self.mount, "--from", "main@" + snapshot, name)

    def end_fork(self, name):
        run(self.program, "branch", "delete", self.mount, name)

    def delete(self, name):
        run(self.program, "snapshot", "delete", self.mount, name)
        self.settle()

    def settle(self):
        while self.counter("deletions_left"):
            time.sleep(0.002)

    def counter(self, name):
        def find(value):
            if isinstance(value, dict):
                return next((hit for key, one in value.items() if (hit := one if key == name else find(one)) is not None), None)
            if isinstance(value, list):
                return next((hit for one in value if (hit := find(one)) is not None), None)
            return None
        return find(json.loads(run(self.program, "stats", "--json", self.mount))) or 0

    def roll_back(self, name, keep):
        run(self.program, "snapshot", "rollback", self.mount, name, "--keep", keep)

    def end_tip(self, name):
        self.delete(name)

    def memory(self):
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = open(f"/proc/{process}/cmdline").read().split("\0")
                if self.mount in words and "mount" in words:
                    return next(int(line.split()[1]) for line in open(f"/proc/{process}/status") if line.startswith("VmRSS"))
            except OSError:
                pass
        return 0


class Btrfs(System):
    name = "btrfs"

    def __init__(self, folder, gib):
        super().__init__(folder, gib)
        run("mkfs.btrfs", "-q", "-f", "-K", "-m", "single", "-d", "single", self.device)
        self.remount()
        self.tree = os.path.join(self.mount, "main")
        run("btrfs", "subvolume", "create", self.tree)

    def remount(self):
        return timed(lambda: run("mount", self.device, self.mount))

    def unmount(self):
        run("umount", self.mount)

    def start(self):
        run("btrfs", "--version")

    def at(self, name):
        return os.path.join(self.mount, name)

    def sync(self):
        run("btrfs", "filesystem", "sync", self.mount)

    def snapshot(self, name):
        run("btrfs", "subvolume", "snapshot", "-r", self.tree, self.at(name))
        self.sync()

    def fork(self, snapshot, name):
        run("btrfs", "subvolume", "snapshot", self.at(snapshot), self.at(name))
        self.sync()

    def delete(self, name):
        run("btrfs", "subvolume", "delete", "--commit-each", self.at(name))
        self.settle()

    end_fork = end_tip = delete

    def settle(self):
        run("btrfs", "subvolume", "sync", "-s", "1", self.mount)

    def roll_back(self, name, keep):
        os.rename(self.tree, self.at(keep))
        run("btrfs", "subvolume", "snapshot", self.at(name), self.tree)
        self.sync()


def measure(system, times, taken, x):
    def note(what, work):
        taken.setdefault((what, system.name), {}).setdefault(x, []).append(timed(work))

    for _ in range(times):
        base, fork, tip = system.fresh("base"), system.fresh("fork"), system.fresh("tip")
        system.change()
        note("snapshot", lambda: system.snapshot(base))
        note("fork of a snapshot", lambda: system.fork(base, fork))
        system.change()
        note("rollback", lambda: system.roll_back(base, tip))
        system.end_tip(tip)
        system.end_fork(fork)
        system.settle()
        system.change()
        note("deletion", lambda: system.delete(base))


def exponent(points):
    points = [(math.log(x), math.log(y)) for x, y in points]
    if len(points) < 2:
        return None
    mean_x, mean_y = (statistics.mean(axis) for axis in zip(*points))
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / sum((x - mean_x) ** 2 for x, _ in points)


def table(title, taken):
    print(f"\n{title}: median, milliseconds")
    for (what, system), by_size in sorted(taken.items()):
        medians = [(x, statistics.median(values)) for x, values in sorted(by_size.items())]
        cells = "  ".join(f"{x}: {1000 * value:8.2f}" for x, value in medians)
        power = exponent(medians)
        print(f"  {what:20} {system:10} {cells}   {'' if power is None else f'{power:+.3f}'}", flush=True)


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    reader = argparse.ArgumentParser(usage=__doc__)
    reader.add_argument("holdfast")
    reader.add_argument("--files", type=numbers, default=[100, 1000, 10000])
    reader.add_argument("--snapshots", type=numbers, default=[1, 10, 100, 1000])
    reader.add_argument("--times", type=int, default=20)
    reader.add_argument("--gib", type=int, default=4)
    asked = reader.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-subvolumes.") as folder:
        systems = [Holdfast(folder, asked.gib, os.path.abspath(asked.holdfast)), Btrfs(folder, asked.gib)]
        try:
            for system in systems:
                median = statistics.median(timed(system.start) for _ in range(20))
                print(f"{system.name}: {1000 * median:.2f} ms for a start of the program that does nothing")
            taken = {}
            for files in asked.files:
                for system in systems:
                    system.grow(files)
                    measure(system, asked.times, taken, files)
            table("files of the tree", taken)
            taken, kept = {}, 0
            system = systems[0]
            system.unmount()
            print(f"\nmount without snapshots: {1000 * system.remount():.1f} ms, {system.memory()} KiB")
            for snapshots in asked.snapshots:
                for system in systems:
                    for number in range(kept, snapshots):
                        system.change()
                        system.snapshot(f"kept-{number}")
                    measure(system, asked.times, taken, snapshots)
                kept = snapshots
            table("snapshots of the volume", taken)
            system = systems[0]
            system.unmount()
            print(f"\nmount with {kept} snapshots: {1000 * system.remount():.1f} ms, {system.memory()} KiB")
        finally:
            for system in systems:
                system.gone()


if __name__ == "__main__":
    main()
