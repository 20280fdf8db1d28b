#!/usr/bin/env bash
# Renames after an fsync of their directory (M2): rename_log=names beside directory on a real mount, interleaved rounds.
# Files are made and committed (by an unmount), one more is made, the directory is fsynced, and every file is renamed.
# Time per rename should not depend on the directory. Runs of `directory` that would take longer than LONGEST seconds,
# going by the last ones, are left out and named. Asserts nothing about time.
# usage: renames.sh [ROUNDS] [FILES...]        environment: LONGEST=60
. "$(dirname "$0")/lib.sh"
# What was done before is in this program only.
need_dev
HOLDFAST=$HOLDFAST_DEV
HERE=$(cd "$(dirname "$0")" && pwd)
ROUNDS=${1:-3}
shift || true
FILES=("$@")
[ ${#FILES[@]} -gt 0 ] || FILES=(1000 2000 5000 10000 20000 50000 100000)
LONGEST=${LONGEST:-60}
bash "$HERE/../need.sh" python3=python3

cat >"$WORK/create.py" <<'P'
import os, sys
root, files = sys.argv[1], int(sys.argv[2])
os.mkdir(f"{root}/dir")
dir = os.open(f"{root}/dir", os.O_RDONLY)
for n in range(files): os.close(os.open(f"file-{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=dir))
P
cat >"$WORK/rename.py" <<'P'
"""Prints seconds of all renames, and of the fsync behind them."""
import os, subprocess, sys, time
root, files, holdfast, before, after = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
def stats(path): subprocess.run([holdfast, "stats", "--json", root], stdout=open(path, "w"), check=True)
dir = os.open(f"{root}/dir", os.O_RDONLY)
names = [(f"file-{n}", f"renamed-{n}") for n in range(files)]
# The kernel knows all names, as after making them.
for name, _ in names: os.stat(name, dir_fd=dir)
os.close(os.open("one more", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=dir))
os.fsync(dir)
stats(before)
start = time.perf_counter()
for old, new in names: os.rename(old, new, src_dir_fd=dir, dst_dir_fd=dir)
renamed = time.perf_counter()
os.fsync(dir)
done = time.perf_counter()
stats(after)
print(renamed - start, done - renamed)
P

touch "$WORK/last"
for files in "${FILES[@]}"; do
    expected=$(awk -v files="$files" '{ print int($2 * (files / $1) ^ 2) }' "$WORK/last")
    for round in $(seq 1 "$ROUNDS"); do
        for switch in $(in_turn "$round" names directory); do
            if [ "$switch" = directory ] && [ "${expected:-0}" -gt "$LONGEST" ]; then
                [ "$round" -gt 1 ] || echo "$files $expected" >>"$WORK/left_out"
                continue
            fi
            make 4G
            attach -o commit=0
            python3 "$WORK/create.py" "$DIR" "$files"
            detach
            attach -o "commit=0,rename_log=$switch"
            run=$switch.$files.$round
            times=$(python3 "$WORK/rename.py" "$DIR" "$files" "$HOLDFAST" "$WORK/before.$run.json" "$WORK/after.$run.json")
            echo "$files $switch $round $times" >>"$WORK/runs"
            say "  $files files, round $round, rename_log=$switch: ${times%% *} s"
            [ "$switch" = names ] || echo "$files ${times%% *}" >"$WORK/last"
            [ "$(find "$DIR/dir" -name 'renamed-*' | wc -l)" -eq "$files" ] || fail "names are missing"
            # What was fsynced survives the end of the daemon (P2).
            crash
            attach
            [ "$(find "$DIR/dir" -name 'renamed-*' | wc -l)" -eq "$files" ] || fail "names are missing after a crash"
            detach
            clean "$files files, rename_log=$switch"
        done
    done
    # Nothing measured, nothing to go by: the next expectation grows from this one.
    if [ "${expected:-0}" -gt "$LONGEST" ]; then echo "$files $expected" >"$WORK/last"; fi
done

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$HERE python3 - "$WORK" <<'P'
import collections, os, statistics, sys
from counters import between, load
work, rows = sys.argv[1], collections.OrderedDict()
for line in open(f"{work}/runs"):
    files, switch, number, renames, fsync = line.split()
    c = between(load(f"{work}/before.{switch}.{files}.{number}.json"), load(f"{work}/after.{switch}.{files}.{number}.json"))
    rows.setdefault((int(files), switch), []).append((float(renames), float(fsync), c))
print(f"\n{'files':>7} {'rename_log':10} {'per rename':>12} {'fsync':>10} {'log B/rename':>13} {'batches':>8} {'records':>9} {'directories':>12} {'commits':>8} {'escapes':>8}")
each = {}
for (files, switch), runs in rows.items():
    c = runs[-1][2]
    each[files, switch] = statistics.median(run[0] for run in runs) / files
    print(f"{files:7} {switch:10} {each[files, switch] * 1e6:9.1f} us {statistics.median(run[1] for run in runs) * 1e3:7.2f} ms"
          f" {c['log_bytes_written'] / files:13.1f} {c['log_batches']:8} {c['log_records']:9} {c['log_directories']:12} {c['commits']:8} {c['log_full'] + c['log_too_large']:8}")
if os.path.exists(f"{work}/left_out"):
    for line in open(f"{work}/left_out"):
        files, seconds = line.split()
        print(f"{files:>7} directory  left out: about {seconds} s a run")
for switch in ("names", "directory"):
    sizes = sorted(files for files, s in each if s == switch)
    if len(sizes) > 1: print(f"{switch}: time per rename grew {each[sizes[-1], switch] / each[sizes[0], switch]:.2f}x from {sizes[0]} to {sizes[-1]} files")
P
say "renames: done"
