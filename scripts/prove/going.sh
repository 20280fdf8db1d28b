#!/usr/bin/env bash
# What others wait while a branch with many snapshots is deleted, or promoted: append 4 KiB + fsync in `main` beside it, from a cold
# volume on, with much and with little memory; and with nothing beside it.
# usage: going.sh [SNAPSHOTS... ]   (default: 1000 10000 30000)
. "$(dirname "$0")/lib.sh"
bash "$(dirname "$0")/../need.sh" python3=python3
COUNTS=("$@")
[ $# -gt 0 ] || COUNTS=(1000 10000 30000)
HERE=$(dirname "$0")

python3 "$HERE/going.py" head
for count in "${COUNTS[@]}"; do
    make 4G --node-size 4k --copies metadata=1
    "$HOLDFAST" fork "$IMAGE" work >/dev/null
    "$HOLDFAST" mount -o snapdir=visible,commit=3600 "$IMAGE:work" "$DIR"
    python3 "$HERE/going.py" make "$DIR" "$count"
    detach
    cp --sparse=always "$IMAGE" "$WORK/grown.img"
    for what in alone delete promote; do
        for cache in 256M 1M; do
            cp --sparse=always "$WORK/grown.img" "$IMAGE"
            attach -o "cache=$cache"
            python3 "$HERE/going.py" beside "$DIR" "$HOLDFAST" "$what" "$count" "$cache"
            detach
        done
    done
    clean "$count snapshots"
    rm -f "$WORK/grown.img"
done
say "going: done"
