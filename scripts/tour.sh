#!/usr/bin/env bash
# A tour with real content: make a volume, mount it, fill it, fsync, kill the daemon, mount again, compare, check.
# usage: tour.sh          runs it; leaves the volume mounted
#        tour.sh stop     unmounts it and removes the files
# The files are in $TOUR, by default target/tour. Running it again starts over.
set -euo pipefail
cd "$(dirname "$0")/.."

repository=$PWD
target=${CARGO_TARGET_DIR:-$repository/target}
tour=${TOUR:-$repository/target/tour}
holdfast=$target/release/holdfast
image=$tour/volume.holdfast
dir=$tour/mnt
busy=  # a process that writes while the daemon is killed

say() { printf '%s\n' "$*"; }
chapter() { printf '\n%s\n' "-- $*"; }
is_mounted() { awk -v dir="$dir" '$5 == dir { found = 1 } END { exit !found }' /proc/self/mountinfo; }

leave() {
    if [ -n "$busy" ]; then kill "$busy" 2>/dev/null || true; wait "$busy" 2>/dev/null || true; busy=; fi
    if is_mounted; then
        "$holdfast" umount "$dir" 2>/dev/null || umount -l "$dir" 2>/dev/null || fusermount3 -uz "$dir"
    fi
}

on_exit() {
    local status=$?
    if [ "$status" -ne 0 ]; then
        leave || true
        say "the tour ended early; its files are in $tour" >&2
    fi
}

# A number out of the daemon's statistics; 0 when nothing is mounted.
stat_of() { "$holdfast" stats --json "$dir" 2>/dev/null | grep -o "\"$1\":[0-9]*" | head -n 1 | cut -d: -f2 || echo 0; }
human() { numfmt --to=iec-i --suffix=B "$1"; }

# step TEXT COMMAND...: runs it and says what it cost. Inside a mount: bytes and flushes from the daemon as well.
step() {
    local text=$1 start end bytes=0 flushes=0 cost
    shift
    if is_mounted; then
        bytes=$(stat_of written_bytes)
        flushes=$(stat_of flushes)
    fi
    start=$(date +%s%N)
    "$@"
    end=$(date +%s%N)
    cost=$(awk -v ns=$((end - start)) 'BEGIN { printf "%8.3f s", ns / 1e9 }')
    if is_mounted && [ -n "$(stat_of pid)" ]; then
        bytes=$(($(stat_of written_bytes) - ${bytes:-0}))
        flushes=$(($(stat_of flushes) - ${flushes:-0}))
        # A daemon that started inside this step counts from zero.
        if [ "$bytes" -ge 0 ] && [ "$flushes" -ge 0 ]; then
            cost+=$(printf '  %9s written  %6d flushes' "$(human "$bytes")" "$flushes")
        fi
    fi
    printf '   %-46s %s\n' "$text" "$cost"
}

copy_repository() { tar -C "$repository" --exclude=./target --exclude=./.git -cf - . | tar -C "$dir/holdfast" -xf -; }
copy_headers() { cp -a /usr/include "$dir/"; }
# sync(1) with arguments calls fsync on each.
fsync_files() { find "$dir/holdfast" -type f -print0 | xargs -0 sync; }
sums() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum); }

# Compares a tree on the volume with where it came from: every name, and every byte by checksum.
compare() {
    sums "$dir/$1" >"$tour/$1.there"
    diff -q "$tour/$1.sums" "$tour/$1.there" >/dev/null || {
        say "$1 differs after the crash:" >&2
        diff "$tour/$1.sums" "$tour/$1.there" | head >&2
        return 1
    }
}

kill_daemon() {
    local pid
    pid=$(stat_of pid)
    kill -9 "$pid"
    while [ -d "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.02; done
}

if [ "${1:-}" = stop ]; then
    leave
    rm -rf --one-file-system "$tour"
    say "unmounted, and $tour is removed"
    exit 0
fi

bash scripts/need.sh fusermount3=fuse3 cc=build-essential
if [ ! -e /dev/fuse ]; then
    say "there is no /dev/fuse here: run 'modprobe fuse', or start the container with --device /dev/fuse --cap-add SYS_ADMIN" >&2
    exit 1
fi

chapter "building (release)"
cargo build --release --locked -p holdfast-cli

leave
rm -rf --one-file-system "$tour"
mkdir -p "$dir"
trap on_exit EXIT

chapter "a volume of 4 GiB in $image"
make_volume() { "$holdfast" mkfs --size 4G --label tour "$image" >"$tour/mkfs.txt"; }
step "mkfs" make_volume
sed 's/^/   /' "$tour/mkfs.txt"
step "mount" "$holdfast" mount "$image" "$dir"
grep " $dir " /proc/mounts | sed 's/^/   /'

chapter "real content"
trees=(holdfast)
mkdir "$dir/holdfast"
step "copy this repository" copy_repository
step "fsync each of its $(find "$dir/holdfast" -type f | wc -l) files" fsync_files
step "fsync them again: nothing to do" fsync_files
sums "$dir/holdfast" >"$tour/holdfast.sums"
if [ -d /usr/include ]; then
    trees+=(include)
    step "copy /usr/include ($(find /usr/include -type f | wc -l) files)" copy_headers
    step "holdfast sync" "$holdfast" sync "$dir"
    # What it must be is what it was copied from.
    sums /usr/include >"$tour/include.sums"
fi

chapter "the daemon is killed (SIGKILL) in the middle of writing"
( i=0; while :; do i=$((i + 1)); head -c 200000 /dev/urandom >"$dir/unsaved-$i" || exit 0; done ) 2>/dev/null &
busy=$!
sleep 1
step "kill -9" kill_daemon
wait "$busy" 2>/dev/null || true
busy=
step "remove the dead mount" "$holdfast" umount "$dir"
step "mount again: recovery" "$holdfast" mount "$image" "$dir"
for tree in "${trees[@]}"; do
    step "compare $tree by checksum: all equal" compare "$tree"
done
say "   of the last second's files, which nobody had synced, $(find "$dir" -maxdepth 1 -name 'unsaved-*' | wc -l) are there, as promised: all or none of each operation"
rm -f "$dir"/unsaved-*

chapter "fsck: a second program, which shares no code with the engine"
step "umount: returns when everything is written" "$holdfast" umount "$dir"
"$holdfast" fsck -v "$image" | sed 's/^/   /'
check_data() { "$holdfast" fsck --data --json "$image" >"$tour/fsck.json"; }
step "fsck, reading all data" check_data
step "mount" "$holdfast" mount "$image" "$dir"

trap - EXIT
cat <<EOT

The volume is mounted at $dir:
   ls $dir; df -h $dir
   $holdfast stats $dir
Stop with:
   $holdfast umount $dir        (or 'make stop', which removes the files too)
Without a mount:
   $holdfast ls -l $image
   $holdfast cp -r $image:/holdfast/crates /tmp/crates
EOT
