#!/usr/bin/env python3
"""Draws a plot of a kept report as a picture, as the documents show it; wants matplotlib.

usage: scripts/plot.py [REPORT.json [TITLE [FILE.svg]]]
default: the newest scaling report in bench-results, "Time of an operation against files in the directory", docs/scaling.svg
docs/elastic.svg: REPORT bench-results/elastic-*.json, TITLE "What an image takes of its host through a life"
"""

import json
import math
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter, FuncFormatter, MultipleLocator

def binary(value, _):
    step = next((step for step in (3, 2, 1) if value >= 1 << 10 * step), 0)
    return f"{value / (1 << 10 * step):g} {('B', 'KiB', 'MiB', 'GiB')[step]}"


# How values of a unit of a report are written on an axis.
TICKS = {
    "nanoseconds": FuncFormatter(lambda value, _: EngFormatter("s")(value / 1e9)),
    "bytes": FuncFormatter(binary),
    "count": EngFormatter(),
}


def draw(plot, source, out):
    # Text stays text, and the same report gives the same bytes.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": source, "font.size": 10})
    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    for series in plot["series"]:
        xs, ys = zip(*series["points"])
        name, power = series["name"], series.get("exponent")
        label = name if power is None else f"{name} (power {power:.2f})"
        axes.plot(xs, ys, "--" if series.get("dashed") else "-", marker="o", markersize=3, label=label)
    for name, axis in (("x", plot["x"]), ("y", plot["y"])):
        getattr(axes, f"set_{name}label")(axis["label"])
        getattr(axes, f"set_{name}scale")("log" if axis["log"] else "linear")
        of_axis = getattr(axes, f"{name}axis")
        of_axis.set_major_formatter(TICKS.get(axis["unit"], EngFormatter()))
        if axis["unit"] == "bytes" and not axis["log"]:
            of_axis.set_major_locator(MultipleLocator(2 ** (math.ceil(math.log2(of_axis.get_data_interval()[1])) - 3)))
    if not plot["y"]["log"]:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(out, metadata={"Title": plot["title"], "Source": source, "Date": None})


def main():
    repository = pathlib.Path(__file__).resolve().parent.parent
    given = dict(enumerate(sys.argv))
    report = pathlib.Path(given.get(1) or sorted(repository.glob("bench-results/*/scaling.json"))[-1])
    title = given.get(2, "Time of an operation against files in the directory")
    out = pathlib.Path(given.get(3, repository / "docs/scaling.svg"))
    sections = json.loads(report.read_text())["sections"]
    plots = [plot for section in sections for plot in section["plots"] if plot["title"] == title]
    if not plots:
        raise SystemExit(f"{report} has no plot called {title!r}")
    draw(plots[0], str(report.resolve().relative_to(repository)), out)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
