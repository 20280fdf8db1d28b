#!/usr/bin/env bash
# Builds the program for what people do with files: it is built once to see which of its code that uses, and again so that this
# code lies together. An fsync then runs through less of it between two waits for the disk (docs/MEASURED.md).
# usage: scripts/profiled.sh [holdfast|holdfast-dev]        a quarter of an hour; leaves profiled/holdfast in the target directory
# `holdfast` is seen while it serves a mount, on which an ordinary holdfast-dev does the work, and while it copies a tree into
# a volume and out again; `holdfast-dev` is seen while it measures the library as well. Mounts are left out where /dev/fuse
# cannot be used. Installs llvm-profdata and llvm-bolt of the compiler's version, if they are missing; without llvm-bolt it
# leaves the last step out.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-holdfast} in
    holdfast) name=holdfast package=holdfast-cli ;;
    holdfast-dev) name=holdfast-dev package=holdfast-dev ;;
    *) echo "usage: $0 [holdfast|holdfast-dev]" >&2; exit 2 ;;
esac
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}/profiled")
host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
dev=$target/../release/holdfast-dev
mkdir -p "$target"
# What fails leaves none.
rm -f "$target/$name"
# On the disk, because what lies in memory may not take direct I/O.
scratch=$(mktemp -d -p "$target")
clean_up() {
    umount "$scratch/mnt" 2>/dev/null || fusermount3 -uz "$scratch/mnt" 2>/dev/null || true
    rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
# Where profiles go is built in.
unset LLVM_PROFILE_FILE

# Profiles are read by the compiler's own version of LLVM: rustup has it as llvm-tools, Debian as llvm-N.
merge=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
if [ ! -x "$merge" ]; then
    merge=llvm-profdata-$llvm
    if ! bash scripts/need.sh "$merge=llvm-$llvm"; then
        echo "or run: rustup component add llvm-tools" >&2
        exit 1
    fi
fi
bolt=llvm-bolt-$llvm
bash scripts/need.sh "$bolt=bolt-$llvm" || bolt=
can_mount=
if [ -w /dev/fuse ] && bash scripts/need.sh fusermount3=fuse3; then can_mount=yes; fi

# build FOLDER FLAG...: told a target, cargo leaves out what runs while it builds.
build() {
    local folder=$1 flags
    shift
    # shellcheck disable=SC2206 # several words
    flags=(${RUSTFLAGS:-} "$@")
    local IFS=$'\x1f'
    CARGO_ENCODED_RUSTFLAGS="${flags[*]}" CARGO_TARGET_DIR=$target/$folder CARGO_INCREMENTAL=0 HOLDFAST_PROFILED=1 \
        "$cargo" build --release --locked -p "$package" --target "$host"
}

# use PROGRAM: what people do with files, in the library and through a mount.
use() {
    rm -rf "$target/seen" "$scratch"/*
    mkdir "$target/seen" "$scratch/mnt"
    if [ "$name" = holdfast-dev ]; then
        "$1" bench --files 200000 --mebibytes 256 --appends 3000 --rounds 2 --file "$scratch/appends" >/dev/null
    fi
    "$1" mkfs --size 4G "$scratch/volume" >/dev/null
    if [ -n "$can_mount" ] && "$1" mount "$scratch/volume" "$scratch/mnt"; then
        "$dev" bench dir --scale quick --rounds 2 --seconds 1 "$scratch/mnt" >/dev/null
        local daemon
        daemon=$("$1" stats --json "$scratch/mnt" | grep -o '"pid":[0-9]*' | cut -d: -f2)
        "$1" umount "$scratch/mnt"
        # It writes what it has seen when it ends; where nobody waits for it, a zombie is left.
        while grep -q '^State:[[:space:]]*[^Z]' "/proc/$daemon/status" 2>/dev/null; do sleep 0.1; done
    else
        echo "left out: what the kernel asks of a mount, since none can be made here"
    fi
    "$1" cp -r crates "$scratch/volume:/"
    "$1" cp -r "$scratch/volume:/crates" "$scratch/copy"
    diff -r crates "$scratch/copy"
    "$1" fsck "$scratch/volume"
}

# What does the work on the mount is not looked at: it is built as usual.
"$cargo" build --release --locked -p holdfast-dev
build seeing "-Cprofile-generate=$target/seen"
use "$target/seeing/$host/release/$name"
"$merge" merge --output "$target/profile" "$target"/seen/*.profraw

# Anew: nobody tells cargo that what it has was built for another profile.
rm -rf "$target/using"
build using "-Cprofile-use=$target/profile" -Clink-arg=-Wl,--emit-relocs
holdfast=$target/using/$host/release/$name

# The compiler has laid out each function; llvm-bolt lays out all of them.
if [ -n "$bolt" ]; then
    said() { "$@" >"$target/said" 2>&1 || { cat "$target/said" >&2; return 1; }; }
    said "$bolt" "$holdfast" -o "$target/seeing/$name" -instrument \
        --instrumentation-file="$target/seen/jumps" --instrumentation-file-append-pid
    use "$target/seeing/$name"
    said "merge-fdata-$llvm" "$target"/seen/jumps.* -o "$target/jumps"
    said "$bolt" "$holdfast" -o "$target/using/$name" --data="$target/jumps" -update-debug-sections \
        -reorder-blocks=ext-tsp -reorder-functions=cdsort -split-functions -split-strategy=cdsplit -split-all-cold -split-eh \
        -icf=1 -use-gnu-stack
    holdfast=$target/using/$name
fi

# Still what it was? A tree that comes back as it went in says so, and power cuts where they can be had.
use "$holdfast"
if [ "$name" = holdfast-dev ]; then "$holdfast" crashtest --states 100000 --cases "$target/cases"; fi
install -m755 "$holdfast" "$target/$name"
echo "built $target/$name${bolt:+, laid out by $bolt}"
