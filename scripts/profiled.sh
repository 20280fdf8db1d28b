#!/usr/bin/env bash
# Builds the program for what people do with files: it is built once to see which of its code that uses, and again so that this
# code lies together. An fsync then runs through less of it between two waits for the disk (docs/MEASURED.md).
# usage: scripts/profiled.sh        a quarter of an hour; leaves profiled/holdfast in the target directory
# Mounts are part of what is seen where /dev/fuse can be used. Installs llvm-profdata and llvm-bolt of the compiler's version,
# if they are missing; without llvm-bolt it leaves the last step out.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}/profiled")
host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
mkdir -p "$target"
# What fails leaves none.
rm -f "$target/holdfast"
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
        "$cargo" build --release --locked -p holdfast-cli --target "$host"
}

# use PROGRAM: what people do with files, in the library and through a mount.
use() {
    rm -rf "$target/seen" "$scratch"/*
    mkdir "$target/seen" "$scratch/mnt"
    "$1" bench --files 200000 --mebibytes 256 --appends 3000 --rounds 2 --file "$scratch/appends" >/dev/null
    "$1" mkfs --size 4G "$scratch/volume" >/dev/null
    if [ -n "$can_mount" ] && "$1" mount "$scratch/volume" "$scratch/mnt"; then
        "$1" bench dir --scale quick --rounds 2 --seconds 1 "$scratch/mnt" >/dev/null
        local daemon
        daemon=$("$1" stats --json "$scratch/mnt" | grep -o '"pid":[0-9]*' | cut -d: -f2)
        "$1" umount "$scratch/mnt"
        # It writes what it has seen when it ends; where nobody waits for it, a zombie is left.
        while grep -q '^State:[[:space:]]*[^Z]' "/proc/$daemon/status" 2>/dev/null; do sleep 0.1; done
    else
        echo "left out: what the kernel asks of a mount, since none can be made here"
    fi
    "$1" fsck "$scratch/volume"
}

build seeing "-Cprofile-generate=$target/seen"
use "$target/seeing/$host/release/holdfast"
"$merge" merge --output "$target/profile" "$target"/seen/*.profraw

# Anew: nobody tells cargo that what it has was built for another profile.
rm -rf "$target/using"
build using "-Cprofile-use=$target/profile" -Clink-arg=-Wl,--emit-relocs
holdfast=$target/using/$host/release/holdfast

# The compiler has laid out each function; llvm-bolt lays out all of them.
if [ -n "$bolt" ]; then
    said() { "$@" >"$target/said" 2>&1 || { cat "$target/said" >&2; return 1; }; }
    said "$bolt" "$holdfast" -o "$target/seeing/holdfast" -instrument \
        --instrumentation-file="$target/seen/jumps" --instrumentation-file-append-pid
    use "$target/seeing/holdfast"
    said "merge-fdata-$llvm" "$target"/seen/jumps.* -o "$target/jumps"
    said "$bolt" "$holdfast" -o "$target/using/holdfast" --data="$target/jumps" -update-debug-sections \
        -reorder-blocks=ext-tsp -reorder-functions=cdsort -split-functions -split-strategy=cdsplit -split-all-cold -split-eh \
        -icf=1 -use-gnu-stack
    holdfast=$target/using/holdfast
fi

# Still what it was? Power cuts say so.
"$holdfast" crashtest --states 100000 --cases "$target/cases"
install -m755 "$holdfast" "$target/holdfast"
echo "built $target/holdfast${bolt:+, laid out by $bolt}"
