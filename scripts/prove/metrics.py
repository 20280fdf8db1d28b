"""Starts a Prometheus over what `holdfast metrics --listen` serves, works on the mounts, and asks every query of the dashboard."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

HOLDFAST, WORK, ADDRESS, MOUNTS, DASHBOARD = sys.argv[1:]
MOUNTS = int(MOUNTS)
OTHER = f"{WORK}/other"
# Other mounts of this machine are scraped too.
OWN = f'holdfast_up{{directory=~"{WORK}/.*"}}'


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def work(seconds):
    """Small files and fsyncs."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        # In few of them, so that each is written to between two scrapes: a rate needs two.
        place = f"{WORK}/mounts/{count % min(MOUNTS, 5) + 1}"
        with open(f"{place}/file-{count}", "w") as file:
            file.write("x" * 5000)
            file.flush()
            os.fsync(file.fileno())
        os.stat(f"{place}/file-{count}")
        count += 1
    return count


def scrapes():
    begin = time.monotonic()
    text = get(f"http://{ADDRESS}/metrics").decode()
    took = time.monotonic() - begin
    series = sum(1 for line in text.splitlines() if not line.startswith("#"))
    print(f"  a scrape of {MOUNTS + 2} mounts: {took * 1000:.0f} ms, {series} series, {len(text) >> 10} KiB")


class Prometheus:
    def __init__(self):
        self.port = free_port()
        config = f"{WORK}/prometheus.yml"
        with open(config, "w") as file:
            file.write(
                "global: {scrape_interval: 4s, scrape_timeout: 4s}\n"
                "scrape_configs:\n"
                f"  - {{job_name: holdfast, static_configs: [{{targets: ['{ADDRESS}']}}]}}\n"
            )
        subprocess.run(["promtool", "check", "config", config], check=True, stdout=subprocess.DEVNULL)
        self.log = open(f"{WORK}/prometheus.log", "w")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={WORK}/prometheus",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self.log,
            stderr=self.log,
        )

    def ask(self, query):
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        return json.loads(get(url))["data"]["result"]

    def wait_for(self, query, what):
        for _ in range(150):
            try:
                if self.ask(query):
                    return
            except OSError:
                pass
            time.sleep(0.2)
        sys.exit(f"FAILED: {what}: {query}; see {WORK}/prometheus.log")

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def expressions():
    with open(DASHBOARD) as file:
        panels = json.load(file)["panels"]
    for panel in panels:
        for target in panel["targets"]:
            text = target["expr"].replace("$volume", ".*").replace("$__rate_interval", "1m")
            yield panel["title"], text


prometheus = Prometheus()
try:
    prometheus.wait_for(f"sum({OWN}) >= {MOUNTS + 2}", "not all mounts are scraped")
    written = work(20)
    scrapes()
    prometheus.wait_for("sum(rate(holdfast_fsyncs_total[1m])) > 0", "no rates")
    asked = 0
    for title, query in expressions():
        result = prometheus.ask(query)
        numbers = [float(series["value"][1]) for series in result]
        if not numbers or any(number != number for number in numbers if "fsync" in title):
            sys.exit(f"FAILED: the panel {title!r} is empty: {query}: {result}")
        asked += 1
    quantile = prometheus.ask(
        'histogram_quantile(0.99, sum by (le) (rate(holdfast_operation_duration_seconds_bucket{operation="fsync"}[1m])))'
    )
    print(f"  {asked} queries of the dashboard have an answer; {written} files with an fsync each, p99 {float(quantile[0]['value'][1]) * 1e6:.0f} us")
    took = prometheus.ask("max_over_time(scrape_duration_seconds[1m])")[0]["value"][1]
    print(f"  the longest scrape beside that: {float(took) * 1000:.0f} ms")
    stats = json.loads(subprocess.check_output([HOLDFAST, "stats", "--json", OTHER]))
    os.kill(stats["pid"], signal.SIGKILL)
    prometheus.wait_for(f'holdfast_up{{directory="{OTHER}"}} == 0', "the dead mount is not down")
    prometheus.wait_for(f"sum({OWN}) == {MOUNTS + 1}", "others are down with it")
    print("  a daemon that is killed: its mount is down, all others are up")
finally:
    prometheus.end()
