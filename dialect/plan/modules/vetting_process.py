"""Runs in the separate process that `vet.py` starts whenever a plan of another user is read. It parses and checks the
MLIR modules and phase dumps of the plan, and reports the result. If it crashes, the plan is refused.

MLIR's readers are not safe against hostile bytes: they corrupt the heap, recurse without end, or never return. In this
process that does no harm. It starts without JAX and without the package's own `__init__`, and must not import them. Its
memory, time and stack are limited, and it leaves no core file. It announces each item before it reads it, so that its
parent knows which item crashed it.

Standard input is a line of JSON (items, allowed custom calls, limits), then the bytes of all items. Each answer is a
line of JSON: {"reading": i} before item i, and at the end {"problem": ..., "target": ...} or {"done": n}.
"""

import json
import os
import resource
import sys
from typing import Any, BinaryIO

from pathways.dialect.bare_mlir import Context, bare_ir, make_bare_context, read_text
from pathways.dialect.plan.modules.check import check_module, read_module
from pathways.dialect.plan.modules.stated_module import Refused, from_json

MAX_ANSWER_BYTES = 1 << 20
"""The largest file that this process may write: hostile code must not fill a disk."""
_STACK_BYTES = 1 << 21
"""The limit of the stack: a quarter of the stack of the process that reads the module afterwards."""


def answer() -> None:
    answers = _private_answers()
    order = json.loads(sys.stdin.buffer.readline())
    _limit(order["seconds"], order["memory"])
    _write_answer(answers, reading=-1)
    context = make_bare_context()
    try:
        for number, item in enumerate(order["items"]):
            raw = sys.stdin.buffer.read(item["size"])
            _write_answer(answers, reading=number)
            _read(item, raw, context, order["allowed"])
    except Refused as refused:
        _write_answer(answers, problem=refused.problem, target=refused.target)
    else:
        _write_answer(answers, done=len(order["items"]))
    answers.flush()
    os._exit(0)  # skips the destructor of a hostile module, which may crash


def _read(item: dict[str, Any], raw: bytes, context: Context, allowed: str) -> None:
    """Reads an item, and raises Refused if it is invalid. An item without a signature is a phase dump, as text."""
    if item["stated"] is not None:
        module = read_module(raw, context)
        check_module(module, from_json(item["stated"]), len(raw), allowed)
        return
    try:
        read_text(raw, context)
    except (ValueError, bare_ir.MLIRError) as error:
        lines = str(error).strip().splitlines() or ["MLIR gives no reason"]
        raise Refused(f"cannot be read: {lines[0][:200]}") from None


def _private_answers() -> BinaryIO:
    """Reserves standard output for answers, and discards output of libraries."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return answers


def _limit(seconds: int, memory: int) -> None:
    for what, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_STACK, _STACK_BYTES),
        (resource.RLIMIT_FSIZE, MAX_ANSWER_BYTES),
    ):
        hard = resource.getrlimit(what)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        more = limit + (what == resource.RLIMIT_CPU)  # the soft limit sends SIGXCPU, which shows the reason
        resource.setrlimit(what, (limit, more if hard == resource.RLIM_INFINITY else min(more, hard)))


def _write_answer(answers: BinaryIO, **answer: Any) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
