"""`pwc explain`"""

import re
from collections.abc import Iterator

import click

import pathways.api.errors
import pathways.cli.errors
import pathways.compiler.emit.errors
import pathways.compiler.errors
import pathways.compiler.frontends.jax.pipeline.errors
import pathways.compiler.frontends.mpmd.errors
import pathways.dialect.errors
import pathways.runtime.errors
import pathways.runtime.wire.errors
import pathways.viz.errors
from pathways.cli.errors import UnknownCode
from pathways.dialect.diagnostics import Diagnostic, PathwaysError

_CATALOGS = (
    pathways.dialect.errors,
    pathways.compiler.errors,
    pathways.compiler.emit.errors,
    pathways.compiler.frontends.jax.pipeline.errors,
    pathways.compiler.frontends.mpmd.errors,
    pathways.runtime.errors,
    pathways.runtime.wire.errors,
    pathways.viz.errors,
    pathways.api.errors,
    pathways.cli.errors,
)

_EXAMPLE = """
\b
Examples:
  pwc explain PWC0301
  pwc explain            (lists all codes)
"""


@click.command("explain", epilog=_EXAMPLE)
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Say what an error code means, or list them all."""
    catalog = {cls.code: cls for cls in catalogs()}
    if code is None:
        for known in sorted(catalog):
            click.echo(f"{known}  {plain(catalog[known].title)}")
        return
    found = catalog.get(code.upper())
    if found is None:
        raise PathwaysError(UnknownCode(asked=code, known=", ".join(sorted(catalog))))
    click.echo(f"{found.code}: {plain(found.title)}")
    for label, template in (("have", found.have), ("need", found.need), ("try", found.hint)):
        click.echo(f"  {label + ':':6} {plain(template)}")
    click.echo(f"  exit:  {found.exit.value} ({found.exit.name.lower()})")


def catalogs() -> Iterator[type[Diagnostic]]:
    """Yields every class of error, each once."""
    for module in _CATALOGS:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Diagnostic) and value.__module__ == module.__name__:
                yield value


def plain(template: str) -> str:
    """Shows a template with its fields as words: {have_} -> <have>."""
    return re.sub(r"\{(\w+?)_?(:[^}]*)?\}", r"<\1>", template).replace("{{", "{").replace("}}", "}")
