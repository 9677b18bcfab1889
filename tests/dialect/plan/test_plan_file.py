"""plan.bin: equal bytes, listed by unzip, and every damage a coded error in this very process."""

import io
import json
import random
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes import ROOT, pwc, pwc_here

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


def test_round_trip(moe_plan: Path) -> None:
    raw = moe_plan.read_bytes()
    assert write_plan(read_plan(raw), marked=True) == raw
    names = zipfile.ZipFile(io.BytesIO(raw)).namelist()
    assert "manifest.json" in names and "plan.pb" in names
    assert any(n.startswith("computations/") for n in names)


def test_equal_bytes_from_other_processes(tmp_path: Path) -> None:
    written: list[bytes] = []
    for seed in ("0", "1"):
        path = tmp_path / f"{seed}.bin"
        done = pwc("compile", str(ROOT / "samples" / "train_lm.py"), "-o", str(path), PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        written.append(path.read_bytes())
    assert written[0] == written[1]


def test_truncated(moe_plan: Path) -> None:
    raw = moe_plan.read_bytes()
    for length in (0, 1, 4, 30, 100, len(raw) // 2, len(raw) - 1):
        assert code_of(raw[:length]) in {"PWC0601", "PWC0602"}


def test_every_flipped_bit_is_found(moe_plan: Path) -> None:
    raw = moe_plan.read_bytes()
    rng = random.Random(0)
    positions = [*range(0, 120), *range(len(raw) - 120, len(raw)), *(rng.randrange(len(raw)) for _ in range(300))]
    for position in positions:
        flipped = bytearray(raw)
        flipped[position] ^= 1 << rng.randrange(8)
        assert code_of(bytes(flipped)) in {"PWC0601", "PWC0602", "PWC0603"}


def test_other_files(tmp_path: Path) -> None:
    assert code_of(b"") == code_of(b"hello") == code_of(b"import jax\n") == "PWC0601"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("manifest.json", "{}")
    assert code_of(out.getvalue()) == "PWC0601"


def test_another_format(moe_plan: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = load_plan(moe_plan)
    monkeypatch.setattr("pathways.dialect.plan.plan_file.FORMAT", 99)
    future = tmp_path / "future.bin"
    future.write_bytes(write_plan(plan))
    monkeypatch.undo()
    exit_code, _, stderr = pwc_here("run", str(future))
    assert exit_code == 6 and "PWC0603" in stderr and "format 99" in stderr


def streams(plan: Plan, change: int, **fields: object) -> Plan:
    """The plan with fields of instruction `change` of its first stream replaced."""
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


def at(plan: Plan, kind: type) -> int:
    return next(i for i, x in enumerate(plan.streams[0].instructions) if isinstance(x, kind))


def test_plans_that_would_kill_the_process_are_refused(moe_plan: Path) -> None:
    plan = load_plan(moe_plan)
    run = at(plan, Run)
    original = plan.streams[0].instructions[run]
    assert isinstance(original, Run)
    hostile = {
        "no such slot": streams(plan, run, inputs=(999,) * len(original.inputs)),
        "too few inputs": streams(plan, run, inputs=original.inputs[:-1]),
        "another computation": streams(plan, run, computation=len(plan.computations)),
        "another mesh": streams(plan, run, mesh=len(plan.meshes) - 1),
        "donates the caller's": streams(plan, run, donated=(0,)),
        "reads what is not there": streams(
            plan, run, inputs=(len(plan.streams[0].buffers) - 1,) * len(original.inputs)
        ),
        "frees twice": streams(plan, at(plan, Free), slots=(0, 0, 0)),
        "sends into nowhere": streams(plan, at(plan, Send), channel=12345),
        "receives from nowhere": streams(plan, at(plan, Recv), channel=54321),
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
    """A receive moved before everything that its send needs: no order can finish."""
    plan = load_plan(moe_plan)
    first = plan.streams[0]
    recv = max(i for i, x in enumerate(first.instructions) if isinstance(x, Recv))
    moved = list(first.instructions)
    moved.insert(0, moved.pop(recv))
    stuck = replace(plan, streams=(replace(first, instructions=tuple(moved)), *plan.streams[1:]))
    with pytest.raises(PathwaysError) as caught:
        linearize(stuck)
    assert caught.value.code == "PWC0604" and "waits for channel" in str(caught.value)


def test_manifest_is_text(moe_plan: Path) -> None:
    manifest = json.loads(zipfile.ZipFile(moe_plan).read("manifest.json"))
    assert manifest["format"] == 4 and manifest["program"] == "step"
    assert set(manifest["writer"]) == {"pathways", "jax", "jaxlib"}
