#!/usr/bin/env bash
# An agent's day: many forks of one base, each with a mount of its own, in which a program works: it compiles, uses SQLite,
# git, or a tree as package managers make them; many at once. The daemon is killed again and again. What each made is compared by
# checksums, one more works in a transaction, all are compared with the base, and thrown away: the space comes back.
# usage: agents.sh [FORKS [AT_ONCE [KILLS]]]   (default: 200 20 5)
. "$(dirname "$0")/lib.sh"
FORKS=${1:-200}
AT_ONCE=${2:-20}
KILLS=${3:-5}
SOURCE=$(cd "$(dirname "$0")/../.." && git rev-parse --show-toplevel)
SEED=${SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
say "agents: $FORKS forks, $AT_ONCE at once, $KILLS kills, seed $SEED"
mkdir "$WORK/sums" "$WORK/at"

# The dead mounts as well.
let_go() {
    "$HOLDFAST" umount "$IMAGE" >/dev/null 2>&1
    awk -v below="$WORK/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | while read -r at; do umount -l "$at"; done
}

# sums DIR: of each file, whatever it is called.
sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }

# work DIR NUMBER: what an agent does there.
work() {
    cd "$1"
    mkdir -p "out-$2"
    case $(($2 % 4)) in
    0)  for n in $(seq 12); do
            echo "int f$n(int x) { return x * $n + $2; }" >"out-$2/f$n.c"
            cc -O1 -c "out-$2/f$n.c" -o "out-$2/f$n.o"
        done
        { for n in $(seq 12); do echo "int f$n(int);"; done; echo "int main(void) { return f3(1) == 3 + $2 ? 0 : 1; }"; } >"out-$2/main.c"
        cc "out-$2"/*.c -o "out-$2/all" && "out-$2/all" ;;
    1)  sqlite3 "out-$2/db" "pragma journal_mode=wal; create table t(a, b); begin; $(for n in $(seq 300); do echo "insert into t values($n, hex(randomblob(500)));"; done) commit; update t set b = 'x' where a % 3 = 0;" >/dev/null
        [ "$(sqlite3 "out-$2/db" 'pragma integrity_check; select count(*) from t')" = "ok
300" ] ;;
    2)  git clone -q --no-hardlinks repository "out-$2/clone"
        (cd "out-$2/clone" && echo "$2" >agent && git add agent && git -c user.name=p -c user.email=p@localhost commit -q -m "agent $2" && git fsck --strict >/dev/null) ;;
    3)  python3 - "out-$2" "$2" <<'PYTHON'
import os, shutil, sys
root, number = sys.argv[1:]
for package in range(40):
    at = f"{root}/modules/package-{package}/lib"
    os.makedirs(at)
    for name in range(12):
        with open(f"{at}/{name}.js", "w") as file:
            file.write(f"// {number} {package} {name}\n" * (1 + package * name % 90))
    os.symlink(f"../package-{package}/lib/0.js", f"{root}/modules/link-{package}")
for package in range(0, 40, 3):
    shutil.rmtree(f"{root}/modules/package-{package}")
for package in range(1, 40, 3):
    os.rename(f"{root}/modules/package-{package}", f"{root}/modules/moved-{package}")
PYTHON
        ;;
    esac
    # Of the base as well.
    echo "agent $2" >>repository/README.md
    rm -f repository/LICENSE-MIT
}

# agent NUMBER: works in its fork until that is done and durable, however often the daemon dies.
agent() {
    local at=$WORK/at/$1
    "$HOLDFAST" mount "$IMAGE:agent-$1" "$at" || return 1
    (set -e; work "$at" "$1") >"$WORK/said-$1" 2>&1 || return 1
    sums "$at" >"$WORK/sums/$1.new" 2>/dev/null || return 1
    "$HOLDFAST" sync "$at" >/dev/null 2>&1 || return 1
    mv "$WORK/sums/$1.new" "$WORK/sums/$1"
}

# One begins anew in a new fork if the daemon has died under it.
forked() { "$HOLDFAST" branch delete "$IMAGE" "agent-$1" >/dev/null 2>&1 || true; "$HOLDFAST" fork "$IMAGE" --from main@base "agent-$1" >/dev/null; mkdir -p "$WORK/at/$1"; }

make 8G
attach
git clone -q --no-hardlinks "$SOURCE" "$DIR/repository"
"$HOLDFAST" snapshot create "$DIR" base >/dev/null
"$HOLDFAST" sync "$DIR"
sums "$DIR" >"$WORK/base"
sleep 1
before=$(used)

RANDOM=$SEED
todo=$(seq "$FORKS" | shuf --random-source=<(yes "$SEED"))
round=0
rounds=$(((FORKS + AT_ONCE - 1) / AT_ONCE))
every=$((KILLS > 0 && rounds / KILLS > 0 ? rounds / KILLS : 1))
start=$(date +%s)
while [ -n "$todo" ]; do
    round=$((round + 1))
    now=$(head -n "$AT_ONCE" <<<"$todo")
    [ "$round" -le $((rounds * 4 + KILLS)) ] || fail "agents do not come to an end: $(tr '\n' ' ' <<<"$todo"); what the last one said: $(cat "$WORK/said-$(head -n 1 <<<"$todo")")"
    mounted || attach
    for n in $now; do forked "$n"; done
    pids=
    for n in $now; do agent "$n" & pids="$pids $!"; done
    if [ "$KILLS" -gt 0 ] && [ $((round % every)) -eq 0 ]; then
        KILLS=$((KILLS - 1))
        sleep "$((RANDOM % 3)).$((RANDOM % 10))"
        kill -9 "$(daemon)"
        say "  the daemon is killed in round $round"
    fi
    for pid in $pids; do wait "$pid" 2>/dev/null || true; done
    let_go
    todo=$(for n in $todo; do [ -e "$WORK/sums/$n" ] || echo "$n"; done)
done
say "  $FORKS agents are done in $round rounds and $(($(date +%s) - start)) s"

clean "after all agents"
attach
sums "$DIR" | cmp -s - "$WORK/base" || fail "the base has changed"
for n in $(seq "$FORKS"); do
    "$HOLDFAST" mount -o ro "$IMAGE:agent-$n" "$WORK/at/$n"
    sums "$WORK/at/$n" | cmp -s - "$WORK/sums/$n" || fail "agent-$n has not what it made"
    "$HOLDFAST" umount "$WORK/at/$n"
done
say "  each has what it made, by checksum"

# One works in a transaction, and one fails in one.
export -f work
"$HOLDFAST" txn "$DIR" -- bash -c 'set -e; work "$1" 2; exit 9' bash "$DIR" >/dev/null 2>&1 && fail "a transaction that fails has succeeded"
sums "$DIR" | cmp -s - "$WORK/base" || fail "a transaction that failed has changed the base"
"$HOLDFAST" txn "$DIR" -- bash -c 'set -e; work "$1" 3; find . -type f -print0 | sort -z | xargs -0 sha256sum >"$2"' bash "$DIR" "$WORK/txn"
sums "$DIR" | cmp -s - "$WORK/txn" || fail "the transaction is not what it made"
say "  a transaction is done as a whole, and one that failed not at all"
detach

start=$(date +%s%N)
for n in $(seq "$FORKS"); do
    "$HOLDFAST" diff "$IMAGE" main@base "agent-$n" --name-only >"$WORK/diff"
    grep -q "repository/README.md" "$WORK/diff" && grep -q "out-$n" "$WORK/diff" || fail "the difference of agent-$n is not told"
done
say "  $(((($(date +%s%N) - start)) / FORKS / 1000000)) ms for each difference, the opening of the volume included"

attach
"$HOLDFAST" snapshot rollback --discard "$DIR" base >/dev/null
for n in $(seq "$FORKS"); do "$HOLDFAST" branch delete "$DIR" "agent-$n"; done
sums "$DIR" | cmp -s - "$WORK/base" || fail "the base is not what it was"
for _ in $(seq 600); do
    after=$(used)
    [ "$after" -gt $((before + 256)) ] || break
    sleep 0.1
done
[ "$after" -le $((before + 256)) ] || fail "$((after - before)) blocks have not come back"
say "  all are thrown away: $before blocks in use before, $after behind"
detach
clean "at the end"
say "agents: passed"
