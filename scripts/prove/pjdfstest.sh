#!/usr/bin/env bash
# The public suite of POSIX calls (the crate pjdfstest) in a mounted fork, beside BESIDE other mounted forks of the same volume, in each of
# which a program writes and syncs meanwhile. No test may fail. Then all is unmounted, and fsck looks. For root.
# usage: pjdfstest.sh [BESIDE]   (default: 50)
# It remounts: mount(8) looks for its helpers in /sbin alone, so all goes on in a mount namespace that has them there.
if [ "$(id -u)" -eq 0 ] && [ -z "${OWN_MOUNTS:-}" ]; then OWN_MOUNTS=1 exec unshare --mount bash "$0" "$@"; fi
. "$(dirname "$0")/lib.sh"
BESIDE=${1:-50}
SUITE=${SUITE:-${TMPDIR:-/tmp}/holdfast-pjdfstest}
[ "$(id -u)" -eq 0 ] || fail "pjdfstest changes users: run it as root"
[ -x "$SUITE/bin/pjdfstest" ] || cargo install --quiet --locked --version 0.2.2 --root "$SUITE" pjdfstest

writers=()
let_go() {
    [ "${#writers[@]}" -eq 0 ] || kill "${writers[@]}" 2>/dev/null
    wait
    "$HOLDFAST" umount "$IMAGE" >/dev/null 2>&1
    umount "$(readlink -f /sbin)" && umount "$WORK/over"
}

# Writes and syncs in DIR until it is ended.
write_on() {
    local n=0
    while echo "$n" >"$1/at-$((n % 16))" && "$HOLDFAST" sync "$1"; do
        n=$((n + 1))
        sleep 0.2
    done
}

mkdir "$WORK/over"
mount -t tmpfs tmpfs "$WORK/over"
mkdir "$WORK/over/upper" "$WORK/over/work"
sbin=$(readlink -f /sbin)
mount -t overlay overlay -o "lowerdir=$sbin,upperdir=$WORK/over/upper,workdir=$WORK/over/work" "$sbin"
for name in mount.holdfast mount.fuse.holdfast umount.fuse.holdfast; do ln -sf "$(realpath "$HOLDFAST")" "$sbin/$name"; done

make 4G
attach
"$HOLDFAST" snapshot create "$DIR" base >"$WORK/said"
for n in $(seq "$BESIDE"); do
    "$HOLDFAST" fork "$DIR" --from main@base "beside-$n" >"$WORK/said"
    mkdir "$WORK/beside-$n"
    "$HOLDFAST" mount "$IMAGE:beside-$n" "$WORK/beside-$n"
    write_on "$WORK/beside-$n" &
    writers+=($!)
done
"$HOLDFAST" fork "$DIR" --from main@base tested >"$WORK/said"
mkdir "$WORK/tested"
"$HOLDFAST" mount "$IMAGE:tested" "$WORK/tested"
chmod 755 "$WORK" "$WORK/tested"
cat >"$WORK/suite.toml" <<TOML
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML
# suite [TEST...]: nothing may fail.
suite() {
    "$SUITE/bin/pjdfstest" -c "$WORK/suite.toml" -p "$WORK/tested" -s /dev/shm "$@" >"$WORK/said" 2>&1 || {
        grep -A2 'FAILED' "$WORK/said" | head -60 >&2
        fail "see $WORK/said"
    }
    say "  ${1:-all}: $(tail -n 1 "$WORK/said")"
}
say "pjdfstest in a fork, $BESIDE mounts beside it"
suite
# Some of its tests leave a file open, behind which no filesystem can be remounted: what remounts has a process of its own.
sed -i 's/allow_remount = false/allow_remount = true/' "$WORK/suite.toml"
suite erofs
for n in $(seq "$BESIDE"); do
    [ -e "$WORK/beside-$n/at-0" ] || fail "beside-$n has not written"
done
kill "${writers[@]}"
wait
writers=()
"$HOLDFAST" umount "$IMAGE"
"$HOLDFAST" fsck "$IMAGE"
say "done"
