#!/usr/bin/env bash
# Creates with many pending files and one fsync behind them (M4): batch=indexed beside scan on a real mount, interleaved
# rounds. Time per file should not depend on how many files are pending. Commits by the way take files out of what is
# pending; `records/batch` tells what the batches really held. Asserts nothing about time.
# usage: pending.sh [ROUNDS] ["DIRECTORIES..."] ["FILES IN EACH..."]        environment: EACH=1 fsyncs every file
. "$(dirname "$0")/lib.sh"
# What was done before is in this program only.
need_dev
HOLDFAST=$HOLDFAST_DEV
HERE=$(cd "$(dirname "$0")" && pwd)
ROUNDS=${1:-3}
DIRS=${2:-1 8 64}
FILES=${3:-16 256 1024 16384}
bash "$HERE/../need.sh" python3=python3

cat >"$WORK/create.py" <<'P'
"""Prints seconds of the creates, and of the fsyncs behind them."""
import os, subprocess, sys, time
root, dirs, files, each, holdfast, before, after = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bool(sys.argv[4]), *sys.argv[5:]
def stats(path): subprocess.run([holdfast, "stats", "--json", root], stdout=open(path, "w"), check=True)
fds = []
for n in range(dirs):
    os.mkdir(f"{root}/d{n}")
    fds.append(os.open(f"{root}/d{n}", os.O_RDONLY))
subprocess.run([holdfast, "sync", root], check=True)
stats(before)
start = time.perf_counter()
for fd in fds:
    for n in range(files): os.close(os.open(f"file-{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=fd))
created = time.perf_counter()
# Of one that was made earlier a commit may have everything: the last one has all files before it.
for fd, n in ((fd, n) for fd in fds for n in range(files)) if each else [(fds[-1], files - 1)]:
    file = os.open(f"file-{n}", os.O_WRONLY, dir_fd=fd)
    os.fsync(file)
    os.close(file)
done = time.perf_counter()
stats(after)
print(created - start, done - created)
P

for dirs in $DIRS; do
    for files in $FILES; do
        for round in $(seq 1 "$ROUNDS"); do
            for switch in $(in_turn "$round" indexed scan); do
                make 8G
                attach -o "commit=0,batch=$switch"
                run=$switch.$dirs.$files.$round
                times=$(python3 "$WORK/create.py" "$DIR" "$dirs" "$files" "${EACH:-}" "$HOLDFAST" "$WORK/before.$run.json" "$WORK/after.$run.json")
                echo "$dirs $files $switch $round $times" >>"$WORK/runs"
                say "  $dirs x $files files, round $round, batch=$switch: $times s"
                # What was there before the fsync is there after the end of the daemon (P3).
                crash
                attach
                [ "$(find "$DIR" -name 'file-*' | wc -l)" -eq $((dirs * files)) ] || fail "files are missing after a crash"
                detach
            done
        done
        clean "$dirs x $files files"
    done
done

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$HERE python3 - "$WORK" <<'P'
import collections, statistics, sys
from counters import between, load
work, rows = sys.argv[1], collections.OrderedDict()
for line in open(f"{work}/runs"):
    dirs, files, switch, number, creates, fsync = line.split()
    run = f"{switch}.{dirs}.{files}.{number}.json"
    rows.setdefault((int(dirs), int(files), switch), []).append((float(creates), float(fsync), between(load(f"{work}/before.{run}"), load(f"{work}/after.{run}"))))
print(f"\n{'dirs':>5} {'files':>6} {'batch':8} {'files/s':>9} {'create':>10} {'with fsync':>11} {'format/record':>14} {'records/batch':>14} {'batches':>8} {'logged':>11} {'commits':>8} {'escapes':>8}")
for (dirs, files, switch), runs in rows.items():
    count, c = dirs * files, runs[-1][2]
    creates, total = (statistics.median(value) / count for value in ([run[0] for run in runs], [run[0] + run[1] for run in runs]))
    form = statistics.median(run[2]["log_format_ns"] / max(run[2]["log_records"], 1) for run in runs)
    print(f"{dirs:5} {files:6} {switch:8} {1 / total:9,.0f} {creates * 1e6:7.1f} us {total * 1e6:8.1f} us {form:11.0f} ns {c['log_records'] / max(c['log_batches'], 1):14,.0f}"
          f" {c['log_batches']:8} {c['log_bytes_written'] / 2**10:7.0f} KiB {c['commits']:8} {c['log_full'] + c['log_too_large']:8}")
P
say "pending: done"
