# Shared by the proofs: a volume that is made, mounted, checked, and always cleaned up.
# Each proof sources this file, which needs: bash, root or fusermount3, and $HOLDFAST (the program). $HOLDFAST_DEV is the one
# with benchmarks and with what was done before the mechanisms: proofs that need it say so with `need_dev`.
set -euo pipefail

HOLDFAST=${HOLDFAST:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/target/release/holdfast}
[ -x "$HOLDFAST" ] || { echo "run: make build (looked for $HOLDFAST)" >&2; exit 2; }
HOLDFAST_DEV=${HOLDFAST_DEV:-$HOLDFAST-dev}
need_dev() { [ -x "$HOLDFAST_DEV" ] || { echo "run: make dev (looked for $HOLDFAST_DEV)" >&2; exit 2; }; }
WORK=${WORK:-$(mktemp -d "${TMPDIR:-/tmp}/holdfast-prove.XXXXXX")}
IMAGE=$WORK/volume.img
DIR=$WORK/mnt
mkdir -p "$DIR"

say() { printf '%s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# Also a mount whose daemon is dead, of which mountpoint(1) says that it is none.
mounted() { awk -v at="$DIR" '$5 == at { found = 1 } END { exit !found }' /proc/self/mountinfo; }

# written FILE SIZE: a file that was written from end to end, so that the host allocates nothing under an fsync.
written() { dd if=/dev/zero of="$1" bs=4M count="$(numfmt --from=iec "$2")" iflag=count_bytes conv=fsync status=none; }

# A loop device with direct I/O over the file $1. For root. Let go at the end, whatever happens.
LOOP=
loop() {
    LOOP=$(losetup --find --show --direct-io=on "$1")
    [ "$(cat "/sys/block/${LOOP#/dev/}/loop/dio")" -eq 1 ] || say "  $LOOP has no direct I/O: the host's cache is in between"
}
unloop() {
    [ -z "$LOOP" ] || losetup -d "$LOOP"
    LOOP=
}

# A proof that holds more than a mount redefines this; it runs first, whatever happened.
let_go() { :; }
cleanup() {
    local status=$?
    let_go || true
    if mounted; then "$HOLDFAST" umount "$DIR" >/dev/null 2>&1 || umount -l "$DIR" || true; fi
    unloop || true
    if [ "$status" -eq 0 ] && [ -z "${KEEP:-}" ]; then rm -rf "$WORK"; else say "kept: $WORK"; fi
    exit "$status"
}
trap cleanup EXIT
# A proof that is stopped from outside cleans up as well.
trap 'exit 143' TERM HUP INT

# make SIZE [mkfs options]
make() { rm -f "$IMAGE"; "$HOLDFAST" mkfs -q --size "$@" "$IMAGE"; }
# make_written SIZE: the same in a file that was written before. The file stays for the next one.
make_written() {
    [ -e "$IMAGE" ] || written "$IMAGE" "$1"
    "$HOLDFAST" mkfs -q --force "$IMAGE"
}
attach() { "$HOLDFAST" mount "$@" "$IMAGE" "$DIR"; mounted || fail "mount returned and nothing is mounted"; }
detach() { "$HOLDFAST" umount "$DIR"; }

# The process that serves the volume: the one that holds the image open.
daemon() {
    local fd
    for fd in /proc/[0-9]*/fd/*; do
        if [ "$(readlink "$fd" 2>/dev/null)" = "$IMAGE" ]; then
            fd=${fd#/proc/}
            say "${fd%%/*}"
            return
        fi
    done
    fail "no process holds $IMAGE"
}

# Ends the daemon without warning, as a power cut of the process would, and removes the dead mount.
crash() {
    local pid
    pid=$(daemon)
    kill -9 "$pid"
    while [ -d "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
    umount -l "$DIR"
}

clean() { "$HOLDFAST" fsck -n "$IMAGE" >"$WORK/fsck.txt" 2>&1 || { cat "$WORK/fsck.txt"; fail "fsck: $1"; }; say "  fsck clean: $1"; }

# Used blocks as statfs tells them.
used() { stat -f -c '%b %f' "$DIR" | awk '{ print $1 - $2 }'; }

peak_kib() { awk '/^VmHWM/ { print $2 }' "/proc/$(daemon)/status"; }

seconds() {
    local start
    start=$(date +%s.%N)
    "$@"
    SECONDS_TAKEN=$(echo "$(date +%s.%N) - $start" | bc)
}

# stats NAME: the counters of the volume, for counters.py, as $WORK/NAME.json.
stats() { "$HOLDFAST" stats --json "$DIR" >"$WORK/$1.json"; }

# in_turn ROUND A B...: the words in this order in odd rounds, the last one first in even ones.
in_turn() {
    local round=$1
    shift
    if [ $((round % 2)) -eq 1 ]; then say "$@"; else say "$@" | tr ' ' '\n' | tac | tr '\n' ' '; fi
}
