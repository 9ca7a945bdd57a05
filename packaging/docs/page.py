#!/usr/bin/env python3
"""Writes the pages that docs/README.md links, in its order, into one HTML file, and checks it.

    packaging/docs/page.py VERSION OUT.html
    packaging/docs/page.py --check FILE.html

A link between pages becomes one within the file; a link to a file that is not in it becomes its text.
"""

import html
import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

INDEX = "docs/README.md"
# Files in docs that pages link, and that people copy.
COPIED = {".yaml", ".py", ".ps1"}
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
STYLE = """
:root { color-scheme: light dark; --line: #8884; --code: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; }
nav { padding: 1rem; border-bottom: 1px solid var(--line); font-size: .9rem; }
nav b { display: block; margin-top: .6rem; }
nav a { display: inline-block; margin-right: .8rem; }
main { max-width: 60rem; padding: 0 1rem; margin: 0 auto; }
section { border-bottom: 1px solid var(--line); padding: 1rem 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
code { background: var(--code); padding: .1em .2em; border-radius: 3px; font-size: .9em; }
pre { background: var(--code); padding: .7rem; overflow-x: auto; border-radius: 4px; }
pre code { background: none; padding: 0; }
.top { float: right; font-size: .8rem; }
@media (min-width: 75rem) {
  nav { position: fixed; top: 0; bottom: 0; left: 0; width: 15rem; overflow-y: auto; border: 0; }
  nav a { display: block; }
  main { margin-left: 18rem; }
}
@media print { nav, .top { display: none; } section { break-before: page; } }
"""


def name_of(path):
    """The id of a page in the file: docs/howto/bgp.md is howto-bgp."""
    return re.sub(r"[/.]", "-", path.removeprefix("docs/").removesuffix(".md"))


def slug(heading, seen):
    """The anchor of a heading, as GitHub makes it; tests/it/links.rs does the same."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_").replace(" ", "-")
    count = seen[kept] = seen.get(kept, -1) + 1
    return kept if count == 0 else f"{kept}-{count}"


def without_comments(text):
    """The text without the comments that are for tests and generators."""
    return re.sub(r"^ *<!--.*?-->\n", "", text, flags=re.M)


def linked(page, text):
    """The paths of the files that a page links, as from the project's root."""
    return [posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) for target in LINK.findall(text)]


def section(page, text, paths, markdown):
    """A page as HTML."""
    tokens, seen = markdown.parse(text), {}
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            words = "".join(part.content for part in tokens[at + 1].children if part.type in ("text", "code_inline"))
            token.attrSet("id", f"{name_of(page)}--{slug(words, seen)}")
        for part in token.children or []:
            if part.type == "link_open":
                lead(part, page, paths)
    return f'<section id="{name_of(page)}"><a class="top" href="#top">top</a>\n{markdown.renderer.render(tokens, markdown.options, {})}</section>\n'


def lead(link, page, paths):
    """Makes a link lead within the file, or removes its target."""
    target, _, anchor = link.attrGet("href").partition("#")
    if target.startswith(("http:", "https:")):
        return
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page
    if path in paths:
        link.attrSet("href", f"#{name_of(path)}" + (f"--{anchor}" if anchor else ""))
    else:
        del link.attrs["href"]
        link.attrSet("title", path)


def navigation(index, paths):
    """The pages by the headings of the index."""
    lines = []
    for line in index.splitlines():
        if line.startswith("## "):
            lines.append(f"<b>{html.escape(line[3:])}</b>")
        for title, target in re.findall(r"\[([^\]]+)\]\(([^)#:]+)\)", line):
            path = posixpath.normpath(posixpath.join("docs", target))
            if path in paths:
                lines.append(f'<a href="#{name_of(path)}">{html.escape(title)}</a>')
    return "\n".join(lines)


class Checker(HTMLParser):
    """Collects the ids, the links, and what would need a network."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.outside = [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"][1:]] if given.get("href", "").startswith("#") else []
        if tag in ("script", "link", "img", "iframe") or "src" in given:
            self.outside.append(tag)


def check(page, paths):
    """Returns what is wrong with the file."""
    checker = Checker()
    checker.feed(page)
    ids = set(checker.ids)
    wrong = [f"two elements have the id {one}" for one in sorted(ids) if checker.ids.count(one) > 1]
    wrong += [f"no element has the id {link}" for link in sorted(set(checker.links) - ids)]
    wrong += [f"it needs another file: {tag}" for tag in checker.outside]
    wrong += [f"{path} is not in it" for path in paths if name_of(path) not in ids]
    return wrong


def build(version):
    index = Path(INDEX).read_text(encoding="utf-8")
    pages = [INDEX] + [path for path in dict.fromkeys(linked(INDEX, index)) if path.endswith(".md")]
    texts = {page: without_comments(Path(page).read_text(encoding="utf-8")) for page in pages}
    files = [path for page in pages for path in linked(page, texts[page]) if path.startswith("docs/")]
    copied = [path for path in dict.fromkeys(files) if Path(path).suffix in COPIED]
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    paths = set(pages + copied)
    sections = [section(page, texts[page], paths, markdown) for page in pages]
    for path in copied:
        content = f"# {path}\n\n````\n{Path(path).read_text(encoding='utf-8')}````\n"
        sections.append(section(path, content, paths, markdown))
    title = f"calicoctl-win {version}"
    whole = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style>\n</head>\n<body id="top">\n'
        f"<nav>\n<strong>{title}</strong>\n{navigation(index, paths)}\n</nav>\n<main>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )
    return whole, paths


def main():
    version, out = sys.argv[1:]
    if version == "--check":
        wrong = check(Path(out).read_text(encoding="utf-8"), build("")[1])
    else:
        whole, paths = build(version)
        wrong = check(whole, paths)
    if wrong:
        sys.exit("\n".join(wrong))
    if version != "--check":
        Path(out).write_text(whole, encoding="utf-8", newline="\n")


main()
