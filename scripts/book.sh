#!/usr/bin/env bash
# The documents as a book: target/book/html, made by mdBook and checked (book.py). It takes an mdBook that is there, or builds this version
# of it, once, in target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."
VERSION=0.5.4

bash scripts/need.sh python3=python3
target=${CARGO_TARGET_DIR:-target}
mdbook=$(command -v mdbook || echo "$target/tools/bin/mdbook")
if ! [ -x "$mdbook" ]; then
    echo "building mdBook $VERSION, which takes some minutes"
    "${CARGO:-cargo}" install --quiet --locked --no-default-features --features search --version "$VERSION" --root "$target/tools" mdbook
fi
python3 scripts/book.py "$mdbook" "$target/book"
