"""plan.bin is a zip archive with reproducible bytes. Damaged files are refused with an error code."""

import io
import json
import random
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes import pwc_here

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.instructions import Free, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan, Stream
from pathways.dialect.plan.order import linearize
from pathways.dialect.plan.plan_file import load_plan, read_plan, write_plan


def code_of(raw: bytes) -> str:
    with pytest.raises(PathwaysError) as caught:
        plan = read_plan(raw)
        validate(plan)
        linearize(plan)
    return caught.value.code


def test_a_plan_is_read_back_and_written_with_equal_bytes(moe_plan: Path) -> None:
    raw = moe_plan.read_bytes()
    assert write_plan(read_plan(raw), marked=True) == raw
    names = zipfile.ZipFile(io.BytesIO(raw)).namelist()
    assert "manifest.json" in names and "plan.pb" in names
    assert any(n.startswith("computations/") for n in names)


def test_a_truncated_file_is_refused(moe_plan: Path) -> None:
    raw = moe_plan.read_bytes()
    for length in (0, 1, 4, 30, 100, len(raw) // 2, len(raw) - 1):
        assert code_of(raw[:length]) in {"PWC0601", "PWC0602"}


def test_flipped_bits_are_detected(moe_plan: Path) -> None:
    raw = moe_plan.read_bytes()
    rng = random.Random(0)
    positions = [*range(0, 120), *range(len(raw) - 120, len(raw)), *(rng.randrange(len(raw)) for _ in range(300))]
    for position in positions:
        flipped = bytearray(raw)
        flipped[position] ^= 1 << rng.randrange(8)
        assert code_of(bytes(flipped)) in {"PWC0601", "PWC0602", "PWC0603"}


def test_files_that_are_no_plans_are_refused(tmp_path: Path) -> None:
    assert code_of(b"") == code_of(b"hello") == code_of(b"import jax\n") == "PWC0601"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("manifest.json", "{}")
    assert code_of(out.getvalue()) == "PWC0601"


def test_a_plan_of_a_newer_format_is_refused(moe_plan: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = load_plan(moe_plan)
    monkeypatch.setattr("pathways.dialect.plan.plan_file.FORMAT", 99)
    future = tmp_path / "future.bin"
    future.write_bytes(write_plan(plan))
    monkeypatch.undo()
    exit_code, _, stderr = pwc_here("run", str(future))
    assert exit_code == 6 and "PWC0603" in stderr and "format 99" in stderr


def with_instruction(plan: Plan, change: int, **fields: object) -> Plan:
    """Replaces fields of instruction `change` of the first stream of a plan."""
    first = plan.streams[0]
    instructions = list(first.instructions)
    instructions[change] = replace(instructions[change], **fields)  # pyright: ignore[reportArgumentType]
    return replace(plan, streams=(replace(first, instructions=tuple(instructions)), *plan.streams[1:]))


def wrong_kinds(stream: Stream) -> Stream:
    first = replace(stream.groups[0], kinds=(len(stream.kinds),))
    return replace(stream, groups=(first, *stream.groups[1:]))


def wrong_deaths(stream: Stream) -> Stream:
    first = replace(stream.groups[0], deaths=())
    return replace(stream, groups=(first, *stream.groups[1:]))


def position_of(plan: Plan, kind: type) -> int:
    return next(i for i, x in enumerate(plan.streams[0].instructions) if isinstance(x, kind))


def test_plans_that_would_crash_the_process_are_refused(moe_plan: Path) -> None:
    plan = load_plan(moe_plan)
    run = position_of(plan, Run)
    original = plan.streams[0].instructions[run]
    assert isinstance(original, Run)
    hostile = {
        "no such slot": with_instruction(plan, run, inputs=(999,) * len(original.inputs)),
        "too few inputs": with_instruction(plan, run, inputs=original.inputs[:-1]),
        "another computation": with_instruction(plan, run, computation=len(plan.computations)),
        "another mesh": with_instruction(plan, run, mesh=len(plan.meshes) - 1),
        "donates the caller's": with_instruction(plan, run, donated=(0,)),
        "reads what is not there": with_instruction(
            plan, run, inputs=(len(plan.streams[0].buffers) - 1,) * len(original.inputs)
        ),
        "frees twice": with_instruction(plan, position_of(plan, Free), slots=(0, 0, 0)),
        "sends into nowhere": with_instruction(plan, position_of(plan, Send), channel=12345),
        "receives from nowhere": with_instruction(plan, position_of(plan, Recv), channel=54321),
        "a device that is not there": replace(
            plan, meshes=(replace(plan.meshes[0], devices=(0, 99)), *plan.meshes[1:])
        ),
        "one device twice": replace(plan, meshes=(replace(plan.meshes[0], devices=(0, 0)), *plan.meshes[1:])),
        "a kind that is not there": replace(plan, streams=(wrong_kinds(plan.streams[0]), *plan.streams[1:])),
        "fewer deaths than buffers": replace(plan, streams=(wrong_deaths(plan.streams[0]), *plan.streams[1:])),
        "a result too many": replace(plan, results=(*plan.results, plan.results[0])),
    }
    for name, bad in hostile.items():
        assert code_of(write_plan(bad)) == "PWC0604", name


def test_streams_that_wait_for_each_other_are_refused(moe_plan: Path) -> None:
    """A receive precedes everything that its send needs, so no order completes."""
    plan = load_plan(moe_plan)
    first = plan.streams[0]
    recv = max(i for i, x in enumerate(first.instructions) if isinstance(x, Recv))
    moved = list(first.instructions)
    moved.insert(0, moved.pop(recv))
    stuck = replace(plan, streams=(replace(first, instructions=tuple(moved)), *plan.streams[1:]))
    with pytest.raises(PathwaysError) as caught:
        linearize(stuck)
    assert caught.value.code == "PWC0604" and "waits for channel" in str(caught.value)


def test_the_manifest_is_json_with_format_program_and_versions(moe_plan: Path) -> None:
    manifest = json.loads(zipfile.ZipFile(moe_plan).read("manifest.json"))
    assert manifest["format"] == 4 and manifest["program"] == "step"
    assert set(manifest["writer"]) == {"pathways", "jax", "jaxlib"}
