#!/usr/bin/env bash
# What others wait while a snapshot is deleted: append 4 KiB + fsync beside the deletion of a snapshot of which each block of a
# large file differs, and alone, in turns. Over a loop device with direct I/O if we are root, else over the file itself.
# usage: deletion.sh [ROUNDS [BLOCKS of the file]]   (default: 5 of 262144, 1 GiB)
. "$(dirname "$0")/lib.sh"
ROUNDS=${1:-5}
BLOCKS=${2:-262144}
bash "$(dirname "$0")/../need.sh" python3=python3 losetup=mount

written "$IMAGE" $((BLOCKS * 4096 * 3 + (1 << 30)))
if [ "$(id -u)" -eq 0 ]; then
    loop "$IMAGE"
    IMAGE=$LOOP
fi
"$HOLDFAST" mkfs -q -f --copies metadata=1 "$IMAGE"
attach
python3 "$(dirname "$0")/deletion.py" "$DIR" "$HOLDFAST" "$ROUNDS" "$BLOCKS"
detach
clean "after all deletions"
unloop
say "deletion: done"
