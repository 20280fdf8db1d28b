"""What an image takes of its host through a life, and what an fsync takes beside the removal of much data, with discards and
without. Prints tables and writes both as a report of holdfast-dev. Asserts nothing about time.
usage: elastic.py HOLDFAST WORK TREE MIB_REMOVED ROUNDS
TREE is a number of MiB, or a tar archive that is unpacked; with 0 rounds only the life is measured."""
import datetime, json, os, platform, shutil, statistics, subprocess, sys, tarfile, threading, time

holdfast, work, tree_given = sys.argv[1:4]
removed_mib, rounds = (int(number) for number in sys.argv[4:6])
archive = None if tree_given.isdigit() else tree_given
image, root = f"{work}/volume.img", f"{work}/mnt"
MIB = 1 << 20
data = os.urandom(MIB)
version = subprocess.run([holdfast, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
began = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

def run(*arguments): return subprocess.run([holdfast, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout
def held(): return os.stat(image).st_blocks * 512
def counters(): return json.loads(run("stats", "--json", root))["all"]["counters"]

def make(mib, options):
    if os.path.exists(image): os.remove(image)
    run("mkfs", "-q", "--size", f"{mib}M", image)
    run("mount", *(["-o", options] if options else []), image, root)

def rests():
    """Everything is durable, and nothing that became free is on its way back: the daemon says so itself."""
    run("sync", root)
    seen = None
    # Old nodes are free behind the next checkpoint; a trim makes one, and leaves what is shorter than any range.
    run("trim", "--minimum", "1024P", root)
    for _ in range(600):
        now = counters()
        state = (now["discard_waiting_bytes"], now["discard_ranges"], now["deletions_left"])
        if state[0] == 0 and state[2] == 0 and state == seen: return
        seen = state
        time.sleep(0.1)
    raise SystemExit(f"free space is still on its way back after a minute: {seen}")

def write(name, mib, at=0):
    with open(f"{root}/{name}", "r+b" if os.path.exists(f"{root}/{name}") else "wb") as file:
        file.seek(at * MIB)
        for _ in range(mib): file.write(data)

def unpack(into):
    os.mkdir(into)
    subprocess.run(["tar", "-xf", archive, "--strip-components=1", "-C", into], check=True)

def files_of(top): return sorted(f"{at}/{name}" for at, _, names in os.walk(top) for name in names)

def plain(path): return os.path.isfile(path) and not os.path.islink(path)

if archive:
    with tarfile.open(archive) as members: sizes = [member.size for member in members if member.isfile()]
    tree_mib, tree_words = sum(sizes) // MIB + 1, f"{os.path.basename(archive)}, {len(sizes):,} files of {sum(sizes) // MIB} MiB"
else:
    tree_mib = int(tree_given)
    tree_words = f"{tree_mib} MiB in 16 files"

def tree():
    if archive: return unpack(f"{root}/tree")
    for number in range(16):
        os.makedirs(f"{root}/tree/{number}", exist_ok=True)
        write(f"tree/{number}/file", tree_mib // 16)

def change():
    """Half of the data is written again: of an archive every second file, or of each file the first half."""
    if not archive:
        for number in range(16): write(f"tree/{number}/file", tree_mib // 32)
        return
    for path in filter(plain, files_of(f"{root}/tree")[::2]):
        with open(path, "r+b") as file:
            content = file.read()
            file.seek(0)
            file.write(content[::-1])

# 1. A life.
size = 4 * tree_mib + 512

class Watch(threading.Thread):
    """Looks ten times in a second at what the image takes."""
    def __init__(self):
        super().__init__(daemon=True)
        self.seen, self.over, self.began = [], threading.Event(), time.perf_counter()
    def look(self):
        self.seen.append(((time.perf_counter() - self.began) * 1e9, held()))
        return self.seen[-1]
    def run(self):
        while not self.over.wait(0.1): self.look()

make(size, "")
life, ends = [("made", held())], []
print(f"what an image of {size} MiB takes of its host; the tree is {tree_words}")
print(f"  {'made':28} {held() / MIB:9.1f} MiB")
watch = Watch()
watch.start()

def stage(name, words, work):
    work()
    rests()
    ends.append((name, watch.look()))
    life.append((words, held()))
    print(f"  {words:28} {held() / MIB:9.1f} MiB")

def first():
    write("first", 1)
    os.remove(f"{root}/first")

def again():
    tree()
    run("snapshot", "create", root, "before")

def remove(): shutil.rmtree(f"{root}/tree")

stage("empty", "empty, after a first change", first)
stage("a tree unpacked", f"a tree of {tree_mib} MiB", tree)
stage("removed", "the tree removed", remove)
stage("again, a snapshot", "the tree again, a snapshot", again)
stage("half changed", "half of it changed", change)
stage("snapshot deleted", "the snapshot deleted", lambda: run("snapshot", "delete", root, "before"))
stage("all deleted", "the tree removed again", remove)
watch.over.set()
watch.join()
run("umount", root)
run("fsck", "-n", image)
empty, emptied = life[1][1], life[-1][1]
bound = empty + max(size * MIB // 50, 8 * MIB)
verdict = "ok" if emptied <= bound else "TOO MUCH"
print(f"  emptied {emptied / MIB:.1f} MiB, at most {bound / MIB:.1f} MiB: {verdict}")

def curves():
    """One for each stage, from where the one before ended, of what differs by enough to be seen; and what an emptied image may take."""
    seen, whole, most = sorted(watch.seen), ends[-1][1][0], max(taken for _, taken in watch.seen)
    drawn, last = [], (0.0, life[0][1])
    for name, end in ends:
        points = [last]
        for at, taken in (point for point in seen if last[0] < point[0] < end[0]):
            if at - points[-1][0] > whole / 40 or abs(taken - points[-1][1]) > most / 16: points.append((at, taken))
        points.append(end)
        drawn.append({"name": name, "points": points, "exponent": None, "dashed": False})
        last = end
    drawn.append({"name": "the most that is allowed when emptied", "points": [(0.0, bound), (whole, bound)], "exponent": None, "dashed": True})
    return drawn

# 2. An fsync beside a removal.
def appends(file, goes_on):
    took = []
    while goes_on():
        start = time.perf_counter()
        os.write(file, data[:4096])
        os.fsync(file)
        took.append(time.perf_counter() - start)
    return took

def beside(options):
    """Fsyncs while files are removed and for twice the delay of the discards behind that, or until they are over."""
    make(removed_mib + removed_mib // 4 + 512, options)
    for number in range(8): write(f"large{number}", removed_mib // 8)
    rests()
    log = os.open(f"{root}/log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    until = time.perf_counter() + 2
    alone = appends(log, lambda: time.perf_counter() < until)
    before, full = counters()["discarded_bytes"], held()
    for number in range(8): os.remove(f"{root}/large{number}")
    until = time.perf_counter() + 15
    took = appends(log, lambda: time.perf_counter() < until)
    back = counters()["discarded_bytes"] - before
    os.close(log)
    print(f"    {options}: {back / MIB:.0f} MiB went back, the image took {full / MIB:.0f} and takes {held() / MIB:.0f} MiB")
    run("umount", root)
    return alone, took

def at(times, share): return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1e9

rows, ratio = {}, 0.0
titles = ["p50 alone", "p99 alone", "p50 beside", "p99 beside", "longest beside"]
if rounds:
    print(f"append 4 KiB + fsync beside the removal of {removed_mib} MiB")
    for number in range(rounds):
        for options in ["discard", "nodiscard"] if number % 2 == 0 else ["nodiscard", "discard"]:
            alone, took = beside(options)
            rows.setdefault(options, []).append((at(alone, 0.5), at(alone, 0.99), at(took, 0.5), at(took, 0.99), max(took) * 1e9))
    print(f"  {'':12}" + "".join(f"{title:>16}" for title in titles))
    for options, all_rounds in rows.items():
        print(f"  {options:12}" + "".join(f"{statistics.median(column) / 1e3:13.0f} us" for column in zip(*all_rounds)))
    p99 = {options: statistics.median(column[3] for column in all_rounds) for options, all_rounds in rows.items()}
    ratio = p99["discard"] / p99["nodiscard"]
    print(f"  p99 beside a removal, with discards to without: {ratio:.2f}")

def number(values):
    return {"kind": "number", "median": statistics.median(values), "low": min(values), "high": max(values), "runs": len(values)}

report = {
    "schema": 1, "version": version, "commit": os.environ.get("COMMIT", "unknown"),
    "machine": {"cpu": platform.processor() or "unknown", "cores": os.cpu_count(),
                "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
                "kernel": f"{platform.system()} {platform.release()}", "system": platform.platform(), "load": os.getloadavg()[0]},
    "began": began, "command": ["elastic.sh", os.path.basename(tree_given), *sys.argv[4:]],
    "sections": [
        {"name": "elastic-life", "title": "What an image takes of its host",
         "about": f"A volume of {size} MiB, a tree: {tree_words}. After each stage everything is durable and nothing is on its way back.",
         "table": {"label": "stage", "columns": [{"key": "held", "title": "of the host", "unit": "bytes"}],
                   "rows": [{"label": name, "cells": [number([float(value)])]} for name, value in life]},
         "plots": [{"title": "What an image takes of its host through a life",
                    "x": {"label": "since it was made", "unit": "nanoseconds", "log": False}, "y": {"label": "of the host", "unit": "bytes", "log": False},
                    "series": curves()}],
         "notes": [f"Emptied it takes {(emptied - empty) / MIB:.1f} MiB more than empty, of {(bound - empty) / MIB:.1f} MiB that are allowed."]},
    ],
}
if rounds:
    report["sections"].append(
        {"name": "elastic-fsync", "title": "An fsync beside the removal of much data",
         "about": f"Append 4 KiB + fsync, alone and for 15 s from the removal of {removed_mib} MiB on; {rounds} rounds.",
         "table": {"label": "option", "columns": [{"key": title.replace(" ", "-"), "title": title, "unit": "nanoseconds"} for title in titles],
                   "rows": [{"label": options, "cells": [number(column) for column in zip(*all_rounds)]} for options, all_rounds in rows.items()]},
         "plots": [], "notes": [f"p99 beside a removal, with discards to without: {ratio:.2f}."]})
with open(f"{work}/elastic.json", "w") as file: json.dump(report, file, indent=1)
if verdict != "ok": raise SystemExit("FAILED: an emptied image takes too much of its host")
