#!/usr/bin/env bash
# What an image takes of its host through a life: empty, a tree in it, removed, written again under a snapshot, changed, the
# snapshot deleted; and what others wait while many GiB are removed: p99 of append 4 KiB + fsync, with discards and without. Fails
# if an emptied image takes 2 % of the volume, or 8 MiB, more than an empty one.
# As JSON in $WORK/elastic.json.
# usage: elastic.sh [TREE [MiB that are removed beside fsyncs [ROUNDS]]]   (default: 256 1024 2)
# TREE is a number of MiB, or a tar archive with one directory, as of a kernel. With 0 rounds only the life is measured.
# A report that is kept goes to bench-results itself, as it is none of `holdfast-dev bench`, whose reports stand in directories there.
# docs/elastic.svg: scripts/plot.py elastic.json "What an image takes of its host through a life" docs/elastic.svg
. "$(dirname "$0")/lib.sh"
bash "$(dirname "$0")/../need.sh" python3=python3
KEEP_REPORT=${KEEP_REPORT:-$PWD/elastic}

python3 "$(dirname "$0")/elastic.py" "$HOLDFAST" "$WORK" "${1:-256}" "${2:-1024}" "${3:-2}"
cp "$WORK/elastic.json" "$KEEP_REPORT.json"
say "kept: $KEEP_REPORT.json"
say "elastic: done"
