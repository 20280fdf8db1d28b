#!/usr/bin/env bash
# The daemon of a supervised mount is killed with SIGKILL at random moments under the eight programs of killed.py, which go on: none
# of them may see an error. In every fourth round the next daemon is killed as well, while it recovers or a moment later. At
# the end everything that was acknowledged is there, and fsck finds nothing.
# usage: supervised.sh [KILLS] [SEED]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
KILLS=${1:-200}
SEED=${2:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
bash "$HERE/../need.sh" sqlite3=sqlite3 git=git python3=python3 pgrep=procps
say "supervised: $KILLS kills, seed $SEED (moments follow from it, threads do not)"
RANDOM=$SEED
LOADER=
HOST=$WORK/said
let_go() {
    [ -z "$LOADER" ] || { touch "$HOST/enough"; wait "$LOADER"; }
}
# Waits from $1 to $2 milliseconds, by chance.
moment() {
    local seconds ms=$(($1 + RANDOM % ($2 - $1)))
    printf -v seconds '%d.%03d' $((ms / 1000)) $((ms % 1000))
    sleep "$seconds"
}
# The image lies in a directory of this run alone.
daemon_of_image() { pgrep -f -- "--supervised --detached .*$IMAGE" | head -n 1; }
kill_it() {
    local pid
    until pid=$(daemon_of_image) && [ -n "$pid" ]; do
        mounted || fail "after $kills kills: nothing is mounted"
        sleep 0.01
    done
    kill -9 "$pid"
    # The next one has another number, or the same name for a moment.
    while [ -d "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.002; done
    kills=$((kills + 1))
}

begun=$(date +%s)
kills=0
# The programs fill some GiB on a machine that does nothing else.
make 16G
attach -o supervised,commit=1,recover=0.1,log="$WORK/daemon.log"
python3 "$HERE/killed.py" new "$DIR" "$HOST"
python3 "$HERE/killed.py" load "$DIR" "$HOST" >"$WORK/load.txt" 2>&1 &
LOADER=$!
until [ -e "$HOST/ready" ]; do sleep 0.01; done
while [ "$kills" -lt "$KILLS" ]; do
    moment 1100 1900
    kill_it
    if [ $((RANDOM % 4)) -eq 0 ]; then
        moment 0 80
        kill_it
    fi
    kill -0 "$LOADER" 2>/dev/null || { cat "$WORK/load.txt"; tail -n 5 "$WORK/daemon.log"; fail "after $kills kills a program has ended"; }
done
touch "$HOST/enough"
wait "$LOADER" || { cat "$WORK/load.txt"; tail -n 5 "$WORK/daemon.log"; LOADER=; fail "a program saw more than a pause"; }
LOADER=
cat "$WORK/load.txt"
python3 "$HERE/killed.py" check "$DIR" "$HOST" >"$WORK/check.txt" 2>&1 || { cat "$WORK/check.txt"; fail "something acknowledged is missing"; }
say "  acknowledged: $(cat "$WORK/check.txt")"
detach
"$HOLDFAST" fsck "$IMAGE" >"$WORK/fsck.txt" || { cat "$WORK/fsck.txt"; fail "fsck"; }
pauses=$(grep -o 'again after [0-9]* ms' "$WORK/daemon.log" | cut -d' ' -f3 | sort -n)
say "  pauses: $(echo "$pauses" | wc -l), median $(echo "$pauses" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }') ms, longest $(echo "$pauses" | tail -n 1) ms"
say "supervised: passed; $kills kills, $(($(date +%s) - begun)) s"
