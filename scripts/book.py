"""Makes the book of `make book` from the documents as they stand in the repository, and checks it.

usage: book.py MDBOOK OUT

A document keeps its path, so the links between documents are those that a forge shows. What the book's summary leaves out, and a
link that leads nowhere in the book, are failures.
"""

import html.parser
import pathlib
import shutil
import subprocess
import sys
import urllib.parse

TOP = pathlib.Path(__file__).resolve().parent.parent
# What README and documents show or name beside other documents.
BESIDE = ["docs/*.svg", "LICENSE-MIT", "LICENSE-APACHE"]


def documents():
    """All of them, by their path from the top."""
    found = [*TOP.glob("*.md"), *TOP.glob("docs/*.md")]
    return sorted(path.relative_to(TOP) for path in found)


def assemble(book):
    """The folder that mdBook reads."""
    shutil.rmtree(book, ignore_errors=True)
    source = book / "src"
    beside = [path.relative_to(TOP) for of in BESIDE for path in TOP.glob(of)]
    for path in documents() + beside:
        to = source / path
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TOP / path, to)
    shutil.copyfile(TOP / "packaging/book/SUMMARY.md", source / "SUMMARY.md")
    shutil.copyfile(TOP / "packaging/book/book.toml", book / "book.toml")


class Page(html.parser.HTMLParser):
    """The links and the places of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if attrs.get("id"):
            self.places.add(attrs["id"])
        link = attrs.get("href") if tag == "a" else attrs.get("src") if tag == "img" else None
        if link:
            self.links.append(link)


def broken(html_dir):
    """What leads nowhere: page and link."""
    pages = {path: Page(path.read_text()) for path in html_dir.rglob("*.html")}
    for path, page in sorted(pages.items()):
        # These two show others, or are shown wherever something is missing.
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for link in page.links:
            to = urllib.parse.urlsplit(link)
            if to.scheme or to.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(to.path)).resolve() if to.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield path.relative_to(html_dir), link
            elif to.fragment and target in pages:
                if urllib.parse.unquote(to.fragment) not in pages[target].places:
                    yield path.relative_to(html_dir), link


def main():
    mdbook, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    summary = (TOP / "packaging/book/SUMMARY.md").read_text()
    missing = [str(path) for path in documents() if f"]({path})" not in summary]
    if missing:
        sys.exit(f"packaging/book/SUMMARY.md leaves out {', '.join(missing)}")
    assemble(out)
    done = subprocess.run([mdbook, "build", "--dest-dir", out / "html", out], capture_output=True, text=True)
    if done.returncode != 0 or "WARN" in done.stderr or "ERROR" in done.stderr:
        sys.exit(f"mdBook: {done.stdout}{done.stderr}")
    wrong = list(broken(out / "html"))
    for page, link in wrong:
        print(f"{page}: {link} leads nowhere")
    if wrong:
        sys.exit(1)
    pages = len(list((out / "html").rglob("*.html")))
    if pages < len(documents()):
        sys.exit(f"there are {pages} pages of {len(documents())} documents")
    print(f"the book has {pages} pages and no link that leads nowhere: {out / 'html' / 'index.html'}")


if __name__ == "__main__":
    main()
