#!/usr/bin/env python3
"""The measuring part of mounts.sh: HOLDFAST IMAGE WORK MOUNTS. `main` is mounted already."""

import json
import os
import statistics
import subprocess
import sys
import threading
import time

holdfast, image, work, mounts = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
# After so long an idle mount has given back what it can.
IDLE = 25


def run(*words):
    return subprocess.run([holdfast, *words], check=True, capture_output=True, text=True).stdout


def daemon():
    volumes = json.loads(run("list", "--json"))["volumes"]
    return next(it for it in volumes if it["volume"] == os.path.realpath(image))


def settled():
    """Kilobytes of memory and threads of the daemon at rest, and its processor time over a second."""
    time.sleep(IDLE)
    pid = daemon()["pid"]
    status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))

    def ticks():
        fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1)
    return int(status["VmRSS"].split()[0]), int(status["Threads"]), ticks() - before


def directory(n):
    path = os.path.join(work, f"m{n}")
    os.mkdir(path)
    return path


def write_durably(path, size=4096):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(fd, b"x" * size)
    os.fsync(fd)
    os.close(fd)


def quantile(times, part):
    times = sorted(times)
    return times[min(len(times) - 1, int(part * len(times)))] * 1e3


write_durably(os.path.join(work, "mnt", "first"))
base = settled()
print(f"1 mount: {base[0]} KiB, {base[1]} threads")
times = []
for n in range(1, mounts):
    path = directory(n)
    began = time.perf_counter()
    run("fork", f"{work}/mnt", f"b{n}")
    run("mount", f"{image}:b{n}", path)
    write_durably(os.path.join(path, "first"))
    times.append(time.perf_counter() - began)
    if n + 1 in (100, mounts):
        memory, threads, ticks = settled()
        each = (memory - base[0]) / n
        print(
            f"{n + 1} mounts: {memory} KiB, {each:.0f} KiB for each idle mount, {threads} threads, "
            f"{ticks * 10} ms of processor time in a second of rest"
        )
for name, part in (("first 100", times[:99]), ("last 100", times[-100:])):
    p50, p99 = statistics.median(part) * 1e3, quantile(part, 0.99)
    print(f"fork, mount and first file written, {name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def fsyncs(path, seconds):
    """Times of appends of 4 KiB with an fsync each."""
    took, until = [], time.perf_counter() + seconds
    fd = os.open(os.path.join(path, "log"), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    while time.perf_counter() < until:
        os.write(fd, b"y" * 4096)
        began = time.perf_counter()
        os.fsync(fd)
        took.append(time.perf_counter() - began)
    os.close(fd)
    return took


def flood(path, stop):
    """Writes and rewrites as fast as it can, without an fsync."""
    fd = os.open(os.path.join(path, "flood"), os.O_CREAT | os.O_WRONLY, 0o644)
    block, at = b"z" * (1 << 20), 0
    while not stop.is_set():
        os.pwrite(fd, block, at % (512 << 20))
        at += len(block)
    os.close(fd)


calm, loud = os.path.join(work, "mnt"), os.path.join(work, "m1")
alone = fsyncs(calm, 5)
stop = threading.Event()
flooding = threading.Thread(target=flood, args=(loud, stop))
flooding.start()
time.sleep(1)
beside = fsyncs(calm, 10)
stop.set()
flooding.join()
for name, took in (("alone", alone), ("beside a flood in another mount", beside)):
    p50, p99 = quantile(took, 0.5), quantile(took, 0.99)
    print(f"append 4 KiB and fsync, {name}: {len(took)}, p50 {p50:.2f} ms, p99 {p99:.2f} ms, most {max(took) * 1e3:.0f} ms")
