#!/usr/bin/env python3
"""Makes docs/scaling.svg and docs/elastic.svg: one plot of a kept report as a picture of its own, as the documents show it.

usage: scripts/plot.py [HOLDFAST-DEV] [REPORT.json] [TITLE] [FILE.svg]
default: target/release/holdfast-dev, the newest scaling report in bench-results, "Time of an operation against
files in the directory", docs/scaling.svg

The plot is the one that `holdfast-dev bench report` draws; this script adds its legend and its colours.
"""

import html
import pathlib
import re
import subprocess
import sys
import tempfile

HEIGHT = 380
WIDTH = 640
# Between two rows of the legend.
ROW = 20

FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">
<!-- Made by scripts/plot.py from {source}. -->
<style>
{style}
svg {{ font: 13px system-ui, "DejaVu Sans", sans-serif; }}
.ground {{ fill: var(--ground); }}
.legend text {{ fill: var(--ink); }}
.legend line {{ stroke: var(--c); stroke-width: 2; }}
</style>
<rect class="ground" width="{width}" height="{height}" rx="6"/>
{plot}
{legend}
</svg>
"""


def style(page: str) -> str:
    """The colours and the rules of the page that are about plots."""
    sheet = re.search(r"<style>(.*?)</style>", page, re.S).group(1)
    scheme = r":root \{.*?\n\}\n@media \(prefers-color-scheme: dark\) \{.*?\n\}\n"
    rules = r"^(?:\.grid|\.tick|\.label|\.s0|\.s4|polyline|\.dashed|circle).*$"
    return re.search(scheme, sheet, re.S).group(0) + "\n".join(re.findall(rules, sheet, re.M))


def main() -> None:
    repository = pathlib.Path(__file__).resolve().parent.parent
    given = dict(enumerate(sys.argv))
    holdfast = given.get(1, repository / "target/release/holdfast-dev")
    report = given.get(2) or sorted(repository.glob("bench-results/*/scaling.json"))[-1]
    title = given.get(3, "Time of an operation against files in the directory")
    out = pathlib.Path(given.get(4, repository / "docs/scaling.svg"))
    with tempfile.NamedTemporaryFile(suffix=".html") as page:
        subprocess.run([holdfast, "bench", "report", "-o", page.name, report], check=True, stdout=subprocess.DEVNULL)
        page = pathlib.Path(page.name).read_text()
    figure = re.search(rf"<figure><figcaption>{re.escape(html.escape(title))}</figcaption>(.*?)</figure>", page, re.S)
    if not figure:
        raise SystemExit(f"{report} has no plot called {title!r}")
    plot, legend = figure.group(1).split("<ul", 1)
    left, top, lines = 78, HEIGHT, []
    for item in re.findall(r"<li>(.*?)</li>", legend, re.S):
        mark, name = re.fullmatch(r"(<svg.*?</svg>)\s*([^<]*?)\s*(?:<span.*)?", item, re.S).groups()
        room = 62 + 7 * len(html.unescape(name))
        if left + room - 22 > WIDTH:
            left, top = 78, top + ROW
        mark = mark.replace("<svg ", f'<svg x="{left}" y="{top}" ', 1)
        lines.append(f'{mark}<text x="{left + 40}" y="{top + 11}">{name}</text>')
        left += room
    source = pathlib.Path(report).resolve().relative_to(repository)
    plot = plot.replace("<svg ", f'<svg width="{WIDTH}" height="{HEIGHT}" ', 1)
    legend = '<g class="legend">\n' + "\n".join(lines) + "\n</g>"
    text = FRAME.format(
        width=WIDTH, height=top + 28, title=html.escape(title), source=source, style=style(page), plot=plot, legend=legend
    )
    out.write_text(text)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
