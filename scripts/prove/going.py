"""How long append of 4 KiB + fsync takes while a branch with many snapshots is deleted or promoted. Prints a line of a table; asserts
nothing about time.
usage: going.py head | make DIR COUNT | beside DIR HOLDFAST alone|delete|promote COUNT CACHE"""
import errno, json, os, subprocess, sys, time

BLOCK = bytes(4096)
FORM = "{:8} {:>9} {:>6} {:>10} {:>10} {:>8} {:>9} {:>9} {:>9} {:>9} {:>6}"
# Behind so many seconds the line says that it had not ended.
PATIENCE = 600
# So many seconds at least. With nothing beside it that is what this machine does by itself.
LEAST = 10

def make(root, count):
    for number in range(count):
        with open(f"{root}/file{number % 100}", "w") as file: file.write(str(number))
        os.mkdir(f"{root}/.snapshots/{number}")

def counter(holdfast, root, name):
    out = subprocess.run([holdfast, "stats", "--json", root], capture_output=True, check=True).stdout
    return json.loads(out)["all"]["counters"][name]

class Log:
    """A file that is appended to. A promotion takes the branch from under it: then it is begun anew."""
    def __init__(self, path): self.path, self.open = path, None
    def append(self):
        while True:
            try:
                if self.open is None: self.open = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
                os.write(self.open, BLOCK)
                return os.fsync(self.open)
            except OSError as error:
                if error.errno != errno.ESTALE: raise
                self.close()
    def close(self): self.open = os.close(self.open)

def beside(root, holdfast, what, count, cache):
    how = ["--force", "--discard"] if what == "promote" else []
    begin = ["true"] if what == "alone" else [holdfast, "branch", what, *how, root, "work"]
    log, took, start, command, ended, asked = Log(f"{root}/log"), [], time.perf_counter(), None, None, 0.0
    is_over = False
    while not is_over:
        before = time.perf_counter()
        log.append()
        now = time.perf_counter()
        took.append(now - before)
        if command is None and len(took) == 50:
            took, start = [], now
            command = subprocess.Popen(begin, stdout=subprocess.DEVNULL)
        if command is not None and ended is None and command.poll() is not None:
            if command.returncode: raise SystemExit(f"{what} was refused")
            ended = now - start
        if now - start > PATIENCE: break
        if ended is not None and now - asked > 1:
            asked = now
            # What the branch has grown out of is left as long as that is there.
            is_over = now - start > LEAST and (what == "alone" or counter(holdfast, root, "deletions_left") == 0)
    log.close()
    took.sort()
    at = lambda share: f"{took[min(int(len(took) * share), len(took) - 1)] * 1e3:.1f} ms"
    lasted = f"{now - start:.1f} s" if is_over else f"> {PATIENCE} s"
    command = "never" if ended is None else f"{ended:.2f} s"
    freeze = f"{counter(holdfast, root, 'frozen_max_ns') / 1e6:.1f} ms"
    print(FORM.format(what, count, cache, command, lasted, len(took), at(0.5), at(0.99), at(1), freeze, f"{os.getloadavg()[0]:.1f}"), flush=True)

if sys.argv[1] == "head": print(FORM.format("", "snapshots", "cache", "command", "all gone", "fsyncs", "p50", "p99", "longest", "freeze", "load"), flush=True)
elif sys.argv[1] == "make": make(sys.argv[2], int(sys.argv[3]))
else: beside(*sys.argv[2:7])
