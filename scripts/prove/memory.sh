#!/usr/bin/env bash
# Memory of the daemon, held to its options: 99 `cp -r` at once of 810 files of 8 KiB, then /usr/share copied in and
# removed. Prints the peak, the threads, and what is left at rest; fails above the bounds that docs/SEMANTICS.md names.
# usage: memory.sh [mount options, e.g. cache=64M,dirty_bytes=64M]   COPIES=99 FILES=810 TREE=/usr/share
. "$(dirname "$0")/lib.sh"
COPIES=${COPIES:-99} FILES=${FILES:-810} TREE=${TREE:-/usr/share}
OPTIONS=${1:-}

# option NAME: its value in MiB, 256 unless it is among the options.
option() {
    local value
    value=$(tr ',' '\n' <<<"$OPTIONS" | sed -n "s/^$1=//p" | tail -n 1)
    numfmt --from=iec "${value:-256M}" | awk '{ print int($1 / 1048576) }'
}
CACHE=$(option cache) DIRTY=$(option dirty_bytes)

# Of /proc/PID/status, in MiB; VmRSS and VmHWM count what the process has in memory, its program included.
mib() { awk -v name="$1:" '$1 == name { print int($2 / 1024) }' "/proc/$PID/status"; }
threads() { awk '$1 == "Threads:" { print $2 }' "/proc/$PID/status"; }
# Linux begins the peak anew.
forget_peak() { echo 5 >"/proc/$PID/clear_refs"; }

# while_it_runs COMMAND...: its most threads as $MOST_THREADS.
while_it_runs() {
    local now
    MOST_THREADS=0
    "$@" &
    while kill -0 $! 2>/dev/null; do
        now=$(threads)
        [ "$now" -le "$MOST_THREADS" ] || MOST_THREADS=$now
        sleep 0.1
    done
    wait $!
}

copies() {
    local at
    for at in $(seq "$COPIES"); do cp -r "$WORK/source" "$DIR/copy$at" & done
    wait
}
shared() { cp -a "$TREE" "$DIR/tree"; }
removed() { rm -rf "$DIR/tree" "$DIR"/copy*; }

# The daemon notices by itself that nothing is done any more: two ticks of `commit=`, and readers that end after 10 s.
rest() { sleep 25; }

# told WHAT LIMIT VALUE
FAILED=
told() {
    local verdict=ok
    [ "$3" -le "$2" ] || { verdict=TOO\ MUCH FAILED=yes; }
    printf '  %-58s %6d MiB of %6d MiB  %s\n' "$1" "$3" "$2" "$verdict"
}

mkdir "$WORK/source"
for at in $(seq "$FILES"); do
    mkdir -p "$WORK/source/$((at % 10))"
    head -c 8192 /dev/urandom >"$WORK/source/$((at % 10))/$at"
done
make 16G
attach ${OPTIONS:+-o "$OPTIONS"}
PID=$(daemon)
say "memory of the daemon with cache=${CACHE}M, dirty_bytes=${DIRTY}M; $(nproc) processors; $(mib VmRSS) MiB when mounted"
PEAK=$(((CACHE + DIRTY) * 6 / 5))

while_it_runs copies
told "$COPIES cp -r at once of $FILES files of 8 KiB, at most" "$PEAK" "$(mib VmHWM)"
say "  threads, at most: $MOST_THREADS"
rest
told "  at rest behind it" $((CACHE * 6 / 5)) "$(mib VmRSS)"
say "  threads at rest: $(threads)"

forget_peak
while_it_runs shared
told "cp -a $TREE, at most" "$PEAK" "$(mib VmHWM)"
rest
told "  at rest behind it" $((CACHE * 6 / 5)) "$(mib VmRSS)"
while_it_runs removed
rest
told "  at rest behind rm -rf of it" $(((CACHE + DIRTY) / 8)) "$(mib VmRSS)"

detach
clean "after all of it"
[ -z "$FAILED" ] || fail "more memory than the options say"
