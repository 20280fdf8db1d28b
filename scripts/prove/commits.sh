#!/usr/bin/env bash
# Small durable commits beside databases: 1, 2 and 16 clients put 100 bytes or 4 KiB at a time into Holdfast, as a library and
# through a mount, and into SQLite, LMDB, redb, fjall and RocksDB, on one ext4 over a loop device, which counts bytes and flushes.
# Rounds are interleaved. Asserts nothing about time; a commit of a lone client without a flush of its own is a failure. For root.
# The program is a workspace of its own, `databases`: its first build compiles RocksDB, which takes many minutes.
# usage: commits.sh [options of `holdfast-databases bench commits`, such as --rounds 5, --keys 64, --keep bench-results]
set -euo pipefail
cd "$(dirname "$0")/../.."
HOLDFAST=${HOLDFAST:-$PWD/target/release/holdfast}
[ -x "$HOLDFAST" ] || { echo "run: make build (looked for $HOLDFAST)" >&2; exit 2; }
bash scripts/need.sh c++=build-essential clang=clang losetup=mount mkfs.ext4=e2fsprogs
# What reads RocksDB's headers, which no program tells of.
compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || apt-get install -y --no-install-recommends libclang-dev >/dev/null
${CARGO:-cargo} build --release --locked --manifest-path databases/Cargo.toml
exec databases/target/release/holdfast-databases bench commits --program "$HOLDFAST" "$@"
