#!/usr/bin/env bash
# The daemon is killed with SIGKILL at random moments under eight programs (killed.py): SQLite with both kinds of
# journal, git, mail deliveries, logs, overwrites, safe-saves, and a tree of names. Everything that was acknowledged must
# be there, fsck clean before and after each recovery. In every third round the recovery is killed as well.
# A new volume for every ten rounds, with nodes of another size.
# With --limits the daemon lives in a pids and a memory cgroup and under RLIMIT_NOFILE, and the limits change while the
# programs run: no further thread, no further descriptor, hardly any memory. In some rounds the kernel's out-of-memory killer
# ends the daemon. For root, with cgroups of version 1 or 2. --minutes ends after so long instead of after ROUNDS.
# usage: killed.sh [--limits] [--minutes N] [ROUNDS] [SEED]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
LIMITS=
MINUTES=
while :; do
    case ${1:-} in
        --limits) LIMITS=1; shift ;;
        --minutes) MINUTES=$2; shift 2 ;;
        *) break ;;
    esac
done
ROUNDS=${1:-${MINUTES:+100000}}
ROUNDS=${ROUNDS:-100}
SEED=${2:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
LIVES=10
bash "$HERE/../need.sh" sqlite3=sqlite3 git=git python3=python3
say "killed: ${MINUTES:+$MINUTES minutes, at most }$ROUNDS rounds, seed $SEED (moments follow from it, threads do not)${LIMITS:+, under limits}"
RANDOM=$SEED
DAEMON=
LOADER=
let_go() {
    [ -z "$DAEMON" ] || killed
    [ -z "$LOADER" ] || { touch "$HOST/killed"; wait "$LOADER"; }
    [ -z "$LIMITS" ] || limits_gone
}
[ -z "$LIMITS" ] || . "$HERE/limits.sh"

# Waits from $1 to $2 milliseconds, by chance. (No subshell may ask for RANDOM: it would have another seed.)
moment() {
    local seconds ms=$(($1 + RANDOM % ($2 - $1)))
    printf -v seconds '%d.%03d' $((ms / 1000)) $((ms % 1000))
    sleep "$seconds"
}
# In the foreground, so that its process id is known from the first moment.
start() {
    served_before=$(times_served)
    ${LIMITS:+limited} "$HOLDFAST" mount --foreground -o "$1" "$IMAGE" "$DIR" >>"$WORK/daemon.log" 2>&1 &
    DAEMON=$!
}
# The mount is there a moment before the threads that serve it: under limits from then on, the daemon would refuse to start.
times_served() { grep -c ' is mounted at ' "$WORK/daemon.log" 2>/dev/null || true; }
started() {
    until mounted && [ "$(times_served)" -gt "${served_before:-0}" ]; do
        kill -0 "$DAEMON" 2>/dev/null || { tail -n 5 "$WORK/daemon.log"; fail "round $round: the volume does not mount"; }
        sleep 0.01
    done
}
killed() {
    # It may have ended for lack of memory.
    kill -9 "$DAEMON" 2>/dev/null || true
    # What the shell says of a killed child is no news.
    wait "$DAEMON" 2>/dev/null || true
    DAEMON=
}
stopped() {
    detach
    wait "$DAEMON" || fail "round $round: the daemon ended with $?"
    DAEMON=
}
quietly_clean() { clean "$1" >"$WORK/clean.txt" || { cat "$WORK/clean.txt"; exit 1; }; }

begun=$(date +%s)
volume=0
recoveries_killed=0
for round in $(seq 1 "$ROUNDS"); do
    if [ $(((round - 1) % LIVES)) -eq 0 ]; then
        nodes=(16k 4k 64k)
        node=${nodes[$((volume % 3))]}
        volume=$((volume + 1))
        HOST=$WORK/said$volume
        make 2G --node-size "$node"
        start commit=1
        started
        python3 "$HERE/killed.py" new "$DIR" "$HOST"
        stopped
    fi
    # Few checkpoints, many checkpoints, and everything between.
    options=("commit=1,recover=0.02" "commit=5" "commit=1,recover=0.1,cache=16M" "commit=30")
    start "${options[$((round % 4))]}${LIMITS:+,cache=16M,dirty_bytes=16M}"
    started
    # In every second round the limits are there before the first program asks for anything.
    [ -z "$LIMITS" ] || [ $((round % 2)) -eq 0 ] || tighten
    rm -f "$HOST/ready" "$HOST/killed"
    python3 "$HERE/killed.py" load "$DIR" "$HOST" 2>"$WORK/load.txt" &
    LOADER=$!
    until [ -e "$HOST/ready" ]; do sleep 0.01; done
    moment 50 1800
    if [ -n "$LIMITS" ]; then
        tighten
        moment 50 1800
    fi
    touch "$HOST/killed"
    [ -z "$LIMITS" ] || [ $((round % 4)) -ne 2 ] || starve
    killed
    [ -z "$LIMITS" ] || loosen
    # Only when nobody works there any more: below the dead mount is a directory of the host.
    wait "$LOADER" || { cat "$WORK/load.txt"; fail "round $round: the load"; }
    LOADER=
    umount -l "$DIR"
    quietly_clean "round $round, before the recovery"
    if [ $((round % 3)) -eq 0 ]; then
        start commit=5
        moment 0 60
        killed
        recoveries_killed=$((recoveries_killed + 1))
        if mounted; then umount -l "$DIR"; fi
        quietly_clean "round $round, recovery killed"
    fi
    start commit=5
    started
    python3 "$HERE/killed.py" check "$DIR" "$HOST" >"$WORK/check.txt" 2>&1 || { cat "$WORK/check.txt"; fail "round $round: something acknowledged is missing"; }
    stopped
    quietly_clean "round $round, after the recovery"
    if [ $((round % LIVES)) -eq 0 ] || [ "$round" -eq "$ROUNDS" ]; then
        say "  rounds up to $round, $node nodes, acknowledged: $(cat "$WORK/check.txt")"
    fi
    [ -z "$MINUTES" ] || [ $(($(date +%s) - begun)) -lt $((MINUTES * 60)) ] || break
done
say "  rounds made: $round${LIMITS:+; limits tightened $tightened times, ended by lack of memory $out_of_memory times}"
say "  acknowledged in all: $(python3 "$HERE/killed.py" total "$WORK"/said*)"
say "killed: passed; $round rounds, $recoveries_killed recoveries killed as well, $(($(date +%s) - begun)) s"
