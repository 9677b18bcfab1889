"""The site builds without warnings and without a network. Its links resolve, and its pictures are up to date."""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from support.pictures import opened_browser
from support.processes import run_python

from pathways.cli.explain import catalogs

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    code = "import sys, warnings; warnings.simplefilter('default'); from mkdocs.__main__ import cli; cli(sys.argv[1:])"
    told = ("build", "--strict", "--quiet", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(folder))
    done = run_python("-c", code, *told, NO_MKDOCS_2_WARNING="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Page(HTMLParser):
    """Collects the links of a page, the files that it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loads += [given[name] for name in ("src",) if name in given]
        self.loads += [given["href"]] if tag == "link" and "href" in given else []


def broken(pages: dict[Path, _Page]) -> Iterator[str]:
    """Yields links that do not resolve, and files that a page loads from another site."""
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            file, anchor = urldefrag(link)
            if file.startswith("https://") and link in page.links:
                continue
            target = (path.parent / unquote(file)).resolve() if file else path
            if target.suffix != ".html":
                if not target.is_file() and not (target.is_dir() and (target / "index.html").is_file()):
                    yield f"{path}: {link}"
            elif target not in pages or unquote(anchor) not in pages[target].anchors:
                yield f"{path}: {link}"


def test_all_links_resolve_and_pages_load_only_files_of_the_site(site: Path) -> None:
    pages = {path: _Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 25 and sum(len(page.links) for page in pages.values()) > 1000
    assert not list(broken(pages))


def test_broken_links_are_detected() -> None:
    here, there = Path("/site/a.html"), Path("/site/b.html")
    text = '<a href="b.html#in">1</a><a href="b.html#out">2</a><a href="c.html">3</a><img src="https://far/x.png">'
    found = list(broken({here: _Page(text), there: _Page('<h1 id="in">')}))
    assert [one.partition(": ")[2] for one in found] == ["b.html#out", "c.html", "https://far/x.png"]


def test_every_error_has_an_anchor_and_guides_link_to_errors(site: Path) -> None:
    page = _Page((site / "reference" / "errors.html").read_text())
    assert {one.code.lower() for one in catalogs()} <= page.anchors
    guide = (site / "programs.html").read_text()
    assert re.search(r'<a href="reference/errors.html#pwc0207">PWC0207</a>', guide)


def test_pictures_take_the_colors_of_their_page(site: Path) -> None:
    page = (site / "concepts.html").read_text()
    assert page.count('<svg role="img" aria-label=') == 5 and "currentColor" in page


def test_the_copy_button_copies_only_commands(site: Path) -> None:
    with opened_browser() as page:
        page.view.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.view.goto((site / "first-hour.html").as_uri())
        block = page.view.locator(".highlight", has_text="pwc inspect plan.bin --schedule")
        block.locator("button").click()
        page.view.get_by_text("Copied to clipboard").wait_for()
        copied = page.view.evaluate("navigator.clipboard.readText()")
    assert [line for line in copied.split("\n") if line] == ["pwc inspect plan.bin", "pwc inspect plan.bin --schedule"]


def test_pictures_and_tables_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make pictures` writes them."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from generate.pictures import made  # pyright: ignore

    stale = [path.relative_to(ROOT).as_posix() for path, text in made().items() if path.read_text() != text]
    for name in [name for name in sys.modules if name.partition(".")[0] == "generate"]:
        del sys.modules[name]
    assert not stale
