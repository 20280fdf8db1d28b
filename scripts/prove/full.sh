#!/usr/bin/env bash
# Many writers fill a volume: clear errors, everything acknowledged is intact, unlink works on the full volume.
. "$(dirname "$0")/lib.sh"
for node in 4k 64k; do
    make 256M --node-size "$node"
    attach
    before=$(used)
    python3 - "$DIR" "$WORK/kept" <<'P'
import errno, hashlib, os, sys, threading
root, record = sys.argv[1:]
kept, lock, seen = {}, threading.Lock(), set()
def writer(w):
    n = 0
    while True:
        path = f"{root}/w{w}-{n}"
        data = os.urandom(1 + (n * 7919 + w * 13) % 200_000)
        try:
            fd = os.open(path, os.O_CREAT | os.O_WRONLY)
            try:
                done = 0
                while done < len(data): done += os.write(fd, data[done:])
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as e:
            with lock: seen.add(e.errno)
            return
        with lock: kept[path] = hashlib.sha256(data).hexdigest()
        n += 1
threads = [threading.Thread(target=writer, args=(w,)) for w in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
assert seen == {errno.ENOSPC}, seen
open(record, "w").write("".join(f"{d}  {p}\n" for p, d in kept.items()))
print(f"  {len(kept)} files acknowledged, then ENOSPC for everybody")
P
    df --output=avail,used -k "$DIR" | tail -n 1 | sed 's/^/  KiB available and used: /'
    detach
    clean "full ($node nodes)"
    attach
    sha256sum --quiet -c "$WORK/kept" || fail "an acknowledged file changed"
    rm "$DIR"/w3-*
    printf 'room again' >"$DIR/after" || fail "no room after unlink"
    find "$DIR" -mindepth 1 -delete
    detach
    clean "emptied ($node nodes)"
    attach
    after=$(used)
    [ "$after" -le $((before + 64)) ] || fail "blocks in use: $before before, $after after"
    detach
done
say "full: passed"
