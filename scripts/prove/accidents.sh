#!/usr/bin/env bash
# The same accidents on Holdfast and beside it on ext4, XFS and btrfs (accidents.py): blocks at random, the first MiB, the last, every second.
# Each volume has the same tree and the same blocks are overwritten; then each one's repair is run, and each one's program that copies out
# what is left. The table says which share of all files is bit for bit what it was, what lost its name but not its content (+), how many files
# read wrong without an error, how many are as they were before (where journal or log of ours had to end early), and how often no
# file was left. A wrong file of ours fails the proof. For root, as peers are mounted.
# With TMPDIR in memory (/dev/shm) it takes a quarter of the time, and 2 GiB.
# holdfast2 is a volume of ours whose nodes are stored twice (mkfs --copies metadata=2); rested and rested2 are the same that were left in order.
# usage: accidents.sh [ACCIDENTS [SYSTEM...]]   (default: 30; holdfast holdfast2 rested rested2 ext4 xfs btrfs btrfs-restore, and holdfast-salvage and
# holdfast2-salvage where there is one)
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
ACCIDENTS=${1:-30}
shift || true
[ "$(id -u)" -eq 0 ] || { say "accidents: skipped, as other filesystems are mounted by root only"; exit 0; }
bash "$HERE/../need.sh" python3=python3 losetup=mount mkfs.ext4=e2fsprogs mkfs.xfs=xfsprogs mkfs.btrfs=btrfs-progs
SYSTEMS=("$@")
if [ $# -eq 0 ]; then
    SYSTEMS=(holdfast holdfast2 rested rested2 ext4 xfs btrfs btrfs-restore)
    ! "$HOLDFAST" salvage --help >/dev/null 2>&1 || SYSTEMS+=(holdfast-salvage holdfast2-salvage)
fi
export HOLDFAST
let_go() {
    local at
    for at in "$WORK"/at-*; do
        if mountpoint -q "$at" || awk -v at="$at" '$5 == at { found = 1 } END { exit !found }' /proc/self/mountinfo; then umount -l "$at" || true; fi
    done
}
say "accidents: $ACCIDENTS of each of ${SYSTEMS[*]}"
for system in "${SYSTEMS[@]}"; do
    volume=${system%%-*}
    [ -e "$WORK/$volume.img" ] || python3 "$HERE/accidents.py" make "$volume" "$WORK"
done
python3 "$HERE/accidents.py" rows >"$WORK/rows"
# A fifth of each row in turn: whoever ends it early has some of each.
for part in 0 1 2 3 4; do
    while IFS=$'\t' read -r share row; do
        all=$((ACCIDENTS * share / 100))
        [ "$all" -gt 0 ] || all=1
        first=$((all * part / 5))
        count=$((all * (part + 1) / 5 - first))
        for system in "${SYSTEMS[@]}"; do
            [ "$count" -eq 0 ] || python3 "$HERE/accidents.py" run "$system" "$WORK" "$row" "$first" "$count" </dev/null
        done
    done <"$WORK/rows"
done
python3 "$HERE/accidents.py" table "$WORK" || fail "a file reads wrong behind a repair"
say "accidents: passed"
