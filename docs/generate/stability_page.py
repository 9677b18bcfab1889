"""Writes the page with the stability of every public thing, from the table that `pwc explain` reads."""

from collections.abc import Iterator, Mapping

from pathways.dialect.stability import COMMANDS, FORMATS, NAMES, OPTIONS, VARIABLES, Mark

HEAD = """# Stability of every name

Made from the table in the code. [Stability and versions](../stability.md) says what the marks promise.

"""
SECTIONS: Mapping[str, tuple[str, Mapping[str, Mark]]] = {
    "Python": ("pw.", NAMES),
    "Commands": ("pwc ", COMMANDS),
    "Options that differ from their command": ("pwc ", OPTIONS),
    "Environment variables": ("", VARIABLES),
    "Formats": ("", FORMATS),
}


def page() -> str:
    """Returns the page as Markdown: one table for each kind of thing."""
    return HEAD + "\n".join(
        line for title, (prefix, marks) in SECTIONS.items() for line in _section(title, prefix, marks)
    )


def _section(title: str, prefix: str, marks: Mapping[str, Mark]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| name | stability |\n|---|---|"
    yield from (f"| `{prefix}{name}` | {mark} |" for name, mark in sorted(marks.items()))
    yield ""
