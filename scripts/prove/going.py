"""How long append of 4 KiB + fsync takes while a branch with many snapshots is deleted or promoted. Prints a line of a table; asserts
nothing about time.
usage: going.py head | make DIR COUNT | beside DIR HOLDFAST delete|promote COUNT CACHE"""
import json, os, subprocess, sys, time

BLOCK = bytes(4096)
FORM = "{:8} {:>9} {:>6} {:>10} {:>10} {:>8} {:>9} {:>9} {:>9}"
# Behind so many seconds the line says that it had not ended.
PATIENCE = 600

def make(root, count):
    for number in range(count):
        with open(f"{root}/file{number % 100}", "w") as file: file.write(str(number))
        os.mkdir(f"{root}/.snapshots/{number}")

def left(holdfast, root):
    out = subprocess.run([holdfast, "stats", "--json", root], capture_output=True, check=True).stdout
    return json.loads(out)["all"]["counters"]["deletions_left"]

def beside(root, holdfast, what, count, cache):
    how = ["--force", "--discard"] if what == "promote" else []
    log = os.open(f"{root}/log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    took, start, command, ended, asked = [], time.perf_counter(), None, None, 0.0
    while True:
        before = time.perf_counter()
        os.write(log, BLOCK)
        os.fsync(log)
        now = time.perf_counter()
        took.append(now - before)
        if command is None and len(took) == 50:
            took, start = [], now
            command = subprocess.Popen([holdfast, "branch", what, *how, root, "work"], stdout=subprocess.DEVNULL)
        if command is not None and ended is None and command.poll() is not None:
            if command.returncode: raise SystemExit(f"{what} was refused")
            ended = now - start
        if ended is not None and now - asked > 1:
            asked = now
            is_over = left(holdfast, root) == 0
            if is_over or now - start > PATIENCE: break
    os.close(log)
    took.sort()
    at = lambda share: f"{took[min(int(len(took) * share), len(took) - 1)] * 1e3:.1f} ms"
    lasted = f"{now - start:.1f} s" if is_over else f"> {PATIENCE} s"
    print(FORM.format(what, count, cache, f"{ended:.2f} s", lasted, len(took), at(0.5), at(0.99), at(1)), flush=True)

if sys.argv[1] == "head": print(FORM.format("", "snapshots", "cache", "command", "all gone", "fsyncs", "p50", "p99", "longest"), flush=True)
elif sys.argv[1] == "make": make(sys.argv[2], int(sys.argv[3]))
else: beside(*sys.argv[2:7])
