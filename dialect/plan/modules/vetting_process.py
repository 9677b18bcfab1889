"""The process that reads modules first: it parses, verifies and checks them, and says what it found.

MLIR's readers are not safe against hostile bytes: they corrupt the heap, recurse without end, or never return. Here
that does no harm. It starts without JAX and without the package's own `__init__`, has little memory, time and stack,
and leaves no core file. It announces each item before it reads it, so that its parent knows what it died of.

Standard input: a line of JSON (`Order`), then the bytes of all items. The answer: a line of JSON each, {"reading": i}
before item i; {"problem": ..., "target": ...} and the end, or {"done": n}.
"""

import json
import os
import resource
import sys
from typing import Any, BinaryIO

from pathways.dialect.bare_mlir import Context, bare_ir, make_bare_context, read_text
from pathways.dialect.plan.modules.check import check_module, read_module
from pathways.dialect.plan.modules.stated_module import Refused, from_json

MOST_ANSWERED = 1 << 20
"""The most bytes of an answer, which is a file: hostile code must not fill a disk."""
_STACK = 1 << 21
"""A quarter of what the process that reads afterwards has."""


def answer() -> None:
    answers = _private_answers()
    order = json.loads(sys.stdin.buffer.readline())
    _limit(order["seconds"], order["memory"])
    _say(answers, reading=-1)
    context = make_bare_context()
    try:
        for number, item in enumerate(order["items"]):
            raw = sys.stdin.buffer.read(item["size"])
            _say(answers, reading=number)
            _read(item, raw, context, order["allowed"])
    except Refused as refused:
        _say(answers, problem=refused.problem, target=refused.target)
    else:
        _say(answers, done=len(order["items"]))
    answers.flush()
    os._exit(0)  # to free a hostile module may crash


def _read(item: dict[str, Any], raw: bytes, context: Context, allowed: str) -> None:
    """Reads an item; raises Refused. One without a signature is a dump of a phase: text."""
    if item["stated"] is not None:
        module = read_module(raw, context)
        check_module(module, from_json(item["stated"]), len(raw), allowed)
        return
    try:
        read_text(raw, context)
    except (ValueError, bare_ir.MLIRError) as error:
        lines = str(error).strip().splitlines() or ["MLIR does not say why"]
        raise Refused(f"cannot be read: {lines[0][:200]}") from None


def _private_answers() -> BinaryIO:
    """Keeps standard output for answers alone: output of libraries is dropped."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return answers


def _limit(seconds: int, memory: int) -> None:
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_STACK, _STACK),
        (resource.RLIMIT_FSIZE, MOST_ANSWERED),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        more = most + (what == resource.RLIMIT_CPU)  # SIGXCPU comes at the first limit, and names the reason
        resource.setrlimit(what, (most, more if hard == resource.RLIM_INFINITY else min(more, hard)))


def _say(answers: BinaryIO, **answer: Any) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
