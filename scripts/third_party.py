#!/usr/bin/env python3
"""The crates that the program is made of, with their licences, as their authors ask everybody who passes the program on.

Prints each one's name, version and licence, and then the texts, each once. Needs cargo and the sources of the crates, as a build leaves
them. usage: third_party.py TARGET     (such as x86_64-unknown-linux-musl)
"""

import json
import os
import pathlib
import subprocess
import sys

CARGO = os.environ.get("CARGO", "cargo")
# What is in every program that Rust makes, and in static ones.
ALWAYS = [
    "Rust's standard library: MIT OR Apache-2.0, https://www.rust-lang.org",
    "musl libc: MIT, https://musl.libc.org",
]


def crates(target):
    """The packages that the program for `target` is linked from and that are not Holdfast's own."""
    # What only builds or tests it is not in it.
    asked = [CARGO, "tree", "--locked", "-p", "holdfast-cli", "--target", target, "-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]
    tree = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout
    # A line is `name vVERSION`, with more behind it for what has a path or was listed before.
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    asked = [CARGO, "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    metadata = json.loads(subprocess.run(asked, check=True, stdout=subprocess.PIPE).stdout)
    found = [package for package in metadata["packages"] if package["source"] and (package["name"], "v" + package["version"]) in linked]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def texts(package):
    """The texts of licences in a crate's source."""
    folder = pathlib.Path(package["manifest_path"]).parent
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE")):
            yield path.name, path.read_text(errors="replace").strip()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: third_party.py TARGET")
    found = crates(sys.argv[1])
    if len(found) < 20:
        sys.exit(f"only {len(found)} crates were found: the tree of dependencies was not understood")
    print("Holdfast is linked from these, beside its own source:\n")
    for line in ALWAYS:
        print(f"  {line}")
    for package in found:
        print(f"  {package['name']} {package['version']}: {package['license'] or 'see its text'}")
    shared = {}
    for package in found:
        for name, text in texts(package):
            shared.setdefault(text, []).append(f"{package['name']} {package['version']} ({name})")
    for text, names in shared.items():
        print("\n" + "=" * 80)
        print("\n".join(names) + "\n" + "-" * 80)
        print(text)


if __name__ == "__main__":
    main()
