#!/usr/bin/env bash
# Recovery of a full journal through the mount, on 1 GiB and on 64 GiB (sparse): the daemon is killed just before
# its checkpointer would have emptied the journal, and the volume is mounted again. Promise and actual side by side.
# Fails if a volume does not mount, is not clean or lost an fsynced file; asserts nothing about time.
# usage: recovery.sh [BUDGET_SECONDS] [MOST_SECONDS_TO_FILL]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
BUDGET=${1:-1}
MOST=${2:-120}
bash "$HERE/../need.sh" python3=python3

for size in 1G 64G; do
    make "$size"
    attach -o "commit=1,recover=$BUDGET"
    # Creates and small writes in many directories, with an fsync now and then: each is a commit. Ends when a
    # checkpoint has been seen and the journal is nearly as full again as it was before.
    python3 - "$DIR" "$HOLDFAST" "$MOST" "$WORK/acknowledged" <<'P' || fail "filling the journal of $size"
import json, os, random, subprocess, sys, time
root, holdfast, most, acknowledged = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
random.seed(1)
def counters():
    said = json.loads(subprocess.run([holdfast, "stats", "--json", root], capture_output=True, check=True).stdout)
    return said.get("all", said)["counters"]
for n in range(300):
    os.mkdir(f"{root}/d{n}")
    for f in range(30): os.close(os.open(f"{root}/d{n}/old{f}", os.O_CREAT | os.O_WRONLY))
subprocess.run([holdfast, "sync", root], check=True)
first, peak, done, start, last = counters()["checkpoints"], 0, 0, time.time(), ""
filled = False
while time.time() - start < most:
    for _ in range(20):
        for _ in range(20):
            path = f"{root}/d{random.randrange(300)}/new{done}"
            with open(path, "wb") as file: file.write(b"x" * random.randrange(5000))
            done += 1
        fd = os.open(path, os.O_WRONLY); os.fsync(fd); os.close(fd)
        last = path
    c = counters()
    filled = filled or c["checkpoints"] > first
    used = c["journal_bytes_used"]
    if filled and peak and used >= 0.9 * peak: break
    peak = max(peak, used)
print(f"  filled: {done} files, {counters()['commits']} commits; a checkpoint was seen: {'yes' if filled else 'no'}; most in the journal {peak / 2**20:.1f} MiB")
open(acknowledged, "w").write(os.path.relpath(last, root))
P
    "$HOLDFAST" stats --json "$DIR" >"$WORK/full.$size.json"
    crash
    start=$(date +%s.%N)
    attach -o "commit=1,recover=$BUDGET"
    echo "$(date +%s.%N) $start" >"$WORK/mount.$size"
    "$HOLDFAST" stats --json "$DIR" >"$WORK/again.$size.json"
    [ -e "$DIR/$(cat "$WORK/acknowledged")" ] || fail "an fsynced file is gone"
    detach
    clean "$size after the crash"
done
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$HERE python3 - "$WORK" <<'P'
import sys
from counters import load, ms
work = sys.argv[1]
print(f"\n{'volume':7} {'journal':>10} {'commits':>8} {'nodes':>7} {'read':>10} {'budget':>12} {'promised':>12} {'actual':>12} {'mount':>12}")
for size in ("1G", "64G"):
    full, again = load(f"{work}/full.{size}.json"), load(f"{work}/again.{size}.json")
    end, start = map(float, open(f"{work}/mount.{size}").read().split())
    mib = lambda value: f"{value / 2**20:.1f} MiB"
    print(f"{size:7} {mib(full['journal_bytes_used']):>10} {again['recovered_commits']:8} {again['recovered_nodes']:7} {mib(again['recovered_bytes']):>10}"
          f" {ms(full['recovery_budget_ns']):>12} {ms(full['recovery_estimate_ns']):>12} {ms(again['recovery_ns']):>12} {ms((end - start) * 1e9):>12}")
P
say "recovery: done"
