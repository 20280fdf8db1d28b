#!/usr/bin/env bash
# Attacks the decoders, whole volumes and the FUSE server, steered by coverage, for as long as you like.
# usage: scripts/fuzz.sh [TARGET|all] [SECONDS]      default: all targets, 60 seconds each; targets: see fuzz/Cargo.toml
#        scripts/fuzz.sh coverage TARGET             what of the crates the target's inputs reach, by file
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

if [ "${1:-}" = coverage ]; then
    target=${2:?usage: scripts/fuzz.sh coverage TARGET}
    rustup component list --installed --toolchain nightly | grep -q llvm-tools ||
        rustup component add --toolchain nightly llvm-tools
    seeds "$target"
    fuzz coverage "$target"
    host=$(rustc -vV | sed -n 's/^host: //p')
    tools=$(rustc +nightly --print sysroot)/lib/rustlib/$host/bin
    "$tools/llvm-cov" report "${CARGO_TARGET_DIR:-target}/$host/coverage/$host/release/$target" \
        -instr-profile="fuzz/coverage/$target/coverage.profdata" \
        -ignore-filename-regex='registry|rustc|/hostile/|/sim/|/script/'
    exit
fi

target=${1:-all} seconds=${2:-60}
[ "$target" = all ] || all=("$target")
for name in "${all[@]}"; do
    printf '\n== %s, %s s\n' "$name" "$seconds"
    seeds "$name"
    # Volumes and requests are made by short programs; the others take bytes of structures.
    case $name in look | recover) len=512 ;; requests) len=2048 ;; *) len=8192 ;; esac
    fuzz run "$name" -- -max_total_time="$seconds" -max_len="$len" -timeout=20 -rss_limit_mb=1024 \
        -malloc_limit_mb=256 -print_final_stats=1
done
