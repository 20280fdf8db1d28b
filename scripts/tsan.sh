#!/usr/bin/env bash
# Runs the tests in which threads work beside each other under ThreadSanitizer, the standard library included: what two
# of them touch without an order, one of them writing, is a failure.
# usage: scripts/tsan.sh                             all of them: a quarter of an hour, the first build included
#        scripts/tsan.sh -p PACKAGE [--test all -- FILE::]    what cargo test is given
# Builds into its own folder of the target directory. Installs what it needs: a nightly compiler and the standard
# library's source (by rustup).
set -euo pipefail
cd "$(dirname "$0")/.."

rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
rustup component add --toolchain nightly rust-src

host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan" CARGO_INCREMENTAL=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Does the alarm ring?
cat >"$scratch/race.rs" <<'RACE'
static mut COUNT: u64 = 0;
fn main() {
    let add = || for _ in 0..1000 { unsafe { COUNT += 1 } };
    std::thread::scope(|scope| { scope.spawn(add); scope.spawn(add); });
}
RACE
rustc +nightly -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --edition 2021 -A warnings \
    -o "$scratch/race" "$scratch/race.rs"
TSAN_OPTIONS=halt_on_error=1 "$scratch/race" >"$scratch/said" 2>&1 || true
if ! grep -q 'data race' "$scratch/said"; then
    echo "a race made on purpose is not found:"
    cat "$scratch/said"
    exit 1
fi

check() {
    RUSTFLAGS=-Zsanitizer=thread TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}" \
        cargo +nightly test --locked -Zbuild-std --target "$host" "$@"
}

if [ $# -gt 0 ]; then
    check "$@"
    exit
fi
check -p holdfast-device -p holdfast-wire -p holdfast-fuse --lib
if [ "$(id -u)" = 0 ] && [ -e /dev/fuse ]; then
    check -p holdfast-fuse --test mount
else
    echo "left out: requests of the kernel, which need root and /dev/fuse"
fi
check -p holdfast-store -p holdfast-posix --lib
check -p holdfast-store --test all -- against_a_map:: failures:: log:: log_recovery:: space:: --skip power_cut_log::
check -p holdfast-posix --test all -- threads:: replace_under_writes:: full::
check -p holdfast-fs --test all -- files::
check -p holdfast-sim --test all -- power_cut_threads:: refused_in_flight:: log_errors::
echo "no data race was found"
