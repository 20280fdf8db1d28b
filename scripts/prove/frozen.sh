#!/usr/bin/env bash
# How long commits stop everybody: a kernel's source tree is unpacked while a commit runs every second, beside a
# reader and a creator that each watch for their longest stall. Wanted: frozen p99 under 2 ms. Asserts no time.
# Several rounds, each beside the trees before, because one untar has only some forty commits.
# usage: frozen.sh [ROUNDS] [mount options, e.g. dirty=whole with HOLDFAST=holdfast-dev] [ARCHIVE.tar.xz]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
ROUNDS=${1:-3}
OPTIONS=commit=1${2:+,$2}
ARCHIVE=${3:-/usr/src/linux-source-6.1.tar.xz}
[ -r "$ARCHIVE" ] || fail "$ARCHIVE is missing; on Debian: apt-get install linux-source-6.1"
bash "$HERE/../need.sh" python3=python3 bc=bc xz=xz-utils
WATCHERS=()
stop_watchers() {
    local pid
    for pid in "${WATCHERS[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${WATCHERS[@]}"; do wait "$pid" || true; done
    WATCHERS=()
}
let_go() { stop_watchers; }
xz -dc "$ARCHIVE" >"$WORK/tree.tar"

make $((2 + 2 * ROUNDS))G
attach -o "$OPTIONS"
mkdir "$DIR/read" "$DIR/create"
python3 - "$DIR/read" <<'P'
import os, sys
for n in range(200):
    with open(os.path.join(sys.argv[1], f"f{n}"), "wb") as file: file.write(os.urandom(1000 * (n % 40)))
P
"$HOLDFAST" sync "$DIR"
"$HOLDFAST" stats --json "$DIR" >"$WORK/before.json"
python3 "$HERE/stall.py" read "$DIR/read" "$WORK/read.ready" >"$WORK/read.txt" & WATCHERS+=($!)
python3 "$HERE/stall.py" create "$DIR/create" "$WORK/create.ready" >"$WORK/create.txt" & WATCHERS+=($!)
until [ -e "$WORK/read.ready" ] && [ -e "$WORK/create.ready" ]; do sleep 0.1; done
for round in $(seq 1 "$ROUNDS"); do
    mkdir "$DIR/tree$round"
    seconds tar -C "$DIR/tree$round" -xf "$WORK/tree.tar"
    say "  untar $round: ${SECONDS_TAKEN} s with $OPTIONS"
done
"$HOLDFAST" stats --json "$DIR" >"$WORK/after.json"
stop_watchers
python3 "$HERE/counters.py" "$WORK/before.json" "$WORK/after.json"
cat "$WORK/read.txt" "$WORK/create.txt"
[ -s "$WORK/read.txt" ] && [ -s "$WORK/create.txt" ] || fail "a watcher ended before it was told to"
detach
clean "after the untar"
say "frozen: done"
