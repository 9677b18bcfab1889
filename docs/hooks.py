"""Hooks of mkdocs: they add the pages that are made from the code, and link error codes to their explanations."""

import re
from pathlib import Path
from typing import Any

from generate import api_page, cli_page, errors_page, stability_page
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

ERRORS = "reference/errors.md"
MADE = {
    "reference/cli.md": cli_page.page,
    "reference/api.md": api_page.page,
    ERRORS: errors_page.page,
    "reference/stability.md": stability_page.page,
}
_APART = re.compile(r"(<(pre|code|a|svg|script|h[1-6])\b.*?</\2>)", re.S)
_CODE = re.compile(r"\bPWC\d{4}\b")
_PICTURE = re.compile(r'<img alt="([^"]*)" src="(?:\.\./)*(pictures/[\w-]+\.svg)"[^>]*>')


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the reference."""
    for name, page in MADE.items():
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Puts the pictures into the page, where they take its colors, and links error codes to what they mean."""
    html = _PICTURE.sub(lambda found: _inline(found[0], Path(config.docs_dir) / found[2], found[1]), html)
    parts = _APART.split(html)
    url = get_relative_url(files.get_file_from_path(ERRORS).url, page.url)
    known = set(errors_page.codes())
    # The split gives what stands between elements, an element, and the element's name, in turns.
    return "".join(_linked(part, url, known) if i % 3 == 0 else part for i, part in enumerate(parts) if i % 3 != 2)


def _inline(image: str, path: Path, alt: str) -> str:
    """The picture itself, where `generate` drew it; what `pwc viz` drew has colors of its own, and stays an image."""
    picture = path.read_text()
    return (
        picture.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1) if 'class="diagram"' in picture else image
    )


def _linked(text: str, url: str, known: set[str]) -> str:
    def link(found: re.Match[str]) -> str:
        if found[0] not in known:
            raise PluginError(f"{found[0]} is no code of an error")
        return f'<a href="{url}#{found[0].lower()}">{found[0]}</a>'

    return _CODE.sub(link, text)
