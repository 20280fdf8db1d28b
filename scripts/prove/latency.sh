#!/usr/bin/env bash
# How long an fsync takes beside others: append 4 KiB + fsync alone, while commits and checkpoints run, while a stranger
# writes and fsyncs large files, and while one renames large unsynced files over old ones; phases take turns.
# One phase has its stranger on another volume: how much of the waiting is the machine's and not the volume's.
# On a mount, over a loop device with direct I/O if we are root, else over the file itself. Asserts nothing about time.
# usage: latency.sh [ROUNDS] [SECONDS of a phase] [SIZE of a large file, e.g. 1G] [SIZE of a renamed one]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
ROUNDS=${1:-3}
TIME=${2:-6}
LARGE=$(numfmt --from=iec "${3:-1G}")
RENAMED=$(numfmt --from=iec "${4:-128M}")
bash "$HERE/../need.sh" python3=python3 losetup=mount

# The other volume, with the same below it.
OTHER=$WORK/other.img
OTHER_DIR=$WORK/other
OTHER_LOOP=
mkdir "$OTHER_DIR"
let_go() {
    if grep -q " $OTHER_DIR " /proc/self/mountinfo; then "$HOLDFAST" umount "$OTHER_DIR"; fi
    if [ -n "$OTHER_LOOP" ]; then losetup -d "$OTHER_LOOP"; fi
    OTHER_LOOP=
}

written "$IMAGE" $((2 * LARGE + 4 * RENAMED + (1 << 30)))
written "$OTHER" $((2 * LARGE + (1 << 30)))
if [ "$(id -u)" -eq 0 ]; then
    loop "$OTHER"
    OTHER_LOOP=$LOOP
    OTHER=$LOOP
    loop "$IMAGE"
    IMAGE=$LOOP
fi
"$HOLDFAST" mkfs -q -f --copies metadata=1 "$OTHER"
"$HOLDFAST" mkfs -q -f --copies metadata=1 "$IMAGE"
"$HOLDFAST" mount -o commit=1,recover=0.001 "$OTHER" "$OTHER_DIR"
attach -o commit=1,recover=0.001
say "on a mount over $IMAGE, large files of $((LARGE >> 20)) MiB, renamed ones of $((RENAMED >> 20)) MiB"
python3 "$HERE/latency.py" "$DIR" "$OTHER_DIR" "$HOLDFAST" "$ROUNDS" "$TIME" "$LARGE" "$RENAMED"
let_go
detach
clean "after all phases"
unloop
rm -f "$WORK/volume.img" "$WORK/other.img"
say "latency: done"
