"""Writes to one half of a page, by a handle that cannot read, beside stores into the other half through a mapping.

Each write is there when it has returned. Prints how often that was not so.
Argument: a file.
"""
import mmap, os, signal, struct, sys

PAGE = 4096
ROUNDS = 10_000

file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(file, bytes(PAGE))
storing = os.fork()
if storing == 0:
    # Its parent ends it.
    memory, number = mmap.mmap(file, PAGE), 0
    while True:
        number += 1
        struct.pack_into("<Q", memory, PAGE // 2, number)
lost = 0
try:
    writer = os.open(sys.argv[1], os.O_WRONLY)
    for number in range(1, ROUNDS + 1):
        content = struct.pack("<Q", number)
        os.pwrite(writer, content, 64)
        lost += os.pread(file, 8, 64) != content
finally:
    os.kill(storing, signal.SIGKILL)
    os.waitpid(storing, 0)
print(lost, "of", ROUNDS, "writes were lost")
sys.exit(lost > 0)
