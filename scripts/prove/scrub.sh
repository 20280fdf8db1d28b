#!/usr/bin/env bash
# A scrub beside programs: MiB/s of a scrub of a volume in use, beside those of a plain read of the same image past the host's cache;
# and p99 of append 4 KiB + fsync alone, beside a scrub that goes round and round, and beside one with a rate. Says what is damaged, which is nothing.
# usage: scrub.sh [MiB of data [SECONDS of each]]   (default: 1024 10)
. "$(dirname "$0")/lib.sh"
bash "$(dirname "$0")/../need.sh" python3=python3
MIB=${1:-1024} SECONDS_EACH=${2:-10}
export XDG_STATE_HOME=$WORK/state

SCRUB=
let_go() { touch "$WORK/enough"; [ -z "$SCRUB" ] || wait "$SCRUB" || true; }

written "$IMAGE" $((MIB * 2))M
"$HOLDFAST" mkfs -q --force "$IMAGE"
attach
mkdir "$DIR/data"
for file in $(seq $((MIB / 16))); do head -c 16M /dev/urandom >"$DIR/data/$file"; done
for file in $(seq 5000); do head -c 3000 /dev/urandom >"$DIR/data/small$file"; done
"$HOLDFAST" snapshot create "$DIR" monday >/dev/null
"$HOLDFAST" sync "$DIR"

say "a scrub at full rate, and a plain read of as many bytes:"
"$HOLDFAST" scrub --anew --rate 100G "$DIR" | sed 's|^.*: |  |'
"$HOLDFAST" scrub --anew --rate 100G --json "$DIR" >"$WORK/scrub.json"
bytes=$(python3 -c 'import json, sys; print([json.loads(line) for line in open(sys.argv[1])][-1]["read_bytes"])' "$WORK/scrub.json")
dd if="$IMAGE" of=/dev/null bs=256K iflag=direct,count_bytes count="$bytes" 2>&1 | sed -n 's/^/  dd, 256 KiB: /; /copied/p'
say "a scrub with the default rate:"
"$HOLDFAST" scrub --anew "$DIR" | sed 's|^.*: |  |'

# fsyncs NAME: p50 and p99 of append + fsync, in microseconds.
fsyncs() {
    python3 - "$DIR/log" "$SECONDS_EACH" "$1" <<'P'
import os, sys, time
path, seconds, name = sys.argv[1], float(sys.argv[2]), sys.argv[3]
file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
took, block, end = [], os.urandom(4096), time.monotonic() + seconds
while time.monotonic() < end:
    start = time.perf_counter()
    os.write(file, block)
    os.fsync(file)
    took.append(time.perf_counter() - start)
took.sort()
at = lambda part: took[min(len(took) - 1, int(len(took) * part))] * 1e6
print(f"  {name}: {len(took)} fsyncs, p50 {at(.5):.0f} us, p99 {at(.99):.0f} us, p99.9 {at(.999):.0f} us")
P
}

# beside NAME ARGUMENTS: the same while scrubs go on, one behind the other.
beside() {
    local name=$1
    shift
    (while [ ! -e "$WORK/enough" ]; do "$HOLDFAST" scrub --anew "$@" "$DIR" >>"$WORK/beside.txt"; done) &
    SCRUB=$!
    fsyncs "$name"
    touch "$WORK/enough"
    wait "$SCRUB"
    SCRUB=
    rm "$WORK/enough"
}
say "append 4 KiB and fsync:"
for _ in 1 2 3; do
    fsyncs "alone"
    beside "beside a scrub"
    beside "beside a scrub with --rate 50M" --rate 50M
done
if grep -v 'nothing is damaged' "$WORK/beside.txt" | grep -q damage; then fail "$(cat "$WORK/beside.txt")"; fi
detach
clean "behind it"
say "scrub: done"
