#!/usr/bin/env python3
"""The crates that the program is made of, with their licences, as their authors ask everybody who passes the program on.

Prints each one's name, version and licence, and then the texts, each once. Needs cargo and the sources of the crates, as a build leaves
them. usage: third_party.py
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


def crates():
    """The packages that the program is linked from and that are not Holdfast's own."""
    asked = [CARGO, "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-musl"]
    metadata = json.loads(subprocess.run(asked, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    left = [id for id, package in packages.items() if package["name"] == "holdfast-cli"]
    found = set()
    while left:
        one = left.pop()
        if one in found:
            continue
        found.add(one)
        for dependency in nodes[one]["deps"]:
            kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
            # What only builds or tests it is not in it.
            if None in kinds and not any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"]):
                left.append(dependency["pkg"])
    return sorted((packages[id] for id in found if packages[id]["source"]), key=lambda package: (package["name"], package["version"]))


def texts(package):
    """The texts of licences in a crate's source."""
    folder = pathlib.Path(package["manifest_path"]).parent
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE")):
            yield path.name, path.read_text(errors="replace").strip()


def main():
    found = crates()
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
