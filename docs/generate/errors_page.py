"""Generates the page of all errors from the catalogs that `pwc explain` reads."""

import inspect
from collections.abc import Iterator

from generate.markdown import cell, escaped
from pathways.cli.explain import catalogs, plain
from pathways.dialect.diagnostics import Diagnostic

HEAD = """# Errors

Made from the catalogs in the code. Every error has a code, the line of the program, what it *has*, what it *needs*, and
what to *try*; `pwc explain CODE` prints what stands here, and `--error-format json` is for tools. Where it says
`<name>`, the message has what was met. In Python each is a `pw.PathwaysError`, whose `code` is the code.

"""
EXITS = "`pwc` ends with {value} ({name})"


def codes() -> list[str]:
    return sorted({one.code for one in catalogs()})


def page() -> str:
    """Returns the page as Markdown, with a heading for each code."""
    known = sorted(catalogs(), key=lambda one: one.code)
    index = "| code | what it says |\n|---|---|\n" + "\n".join(
        f"| [{one.code}](#{one.code.lower()}) | {cell(plain(one.title))} |" for one in known
    )
    return HEAD + index + "\n\n" + "\n".join("\n".join(_entry(one)) for one in known)


def _entry(error: type[Diagnostic]) -> Iterator[str]:
    yield f"## {error.code}: {_text(error.title)} {{ #{error.code.lower()} }}\n"
    if error.__doc__ != error.title:
        yield f"{inspect.getdoc(error)}\n"
    for label, template in (("have", error.have), ("need", error.need), ("try", error.hint)):
        if template:
            yield f"* **{label}**: {_text(template)}"
    yield f"* **example**: [a program that provokes it, and how to mend it](../errors/{error.code}.md)"
    yield f"* **exit**: {EXITS.format(value=error.exit.value, name=error.exit.name.lower())}\n"


def _text(template: str) -> str:
    return escaped(plain(template)).replace("\n", "  \n  ")
