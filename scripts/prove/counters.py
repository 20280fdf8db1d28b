"""Counters of a mounted volume, for the proofs that measure: given two outputs of `holdfast stats --json`, prints
what grew between them, and the gauges of the second. usage: counters.py BEFORE AFTER"""
import json, sys

GAUGES = {"journal_bytes_used", "frozen_p50_ns", "frozen_p99_ns", "frozen_max_ns", "recovery_estimate_ns",
          "recovery_budget_ns", "recovery_ns", "recovered_commits", "recovered_nodes", "recovered_bytes",
          "log_bytes_used", "recovered_batches", "recovered_log_bytes"}

def load(path):
    """Programs from before the summary have no "all"."""
    with open(path) as file: said = json.load(file)
    return said.get("all", said)["counters"]

def between(before, after):
    """What was counted between; gauges as they are at the end."""
    return {name: value if name in GAUGES else value - before.get(name, 0) for name, value in after.items()}

def ms(nanos): return f"{nanos / 1e6:.3f} ms"

def show(c):
    commits, checkpoints = c.get("commits", 0), c.get("checkpoints", 0)
    freezes = max(commits + c.get('journal_full', 0), 1)
    print(f"  commits {commits}, checkpoints {checkpoints}, commits that found the journal full {c.get('journal_full', 0)}")
    print(f"  frozen: p50 {ms(c['frozen_p50_ns'])}, p99 {ms(c['frozen_p99_ns'])}, longest {ms(c['frozen_max_ns'])},"
          f" mean {ms(c['frozen_ns'] / freezes)}, of that group records {c['frozen_groups_ns'] / freezes / 1e3:.1f} us")
    print(f"  throttled {c['throttled']} times, {ms(c['throttled_ns'])} in all")
    print(f"  journal: {c['journal_bytes_written'] / 2**20:.1f} MiB written, {c['commit_nodes']} nodes, {c['commit_ranges']} ranges,"
          f" {c['range_merges_forced']} merges forced, {c['range_slack_bytes']} bytes of slack")

if __name__ == "__main__":
    show(between(load(sys.argv[1]), load(sys.argv[2])))
