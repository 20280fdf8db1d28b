#!/usr/bin/env bash
# Snapshots and forks of a large tree. A tree is unpacked; then, as often as ROUNDS says, 1,000 files change and a snapshot is taken,
# while the daemon is killed now and then. Each snapshot must be what it was, by checksum; they are deleted in random order,
# with fsck after each tenth, and the space comes back. Then FORKS forks of one snapshot, each with 20 files of its own: all
# correct, the space is that of the base and the changes, and after half of them is deleted the rest is correct.
# usage: branches.sh [ROUNDS [FORKS [ARCHIVE.tar.xz]]]   (default: 100, 1000, Debian's linux-source-6.1)
. "$(dirname "$0")/lib.sh"
ROUNDS=${1:-100}
FORKS=${2:-1000}
ARCHIVE=${3:-/usr/src/linux-source-6.1.tar.xz}
CHANGED=1000
SEED=${SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
RANDOM=$SEED
[ -r "$ARCHIVE" ] || fail "$ARCHIVE is missing; on Debian: apt-get install linux-source-6.1"
say "branches: $ROUNDS snapshots, $FORKS forks, seed $SEED"

# One line for all files below a directory: their names and checksums.
sum_of() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64); }

# patch ROUND: a line behind the end of CHANGED files, other ones each time.
patch() {
    awk -v from=$((RANDOM * 7 % FILES)) -v count="$CHANGED" -v all="$FILES" \
        '{ at = (NR - 1 - from + all) % all; if (at < count) print }' "$WORK/files" |
        while read -r file; do echo "changed in round $1" >>"$DIR/$file"; done
}

make 16G
attach
seconds tar -C "$DIR" -xf "$ARCHIVE"
(cd "$DIR" && find . -type f | LC_ALL=C sort) >"$WORK/files"
FILES=$(wc -l <"$WORK/files")
"$HOLDFAST" sync "$DIR"
say "  untar: ${SECONDS_TAKEN} s, $FILES files"

TOOK=0
for round in $(seq "$ROUNDS"); do
    patch "$round"
    [ $((round % 5)) -ne 0 ] || sum_of "$DIR" >"$WORK/sum-$round"
    seconds "$HOLDFAST" snapshot create "$DIR" "round-$round" >/dev/null
    TOOK=$(echo "$TOOK + $SECONDS_TAKEN" | bc)
    if [ $((round % 10)) -eq 0 ]; then
        crash
        clean "killed behind snapshot $round"
        attach
    fi
done
say "  snapshots: $(echo "scale=4; $TOOK / $ROUNDS" | bc) s each, the program's start, syncfs and 1,000 delayed files included"
detach
clean "with $ROUNDS snapshots"
for round in $(seq 5 5 "$ROUNDS"); do
    "$HOLDFAST" mount "$IMAGE@round-$round" "$DIR"
    [ "$(sum_of "$DIR")" = "$(cat "$WORK/sum-$round")" ] || fail "snapshot round-$round is not what it was"
    detach
done
say "  every fifth snapshot compared by checksum: as it was"

attach
deleted=0
for round in $(seq "$ROUNDS" | shuf --random-source=<(yes "$SEED")); do
    "$HOLDFAST" snapshot delete "$DIR" "round-$round" >/dev/null
    deleted=$((deleted + 1))
    if [ $((deleted % 10)) -eq 0 ]; then
        crash
        clean "killed behind the deletion of $deleted"
        attach
    fi
done
settled() {
    local left
    while left=$("$HOLDFAST" stats --json "$DIR" | grep -o '"deletions_left": *[0-9]*' | grep -o '[0-9]*$') && [ "$left" -ne 0 ]; do sleep 0.2; done
    "$HOLDFAST" sync "$DIR"
}
settled
with_tree=$(used)
find "$DIR" -mindepth 1 -delete
detach
attach
left=$(used)
say "  blocks in use: $with_tree with the tree, $left without anything"
[ "$left" -le 4096 ] || fail "space did not come back"
detach
clean "all snapshots deleted"

say "forks"
make 16G
attach
tar -C "$DIR" -xf "$ARCHIVE"
"$HOLDFAST" snapshot create "$DIR" base >/dev/null
detach
attach
base=$(used)
detach
seconds sh -c 'for n in $(seq '"$FORKS"'); do "$0" fork "$1" --from main@base "fork-$n" >/dev/null || exit 1; done' "$HOLDFAST" "$IMAGE"
say "  $FORKS forks at rest: $(echo "scale=4; $SECONDS_TAKEN / $FORKS" | bc) s each, an opening and an end of the volume included"
change_fork() { # NUMBER
    "$HOLDFAST" mount "$IMAGE:fork-$1" "$DIR"
    sed -n "$(($1 * 13 % (FILES - 20) + 1)),+19p" "$WORK/files" | while read -r file; do echo "fork $1" >"$DIR/$file"; done
    detach
}
judge_fork() { # NUMBER
    "$HOLDFAST" mount -o ro "$IMAGE:fork-$1" "$DIR"
    local wrong
    wrong=$(sed -n "$(($1 * 13 % (FILES - 20) + 1)),+19p" "$WORK/files" | while read -r file; do
        [ "$(cat "$DIR/$file")" = "fork $1" ] || echo "$file"
    done)
    detach
    [ -z "$wrong" ] || fail "fork-$1 has lost $wrong"
}
for n in $(seq "$FORKS"); do change_fork "$n"; done
clean "with $FORKS forks"
attach
all=$(used)
detach
# A fork copies a path of nodes, and the leaves of its files, for each place that it changes.
say "  blocks in use: $base with the base, $all with $FORKS forks: $(((all - base) / FORKS)) for each"
for n in $(seq 1 37 "$FORKS"); do judge_fork "$n"; done
for n in $(seq "$FORKS" | shuf --random-source=<(yes "$SEED") | head -n $((FORKS / 2))); do
    "$HOLDFAST" branch delete "$IMAGE" "fork-$n" >/dev/null
    echo "$n"
done >"$WORK/gone"
clean "half of the forks deleted"
for n in $(seq 1 37 "$FORKS"); do grep -qx "$n" "$WORK/gone" || judge_fork "$n"; done
attach
settled
half=$(used)
detach
say "  blocks in use: $half with half of the forks"
[ "$half" -lt "$all" ] || fail "deleted forks gave nothing back"
clean "at the end"
say "branches: passed"
