#!/usr/bin/env bash
# Small durable operations beside ext4 (fast_commit), XFS, btrfs (single metadata) and the bare device: all in turn on one
# loop device with direct I/O over one file that was written before, in interleaved rounds. What the block device was
# asked for comes from its statistics. Needs root. Asserts nothing about time.
# usage: peers.sh [ROUNDS] [SECONDS of a run] [SYSTEMS, default "holdfast ext4 xfs btrfs"]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
ROUNDS=${1:-3}
TIME=${2:-5}
SYSTEMS=${3:-holdfast ext4 xfs btrfs}
[ "$(id -u)" -eq 0 ] || { say "peers: needs root, for loop devices and mounts; left out"; exit 0; }
for SYSTEM in $SYSTEMS; do
    case $SYSTEM in holdfast | ext4 | xfs | btrfs) ;; *) fail "no system is called $SYSTEM" ;; esac
done
bash "$HERE/../need.sh" python3=python3 losetup=mount mkfs.ext4=e2fsprogs mkfs.xfs=xfsprogs mkfs.btrfs=btrfs-progs

# What is mounted by the kernel is no mount of ours.
let_go() { if mounted && [ "$SYSTEM" != holdfast ]; then umount "$DIR"; fi; }
SYSTEM=
FILE=$IMAGE
written "$FILE" 2G
loop "$FILE"
IMAGE=$LOOP
BLOCK=/sys/block/${LOOP#/dev/}
# A discard would make holes in the file, which the host fills again under somebody's fsync.
echo 0 >"$BLOCK/queue/discard_max_bytes"
say "peers: $LOOP, sectors of $(cat "$BLOCK/queue/logical_block_size"), $(cat "$BLOCK/queue/write_cache"), $ROUNDS rounds of $TIME s"

# Nothing is left to be initialised in the background.
prepare() {
    case $SYSTEM in
        holdfast) "$HOLDFAST" mkfs -q --force "$LOOP" ;;
        ext4) mkfs.ext4 -q -F -O fast_commit -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$LOOP" ;;
        xfs) mkfs.xfs -q -f -K "$LOOP" ;;
        btrfs) mkfs.btrfs -q -f -K -m single -d single "$LOOP" ;;
    esac
}
enter() { if [ "$SYSTEM" = holdfast ]; then attach -o noatime; else mount -t "$SYSTEM" -o noatime "$LOOP" "$DIR"; fi; }
leave() { if [ "$SYSTEM" = holdfast ]; then detach; else umount "$DIR"; fi; }
settle() { if [ "$SYSTEM" = holdfast ]; then "$HOLDFAST" sync "$DIR"; else sync -f "$DIR"; fi; }
kib() { awk '{ print $7 / 2 }' "$BLOCK/stat"; }
# keep WORKLOAD: the run in $WORK/run.json as a line, with what the unmount has brought and, for us, the counters.
keep() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$HERE python3 - "$WORK" "$SYSTEM" "$1" "$(kib)" <<'P' >>"$WORK/runs"
import json, os, sys
from counters import between, load
work, system, workload, kib = sys.argv[1:]
run = json.load(open(f"{work}/run.json"))
run.update(system=system, workload=workload)
if system != "bare": run["kib_at_end"] = float(kib) - run["begun"]
if system == "holdfast": run["counters"] = between(load(f"{work}/before.json"), load(f"{work}/after.json"))
print(json.dumps(run))
P
    say "  $1, round $round, $SYSTEM: $(python3 -c 'import json, sys; print(round(json.load(open(sys.argv[1]))["rate"]))' "$WORK/run.json") per second"
}


# one WORKLOAD: on $SYSTEM, freshly made.
one() {
    local workload=$1 place=$DIR
    if [ "$SYSTEM" = bare ]; then
        place=$LOOP
        case $workload in create16) workload=bare16 ;; *) workload=bare ;; esac
    else
        prepare >"$WORK/mkfs.txt" 2>&1 || { cat "$WORK/mkfs.txt"; fail "mkfs of $SYSTEM"; }
        enter
        settle
    fi
    if [ "$SYSTEM" = holdfast ]; then stats before; fi
    python3 "$HERE/peers.py" measure "$workload" "$place" "$TIME" "$LOOP" >"$WORK/run.json" || fail "$workload on $SYSTEM"
    if [ "$SYSTEM" = holdfast ]; then stats after; fi
    if [ "$SYSTEM" != bare ]; then leave; fi
    if [ "$SYSTEM" = holdfast ]; then clean "$workload" >"$WORK/clean.txt" || { cat "$WORK/clean.txt"; exit 1; }; fi
    keep "$workload"
}

for round in $(seq 1 "$ROUNDS"); do
    for workload in create append create16; do
        for SYSTEM in $(in_turn "$round" $SYSTEMS bare); do one "$workload"; done
    done
done
python3 "$HERE/peers.py" table "$WORK/runs"
say "peers: done"
