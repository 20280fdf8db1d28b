#!/usr/bin/env bash
# Forks of a large tree: each changes 20 files of its own. What each has is compared with what the host has, the space is that of
# the base and of the changes, and after a random half of them is deleted the rest is as it was. Once with nodes of 4 KiB and
# once with nodes of 16 KiB.
# usage: forks.sh [FORKS [ARCHIVE.tar.xz]]   (default: 1000, Debian's linux-source-6.1)
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/tree_sums.sh"
FORKS=${1:-1000}
ARCHIVE=${2:-/usr/src/linux-source-6.1.tar.xz}
NODES=${NODES:-4K 16K}
CHANGED=20
# So many forks, from all over the tree, change first: what they take is what each must take.
SAMPLE=$((FORKS < 100 ? FORKS / 4 : 25))
SEED=${SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
RANDOM=$SEED
[ -r "$ARCHIVE" ] || fail "$ARCHIVE is missing; on Debian: apt-get install linux-source-6.1"
say "forks: $FORKS, seed $SEED"

# of_fork NUMBER: the names of its files, neighbours in the list of all, other ones for each fork as far as there are.
of_fork() { sed -n "$(($1 * 78 % (FILES - CHANGED) + 1)),+$((CHANGED - 1))p" "$WORK/files"; }

change_fork() { # NUMBER
    "$HOLDFAST" mount "$IMAGE:fork-$1" "$DIR"
    of_fork "$1" | while read -r file; do echo "fork $1" >>"$DIR/$file"; done
    detach
}

# All files of this fork, and those of two others, which must be the base's here.
judge_fork() { # NUMBER
    of_fork "$1" >"$WORK/own"
    { of_fork $(($1 + 1)); of_fork $(($1 % FORKS + 517)); } | grep -vxFf "$WORK/own" | sort -u >"$WORK/others"
    {
        while read -r file; do { cat "$PLAIN/$file"; echo "fork $1"; } | sha256sum | cut -c1-64; done <"$WORK/own"
        (cd "$PLAIN" && tr '\n' '\0' <"$WORK/others" | xargs -0 sha256sum | cut -c1-64)
    } >"$WORK/want"
    "$HOLDFAST" mount -o ro "$IMAGE:fork-$1" "$DIR"
    (cd "$DIR" && cat "$WORK/own" "$WORK/others" | tr '\n' '\0' | xargs -0 sha256sum | cut -c1-64) >"$WORK/have"
    detach
    cmp -s "$WORK/want" "$WORK/have" || fail "fork-$1 has not what it should have"
}

# used_at_rest: the blocks in use, with nothing delayed and no deletion left.
used_at_rest() {
    attach
    settled
    used
    detach
}

run() { # NODE
    make 16G --node-size "$1"
    attach
    tar -C "$DIR" -xf "$ARCHIVE"
    "$HOLDFAST" snapshot create "$DIR" base >/dev/null
    detach
    local base first all half n
    seq "$FORKS" | awk -v each=$((FORKS / SAMPLE)) -v most="$SAMPLE" '{ print (NR % each || ++taken > most) ? "rest" : "first", $0 }' >"$WORK/turns"
    base=$(used_at_rest)
    seconds sh -c 'for n in $(seq '"$FORKS"'); do "$0" fork "$1" --from main@base "fork-$n" >/dev/null || exit 1; done' "$HOLDFAST" "$IMAGE"
    say "  nodes of $1: $FORKS forks at rest, $(echo "scale=4; $SECONDS_TAKEN / $FORKS" | bc) s each, an opening and an end of the volume included"
    say "  blocks in use: $base with the base, $(used_at_rest) with forks that have changed nothing"
    for n in $(awk '$1 == "first" { print $2 }' "$WORK/turns"); do change_fork "$n"; done
    first=$(used_at_rest)
    seconds eval 'for n in $(awk "\$1 == \"rest\" { print \$2 }" "$WORK/turns"); do change_fork "$n"; done'
    all=$(used_at_rest)
    local each=$(((all - base) / FORKS)) must=$(((first - base) / SAMPLE))
    say "  blocks in use: $all with $FORKS changed forks: $each for each, $CHANGED files; $must for each of $SAMPLE that changed first; $(echo "scale=3; $SECONDS_TAKEN / ($FORKS - $SAMPLE)" | bc) s each, mounted and unmounted"
    [ $((each * 100)) -le $((must * 120)) ] && [ $((each * 100)) -ge $((must * 80)) ] || fail "the forks take other than the base and their changes"
    clean "with $FORKS forks"
    for n in $(seq "$FORKS"); do judge_fork "$n"; done
    say "  all $FORKS forks compared by checksum"
    seq "$FORKS" | shuf --random-source=<(yes "$SEED") | head -n $((FORKS / 2)) >"$WORK/gone"
    while read -r n; do "$HOLDFAST" branch delete "$IMAGE" "fork-$n" >/dev/null; done <"$WORK/gone"
    half=$(used_at_rest)
    say "  blocks in use: $half with half of the forks deleted"
    clean "half of the forks deleted"
    # Half of the forks' space: their changes are alike, and what was sealed may differ by a path.
    local left=$((half - base)) changes=$((all - base))
    [ $((left * 100)) -le $((changes * 60)) ] && [ $((left * 100)) -ge $((changes * 40)) ] || fail "deleted forks did not give back what they had"
    for n in $(seq "$FORKS"); do grep -qx "$n" "$WORK/gone" || judge_fork "$n"; done
    say "  the forks that are left compared by checksum"
    "$HOLDFAST" mount "$IMAGE@base" "$DIR"
    [ "$(sum_of "$DIR")" = "$(sha256sum <"$WORK/sums" | cut -c1-64)" ] || fail "the base is not what it was"
    detach
}

PLAIN=$WORK/plain
mkdir "$PLAIN"
tar -C "$PLAIN" -xf "$ARCHIVE"
first_sums
FILES=$(wc -l <"$WORK/files")
for node in $NODES; do run "$node"; done
say "forks: passed"
