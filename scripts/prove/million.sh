#!/usr/bin/env bash
# One directory with a million files: created, listed, statted, removed through the mount. And the odd shapes:
# a sparse file with data at 8 TiB, 255-byte names, a 4,096-deep directory.
# usage: million.sh [FILES]
. "$(dirname "$0")/lib.sh"
FILES=${1:-1000000}
make 8G
attach
mkdir "$DIR/many"
python3 - "$DIR/many" "$FILES" <<'P'
import os, sys, time
path, count = sys.argv[1], int(sys.argv[2])
os.chdir(path)
def lap(name, start):
    took = time.time() - start
    print(f"  {name}: {took:.1f} s, {count / took:,.0f}/s", flush=True)
start = time.time()
for n in range(count):
    os.close(os.open(f"file-{n:07}", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644))
lap("create", start)
start = time.time()
names = os.listdir(".")
lap("list", start)
assert len(names) == count and len(set(names)) == count
start = time.time()
for name in names:
    assert os.stat(name).st_size == 0
lap("stat", start)
P
say "  peak memory of the daemon: $(($(peak_kib) / 1024)) MiB"
detach
clean "with $FILES files in a directory"
attach
python3 - "$DIR/many" "$FILES" <<'P'
import os, sys, time
path, count = sys.argv[1], int(sys.argv[2])
os.chdir(path)
start = time.time()
names = [entry.name for entry in os.scandir(".")]
assert len(set(names)) == count
took = time.time() - start
print(f"  list after a remount: {took:.1f} s")
start = time.time()
for name in names:
    os.unlink(name)
took = time.time() - start
print(f"  remove: {took:.1f} s, {count / took:,.0f}/s")
assert os.listdir(".") == []
P
python3 - "$DIR" <<'P'
import os, sys
os.chdir(sys.argv[1])
fd = os.open("sparse", os.O_CREAT | os.O_RDWR)
os.pwrite(fd, b"far", 8 << 40)
os.fsync(fd)
assert os.lseek(fd, 0, os.SEEK_DATA) == 8 << 40
assert os.pread(fd, 3, 8 << 40) == b"far" and os.pread(fd, 9, 4 << 40) == bytes(9)
assert os.fstat(fd).st_blocks <= 16
os.close(fd)
for c in "ab":
    open(c * 255, "w").write(c)
try:
    open("x" * 256, "w")
    raise SystemExit("a 256-byte name was accepted")
except OSError as e:
    assert e.errno == 36, e
at = os.open(".", os.O_RDONLY)
for n in range(4096):
    os.mkdir("d", dir_fd=at)
    below = os.open("d", os.O_RDONLY, dir_fd=at)
    os.close(at)
    at = below
fd = os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=at)
os.write(fd, b"bottom"); os.fsync(fd)
P
say "  peak memory of the daemon: $(($(peak_kib) / 1024)) MiB"
detach
clean "with a sparse file, long names and 4,096 levels"
attach
python3 - "$DIR" <<'P'
import os, sys
os.chdir(sys.argv[1])
for n in range(4096): os.chdir("d")
assert open("deep").read() == "bottom"
os.unlink("deep")
for n in range(4096):
    os.chdir(".."); os.rmdir("d")
P
detach
clean "after their removal"
say "million: passed"
