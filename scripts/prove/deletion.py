"""How long append of 4 KiB + fsync takes while a snapshot is deleted of which every block of a large file differs, each an
extent of its own, and before that, when nothing else happens. Prints a table; asserts nothing about time.
usage: deletion.py DIR HOLDFAST ROUNDS BLOCKS"""
import json, os, random, subprocess, sys, time

BLOCK = 4096
root, holdfast = sys.argv[1:3]
rounds, blocks = int(sys.argv[3]), int(sys.argv[4])
data = os.urandom(1 << 20)

def run(*arguments): subprocess.run([holdfast, *arguments], check=True, stdout=subprocess.DEVNULL)

def left():
    """Deletions that have not ended."""
    out = subprocess.run([holdfast, "stats", "--json", root], capture_output=True, check=True).stdout
    return json.loads(out)["all"]["counters"]["deletions_left"]

def in_use():
    at = os.statvfs(root)
    return at.f_blocks - at.f_bfree

def rewrite(path):
    """Every block of the file once, in random order: the extents of the file are single blocks afterwards."""
    order = list(range(blocks))
    random.shuffle(order)
    with open(path, "r+b", buffering=0) as file:
        for n, block in enumerate(order): os.pwrite(file.fileno(), data[n % 256 * BLOCK:][:BLOCK], block * BLOCK)
        os.fsync(file.fileno())

def appends(file, goes_on):
    took = []
    while goes_on(len(took)):
        start = time.perf_counter()
        os.write(file, data[:BLOCK])
        os.fsync(file)
        took.append(time.perf_counter() - start)
    return took

with open(f"{root}/large", "wb") as file:
    for _ in range(0, blocks * BLOCK, len(data)): file.write(data)
rewrite(f"{root}/large")
alone, beside, freed, lasted = [], [], 0, 0.0
for number in range(rounds):
    run("snapshot", "create", root, f"round-{number}")
    rewrite(f"{root}/large")
    run("sync", root)
    log = os.open(f"{root}/log", os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_WRONLY, 0o644)
    appends(log, lambda n: n < 50)
    alone += appends(log, lambda n: n < 5000)
    target = in_use() - blocks
    start = time.perf_counter()
    command = subprocess.Popen([holdfast, "snapshot", "delete", root, f"round-{number}"], stdout=subprocess.DEVNULL)
    # The appends take a block each meanwhile.
    beside += appends(log, lambda n: in_use() - n > target)
    lasted += time.perf_counter() - start
    freed += blocks
    if command.wait(): raise SystemExit("the deletion was refused")
    while left(): time.sleep(0.01)
    os.close(log)

at = lambda took, share: f"{sorted(took)[min(int(len(took) * share), len(took) - 1)] * 1e3:.3f} ms"
print(f"{'append + fsync':20} {'number':>8} {'p50':>11} {'p90':>11} {'p99':>11} {'p99.9':>11} {'mean':>11}")
for name, took in (("alone", alone), ("beside a deletion", beside)):
    print(f"{name:20} {len(took):8} " + " ".join(f"{at(took, share):>11}" for share in (0.5, 0.9, 0.99, 0.999)) + f" {sum(took) / len(took) * 1e3:8.3f} ms")
print(f"{freed} blocks, each an extent, were freed in {lasted:.2f} s beside the appends: {lasted / freed * 1e6:.2f} us each")
