#!/usr/bin/env bash
# Figures of the mount beside ext4 on a loop device of the same size, in one run, interleaved rounds, medians.
# Needs root (loop devices). Prints a table; asserts nothing about time: machines are noisy.
# usage: figures.sh [ROUNDS] [ARCHIVE.tar.xz]
. "$(dirname "$0")/lib.sh"
ROUNDS=${1:-3}
ARCHIVE=${2:-/usr/src/linux-source-6.1.tar.xz}
SIZE=8G
PEER=$WORK/ext4
PEER_IMAGE=$WORK/ext4.img
LOOP=
mkdir -p "$PEER"
detach_peer() {
    mountpoint -q "$PEER" && umount "$PEER"
    [ -z "$LOOP" ] || losetup -d "$LOOP"
    LOOP=
}
let_go() { detach_peer; }
truncate -s "$SIZE" "$PEER_IMAGE"
xz -dc "$ARCHIVE" >"$WORK/tree.tar"

cat >"$WORK/measure.py" <<'P'
"""One round of every workload on a directory: prints `name value unit` lines."""
import os, subprocess, sys, time
root, archive = sys.argv[1:]
os.chdir(root)
def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
def show(name, value, unit): print(name, f"{value:.1f}", unit, flush=True)
def sync():
    os.sync()
    try:
        os.getxattr(root, "system.holdfast.sync")  # sync(2) does not reach FUSE servers
    except OSError:
        pass
os.mkdir("tree")
show("untar+sync", timed(lambda: (subprocess.run(["tar", "-C", "tree", "-xf", archive], check=True), sync())), "s")
show("find-stat", timed(lambda: subprocess.run(["find", "tree", "-size", "+100M"], check=True)), "s")
show("rm-rf", timed(lambda: (subprocess.run(["rm", "-rf", "tree"], check=True), sync())), "s")
n = 50_000
os.mkdir("many"); os.chdir("many")
def create():
    for i in range(n): os.close(os.open(f"f{i}", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644))
def stat():
    for i in range(n): os.stat(f"f{i}")
def remove():
    for i in range(n): os.unlink(f"f{i}")
show("create", n / timed(create), "files/s")
show("stat", n / timed(stat), "files/s")
show("unlink", n / timed(remove), "files/s")
os.chdir("..")
chunk, count = os.urandom(1 << 20), 1024
def write():
    fd = os.open("big", os.O_CREAT | os.O_WRONLY)
    for _ in range(count): os.write(fd, chunk)
    os.fsync(fd); os.close(fd)
def read():
    fd = os.open("big", os.O_RDONLY)
    while os.read(fd, 1 << 20): pass
    os.close(fd)
show("write+fsync", count / timed(write), "MiB/s")
open("/proc/sys/vm/drop_caches", "w").write("3")
show("read-cold", count / timed(read), "MiB/s")
show("read-warm", count / timed(read), "MiB/s")
def small():
    fd = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for _ in range(300): os.write(fd, b"x" * 4096); os.fsync(fd)
    os.close(fd)
show("append4k+fsync", 300 / timed(small), "ops/s")
P

for round in $(seq 1 "$ROUNDS"); do
    make "$SIZE"
    attach
    python3 "$WORK/measure.py" "$DIR" "$WORK/tree.tar" | sed 's/^/holdfast /' | tee -a "$WORK/results"
    say "holdfast peak-rss $(($(peak_kib) / 1024)) MiB" | tee -a "$WORK/results"
    detach
    LOOP=$(losetup --find --show --direct-io=on "$PEER_IMAGE")
    mkfs.ext4 -q -F "$LOOP"
    mount -o noatime "$LOOP" "$PEER"
    python3 "$WORK/measure.py" "$PEER" "$WORK/tree.tar" | sed 's/^/ext4 /' | tee -a "$WORK/results"
    detach_peer
done

say
python3 - "$WORK/results" <<'P'
import collections, statistics, sys
rows = collections.OrderedDict()
for line in open(sys.argv[1]):
    who, name, value, unit = line.split()
    rows.setdefault((name, unit), {}).setdefault(who, []).append(float(value))
print(f"{'workload':16} {'unit':8} {'holdfast':>12} {'ext4':>12} {'ratio':>7}   (median of rounds; ratio > 1: holdfast is better)")
for (name, unit), who in rows.items():
    ours, theirs = (statistics.median(who[k]) if k in who else None for k in ("holdfast", "ext4"))
    if theirs is None:
        print(f"{name:16} {unit:8} {ours:12,.1f}")
        continue
    ratio = theirs / ours if unit == "s" else ours / theirs
    print(f"{name:16} {unit:8} {ours:12,.1f} {theirs:12,.1f} {ratio:7.2f}")
P
say "figures: done"
