#!/usr/bin/env bash
# Records of block groups (M1): accounting=changed beside accounting=always on a real mount, in interleaved rounds.
# The published workload (fio: 4 files of 512 MiB, random direct writes of 4 KiB, depth 64, fsync at close, no
# fallocate, commits by timer) and one of creates and unlinks. Prints counters; asserts nothing about time.
# usage: accounting.sh [SECONDS] [ROUNDS] [COMMIT_SECONDS]
. "$(dirname "$0")/lib.sh"
# What was done before is in this program only.
need_dev
HOLDFAST=$HOLDFAST_DEV
HERE=$(cd "$(dirname "$0")" && pwd)
TIME=${1:-30}
ROUNDS=${2:-3}
COMMIT=${3:-5}
bash "$HERE/../need.sh" fio=fio python3=python3

random_writes() {
    fio --name=accounting --directory="$DIR" --rw=randwrite --bs=4k --size=512M --numjobs=4 --direct=1 --iodepth=64 \
        --ioengine=libaio --fallocate=none --fsync_on_close=1 --time_based --runtime="$TIME" --randseed=1 \
        --group_reporting --output-format=json --output="$WORK/fio.json" >"$WORK/fio.log" 2>&1 || { cat "$WORK/fio.log"; fail "fio"; }
    # Warnings may stand before the JSON.
    python3 -c 'import json, sys; text = open(sys.argv[1]).read(); print(json.loads(text[text.index("{"):])["jobs"][0]["write"]["iops"])' "$WORK/fio.json"
}
names() {
    python3 - "$DIR" "$TIME" <<'P'
import os, random, sys, time
root, seconds = sys.argv[1], float(sys.argv[2])
random.seed(1)
for n in range(500): os.mkdir(f"{root}/d{n}")
kept, done, start = [], 0, time.time()
while time.time() - start < seconds:
    if len(kept) < 4000:
        path = f"{root}/d{random.randrange(500)}/f{done}"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        kept.append(path)
    if len(kept) >= 4000 or (len(kept) > 2000 and random.random() < 0.5):
        at = random.randrange(len(kept))
        kept[at], kept[-1] = kept[-1], kept[at]
        os.unlink(kept.pop())
    done += 1
print(done / (time.time() - start))
P
}

for workload in random_writes names; do
    for round in $(seq 1 "$ROUNDS"); do
        # The other one first in every second round.
        if [ $((round % 2)) -eq 1 ]; then order="changed always"; else order="always changed"; fi
        for switch in $order; do
            make 8G
            attach -o "commit=$COMMIT,accounting=$switch"
            "$HOLDFAST" stats --json "$DIR" >"$WORK/before.json"
            rate=$("$workload")
            "$HOLDFAST" stats --json "$DIR" >"$WORK/after.$workload.$switch.$round.json"
            cp "$WORK/before.json" "$WORK/before.$workload.$switch.$round.json"
            printf '%s %s %s %s\n' "$workload" "$switch" "$round" "$rate" >>"$WORK/rates"
            say "  $workload round $round accounting=$switch: ${rate%%.*} per second"
            detach
            clean "after $workload with accounting=$switch"
        done
    done
done

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$HERE python3 - "$WORK" <<'P'
import collections, statistics, sys
from counters import between, load
work = sys.argv[1]
rows = collections.OrderedDict()
for line in open(f"{work}/rates"):
    workload, switch, number, rate = line.split()
    c = between(load(f"{work}/before.{workload}.{switch}.{number}.json"), load(f"{work}/after.{workload}.{switch}.{number}.json"))
    c["rate"] = float(rate)
    c["freezes"] = max(c["commits"] + c["journal_full"], 1)
    rows.setdefault(workload, collections.OrderedDict()).setdefault(switch, []).append(c)
def figures(runs):
    total = lambda name: sum(c[name] for c in runs)
    middle = lambda value: statistics.median(value(c) for c in runs)
    groups = total("group_records_written") + total("group_records_skipped")
    return {"rate": middle(lambda c: c["rate"]), "commits": total("commits"), "checkpoints": total("checkpoints"), "groups": groups,
            "share": 100 * total("group_records_skipped") / groups if groups else 0,
            "frozen": middle(lambda c: c["frozen_ns"] / c["freezes"]), "loop": middle(lambda c: c["frozen_groups_ns"] / c["freezes"])}
print(f"\n{'workload':14} {'accounting':10} {'per second':>12} {'commits':>8} {'checkpoints':>11} {'groups':>9} {'skipped':>8} {'frozen/commit':>15} {'groups/commit':>15}")
for workload, switches in rows.items():
    both = {switch: figures(switches[switch]) for switch in ("changed", "always")}
    for switch, f in both.items():
        print(f"{workload:14} {switch:10} {f['rate']:12,.0f} {f['commits']:8} {f['checkpoints']:11} {f['groups']:9} {f['share']:7.1f}% {f['frozen'] / 1e3:12.1f} us {f['loop'] / 1e3:12.1f} us")
    gain = lambda name: f"{both['changed'][name] / both['always'][name]:.2f}" if both["always"][name] else "-"
    print(f"{workload:14} {'ratio':10} {gain('rate'):>12} {'':8} {'':11} {'':9} {'':8} {gain('frozen'):>15} {gain('loop'):>15}   (changed over always; medians of rounds)")
P
say "accounting: done"
