#!/usr/bin/env bash
# Attacks the decoders, whole volumes, the FUSE server, streams and archives, steered by coverage, for as long as you like.
# usage: scripts/fuzz.sh [TARGET|all] [SECONDS]      default: all targets, 60 seconds each; targets: see fuzz/Cargo.toml
#        scripts/fuzz.sh coverage [TARGET|all]       what of the crates the kept inputs reach, by file
# Inputs that break something go to fuzz/artifacts/TARGET, what reaches far to fuzz/corpus/TARGET; both stay.
# Installs what it needs: a nightly compiler (by rustup) and cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz

# Everything is safe Rust but a few lines of `device`, so an address sanitizer would mostly make it slower.
fuzz() { cargo +nightly fuzz "$1" --fuzz-dir fuzz --sanitizer none "${@:2}"; }
seeds() {
    mkdir -p "fuzz/corpus/$1" "fuzz/artifacts/$1"
    cargo run --quiet --locked -p holdfast-hostile -- corpus "$1" "fuzz/corpus/$1"
}

mapfile -t all < <(cargo run --quiet --locked -p holdfast-hostile -- list | awk '{ print $1 }')

# The tools that read the compiler's counts: rustup's, or the distribution's of the same version.
llvm() {
    local tool=$1 host version
    shift
    host=$(rustc -vV | sed -n 's/^host: //p')
    version=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
    for tool in "$(rustc --print sysroot)/lib/rustlib/$host/bin/$tool" "$tool-$version"; do
        if command -v "$tool" >/dev/null; then "$tool" "$@"; return; fi
    done
    echo "needs llvm-tools: rustup component add llvm-tools, or apt-get install llvm-$version" >&2
    return 1
}

if [ "${1:-}" = coverage ]; then
    [ "${2:-all}" = all ] || all=("$2")
    out=${CARGO_TARGET_DIR:-target}/coverage
    rm -f "$out"/*.profraw
    RUSTFLAGS="-C instrument-coverage" CARGO_TARGET_DIR=$out cargo build --quiet --locked -p holdfast-hostile
    for name in "${all[@]}"; do
        seeds "$name"
        # An input that breaks something ends its process; the others go on.
        find "fuzz/corpus/$name" -type f -print0 | LLVM_PROFILE_FILE="$out/$name-%p.profraw" \
            xargs -0 -n 200 "$out/debug/hostile" run "$name" >/dev/null || echo "$name: some inputs break something"
    done
    llvm llvm-profdata merge -sparse "$out"/*.profraw -o "$out/all.profdata"
    llvm llvm-cov report "$out/debug/hostile" -instr-profile="$out/all.profdata" \
        -ignore-filename-regex='registry|rustc|/hostile/|/sim/|/script/'
    exit
fi

target=${1:-all} seconds=${2:-60}
[ "$target" = all ] || all=("$target")
for name in "${all[@]}"; do
    printf '\n== %s, %s s\n' "$name" "$seconds"
    seeds "$name"
    # Volumes and requests are made by short programs; the others take bytes of structures.
    case $name in look | recover | repair) len=512 ;; requests) len=2048 ;; archive) len=32768 ;; *) len=8192 ;; esac
    fuzz run "$name" -- -max_total_time="$seconds" -max_len="$len" -timeout=20 -rss_limit_mb=1024 \
        -malloc_limit_mb=256 -print_final_stats=1
done
