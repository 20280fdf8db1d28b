"""How long append of 4 KiB + fsync takes in a mounted directory, alone and while other processes are busy on the same
volume, in phases that take turns; and while one is busy on another volume: what the machine makes it wait. Prints tables;
asserts nothing.
usage: latency.py DIR OTHER_DIR HOLDFAST ROUNDS SECONDS LARGE_BYTES RENAMED_BYTES"""
import json, multiprocessing, os, subprocess, sys, time

LIMIT = 2.0
BOUNDS = [1.25, 1.5, 2, 3, 5, 10]
CHUNK = os.urandom(1 << 20)
root, elsewhere, holdfast = sys.argv[1:4]
rounds, seconds, large, renamed = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]), int(sys.argv[7])

def counters():
    out = subprocess.run([holdfast, "stats", "--json", root], capture_output=True, check=True).stdout
    said = json.loads(out)
    return said.get("all", said)["counters"]

def fill(path, size, stop):
    """A new file; gives its descriptor, or None if it was told to stop before it was full."""
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    at = 0
    while at < size and not stop.is_set(): at += os.write(fd, CHUNK[:size - at])
    if at >= size: return fd
    os.close(fd)

def creates(stop, done):
    """Files without fsync: what the commits and checkpoints of the background are made of."""
    number = 0
    while not stop.is_set():
        with open(f"{root}/d{number % 20}/new{number}", "wb") as file: file.write(CHUNK[:4096])
        number += 1
        done.value = number
        time.sleep(0.0002)
    for n in range(number): os.unlink(f"{root}/d{n % 20}/new{n}")

def fsyncs(stop, done, place=root):
    while (fd := fill(f"{place}/large", large, stop)) is not None:
        os.fsync(fd)
        os.close(fd)
        done.value += 1

def fsyncs_elsewhere(stop, done): fsyncs(stop, done, elsewhere)

def renames(stop, done):
    while (fd := fill(f"{root}/new", renamed, stop)) is not None:
        os.close(fd)
        os.rename(f"{root}/new", f"{root}/old")
        done.value += 1

PHASES = {"alone": (None, ""), "large files, another volume": (fsyncs_elsewhere, "files"), "commits and checkpoints": (creates, "creates"),
          "large files, fsynced": (fsyncs, "files"), "large files, renamed over old": (renames, "renames")}

def phase(other):
    """Times of the appends in seconds, and what else happened."""
    stop, done = multiprocessing.Event(), multiprocessing.Value("Q", 0)
    process = other and multiprocessing.Process(target=other, args=(stop, done))
    fd = os.open(f"{root}/log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    data, took = CHUNK[:4096], []
    try:
        if process: process.start()
        for _ in range(20): os.write(fd, data); os.fsync(fd)
        before, began, end = counters(), done.value, time.perf_counter() + seconds
        # And until the others have done something.
        while time.perf_counter() < end or (process and done.value == began and process.is_alive()):
            start = time.perf_counter()
            os.write(fd, data)
            os.fsync(fd)
            took.append(time.perf_counter() - start)
        after, did = counters(), done.value - began
    finally:
        stop.set()
        if process: process.join()
        os.close(fd)
    if process and process.exitcode: raise SystemExit(f"the other process ended with {process.exitcode}")
    for path in [f"{root}/{name}" for name in ("log", "large", "new", "old")] + [f"{elsewhere}/large"]:
        if os.path.exists(path): os.unlink(path)
    subprocess.run([holdfast, "sync", root], check=True)
    return took, did, {name: after[name] - before[name] for name in ("fsyncs", "log_full", "log_too_large", "commits", "checkpoints", "throttled")}

def ms(value): return f"{value * 1e3:.2f} ms"

for n in range(20): os.mkdir(f"{root}/d{n}")
sums = {name: [[], 0, {}] for name in PHASES}
for round in range(rounds):
    names = list(PHASES)
    for turn in range(len(names)):
        name = names[(turn + round) % len(names)]
        took, did, counted = phase(PHASES[name][0])
        total = sums[name]
        total[0] += took
        total[1] += did
        for key, value in counted.items(): total[2][key] = total[2].get(key, 0) + value
for total in sums.values(): total[0].sort()
at = lambda took, share: took[min(int(len(took) * share), len(took) - 1)]
alone = sums["alone"][0]
print(f"{'beside':30} {'fsyncs':>7} {'p50':>10} {'p90':>10} {'p99':>10} {'p99.9':>11} {'longest':>11} {'to alone':>8} {'they did':>17} {'commits':>8} {'checkpoints':>11} {'escapes':>7}")
for name, (took, did, counted) in sums.items():
    percentiles = [ms(at(took, share)) for share in (0.5, 0.9, 0.99, 0.999)]
    print(f"{name:30} {len(took):7} {percentiles[0]:>10} {percentiles[1]:>10} {percentiles[2]:>10} {percentiles[3]:>11} {ms(took[-1]):>11}"
          f" {at(took, 0.99) / at(alone, 0.99):8.2f} {f'{did} {PHASES[name][1]}':>17} {counted['commits']:8} {counted['checkpoints']:11} {counted['log_full'] + counted['log_too_large']:7}")
print("\nshare of fsyncs by time, in medians of those alone")
print(f"{'beside':30}" + "".join(f"{f'to {bound:g}':>9}" for bound in BOUNDS) + f"{'more':>9}")
for name, (took, *_) in sums.items():
    ends = [sum(t <= bound * at(alone, 0.5) for t in took) for bound in BOUNDS] + [len(took)]
    print(f"{name:30}" + "".join(f"{100 * (end - start) / len(took):8.1f}%" for start, end in zip([0, *ends], ends)))
above = [f"{name}: {at(took, 0.99) / at(alone, 0.99):.2f}" for name, (took, *_) in sums.items() if at(took, 0.99) > LIMIT * at(alone, 0.99)]
print(f"\np99 above {LIMIT:g} times that of appends alone: {'; '.join(above)}" if above else f"\np99 of every phase is within {LIMIT:g} times that of appends alone")
