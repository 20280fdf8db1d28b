#!/usr/bin/env bash
# Writes with fsyncs by many jobs (what M5 was published with): fio, sequential 64 KiB with an fsync after each, and random
# 4 KiB with an fsync after every 16, on a real mount whose file was written before. Mount options to compare are named
# one after the other, e.g. `batch=indexed batch=scan` with HOLDFAST=holdfast-dev; their rounds are interleaved. Asserts nothing about time.
# usage: fio.sh [SECONDS] [ROUNDS] ["JOBS..."] [OPTIONS...]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
TIME=${1:-5}
ROUNDS=${2:-3}
JOBS=${3:-1 2 4 8 16 32 64}
shift 3 2>/dev/null || shift $#
VARIANTS=("$@")
[ ${#VARIANTS[@]} -gt 0 ] || VARIANTS=(defaults)
SIZE=${SIZE:-4G}
bash "$HERE/../need.sh" fio=fio python3=python3

# work NAME JOBS OUTPUT
work() {
    local how
    case $1 in
        sequential) how=(--rw=write --bs=64k --fsync=1) ;;
        random) how=(--rw=randwrite --bs=4k --fsync=16 --randseed=1) ;;
    esac
    fio --name=job --directory="$DIR" "${how[@]}" --size=16M --numjobs="$2" --ioengine=psync --fallocate=none --overwrite=1 \
        --time_based --runtime="$TIME" --group_reporting --output-format=json --output="$3" >"$WORK/fio.log" 2>&1 || { cat "$WORK/fio.log"; fail "fio"; }
}

for jobs in $JOBS; do
    for workload in sequential random; do
        for round in $(seq 1 "$ROUNDS"); do
            for variant in $(in_turn "$round" "${VARIANTS[@]}"); do
                make_written "$SIZE"
                attach -o "$variant"
                # The files are laid out and durable before anything is counted.
                for job in $(seq 0 $((jobs - 1))); do dd if=/dev/urandom of="$DIR/job.$job.0" bs=1M count=16 status=none; done
                "$HOLDFAST" sync "$DIR"
                run=$workload.$jobs.$variant.$round
                stats "before.$run"
                work "$workload" "$jobs" "$WORK/fio.$run.json"
                stats "after.$run"
                echo "$workload $jobs $variant $round" >>"$WORK/runs"
                say "  $workload, $jobs jobs, $variant, round $round"
                detach
            done
        done
        clean "$workload, $jobs jobs"
    done
done

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$HERE python3 - "$WORK" <<'P'
import collections, json, statistics, sys
from counters import between, load
work, rows = sys.argv[1], collections.OrderedDict()
for line in open(f"{work}/runs"):
    workload, jobs, variant, number = line.split()
    run = f"{workload}.{jobs}.{variant}.{number}.json"
    text = open(f"{work}/fio.{run}").read()
    fio = json.loads(text[text.index("{"):])["jobs"][0]  # warnings may stand before
    rows.setdefault((workload, int(jobs), variant), []).append((fio, between(load(f"{work}/before.{run}"), load(f"{work}/after.{run}"))))
print(f"\n{'workload':10} {'jobs':>4} {'options':22} {'MiB/s':>8} {'fsyncs/s':>9} {'p50':>9} {'p99':>9} {'fsyncs/batch':>12} {'flushes/fsync':>13} {'records/batch':>13} {'KiB/batch':>9} {'commits':>8} {'escapes':>7}")
for (workload, jobs, variant), runs in rows.items():
    middle = lambda value: statistics.median(value(fio) for fio, _ in runs)
    total = lambda *names: sum(c[name] for _, c in runs for name in names)
    percentile = lambda which: middle(lambda fio: fio["sync"]["lat_ns"].get("percentile", {}).get(which, 0)) / 1e3
    seconds = middle(lambda fio: fio["write"]["runtime"]) / 1e3
    batches, fsyncs = max(total("log_batches"), 1), max(total("fsyncs"), 1)
    flushes = total("log_flushes", "log_data_flushes", "commits", "commit_data_flushes")
    print(f"{workload:10} {jobs:4} {variant:22} {middle(lambda fio: fio['write']['bw_bytes']) / 2**20:8.1f} {fsyncs / len(runs) / seconds:9,.0f}"
          f" {percentile('50.000000'):6.0f} us {percentile('99.000000'):6.0f} us {(fsyncs - total('clean_fsyncs')) / batches:12.2f} {flushes / fsyncs:13.2f}"
          f" {total('log_records') / batches:13.1f} {total('log_bytes_written') / batches / 1024:9.1f} {total('commits') // len(runs):8} {total('log_full', 'log_too_large'):7}")
P
say "fio: done"
