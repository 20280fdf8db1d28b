"""Small durable operations per second, with what the block device was asked for each; and the table of all runs.
usage: peers.py measure WORKLOAD PLACE SECONDS DEVICE    PLACE: a directory, or for `bare` the device itself; one JSON object
       peers.py table FILE                               of lines {"round", "system", "workload", ...} as peers.sh collects"""
import collections, json, mmap, multiprocessing, os, statistics, sys, time

DATA = os.urandom(4096)
# Bytes of the device that one process of `bare` writes, again and again.
REGION = 64 << 20
# What is done, by how many at once, and what the floor of it is.
WORKLOADS = {
    "create": ("create 4 KiB + fsync, 1 process", 1, "bare"),
    "append": ("append 4 KiB + fsync, 1 process", 1, "bare"),
    "create16": ("create 4 KiB + fsync, 16 processes", 16, "bare16"),
    "bare": ("write 4 KiB + fdatasync, 1 process", 1, "bare"),
    "bare16": ("write 4 KiB + fdatasync, 16 processes", 16, "bare16"),
}
PARTS = ["open", "write", "fsync", "close"]

def create(place, number):
    """One operation: the moments between its calls."""
    count, now = 0, time.perf_counter
    os.mkdir(f"{place}/{number}")
    while True:
        moments = [now()]
        fd = os.open(f"{place}/{number}/f{count}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        moments.append(now())
        os.write(fd, DATA)
        moments.append(now())
        os.fsync(fd)
        moments.append(now())
        os.close(fd)
        moments.append(now())
        count += 1
        yield moments

def append(place, number):
    now = time.perf_counter
    fd = os.open(f"{place}/log{number}", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    while True:
        start = now()
        os.write(fd, DATA)
        written = now()
        os.fsync(fd)
        end = now()
        yield [start, start, written, end, end]

def bare(place, number):
    now = time.perf_counter
    # Direct I/O wants aligned memory, which a mapping is.
    page = mmap.mmap(-1, 4096)
    page[:] = DATA
    fd = os.open(place, os.O_WRONLY | os.O_DIRECT)
    at = 0
    while True:
        start = now()
        os.pwrite(fd, page, number * REGION + at)
        written = now()
        os.fdatasync(fd)
        end = now()
        at = (at + 4096) % REGION
        yield [start, start, written, end, end]

def process(kind, place, number, seconds, begin, results):
    try: results.put(repeat(kind(place, number), seconds, begin))
    except BaseException:
        # Nobody waits for one who does not come.
        begin.abort()
        results.put(None)
        raise

def repeat(work, seconds, begin):
    # The first ones find nothing warm.
    for _ in range(5): next(work)
    begin.wait()
    took, parts, end = [], [0.0] * 4, time.perf_counter() + seconds
    for moments in work:
        took.append(moments[-1] - moments[0])
        for part in range(4): parts[part] += moments[part + 1] - moments[part]
        if moments[-1] >= end: return took, parts

def asked(device):
    """KiB written, write requests and flushes of a block device so far."""
    with open(f"/sys/block/{os.path.basename(device)}/stat") as file: fields = list(map(int, file.read().split()))
    return fields[6] / 2, fields[4], fields[15]

def measure(workload, place, seconds, device):
    _, count, floor = WORKLOADS[workload]
    kind = bare if floor == workload else append if workload == "append" else create
    begin, results = multiprocessing.Barrier(count + 1), multiprocessing.Queue()
    processes = [multiprocessing.Process(target=process, args=(kind, place, n, seconds, begin, results)) for n in range(count)]
    for one in processes: one.start()
    begin.wait(timeout=60)
    before, start = asked(device), time.perf_counter()
    answers = [results.get(timeout=seconds + 60) for _ in processes]
    # The last ones are a little late for the device's counters; so is the time.
    after, elapsed = asked(device), time.perf_counter() - start
    for one in processes: one.join()
    if None in answers: raise SystemExit("a process failed")
    took = sorted(t for times, _ in answers for t in times)
    ops = len(took)
    print(json.dumps({"ops": ops, "rate": ops / elapsed, "p50": took[ops // 2], "p99": took[ops * 99 // 100],
                      "asked": [(b - a) / ops for a, b in zip(before, after)], "begun": before[0],
                      "parts": [sum(parts[n] for _, parts in answers) / ops for n in range(4)]}))

def table(path):
    runs = collections.OrderedDict()
    for line in open(path):
        run = json.loads(line)
        runs.setdefault(run["workload"], collections.OrderedDict()).setdefault(run["system"], []).append(run)
    middle = lambda some, value: statistics.median(value(run) for run in some)
    rate = lambda some: middle(some, lambda run: run["rate"])
    us = lambda seconds: f"{seconds * 1e6:,.0f}"
    for workload, systems in runs.items():
        name, _, floor = WORKLOADS[workload]
        if floor == workload: continue
        bare_runs = runs[floor]["bare"]
        peers = {system: rate(some) for system, some in systems.items() if system != "holdfast"}
        best = max(peers.values(), default=None)
        print(f"\n{name}: medians of rounds. KiB, write requests (an empty flush is one) and flushes of the device for each operation; in brackets KiB with what came until the unmount")
        print(f"{'':18} {'per second':>10} {'lowest':>9} {'highest':>9} {'to floor':>8} {'to best peer':>12} {'p50 us':>8} {'p99 us':>8} {'KiB':>16} {'writes':>7} {'flushes':>7}   {' '.join(f'{part + chr(32) + chr(117) + chr(115):>9}' for part in PARTS)}")
        for system, some in [("bare device", bare_runs), *systems.items()]:
            rates = [run["rate"] for run in some]
            kib, writes, flushes = (middle(some, lambda run: run["asked"][n]) for n in range(3))
            later = middle(some, lambda run: run.get("kib_at_end", 0) / run["ops"])
            to_best = f"{rate(some) / best:.2f}" if best and system != "bare device" else ""
            parts = [middle(some, lambda run: run["parts"][n]) for n in range(4)]
            print(f"{system:18} {rate(some):10,.0f} {min(rates):9,.0f} {max(rates):9,.0f} {rate(some) / rate(bare_runs):8.2f} {to_best:>12} {us(middle(some, lambda run: run['p50'])):>8} {us(middle(some, lambda run: run['p99'])):>8}"
                  f" {f'{kib:.1f} ({later:.1f})' if later else f'{kib:.1f}':>16} {writes:7.2f} {flushes:7.2f}   {' '.join(f'{us(part):>9}' for part in parts)}")
        for run in systems.get("holdfast", [])[-1:]:
            c = run["counters"]
            each = lambda name: us(c[name] / 1e9 / max(c["fsyncs"], 1))
            batch = lambda name: us(c[name] / 1e9 / max(c["log_batches"], 1))
            print(f"holdfast, last round: an fsync spends {each('fsync_data_ns')} us on its file's data and {each('fsync_wait_ns')} us waiting for others; a batch {batch('log_format_ns')} us formatting,"
                  f" {batch('log_write_ns')} us writing, {batch('log_flush_ns')} us flushing; {c['fsyncs'] / max(c['log_batches'], 1):.2f} fsyncs and {c['log_bytes_written'] / 1024 / max(c['log_batches'], 1):.1f} KiB a batch; {c['commits']} commits, {c['log_full'] + c['log_too_large']} escapes."
                  " The rest of the fsync's time is the way through the kernel to the daemon and back.")

if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "measure": measure(rest[0], rest[1], float(rest[2]), rest[3])
    elif what == "table": table(rest[0])
    else: raise SystemExit(__doc__)
