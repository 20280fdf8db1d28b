#!/usr/bin/env bash
# Many forks of one volume, mounted at once in one daemon: memory of an idle mount, the time from a fork to the first file
# written, and an fsync in one mount beside another one that floods.
# Usage: scripts/prove/mounts.sh [MOUNTS]   (default 1000)
. "$(dirname "$0")/lib.sh"

let_go() { "$HOLDFAST" umount "$IMAGE" >/dev/null 2>&1 || true; }
"$HOLDFAST" mkfs -q --size 4G "$IMAGE"
"$HOLDFAST" mount "$IMAGE" "$DIR"
python3 "$(dirname "$0")/mounts.py" "$HOLDFAST" "$IMAGE" "$WORK" "${1:-1000}"
"$HOLDFAST" umount "$IMAGE"
"$HOLDFAST" fsck -n -d "$IMAGE"
