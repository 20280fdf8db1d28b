#!/usr/bin/env bash
# git clone + fsck + gc of this repository on the mount, with a crash in between.
. "$(dirname "$0")/lib.sh"
SOURCE=$(cd "$(dirname "$0")/../.." && git rev-parse --show-toplevel)
make 2G
attach
git clone -q --no-hardlinks "$SOURCE" "$DIR/clone"
git -C "$DIR/clone" fsck --strict >/dev/null
git -C "$DIR/clone" gc -q --aggressive --prune=now
git -C "$DIR/clone" -c user.name=p -c user.email=p@localhost -c core.fsync=all commit -q --allow-empty -m "kept by fsync"
wanted=$(git -C "$DIR/clone" rev-parse HEAD)
"$HOLDFAST" sync "$DIR"
crash
attach
[ "$(git -C "$DIR/clone" rev-parse HEAD)" = "$wanted" ] || fail "a synced commit is gone"
git -C "$DIR/clone" fsck --strict >/dev/null
[ -z "$(git -C "$DIR/clone" status --porcelain)" ] || fail "the work tree changed"
detach
clean "after clone, gc and a crash"
say "git: passed"
