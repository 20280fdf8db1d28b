#!/usr/bin/env bash
# A large source tree: unpacked onto the mount, compared file by file after a remount, removed.
# fsck is clean at each point and free space returns to where it was.
# usage: tree.sh [ARCHIVE.tar.xz]   (default: Debian's linux-source-6.1)
. "$(dirname "$0")/lib.sh"
ARCHIVE=${1:-/usr/src/linux-source-6.1.tar.xz}
[ -r "$ARCHIVE" ] || fail "$ARCHIVE is missing; on Debian: apt-get install linux-source-6.1"
say "unpacking $ARCHIVE beside the volume"
mkdir "$WORK/reference"
tar -C "$WORK/reference" -xf "$ARCHIVE"
(cd "$WORK/reference" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) >"$WORK/sums"
(cd "$WORK/reference" && find . \( -type l -printf '%p -> %l\n' \) -o -printf '%p %y %m %s\n' | sed 's/ d \([0-7]*\) .*/ d \1/' | LC_ALL=C sort) >"$WORK/shape"
tar -C "$WORK/reference" -cf "$WORK/tree.tar" .

make 8G
attach
before=$(used)
seconds tar -C "$DIR" -xf "$WORK/tree.tar"
say "  untar: ${SECONDS_TAKEN} s, $(wc -l <"$WORK/sums") files"
seconds "$HOLDFAST" sync "$DIR"
say "  sync: ${SECONDS_TAKEN} s"
say "  peak memory of the daemon: $(($(peak_kib) / 1024)) MiB"
detach
clean "after untar"
attach
seconds sh -c "cd '$DIR' && sha256sum --quiet -c '$WORK/sums'" || fail "a file differs after the remount"
say "  compared by checksum: ${SECONDS_TAKEN} s, all equal"
(cd "$DIR" && find . \( -type l -printf '%p -> %l\n' \) -o -printf '%p %y %m %s\n' | sed 's/ d \([0-7]*\) .*/ d \1/' | LC_ALL=C sort) | diff -q - "$WORK/shape" || fail "types, modes or sizes differ"
seconds find "$DIR" -mindepth 1 -delete
say "  removed: ${SECONDS_TAKEN} s"
detach
clean "after removal"
attach
after=$(used)
say "  blocks in use: $before before, $after after"
[ "$after" -le $((before + 64)) ] || fail "space did not come back"
detach
say "tree: passed"
