#!/usr/bin/env bash
# A large tree through send and receive: whole, then ROUNDS times what 200 patched files make of it. Each snapshot that arrives must give
# the same archive as the one that was sent; each EVERY-th (default: 10) and the last must be, by checksum, what the host's tree was. Beside each rate stands that of cp(1) for the same bytes. fsck looks at the end.
# usage: streams.sh [ROUNDS [ARCHIVE.tar]]   (default: 50, Debian's linux-source-6.1)
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/tree_sums.sh"
ROUNDS=${1:-50}
ARCHIVE=${2:-/usr/src/linux-source-6.1.tar.xz}
SIZE=${SIZE:-8G}
CHANGED=${CHANGED:-200}
EVERY=${EVERY:-10}
[ -r "$ARCHIVE" ] || fail "$ARCHIVE is missing; on Debian: apt-get install linux-source-6.1"
RANDOM=${SEED:=$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
say "streams: $ROUNDS increments, seed $SEED"

PLAIN=$WORK/plain
COPY=$WORK/copy.img
mkdir "$PLAIN"
tar -C "$PLAIN" -xf "$ARCHIVE"
first_sums
FILES=$(wc -l <"$WORK/files")
make "$SIZE"
"$HOLDFAST" mkfs -q --size "$SIZE" "$COPY"
"$HOLDFAST" cp -r "$PLAIN" "$IMAGE:/tree"

now() { date +%s.%N; }
rate() { awk -v bytes="$1" -v from="$2" -v to="$3" 'BEGIN { printf "%.0f MB/s", bytes / (to - from) / 1e6 }'; }

archive_of() { "$HOLDFAST" export --tar "$1" | sha256sum | cut -c1-64; }

# arrived ROUND: the copy has what was sent, and what the host has.
arrived() {
    [ "$(archive_of "$COPY@round-$1")" = "$(archive_of "$IMAGE@round-$1")" ] || fail "round $1 is not what was sent"
    [ $(($1 % EVERY)) -eq 0 ] || [ "$1" -eq "$ROUNDS" ] || return 0
    rm -rf "$WORK/out"
    "$HOLDFAST" cp -r "$COPY@round-$1:/tree" "$WORK/out"
    [ "$(sum_of "$WORK/out")" = "$(sum_of "$PLAIN")" ] || fail "round $1 is not what the host has"
    rm -rf "$WORK/out"
    say "  round $1 is what the host has, by checksum"
}

# send ROUND [-i @BEFORE]: a stream, with its size and rate.
pass() {
    local round=$1 from to bytes
    shift
    "$HOLDFAST" snapshot create "$IMAGE" "round-$round" >"$WORK/said"
    from=$(now)
    "$HOLDFAST" send "$IMAGE@round-$round" "$@" | tee "$WORK/stream" | "$HOLDFAST" receive "$COPY" >"$WORK/said"
    to=$(now)
    bytes=$(stat -c %s "$WORK/stream")
    say "  round $round: $bytes bytes in $(awk -v from="$from" -v to="$to" 'BEGIN { printf "%.2f", to - from }') s"
    arrived "$round"
}

pass 0
from=$(now)
cp -r "$PLAIN" "$WORK/by-cp"
sync -f "$WORK/by-cp"
say "  cp -r of the same tree: $(rate "$(stat -c %s "$WORK/stream")" "$from" "$(now)")"
rm -rf "$WORK/by-cp"

for round in $(seq "$ROUNDS"); do
    awk -v from=$((RANDOM * 7 % FILES)) -v count="$CHANGED" -v all="$FILES" \
        '{ at = (NR - 1 - from + all) % all; if (at < count) print }' "$WORK/files" >"$WORK/patched"
    while read -r file; do
        echo "changed in round $round" >>"$PLAIN/$file"
        "$HOLDFAST" cp "$PLAIN/$file" "$IMAGE:/tree/$file"
    done <"$WORK/patched"
    pass "$round" -i "@round-$((round - 1))"
done
for image in "$IMAGE" "$COPY"; do "$HOLDFAST" fsck "$image" >"$WORK/said" || fail "fsck of $image: $(tail -3 "$WORK/said")"; done
say "streams: ok"
