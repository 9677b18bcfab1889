"""Generates the page of the command line from its commands and options."""

from collections.abc import Iterator

import click

from generate.markdown import cell, escaped
from pathways.cli.main import main

HEAD = """# The command line

Made from the commands themselves: `pwc COMMAND --help` prints the same. Exit codes: 0 done, 1 the program failed
(`diff`: the plans differ), 2 usage, 3 refused by a check, 4 hang, 5 capacity, 6 version. [Errors](errors.md) have
codes.

"""
PIPE = "\\|"


def page() -> str:
    """Returns the page as Markdown, with a heading for each command."""
    with click.Context(main, info_name="pwc") as context:
        listed = "\n".join(
            f"* [`{' '.join(names)}`](#{'-'.join(names)}): {command.get_short_help_str(200)}"
            for names, command in commands(context)
        )
        return HEAD + listed + "\n\n" + "\n".join("\n".join(_section(context, *one)) for one in commands(context))


def commands(context: click.Context) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yields every command with the words that call it; a group comes before its commands."""
    yield from _below(context, ("pwc",), main)


def _below(
    context: click.Context, names: tuple[str, ...], command: click.Command
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if len(names) > 1:
        yield names, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _below(context, (*names, name), below)


def _section(parent: click.Context, names: tuple[str, ...], command: click.Command) -> Iterator[str]:
    with click.Context(command, info_name=" ".join(names[1:]), parent=parent) as context:
        yield f"## `{' '.join(names)}` {{ #{'-'.join(names)} }}\n"
        pieces = " ".join(command.collect_usage_pieces(context))
        yield f"    {' '.join(names)} {pieces}\n"
        yield _prose(command.help or "")
        yield from _options(context, command)
        yield _prose(command.epilog or "")


def _options(context: click.Context, command: click.Command) -> Iterator[str]:
    records = [r for p in command.get_params(context) if (r := p.get_help_record(context)) is not None]
    if records:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| `{names.replace('|', PIPE)}` | {cell(meaning)} |" for names, meaning in records)
        yield ""


def _prose(text: str) -> str:
    """Converts a help text to Markdown. A paragraph that starts with a line of `\\b` becomes a code block."""
    parts: list[str] = []
    for paragraph in text.replace("\f", "\n\n").split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if lines[0].strip() == "\b":
            kept = lines[1:]
            if not kept[0].startswith(" "):
                parts.append(escaped(kept.pop(0)))
            parts.append("\n".join(f"    {line.removeprefix('  ')}" for line in kept))
        elif any(lines):
            parts.append(escaped("\n".join(line.strip() for line in lines)))
    return "\n\n".join(part for part in parts if part) + "\n"
