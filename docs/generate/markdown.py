"""Writes plain text as Markdown."""

import re

_CODE = re.compile(r"(`[^`]*`)")
_PAGE = re.compile(r"\bdocs/([\w-]+)\.md")


def escaped(text: str) -> str:
    """Escapes all markup in a text, except code between backticks."""
    return "".join(part if i % 2 else _escaped(part) for i, part in enumerate(_CODE.split(text)))


def cell(text: str) -> str:
    """Formats a text for one cell of a table."""
    return escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Escapes markup, and links the pages of docs/ that the text names."""
    shown = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _PAGE.sub(r"[\1](../\1.md)", re.sub(r"([*\[\]])", r"\\\1", shown))
