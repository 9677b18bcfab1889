"""Estimated bytes of intermediate results, for chains of products of 64 bytes."""

import pytest

from pathways.compiler.computations.temporaries import estimate
from pathways.dialect.mlir import make_context, parse

T = "tensor<4x4xf32>"


def dot(result: str, a: str, b: str) -> str:
    return f"%{result} = stablehlo.dot %{a}, %{b} : ({T}, {T}) -> {T}"


def add(result: str, a: str, b: str) -> str:
    return f"%{result} = stablehlo.add %{a}, %{b} : {T}"


def estimated(*lines: str, returned: tuple[str, ...] = ("r",), devices: int = 1) -> int:
    types = ", ".join([T] * len(returned))
    values = ", ".join(f"%{v}" for v in returned)
    end = f"return {values} : {types}" if returned else "return"
    body = "\n".join((*lines, end))
    text = f"func.func public @main(%a: {T}) -> ({types}) {{\n{body}\n}}"
    return estimate(parse(text, make_context()).operation, devices)


CHAINS: list[tuple[str, tuple[str, ...], int]] = [
    ("elementwise operations are fused", (add("b", "a", "a"), add("r", "b", "b")), 0),
    ("the result is the caller's", (dot("r", "a", "a"),), 0),
    ("a product is kept for its reader", (dot("b", "a", "a"), add("r", "b", "a")), 64),
    ("a product is kept until the next", (dot("b", "a", "a"), dot("c", "b", "a"), dot("r", "c", "a")), 128),
    (
        "what is read before is freed",
        (dot("b", "a", "a"), dot("c", "b", "a"), dot("d", "c", "a"), dot("r", "d", "a")),
        128,
    ),
    (
        "a fused reader keeps its operands",
        (dot("b", "a", "a"), add("c", "b", "a"), dot("d", "a", "a"), add("r", "c", "d")),
        128,
    ),
    (
        "a fused chain keeps its first operand",
        (dot("b", "a", "a"), add("c", "b", "a"), add("d", "c", "a"), dot("e", "d", "a"), dot("r", "e", "a")),
        128,
    ),
    ("a dead product is left out", (dot("b", "a", "a"), dot("c", "b", "b"), add("r", "a", "a")), 0),
    (
        "a product read twice is kept",
        (dot("b", "a", "a"), dot("c", "b", "a"), dot("d", "c", "a"), dot("r", "d", "b")),
        192,
    ),
]


@pytest.mark.parametrize(("lines", "size"), [pytest.param(*rest, id=name) for name, *rest in CHAINS])
def test_a_kept_result_lives_until_its_last_reader(lines: tuple[str, ...], size: int) -> None:
    assert estimated(*lines) == size


def test_each_returned_value_is_finished_before_the_next() -> None:
    lines = [dot(n, "a", "a") for n in "bcde"]
    lines += [add("r", "b", "c"), add("s", "d", "e")]
    assert estimated(*lines, returned=("r", "s")) == 128
    assert estimated(*lines, returned=("s", "r", "s")) == 128
    assert estimated(*lines, add("t", "r", "s"), returned=("t",)) == 256
    assert estimated(dot("b", "a", "a"), returned=("a",)) == 0 and estimated(returned=()) == 0


@pytest.mark.parametrize(("devices", "size"), [(0, 128), (1, 128), (2, 64), (3, 43), (128, 1), (256, 1)])
def test_temporaries_are_split_over_devices_and_rounded_up(devices: int, size: int) -> None:
    chain = dot("b", "a", "a"), dot("c", "b", "a"), dot("r", "c", "a")
    assert estimated(*chain, devices=devices) == size


LOOP = f"""
%z = stablehlo.constant dense<0> : tensor<i32>
%w:2 = stablehlo.while(%x = %a, %i = %z) : {T}, tensor<i32>
  cond {{
    %n = stablehlo.constant dense<3> : tensor<i32>
    %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    {dot("p", "x", "x")}
    {dot("q", "p", "x")}
    stablehlo.return %q, %i : {T}, tensor<i32>
  }}
"""


def test_a_loop_needs_what_its_body_needs_beside_its_results() -> None:
    own = 4  # the counter is no result of the computation
    assert estimated(LOOP, returned=("w#0",)) == own + 64
    assert estimated(LOOP, dot("r", "w#0", "a")) == own + 64 + 64
    assert estimated(dot("b", "a", "a"), LOOP, add("r", "b", "w#0")) == 64 + own + 64 + 64
