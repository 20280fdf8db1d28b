# Limits around a daemon, for killed.sh: a pids cgroup, a memory cgroup and RLIMIT_NOFILE, tightened and loosened while
# it works. Sourced; needs root, $DAEMON, and cgroups of version 1 or 2.
[ "$(id -u)" -eq 0 ] || fail "--limits needs root, for cgroups"
bash "$HERE/../need.sh" prlimit=util-linux

LIMITS_NAME=holdfast-limits.$$
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    PIDS=/sys/fs/cgroup/$LIMITS_NAME
    MEMORY=$PIDS
    PIDS_MAX=$PIDS/pids.max PIDS_NOW=$PIDS/pids.current
    MEMORY_MAX=$MEMORY/memory.max MEMORY_NOW=$MEMORY/memory.current UNLIMITED=max
    echo "+pids +memory" >/sys/fs/cgroup/cgroup.subtree_control
else
    PIDS=/sys/fs/cgroup/pids/$LIMITS_NAME
    MEMORY=/sys/fs/cgroup/memory/$LIMITS_NAME
    PIDS_MAX=$PIDS/pids.max PIDS_NOW=$PIDS/pids.current
    MEMORY_MAX=$MEMORY/memory.limit_in_bytes MEMORY_NOW=$MEMORY/memory.usage_in_bytes UNLIMITED=-1
fi
mkdir -p "$PIDS" "$MEMORY" || fail "no cgroup can be made"
tightened=0
out_of_memory=0

limits_gone() {
    local folder
    for folder in "$PIDS" "$MEMORY"; do
        [ ! -d "$folder" ] || rmdir "$folder" || say "left: $folder"
    done
}

# Runs a program below the limits, with the process id of the caller's subshell.
limited() {
    echo "$BASHPID" >"$PIDS/cgroup.procs"
    echo "$BASHPID" >"$MEMORY/cgroup.procs"
    exec "$@"
}

# From here on the daemon gets no further thread, no further descriptor, and 64 MiB of memory more than it has.
tighten() {
    local descriptors=(/proc/"$DAEMON"/fd/*)
    cat "$PIDS_NOW" >"$PIDS_MAX"
    prlimit --pid "$DAEMON" --nofile="${#descriptors[@]}:"
    echo $(($(cat "$MEMORY_NOW") + (64 << 20))) >"$MEMORY_MAX" 2>/dev/null || true
    tightened=$((tightened + 1))
}

loosen() {
    echo max >"$PIDS_MAX"
    echo "$UNLIMITED" >"$MEMORY_MAX"
    [ -z "$DAEMON" ] || prlimit --pid "$DAEMON" --nofile=1024:
}

# The end of a daemon by lack of memory, as far as the kernel kills it within two seconds.
starve() {
    local try
    for try in $(seq 1 100); do
        echo 1M >"$MEMORY_MAX" 2>/dev/null || echo "$(cat "$MEMORY_NOW")" >"$MEMORY_MAX" 2>/dev/null || true
        if ! kill -0 "$DAEMON" 2>/dev/null || grep -q '^State:.*Z' "/proc/$DAEMON/status" 2>/dev/null; then
            out_of_memory=$((out_of_memory + 1))
            return
        fi
        sleep 0.02
    done
}
