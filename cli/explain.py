"""Implements `pwc explain`, which explains an error code such as PWC0302, or the stability of a public name. Without an
argument it lists all error codes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import click

import pathways.api.errors
import pathways.cli.errors
import pathways.compiler.emit.errors
import pathways.compiler.errors
import pathways.compiler.frontends.jax.pipeline.errors
import pathways.compiler.frontends.mpmd.errors
import pathways.compiler.frontends.stablehlo.errors
import pathways.dialect.errors
import pathways.ifrt_proxy.errors
import pathways.runtime.errors
import pathways.runtime.wire.errors
import pathways.viz.errors
from pathways.cli.errors import UnknownCode
from pathways.cli.json_output import json_option, print_json
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.stability import PROMISES, stability_of

_CATALOGS = (
    pathways.dialect.errors,
    pathways.compiler.errors,
    pathways.compiler.emit.errors,
    pathways.compiler.frontends.jax.pipeline.errors,
    pathways.compiler.frontends.mpmd.errors,
    pathways.compiler.frontends.stablehlo.errors,
    pathways.runtime.errors,
    pathways.runtime.wire.errors,
    pathways.viz.errors,
    pathways.api.errors,
    pathways.ifrt_proxy.errors,
    pathways.cli.errors,
)

_EXAMPLE = """
\b
Examples:
  pwc explain PWC0301
  pwc explain pw.pipeline        (the stability of a name, command, variable or format)
  pwc explain                    (lists all codes)
"""


@click.command("explain", epilog=_EXAMPLE)
@click.argument("code", metavar="[CODE | NAME]", required=False)
@json_option
def explain(code: str | None, as_json: bool) -> None:
    """Explain an error code, or the stability of a public name; without an argument, list all codes."""
    catalog = {cls.code: cls for cls in catalogs()}
    if code is None:
        _list(catalog, as_json=as_json)
    elif (found := catalog.get(code.upper())) is not None:
        _explain(found, as_json=as_json)
    elif (public := stability_of(code)) is not None:
        name, (mark, kind) = public
        if as_json:
            print_json({"name": name, "kind": kind, "stability": mark})
        else:
            click.echo(f"{name}: {mark} ({kind}): {PROMISES[mark]}")
    else:
        raise PathwaysError(UnknownCode(requested=code, known=", ".join(sorted(catalog))))


def _list(catalog: Mapping[str, type[Diagnostic]], *, as_json: bool) -> None:
    codes = sorted(catalog)
    if as_json:
        print_json({"codes": [_row(catalog[code]) for code in codes]})
        return
    for code in codes:
        click.echo(f"{code}  {plain(catalog[code].title)}")


def _explain(error: type[Diagnostic], *, as_json: bool) -> None:
    row = _row(error)
    if as_json:
        print_json(row)
        return
    click.echo(f"{row['code']}: {row['title']}")
    for label in ("have", "need", "try"):
        click.echo(f"  {label + ':':6} {row[label]}")
    click.echo(f"  exit:  {row['exit']} ({error.exit.name.lower()})")


def _row(error: type[Diagnostic]) -> dict[str, Any]:
    """Returns what a code means, with its fields as words."""
    texts = {"title": error.title, "have": error.have, "need": error.need, "try": error.hint}
    return {"code": error.code, "exit": error.exit.value} | {key: plain(text) for key, text in texts.items()}


def catalogs() -> Iterator[type[Diagnostic]]:
    """Yields every error class once."""
    for module in _CATALOGS:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Diagnostic) and value.__module__ == module.__name__:
                yield value


def plain(template: str) -> str:
    """Formats a template with its fields as words: {have_} -> <have>."""
    return re.sub(r"\{(\w+?)_?(:[^}]*)?\}", r"<\1>", template).replace("{{", "{").replace("}}", "}")
