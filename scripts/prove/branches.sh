#!/usr/bin/env bash
# Snapshots of a large tree. A tree is unpacked, on the volume and on the host; then, as often as ROUNDS says, 1,000 files change
# in both and a snapshot is taken, while the daemon is killed now and then. Each snapshot must be, by checksum, what the host's
# tree was; they are deleted in random order, and the space comes back. fsck looks behind every EVERY-th step.
# usage: [EVERY=1] branches.sh [ROUNDS [ARCHIVE.tar.xz]]   (default: 100, Debian's linux-source-6.1)
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/tree_sums.sh"
ROUNDS=${1:-100}
ARCHIVE=${2:-/usr/src/linux-source-6.1.tar.xz}
EVERY=${EVERY:-1}
CHANGED=1000
# The daemon is killed so often while snapshots are taken, and as often while they are deleted.
KILLS=$((ROUNDS < 10 ? 1 : 10))
SEED=${SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
RANDOM=$SEED
[ -r "$ARCHIVE" ] || fail "$ARCHIVE is missing; on Debian: apt-get install linux-source-6.1"
say "branches: $ROUNDS snapshots, seed $SEED"

# patch ROUND: a line behind the end of CHANGED files, other ones each time. The host's tree says what their checksums are.
patch() {
    awk -v from=$((RANDOM * 7 % FILES)) -v count="$CHANGED" -v all="$FILES" \
        '{ at = (NR - 1 - from + all) % all; if (at < count) print }' "$WORK/files" >"$WORK/patched"
    while read -r file; do
        echo "changed in round $1" >>"$DIR/$file"
        echo "changed in round $1" >>"$PLAIN/$file"
    done <"$WORK/patched"
    renew_sums "$WORK/patched"
}

# step NUMBER WHAT: the daemon ends, without warning if it is its turn, and fsck looks.
step() {
    if [ $(($1 * KILLS / ROUNDS)) -ne $((($1 - 1) * KILLS / ROUNDS)) ]; then
        crash
        clean "killed behind $2" >>"$WORK/steps"
    elif [ $(($1 % EVERY)) -eq 0 ]; then
        detach
        clean "$2" >>"$WORK/steps"
    else
        return 0
    fi
    attach
}

PLAIN=$WORK/plain
mkdir "$PLAIN"
tar -C "$PLAIN" -xf "$ARCHIVE"
first_sums
FILES=$(wc -l <"$WORK/files")
make 16G
attach
empty=$(used)
seconds tar -C "$DIR" -xf "$ARCHIVE"
"$HOLDFAST" sync "$DIR"
unpacked=$(used)
say "  untar: ${SECONDS_TAKEN} s, $FILES files, $unpacked blocks in use, $empty before"

TOOK=0
for round in $(seq "$ROUNDS"); do
    patch "$round"
    sha256sum <"$WORK/sums" | cut -c1-64 >"$WORK/sum-$round"
    seconds "$HOLDFAST" snapshot create "$DIR" "round-$round" >/dev/null
    TOOK=$(echo "$TOOK + $SECONDS_TAKEN" | bc)
    step "$round" "snapshot $round"
done
say "  snapshots: $(echo "scale=4; $TOOK / $ROUNDS" | bc) s each, the program's start, syncfs and 1,000 delayed files included"
say "  fsck: clean behind $(wc -l <"$WORK/steps") steps, the daemon killed behind $(grep -c killed "$WORK/steps")"
say "  blocks in use: $(used) with $ROUNDS snapshots"
[ "$(sum_of "$DIR")" = "$(cat "$WORK/sum-$ROUNDS")" ] || fail "main is not what the host has"
detach
for round in $(seq "$ROUNDS"); do
    "$HOLDFAST" mount "$IMAGE@round-$round" "$DIR"
    [ "$(sum_of "$DIR")" = "$(cat "$WORK/sum-$round")" ] || fail "snapshot round-$round is not what it was"
    detach
done
say "  all $ROUNDS snapshots compared by checksum: as they were"

attach
deleted=0
for round in $(seq "$ROUNDS" | shuf --random-source=<(yes "$SEED")); do
    "$HOLDFAST" snapshot delete "$DIR" "round-$round" >/dev/null
    deleted=$((deleted + 1))
    step "$deleted" "the deletion of $deleted, round-$round"
done
settled
say "  fsck: clean behind $(wc -l <"$WORK/steps") steps, the daemon killed behind $(grep -c killed "$WORK/steps")"
[ "$(sum_of "$DIR")" = "$(cat "$WORK/sum-$ROUNDS")" ] || fail "main is not what it was, with all snapshots deleted"
with_tree=$(used)
find "$DIR" -mindepth 1 -delete
detach
attach
left=$(used)
say "  blocks in use: $with_tree with the tree alone, $left without anything"
[ "$with_tree" -le $((unpacked + unpacked / 50)) ] || fail "the space of the snapshots did not come back"
[ "$left" -le $((empty + 4096)) ] || fail "space did not come back"
detach
clean "all snapshots deleted"
say "branches: passed"
