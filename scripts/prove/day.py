#!/usr/bin/env python3
"""An agent's day: packages of npm are installed and loaded, searched, copied, removed; a repository is cloned, another state of it
checked out, a crate of it built. Holdfast beside ext4 and bindfs (on an ext4), each on a loop device with direct I/O over a file of its
own, one after the other in turns.

usage: day.py HOLDFAST [--rounds 5] [--gib 6] [--options spin=...]     (root; bindfs, node with npm, git, cargo)

Packages come from npm's cache, crates from cargo's: both are filled before, which takes the network. A step's time ends with its
program: nothing is synced in it, all is synced between two steps. `again` is the same once more.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile

from workspaces import Ext4, Holdfast, run, timed

PACKAGES = ["typescript@5", "webpack@5", "eslint@9", "jest@29", "lodash@4", "date-fns@4", "@babel/preset-env@7"]
LOADED = "['typescript', 'webpack', 'eslint', 'lodash', 'date-fns', '@babel/core'].forEach(it => require(it))"
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Bindfs(Ext4):
    name = "bindfs"

    def __init__(self, folder, gib):
        super().__init__(folder, gib)
        self.below, self.mount = self.mount, os.path.join(folder, "bound")
        os.mkdir(self.mount)
        run("bindfs", self.below, self.mount)

    def gone(self):
        run("umount", self.mount)
        self.mount = self.below
        super().gone()


def steps(top, cache):
    """Each step: its name, and what is done."""
    npm, tree, copy, clone = (os.path.join(top, name) for name in ("npm", "npm/node_modules", "copy", "clone"))
    commits = run("git", "-C", SOURCE, "rev-list", "--first-parent", "HEAD").split()
    build = ["cargo", "build", "--quiet", "--offline", "--locked", "-p", "holdfast-base", "--manifest-path", clone + "/Cargo.toml", "--target-dir", clone + "/target"]

    def install():
        os.mkdir(npm)
        shutil.copy(os.path.join(cache, "package.json"), npm)
        shutil.copy(os.path.join(cache, "package-lock.json"), npm)
        run("npm", "ci", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", npm, "--cache", cache + "/cache")

    def search():
        run("grep", "-r", "no line has this in it: 7151", tree, ends=(1,))

    def node():
        run(f"cd {npm} && node -e \"{LOADED}\"", shell=True)

    return [
        ("npm ci", install),
        ("node loads it", node),
        ("again", node),
        ("grep -r", search),
        ("again", search),
        ("cp -r", lambda: run("cp", "-r", tree, copy)),
        ("rm -rf", lambda: run("rm", "-rf", copy)),
        ("git clone", lambda: run("git", "clone", "-q", "--no-hardlinks", SOURCE, clone)),
        ("git checkout", lambda: run("git", "-C", clone, "checkout", "-q", commits[min(200, len(commits) - 1)])),
        ("and back", lambda: run("git", "-C", clone, "checkout", "-q", commits[0])),
        ("cargo build", lambda: run(*build)),
        ("git status", lambda: run("git", "-C", clone, "status", "--short")),
    ]


def main():
    reader = argparse.ArgumentParser(usage=__doc__)
    reader.add_argument("holdfast")
    reader.add_argument("--rounds", type=int, default=5)
    reader.add_argument("--gib", type=int, default=6)
    reader.add_argument("--options", default="")
    asked = reader.parse_args()
    run("bash", os.path.join(SOURCE, "scripts/need.sh"), "bindfs=bindfs", "npm=npm", "git=git", "mkfs.ext4=e2fsprogs")
    taken, systems = {}, []
    with tempfile.TemporaryDirectory(prefix="holdfast-day.") as folder:
        cache = os.path.join(folder, "npm")
        os.mkdir(cache)
        run("npm", "install", "--omit-lockfile-registry-resolved=false", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", cache, "--cache", cache + "/cache", *PACKAGES)
        files = sum(len(names) for _, _, names in os.walk(cache + "/node_modules"))
        shutil.rmtree(cache + "/node_modules")
        run("cargo", "fetch", "--quiet", "--locked", "--manifest-path", SOURCE + "/Cargo.toml")
        try:
            systems.append(Holdfast(folder, asked.gib, os.path.abspath(asked.holdfast), asked.options))
            systems += [kind(folder, asked.gib) for kind in (Ext4, Bindfs)]
            for number in range(asked.rounds):
                for system in systems if number % 2 == 0 else reversed(systems):
                    top = os.path.join(system.mount, "day")
                    os.mkdir(top)
                    for at, (_, work) in enumerate(steps(top, cache)):
                        taken.setdefault((system.name, at), []).append(timed(work))
                        system.sync()
                    run("rm", "-rf", top)
                    system.sync()
                print(f"round {number + 1} is over", file=sys.stderr, flush=True)
        finally:
            for system in reversed(systems):
                system.gone()
    show(files, taken, [system.name for system in systems], [name for name, _ in steps("", "")])


def show(files, taken, systems, names):
    print(f"{files} files of npm: median in ms, spread; and how often ext4's time")
    for at, name in enumerate(names):
        of = {system: statistics.median(taken[system, at]) for system in systems}
        spread = {system: 50 * (max(taken[system, at]) - min(taken[system, at])) / of[system] for system in systems}
        cells = (f"{system} {of[system]:7.0f} ±{spread[system]:.0f}% {of[system] / of['ext4']:5.2f}" for system in systems)
        print(f"{name:14}" + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
