"""Texts of a plan are escaped before they reach a terminal. Files that they name are read only if regular and small."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.plan_mutations import archive, members_of
from support.processes import pwc_here

from pathways.dialect.diagnostics import MAX_SOURCE_BYTES, PathwaysError, Where
from pathways.dialect.errors import DamagedPlan
from pathways.dialect.plan.codec import plan_message
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.plan_file import read_plan, write_plan
from pathways.dialect.printable import lines_of, printable
from pathways.dialect.trees import Tree

EVIL = "\x1b[31mred\x9b\u202e\u2028\x07\x00"


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _strings(item)
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, Tree):
        for name in value.__dataclass_fields__:
            yield from _strings(getattr(value, name))


def _poison(message: Any) -> None:
    """Appends terminal control characters to every text of a message, except trees and names of members."""
    for field, content in message.ListFields():
        if field.message_type is not None:
            for item in content if field.is_repeated else (content,):
                _poison(item)
        elif field.type == field.TYPE_STRING and field.name not in ("in_tree", "out_tree", "member"):
            if field.name == "devices" or (message.DESCRIPTOR.name == "Computation" and field.name == "name"):
                continue  # ranges of devices, and names of archive members
            if field.is_repeated:
                content[:] = [item + EVIL for item in content]
            else:
                setattr(message, field.name, content + EVIL)


@pytest.mark.long("more plans of the same kind", keep=("4",))
@pytest.mark.parametrize("number", range(5))
def test_control_characters_of_a_plan_never_reach_a_terminal(plans: list[Plan], tmp_path: Path, number: int) -> None:
    """Poisons every text of a plan at once: names, files, islands, reasons."""
    members = members_of(write_plan(plans[number]))
    message = plan_message(members["plan.pb"])
    _poison(message)
    for stream in (*message.streams, *(s for b in message.bodies for s in b.streams)):
        for kind in stream.kinds:
            kind.type.dtype = kind.type.dtype.removesuffix(EVIL)
        for i in stream.instructions:
            if i.HasField("branch"):
                i.branch.kind = i.branch.kind.removesuffix(EVIL)
    members["plan.pb"] = message.SerializeToString()
    path = tmp_path / "evil.bin"
    path.write_bytes(archive(members))
    plan = read_plan(path.read_bytes())
    assert any("\\x1b[31mred\\x9b\\u202e\\u2028\\x07\\x00" in text for text in _strings(plan))
    assert all(text.isprintable() for text in _strings(plan))
    for command in (
        ("inspect",),
        ("inspect", "--memory"),
        ("inspect", "--json"),
        ("why",),
        ("diff",),
        ("check",),
        ("run",),
    ):
        given = (str(path),) * (2 if command[0] == "diff" else 1)
        _, out, err = pwc_here(command[0], *given, *command[1:])
        assert all(c.isprintable() or c == "\n" for c in out + err), command


def test_dumps_and_errors_are_shown_escaped(pipe: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    path.write_bytes(
        write_plan(
            replace(pipe, phases={"06.plan.mlir": f"// {EVIL}\tx\n\xff".encode("latin-1", "replace")}), marked=True
        )
    )
    code, out, _ = pwc_here("inspect", str(path), "--ir", "plan")
    assert code == 0 and "\\x1b[31m" in out and "\x1b" not in out and "\t" in out
    error = PathwaysError(DamagedPlan(path=f"a{EVIL}\nb", problem=f"c{EVIL}\nd", where=Where(f"e{EVIL}\n.py", 3)))
    title, place, *rest = str(error).splitlines()
    assert title.endswith(f"{printable(EVIL)}\\nb is damaged") and place.endswith("\\n.py:3")
    assert rest[1].strip() == "d" and all(line.isprintable() for line in str(error).splitlines())
    manifest = {"format": 99, "kind": "pathways plan", "writer": {EVIL: EVIL}}
    with pytest.raises(PathwaysError, match="PWC0603") as caught:
        read_plan(archive(members_of(write_plan(pipe)) | {"manifest.json": json.dumps(manifest).encode()}))
    assert "\x1b" not in str(caught.value)


def test_control_characters_are_escaped() -> None:
    assert printable("Größe ≤ 3 → ✓") == "Größe ≤ 3 → ✓"
    assert printable("a\tb\nc\x7f\x85") == "a\\tb\\nc\\x7f\\x85" and lines_of("a\tb\nc\r") == "a\tb\nc\\r"


def test_source_lines_are_read_only_from_small_regular_files(tmp_path: Path) -> None:
    """A plan names the file of each line. Reading a pipe or a device never ends, and a file of /proc may not end."""
    pipe, large, source = tmp_path / "pipe.py", tmp_path / "large.py", tmp_path / "source.py"
    os.mkfifo(pipe)
    source.write_text("first\nsecond\n")
    with large.open("wb") as made:
        made.truncate(MAX_SOURCE_BYTES + 1)
    for file in (pipe, large, tmp_path, Path("/dev/zero"), Path("/proc/self/status"), "a\0b"):
        assert Where(str(file), 1).source() == ""
    assert Where(str(source), 2).source() == "second"
