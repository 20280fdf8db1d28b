#!/usr/bin/env bash
# Whether the public crates could be published as they are: packs each, in the order in which they stand on each other, and builds the
# library and the program from what was packed alone. Uploads nothing.
# usage: publishable.sh [--no-verify]     (packs, and builds nothing)
# Behind a first release it also asks cargo-semver-checks, where that is installed, whether the version says what has changed since.
# With CARGO_NET_OFFLINE=true it needs no network, if a build has fetched the dependencies before.
set -euo pipefail
cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}

echo "public, in the order of publication:"
# The crates that may be published, those before that others stand on.
"$CARGO" metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
packages = {package["name"]: package for package in json.load(sys.stdin)["packages"] if package["publish"] is None}
done = []
def visit(name):
    if name in packages and name not in done:
        for dependency in packages[name]["dependencies"]:
            if dependency["kind"] is None:
                visit(dependency["name"])
        done.append(name)
for name in sorted(packages):
    visit(name)
for name in done:
    print("  " + name, packages[name]["version"], "-", packages[name]["description"])
'
# All at once: a crate that is not published yet is taken from the package that was made a moment before.
# That tests stay behind is meant, and that no home page is named.
"$CARGO" publish --workspace --dry-run --locked --allow-dirty "$@" 2>&1 |
    grep -v -e '^warning: ignoring \(test\|example\) ' -e '^warning: aborting upload'

last=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)
if [ -z "$last" ]; then
    echo "semver: there is no release to compare with yet"
elif ! "$CARGO" semver-checks --version >/dev/null 2>&1; then
    echo "semver: not compared with $last; run: cargo install --locked cargo-semver-checks"
else
    # Only these promise an interface.
    "$CARGO" semver-checks --baseline-rev "$last" -p holdfast-fs -p holdfast-stream -p holdfast-archive
fi
